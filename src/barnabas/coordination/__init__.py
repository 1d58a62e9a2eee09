"""What the replicated state machines of groups and transactions have in common."""
