"""Policies by name, and the settings that choose one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from posse.core.check import nearest
from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.policies.arms.base import Policy
from posse.policies.arms.greedy import EpsilonDecreasing, EpsilonGreedy, Softmax
from posse.policies.arms.pursuit import Pursuit
from posse.policies.arms.thompson import Thompson
from posse.policies.arms.ucb import UCB

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (EpsilonGreedy, EpsilonDecreasing, UCB, Thompson, Softmax, Pursuit)
}


def make(name: str, **parameters: Any) -> Policy:
    """Build a policy from its name and parameters.

    >>> make("softmax", tau=0.05)
    Softmax(tau=0.05)
    >>> make("sotfmax")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] unknown policy 'sotfmax'. Did you mean 'softmax'? Known: ...
    """
    if name not in POLICIES:
        raise ConfigError(f"unknown policy '{name}'.{nearest(name, tuple(POLICIES))}")
    policy = POLICIES[name]
    known = tuple(field.name for field in fields(policy))
    for key in parameters:
        if key not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ConfigError(f"policy '{name}' has no parameter '{key}'; {takes}.")
    return policy(**parameters)


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
