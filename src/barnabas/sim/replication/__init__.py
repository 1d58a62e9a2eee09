"""Whole nodes with replicated partitions, and the clients of the kind "log", under faults."""
