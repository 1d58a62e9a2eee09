"""The failures of a cluster played on real processes: the cast, the plays, and what is told of them."""
