"""The settings of `posse budget sampled`."""

from __future__ import annotations

from typing import Literal

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.privacy.dp.accountant import Sampling
from posse.privacy.dp.guarantee import Budget, Guarantee, check_delta
from posse.privacy.dp.sampled import Accountant, SampledGaussian, noise_for


class SampledSettings(Settings):
    """Rounds of federated training: how many devices, how many of them a round, and noise or what it shall prove."""

    clients: int = 342_477
    """Devices in all."""
    cohort: int = 64
    """Devices of a round; the expected number where they are drawn by coins."""
    rounds: int = 1600
    """Rounds of training."""
    noise: float | None = None
    """Noise multiplier there is: standard deviation of the noise on a round's sum, in clipping norms (default: 0.7)."""
    epsilon: float | None = None
    """Epsilon that all rounds together may cost, with delta: tells the least noise instead."""
    delta: float = 1e-6
    """Delta of the figures; below 1 / clients."""
    sampling: Literal["poisson", "fixed", "both"] = "both"
    """How devices are drawn: each by a coin of its own (poisson), or so many without replacement (fixed)."""

    def proved(self) -> list[tuple[float, Guarantee]]:
        """Return noise and what it proves, by sampling and accountant."""
        check.at_least(1, rounds=self.rounds)
        check.at_least(1, clients=self.clients)
        check_delta(self.delta)
        if self.noise is not None and self.epsilon is not None:
            raise ConfigError("give noise or epsilon, not both: noise is what epsilon would make.")
        if self.delta * self.clients >= 1:
            raise ConfigError(
                f"delta must be below 1 / clients = {1 / self.clients:.3g}, got {self.delta:g}: a larger one allows to "
                "publish a device's data whole. Lower it."
            )
        return [self._one(sampling, accountant) for sampling, accountant in self._figures()]

    def _figures(self) -> list[tuple[Sampling, Accountant]]:
        every: list[tuple[Sampling, Accountant]] = [("poisson", "rdp"), ("poisson", "pld"), ("fixed", "rdp")]
        return [one for one in every if self.sampling in (one[0], "both")]

    def _one(self, sampling: Sampling, accountant: Accountant) -> tuple[float, Guarantee]:
        noise = 0.7 if self.noise is None else self.noise
        SampledGaussian(self.clients, self.cohort, noise, sampling)  # what is wrong is told before anything is sought
        if self.epsilon is not None:
            budget = Budget(self.epsilon, self.delta)
            noise = noise_for(budget, self.clients, self.cohort, self.rounds, sampling, accountant)
        made = SampledGaussian(self.clients, self.cohort, noise, sampling)
        return noise, made.guarantee(self.rounds, self.delta, accountant)
