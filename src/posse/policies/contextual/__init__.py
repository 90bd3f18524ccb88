"""Exploration of a contextual bandit: from predicted rewards to the chance of every arm."""
