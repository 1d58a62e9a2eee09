"""Barnabas: a distributed commit log that speaks Kafka and keeps Kafka's own files."""

__version__ = "0.1.0.dev0"
