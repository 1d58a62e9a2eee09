"""Bytes: record batches, their compression, their validation, and the kernel that looks inside them."""
