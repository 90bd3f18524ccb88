"""What an experiment is: an id, a sweep that can be run at full size or small, and an analysis in words and tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from posse.experiments.output import write_markdown

Watch = Callable[[str, float], None]
"""Told what is being done and which fraction of the experiment is behind."""


@dataclass(frozen=True)
class Table:
    """A table of an analysis; every row has one text a column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table '{self.title}' has {len(self.columns)} columns, got a row of {len(row)}.")


@dataclass(frozen=True)
class Analysis:
    """What an experiment found: one sentence, tables, remarks, and the files it wrote."""

    headline: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    files: tuple[Path, ...]


Sweep = Callable[[bool, Path, Watch], Analysis]


@dataclass(frozen=True)
class Experiment:
    """One published figure: `run` repeats it and writes rows (CSV), figure (PNG, SVG) and `analysis.md`.

    The small form does the same work on a fraction of the sweep, for continuous integration.
    """

    id: str
    title: str
    reference: str
    tags: tuple[str, ...]
    sweep: Sweep

    def run(self, small: bool, out: Path, watch: Watch | None = None) -> Analysis:
        """Run it; `out` is made where it does not exist, and earlier results in it are overwritten."""
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        analysis = self.sweep(small, out, watch or _nobody)
        page = out / "analysis.md"
        write_markdown(page, self.title, self.reference, analysis, small=small)
        return replace(analysis, files=(*analysis.files, page))


def _nobody(what: str, fraction: float) -> None:
    return None
