"""How devices learn and how they are protected: the settings that a simulation and a fleet of
devices share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from posse.core.errors import BudgetError, ConfigError
from posse.core.settings import Settings
from posse.policies.contextual.registry import ExplorationSettings
from posse.privacy.dp.guarantee import Budget, figure
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.sampled import SampledGaussian, Training

Published = Literal["greedy", "epsilon-greedy", "softmax", "falcon"]
Optimisers = Literal["adam", "optax-adam", "sgd"]
Samplings = Literal["poisson", "fixed"]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float | None, Field(gt=0)]
QUANTILE = 0.8
"""Fraction of updates within the norm, where it follows them and nothing else is said."""
AUTO_NORM, AUTO_QUANTILE = 0.1, 0.5
"""Where a norm begins and what it follows if it is left to the run (Andrew et al., 2021)."""
RING = 2**31
"""Below this a sum of whole numbers must stay."""


def _norm(value: object) -> object:
    """Take `auto` for 0, and name it where another word was given."""
    if value == "auto":
        return 0.0
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
        raise ConfigError(f"clip must be a number of at least 0 or auto, got '{value}'.")
    return value


@dataclass(frozen=True)
class Before:
    """Pre-training under noise: its rounds, what is accounted for, and its half of delta."""

    gaussian: SampledGaussian
    rounds: int
    delta: float

    @property
    def training(self) -> Training:
        """What its ledger spends."""
        return Training(self.gaussian, None, self.delta)

    @property
    def spent(self) -> tuple[float, float]:
        """Epsilon and delta of all its rounds."""
        return self.gaussian.epsilon(self.rounds, self.delta, self.training.counted_by), self.delta


class LearningSettings(Settings):
    """What every run has, simulated or on devices: how devices explore and learn, and how they are
    protected.
    """

    panels: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (
                "policy",
                "explore",
                "model",
                "hidden",
                "channels",
                "features",
                "arms",
                "loss",
                "evaluate",
                "start",
            ),
            "How to choose",
        ),
        **dict.fromkeys(
            (
                "clip",
                "quantile",
                "clip_noise",
                "noise",
                "delta",
                "limit",
                "levels",
                "sampling",
                "secure",
                "corrupt",
                "dropout",
            ),
            "Who may learn what",
        ),
    }
    counts: ClassVar[bool] = False
    """Whether a clip that follows updates under noise is accounted for."""

    loss: Literal["regression", "importance"] = "regression"
    """Loss of a device's log: squared error, or the same over the probability of the arm."""
    cohort: Count = 20
    """Devices of a round; the expected number where they are drawn by coins."""
    deploy_every: Count = 10
    """Rounds after which devices act with the newest model."""
    keep_log: Annotated[int, Field(ge=0)] = 0
    """Deployments whose logs a device keeps: it acts once for a deployed model and learns in every
    round from the logs of the last so many; 0: it acts anew in every round.
    """
    batch: Count = 16
    """Samples a step of training."""
    client_rate: Rate = None
    """Learning rate of devices; 0.1 if left out, or for a linear model less where inputs are large:
    at most 0.5 / (mean squared norm of the inputs).
    """
    server_rate: Rate = None
    """Learning rate of the server. If left out: 0.6 / input_size, at most 1, for linear models and
    bags of words, 0.002 for the cnn, 0.01 for models of your own, 1 for plain steps.
    """
    input_size: Rate = None
    """How large contexts are: (mean of their sums of absolute values) / (0.2 + the share of their
    squared norm that is their mean's). Measured in a simulation if left out; devices measure
    nothing. Default rates follow it.
    """
    optimiser: Optimisers = "adam"
    """What the server does with the mean update: Adam as published (Keras'), as optax has it, or
    plain steps.
    """
    clip: Annotated[float, Field(ge=0), BeforeValidator(_norm)] = 1.0
    """Norm to which updates are clipped, or the first one; auto (or 0): 0.1 at first, and then so
    that half of the updates are within it.
    """
    quantile: Annotated[float | None, Field(ge=0, le=1)] = None
    """Fraction of updates that should be within the norm, which then follows it; 0 keeps it fixed.
    If left out: 0.8, under noise 0, with clip auto 0.5.
    """
    noise: Annotated[float, Field(ge=0)] = 0.0
    """Noise multiplier: standard deviation of the noise on a round's sum, in clipping norms; 0 for
    none.
    """
    delta: float = 1e-6
    """Delta of the figures; below 1 / devices."""
    limit: Annotated[float | None, Field(gt=0)] = None
    """Largest epsilon (with delta) that may be spent on a device; training stops before it would be
    more.
    """
    levels: Annotated[int, Field(ge=0)] = 0
    """Whole numbers from 0 to the norm to which updates are rounded, as secure sums need them
    (65536 is usual); 0 for floats.
    """

    @property
    def norm(self) -> float:
        """The clipping norm, or the first one."""
        return self.clip or AUTO_NORM

    @property
    def follows(self) -> float:
        """Fraction of updates that the norm follows; 0 where it is fixed."""
        if not self.clip and not self.quantile:
            return AUTO_QUANTILE
        return self.quantile if self.quantile is not None else 0.0 if self.noise else QUANTILE

    @property
    def count_noise(self) -> float:
        """Noise on the count of updates within the norm; 0 where none is released under noise."""
        return max(0.05 * self.cohort, 0.5, self.noise) if self.noise and self.follows else 0.0

    @property
    def rounded_to(self) -> int:
        """Levels in force."""
        return self.levels

    def check_protection(self) -> None:
        """Raise where settings of noise contradict each other."""
        if not 0 < self.delta < 1:
            raise ConfigError(
                f"delta must be above 0 and below 1, got {self.delta:g}. Choose one below 1 / "
                "devices."
            )
        if self.limit and not self.noise:
            raise ConfigError(
                f"limit goes with noise, got limit {self.limit:g} and noise 0. Give noise."
            )
        if not self.counts and self.noise and self.follows:
            raise ConfigError(
                f"a fleet with noise needs a fixed clip, got quantile {self.follows:g} and noise "
                f"{self.noise:g}. Set quantile = 0 and a clip."
            )
        if not self.clip and self.quantile == 0 and "quantile" in self.model_fields_set:
            raise ConfigError(
                "clip auto follows the updates, got quantile 0, which keeps it. Leave one of them "
                "out."
            )

    def check_logs(
        self, rounds: int, stale: int, centralised: bool, sampling: Samplings | None
    ) -> None:
        """Raise where devices cannot lag or keep logs as asked for, in so many rounds."""
        kept, deployments = int(self.keep_log), -(-rounds // self.deploy_every)
        for name, given, most, of in (
            ("stale", stale, rounds, "rounds"),
            ("keep_log", kept, deployments, "deployments"),
        ):
            if given > most:
                raise ConfigError(
                    f"{name} must be at most {most}, the {of} of the run, got {given}. Lower it."
                )
            if given and centralised:
                raise ConfigError(
                    f"{name} is about devices, got {given} for a centralised run. Leave one of "
                    "them out."
                )
        if kept and self.noise and sampling == "fixed":
            raise ConfigError(
                f"keep_log with noise cannot have sampling fixed, got keep_log {kept}: the logs "
                "would show who took part before, and no epsilon covers that. Leave sampling out."
            )

    def check_delta(self, devices: int) -> None:
        """Raise where delta promises nothing for so many devices."""
        if self.delta * devices >= 1:
            raise ConfigError(
                f"delta must be below 1 / devices = {1 / devices:.3g}, got {self.delta:g}: a "
                "larger delta would permit publishing all data of one device. Lower it."
            )

    def mechanism(
        self, devices: int, size: int, sampling: Samplings = "poisson", cohort: int | None = None
    ) -> SampledGaussian:
        """Return what is accounted for, for so many devices and a model of `size` numbers.

        Rounding to levels lengthens an update of norm C by at most C sqrt(size) / levels: so much
        more sensitive is the sum, and so much less the noise counts.
        """
        longer = 1 + math.sqrt(size) / self.rounded_to if self.rounded_to else 1.0
        followed = bool(self.count_noise)
        return SampledGaussian(
            devices,
            cohort or self.cohort,
            self.noise / longer,
            sampling,
            followed,
            self.count_noise or None,
        )

    def update_noise(self, mechanism: SampledGaussian) -> float:
        """Return the noise multiplier of updates: more than `noise` where a count is released
        beside them.
        """
        return self.noise * mechanism.update_noise / mechanism.noise

    def ledger(
        self, mechanism: SampledGaussian, before: tuple[float, float] = (0.0, 0.0)
    ) -> Ledger[Training]:
        """Return a new ledger; a limit below the cost of one round is refused.

        `before` are the epsilon and the delta that pre-training has spent of the limit.
        """
        delta = self.delta - before[1]
        if self.limit and self.limit <= before[0]:
            raise BudgetError(
                f"pre-training alone costs {figure(before[0], before[1])}, and the limit is "
                f"{self.limit:g}. Raise "
                "noise or limit, pre-train fewer rounds, or on public data."
            )
        budget = Budget(self.limit - before[0], delta) if self.limit else None
        ledger = Ledger(Training(mechanism, budget, delta))
        if ledger.most == 0:
            one = figure(mechanism.epsilon(1, delta, ledger.mechanism.counted_by), delta)
            raise BudgetError(
                f"not even one round fits the limit {budget}: with noise {self.noise:g} it costs "
                f"{one}. "
                "Raise noise, limit or devices, or lower the cohort."
            )
        return ledger


class RateSettings(ExplorationSettings, Settings):
    """`posse evaluate rates`: which log, which rates, and how models learn from it."""

    logs: Path
    """CSV: client, context columns, arm, reward, probability."""
    client_rates: tuple[float, ...] = ()
    """Learning rates of devices to try, such as 0.01,0.1; multiples 0.1 to 3 of the default if left
    out.
    """
    server_rates: tuple[float, ...] = ()
    """The same of the server; every pair is tried."""
    rounds: Count = 100
    """Federated rounds of every candidate."""
    cohort: Count = 20
    """Clients of a round; all where there are fewer."""
    batch: Count = 16
    """Decisions of a step on a device."""
    loss: Literal["regression", "importance"] = "regression"
    """Squared error, or the same weighted by one over the probability of the arm."""
    optimiser: Optimisers = "adam"
    """What the server does with the mean update."""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the clients whose logs estimate what candidates would earn, and train none."""
    level: Annotated[float, Field(ge=0.75, le=0.999)] = 0.95
    """Chance with which all lower bounds hold together."""
    seed: int = 0
    """Seed of the division, cohorts and the order of training."""

    @model_validator(mode="after")
    def _numbers(self) -> Self:
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be in [0, 2^32), got {self.seed}. Choose another.")
        for name in ("client_rates", "server_rates"):
            given = getattr(self, name)
            if len(set(given)) != len(given) or not all(0 < rate < math.inf for rate in given):
                raise ConfigError(
                    f"{name} must be different numbers above 0, got {', '.join(map(str, given))}."
                )
        return self
