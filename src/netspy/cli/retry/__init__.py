"""netspy retry: failed requests crawled again, dead rows stored again."""
