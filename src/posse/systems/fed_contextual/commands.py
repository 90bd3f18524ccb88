"""Commands of fed-contextual alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Literal

from posse.core import check
from posse.core.check import require
from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.privacy.dp.guarantee import Budget, Guarantee, check_delta
from posse.privacy.dp.sampled import Accountant, SampledGaussian, noise_for
from posse.results import words
from posse.results.section import Section
from posse.systems.modules import Command, Commands

USUAL_NOISE = 0.7
METHODS: tuple[tuple[Literal["poisson", "fixed"], Accountant], ...] = (
    ("poisson", "rdp"),
    ("poisson", "pld"),
    ("fixed", "rdp"),
)
"""Ways to draw devices, each with the accountants that are proved for it."""


class SampledSettings(Settings):
    """Settings of `posse budget sampled`: planned rounds, and their noise or their epsilon."""

    clients: int = 342_477
    """Devices in all."""
    cohort: int = 64
    """Devices of a round; the expected number where they are drawn by coins."""
    rounds: int = 1600
    """Rounds of training."""
    noise: float | None = None
    """Noise multiplier there is: standard deviation of the noise on a round's sum, in clipping
    norms (default: 0.7).
    """
    epsilon: float | None = None
    """Epsilon that all rounds together may cost, with delta: gives the least noise instead."""
    delta: float = 1e-6
    """Delta of the figures; below 1 / clients."""
    sampling: Literal["poisson", "fixed", "both"] = "both"
    """How devices are drawn: each by a coin of its own (poisson), or so many without replacement
    (fixed).
    """

    def proofs(self) -> list[tuple[float, Guarantee]]:
        """Return the noise and what it proves, for each way to draw devices and each accountant."""
        check.at_least(1, rounds=self.rounds)
        check.at_least(1, clients=self.clients)
        check_delta(self.delta)
        if self.noise is not None and self.epsilon is not None:
            raise ConfigError("give noise or epsilon, not both: noise is what epsilon would make.")
        if self.delta * self.clients >= 1:
            raise ConfigError(
                f"delta must be below 1 / clients = {1 / self.clients:.3g}, got {self.delta:g}: a "
                "larger delta would permit publishing all data of one device. Lower it."
            )
        return [
            self._proof(sampling, accountant)
            for sampling, accountant in METHODS
            if self.sampling in (sampling, "both")
        ]

    def _proof(
        self, sampling: Literal["poisson", "fixed"], accountant: Accountant
    ) -> tuple[float, Guarantee]:
        noise = USUAL_NOISE if self.noise is None else self.noise
        # Made before the search for a noise, so that a wrong cohort is refused at once.
        mechanism = SampledGaussian(self.clients, self.cohort, noise, sampling)
        if self.epsilon is not None:
            budget = Budget(self.epsilon, self.delta)
            noise = noise_for(budget, self.clients, self.cohort, self.rounds, sampling, accountant)
            mechanism = SampledGaussian(self.clients, self.cohort, noise, sampling)
        return noise, mechanism.guarantee(self.rounds, self.delta, accountant)


def show_sampled(settings: SampledSettings) -> Iterator[Section]:
    """Yield what planned rounds prove under noise, or the noise that an epsilon needs."""
    proofs = settings.proofs()
    rounds = words.count(settings.rounds, "round")
    devices = words.count(settings.clients, "device")
    title = f"{rounds} of {settings.cohort:,} out of {devices}"
    if settings.epsilon is not None:
        title += f", noise for epsilon {settings.epsilon:g} at delta {settings.delta:g}"
    rows = []
    facts = []
    for noise, guarantee in proofs:
        adjacency = guarantee.adjacency.partition(":")[0]
        rows.append(
            (
                words.number(noise, 4),
                guarantee.figure,
                guarantee.sampling,
                adjacency,
                guarantee.accountant,
            )
        )
        facts += [
            f"covers {guarantee.covers}",
            f"unit {guarantee.unit}; {guarantee.adjacency}; composition {guarantee.composition}",
        ]
    yield Section(
        title,
        ("noise", "(epsilon, delta)", "sampling", "adjacency", "accountant"),
        tuple(rows),
        numeric=(0,),
        data={"figures": [{"noise": noise, **guarantee.entry()} for noise, guarantee in proofs]},
    )
    drawn = "A figure holds for the way of drawing devices that stands beside it, and for no other."
    yield Section("What the figures are of", notes=(*dict.fromkeys(facts), drawn))
    _, guarantee = proofs[0]
    yield Section("Not covered", notes=tuple(guarantee.not_covered))


def show_rates(settings: Any) -> Iterable[Section]:
    """Yield learning rates, ranked by what their models would earn."""
    require("jax", extra="contextual")
    from posse.systems.fed_contextual.computing import candidates

    return candidates.rates(settings)


def _command(path: tuple[str, ...], summary: str, settings: str, run: str, **more: Any) -> Command:
    """Declare a command by the names of its settings and its function, as "module:name"."""
    return Command(
        path, summary, lambda: _imported(settings), lambda values: _imported(run)(values), **more
    )


def _imported(name: str) -> Any:
    """Import a part of this system that a command uses."""
    module, _, part = name.partition(":")
    return vars(import_module(f"posse.systems.fed_contextual.{module}"))[part]


COMMANDS = Commands(
    without_flag=("delay",),
    commands=(
        Command(
            ("budget", "sampled"),
            "See what rounds of federated training prove under noise, or the noise that an epsilon "
            "needs.",
            lambda: SampledSettings,
            show_sampled,
            examples=(
                "posse budget sampled --noise 1.1",
                "posse budget sampled --clients 10000 --epsilon 2",
            ),
        ),
        _command(
            ("export",),
            "Write a learnt model with its policy as an ONNX graph.",
            "export:ExportSettings",
            "export:export",
            positional=("model",),
            examples=(
                "posse export model.npz",
                "posse export model.npz --help --all",
            ),
        ),
        _command(
            ("evaluate", "rates"),
            "Rank learning rates by what their models would earn, from a log of decisions.",
            "learning:RateSettings",
            "commands:show_rates",
            positional=("logs",),
            examples=(
                "posse evaluate rates log.csv",
                "posse evaluate rates log.csv --rounds 20",
            ),
        ),
        _command(
            ("devices", "up"),
            "Try a fleet on this machine: a SuperLink, nodes with keys of their own, TLS; the same "
            "command goes on.",
            "flower.settings:TrialSettings",
            "flower.trial:up",
            stopped="stopped; the same command goes on",
            examples=("posse devices up --nodes 3",),
        ),
        _command(
            ("devices", "simulate"),
            "Simulate a fleet with Flower's own engine, which spreads it over a cluster; no TLS "
            "and no keys.",
            "flower.settings:SimulateSettings",
            "flower.trial:simulate",
            stopped="stopped; the same command goes on",
            examples=("posse devices simulate --nodes 10",),
        ),
        _command(
            ("devices", "app"),
            "Write the Flower app for a real fleet: an installable project with these settings.",
            "flower.settings:AppSettings",
            "flower.trial:app",
            positional=("folder",),
            examples=("posse devices app fleet",),
        ),
        _command(
            ("devices", "status"),
            "See which version of the model every device has.",
            "flower.settings:StatusSettings",
            "flower.deployment:status",
            positional=("folder",),
            examples=(
                "posse devices status fleet",
                "posse devices status fleet --json",
            ),
        ),
        _command(
            ("devices", "deploy"),
            "Deploy a version of the model by its number, or the newest and those after it.",
            "flower.settings:DeploySettings",
            "flower.deployment:deploy",
            positional=("folder",),
            examples=(
                "posse devices deploy fleet",
                "posse devices deploy fleet --version 3",
            ),
        ),
    ),
)
