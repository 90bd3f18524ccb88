"""Levels of protection that mean the same in every system, and how each is told."""

from __future__ import annotations

from collections.abc import Mapping

from posse.results import words
from posse.results.values import JSON
from posse.results.words import Vocabulary, vocabulary

PLAIN = "plain"
"""No protection: what is exchanged is exchanged in the clear."""

ALONE = "alone"
"""No federation: nothing leaves a party, so there is nothing to protect and nothing to gain."""

PLACEBO = "placebo"
"""A control: messages of pure noise, which carry nothing and should help nobody."""

_TOLD = {PLAIN: "no protection", ALONE: "nothing is shared", PLACEBO: "a control, pure noise"}


def remark(protection: str) -> str:
    """Say what a protection (`Record.protection`) is when its name alone could mislead; else nothing.

    >>> remark("plain, twin of paper"), remark("alone"), remark("tight")
    ('no protection', 'nothing is shared', '')
    """
    return _TOLD.get(protection.partition(",")[0], "")


def told(protection: str) -> str:
    """Write a protection with its remark.

    >>> told("alone"), told("standard")
    ('alone: nothing is shared', 'standard')
    """
    return f"{protection}: {remark(protection)}" if remark(protection) else protection


def warns(protection: str) -> bool:
    """Tell whether a protection is less than its reader may think: plain, or with a part switched off.

    >>> warns("plain"), warns("paper, mask off"), warns("alone"), warns("placebo")
    (True, True, False, False)
    """
    return protection.partition(",")[0] == PLAIN or protection.endswith(" off")


SWITCHES = ("aes", "paillier", "permutation", "mask")
"""Protections that a configuration can switch off."""

_ARITHMETIC = {"fixed": "fixed-point ", "float": "float "}
"""Where a level has two plain twins, how each computes (`summary["path"]`)."""


class Named:
    """What a `Record` is called, read from what was asked; it holds nothing of its own."""

    kind: str
    level: str
    config: Mapping[str, JSON]
    problem: Mapping[str, JSON]
    summary: Mapping[str, str | float | int]

    @property
    def words(self) -> Vocabulary:
        """What this system calls a step, an arm, a pull, a reward and a party: `problem["words"]`, or the defaults."""
        return vocabulary(self.problem.get("words"))

    @property
    def policy(self) -> str:
        """Name of the policy, or the kind of the record where the configuration has none."""
        policy = self.config.get("policy")
        name = policy.get("name") if isinstance(policy, Mapping) else policy
        return name if isinstance(name, str) and name else self.kind

    @property
    def label(self) -> str:
        """Name for a legend or a table: the policy and its protection, once where they are one word."""
        return self.policy if self.policy == self.protection else f"{self.policy} ({self.protection})"

    @property
    def federated(self) -> bool:
        """Whether the parties exchanged anything at all."""
        return ALONE not in (self.level, self.policy)

    @property
    def off(self) -> tuple[str, ...]:
        """Protections of the level that were switched off; none in a plain record, which has nothing to switch off."""
        return () if self.level == PLAIN else tuple(name for name in SWITCHES if self.config.get(name) is False)

    @property
    def twin_of(self) -> str:
        """The level whose plain twin this is; empty for a protected record."""
        return str(self.summary.get("twin_of", "standard")) if self.level == PLAIN else ""

    @property
    def protected(self) -> bool:
        """Whether the level holds what it promises: not plain, and nothing switched off."""
        return self.level != PLAIN and not self.off

    @property
    def protection(self) -> str:
        """The level as every table shows it: "paper, aes and mask off", or "plain, twin of paper"."""
        if self.off:
            return f"{self.level}, {words.listed(self.off)} off"
        if self.twin_of in ("", "standard"):
            return self.level
        return f"{self.level}, {_ARITHMETIC.get(str(self.summary.get('path')), '')}twin of {self.twin_of}"

    @property
    def contextual(self) -> bool:
        """Whether every step has a context, and with it a best arm of its own."""
        return "features" in self.problem

    @property
    def problem_name(self) -> str:
        """Name of the problem, or its source, or "unnamed"."""
        return next((str(self.problem[key]) for key in ("name", "source") if self.problem.get(key)), "unnamed")
