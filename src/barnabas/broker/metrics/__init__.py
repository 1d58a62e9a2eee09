"""Metrics of a node (`--metrics`): imported only by nodes that serve them."""
