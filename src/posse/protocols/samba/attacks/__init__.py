"""Attacks on Samba, by who makes them: `reading` (what comp sees of a pass), `watching` (comp alone), `together`
(collusions, taps, parties alone), `active` (parties that deviate), `network` (what travels over sockets).
"""
