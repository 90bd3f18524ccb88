"""Attacks on Samba, by who makes them: `reading` (what comp sees of a pass), `watching` (comp
alone), `together` (collusions, taps, parties alone), `owners` (what an owner infers from its own
arm, alone or with the customer), `many` (many runs, parties that deviate), `endings` (games about
time and the end), `keys` (a search for a short key), `network` (what travels over sockets).
"""
