"""Competing agents that buy from common producers and learn together: private federated
combinatorial bandits.
"""
