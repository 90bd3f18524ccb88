"""Posse: bandits across organisations that will not show each other their data."""

from posse.version import __version__

__all__ = ["__version__"]
