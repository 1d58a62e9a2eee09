"""Log directories in use: which one each partition is in, moves between them, housekeeping, and failures."""
