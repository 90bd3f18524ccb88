"""Contexts of a linear bandit whose features are split over parties: images, a user's own features,
settings.
"""
