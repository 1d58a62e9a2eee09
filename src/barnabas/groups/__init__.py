"""Consumer groups: who is a member of which, what each reads, and how far."""
