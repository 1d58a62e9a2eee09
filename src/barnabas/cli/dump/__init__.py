"""What stands in the files of a log directory, read as they are: for `log dump` and for `doctor`.

Nothing here writes, locks, or maps a file: a node may be running, and may append, roll, truncate or delete
meanwhile.
"""
