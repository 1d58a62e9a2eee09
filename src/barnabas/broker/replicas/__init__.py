"""Replicas of partitions: appends and reads, the high watermark, waiting requests, and metadata changes."""
