"""A whole federation: the roles of one run, and the simulated world they pull in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from posse.core.fixed import REWARD_ONE, to_units
from posse.core.roles import Ask, Pull, Reward, Role
from posse.policies.arms.base import Policy
from posse.privacy.crypto.keys import Identity, Secrets
from posse.privacy.crypto.paillier import PrivateKey, generate_key
from posse.problems.arms.rewards import Arms
from posse.protocols.samba.comp import Comp
from posse.protocols.samba.controller import Controller
from posse.protocols.samba.customer import Customer
from posse.protocols.samba.levels import Switches, check_level
from posse.protocols.samba.owner import Owner
from posse.protocols.samba.setup import COMP, CONTROLLER, CUSTOMER, Expected, Terms, policy_terms
from posse.protocols.samba.twin import check_budget
from posse.results.record import points_of


def prepare(
    arms: Arms,
    policy: Policy,
    budget: int,
    *,
    seed: int,
    level: str = "standard",
    switches: Switches | None = None,
    key: PrivateKey | None = None,
) -> Callable[[], list[Role]]:
    """Prepare the roles of a simulated run: one owner an arm, a controller, a comp and a customer.

    Every call of what is returned makes them anew from the same arguments. `seed` is the world seed: rewards, coins,
    ties and own draws derive from it, so that the run can be compared with its plain twin. Keys, masks, nonces, tokens
    and (at `standard`) permutations come from the operating system.
    """
    switches = switches or Switches()
    check_level(level, switches, policy)
    check_budget(len(arms), budget)
    key = key or generate_key()
    customer = Identity()
    names = owner_names(len(arms))
    identities = {name: Identity() for name in (*names, CONTROLLER, COMP)}
    secrets = {name: Secrets.fresh() for name in (*identities, CUSTOMER)}
    terms = Terms(
        run=os.urandom(8).hex(),
        budget=budget,
        policy=policy_terms(policy),
        passes=len(policy.passes()),
        level=level,
        off=switches.off,
        paillier_n=key.public_key.n.to_bytes((key.public_key.bits + 7) // 8, "big"),
    )
    expected = Expected(policy, level, switches)
    public = {name: identity.public for name, identity in identities.items()}

    def roles() -> list[Role]:
        servers: list[Role] = [
            Customer(customer, expected, terms, public, key, secrets=secrets[CUSTOMER]),
            Controller(identities[CONTROLLER], customer.public, expected, names, seed, secrets=secrets[CONTROLLER]),
            Comp(identities[COMP], customer.public, expected, seed, secrets=secrets[COMP]),
        ]
        owners = (
            Owner(name, identities[name], customer.public, expected, seed, seed, secrets=secrets[name])
            for name in names
        )
        return [*servers, *owners]

    return roles


def federation(*arguments: Any, **options: Any) -> list[Role]:
    """Make the roles of a simulated run (`prepare`)."""
    return prepare(*arguments, **options)()


def owner_names(count: int) -> tuple[str, ...]:
    """Names of the owners of a simulated federation."""
    return tuple(f"owner-{i + 1}" for i in range(count))


class SimulatedWorld:
    """Answers pulls from the arms, and keeps what only the world knows: the arm and reward of every step.

    The curve holds a bounded number of points; the arms are kept on request.
    """

    def __init__(self, arms: Arms, seed: int, budget: int, *, points: int = 200, keep_arms: bool = False) -> None:
        self._arms = arms
        self._seed = seed
        self._number = {name: i for i, name in enumerate(owner_names(len(arms)))}
        self.steps = points_of(budget, points)
        self.pulls = np.zeros(len(arms), np.int64)
        self.units = np.zeros(len(arms), np.int64)
        self.arms: list[int] | None = [] if keep_arms else None
        self._gaps = (arms.best - arms.means).tolist()
        self._curve: list[int] = []
        self.regret: list[float] = []
        self._earned = 0
        self._missed = 0.0
        self._step = 0

    def __call__(self, pull: Pull) -> Reward:
        """Pull an owner's arm."""
        arm = self._number[pull.party]
        units = self._arms.reward(self._seed, arm, pull.number)
        self._count(arm, units)
        return Reward(pull.number, units)

    def _count(self, arm: int, units: int) -> None:
        self.pulls[arm] += 1
        self.units[arm] += units
        self._earned += units
        self._missed += self._gaps[arm]
        self._step += 1
        if self.arms is not None:
            self.arms.append(arm)
        if len(self._curve) < len(self.steps) and self.steps[len(self._curve)] == self._step:
            self._curve.append(self._earned)
            self.regret.append(self._missed)

    def answered(self, ask: Ask, reward: float) -> None:
        """Count a pull that a world outside has answered."""
        self._count(self._number[ask.party], to_units(reward))

    @property
    def reached(self) -> int:
        """Number of pulls so far."""
        return self._step

    @property
    def curve(self) -> Sequence[float]:
        """Cumulative reward at `steps`, as far as the run went."""
        return [units / REWARD_ONE for units in self._curve]
