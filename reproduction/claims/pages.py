"""The pages of the documentation about claims, and the measurements of record that they show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from reproduction import claims
from reproduction.claims import Document, Measurement, Row
from reproduction.kit import markdown_row

INTRODUCTION = """\
This page compares each figure, table, theorem and algorithm of the five documents with our own
measurements. It also covers sentences that contain a number.

| verdict | meaning |
|---|---|
| holds | the measurement agrees with the claim |
| does not hold | the measurement contradicts the claim |
| open | the measurement does not decide; the reason follows |

- Intervals are 95 %. *± x* is half the width of an interval; *[a, b]* are its ends.
- FRR is the regret of agents divided by their regret alone, and so is a ratio in the section on
  combinatorial bandits that names no other base.
- *Paper noise* is the noise that a paper prints; *tight noise* is the least noise that Posse needs.
- The first two parts of an id name the reproduction. This command, in a checkout, repeats one row:

```sh
python -m reproduction run samba/theorems
```

`python -m reproduction claims` prints this page with your own results. `make claims` writes it.
Tables and figures: [what was measured](reproduced/index.md). Dates and machines:
[below](#dates-and-machines).
"""


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
    lines = ["# The papers, claim by claim", "", INTRODUCTION]
    lines += [f"{claims.counted(every)}.", ""]
    for name in claims.DOCUMENTS:
        rows = [row for row in every if row.document == name]
        lines += [*_document_lines(claims.document(name), rows), ""]
    return "\n".join([*lines, *_source_lines(every), ""])


def _document_lines(document: Document, rows: Sequence[Row]) -> list[str]:
    """Return the section of one document."""
    columns = ("in the paper", "the paper states", "measured here", "verdict")
    lines = [f"## {document.title}", "", f"{claims.counted(rows)}.", ""]
    lines += [markdown_row(columns), "|" + "---|" * len(columns)]
    for row in rows:
        claim = row.claim
        place = f"{claim.place}<br>`{claim.id}`"
        label = claims.LABELS.get(row.verdict, row.verdict)
        verdict = f"**{label}**" + (f": {row.because}" if row.because else "")
        cells = (place, claim.says, _part_per_line(row.measured), _part_per_line(verdict))
        lines.append(markdown_row(cells))
    if document.departures:
        lines += ["", "Differences between the paper and Posse:", ""]
        lines += [markdown_row(("the paper", "Posse", "reason")), "|---|---|---|"]
        lines += [markdown_row((one.paper, one.here, one.why)) for one in document.departures]
    return lines


def _part_per_line(cell: str) -> str:
    """Start a new line after each semicolon outside parentheses."""
    return re.sub(r"; (?![^(]*\))", "<br>", cell)


def _source_lines(every: Sequence[Row]) -> list[str]:
    """Return when and where each reproduction ran."""
    machines, numbered = claims.machines_of(every)
    columns = ("reproduction", "date", "machine", "load")
    lines = ["## Dates and machines", "", numbered, ""]
    lines += [
        "*Load* is the mean number of running processes in the 15 minutes before the end.",
        "",
    ]
    lines += [markdown_row(columns), "|" + "---|" * len(columns)]
    sources = {row.source.reproduction: row.source for row in every if row.source is not None}
    for name, source in sources.items():
        machine = str(machines.index(source.machine) + 1)
        load = f"{source.load:g}" if source.load else "not recorded"
        lines.append(markdown_row((f"`{name}`", source.date, machine, load)))
    return lines


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
