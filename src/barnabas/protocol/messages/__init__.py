"""What is said between clients, brokers and controllers: one file an API."""
