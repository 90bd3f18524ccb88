"""Off-policy evaluation: what another policy would have earned, from logs at one place or at many
clients.
"""
