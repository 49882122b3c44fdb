"""What 'netspy demo' shows: a made-up shop crawled by several processes, and a task table in batches."""
