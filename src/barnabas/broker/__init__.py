"""A node: connections, one handler an API, replicas, coordinators, and its part in the metadata quorum."""
