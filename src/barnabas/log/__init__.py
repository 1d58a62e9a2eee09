"""A partition on disk, in Kafka's own files: segments, indexes, producer state, recovery, retention."""
