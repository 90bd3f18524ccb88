"""What a member agrees to, and the ledger that adds up what its runs have asked of it.

A proposal is checked against [consent] by the member itself, from the proposal's settings and not
from what its proposer says of them. What a run may take (its decisions, its epsilon and delta) is
written in the ledger before the member says yes, as if all of it were used; it is given back only
if the run never started. So the sum over all runs that a member takes part in stays within its
limits, whatever is proposed, in whatever order, and wherever the member is killed. Epsilons and
deltas of runs add up (basic composition).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import model_validator

from posse.core import check, files
from posse.core.errors import BudgetError, JournalError
from posse.core.settings import Settings

LEDGER = "ledger.json"


@dataclass(frozen=True)
class Demand:
    """What a run asks of a member, at most."""

    system: str
    level: str
    policy: str
    decisions: int
    epsilon: float = math.inf
    """Differential privacy of what the run shows of this member's data; infinite where it proves
    none.
    """
    delta: float = 0.0
    price: float = 0.0
    """What is paid for a decision, at least."""


class Consent(Settings):
    """The table [consent] of a member: what it agrees to without being asked again; what is left
    out is not limited.
    """

    customers: tuple[str, ...] = ()
    """Members that may propose a run; the founder alone if not given."""
    systems: tuple[str, ...] | None = None
    levels: tuple[str, ...] | None = None
    policies: tuple[str, ...] | None = None
    budget: int | None = None
    """Decisions of one run."""
    budget_in_all: int | None = None
    """Decisions of all runs together."""
    epsilon: float | None = None
    """Epsilon of one run; a run that proves no differential privacy is then refused."""
    price: float | None = None
    """The least that a decision of a run is paid."""
    epsilon_in_all: float | None = None
    """Epsilons of all runs, added up."""
    delta_in_all: float | None = None
    """Deltas of all runs, added up."""
    runs: int | None = None
    """Number of runs in all."""

    @model_validator(mode="after")
    def _check_limits(self) -> Consent:
        for name in (
            "price",
            "budget",
            "budget_in_all",
            "epsilon",
            "epsilon_in_all",
            "delta_in_all",
            "runs",
        ):
            if (value := getattr(self, name)) is not None:
                check.at_least(0, **{name: value})
        return self

    def check(self, demand: Demand, proposer: str, founder: str) -> None:
        """Raise if one run alone goes beyond this consent."""
        for limit, value, choices in (
            ("customers", proposer, self.customers or (founder,)),
            ("systems", demand.system, self.systems),
            ("levels", demand.level, self.levels),
            ("policies", demand.policy, self.policies),
        ):
            if choices is not None and value not in choices:
                allowed = ", ".join(choices) or "none"
                raise _refusal(limit, f"{limit} allows {allowed}, got '{value}'.")
        _within("decisions", demand.decisions, "budget", self.budget)
        _within("epsilon", demand.epsilon, "epsilon", self.epsilon)
        if self.price is not None and demand.price < self.price:
            raise _refusal(
                "price", f"it pays {demand.price:g} a decision; price is {self.price:g}."
            )

    def check_sum(self, spent: Spent, demand: Demand) -> None:
        """Raise if a run would go beyond this consent together with those before."""
        _within("runs", spent.runs + 1, "runs", self.runs)
        _within(
            "decisions", spent.decisions + demand.decisions, "budget_in_all", self.budget_in_all
        )
        _within("epsilons", spent.epsilon + demand.epsilon, "epsilon_in_all", self.epsilon_in_all)
        _within("deltas", spent.delta + demand.delta, "delta_in_all", self.delta_in_all)


def _within(what: str, value: float, name: str, limit: float | None) -> None:
    if limit is None or value <= limit:
        return
    if math.isinf(value):
        raise _refusal(name, f"it proves no differential privacy; {name} is {limit:g}.")
    raise _refusal(name, f"{what} would be {value:g}; {name} is {limit:g}.")


def _refusal(limit: str, text: str) -> BudgetError:
    """Make the error of a run outside a limit; only this member reads the limit's value.

    A proposer that knew the value would always ask for the most, and pay the least.
    """
    return BudgetError(
        text,
        public_text=f"the run is outside {limit} in its [consent]. Its own log has the value.",
    )


@dataclass(frozen=True)
class Spent:
    """What runs have asked of a member so far, added up."""

    runs: int = 0
    decisions: int = 0
    epsilon: float = 0.0
    delta: float = 0.0


class Ledger:
    """What each run may take of a member, by the digest of its proposal; on the disk before it
    counts.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEDGER
        self._demands: dict[str, Demand] = {}
        self._started: frozenset[str] = frozenset()
        self.restored = False
        """Whether it came from a backup, and the founder has not said yet which runs there were
        since.
        """
        if self._path.exists():
            try:
                kept = json.loads(self._path.read_text())
                self._demands = {digest: Demand(**entry) for digest, entry in kept["runs"].items()}
                self._started = frozenset(kept["started"])
                self.restored = bool(kept.get("restored"))
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise JournalError(
                    f"{self._path} cannot be read: {error}. It holds what all runs have asked of "
                    "this member: restore "
                    "it from a copy."
                ) from error

    @property
    def spent(self) -> Spent:
        """Add up all entries."""
        entries = self._demands.values()
        return Spent(
            len(entries),
            sum(one.decisions for one in entries),
            math.fsum(one.epsilon for one in entries),
            math.fsum(one.delta for one in entries),
        )

    def reserve(
        self, digest: str, demand: Demand, consent: Consent, proposer: str, founder: str
    ) -> None:
        """Enter a run, or raise `BudgetError` if it goes beyond the consent.

        A run that is entered and has not started is not entered twice; one that has started is
        refused.
        """
        if digest in self._started:
            raise BudgetError("it was started here before.")
        if digest in self._demands:
            return
        consent.check(demand, proposer, founder)
        consent.check_sum(self.spent, demand)
        self._write({**self._demands, digest: demand}, self._started)

    def start(self, digest: str) -> None:
        """Say that a run which is entered starts: it stays in the ledger for ever."""
        if digest not in self._demands:
            raise BudgetError("it is not in the ledger, so it may not start.")
        if digest not in self._started:
            self._write(self._demands, self._started | {digest})

    def release(self, digest: str) -> None:
        """Take out a run that has not started; one that has stays."""
        if digest in self._demands and digest not in self._started:
            self._write(
                {key: one for key, one in self._demands.items() if key != digest}, self._started
            )

    def knows(self, digest: str) -> bool:
        """Whether a run is entered."""
        return digest in self._demands

    def recall(self, runs: Mapping[str, Demand], *, whole: bool = True) -> None:
        """Enter runs that a restored ledger may have lost, within limits or not; it then has all,
        if `whole`.
        """
        self.restored = self.restored and not whole
        self._write({**runs, **self._demands}, self._started | set(runs))

    def adopt(self, older: Mapping[str, Any], *, newest: bool) -> None:
        """Add the entries of a ledger from a backup; unless this one is the newest, runs since may
        be missing.
        """
        self.restored = self.restored or not newest
        added = {digest: Demand(**entry) for digest, entry in older["runs"].items()}
        self._write({**added, **self._demands}, self._started | set(older["started"]))

    def _write(self, demands: dict[str, Demand], started: frozenset[str]) -> None:
        document: dict[str, Any] = {
            "runs": {digest: asdict(one) for digest, one in demands.items()},
            "started": sorted(started),
        }
        if self.restored:
            document["restored"] = True
        files.write_whole(self._path, json.dumps(document, indent=1).encode(), mode=files.PRIVATE)
        self._demands, self._started = demands, started
