"""What every published figure is made with: experiments and their files, jobs on all cores, means,
pictures.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse._executors import finished
from posse.core.check import require
from posse.results import plots
from posse.results.plots import DASHES, INK, SERIES
from posse.results.statistics import t_quantile
from reproduction import claims
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding

Floats = NDArray[np.float64]
Row = Mapping[str, str | int | float]
Watch = Callable[[str, float], None]
"""Called with what is being done and the fraction of the experiment that is done."""
Job = TypeVar("Job")
Result = TypeVar("Result")


# Experiments, and what they write.


@dataclass(frozen=True)
class Table:
    """A table of an analysis; every row has one text a column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table '{self.title}' has {len(self.columns)} columns, got a row of "
                    f"{len(row)}."
                )

    def markdown(self) -> list[str]:
        """The table as lines of Markdown."""

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

        return [
            line(self.columns),
            "|" + " --- |" * len(self.columns),
            *(line(row) for row in self.rows),
        ]


@dataclass(frozen=True)
class Analysis:
    """What an experiment shows: one sentence, tables, remarks, the files it wrote, and a verdict on
    every claim.
    """

    headline: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    files: tuple[Path, ...]
    findings: tuple[Finding, ...] = ()
    machine: str = ""
    """What it was computed on, where that is not the machine that writes it."""


Sweep = Callable[[bool, Path, Watch], Analysis]


@dataclass(frozen=True)
class Experiment:
    """One published figure: `run` repeats it and writes rows (CSV), figure (PNG, SVG),
    `analysis.md` and `claims.json`.

    The small form does the same work on a fraction of the sweep, for continuous integration.
    """

    id: str
    title: str
    reference: str
    tags: tuple[str, ...]
    sweep: Sweep

    def run(self, small: bool, out: Path, watch: Watch | None = None) -> Analysis:
        """Run it; `out` is made where it does not exist, and earlier results in it are
        overwritten.
        """
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        claims.claims_of(
            self.id
        )  # read now: a file that changes meanwhile must not cost a long run its page
        analysis = self.sweep(small, out, watch or (lambda what, fraction: None))
        page = out / "analysis.md"
        page.write_text("\n".join(self._page(analysis, small)), encoding="utf-8")
        made = claims.measurement(self.id, small, analysis.findings, analysis.machine).write(
            out / "claims.json"
        )
        return replace(analysis, files=(*analysis.files, page, made))

    def _page(self, analysis: Analysis, small: bool) -> list[str]:
        """The analysis for a reader who has only the folder."""
        lines = [f"# {self.title}", "", f"Reference: {self.reference}", ""]
        if small:
            lines += ["Small form: a fraction of the sweep, for checking that everything runs.", ""]
        lines += [f"**{analysis.headline}**", ""]
        lines += [f"* {note}" for note in analysis.notes]
        lines += ["", "## Claims", "", *claim_table(self.id, analysis.findings).markdown()]
        for table in analysis.tables:
            lines += ["", f"## {table.title}", "", *table.markdown()]
        return [*lines, "", "Files: " + ", ".join(f"`{file.name}`" for file in analysis.files), ""]


def claim_table(reproduction: str, findings: Sequence[Finding]) -> Table:
    """What the paper says, what was found, and the verdict."""
    said = {claim.name: claim for claim in claims.claims_of(reproduction)}
    rows = tuple(
        (f"{said[one.claim].place}: {said[one.claim].says}", one.measured, one.verdict, one.because)
        for one in findings
    )
    return Table("Claims", ("it says", "measured", "verdict", "because"), rows)


@dataclass(frozen=True)
class Paper:
    """A paper whose figures are repeated: the name of its system, and where it was published."""

    system: str
    reference: str

    def experiment(
        self, name: str, title: str, tags: Sequence[str], sweep: Sweep, place: str = ""
    ) -> Experiment:
        """Declare the experiment of one figure; `place` is where in the paper it stands."""
        reference = f"{self.reference}, {place}" if place else self.reference
        return Experiment(f"{self.system}/{name}", title, reference, (self.system, *tags), sweep)


def write_files(
    out: Path, name: str, rows: Sequence[Row], figure: plots.Figure
) -> tuple[Path, Path, Path]:
    """Write rows and figure under one name."""
    return (write_rows(out / f"{name}.csv", rows), *write_figure(figure, out, name))


def write_rows(path: Path, rows: Sequence[Row]) -> Path:
    """Write rows as CSV, numbers in full; every row has the columns of the first."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_figure(figure: plots.Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write a figure as PNG on white, and as SVG without background for light and dark pages."""
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    with require("matplotlib", extra="plot").rc_context(
        {"svg.fonttype": "none"}
    ):  # text stays text: small files
        figure.savefig(svg)
    figure.set_layout_engine("none")  # everything has its place: arranging takes as long as drawing
    figure.savefig(png, dpi=150, facecolor="white", transparent=False)
    return png, svg


# Jobs.


def progress(
    items: Sequence[Job],
    words: Callable[[Job], str],
    watch: Watch,
    begin: float = 0.0,
    end: float = 1.0,
) -> Iterator[Job]:
    """Give one item after the other, and say before each what comes; `watch` gets fractions from
    `begin` to `end`.
    """
    for number, item in enumerate(items):
        watch(words(item), begin + (end - begin) * number / len(items))
        yield item


def run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job], Result],
    words: Callable[[Job], str],
    watch: Watch,
    begin: float = 0.0,
    end: float = 1.0,
    weight: Callable[[Job], float] = lambda job: 1.0,
) -> list[Result]:
    """Do jobs, a thread a core (compiled code runs outside the interpreter's lock); results come in
    their order.

    `watch` gets fractions from `begin` to `end`. An interruption leaves the jobs behind that are
    running.

    >>> run_jobs([1, 2, 3], lambda job: job * job, str, lambda what, fraction: None)
    [1, 4, 9]
    """
    results: dict[int, Result] = {}
    total, done = sum(map(weight, jobs)), 0.0
    watch(words(jobs[0]), begin)
    pool, wait = ThreadPoolExecutor(os.cpu_count()), True
    try:
        with closing(finished(pool, work, jobs)) as ended:
            for number, future in ended:
                results[number] = future.result()
                done += weight(jobs[number])
                watch(words(jobs[number]), min(end, begin + (end - begin) * done / total))
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        pool.shutdown(wait=wait)
    return [results[number] for number in range(len(jobs))]


def seeds_of(runs: int) -> tuple[int, ...]:
    """World seeds of so many runs: 1, 2, ..."""
    return tuple(range(1, runs + 1))


# Means over runs, and exponents of growth.

LEVEL = 0.95


@dataclass(frozen=True)
class Mean:
    """A mean over runs, and half the width of its 95 % t interval; NaN for one run."""

    mean: float
    half: float
    runs: int

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half

    def text(self, places: int = 4, scale: float = 1.0, *, sign: bool = False) -> str:
        """Write it.

        >>> (
        ...     mean_of([0.81, 0.83, 0.82]).text(),
        ...     mean_of([0.5]).text(2),
        ...     mean_of([0.02, 0.02]).text(1, 100, sign=True),
        ... )
        ('0.8200 ± 0.0248', '0.50', '+2.0 ± 0.0')
        """
        mean = f"{scale * self.mean:{'+' if sign else ''}.{places}f}"
        return mean if math.isnan(self.half) else f"{mean} ± {scale * self.half:.{places}f}"


def mean_of(values: ArrayLike) -> Mean:
    """Average numbers, one a run."""
    x = np.asarray(values, np.float64)
    if len(x) < 2:
        return Mean(float(x.mean()), math.nan, len(x))
    error = float(x.std(ddof=1)) / math.sqrt(len(x))
    return Mean(float(x.mean()), t_quantile(LEVEL, len(x) - 1) * error, len(x))


def verdict(difference: Mean, claim: str, against: str) -> str:
    """Say what an interval of a difference says about a claim that it is above 0.

    >>> (
    ...     verdict(Mean(0.02, 0.01, 5), "helps", "harms"),
    ...     verdict(Mean(0.0, 0.01, 5), "helps", "harms"),
    ... )
    ('helps', 'no difference seen')
    """
    if difference.low > 0:
        return claim
    return against if difference.high < 0 else "no difference seen"


def judged(claim: str, difference: Mean, text: str = "") -> Finding:
    """Judge a claim that a difference is above 0; where the interval reaches 0, say how many runs
    would tell.

    >>> judged("more", Mean(0.02, 0.01, 5)).verdict, judged("more", Mean(0.01, 0.02, 5)).because
    ('holds', 'the interval holds 0; about 20 runs would tell a difference of that size')
    """
    words = text or difference.text(sign=True)
    if difference.low > 0 or difference.high < 0:
        return Finding(claim, words, HOLDS if difference.low > 0 else FAILS)
    return Finding(claim, words, UNKNOWN, enough(difference))


def enough(difference: Mean) -> str:
    """Say how many runs would tell a difference of the measured size from 0."""
    if math.isnan(difference.half):
        return "one run has no interval"
    if not difference.mean:
        return "the interval holds 0, and the difference is 0"
    runs = math.ceil(difference.runs * (difference.half / difference.mean) ** 2 - 1e-9)
    return f"the interval holds 0; about {runs:,} runs would tell a difference of that size"


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the e of y ~ x^e that fits best: the slope of log y over log x.

    >>> round(exponent([10, 20, 40], [3.0, 12.0, 48.0]), 9)
    2.0
    """
    return float(
        np.polyfit(np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64)), 1)[0]
    )


def growth(x: Sequence[float], y: Sequence[float]) -> Mean:
    """Exponent e of y ~ x^e with the 95 % interval of a straight line through the logarithms; NaN
    for two points.

    >>> growth([1, 2, 4, 8], [1.0, 2.0, 4.0, 8.0]).text(2)
    '1.00 ± 0.00'
    """
    a, b = np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64))
    slope, start = np.polyfit(a, b, 1)
    free = len(a) - 2
    if free < 1:
        return Mean(float(slope), math.nan, len(a))
    rest = b - slope * a - start
    error = math.sqrt(float(rest @ rest) / free / float(((a - a.mean()) ** 2).sum()))
    return Mean(float(slope), t_quantile(LEVEL, free) * error, len(a))


def of_family(difference: Mean, tests: int) -> Mean:
    """Widen an interval so that all of several together hold with 95 % (Bonferroni)."""
    if difference.runs < 2:
        return difference
    wider = t_quantile(1 - (1 - LEVEL) / tests, difference.runs - 1) / t_quantile(
        LEVEL, difference.runs - 1
    )
    return replace(difference, half=wider * difference.half)


def span(values: Sequence[float], form: str = ".2g") -> str:
    """Smallest to largest, for a sentence.

    >>> span([3.14159, 2.71828])
    '2.7 to 3.1'
    """
    return f"{min(values):{form}} to {max(values):{form}}"


# Pictures: one colour and marker a line, bands, and a legend above the panels.

MARKERS = "os^Dvp<>"


def look(number: int) -> dict[str, Any]:
    """Colour, dashes and marker of a line, by its number."""
    return {
        "color": SERIES[number % len(SERIES)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def panels(
    columns: int,
    titles: Sequence[str] = (),
    height: float = 4.2,
    width: float | None = None,
    **more: Any,
) -> tuple[plots.Figure, list[plots.Axes]]:
    """Make a figure with panels side by side."""
    figure = plots.blank(height, width=width or (7.2 if columns == 1 else 9.0))
    axes = list(figure.subplots(1, columns, squeeze=False, **more)[0])
    for ax, words in zip(axes, titles, strict=False):
        title(ax, words)
    return figure, axes


def title(ax: plots.Axes, words: str) -> None:
    """Put a title over a panel."""
    ax.set_title(words, loc="left", color=INK, fontsize=9.5)


def line(
    ax: plots.Axes,
    x: ArrayLike,
    y: ArrayLike,
    number: int,
    label: str,
    *,
    marker: bool = True,
    **more: Any,
) -> None:
    """Draw a line."""
    style = look(number) | ({} if marker else {"marker": ""}) | more
    ax.plot(np.asarray(x), np.asarray(y), label=label, linewidth=1.6, markersize=4.5, **style)


def band(ax: plots.Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, number: int) -> None:
    """Fill between two lines in the colour of a line."""
    ax.fill_between(np.asarray(x), low, high, color=look(number)["color"], alpha=0.15, linewidth=0)


def logarithmic(ax: plots.Axes, values: Sequence[float]) -> None:
    """Make the y axis logarithmic, with few ticks that read as plain numbers."""
    low, high = 0.8 * min(values), 1.25 * max(values)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if high / low > 20 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    ticks = [m * 10.0**k for k in powers for m in steps if low <= m * 10.0**k <= high]
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.set_yticks(ticks, [f"{tick:,.3g}" if tick < 1000 else f"{tick:,.0f}" for tick in ticks])
    ax.set_yticks([], minor=True)


def legend(
    figure: plots.Figure,
    ax: plots.Axes | None,
    columns: int = 3,
    note: str = "",
    extra: Sequence[Any] = (),
    length: float = 2.6,
) -> None:
    """Put the legend of a panel, with extra entries, above all panels where it covers no curve; a
    note goes below.
    """
    handles = [*(ax.get_legend_handles_labels()[0] if ax else ()), *extra]
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        labelcolor=INK,
        fontsize=8.5,
        handlelength=length,
        columnspacing=1.4,
    )
    if note:
        footnote(figure, note)


def footnote(figure: plots.Figure, note: str) -> None:
    """Write below all panels."""
    figure.supxlabel(note, x=0.01, ha="left", color=INK, fontsize=8.5)


def sign(label: str, **style: Any) -> Any:
    """Make an entry of a legend that belongs to no line."""
    return require("matplotlib.lines", extra="plot").Line2D([], [], label=label, **style)
