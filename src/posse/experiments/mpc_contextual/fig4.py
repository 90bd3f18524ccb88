"""Figure 4: time of a step against the number of arms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posse.experiments.base import Analysis, Experiment, Table, Watch
from posse.experiments.mpc_contextual import pictures
from posse.experiments.mpc_contextual.problem import REFERENCE
from posse.experiments.mpc_contextual.statistics import exponent
from posse.experiments.mpc_contextual.timing import Timed, local_exponents, measure, plain_ms
from posse.experiments.output import write_figure, write_rows
from posse.results import role_colour, theme, words
from posse.results.theme import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS = (10, 20, 40, 60, 80, 100, 150, 200)
QUADRATIC_FROM = 40
"""Arms from which the paper observes quadratic scaling."""
PUBLISHED_SLOWDOWN = 500
"""Nearly so many times slower than a regular implementation (section 5), at two parties and ten arms."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure real roles, two parties."""
    sizes = (10, 20, 50) if small else ARMS
    done = []
    for number, arms in enumerate(sizes):
        watch(f"|A| = {arms}, two parties", number / len(sizes))
        done.append(measure(2, arms, steps=4 if small else max(16, 1600 // arms), runs=1 if small else 3))
    watch("plain numpy", 0.97)
    plain = plain_ms(sizes[0])
    watch("figure and analysis", 1.0)
    return analyse(done, plain, out)


def analyse(done: Sequence[Timed], plain: float, out: Path) -> Analysis:
    """Write rows and figure, and fit the growth."""
    files = (write_rows(out / "fig4.csv", [one.row() for one in done]), *write_figure(picture(done), out, "fig4"))
    few, many = grown(done, 0, QUADRATIC_FROM), grown(done, QUADRATIC_FROM, 10**9)
    headline = (
        f"CPU time of a party grows as |A|^{few:.2f} up to {QUADRATIC_FROM} arms and as |A|^{many:.2f} from there on "
        f"({done[0].party:.3g} ms a step at {done[0].arms} arms, {done[-1].party:.3g} ms at {done[-1].arms})."
    )
    notes = (
        f"The paper: overhead dominates up to 20 arms, and from {QUADRATIC_FROM} on time grows as |A|^2 (all pairs are "
        f"compared). {_agreement(many)} Here all pairs are compared up to 40 arms; more are compared in groups of ten, "
        "which is linear in |A| and takes more rounds.",
        f"A step in plain numpy takes {words.seconds(plain / 1e3)} at {done[0].arms} arms: all roles together take "
        f"{done[0].total / plain:.0f} times that, one party {done[0].party / plain:.0f} times. The paper says nearly "
        f"{PUBLISHED_SLOWDOWN} times, against PyTorch, its parties being processes that wait for each other on one "
        "machine; here they run in turn in one process, and nothing waits. Figure 4 is printed as a picture, without "
        "numbers in the text.",
    )
    return Analysis(headline, (time_table(done), growth_table(done)), notes, files)


def grown(done: Sequence[Timed], low: int, high: int) -> float:
    """Exponent of a party's CPU time between two numbers of arms."""
    own = [one for one in done if low <= one.arms <= high]
    own = own if len(own) > 1 else list(done)[-2:]
    return exponent([one.arms for one in own], [one.party for one in own])


def _agreement(many: float) -> str:
    if many < 1.75:
        return f"We disagree, to the better: |A|^{many:.2f}."
    return f"So it does here: |A|^{many:.2f}."


def time_table(done: Sequence[Timed]) -> Table:
    """Every size."""
    rows = tuple(
        (
            str(one.parties), str(one.arms), f"{one.party:.3g}", f"{one.roles['dealer']:.3g}", f"{one.total:.3g}",
            f"{one.costs.rounds:g}", words.size(round(one.costs.sent)), words.size(round(one.costs.dealt)),
            words.size(round(one.bytes_of_all)), f"{one.runs} x {one.steps}",
        )
        for one in done
    )  # fmt: skip
    columns = (
        "parties", "arms", "CPU ms a step and party", "dealer, ms", "all roles, ms", "rounds", "sent by a party",
        "dealt to a party", "all parties, sent and dealt", "runs x steps",
    )  # fmt: skip
    return Table("A step of real roles in memory, medians over runs", columns, rows)


def growth_table(done: Sequence[Timed]) -> Table:
    """Exponents from each size to the next."""
    arms = [one.arms for one in done]
    of = {
        "party": local_exponents(arms, [one.party for one in done]),
        "all": local_exponents(arms, [one.total for one in done]),
        "bytes": local_exponents(arms, [one.bytes_of_all for one in done]),
    }
    rows = tuple((f"{arms[i]} to {arms[i + 1]}", *(f"{of[what][i]:.2f}" for what in of)) for i in range(len(arms) - 1))
    return Table("Exponents of growth in |A|", ("arms", "CPU of a party", "CPU of all roles", "bytes of all"), rows)


def picture(done: Sequence[Timed]) -> Figure:
    """Draw time against arms on logarithmic axes, with a square beside it."""
    figure, (left, right) = pictures.panels(2, ("CPU time of a step", "bytes of a step"), 4.2)
    theme.style(left, x="arms |A|", y="ms (logarithmic)")
    theme.style(right, x="arms |A|", y="kB a party (logarithmic)")
    arms = [one.arms for one in done]
    dots: dict[str, Any] = {"marker": "o", "markersize": 4.5, "linewidth": 1.6}
    for name, values, colour in (
        ("one party", [one.party for one in done], role_colour("party")),
        ("dealer", [one.roles["dealer"] for one in done], role_colour("dealer")),
    ):
        left.plot(arms, values, color=colour, label=name, **dots)
    sent, dealt = [one.costs.sent / 1e3 for one in done], [one.costs.dealt / 1e3 for one in done]
    right.plot(arms, sent, color=role_colour("party"), **dots)
    right.plot(arms, dealt, color=role_colour("dealer"), **dots)
    anchor = next((one for one in done if one.arms >= QUADRATIC_FROM), done[-1])
    own = [one for one in done if one.arms >= anchor.arms]
    square = [anchor.party * (one.arms / anchor.arms) ** 2 for one in own]
    left.plot([one.arms for one in own], square, color=INK, linestyle=":", label="|A|² from 40 arms, as the paper")
    pictures.logarithmic(left, [*(one.party for one in done), *(one.roles["dealer"] for one in done), *square])
    pictures.logarithmic(right, [*sent, *dealt])
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_xticks(arms, [str(one) for one in arms])
        ax.set_xticks([], minor=True)
    note = "Medians of CPU time in one process, two parties; right: what a party sends (party) and is dealt (dealer)"
    pictures.legend(figure, left, 3, note)
    return figure


FIG4 = Experiment(
    id="mpc-contextual/fig4",
    title="Private contextual bandits, figure 4: time against arms",
    reference=f"{REFERENCE}, figure 4",
    tags=("mpc-contextual", "time"),
    sweep=sweep,
)
