"""Settings of Samba: one model for Python, a TOML file and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from pydantic.config import JsonDict

from posse.policies.arms.base import Policy
from posse.policies.arms.registry import PARAMETERS, PolicySettings, described
from posse.privacy.crypto.paillier import DEFAULT_BITS, check_new
from posse.problems.arms.rewards import Arms
from posse.problems.arms.settings import USUAL, ProblemSettings
from posse.results import words
from posse.results.record import yardsticks
from posse.results.section import Section
from posse.results.values import JSON
from posse.systems.base import RunSettings
from posse.systems.samba.levels import (
    ONE_PROCESS,
    Switches,
    check_budget,
    check_level,
    check_price,
    leaks,
    learns,
    prices,
    refuse_standard,
    statements,
)


@dataclass(frozen=True, eq=False)
class Setup:
    """What settings make."""

    arms: Arms
    policy: Policy
    switches: Switches


IMPLIED = ["level", "path", "aes", "paillier", "permutation", "mask"]
"""Settings that the protection of a record says."""
AT_PAPER: JsonDict = {"only": {"level": ["paper"]}}
"""What the schema of a setting says that is refused at every other level."""


class Samba(RunSettings, ProblemSettings, PolicySettings):
    """Everything a run of Samba needs to know.

    >>> Samba(policy="ucb", owners=3, budget=200).horizon
    200
    """

    system: ClassVar[str] = "samba"
    defaults_in_version_0_1: ClassVar[Mapping[str, object]] = {"policy": "ucb"}
    aliases: ClassVar[Mapping[str, str]] = {"budget": "horizon", "steps": "horizon"}
    absent: ClassVar[Mapping[str, str]] = {
        "walk": (
            "Name the worked example as the run begins, posse.start(settings, example='ucb-68'), "
            "or choose its scenario in the studio."
        )
    }

    horizon: int = 10_000
    """Number of pulls N (the paper's budget)."""
    level: Literal["strict", "paper"] = "strict"
    """Level of protection: 'strict' (no server alone learns anything), or 'paper' as published."""
    path: Literal["roles", "plain"] = "roles"
    """roles: owners, controller, comp, customer (and dealer) exchange messages; plain: the twin:
    one party sees all.
    """
    aes: bool = Field(True, json_schema_extra=AT_PAPER)
    """AES-GCM on what owners send (can be off at level paper only)."""
    paillier: bool = Field(True, json_schema_extra=AT_PAPER)
    """Paillier on the sums (can be off at level paper only)."""
    permutation: bool = Field(True, json_schema_extra=AT_PAPER)
    """Permute the owners before comp sees scores (can be off at level paper only)."""
    mask: bool = Field(True, json_schema_extra=AT_PAPER)
    """Mask the scores that comp compares (can be off at level paper only)."""
    shortcut: bool = Field(True, json_schema_extra=AT_PAPER)
    """In exploring steps owners send no scores; off: all send one number, as the paper describes
    the step (at level paper only).
    """
    paillier_bits: int = DEFAULT_BITS
    """Size of the Paillier key."""
    price: tuple[float, ...] | None = None
    """What the customer owes an owner for a pull: one number, or one an owner."""

    _level = field_validator("level", mode="before")(refuse_standard)
    _prices = field_validator("price", mode="before")(prices)

    @model_validator(mode="after")
    def _check_samba(self) -> Samba:
        check_level(self.level, self.switches, self.make_policy())
        if self.path != "plain":
            check_new(self.paillier_bits)
        check_price(self.price or (), self.count)
        check_budget(self.count or (2 if self.horizon >= 2 else USUAL), self.horizon)
        return self

    @property
    def switches(self) -> Switches:
        """The protections of the paper that are on, and its shortcut."""
        return Switches(self.aes, self.paillier, self.permutation, self.mask, self.shortcut)

    def load(self) -> Setup:
        """Check what needs the arms, and return arms, policy and switches; arms are made once."""
        return self.cached("setup", self._load)

    def _load(self) -> Setup:
        arms = self.arms()
        check_budget(len(arms), self.horizon)
        check_price(self.price or (), len(arms))
        return Setup(arms, self.sound_policy(), self.switches)

    def files(self) -> Sequence[Path]:
        """The CSV file that `data` names, if it names one."""
        return self.data_files()

    def learns(self) -> tuple[str, ...]:
        """What each role learns, one sentence each."""
        return learns(self.level, self.switches)

    def leaks(self) -> tuple[str, ...]:
        """What is not protected, one sentence each."""
        setup = self.load()
        found = leaks(
            self.level, setup.switches, len(setup.arms), setup.policy, price=self.price or ()
        )
        return (*found, ONE_PROCESS) if self.level == "strict" else found

    @property
    def protection(self) -> str:
        """The level in a few words: with the protections that are off, or whose twin a plain run
        is.
        """
        if self.path == "plain":
            return f"plain, twin of {self.level}" if self.level == "paper" else "plain"
        off = self.switches.off
        return f"{self.level}, {words.listed(off)} off" if off else self.level

    def config(self) -> dict[str, JSON]:
        """Every setting with the value that was used; the parameters of the policy stand under
        `policy`.
        """
        setup = self.load()
        unused = ["price"] if self.price is None else []
        unused += [] if self.level == "paper" and setup.policy.explores else ["shortcut"]
        unused += [] if self.means is None else ["data"]
        given = {
            name: value
            for name, value in self.resolved().items()
            if name not in (*PARAMETERS, *unused)
        }
        return {**given, **self.used(setup.arms), "policy": described(setup.policy)}

    def problem(self) -> dict[str, JSON]:
        """What is learnt, as a record keeps it."""
        return {
            "name": self.data_name if self.means is None else "means given",
            **self.load().arms.describe(),
            "words": {"party": "owner"},
        }

    def owed(self, pulls: Sequence[int]) -> tuple[Section, ...]:
        """What owners are owed for their pulls, where a pull has a price."""
        return (statements(self.load().arms.names, pulls, self.price),) if self.price else ()

    def rating_counts(self) -> dict[str, list[int]]:
        """Return the number of ratings behind the mean of each arm; empty without ratings."""
        ratings = self.ratings()
        if ratings is None:
            return {}
        count_of = dict(zip(ratings.names, ratings.counts.tolist(), strict=True))
        return {"ratings": [count_of[name] for name in self.load().arms.names]}

    def yardsticks(self) -> dict[str, str | float]:
        """What a step would pay without learning: by chance, and by the best arm."""
        arms = self.load().arms.describe()
        return yardsticks(arms["means"], arms["names"]) if arms.get("means") else {}
