"""The common base of the replicated state machines of groups and transactions."""
