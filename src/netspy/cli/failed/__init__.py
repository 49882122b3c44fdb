"""netspy failed: requests that failed for good, shown, exported, dropped."""
