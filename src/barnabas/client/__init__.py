"""The client: producer, consumer and admin, on any Kafka."""
