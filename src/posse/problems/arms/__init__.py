"""Arms of one bandit: their rewards, ratings that give their means, a user's own tables,
settings.
"""
