"""The policies that ship, by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from posse.core.check import nearest
from posse.core.errors import ConfigError
from posse.policies.base import Policy
from posse.policies.epsilon_greedy import EpsilonDecreasing, EpsilonGreedy
from posse.policies.pursuit import Pursuit
from posse.policies.softmax import Softmax
from posse.policies.thompson import Thompson
from posse.policies.ucb import UCB

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
