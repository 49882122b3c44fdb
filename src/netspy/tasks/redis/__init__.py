"""Tasks in Redis lists and streams."""
