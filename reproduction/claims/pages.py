"""The pages of the documentation about claims, and the measurements of record that they show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from reproduction import claims
from reproduction.claims import Document, Measurement, Row
from reproduction.kit import markdown_row

INTRODUCTION = (
    "Every figure, table, theorem and algorithm of the five documents, and sentences with a number, "
    "compared with what was measured here. Reproductions write the rows (`make claims`); intervals are "
    "95 %. A row's command repeats it in a checkout; `python -m reproduction claims` prints the "
    "same with what you measured yourself. Tables and pictures: "
    "[what was measured](reproduced/index.md)."
)


def write(folder: Path, page: Path) -> list[str]:
    """Keep what the reproductions below a folder measured, and write the pages.

    `page` gets the claims, and the folder `reproduced` next to it the tables and pictures of the
    full forms. Returns the reproductions whose measurement of record changed.
    """
    taken = keep_measurements(folder)
    page.write_text(claims_page(), encoding="utf-8")
    keep_figures(folder, page.parent / "reproduced")
    return taken


def keep_measurements(folder: Path) -> list[str]:
    """Make what reproductions below a folder measured the measurements of record."""
    of_record = claims.measured()
    changed = []
    for name, measurement in claims.measured(folder).items():
        if of_record.get(name) != measurement:
            measurement.write(claims.MEASURED / f"{name.replace('/', '-')}.json")
            changed.append(name)
    return changed


def claims_page() -> str:
    """Return all claims and departures as Markdown."""
    every = claims.rows()
    machines, numbered = claims.machines_of(every)
    lines = ["# The papers, claim by claim", "", INTRODUCTION, ""]
    lines += [f"{claims.counted(every)}.", "", numbered, ""]
    for name in claims.DOCUMENTS:
        rows = [row for row in every if row.document == name]
        lines += [*_document_lines(claims.document(name), rows, machines), ""]
    return "\n".join(lines)


def _document_lines(document: Document, rows: Sequence[Row], machines: list[str]) -> list[str]:
    """Return the section of one document."""
    columns = ("id", "where", "it says", "measured", "verdict", "command, date, machine, load")
    lines = [f"## {document.title}", "", f"{claims.counted(rows)}.", ""]
    lines += [markdown_row(columns), "|" + "---|" * len(columns)]
    for row in rows:
        claim = row.claim
        verdict = f"**{row.verdict}**" + (f": {row.because}" if row.because else "")
        how = _how_measured(row, machines)
        cells = (f"`{claim.id}`", claim.place, claim.says, row.measured, verdict, how)
        lines.append(markdown_row(cells))
    if document.departures:
        lines += [
            "",
            "Departures:",
            "",
            markdown_row(("the paper", "here", "why")),
            "|---|---|---|",
        ]
        lines += [markdown_row((one.paper, one.here, one.why)) for one in document.departures]
    return lines


def _how_measured(row: Row, machines: list[str]) -> str:
    """Return command, date, machine and load of a row."""
    parts = []
    if row.command:
        parts.append(f"`{row.command}`")
    if row.source is not None:
        parts += [row.source.date, str(machines.index(row.source.machine) + 1)]
        if row.source.load:
            parts.append(f"load {row.source.load:g}")
    return ", ".join(parts)


def keep_figures(folder: Path, reproduced: Path) -> None:
    """Copy tables and pictures of the full forms below a folder, and list all that are kept."""
    reproduced.mkdir(exist_ok=True)
    for path in sorted(folder.rglob("claims.json")):
        measurement = claims.read(path)
        if not measurement.small:
            _keep_figure(path.parent, measurement, reproduced)
    lines = [
        "# What was measured",
        "",
        "Tables and pictures of the full forms, with command, date and machine.",
        "",
    ]
    for path in sorted(reproduced.glob("*.md")):
        if path.name != "index.md":
            title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
            lines.append(f"- [{title}]({path.name})")
    (reproduced / "index.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def _keep_figure(folder: Path, measurement: Measurement, reproduced: Path) -> None:
    """Copy the page of one reproduction, with its pictures."""
    name = measurement.reproduction.replace("/", "-")
    analysis = (folder / "analysis.md").read_text(encoding="utf-8").partition("\nFiles: ")[0]
    title, _, rest = analysis.partition("\n")
    lines = [title, "", f"`{measurement.command}`, {measurement.date}, {measurement.machine}."]
    for number, picture in enumerate(sorted(folder.glob("*.svg"))):
        copy = reproduced / f"{name}{f'-{number + 1}' if number else ''}.svg"
        copy.write_text(compact_svg(picture.read_text(encoding="utf-8")), encoding="utf-8")
        lines += ["", f"![{title.lstrip('# ')}]({copy.name})"]
    text = "\n".join([*lines, rest.rstrip(), ""])
    (reproduced / f"{name}.md").write_text(text, encoding="utf-8")


def compact_svg(svg: str) -> str:
    """Write the numbers of paths with one decimal and nothing between elements: a third of the
    size.
    """

    def round_number(number: re.Match[str]) -> str:
        return f"{float(number[0]):.1f}".removesuffix(".0")

    def compact_path(path: re.Match[str]) -> str:
        numbers = re.sub(r"-?\d+\.\d+", round_number, path[1])
        commands = re.sub(r"\s*([A-Za-z])\s*", r"\1", numbers)
        return f' d="{" ".join(commands.split())}'

    svg = re.sub(r' d="([^"]+)', compact_path, svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return re.sub(r"\s*\n\s*", "\n", svg)
