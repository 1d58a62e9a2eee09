"""Kafka's configuration: names, types, ranges, defaults, and the sources of values."""
