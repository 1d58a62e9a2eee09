"""Sockets and requests: connections are accepted, frames become requests, responses leave in order."""
