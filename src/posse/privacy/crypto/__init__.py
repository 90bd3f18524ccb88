"""Sealed frames, Paillier, permutations, masks and keys."""
