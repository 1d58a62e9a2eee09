"""A partition on disk, in Kafka's file formats: segments, indexes, producer state, recovery, retention."""
