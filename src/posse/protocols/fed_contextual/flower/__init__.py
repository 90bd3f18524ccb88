"""The protocol on real devices: a Flower app whose clients and server run the very functions of the simulator.

Read in this order: `settings` (what a run is told), `tasks` (model, policy, rewards), `samples` (what a device has),
`device` (what it computes in a round), `advance` (what the server does with a sum), `noise` (what it adds before) and
`account` (what that costs), `first` (a model to begin from), `carry` (trees and messages as Flower's records),
`client_app` and `server_app`, `fleet` (asking nodes and waiting for them), `secure_client` and `secure_server` (sums of
which the server sees nothing but the sum). `project` writes an installable app, `processes`,
`identities` and `trial` run SuperLink and SuperNodes on one machine.

Importing this package needs nothing; its parts need the extras `flower` and `contextual`.
"""
