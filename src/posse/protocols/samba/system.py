"""Samba as a system: its levels and roles, its runs on real roles, and its plain twin."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from posse.core.errors import ProtocolError
from posse.core.fixed import REWARD_ONE, to_units
from posse.core.roles import Ask, Message, Note, Pull, Reward, Role
from posse.policies.arms.base import Policy
from posse.privacy.crypto.paillier import MINIMUM_BITS, PrivateKey, generate_key
from posse.problems.arms.rewards import BernoulliArms
from posse.protocols.base import Level, Parties, RoleKind, RolesRun, Run, System
from posse.protocols.samba.federation import SimulatedWorld, federation, prepare
from posse.protocols.samba.levels import Switches, leaks, learns
from posse.protocols.samba.settings import Samba
from posse.protocols.samba.twin import Twin, simulate
from posse.results import words
from posse.results.record import Record, Traffic, points_of
from posse.runtime.memory import MemoryRun, fork

SCORES = 20_000_000
"""Scores that the twin computes between two looks at Ctrl-C: about a second."""


class SambaSystem(System):
    """Secure federated arms."""

    name = "samba"
    title = "Samba"
    summary = "One arm per data owner, a server split in two, a customer who learns only the total."
    reference = (
        "Ciucanu, Lafourcade, Marcadet, Soare: SAMBA, a generic framework for secure federated multi-armed bandits"
    )
    protects = "rewards and scores, by sealing, masks and permutations"
    Settings = Samba
    roles = (
        RoleKind("owner", "data owner", ("#2563eb", "#7aa2ff"), "one arm, its rewards and its own draws", (0.15, 0.5)),
        RoleKind("controller", "controller", ("#d97706", "#f5b041"), "sealed scores; permutes them", (0.5, 0.3)),
        RoleKind("comp", "comp", ("#7c3aed", "#b794f6"), "masked scores in a fresh order; selects", (0.5, 0.75)),
        RoleKind("customer", "data customer", ("#059669", "#5fd3a5"), "the total reward", (0.85, 0.5)),
    )
    levels = tuple(
        Level(
            name,
            summary,
            lambda settings: learns(settings.level, settings.switches),
            lambda settings: leaks(
                settings.level, settings.switches, len(settings.load().arms), settings.load().policy
            ),
        )
        for name, summary in (
            ("standard", "sealed frames, a fresh scale, shift and dither a pass, pairwise masks on the sums"),
            ("paper", "the protocol as published"),
        )
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "demo": {"policy": "thompson", "owners": 10, "horizon": 10_000},
        "four shops": {"policy": "ucb", "means": (0.2, 0.4, 0.5, 0.7), "horizon": 200},
    }

    def start(
        self, settings: Samba, *, seeds: Sequence[int] | None = None, world: Literal["outside"] | None = None,
        transcript: int = 0, key: PrivateKey | None = None, **options: Any,
    ) -> Run:  # fmt: skip
        """Begin a run on real roles, or its plain twin; `key` is the customer's Paillier key, made if not given."""
        if settings.path == "plain":
            return SambaTwinRun(self, settings, seeds)
        return SambaRun(self, settings, seeds=seeds, world=world, transcript=transcript, key=key, **options)

    def twin(self, settings: Samba) -> Samba:
        """Return the settings of the twin of the same level."""
        return settings.but(path="plain")

    def level_of(self, settings: Samba) -> str:
        """Return the level, or "plain"."""
        return "plain" if settings.path == "plain" else settings.level

    @property
    def deployment(self) -> Parties:
        """Parties over the network."""
        from posse.protocols.samba.deploy import build, layout

        return Parties(build, layout)


SYSTEM = SambaSystem()


class SambaRun(RolesRun):
    """Owners, controller, comp and customer in one process."""

    settings: Samba

    def __init__(self, system: System, settings: Samba, *, key: PrivateKey | None = None, **options: Any) -> None:
        self._setup = settings.load()
        self._summary: dict[str, str | float | int] = {}
        if key is None:
            started = time.process_time()
            key = generate_key(settings.paillier_bits)
            self._summary["key_seconds"] = time.process_time() - started
        self._summary["paillier_bits"] = key.public_key.bits
        self._key = key
        warm_up(self._setup.policy, settings.level, secure=True)
        super().__init__(system, settings, **options)

    @property
    def _each(self) -> int:
        return self.settings.horizon

    def _maker(self, seed: int) -> Callable[[], list[Role]]:
        return prepare(
            self._setup.arms, self._setup.policy, self.settings.horizon, seed=seed, level=self.settings.level,
            switches=self._setup.switches, key=self._key,
        )  # fmt: skip

    def _world(self, seed: int) -> SimulatedWorld:
        return SimulatedWorld(self._setup.arms, seed, self.settings.horizon, points=self.settings.points)

    def _reply(self, ask: Ask, reward: float) -> Message:
        assert isinstance(ask, Pull)
        return Reward(ask.number, to_units(reward))

    def _closed(self, note: Note) -> None:
        """The customer's total must be what the world paid."""
        if note.kind == "total" and note.value != int(self.world.units.sum()) / REWARD_ONE:
            raise ProtocolError(
                "the decrypted total is not what the owners earned: this is a defect, please report it."
            )

    @property
    def public(self) -> dict[str, Any]:
        """The terms that everybody knows."""
        settings, arms = self.settings, self._setup.arms
        return {"owners": len(arms), "horizon": settings.horizon, "policy": self._setup.policy.describe(),
                "level": settings.level, "off": list(self._setup.switches.off)}  # fmt: skip

    def truth(self) -> dict[str, Any]:
        """What only the simulation knows: sums, pulls and means."""
        world = self.world
        return {"total": float(world.units.sum()) / REWARD_ONE, "sums": world.units / REWARD_ONE, "pulls": world.pulls,
                "means": self._setup.arms.means}  # fmt: skip

    def record(self, status: str | None = None) -> Record:
        """Return the record; curves of one that was interrupted end where its shortest run ended."""
        settings, arms, worlds = self.settings, self._setup.arms, self.worlds
        reached = min((len(world.curve) for world in worlds), default=0)
        return Record(
            kind=self.system.name,
            config=settings.config(),
            problem=settings.problem(),
            level=settings.level,
            leaks=self.system.not_protected(settings),
            seeds=self.seeds[: len(worlds)],
            steps=points_of(settings.horizon, settings.points)[:reached],
            reward=np.array([world.curve[:reached] for world in worlds]).reshape(len(worlds), reached),
            regret=None
            if self.outside
            else np.array([world.regret[:reached] for world in worlds]).reshape(len(worlds), reached),
            total=tuple(float(world.units.sum()) / REWARD_ONE for world in worlds),
            pulls=np.array([world.pulls for world in worlds]).reshape(len(worlds), len(arms)),
            status=status or ("finished" if self.done else "running"),
            role_seconds=self.role_seconds(),
            traffic=tuple(Traffic(f"{a} -> {b}", *sums) for (a, b), sums in sorted(self.traffic().items())),
            seconds=self.seconds,
            summary=self._summary,
            show=self.system.show(settings, protection=protection(settings)),
        )


class SambaTwinRun(Run):
    """The plain bandit, all seeds side by side."""

    settings: Samba

    def __init__(self, system: System, settings: Samba, seeds: Sequence[int] | None) -> None:
        super().__init__(system, settings, seeds)
        setup = settings.load()
        warm_up(setup.policy, settings.level)
        self._twin = Twin(
            setup.arms, setup.policy, settings.horizon, self.seeds, level=settings.level,
            permute=settings.permutation, mask=settings.mask, points=settings.points,
        )  # fmt: skip
        self._scores = len(self.seeds) * len(setup.arms) * len(setup.policy.passes())

    @property
    def time(self) -> int:
        """Pulls made in all runs."""
        return self._twin.step * len(self.seeds)

    @property
    def horizon(self) -> int:
        """Pulls of all runs."""
        return self.settings.horizon * len(self.seeds)

    @property
    def done(self) -> bool:
        """Whether all pulls are made."""
        return self._twin.step >= self.settings.horizon

    @property
    def side_by_side(self) -> int:
        """All runs go forward together."""
        return len(self.seeds)

    @property
    def stride(self) -> int:
        """Steps between two looks: about a second of work."""
        return max(1, min(self.settings.horizon, SCORES // self._scores))

    def _advance(self, n: int) -> None:
        self._twin.advance(n)

    def record(self, status: str | None = None) -> Record:
        """Return the record of what was done."""
        settings, outcome = self.settings, self._twin.outcome
        return Record(
            kind=self.system.name,
            config=settings.config(),
            problem=settings.problem(),
            level="plain",
            leaks=self.system.not_protected(settings),
            seeds=outcome.seeds,
            steps=outcome.steps,
            reward=outcome.reward,
            regret=outcome.regret,
            total=outcome.total,
            pulls=outcome.pulls,
            status=status or ("finished" if self.done else "running"),
            seconds=self.seconds,
            summary={"twin_of": settings.level},
            show=self.system.show(settings, protection=protection(settings)),
        )

    def save(self) -> Any:
        """Return this moment."""
        return fork(self._twin), self.seconds

    def load(self, saved: Any) -> None:
        """Come back to a saved moment."""
        self._twin, self.seconds = fork(saved[0]), saved[1]


def protection(settings: Samba) -> str:
    """The level in a few words: with the protections that are off, or whose twin a plain run is."""
    if settings.path == "plain":
        return "plain" if settings.level == "standard" else f"plain, twin of {settings.level}"
    off = settings.switches.off
    return f"{settings.level}, {words.listed(off)} off" if off else settings.level


def warm_up(policy: Policy, level: str, *, secure: bool = False) -> None:
    """Compile what a plain or a secure run will call, so that compiling is not counted as running."""
    arms = BernoulliArms([0.5, 0.5])
    budget = 4
    simulate(arms, policy, budget, [0], level=level)
    if not secure:
        return
    key = generate_key(MINIMUM_BITS)  # it ends before the sums: no number is ever encrypted under this key
    switches = Switches(paillier=level != "paper")
    roles = federation(arms, policy, budget, seed=0, level=level, switches=switches, key=key)
    for event in MemoryRun(roles, SimulatedWorld(arms, 0, budget)):
        if event.step == budget:
            return
