"""What every figure is computed with: experiments and their files, jobs on all cores, means of
runs, and drawings in one style.

A figure's module has a function `sweep(small, out, watch)`, which computes rows, writes them with a
figure and returns an `Analysis`. Its folder's `__init__.py` or the module itself declares it as an
`Experiment`.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core.check import require
from posse.core.statistics import t_quantile
from posse.results import plots
from posse.results.plots import DASHES, INK, SERIES
from reproduction import claims
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding

Floats = NDArray[np.float64]
Row = Mapping[str, str | int | float]
Watch = Callable[[str, float], None]
"""Called with what is being done and the fraction of the experiment that is done."""
Job = TypeVar("Job")
Result = TypeVar("Result")


# Experiments and the files they write.


@dataclass(frozen=True)
class Table:
    """A table of an analysis; every row has one text per column."""

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
        """Return the table as lines of Markdown."""
        rule = "|" + " --- |" * len(self.columns)
        return [markdown_row(self.columns), rule, *(markdown_row(row) for row in self.rows)]


def markdown_row(cells: Sequence[str]) -> str:
    """Return one row of a Markdown table."""
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return "| " + " | ".join(escaped) + " |"


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
    """The machine that computed it, where that is not the one that writes it."""


Compute = Callable[[bool, Path, Watch], Analysis]
"""Computes the small or the full form and writes its files to a folder."""


@dataclass(frozen=True)
class Experiment:
    """One published figure, table or theorem, computed again.

    The small form does the same work on a fraction of the settings, for tests.
    """

    id: str
    title: str
    reference: str
    tags: tuple[str, ...]
    compute: Compute

    def run(self, small: bool, out: Path, watch: Watch | None = None) -> Analysis:
        """Compute it and write rows (CSV), figure (PNG, SVG), `analysis.md` and `claims.json`.

        Makes the folder `out` and overwrites earlier results in it.
        """
        out.mkdir(parents=True, exist_ok=True)
        # Reads the claims before a long run, which a mistake in their file would otherwise waste.
        claims.claims_of(self.id)
        analysis = self.compute(small, out, watch or _ignore_progress)
        page = out / "analysis.md"
        page.write_text("\n".join(self._page(analysis, small)), encoding="utf-8")
        measurement = claims.measurement(self.id, small, analysis.findings, analysis.machine)
        judged = measurement.write(out / "claims.json")
        return replace(analysis, files=(*analysis.files, page, judged))

    def _page(self, analysis: Analysis, small: bool) -> list[str]:
        """Return the analysis for a reader who has only the folder."""
        lines = [f"# {self.title}", "", f"Reference: {self.reference}", ""]
        if small:
            lines += ["Small form: a fraction of the sweep, for checking that everything runs.", ""]
        lines += [f"**{analysis.headline}**", ""]
        lines += [f"* {note}" for note in analysis.notes]
        lines += ["", "## Claims", "", *claims_table(self.id, analysis.findings).markdown()]
        for table in analysis.tables:
            lines += ["", f"## {table.title}", "", *table.markdown()]
        return [*lines, "", "Files: " + ", ".join(f"`{file.name}`" for file in analysis.files), ""]


def _ignore_progress(what: str, fraction: float) -> None:
    """Watch nothing."""


def claims_table(experiment: str, findings: Sequence[Finding]) -> Table:
    """Return what the paper says, what was measured, and the verdicts."""
    by_name = {claim.name: claim for claim in claims.claims_of(experiment)}
    rows = []
    for finding in findings:
        claim = by_name[finding.claim]
        says = f"{claim.place}: {claim.says}"
        label = claims.LABELS.get(finding.verdict, finding.verdict)
        rows.append((says, finding.measured, label, finding.because))
    return Table("Claims", ("the paper states", "measured", "verdict", "reason"), tuple(rows))


@dataclass(frozen=True)
class Paper:
    """A paper whose figures are computed again: the name of its system, and where it appeared."""

    system: str
    reference: str

    def experiment(
        self, name: str, title: str, tags: Sequence[str], compute: Compute, place: str = ""
    ) -> Experiment:
        """Declare the experiment of one figure; `place` is where in the paper it stands."""
        reference = f"{self.reference}, {place}" if place else self.reference
        return Experiment(f"{self.system}/{name}", title, reference, (self.system, *tags), compute)


def write_files(
    out: Path, name: str, rows: Sequence[Row], figure: plots.Figure
) -> tuple[Path, Path, Path]:
    """Write rows as CSV and the figure as PNG and SVG, under one name."""
    table = out / f"{name}.csv"
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return (table, *_write_figure(figure, out, name))


def _write_figure(figure: plots.Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write a PNG on white, and an SVG without background for light and dark pages."""
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    # Text stays text, which keeps the file small.
    with require("matplotlib", extra="plot").rc_context({"svg.fonttype": "none"}):
        figure.savefig(svg)
    # Everything has its place now, and arranging it again takes as long as drawing.
    figure.set_layout_engine("none")
    figure.savefig(png, dpi=150, facecolor="white", transparent=False)
    return png, svg


# Jobs.


def progress(
    items: Sequence[Job],
    describe: Callable[[Job], str],
    watch: Watch,
    begin: float = 0.0,
    end: float = 1.0,
) -> Iterator[Job]:
    """Yield one item after the other and tell `watch` before each; fractions go from `begin` to
    `end`.
    """
    for number, item in enumerate(items):
        watch(describe(item), begin + (end - begin) * number / len(items))
        yield item


def run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job], Result],
    describe: Callable[[Job], str],
    watch: Watch,
    begin: float = 0.0,
    end: float = 1.0,
    weight: Callable[[Job], float] = lambda job: 1.0,
) -> list[Result]:
    """Do jobs with one thread per core, and return the results in the order of the jobs.

    Compiled code runs outside the interpreter's lock. `watch` gets fractions from `begin` to
    `end`. An interruption does not wait for the jobs that are running.

    >>> run_jobs([1, 2, 3], lambda job: job * job, str, lambda what, fraction: None)
    [1, 4, 9]
    """
    total = sum(map(weight, jobs))
    done = 0.0
    watch(describe(jobs[0]), begin)
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        job_of = {pool.submit(work, job): job for job in jobs}
        for future in as_completed(job_of):
            future.result()
            done += weight(job_of[future])
            fraction = begin + (end - begin) * done / total
            watch(describe(job_of[future]), min(end, fraction))
    except BaseException as error:
        pool.shutdown(wait=not isinstance(error, KeyboardInterrupt), cancel_futures=True)
        raise
    pool.shutdown()
    return [future.result() for future in job_of]


def seeds_of(runs: int) -> tuple[int, ...]:
    """Return the world seeds of so many runs: 1, 2, ..."""
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
        """Format mean and half width.

        >>> mean_of([0.81, 0.83, 0.82]).text(), mean_of([0.5]).text(2)
        ('0.8200 ± 0.0248', '0.50')
        >>> mean_of([0.02, 0.02]).text(1, 100, sign=True)
        '+2.0 ± 0.0'
        """
        mean = f"{scale * self.mean:{'+' if sign else ''}.{places}f}"
        if math.isnan(self.half):
            return mean
        return f"{mean} ± {scale * self.half:.{places}f}"


def mean_of(values: ArrayLike) -> Mean:
    """Average numbers, one per run."""
    x = np.asarray(values, np.float64)
    if len(x) < 2:
        return Mean(float(x.mean()), math.nan, len(x))
    error = float(x.std(ddof=1)) / math.sqrt(len(x))
    return Mean(float(x.mean()), t_quantile(LEVEL, len(x) - 1) * error, len(x))


def verdict(difference: Mean, claim: str, against: str) -> str:
    """Return what an interval of a difference says about a claim that it is above 0.

    >>> verdict(Mean(0.02, 0.01, 5), "helps", "harms")
    'helps'
    >>> verdict(Mean(0.0, 0.01, 5), "helps", "harms")
    'no difference seen'
    """
    if difference.low > 0:
        return claim
    return against if difference.high < 0 else "no difference seen"


def judge(claim: str, difference: Mean, text: str = "") -> Finding:
    """Judge a claim that a difference is above 0.

    Where the interval includes 0, the finding says how many runs would be enough.

    >>> judge("more", Mean(0.02, 0.01, 5)).verdict, judge("more", Mean(0.01, 0.02, 5)).because
    ('holds', 'the interval includes 0, and about 20 runs would decide')
    """
    measured = text or difference.text(sign=True)
    if difference.low > 0:
        return Finding(claim, measured, HOLDS)
    if difference.high < 0:
        return Finding(claim, measured, FAILS)
    return Finding(claim, measured, UNKNOWN, runs_needed(difference))


def runs_needed(difference: Mean) -> str:
    """Return how many runs would decide about a difference of the measured size."""
    if math.isnan(difference.half):
        return "one run has no interval"
    if not difference.mean:
        return "the difference is 0"
    runs = math.ceil(difference.runs * (difference.half / difference.mean) ** 2 - 1e-9)
    return f"the interval includes 0, and about {runs:,} runs would decide"


def bonferroni(difference: Mean, tests: int) -> Mean:
    """Widen an interval so that all of several hold together with 95 %."""
    if difference.runs < 2:
        return difference
    degrees = difference.runs - 1
    wider = t_quantile(1 - (1 - LEVEL) / tests, degrees) / t_quantile(LEVEL, degrees)
    return replace(difference, half=wider * difference.half)


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the e of y ~ x^e that fits best: the slope of log y over log x.

    >>> round(exponent([10, 20, 40], [3.0, 12.0, 48.0]), 9)
    2.0
    """
    return growth(x, y).mean


def growth(x: Sequence[float], y: Sequence[float]) -> Mean:
    """Return the exponent e of y ~ x^e with the 95 % interval of a straight line through the
    logarithms.

    >>> growth([1, 2, 4, 8], [1.0, 2.0, 4.0, 8.0]).text(2)
    '1.00 ± 0.00'
    """
    log_x = np.log(np.asarray(x, np.float64))
    log_y = np.log(np.asarray(y, np.float64))
    slope, start = np.polyfit(log_x, log_y, 1)
    degrees = len(log_x) - 2
    if degrees < 1:
        return Mean(float(slope), math.nan, len(log_x))
    residuals = log_y - slope * log_x - start
    spread = float(((log_x - log_x.mean()) ** 2).sum())
    error = math.sqrt(float(residuals @ residuals) / degrees / spread)
    return Mean(float(slope), t_quantile(LEVEL, degrees) * error, len(log_x))


def format_range(values: Sequence[float], form: str = ".2g") -> str:
    """Return the smallest to the largest value, for a sentence.

    >>> format_range([3.14159, 2.71828])
    '2.7 to 3.1'
    """
    return f"{min(values):{form}} to {max(values):{form}}"


# Drawings: one colour and marker per line, bands, and a legend above the panels.

MARKERS = "os^Dvp<>"


def line_style(number: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a line by its number."""
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
    **options: Any,
) -> tuple[plots.Figure, list[plots.Axes]]:
    """Make a figure with panels side by side; `options` are those of matplotlib's `subplots`."""
    figure = plots.blank(height, width=width or (7.2 if columns == 1 else 9.0))
    axes = list(figure.subplots(1, columns, squeeze=False, **options)[0])
    for ax, text in zip(axes, titles, strict=False):
        title(ax, text)
    return figure, axes


def title(ax: plots.Axes, text: str) -> None:
    """Put a title above a panel."""
    ax.set_title(text, loc="left", color=INK, fontsize=9.5)


def line(
    ax: plots.Axes,
    x: ArrayLike,
    y: ArrayLike,
    number: int,
    label: str,
    *,
    marker: bool = True,
    **options: Any,
) -> None:
    """Draw a line in its style; `options` are those of matplotlib's `plot`."""
    style = line_style(number)
    if not marker:
        style["marker"] = ""
    style |= options
    ax.plot(np.asarray(x), np.asarray(y), label=label, linewidth=1.6, markersize=4.5, **style)


def band(ax: plots.Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, number: int) -> None:
    """Fill between two curves in the colour of a line."""
    colour = line_style(number)["color"]
    ax.fill_between(np.asarray(x), low, high, color=colour, alpha=0.15, linewidth=0)


def log_axis(ax: plots.Axes, values: Sequence[float]) -> None:
    """Make the y axis logarithmic, with few ticks that read as plain numbers."""
    low, high = 0.8 * min(values), 1.25 * max(values)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if high / low > 20 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    every_tick = [step * 10.0**power for power in powers for step in steps]
    ticks = [tick for tick in every_tick if low <= tick <= high]
    labels = [f"{tick:,.3g}" if tick < 1000 else f"{tick:,.0f}" for tick in ticks]
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.set_yticks(ticks, labels)
    ax.set_yticks([], minor=True)


def legend(
    figure: plots.Figure,
    ax: plots.Axes | None,
    columns: int = 3,
    note: str = "",
    extra: Sequence[Any] = (),
    length: float = 2.6,
) -> None:
    """Put the legend of a panel, with extra entries, above all panels, and a note below them."""
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


def legend_entry(label: str, **style: Any) -> Any:
    """Make an entry of a legend that belongs to no line."""
    return require("matplotlib.lines", extra="plot").Line2D([], [], label=label, **style)
