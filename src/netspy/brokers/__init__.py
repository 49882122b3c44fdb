"""Message brokers: addresses and connections to RabbitMQ and Kafka."""
