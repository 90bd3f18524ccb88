"""Figure 5: time of a step against the number of parties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posse.experiments.base import Analysis, Experiment, Table, Watch
from posse.experiments.mpc_contextual import pictures
from posse.experiments.mpc_contextual.fig4 import time_table
from posse.experiments.mpc_contextual.problem import REFERENCE
from posse.experiments.mpc_contextual.statistics import exponent
from posse.experiments.mpc_contextual.timing import Timed, measure
from posse.experiments.output import write_figure, write_rows
from posse.results import theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTIES = (2, 3, 4, 5)
ARMS = (10, 40, 100)

QUANTITIES: dict[str, Callable[[Timed], float]] = {
    "CPU of one party": lambda one: one.party,
    "CPU of all roles": lambda one: one.total,
    "bytes sent by one party": lambda one: one.costs.sent,
    "bytes sent by all": lambda one: one.parties * one.costs.sent,
}


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure real roles."""
    parties, sizes = ((2, 3), (10,)) if small else (PARTIES, ARMS)
    plan = [(count, arms) for arms in sizes for count in parties]
    done = []
    for number, (count, arms) in enumerate(plan):
        watch(f"{count} parties, |A| = {arms}", number / len(plan))
        done.append(measure(count, arms, steps=4 if small else max(16, 800 // arms), runs=1 if small else 3))
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def analyse(done: Sequence[Timed], out: Path) -> Analysis:
    """Write rows and figure, and fit the growth."""
    files = (write_rows(out / "fig5.csv", [one.row() for one in done]), *write_figure(picture(done), out, "fig5"))
    grown = {arms: [growth(done, arms, of) for of in QUANTITIES.values()] for arms in sizes(done)}
    party, total = ([found[i] for found in grown.values()] for i in (0, 1))
    headline = (
        f"CPU time grows as |P|^{_span(party)} for one party and as |P|^{_span(total)} for all roles together; bytes "
        f"that all parties send as |P|^{_span([found[3] for found in grown.values()])}."
    )
    notes = (
        "The paper: run-time is O(|P|^2), for all parties send to all others in every round. " + _agreement(max(total)),
        "Exponents between 2 and 5 parties: |P| (|P| - 1) itself has "
        f"{exponent(PARTIES, [p * (p - 1) for p in PARTIES]):.2f} there. Times are CPU times in one process, without "
        "waiting; figure 5 is printed as a picture, without numbers in the text.",
    )  # fmt: skip
    return Analysis(headline, (growth_table(grown), time_table(done)), notes, files)


def _agreement(total: float) -> str:
    if total >= 1.75:
        return "So it is here."
    return (
        "We find less: a party adds up |P| shares of what is opened, and everything else that it does is the same for "
        "any |P|, so that all parties together work about |P| times as much as one. What they send grows as "
        "|P| (|P| - 1), as in the paper: over slow links that is what would count."
    )


def sizes(done: Sequence[Timed]) -> list[int]:
    """Numbers of arms that were measured."""
    return sorted({one.arms for one in done})


def growth(done: Sequence[Timed], arms: int, of: Callable[[Timed], float]) -> float:
    """Exponent of a quantity in the number of parties."""
    own = [one for one in done if one.arms == arms]
    return exponent([one.parties for one in own], [of(one) for one in own])


def growth_table(grown: dict[int, list[float]]) -> Table:
    """Exponents in |P|, beside the paper's."""
    rows = tuple((str(arms), *(f"{one:.2f}" for one in found), "2 (run-time)") for arms, found in grown.items())
    return Table("Exponents of growth in |P|", ("arms", *QUANTITIES, "published"), rows)


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def picture(done: Sequence[Timed]) -> Figure:
    """Draw time against parties, one party beside all."""
    titles = ("one party", "all roles together", "bytes that all parties send")
    figure, axes = pictures.panels(3, titles, 3.9, width=10.0)
    names = ("CPU ms a step (logarithmic)", "CPU ms a step (logarithmic)", "kB a step (logarithmic)")
    quantities = (QUANTITIES["CPU of one party"], QUANTITIES["CPU of all roles"], QUANTITIES["bytes sent by all"])
    for ax, name, of in zip(axes, names, quantities, strict=True):
        theme.style(ax, x="parties |P|", y=name)
        scale = 1e3 if "kB" in name else 1.0
        for number, arms in enumerate(sizes(done)):
            own = [one for one in done if one.arms == arms]
            pictures.line(ax, [one.parties for one in own], [of(one) / scale for one in own], number, f"|A| = {arms}")
        pictures.logarithmic(ax, [of(one) / scale for one in done])
        ax.set_xticks(sorted({one.parties for one in done}))
    pictures.legend(figure, axes[0], 4, "Medians of CPU time in one process; bytes without what the dealer sends")
    return figure


FIG5 = Experiment(
    id="mpc-contextual/fig5",
    title="Private contextual bandits, figure 5: time against parties",
    reference=f"{REFERENCE}, figure 5",
    tags=("mpc-contextual", "time"),
    sweep=sweep,
)
