"""Kafka's configuration: names, types, ranges and defaults; where a value came from; what it means here."""
