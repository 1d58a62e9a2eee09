"""Groups and transactions on whole nodes with replicated partitions, whose coordinators move."""
