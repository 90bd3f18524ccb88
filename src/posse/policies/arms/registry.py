"""Policies that score arms, by name; and the settings that choose one.

A policy that ships is its own file and one entry of `POLICIES`. A user's own is an object,
`module:Class`, or a table of it and parameters.

>>> policy("softmax", {"tau": 0.05}) == policy({"name": "softmax", "tau": 0.05}) == Softmax(0.05)
True
>>> policy("sotfmax")  # doctest: +ELLIPSIS
Traceback (most recent call last):
...
posse.core.errors.ConfigError: [P100] unknown policy 'sotfmax'. Did you mean 'softmax'? Known: ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from posse.core.settings import IMPORTS
from posse.policies.arms.base import Policy
from posse.policies.arms.shipped import (
    UCB,
    EpsilonDecreasing,
    EpsilonGreedy,
    Pursuit,
    Softmax,
    Thompson,
)
from posse.policies.registry import Choice, Registry, with_parameters

_REGISTRY = Registry(
    Policy,
    (EpsilonGreedy, EpsilonDecreasing, UCB, Thompson, Softmax, Pursuit),
    rule="a subclass of posse.policies.Policy",
)

POLICIES = _REGISTRY.kinds
"""The policies that ship, by name."""
PARAMETERS = tuple(_REGISTRY.settings_fields())
"""Names of the parameters of all registered policies, each a setting and a flag."""
PolicyValue = str | Policy | type[Policy] | Mapping[str, object]
"""Anything that `policy` takes."""

policy = _REGISTRY.make
described = _REGISTRY.described
parameters_of = _REGISTRY.parameters_of


@with_parameters
class PolicySettings(Choice):
    """A policy that scores arms and its parameters: one setting for each that some registered
    policy has.

    A parameter that the policy does not have is an error, one left out has the policy's default.

    >>> PolicySettings(policy=Softmax(0.05)) == PolicySettings(policy="softmax", tau=0.05)
    True
    """

    panel: ClassVar[str] = "How to choose"
    registry: ClassVar[Registry[Policy]] = _REGISTRY

    policy: Annotated[Any, IMPORTS] = "thompson"
    """How to choose: a name (see 'posse policies'), module:Class or file.py:Class of your own, or a
    table of one of these with parameters, {name = "mine.py:Mine", width = 0.3}.
    """

    def make_policy(self) -> Policy:
        """Build the policy.

        >>> PolicySettings(policy="pursuit", beta=0.05).make_policy()
        Pursuit(beta=0.05)
        """
        made: Policy = self._made()
        return made

    def sound_policy(self) -> Policy:
        """Build the policy for a run; a user's own is refused unless it passes the check-suite,
        once for the settings.

        Whether it pickles is left to who sends it to another process.
        """
        from posse.policies.arms.checks import refuse

        made = self.make_policy()
        if type(made) not in POLICIES.values():
            self.cached("sound", lambda: refuse(made, but=("picklable",)))
        return made
