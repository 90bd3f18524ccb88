"""Populations of clients: their samples, how they are split, stored and gathered, what they are
paid, settings.
"""
