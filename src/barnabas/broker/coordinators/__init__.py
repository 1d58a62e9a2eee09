"""The group and transaction coordinators: state machines, one for each partition that this node leads."""
