"""How exploration changes from deployment to deployment: the last parameter of a policy (epsilon,
beta, gamma).

| schedule | value in deployment i = 1, 2, ... |
|---|---|
| `constant` | the given one |
| `inverse-sqrt`, `inverse` | the given one over sqrt(i), or over i; FALCON's gamma times it: it explores less then |
| `0.2,0.1,0.05` | these in turn, and the last from then on |
| `falcon` | FALCON's own: gamma_i = c sqrt(K t / (d + ln(t / 0.05))), gamma_1 = 1, and mu = K if left out |
| `file.py:function` | function(i) |

In FALCON's own t are the decisions expected before deployment i, and d the numbers of the model, in
place of the logarithm of the size of a finite class (a linear class of d numbers has a cover of
e^O(d)); c is gamma where that is given, and else the 1/30 of the proof. Simchi-Levi, Xu: Bypassing
the monster, 2022, algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeAlias

from posse.core.check import suggestion
from posse.core.errors import ConfigError, PosseError
from posse.policies.contextual.explorations import Exploration, Falcon
from posse.policies.own import explain, is_own, load

CONSTANT, OWN_FALCON = "constant", "falcon"
SCHEDULES = (CONSTANT, "inverse-sqrt", "inverse", OWN_FALCON)
"""Schedules by name."""
C, DELTA = 1 / 30, 0.05
"""FALCON's constant, and the chance that its bound fails."""

Explores: TypeAlias = Callable[[int], tuple[float, ...]]
"""The numbers that a policy's formula takes, by the number of a deployment: 1, 2, ..."""


def explores_of(
    schedule: str, policy: Exploration, arms: int, decisions: float, size: float
) -> Explores | None:
    """Return the parameters of a policy by deployment; none where they stay.

    `decisions` are those of one deployment, and `size` the numbers of the model.

    >>> from posse.policies.contextual.explorations import EpsilonGreedy
    >>> found = explores_of("inverse-sqrt", EpsilonGreedy(0.2), 10, 100, 5)
    >>> [round(found(i)[0], 3) for i in (1, 4, 16)]
    [0.2, 0.1, 0.05]
    >>> own = explores_of("falcon", Falcon(gamma=1.0), 10, 1000, 50)
    >>> [tuple(round(x, 2) for x in own(i)) for i in (1, 2, 5)]
    [(10.0, 1.0), (10.0, 12.92), (10.0, 25.55)]
    """
    if schedule == CONSTANT:
        return None
    name = _varied(schedule, policy)
    function = _function(schedule) if is_own(schedule) else None
    listed = numbers_of(schedule) if schedule not in SCHEDULES and function is None else ()
    given = float(policy.values(arms)[-1])

    def at(deployment: int) -> float:
        if listed:
            return listed[min(deployment, len(listed)) - 1]
        if function is not None:
            return _called(function, schedule, deployment)
        if schedule == OWN_FALCON:
            seen = decisions * (deployment - 1)
            return (
                given * math.sqrt(arms * seen / (size + math.log(seen / DELTA)))
                if deployment > 1
                else 1.0
            )
        factor = math.sqrt(deployment) if schedule == "inverse-sqrt" else float(deployment)
        return given * factor if isinstance(policy, Falcon) else given / factor

    own = schedule == OWN_FALCON and isinstance(policy, Falcon) and policy.mu is None
    base = replace(policy, **{"mu": float(arms)}) if own else policy

    def values(deployment: int) -> tuple[float, ...]:
        try:
            return replace(base, **{name: at(deployment)}).values(arms)
        except PosseError as error:
            raise ConfigError(
                f"schedule '{schedule}', deployment {deployment}: {error.text}"
            ) from None

    return values


def _varied(schedule: str, policy: Exploration) -> str:
    """Return the parameter that varies: the last one."""
    names = [one.name for one in fields(policy)]
    if not names:
        raise ConfigError(
            f"schedule '{schedule}' changes a parameter of the policy, and {policy.name} has none. "
            "Leave it out."
        )
    if schedule == OWN_FALCON and not isinstance(policy, Falcon):
        raise ConfigError(
            f"schedule 'falcon' is that of policy falcon, got policy {policy.name}. Choose another."
        )
    return names[-1]


def numbers_of(schedule: str) -> tuple[float, ...]:
    """Read the values of a schedule that lists them."""
    try:
        found = tuple(float(part) for part in schedule.split(","))
    except ValueError:
        raise ConfigError(
            f"unknown schedule '{schedule}'.{suggestion(schedule, SCHEDULES)} Or give numbers, such "
            "as 0.2,0.1,0.05, or "
            "your own, file.py:function of the deployment's number."
        ) from None
    if not all(map(math.isfinite, found)):
        raise ConfigError(f"schedule must be of finite numbers, got {schedule}.")
    return found


def _function(where: str) -> Callable[[int], object]:
    made = load(where, "function", callable)
    if not callable(made):
        raise ConfigError(
            f"schedule must name a function of the deployment's number, got {made!r}."
        )
    return made


def _called(function: Callable[[int], Any], where: str, deployment: int) -> float:
    try:
        return float(function(deployment))
    except Exception as error:
        raise ConfigError(
            f"schedule {where} fails for deployment {deployment}: {explain(error)}."
        ) from error


def check_schedule(schedule: str, policy: Exploration) -> None:
    """Raise where a schedule does not fit a policy, or lists values that it does not take."""
    explores = explores_of(schedule, policy, 2, 1.0, 1)
    if explores is not None and schedule not in SCHEDULES and not is_own(schedule):
        for deployment, _ in enumerate(numbers_of(schedule), 1):
            explores(deployment)
