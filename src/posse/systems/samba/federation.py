"""A whole federation: the roles of one run, and the simulated world they pull in."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from posse.core.compiled import stop_interpreting
from posse.core.errors import ProtocolError
from posse.core.fixed import REWARD_ONE, to_units
from posse.core.roles import Ask, Message, Note, Pull, Reward, Role, View
from posse.policies.arms.base import Policy
from posse.privacy.crypto.keys import PRIMITIVES, Identity, Secrets
from posse.privacy.crypto.paillier import MINIMUM_BITS, PrivateKey, generate_key
from posse.problems.arms.rewards import Arms, BernoulliArms
from posse.results.record import Record, Traffic, points_of
from posse.results.section import Section
from posse.runtime.memory import MemoryRun
from posse.systems.base import AnySystem, presentation
from posse.systems.runs import RolesRun
from posse.systems.samba.levels import Switches, check_budget, check_level, check_price, who_sees
from posse.systems.samba.roles.comp import Comp
from posse.systems.samba.roles.controller import Controller
from posse.systems.samba.roles.customer import Customer
from posse.systems.samba.roles.owner import Owner
from posse.systems.samba.settings import IMPLIED, Samba
from posse.systems.samba.setup import (
    COMP,
    CONTROLLER,
    CUSTOMER,
    DEALER,
    Expected,
    Terms,
    policy_terms,
    sole,
)
from posse.systems.samba.strict.comp import Comp as StrictComp
from posse.systems.samba.strict.controller import StrictController
from posse.systems.samba.strict.customer import StrictCustomer
from posse.systems.samba.strict.dealer import Dealer
from posse.systems.samba.strict.owner import StrictOwner
from posse.systems.samba.twin import Twin


def prepare(
    arms: Arms,
    policy: Policy,
    budget: int,
    *,
    seed: int,
    level: str = "strict",
    switches: Switches | None = None,
    key: PrivateKey | None = None,
    slot: float = 0.0,
    kinds: Mapping[str, Callable[..., Role]] | None = None,
    done: int = 0,
    price: Sequence[float] = (),
) -> Callable[[], list[Role]]:
    """Prepare the roles of a simulated run: one owner an arm, a controller, a comp, a customer; at
    `strict` a dealer.

    Every call of what is returned makes them anew from the same arguments. `seed` is the world
    seed: rewards, coins, ties and own draws derive from it, so that the run can be compared with
    its plain twin. Keys, nonces, pads and the permutations of `strict` come from the operating
    system. With a `slot` owners ask the world for ticks. `kinds` gives other classes for owners,
    and for controller or comp of level `paper`. `done` steps were made before, by a run whose arms
    these owners go on with. `price` is what a pull costs: one number, or one an owner.
    """
    switches = switches or Switches()
    check_level(level, switches, policy)
    check_budget(len(arms), budget)
    check_price(price, len(arms))
    names, n = owner_names(len(arms)), b""
    if level != "strict":
        key = key or generate_key()
        n = key.public_key.n.to_bytes((key.public_key.bits + 7) // 8, "big")
    identities = {name: Identity() for name in (*names, *sole(level))}
    secrets = {name: Secrets.fresh() for name in identities}
    expected, customer = (
        Expected(policy, level, switches, slot=slot, done=done, price=tuple(price)),
        identities[CUSTOMER].public,
    )
    run = os.urandom(8).hex()
    terms = Terms(
        run,
        budget,
        policy_terms(policy),
        len(policy.passes()),
        level,
        switches.terms,
        n,
        slot,
        None,
        tuple(price),
    )
    public = {name: identity.public for name, identity in identities.items() if name != CUSTOMER}

    owner = StrictOwner if level == "strict" else Owner
    made: dict[str, Callable[..., Role]] = {
        "owner": owner,
        "controller": Controller,
        "comp": Comp,
        **(kinds or {}),
    }

    def mine(name: str) -> tuple[Identity, bytes, Expected]:
        return identities[name], customer, expected

    def roles() -> list[Role]:
        if level == "strict":
            return [
                StrictCustomer(
                    identities[CUSTOMER], expected, terms, public, secrets=secrets[CUSTOMER]
                ),
                StrictController(*mine(CONTROLLER), names, secrets=secrets[CONTROLLER]),
                StrictComp(*mine(COMP), secrets=secrets[COMP]),
                Dealer(*mine(DEALER), secrets=secrets[DEALER]),
                *(made["owner"](name, *mine(name), seed, secrets=secrets[name]) for name in names),
            ]
        return [
            Customer(identities[CUSTOMER], expected, terms, public, key, secrets=secrets[CUSTOMER]),
            made["controller"](*mine(CONTROLLER), names, seed, secrets=secrets[CONTROLLER]),
            made["comp"](*mine(COMP), seed, secrets=secrets[COMP]),
            *(made["owner"](name, *mine(name), seed, secrets=secrets[name]) for name in names),
        ]

    return roles


def federation(*arguments: Any, **options: Any) -> list[Role]:
    """Make the roles of a simulated run (`prepare`)."""
    return prepare(*arguments, **options)()


@lru_cache(maxsize=4)
def owner_names(count: int) -> tuple[str, ...]:
    """Names of the owners of a simulated federation."""
    return tuple(f"owner-{i + 1}" for i in range(count))


class SimulatedWorld:
    """Answers pulls from the arms, and keeps what only the world knows: the arm and reward of every
    step.

    The curve holds a bounded number of points; the arms are kept on request.
    """

    def __init__(
        self, arms: Arms, seed: int, budget: int, *, points: int = 200, keep_arms: bool = False
    ) -> None:
        self._arms = arms
        self._seed = seed
        self._number = {name: i for i, name in enumerate(owner_names(len(arms)))}
        self.steps = points_of(budget, points)
        self.pulls = np.zeros(len(arms), np.int64)
        self.units = np.zeros(len(arms), np.int64)
        self.arms: list[int] | None = [] if keep_arms else None
        self.rewards: list[int] = []
        """In units; kept with the arms."""
        self._gaps = (arms.best - arms.means).tolist()
        self._curve: list[int] = []
        self.regret: list[float] = []
        self._earned = 0
        self._missed = 0.0
        self._step = 0
        self.last = -1
        """The arm pulled last; none before the first pull."""

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
        self.last = arm
        if self.arms is not None:
            self.arms.append(arm)
            self.rewards.append(units)
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


INTERPRETED = 5_000
"""Scores of a run up to which interpreting what its roles call takes less time than `PATIENCE`."""


class SambaRun(RolesRun):
    """Owners, controller, comp and customer in one process."""

    settings: Samba

    def __init__(
        self, system: AnySystem, settings: Samba, *, key: PrivateKey | None = None, **options: Any
    ) -> None:
        self.settings, self._setup = settings, settings.load()
        self._summary: dict[str, str | float | int] = {}
        if settings.level == "strict":
            key = None
        elif key is None:
            started = time.process_time()
            key = generate_key(settings.paillier_bits)
            self._summary["key_seconds"] = time.process_time() - started
        if key is not None:
            self._summary["paillier_bits"] = key.public_key.bits
        self._key = key
        self._warm_up()
        super().__init__(system, settings, **options)

    def _warm_up(self) -> None:
        """Compile first: that is not counted as running. A short run is interpreted instead."""
        policy, settings = self._setup.policy, self.settings
        scores = settings.runs * settings.horizon * len(self._setup.arms) * len(policy.passes())
        # Level `strict` compares arrays that are too large to interpret.
        if settings.level == "strict" or scores > INTERPRETED:
            warm_up_roles(policy, settings.level)

    @property
    def _seed_horizon(self) -> int:
        return self.settings.horizon

    def _role_maker(self, seed: int) -> Callable[[], list[Role]]:
        return prepare(
            self._setup.arms,
            self._setup.policy,
            self.settings.horizon,
            seed=seed,
            level=self.settings.level,
            switches=self._setup.switches,
            key=self._key,
            price=self.settings.price or (),
        )

    def _make_world(self, seed: int) -> SimulatedWorld:
        points, keep = self.settings.points, self._transcript_limit > 0
        return SimulatedWorld(
            self._setup.arms, seed, self.settings.horizon, points=points, keep_arms=keep
        )

    def _reply(self, ask: Ask, reward: float) -> Message:
        assert isinstance(ask, Pull)
        return Reward(ask.number, to_units(reward))

    def _check_note(self, note: Note) -> None:
        """The customer's total must be what the world paid."""
        if note.kind == "refused":
            raise ProtocolError(f"the customer refused the total: {note.value}")
        if note.kind == "total" and note.value != int(self.world.units.sum()) / REWARD_ONE:
            raise ProtocolError(
                "the customer's total is not what the owners earned: this is a defect, please "
                "report it."
            )

    def view(self, *parties: str) -> View:
        """Return what these parties together saw, with what their roles were given: a Paillier key,
        the world seed.
        """
        from posse.systems.samba.attacks.together import known_to

        made, seed = super().view(*parties), self.seeds[len(self.memories) - 1]
        secrets = {
            name: {**own, **known_to(str(own["kind"]), self._key, seed)}
            for name, own in made.secrets.items()
        }
        return View(made.parties, made.entries, secrets, made.public, made.forgotten)

    def costs(self) -> Section:
        """Calls of primitives by kind of role and messages, beside Theorem 4."""
        calls: dict[str, list[int]] = {}
        moved: dict[str, int] = {}
        for memory in self.memories:
            for kind, own in memory.calls.items():
                calls[kind] = [
                    a + b for a, b in zip(calls.get(kind, [0] * len(own)), own, strict=True)
                ]
            for name, count in memory.moved.items():
                moved[name] = moved.get(name, 0) + count
        policy, runs = self._setup.policy, max(1, len(self.memories))
        arms, budget = len(self._setup.arms), self.settings.horizon
        return theorem4(arms, arms + runs * (budget - arms), len(policy.passes()), calls, moved)

    @property
    def public_terms(self) -> dict[str, Any]:
        """The terms that everybody knows."""
        settings, arms = self.settings, self._setup.arms
        return {
            "owners": len(arms),
            "horizon": settings.horizon,
            "policy": self._setup.policy.describe(),
            "level": settings.level,
            "off": list(self._setup.switches.terms),
            "names": list(owner_names(len(arms))),
        }

    def truth(self) -> dict[str, Any]:
        """What only the simulation knows: sums, pulls and means; with a transcript, arms and
        rewards of every step.
        """
        from posse.systems.samba.attacks.reading import truth_of

        return truth_of(self)

    def record(self, status: str | None = None) -> Record:
        """Return the record; curves of one that was interrupted end where its shortest run
        ended.
        """
        settings = self.settings
        worlds = self.worlds
        reached = min((len(world.curve) for world in worlds), default=0)
        shape = (len(worlds), reached)
        pulls = np.array([world.pulls for world in worlds]).reshape(
            len(worlds), len(self._setup.arms)
        )
        regret = None
        if not self.outside:
            regret = np.array([world.regret[:reached] for world in worlds]).reshape(shape)
        traffic = sorted(self.traffic().items())
        sections = [
            who_sees(settings.level, self._setup.switches),
            self.costs(),
            *settings.owed(pulls.sum(axis=0).tolist() if worlds else []),
        ]
        return self.make_record(
            status,
            seeds=self.seeds[: len(worlds)],
            steps=points_of(settings.horizon, settings.points)[:reached],
            reward=np.array([world.curve[:reached] for world in worlds]).reshape(shape),
            regret=regret,
            total=tuple(float(world.units.sum()) / REWARD_ONE for world in worlds),
            pulls=pulls,
            role_seconds=self.role_seconds(),
            traffic=tuple(Traffic(f"{a} -> {b}", *sums) for (a, b), sums in traffic),
            summary={**self._summary, **({} if self.outside else settings.yardsticks())},
            show=presentation(
                self.system,
                settings,
                sections,
                protection=settings.protection,
                off=list(self._setup.switches.off),
                implied=IMPLIED,
                learnt={},
                **settings.rating_counts(),
            ),
        )


def theorem4(
    arms: int,
    budget: int,
    passes: int,
    calls: Mapping[str, Sequence[int]],
    moved: Mapping[str, int],
) -> Section:
    """Put calls of primitives and encrypted numbers that were sent beside the paper's Theorem 4.

    A message of an owner is one encrypted number, a list between the servers K of them.

    >>> theorem4(2, 12, 1, {"owner": [20, 20, 2, 0], "comp": [20, 20, 0, 0]}, {"Batch": 10}).rows[0]
    ('AES-GCM encryptions', '40', '40', '20', '20')
    """
    core = arms * (budget - arms) * passes
    lists, single = ("Batch", "Choice"), ("Score", "Reply", "Sum", "Total")
    sent = arms * sum(moved.get(name, 0) for name in lists) + sum(
        moved.get(name, 0) for name in single
    )
    rows = [
        (
            name,
            f"{said:,}",
            f"{sum(own[i] for own in calls.values()):,}",
            *(f"{own[i]:,}" for own in calls.values()),
        )
        for i, (name, said) in enumerate(
            zip(PRIMITIVES, (2 * core, 2 * core, arms, 1), strict=True)
        )
    ]
    rows.append(
        ("encrypted numbers sent", f"{4 * core + arms + 1:,}", f"{sent:,}", *("" for _ in calls))
    )
    notes = (
        "Theorem 4 is about level 'paper' with all protections, every step of which sends K "
        "scores: exploring steps "
        "of epsilon-greedy send none there, unless shortcut is off. Keys of the set-up are not "
        "counted.",
    )
    columns = ("what", "theorem 4", "measured", *calls)
    return Section("Cost in primitives", columns, tuple(rows), notes, tuple(range(1, len(columns))))


def warm_up(policy: Policy, level: str) -> None:
    """Compile what a run and its twin will call, so that compiling is not counted as running."""
    Twin(BernoulliArms([0.5, 0.5]), policy, 4, [0], level=level).compile()
    warm_up_roles(policy, level)


def warm_up_roles(policy: Policy, level: str) -> None:
    """Compile what the roles of a run will call."""
    stop_interpreting()
    arms, budget = BernoulliArms([0.5, 0.5]), 4
    key = (
        None if level == "strict" else generate_key(MINIMUM_BITS)
    )  # it ends before the sums: no number is ever encrypted under this key
    switches = Switches(paillier=level != "paper")
    roles = federation(arms, policy, budget, seed=0, level=level, switches=switches, key=key)
    for event in MemoryRun(roles, SimulatedWorld(arms, 0, budget)):
        if event.step == budget:
            return
