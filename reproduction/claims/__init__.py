"""What the published documents say, claim by claim, beside what was measured here.

A document is a TOML file of this folder: its claims (figures, tables, theorems, algorithms,
sentences with a number) and the departures of this package from it. A claim's id is
`system/reproduction/name`: the reproduction of that id writes its verdict into `claims.json` beside
its figures, and those of record lie in `measured`. A claim whose reproduction has not been run, or
has none, says so.

>>> rows(["samba/theorems/aes"])[0].claim.place
'Theorem 4'
"""

from __future__ import annotations

import json
import os
import platform
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path

from posse.core.errors import ConfigError
from posse.version import __version__

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot be told"
PLURAL = {HOLDS: "hold", FAILS: "do not hold"}
UNMEASURED = "not measured"
VERDICTS = (HOLDS, FAILS, UNKNOWN)
DOCUMENTS = ("samba", "samba-demo", "mpc-contextual", "dp-combinatorial", "fed-contextual")


@dataclass(frozen=True)
class Finding:
    """What a reproduction found about one of its claims: `claim` is the last part of its id."""

    claim: str
    measured: str
    verdict: str
    because: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"a verdict is one of {', '.join(VERDICTS)}, got '{self.verdict}'.")
        if self.verdict == UNKNOWN and not self.because:
            raise ValueError(f"'{self.claim}' cannot be told: say because of what.")


def combined(claim: str, parts: Sequence[Finding]) -> Finding:
    """Judge a claim by several findings: it holds if all do, and does not if one does not.

    >>> combined("both", [Finding("a", "1", HOLDS), Finding("b", "2", UNKNOWN, "few runs")]).verdict
    'cannot be told'
    """
    verdicts = {part.verdict for part in parts}
    verdict = FAILS if FAILS in verdicts else UNKNOWN if UNKNOWN in verdicts else HOLDS
    reasons = [
        part for part in parts if part.verdict == verdict and (verdict != HOLDS or part.because)
    ]
    because = "; ".join(f"{part.claim}: {part.because or verdict}" for part in reasons)
    return Finding(
        claim, "; ".join(f"{part.claim}: {part.measured}" for part in parts), verdict, because
    )


@dataclass(frozen=True)
class Claim:
    """One claim of a document."""

    id: str
    place: str
    says: str
    see: str = ""
    """A command that shows it, where no reproduction measures it."""
    note: str = ""
    """Why there is no measurement."""
    needs: str = ""
    """What the full form of its reproduction needs."""

    @property
    def reproduction(self) -> str:
        """Id of the reproduction that would measure it."""
        return self.id.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The last part of its id."""
        return self.id.rpartition("/")[2]


@dataclass(frozen=True)
class Departure:
    """Where this package does something else than the document."""

    paper: str
    here: str
    why: str


@dataclass(frozen=True)
class Document:
    """A published document: its claims, and the departures from it."""

    name: str
    title: str
    claims: tuple[Claim, ...]
    departures: tuple[Departure, ...]


@cache
def document(name: str) -> Document:
    """Read a document's claims."""
    table = tomllib.loads(files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    return Document(
        name,
        table["title"],
        tuple(Claim(**one) for one in table["claim"]),
        tuple(Departure(**one) for one in table.get("departure", ())),
    )


def claims_of(reproduction: str) -> tuple[Claim, ...]:
    """Claims that a reproduction judges."""
    return tuple(
        c for name in DOCUMENTS for c in document(name).claims if c.reproduction == reproduction
    )


@dataclass(frozen=True)
class Measurement:
    """One run of a reproduction: how, when, where, and what it found."""

    reproduction: str
    small: bool
    date: str
    machine: str
    version: str
    findings: tuple[Finding, ...]
    load: float = 0.0
    """Mean number of processes at work on the machine in the last quarter of an hour; 0 where it is
    not known.
    """

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"posse reproduce {self.reproduction}{' --small' if self.small else ''}"

    def of(self, claim: Claim) -> Finding | None:
        """What it found about a claim."""
        own = self.findings if self.reproduction == claim.reproduction else ()
        return next((finding for finding in own if finding.claim == claim.name), None)

    def write(self, path: Path) -> Path:
        """Write it as JSON."""
        path.write_text(
            json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        return path


def measurement(
    reproduction: str, small: bool, findings: Sequence[Finding], machine: str = ""
) -> Measurement:
    """Take down what a run found; every claim of the reproduction needs a finding, and each finding
    a claim.
    """
    wanted, found = (
        sorted(claim.name for claim in claims_of(reproduction)),
        sorted(f.claim for f in findings),
    )
    if found != wanted or not wanted:
        raise ValueError(
            f"{reproduction} has the claims {', '.join(wanted) or 'none'}, and judged "
            f"{', '.join(found)}."
        )
    today = datetime.now(UTC).date().isoformat()
    load = round(os.getloadavg()[2], 1) if hasattr(os, "getloadavg") else 0.0
    return Measurement(
        reproduction, small, today, machine or this_machine(), __version__, tuple(findings), load
    )


@cache
def this_machine() -> str:
    """Name the processor and the number of cores."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
            name,
        )
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}"


def read(path: Path) -> Measurement:
    """Read what a reproduction wrote."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return Measurement(
            **{**table, "findings": tuple(Finding(**one) for one in table["findings"])}
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not what a reproduction writes as claims.json: {error}"
        ) from error


def measured(folder: Path | None = None) -> dict[str, Measurement]:
    """Measurements by reproduction: those of record, and those of a folder in their place.

    A small form takes the place of no full one.
    """
    shipped = sorted(Path(str(files(__name__).joinpath("measured"))).glob("*.json"))
    own = sorted(folder.rglob("claims.json")) if folder is not None and folder.is_dir() else []
    made: dict[str, Measurement] = {}
    for one in map(read, (*shipped, *own)):
        if not (one.small and one.reproduction in made and not made[one.reproduction].small):
            made[one.reproduction] = one
    return made


@dataclass(frozen=True)
class Row:
    """A claim, with what was found about it where it was measured."""

    document: str
    claim: Claim
    finding: Finding | None
    source: Measurement | None

    @property
    def verdict(self) -> str:
        """Holds, does not hold, cannot be told, or not measured."""
        return UNMEASURED if self.finding is None else self.finding.verdict

    @property
    def because(self) -> str:
        """Why it does not hold, cannot be told, or was not measured."""
        if self.finding is not None:
            return self.finding.because
        needs = f"; it needs {self.claim.needs}" if self.claim.needs else ""
        return self.claim.note or f"the full form was not run{needs}"

    @property
    def measured(self) -> str:
        """What was measured."""
        if self.finding is None or self.source is None:
            return ""
        return f"{'small form; full form not run: ' if self.source.small else ''}{self.finding.measured}"

    @property
    def command(self) -> str:
        """What repeats it, or shows it."""
        if self.source is not None:
            return self.source.command
        return self.claim.see if self.claim.note else f"posse reproduce {self.claim.reproduction}"

    def data(self) -> dict[str, object]:
        """The row as plain values."""
        return {
            "id": self.claim.id,
            "document": self.document,
            "place": self.claim.place,
            "says": self.claim.says,
            "measured": self.measured,
            "verdict": self.verdict,
            "because": self.because,
            "command": self.command,
            "date": "" if self.source is None else self.source.date,
            "machine": "" if self.source is None else self.source.machine,
        }


def rows(patterns: Iterable[str] = (), folder: Path | None = None) -> list[Row]:
    """Every claim of every document, or those whose id begins with or matches a pattern."""
    made, wanted = measured(folder), tuple(patterns)
    every = []
    for name in DOCUMENTS:
        for claim in document(name).claims:
            source = made.get(claim.reproduction)
            finding = None if source is None else source.of(claim)
            every.append(Row(name, claim, finding, None if finding is None else source))
    chosen = [
        row
        for row in every
        if not wanted
        or any(row.claim.id.startswith(one) or fnmatchcase(row.claim.id, one) for one in wanted)
    ]
    if not chosen:
        raise ConfigError(
            f"no claim matches {', '.join(wanted)}. 'posse reproduce --claims' lists all."
        )
    return chosen


def machines_of(every: Sequence[Row]) -> tuple[list[str], str]:
    """Machines that rows were measured on, and a line that numbers them."""
    found = list(dict.fromkeys(row.source.machine for row in every if row.source is not None))
    return found, "Machines: " + "; ".join(
        f"{number}: {name}" for number, name in enumerate(found, 1)
    ) + "."


def counted(every: Sequence[Row]) -> str:
    """Say how many hold.

    >>> counted(rows(["samba/theorems"])).startswith("5 claims: ")
    True
    """
    parts = [(word, sum(row.verdict == word for row in every)) for word in (*VERDICTS, UNMEASURED)]
    words = [
        f"{number} {word if number == 1 else PLURAL.get(word, word)}"
        for word, number in parts
        if number
    ]
    return f"{len(every)} claims: " + ", ".join(words)


# The page.


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def page(folder: Path | None = None) -> str:
    """Write all rows and departures as Markdown."""
    every = rows(folder=folder)
    machines, numbered = machines_of(every)
    lines = [
        "# The papers, claim by claim",
        "",
        "Every figure, table, theorem and algorithm of the five documents, and sentences with a "
        "number, beside what "
        "was measured here. Reproductions write the rows (`make claims`); intervals are 95 %. A "
        "row's command repeats "
        "it; `posse reproduce --claims` prints the same with what you measured yourself. Tables "
        "and pictures: "
        "[what was measured](reproduced/index.md).",
        "",
        f"{counted(every)}.",
        "",
        numbered,
        "",
    ]
    for name in DOCUMENTS:
        own, said = [row for row in every if row.document == name], document(name)
        lines += [f"## {said.title}", "", f"{counted(own)}.", ""]
        lines += [
            _line(
                ("id", "where", "it says", "measured", "verdict", "command, date, machine, load")
            ),
            "|" + "---|" * 6,
        ]
        for row in own:
            source = row.source
            how = f"`{row.command}`" if row.command else ""
            how += (
                f", {source.date}, {machines.index(source.machine) + 1}"
                if source is not None
                else ""
            )
            how += f", load {source.load:g}" if source is not None and source.load else ""
            verdict = f"**{row.verdict}**" + (f": {row.because}" if row.because else "")
            lines.append(
                _line(
                    (
                        f"`{row.claim.id}`",
                        row.claim.place,
                        row.claim.says,
                        row.measured,
                        verdict,
                        how,
                    )
                )
            )
        if said.departures:
            lines += ["", "Departures:", "", _line(("the paper", "here", "why")), "|---|---|---|"]
            lines += [_line((one.paper, one.here, one.why)) for one in said.departures]
        lines.append("")
    return "\n".join(lines)


def take(folder: Path) -> list[str]:
    """Keep what reproductions below a folder found as the measurements of record; returns what was
    taken.
    """
    kept, taken = measured(), measured(folder)
    target = Path(str(files(__name__).joinpath("measured")))
    target.mkdir(exist_ok=True)
    new = [name for name, one in taken.items() if kept.get(name) != one]
    for name in new:
        taken[name].write(target / f"{name.replace('/', '-')}.json")
    return new
