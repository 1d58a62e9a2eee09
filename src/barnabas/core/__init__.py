"""The lowest layer: errors, and interfaces to the outside world (clock, disk, network, workers,
randomness)."""
