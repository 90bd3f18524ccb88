"""Clients of a secure sum that all live in this process, for simulations."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from posse.privacy.aggregation.terms import Plan, Terms
from posse.privacy.crypto.keys import Identity


@dataclass(frozen=True)
class Cohort:
    """Clients that live in this process, with fresh identities; they may take part in any number of
    rounds.
    """

    identities: Mapping[str, Identity]

    @classmethod
    def fresh(cls, names: Iterable[str]) -> Cohort:
        """Make identities for some names."""
        return cls({name: Identity() for name in sorted(names)})

    def terms(self, plan: Plan, length: int, *, round: int = 0, run: str = "simulation") -> Terms:
        """Draw a seed for the graph and write the terms of a round for all of them."""
        publics = tuple(identity.public for identity in self.identities.values())
        return Terms(run, round, tuple(self.identities), publics, length, plan, os.urandom(32))
