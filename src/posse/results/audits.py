"""What attacks found: a table, which the record of the attacked run stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from posse.results import words
from posse.results.record import Record, utc_now
from posse.results.section import Section
from posse.version import __version__

COLUMNS = ("attack", "at", "seeks", "finds", "guesses without", "verdict", "would find")
ESTIMATES = ("attack", "at", "seeks", "estimate")
"""Columns of an audit that knows no truth."""
UNSCORED = "not scored"
"""Verdict on an estimate that no truth is known for."""
OTHER_ROLES = "is by "
"""Begins the reason why an attack of other roles than those whose view it is was left out."""


@dataclass(frozen=True)
class Row:
    """One attack: what it found, what a guess without a view finds, and what it would have
    found.
    """

    attack: str
    title: str
    """What it seeks."""
    at: str
    """Who attacks: kinds of role."""
    verdict: str
    """The result: "finds it out", "a little", "nothing found", or "not scored" without a truth."""
    says: str = ""
    """The estimate in words."""
    statistic: str = ""
    value: float | None = None
    interval: tuple[float, float] | None = None
    """At confidence .95."""
    counted: str = ""
    """What the value is counted from."""
    baseline: float | None = None
    """The value of an adversary who saw nothing."""
    p: float | None = None
    power: float | None = None
    """Share of planted leaks that it finds."""
    planted: str = ""
    """What was planted."""
    shuffled: float | None = None
    """p against truths that it cannot know."""
    claims: tuple[str, ...] = ()
    """Beginnings of the sentences of a level that it verifies."""
    seconds: float = 0.0
    note: str = ""
    """Why it was not made, where it was not."""

    @property
    def finds(self) -> str:
        """The score as text."""
        if self.value is None:
            return self.says or self.note or words.UNKNOWN
        text = f"{self.statistic or 'score'} {_figure(self.value)}"
        if self.interval is not None:
            low, high = self.interval
            text += f" [{_figure(low)}, {_figure(high)}]"
        if self.counted:
            text += f", {self.counted}"
        return text

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of a table."""
        guess = _figure(self.baseline)
        power = words.UNKNOWN
        if self.power is not None:
            power = f"{self.power:.0%} of {self.planted or 'planted leaks'}"
        return self.attack, self.at, self.title, self.finds, guess, self.verdict, power


def _figure(value: float | None) -> str:
    if value is None:
        return words.UNKNOWN
    if abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:,.0f}"


@dataclass(frozen=True)
class Audit:
    """The attacks made on one run, or on the view of one party."""

    system: str
    protection: str
    rows: tuple[Row, ...]
    seed: int = 0
    runs: int = 1
    """Runs whose views were attacked."""
    steps: int = 0
    """Steps of each."""
    status: str = "finished"
    """"finished" or "interrupted"."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Attacks that do not apply to such a run, or were not asked for, and why."""
    level: float = 0.01
    """Probability, over all rows together, that one seems to find something where there is
    nothing.
    """
    seconds: float = 0.0
    created: str = field(default_factory=utc_now)
    version: str = __version__
    view: str = ""
    """Whose view it is of and how long, where a party recorded it; there is no truth to score
    estimates by then.
    """

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, attack: str) -> Row:
        for row in self.rows:
            if row.attack == attack:
                return row
        names = ", ".join(row.attack for row in self.rows)
        raise KeyError(f"no attack '{attack}' in this audit. It has {names}.")

    @property
    def title(self) -> str:
        """A heading."""
        stopped = "" if self.status == "finished" else ", interrupted"
        return f"Audit: what attacks find ({self.protection}{stopped})"

    @property
    def headline(self) -> str:
        """How many attacks found something."""
        attacks = words.count(len(self.rows), "attack")
        if self.view:
            return f"{attacks}: estimates that no truth scores"
        verdicts = Counter(row.verdict for row in self.rows)
        parts = []
        for verdict in ("finds it out", "a little"):
            if verdicts[verdict]:
                parts.append(f"{verdicts[verdict]} {verdict}")
        return f"Of {attacks}: {', '.join(parts) or 'none finds anything'}"

    def sections(self) -> list[Section]:
        """Return the table with its notes."""
        if self.view:
            return [self._estimates()]
        on = "one view"
        if self.steps:
            on = f"{words.count(self.runs, 'run')} of {words.count(self.steps, 'step')}"
        notes = [
            f"On {on}, seed {self.seed}. 'finds it out' and 'a little' beat a guess without a "
            f"view; over all {len(self.rows)} rows together the probability of a false alarm is "
            f"{self.level:g}. 'would find': share of planted leaks that the attack finds. [ ]: "
            "interval at confidence .95."
        ]
        for row in self.rows:
            if row.says and row.value is not None:
                notes.append(f"{row.attack}: {row.says}")
        notes += [f"Left out: {name}: {why}" for name, why in self.left_out.items()]
        rows = tuple(row.cells for row in self.rows)
        return [Section(self.title, COLUMNS, rows, tuple(notes), data=self.plain())]

    def _estimates(self) -> Section:
        """Return the table of estimates that no truth scores."""
        notes = [
            f"From {self.view}; seed {self.seed}. Estimates only: a deployment has no truth to "
            "score them against, so nothing here says whether they are right. How often each "
            "attack is right, and what it would find, shows an audit of settings like those of the "
            "run."
        ]
        others = []
        for name, why in self.left_out.items():
            if why.startswith(OTHER_ROLES):
                others.append(f"{name} ({why.removeprefix(OTHER_ROLES).partition(',')[0]})")
            else:
                notes.append(f"Left out: {name}: {why}")
        if others:
            notes.append(f"Attacks of other roles: {', '.join(others)}.")
        rows = tuple((row.attack, row.at, row.title, row.says) for row in self.rows)
        title = "Audit: what this party could estimate from its view"
        return Section(title, ESTIMATES, rows, tuple(notes), data=self.plain())

    def plain(self) -> dict[str, Any]:
        """Return it as a record stores it."""
        values: dict[str, Any] = msgspec.to_builtins(self, enc_hook=np.generic.item)
        left_out = values.pop("left_out")
        rows = values.pop("rows")
        return values | {"left_out": left_out, "rows": rows}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Audit:
        """Return the audit that a record stores; keys of other versions are ignored."""
        return msgspec.convert(stored, cls)

    def _repr_html_(self) -> str:
        """Return the audit as a notebook shows it; notes are folded."""
        from posse.results.render import fragment

        return fragment(self.headline, sections=self.sections())

    def __str__(self) -> str:
        lines = [f"{row.at}: {row.title}: {row.verdict} ({row.finds})" for row in self.rows]
        return "\n".join([self.title, *lines])


def audits(record: Record) -> list[Audit]:
    """Return the audits that a record stores, the latest last."""
    return [Audit.of(stored) for stored in record.audits]
