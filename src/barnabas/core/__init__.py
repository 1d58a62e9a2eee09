"""The ground: seams to the outside world (clock, disk, network, workers, randomness) and the errors."""
