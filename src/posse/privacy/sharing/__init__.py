"""Secret sharing modulo 2^64 for any number of parties, with a dealer.

Read in this order: `fixed` (real numbers as words), `values` (shared and masked numbers), `tape`
(dealt randomness, each word used once), `session` (what a party does: mask, multiply, truncate,
look up, reveal; computations side by side), `comparison` (with arg max), `reciprocal` (with the
inverse of a small matrix), `dealing` (what the dealer does, the same program on masks; a party's
tapes), `local` (sessions of all parties in one place). Apart from these, for two servers: `garbled` (which of
two private numbers is smaller, in one message) and `shuffle` (the largest of many shared numbers).

A computation is a generator that yields once a communication round: everything asked to be opened
since the last `yield` travels together. Secure against parties that follow the protocol and pool
what they saw, all but one of them; the dealer must pool with nobody.
"""
