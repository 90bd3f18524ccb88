"""Parties on a network: links that lose nothing, an engine that survives its own death, and TLS
between them.
"""
