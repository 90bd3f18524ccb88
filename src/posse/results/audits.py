"""What attacks found: a table, which the record of the attacked run stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from posse.results import words
from posse.results.record import Record, utc_now
from posse.results.section import Section
from posse.results.values import JSON
from posse.version import __version__

COLUMNS = ("attack", "at", "seeks", "finds", "guesses without", "verdict", "would find")
ESTIMATES = ("attack", "at", "seeks", "estimate")
"""Columns of an audit without a truth."""
UNSCORED = "not scored"
"""Verdict on an estimate without a known truth."""
OTHER_ROLES = "is by "
"""First words of the reason if an attack by other roles was left out."""


@dataclass(frozen=True)
class Row:
    """One attack: its score, the score of a guess without a view, and its power."""

    attack: str
    title: str
    """What the attack seeks."""
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
    """What the value counts."""
    baseline: float | None = None
    """The value of an adversary who saw nothing."""
    p: float | None = None
    power: float | None = None
    """Share of planted leaks that the attack finds."""
    planted: str = ""
    """What the planted leaks are."""
    shuffled: float | None = None
    """p against truths that the attack cannot know."""
    claims: tuple[str, ...] = ()
    """First words of the sentences of a level that the attack verifies."""
    seconds: float = 0.0
    note: str = ""
    """Why the attack was not made."""

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
    """Steps of each run."""
    status: str = "finished"
    """"finished" or "interrupted"."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Attacks that were left out, with the reason."""
    level: float = 0.01
    """Probability that any row of the table is a false alarm."""
    seconds: float = 0.0
    created: str = field(default_factory=utc_now)
    version: str = __version__
    view: str = ""
    """Whose recorded view was attacked, and how long it is; then no truth scores the estimates."""

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
        if not self.rows and self.left_out:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
            return f"No attack was made. Left out: {reasons}"
        counts = Counter(row.verdict for row in self.rows)
        parts = [f"{counts[name]} {name}" for name in ("finds it out", "a little") if counts[name]]
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
            f"{self.level:g}. 'would find' is the share of planted leaks that the attack finds. "
            "[ ] is a 95 % interval."
        ]
        scored = [row for row in self.rows if row.says and row.value is not None]
        notes += [f"{row.attack}: {row.says}" for row in scored]
        notes += [f"Left out: {name}: {why}" for name, why in self.left_out.items()]
        rows = tuple(row.cells for row in self.rows)
        return [Section(self.title, COLUMNS, rows, tuple(notes), data=self.plain())]

    def _estimates(self) -> Section:
        """Return the table of estimates that no truth scores."""
        notes = [
            f"From {self.view}; seed {self.seed}. A deployment has no truth to score estimates "
            "against, so this table does not show whether they are right. An audit of similar "
            "settings shows how often each attack is right, and what it would find."
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

    def plain(self) -> dict[str, JSON]:
        """Return it as a record stores it: with the rows last."""
        values: dict[str, JSON] = msgspec.to_builtins(self, enc_hook=np.generic.item)
        values["left_out"] = values.pop("left_out")
        values["rows"] = values.pop("rows")
        return values

    @classmethod
    def of(cls, stored: Mapping[str, JSON]) -> Audit:
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
