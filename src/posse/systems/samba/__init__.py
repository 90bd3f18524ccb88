"""Secure federated arms."""
