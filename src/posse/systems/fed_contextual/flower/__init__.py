"""The protocol on real devices: a Flower app whose clients and server run the very functions of the
simulator.

Read in this order: `settings`, `samples` (what a device has), `device` (what it computes in a
round), `noise` (what the server adds to a sum, and what that costs), `wire` (everything as Flower's
records), `client_app`, `secure` (a device's part of secure rounds) and `server_app`, `fleet`
(asking nodes), `masked` (sums under masks), `recording`. `project` writes an installable app;
`processes` and `trial` run SuperLink and SuperNodes on one machine.

Importing this package needs nothing; its parts need the extras `flower` and `contextual`.
"""
