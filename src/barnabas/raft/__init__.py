"""Consensus on the metadata log: a synchronous core that takes events and returns actions."""
