"""Transactions: the state of transactional ids, and their coordinator's decisions."""
