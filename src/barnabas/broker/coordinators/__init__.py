"""The coordinators of groups and of transactions: state machines, each over a partition that it leads."""
