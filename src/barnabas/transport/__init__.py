"""Sending requests to another node: connections, versions, back-off. Client and broker share it."""
