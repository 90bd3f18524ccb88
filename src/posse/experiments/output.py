"""Files of an experiment: raw rows, figures and the analysis as Markdown."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posse.experiments.base import Analysis, Table

Row = Mapping[str, str | int | float]


def write_rows(path: Path, rows: Sequence[Row]) -> Path:
    """Write rows as CSV, numbers in full; every row has the columns of the first."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_figure(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write a figure as PNG on white, and as SVG without background for light and dark pages."""
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    figure.savefig(svg)
    figure.savefig(png, dpi=150, facecolor="white", transparent=False)
    return png, svg


def write_markdown(path: Path, title: str, reference: str, analysis: Analysis, *, small: bool) -> None:
    """Write the analysis for a reader who has only the folder."""
    lines = [f"# {title}", "", f"Reference: {reference}", ""]
    if small:
        lines += ["Small form: a fraction of the sweep, for checking that everything runs.", ""]
    lines += [f"**{analysis.headline}**", ""]
    lines += [f"* {note}" for note in analysis.notes]
    for table in analysis.tables:
        lines += ["", f"## {table.title}", "", *_markdown(table)]
    lines += ["", "Files: " + ", ".join(f"`{file.name}`" for file in analysis.files), ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def _markdown(table: Table) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(table.columns), "|" + " --- |" * len(table.columns), *(line(row) for row in table.rows)]
