"""Documents as pages (HTML), cards of a notebook, Markdown and JSON. Terminals: `posse.cli.screen`.

Pages are Jinja2 templates with autoescape. They fetch nothing and run no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from posse.core.errors import DataError, MissingExtraError
from posse.core.files import open_whole
from posse.results import plots, words
from posse.results.document import Document, Plot, document, sentence
from posse.results.naming import labels
from posse.results.record import Record, several
from posse.results.section import Section
from posse.results.values import JSON, plain_dict
from posse.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

    from posse.results.compare import Comparison


def report(records: Record | Iterable[Record], path: str | Path, notes: Sequence[str] = ()) -> Path:
    """Write the page of `render_report` to a file, completely or not at all; return its path."""
    text = render_report(records, notes)
    with open_whole(path) as file:
        file.write(text.encode())
    return Path(path)


def render_report(records: Record | Iterable[Record], notes: Sequence[str] = ()) -> str:
    """Return a self-contained HTML page about records; `notes` are further sentences.

    The page fetches nothing and runs no script: it can be mailed, printed and archived. Text from
    records is escaped. Needs the extra `plot`.

    Raises:
        DataError: There is no record.
    """
    chosen = several(records)
    if not chosen:
        raise DataError("a report needs at least one record.", rule="results.records.none")
    return render_html(document(chosen, notes=notes))


def render_html(content: Document) -> str:
    """Return the page of a document."""
    kinds: dict[str, None] = {}
    for record in content.records:
        kinds |= dict.fromkeys(record.role_seconds)
    colours = list(plots.role_colours(content.records, kinds).values())
    figures = []
    for i, plot in enumerate(content.plots):
        svg = plots.inline(_draw(plot), prefix=f"f{i}", title=plot.caption, colours=colours)
        figures.append((plot.caption, svg))
    page = _environment().get_template("page.html")
    return page.render(
        document=content,
        bars=list(_bars(content)),
        figures=figures,
        dark_style=plots.dark_style(colours),
        version=__version__,
    )


def render_markdown(content: Document) -> str:
    """Return a document as Markdown, without figures."""
    return _environment().get_template("document.md").render(document=content)


def render_json(content: Document) -> dict[str, JSON]:
    """Return a document as plain values."""
    values = {
        "title": content.title,
        "headline": content.headline,
        "sentences": content.sentences,
        "warnings": content.warnings,
        "bars": [asdict(bar) for bar in content.picture.bars] if content.picture else [],
        "table": content.table.plain(),
        "protection": [{"level": each.level, **dict(each.lines)} for each in content.protection],
        "notes": content.notes,
        "details": [
            {**each.plain(), "label": each.label, "items": each.items} for each in content.details
        ],
    }
    return plain_dict(values, "document")


def card(record: Record) -> str:
    """Return a record as a notebook shows it; without matplotlib there is no curve."""
    (label,) = labels([record])
    content = document(record)
    protection = content.protection[0].level
    leaks = Section(f"What is not protected ({len(record.leaks)})", items=record.leaks)
    return fragment(
        f"{label} · {record.id}",
        [
            content.title,
            sentence(record, label),
            *(f"Warning: {each}" for each in content.warnings),
            f"Protection: {protection}",
        ],
        [replace(content.table, title="")],
        folded=[leaks] if record.leaks else [],
        figures=_curves([record], [label], f"posse-{record.id}"),
    )


def comparison_card(compared: Comparison) -> str:
    """Return a comparison as a notebook shows it: the answer, the table and curves."""
    content = document(compared.records)
    names = [row.label for row in compared.rows]
    ids = "-".join(record.id for record in compared.records)
    return fragment(
        content.headline,
        content.sentences,
        [content.table],
        folded=[Section(words.count(len(compared.notes), "note"), items=compared.notes)],
        figures=_curves(compared.records, names, f"posse-{ids}"),
    )


def fragment(
    headline: str,
    sentences: Sequence[str] = (),
    sections: Sequence[Section] = (),
    *,
    folded: Sequence[Section] = (),
    figures: Sequence[str] = (),
) -> str:
    """Return a piece of HTML for a notebook. Its style does not change the notebook's own.

    Args:
        headline: The answer.
        sentences: Paragraphs below it.
        sections: Tables that are open. Their notes are folded.
        folded: Sections that are folded.
        figures: SVG elements.
    """
    return (
        _environment()
        .get_template("fragment.html")
        .render(
            headline=headline,
            sentences=sentences,
            sections=sections,
            folded=folded,
            figures=figures,
        )
    )


def _curves(records: Sequence[Record], names: Sequence[str], prefix: str) -> list[str]:
    """Return the reward curves as SVG; an empty list without curves or matplotlib."""
    if not records or not all(record.runs and record.steps.size for record in records):
        return []
    with suppress(MissingExtraError):
        figure = plots.reward_curves(records, names)
        title = f"Cumulative {records[0].words.reward} of {'; '.join(names)}"
        return [plots.inline(figure, prefix=prefix, title=title)]
    return []


def _draw(plot: Plot) -> plots.Figure:
    if plot.kind == "secure_against_plain":
        secure, plain = plot.records
        return plots.secure_against_plain(secure, plain, labels=plot.labels)
    if plot.kind == "shown_curves":
        return plots.shown_curves(plot.records, plot.labels, name=plot.curve)
    figure: plots.Figure = getattr(plots, plot.kind)(plot.records, plot.labels)
    return figure


def _bars(content: Document) -> Iterator[tuple[str, str, str, str, bool]]:
    """Yield label, value, gain, width in percent and whether it is a yardstick, for each bar.

    All bars have one scale, from 0, or from the smallest value if it is below 0.
    """
    if content.picture is None:
        return
    values = [bar.value for bar in content.picture.bars]
    lowest = min(0.0, *values)
    scale = max(values) - lowest or 1.0
    for bar in content.picture.bars:
        width = f"{100 * (bar.value - lowest) / scale:.1f}"
        yield bar.label, bar.text, bar.gain, width, bar.yardstick


@cache
def _environment() -> Environment:
    # Imported late: a command that prints to a terminal renders no template.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def escapes(name: str | None) -> bool:
        return name is None or not name.endswith(".md")

    loader = PackageLoader("posse.results")
    environment = Environment(
        loader=loader,
        autoescape=escapes,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = _markdown_cell
    return environment


def _markdown_cell(text: str) -> str:
    """Return a text as the cell of a Markdown table.

    >>> _markdown_cell("a|b <script>")
    'a\\\\|b &lt;script>'
    """
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
