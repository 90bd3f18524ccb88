"""The studio: a page on this machine that plays, pauses, rewinds and explains runs of any system,
and keeps them.
"""
