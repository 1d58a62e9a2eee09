"""Files of a node outside its partitions: formatting, identity, locks, and the set of log directories."""
