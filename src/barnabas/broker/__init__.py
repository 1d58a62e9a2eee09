"""A node: connections, one handler an API, the replicas it leads, and who waits for what."""
