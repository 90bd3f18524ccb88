"""Whether a policy can run in a federation: the properties it must have, tested before a run starts.

Theorem 1 of the Samba paper asks for *arm score locality* and *oblivious arm selection*. That masks change no choice,
that functions are pure, finite and compile, and that a policy pickles is what makes every path give the same arms.
The checks find what shows on a few thousand calls; they refuse, they do not prove. Cost: a second or two, most of it
compiling.

>>> from posse.policies import UCB
>>> check(UCB()).passed
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from posse.core.errors import PolicyError
from posse.policies.base import Policy
from posse.policies.checks.locality import local_scores, wrong_signature
from posse.policies.checks.masks import masks_keep_choices
from posse.policies.checks.numbers import compiles, finite, picklable, pure
from posse.policies.checks.selection import oblivious
from posse.policies.checks.subject import Subject, line

__all__ = ["CHECKS", "CheckResult", "Report", "check", "refuse"]

CHECKS: dict[str, Callable[[Subject], str | None]] = {
    "arm score locality": local_scores,
    "oblivious selection": oblivious,
    "masks do not change choices": masks_keep_choices,
    "purity": pure,
    "picklable": picklable,
    "compiles": compiles,
    "finite scores": finite,
}
"""The checks by the name of the property, in the order they run; each gives None, or one sentence of why not."""


@dataclass(frozen=True)
class CheckResult:
    """One property: whether the policy has it, and if not, why."""

    name: str
    passed: bool
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """What the checks found, in the order they ran."""

    policy: str
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether every property holds."""
        return all(result.passed for result in self.results)


def check(policy: Policy) -> Report:
    """Run every check. After a wrong signature no function can be called, and the other checks are left out."""
    subject = Subject(policy)
    results = []
    for name, test in CHECKS.items():
        try:
            reason = test(subject)
        except Exception as error:  # raised by the user's own passes(), parameters() or start(): a finding
            reason = f"the policy raises {line(error)}."
        results.append(CheckResult(name, reason is None, reason or ""))
        if reason is not None and wrong_signature(subject):
            break
    return Report(subject.name, tuple(results))


def refuse(policy: Policy) -> None:
    """Raise a `PolicyError` that names the first violated property, unless every check passes."""
    report = check(policy)
    for result in report.results:
        if not result.passed:
            raise PolicyError(
                f"policy '{report.policy}' cannot run in a federation. It violates {result.name}: {result.reason}"
            )
