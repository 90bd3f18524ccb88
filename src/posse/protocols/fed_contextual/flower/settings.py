"""What a run on devices is told: the keys of `[tool.flwr.app.config]`, of `flwr run --run-config` and of flags."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from posse.core.errors import ConfigError
from posse.core.settings import Settings

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
MEASURE = 1 << 12
"""Steps a whole in which secure sums count rewards and probabilities."""
RING = 1 << 31
FEWEST = 3
"""Devices of a secure round at least."""


class DeviceSettings(Settings):
    """A run on devices. All values are words, numbers and switches: Flower carries no others."""

    model: Literal["linear", "cnn", "bag"] = "linear"
    """Reward model."""
    features: Count = 64
    """Numbers of a sample (linear), pixels of an image (cnn), or words of the vocabulary (bag of words)."""
    arms: Annotated[int, Field(ge=2)] = 10
    """Arms of the bandit."""
    policy: Literal["greedy", "epsilon-greedy", "softmax", "falcon"] = "softmax"
    """How devices explore."""
    explore: Annotated[float, Field(ge=0)] = 0.0
    """Epsilon of epsilon-greedy, temperature of softmax, gamma of FALCON; 0: as published, .05, .05 and 1000."""
    loss: Literal["regression", "importance"] = "regression"
    """Loss of a device's own log."""
    rounds: Count = 3
    """Federated rounds."""
    cohort: Count = 3
    """Devices of a round."""
    start_with: Annotated[int, Field(ge=0)] = 0
    """Devices to wait for before the first round; 0: those of a cohort."""
    least: Count = 1
    """Answers without which a round is done again."""
    deploy_every: Count = 1
    """Rounds after which devices act with the newest model."""
    keep_log: bool = False
    """Devices act once for a deployed model and learn from that log in every round, instead of acting anew."""
    samples: Count = 128
    """Samples of a device at most."""
    batch: Count = 16
    """Samples a step of training."""
    client_rate: Positive = 0.05
    """Learning rate of devices."""
    server_rate: Positive = 0.05
    """Learning rate of the server."""
    optimiser: Literal["adam", "optax-adam", "sgd"] = "adam"
    """What the server does with the mean update."""
    clip: Positive = 1.0
    """Norm to which updates are clipped, or the first one."""
    quantile: Share = 0.0
    """Fraction of updates that should be within the norm, which then follows it; 0 keeps it fixed."""
    data: str = "digits"
    """Where a device's samples are if its own configuration does not say: digits, or a prepared population."""
    timeout: Positive = 600.0
    """Seconds that a round, or a stage of a secure one, waits for devices."""
    seed: Annotated[int, Field(ge=-1, lt=2**31)] = -1
    """All randomness of the run, which then can be repeated and protects nothing; -1: from the operating system."""
    secure: bool = False
    """Sums under masks: the server sees no single update."""
    levels: Annotated[int, Field(ge=0, le=1 << 24)] = 0
    """Whole numbers from 0 to the norm to which updates are rounded; 0: none, or 65,536 where sums are secure."""
    corrupt: Share = 0.1
    """Devices that a secure sum supposes to be with the server, as a share of the cohort."""
    dropout: Share = 0.1
    """Devices that may be lost in a secure round, as a share of the cohort."""
    out: str = "posse-run"
    """Folder of the state, the model and the progress, where the server runs; a run goes on from what is there."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Build from Flower's run configuration, and check what belongs together."""
        return cls(**values).checked()

    def checked(self) -> Self:
        """Refuse settings that do not go together."""
        if self.samples % self.batch:
            raise ConfigError(
                f"samples must be a multiple of batch = {self.batch}, got {self.samples}. "
                f"Take {-(-self.samples // self.batch) * self.batch}."
            )
        if self.least > self.cohort:
            raise ConfigError(f"least must be at most cohort = {self.cohort}, got {self.least}. Lower it.")
        if self.policy == "epsilon-greedy" and self.explore > 1:
            raise ConfigError(f"explore, the epsilon of epsilon-greedy, must be at most 1, got {self.explore}.")
        if self.model == "cnn" and self.side**2 != self.features:
            raise ConfigError(f"features of a cnn must be a square number of pixels, got {self.features}.")
        if self.secure and self.cohort < FEWEST:
            raise ConfigError(f"a secure sum needs a cohort of at least {FEWEST}, got {self.cohort}. Raise it.")
        if self.secure and self.cohort * max(self.rounded_to + 1, self.samples * MEASURE) >= RING:
            raise ConfigError("cohort x levels and cohort x samples x 4096 must stay below 2^31. Lower one of them.")
        return self

    @property
    def enough(self) -> int:
        """Devices with which a round may begin."""
        return max(self.least, FEWEST) if self.secure else self.least

    @property
    def rounded_to(self) -> int:
        """Levels in force."""
        return self.levels or (1 << 16 if self.secure else 0)

    @property
    def side(self) -> int:
        """Side of an image."""
        return math.isqrt(self.features)
