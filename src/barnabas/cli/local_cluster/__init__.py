"""A cluster on this machine: how it is laid out and formatted, and the processes of its nodes."""
