"""Commands of those who operate parties: certificates, federations, services, and looking at what
runs.
"""
