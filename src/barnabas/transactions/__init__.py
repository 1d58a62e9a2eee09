"""Transactions: who writes in which, and how it ends."""
