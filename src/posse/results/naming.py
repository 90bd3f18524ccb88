"""The names of a record: its policy, its protection, its problem, and the words of its system."""

from __future__ import annotations

from collections.abc import Mapping

from posse.results import levels, words
from posse.results.values import JSON
from posse.results.vocabulary import Vocabulary, vocabulary

SWITCHES = ("aes", "paillier", "permutation", "mask")
"""Protections that a configuration can switch off."""

_ARITHMETIC = {"fixed": "fixed-point ", "float": "float "}
"""Where a level has two plain twins, how each computes (`summary["path"]`)."""


class Named:
    """What a `RunRecord` is called, read from what was asked; it holds nothing of its own."""

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
        return levels.ALONE not in (self.level, self.policy)

    @property
    def off(self) -> tuple[str, ...]:
        """Protections of the level that were switched off; none in a plain record, which has nothing to switch off."""
        return () if self.level == levels.PLAIN else tuple(name for name in SWITCHES if self.config.get(name) is False)

    @property
    def twin_of(self) -> str:
        """The level whose plain twin this is; empty for a protected record."""
        return str(self.summary.get("twin_of", "standard")) if self.level == levels.PLAIN else ""

    @property
    def protected(self) -> bool:
        """Whether the level holds what it promises: not plain, and nothing switched off."""
        return self.level != levels.PLAIN and not self.off

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
