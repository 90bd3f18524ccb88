"""Purchases of a combinatorial bandit: optimistic qualities, and what to buy at given ones."""
