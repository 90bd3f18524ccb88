"""Samba for a page: who stands where, what every message means, the code that ran, the paper's
worked examples.
"""
