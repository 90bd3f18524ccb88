"""Federated contextual bandits: one reward model on many devices."""
