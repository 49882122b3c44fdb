"""Tasks from Kafka topics: a consumer in a thread, offsets committed when a task has come to its end."""
