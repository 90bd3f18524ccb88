"""The small form of an experiment, run once, with a check of what every experiment promises."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable
from functools import cache
from pathlib import Path

from reproduction import EXPERIMENTS, Analysis, Table, claims

Ran = Callable[[str], tuple[Analysis, list[dict[str, str]]]]
"""Gives the analysis and the raw rows of a figure, by its name."""


def once(system: str, folder: Callable[[str], Path]) -> Ran:
    """Run each figure of a system at most once, each in a folder of its own."""
    return cache(lambda name: run(system, name, folder(name)))


def run(system: str, name: str, out: Path) -> tuple[Analysis, list[dict[str, str]]]:
    """Run the small form, check what all promise, and return the analysis and the raw rows."""
    heard: list[float] = []
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        analysis = EXPERIMENTS[f"{system}/{name}"].run(
            True, out, lambda what, fraction: heard.append(fraction)
        )
    assert said.getvalue() == ""
    assert heard == sorted(heard)
    assert (heard[0], heard[-1]) == (0.0, 1.0)
    files = {f"{name}.csv", f"{name}.png", f"{name}.svg", "analysis.md", "claims.json"}
    assert {file.name for file in analysis.files} == {file.name for file in out.iterdir()} == files
    assert (out / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (out / f"{name}.svg").read_text()
    page = (out / "analysis.md").read_text()
    assert "Small form" in page
    assert all(words in page for words in (analysis.headline, *analysis.notes))
    made = claims.read(out / "claims.json")
    assert made.small
    assert {finding.claim for finding in made.findings} == {
        one.name for one in claims.claims_of(f"{system}/{name}")
    }
    for table in analysis.tables:
        assert table.title in page
        assert table.columns
        # The small form runs no secure budget of Samba's figures in full, so that table is empty
        # there.
        assert table.rows or table.title.startswith("Full-size runs")
    with (out / f"{name}.csv").open() as stream:
        return analysis, list(csv.DictReader(stream))


def column(table: Table, name: str) -> list[str]:
    """Cells of one column."""
    place = table.columns.index(name)
    return [row[place] for row in table.rows]


def table_of(analysis: Analysis, title: str) -> Table:
    """The first table whose title has these words."""
    return next(table for table in analysis.tables if title in table.title)


def ids(system: str) -> list[str]:
    """Ids of a system's experiments."""
    return [id for id in EXPERIMENTS if id.startswith(f"{system}/")]
