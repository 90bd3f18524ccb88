"""Markets of producers and agents: what rounds deliver, random instances, a user's own offers,
settings.
"""
