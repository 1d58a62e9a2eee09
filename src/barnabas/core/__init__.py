"""The lowest layer: errors, and interfaces to clock, disk, network, workers and randomness."""
