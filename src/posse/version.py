"""The version of the package and of what its parties say to each other."""

__version__ = "0.1.1"

PROTOCOL_VERSION = 3
"""Parties of different package versions understand each other when this number is equal."""
