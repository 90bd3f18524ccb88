"""Secure sums for federated rounds: the server learns the sum of the clients' vectors and no single
one of them.

Read in this order: `quantise` (integers as words modulo 2^32), `shamir` (shares of a secret),
`terms` (how many neighbours and shares, who is whose neighbour, and what all agree on), `masks`
(keys and masks of one round), `messages`, `client` (with all that it refuses), `server` (with what
it takes off the sum), `simulate` (clients that live in one process).

Five stages: keys, shares, masked, survivors, unmask. Clients may be lost at any of them, as many as
the plan declares; one more and the round fails without a sum. Both ends are sans-IO, and the caller
says when a stage is over.

What is protected: everyone else together (the server and the corrupt clients the plan allows for)
learns of the honest survivors' vectors only their sum. Against whom: a server that follows the
protocol. If the identities in the terms reach the clients by a way that the server does not control
(certificates, a signed roster), the plan has a quorum and supposes as many corrupt clients as there
are, and the terms name what vectors are computed from (`subject`), a server that deviates learns no
more either, though it can spoil the sum. The clients have to demand all this. What is not: the sum
itself is exact, so two sums tell their difference, and a claim of differential privacy needs
noise; a client that lies about its own vector is not found out.

References: K. Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine
Learning, CCS 2017; J. Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic
Overhead, CCS 2020.
"""
