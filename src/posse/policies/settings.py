"""Which policy: its name and parameters as settings."""

from __future__ import annotations

from posse.core.settings import Settings
from posse.policies.base import Policy
from posse.policies.registry import make

PARAMETERS = ("epsilon", "schedule", "scale", "coefficient", "tau", "beta")


class PolicySettings(Settings):
    """A policy by name; a parameter that it does not have is an error, one left out has the policy's default."""

    policy: str = "ucb"
    """How to choose (see 'posse policies')."""
    epsilon: float | None = None
    schedule: str | None = None
    scale: float | None = None
    coefficient: float | None = None
    tau: float | None = None
    beta: float | None = None

    def make_policy(self) -> Policy:
        """Build the policy.

        >>> PolicySettings(policy="pursuit", beta=0.05).make_policy()
        Pursuit(beta=0.05)
        """
        given = {name: getattr(self, name) for name in PARAMETERS if getattr(self, name) is not None}
        return make(self.policy, **given)
