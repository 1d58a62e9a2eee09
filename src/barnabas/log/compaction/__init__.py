"""Compaction: a partition keeps the latest value of every key (docs/compaction.md)."""
