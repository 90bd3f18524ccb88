"""The claims of the published documents, compared with what was measured here.

A document is a TOML file of this folder: its claims (figures, tables, theorems, algorithms,
sentences with a number) and the departures of Posse from it. A claim's id is
`system/reproduction/name`: the reproduction of that id writes its verdict to `claims.json` in the
folder of its figures. The measurements of record are in `measured`. A claim that was not measured
has the reason.

>>> rows(["samba/theorems/aes"])[0].claim.place
'Theorem 4'
"""

from __future__ import annotations

import json
import os
import platform
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from posse.core.errors import ConfigError
from posse.version import __version__

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot be told"
PLURAL = {HOLDS: "hold", FAILS: "do not hold"}
LABELS = {UNKNOWN: "open"}
"""How pages and tables call a verdict, if not by its name in the files."""
UNMEASURED = "not measured"
VERDICTS = (HOLDS, FAILS, UNKNOWN)
FOLDER = Path(__file__).parent
MEASURED = FOLDER / "measured"
"""Measurements of record, a file per reproduction."""
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
    verdict = next(one for one in (FAILS, UNKNOWN, HOLDS) if one in verdicts)
    measured = "; ".join(f"{part.claim}: {part.measured}" for part in parts)
    reasons = []
    for part in parts:
        # A part that holds needs no reason, and may have one.
        if part.verdict == verdict and (part.because or verdict != HOLDS):
            reasons.append(f"{part.claim}: {part.because}" if part.because else part.claim)
    return Finding(claim, measured, verdict, "; ".join(reasons))


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
    """Where Posse does something else than the document."""

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
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return Document(
        name,
        table["title"],
        tuple(Claim(**one) for one in table["claim"]),
        tuple(Departure(**one) for one in table.get("departure", ())),
    )


def claims_of(reproduction: str) -> tuple[Claim, ...]:
    """Claims that a reproduction judges."""
    every = (claim for name in DOCUMENTS for claim in document(name).claims)
    return tuple(claim for claim in every if claim.reproduction == reproduction)


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
    """Mean number of running processes in the last quarter of an hour; 0 where it is unknown."""

    @property
    def command(self) -> str:
        """The command that repeats it."""
        return command_of(self.reproduction) + (" --small" if self.small else "")

    def of(self, claim: Claim) -> Finding | None:
        """Return the finding about a claim of this reproduction."""
        return next((finding for finding in self.findings if finding.claim == claim.name), None)

    def write(self, path: Path) -> Path:
        """Write it as JSON."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")
        return path


def command_of(reproduction: str) -> str:
    """Return the command that runs a reproduction."""
    return f"python -m reproduction run {reproduction}"


def measurement(
    reproduction: str, small: bool, findings: Sequence[Finding], machine: str = ""
) -> Measurement:
    """Record what a run measured. Every claim needs a finding, and every finding a claim."""
    claimed = sorted(claim.name for claim in claims_of(reproduction))
    judged = sorted(finding.claim for finding in findings)
    if judged != claimed or not claimed:
        raise ValueError(
            f"{reproduction} has the claims {', '.join(claimed) or 'none'}, and judged "
            f"{', '.join(judged)}."
        )
    today = datetime.now(UTC).date().isoformat()
    load = round(os.getloadavg()[2], 1) if hasattr(os, "getloadavg") else 0.0
    return Measurement(
        reproduction, small, today, machine or this_machine(), __version__, tuple(findings), load
    )


@cache
def this_machine() -> str:
    """Name the processor and the number of cores."""
    processor = platform.processor() or platform.machine()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    return f"{processor}, {os.cpu_count()} cores, Python {platform.python_version()}"


def read(path: Path) -> Measurement:
    """Read what a reproduction wrote."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        table["findings"] = tuple(Finding(**finding) for finding in table["findings"])
        return Measurement(**table)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not what a reproduction writes as claims.json: {error}"
        ) from error


def measured(folder: Path | None = None) -> dict[str, Measurement]:
    """Return measurements by reproduction: those of record, replaced by those of a folder.

    A small form does not replace a full one.
    """
    paths = sorted(MEASURED.glob("*.json"))
    if folder is not None and folder.is_dir():
        paths += sorted(folder.rglob("claims.json"))
    latest: dict[str, Measurement] = {}
    for path in paths:
        run = read(path)
        earlier = latest.get(run.reproduction)
        if earlier is None or earlier.small or not run.small:
            latest[run.reproduction] = run
    return latest


@dataclass(frozen=True)
class Row:
    """A claim, and the finding about it where it was measured."""

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
        if self.source.small:
            return f"small form; full form not run: {self.finding.measured}"
        return self.finding.measured

    @property
    def command(self) -> str:
        """The command that repeats it, or shows it."""
        if self.source is not None:
            return self.source.command
        if self.claim.note:
            return self.claim.see
        return command_of(self.claim.reproduction)

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
    """Return every claim of every document, or those whose id begins with or matches a pattern."""
    sources = measured(folder)
    chosen = tuple(patterns)
    every = []
    for name in DOCUMENTS:
        for claim in document(name).claims:
            if chosen and not _matches(claim.id, chosen):
                continue
            source = sources.get(claim.reproduction)
            finding = None if source is None else source.of(claim)
            every.append(Row(name, claim, finding, None if finding is None else source))
    if not every:
        raise ConfigError(
            f"no claim matches {', '.join(chosen)}. 'python -m reproduction claims' lists all."
        )
    return every


def _matches(id: str, patterns: Iterable[str]) -> bool:
    """Whether an id begins with one of the patterns, or matches it."""
    return any(id.startswith(pattern) or fnmatchcase(id, pattern) for pattern in patterns)


def machines_of(every: Sequence[Row]) -> tuple[list[str], str]:
    """Return the machines that rows were measured on, and a line that numbers them."""
    machines = list(dict.fromkeys(row.source.machine for row in every if row.source is not None))
    numbered = [f"{number}: {name}" for number, name in enumerate(machines, 1)]
    return machines, f"Machines: {'; '.join(numbered)}."


def counted(every: Sequence[Row]) -> str:
    """Return how many claims hold, fail, are open, or were not measured.

    >>> counted(rows(["samba/theorems"])).startswith("5 claims: ")
    True
    """
    counts = Counter(row.verdict for row in every)
    parts = []
    for verdict in (*VERDICTS, UNMEASURED):
        number = counts[verdict]
        if number:
            label = LABELS.get(verdict, verdict)
            parts.append(f"{number} {label if number == 1 else PLURAL.get(verdict, label)}")
    return f"{len(every)} claims: " + ", ".join(parts)
