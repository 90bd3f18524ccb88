"""What attacks found: a table anyone understands, kept in the record of the run it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from posse.results import words
from posse.results.record import Record, utc_now
from posse.results.reports.page import Safe, fragment, join, table, tag
from posse.results.reports.sections import Section
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
    """"finds it out", "a little", "nothing found", "says nothing", or "not scored" where there is
    no truth.
    """
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
    """Beginnings of the sentences that it stands behind."""
    seconds: float = 0.0
    note: str = ""
    """Why it was not made, where it was not."""

    @property
    def finds(self) -> str:
        """The score in words."""
        if self.value is None:
            return self.says or self.note or words.UNKNOWN
        edges = (
            ""
            if self.interval is None
            else f" [{_figure(self.interval[0])}, {_figure(self.interval[1])}]"
        )
        counted = f", {self.counted}" if self.counted else ""
        return f"{self.statistic or 'score'} {_figure(self.value)}{edges}{counted}"

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of a table."""
        guess = words.UNKNOWN if self.baseline is None else _figure(self.baseline)
        power = words.UNKNOWN
        if self.power is not None:
            power = f"{self.power:.0%} of {self.planted or 'planted leaks'}"
        return self.attack, self.at, self.title, self.finds, guess, self.verdict, power


def _figure(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


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
    """Attacks that say nothing about such a run, or were not asked for, and why."""
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

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, attack: str) -> Row:
        for row in self.rows:
            if row.attack == attack:
                return row
        raise KeyError(
            f"no attack '{attack}' in this audit. It has "
            f"{', '.join(row.attack for row in self.rows)}."
        )

    @property
    def title(self) -> str:
        """A heading."""
        stopped = "" if self.status == "finished" else ", interrupted"
        return f"Audit: what attacks find ({self.protection}{stopped})"

    @property
    def headline(self) -> str:
        """How many attacks found something, of those that were made."""
        made = words.count(len(self.rows), "attack")
        if self.view:
            return f"{made}: estimates that no truth scores"
        each = {
            verdict: sum(row.verdict == verdict for row in self.rows)
            for verdict in ("finds it out", "a little")
        }
        found = ", ".join(f"{many} {verdict}" for verdict, many in each.items() if many)
        return f"Of {made}: {found or 'none finds anything'}"

    def sections(self) -> list[Section]:
        """Return the table with its notes, as the command line and a report print it."""
        if self.view:
            return [self._estimates()]
        runs = (
            f"{words.count(self.runs, 'run')} of {words.count(self.steps, 'step')}"
            if self.steps
            else "one view"
        )
        notes = [
            f"On {runs}, seed {self.seed}. 'finds it out' and 'a little' beat a guess without a "
            "view; over all "
            f"{len(self.rows)} rows together the chance of a false alarm is {self.level:g}. 'would "
            "find': share of "
            "planted leaks that the attack finds. [ ]: interval at confidence .95."
        ]
        notes += [
            f"{row.attack}: {row.says}" for row in self.rows if row.says and row.value is not None
        ]
        notes += [f"Left out: {name}: {why}" for name, why in self.left_out.items()]
        rows = tuple(row.cells for row in self.rows)
        return [Section(self.title, COLUMNS, rows, tuple(notes), data=self.plain())]

    def _estimates(self) -> Section:
        """Return the table of estimates that nothing is known to score by."""
        others = [
            f"{name} ({why.removeprefix(OTHER_ROLES).partition(',')[0]})"
            for name, why in self.left_out.items()
            if why.startswith(OTHER_ROLES)
        ]
        notes = [
            f"From {self.view}; seed {self.seed}. Estimates only: a deployment has no truth to "
            "score them against, so "
            "nothing here says whether they are right. How often each attack is right, and what it "
            "would find, shows "
            "an audit of settings like those of the run."
        ]
        notes += [
            f"Left out: {name}: {why}"
            for name, why in self.left_out.items()
            if not why.startswith(OTHER_ROLES)
        ]
        notes += [f"Attacks of other roles: {', '.join(others)}."] if others else []
        rows = tuple((row.attack, row.at, row.title, row.says) for row in self.rows)
        return Section(
            "Audit: what this party could estimate from its view",
            ESTIMATES,
            rows,
            tuple(notes),
            data=self.plain(),
        )

    def plain(self) -> dict[str, Any]:
        """Return it as a record keeps it."""
        return {
            **{
                one.name: getattr(self, one.name)
                for one in fields(self)
                if one.name not in ("rows", "left_out")
            },
            "left_out": dict(self.left_out),
            "rows": [_listed(asdict(row)) for row in self.rows],
        }

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Audit:
        """Make it again from what a record keeps; keys of other versions are left out."""
        known = {one.name for one in fields(cls)}
        row_known = {one.name for one in fields(Row)}
        rows = tuple(
            Row(**{key: _tuples(value) for key, value in row.items() if key in row_known})
            for row in kept.get("rows", ())
        )
        return cls(
            **{key: value for key, value in kept.items() if key in known and key != "rows"},
            rows=rows,
        )

    def _repr_html_(self) -> str:
        """Return the answer and the table for a notebook; the notes are folded."""
        made: list[Safe] = []
        for one in self.sections():
            made += [tag("h2", one.title), tag("p", tag("b", self.headline))]
            made += [table(one.columns, one.rows, numeric=one.numeric)] if one.rows else []
            notes = (tag("p", note, cls="soft") for note in one.notes)
            made.append(tag("details", tag("summary", words.count(len(one.notes), "note")), *notes))
        return fragment(*made)

    def __str__(self) -> str:
        lines = [f"{row.at}: {row.title}: {row.verdict} ({row.finds})" for row in self.rows]
        return "\n".join([self.title, *lines])


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in row.items()}


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def parts(sections: Sequence[Section]) -> list[Safe]:
    """Return sections as parts of a page."""
    made: list[Safe] = []
    for one in sections:
        heading = f"{one.title}: {one.label}" if one.label else one.title
        made += [tag("h2", heading)]
        made += [table(one.columns, one.rows, numeric=one.numeric)] if one.rows else []
        made += [tag("p", note, cls="soft") for note in one.notes]
    return made


def audits(record: Record) -> list[Audit]:
    """Return the audits that a record keeps, the latest last."""
    return [Audit.of(kept) for kept in record.audits]


def page_part(records: Sequence[tuple[Record, str]]) -> Safe:
    """Return the latest audit of each record as a part of a report."""
    made: list[Safe] = []
    for record, _ in records:
        for audit in audits(record)[-1:]:
            made += parts(audit.sections())
    return join(made)
