"""Requests to another node: connections, versions, back-off. Used by client and broker."""
