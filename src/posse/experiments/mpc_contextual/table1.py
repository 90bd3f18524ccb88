"""Table 1: rounds and slowdown of the key operations, two parties and 100 arms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posse.experiments.base import Analysis, Experiment, Table, Watch
from posse.experiments.mpc_contextual import pictures
from posse.experiments.mpc_contextual.operations import BITS, NEWTON, OPERATIONS, Measured, measure
from posse.experiments.mpc_contextual.problem import REFERENCE
from posse.experiments.output import write_figure, write_rows
from posse.results import theme, words
from posse.results.theme import INK, SERIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS, FEATURES, PARTIES = 100, 20, 2
PUBLISHED = {
    "addition": ("0", 11),
    "multiplication": ("2", 380),
    "reciprocal": ("30", 6_000),
    "argmax": ("O(|P| + log2 |A|)", 34_000),
}
"""Rounds and slowdown against PyTorch, from the paper."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure every operation on one number an arm, and the first two on a model's weights as well."""
    passes = 4 if small else 200
    one_an_arm: tuple[int, ...] = (ARMS,)
    plan = [(operation, one_an_arm) for operation in OPERATIONS]
    plan += [(operation, (ARMS, FEATURES)) for operation in OPERATIONS[:2]]
    done = []
    for number, (operation, shape) in enumerate(plan):
        watch(f"{operation.name}, {' x '.join(map(str, shape))}", number / len(plan))
        measure(operation, shape, PARTIES, passes=2)
        done.append(measure(operation, shape, PARTIES, passes))
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def analyse(done: Sequence[Measured], out: Path) -> Analysis:
    """Write rows and figure, and put the paper's numbers beside ours."""
    own = [one for one in done if one.shape == (ARMS,)]
    files = (write_rows(out / "table1.csv", [one.row() for one in done]), *write_figure(picture(own), out, "table1"))
    told = "; ".join(
        f"{one.name} {one.rounds} rounds, {words.ratio(one.slowdown)} (published {PUBLISHED[one.name][0]}, "
        f"{PUBLISHED[one.name][1]:,}×)"
        for one in own
    )
    order = [one.name for one in sorted(own, key=lambda one: one.slowdown)]
    same = order == list(PUBLISHED)
    notes = (
        f"The order of the operations by slowdown is {'that' if same else 'not that'} of the paper.",
        f"Ours are CPU times of one party's online work in memory ({BITS} fraction bits, {NEWTON} Newton steps from a "
        "quadratic guess; the denominator lies in [1, 2] because contexts have norm at most 1), over numpy on the same "
        "shape and machine. The published ones are against PyTorch, of parties that are processes and wait for each "
        "other. Numpy needs less than a microsecond for 100 numbers, most of it to be called: such ratios say little, "
        "here as there; milliseconds are in the table.",
        "Our argmax takes more rounds than 4 because 100 numbers are compared in groups of ten, and fewer than all "
        "pairs bit by bit: by its text the paper's takes about 2 (7 + 7) + 2 = 30 at 100 arms, ties included (ours "
        "too: a dealt random order).",
        f"Every result was opened and is right: multiplication within {_error(own, 'multiplication')}, reciprocal "
        f"within {_error(own, 'reciprocal')}, argmax {'exact' if _exact(own) else 'WRONG'}.",
    )
    return Analysis(f"Two parties, 100 arms: {told}.", (operation_table(done),), notes, files)


def _error(done: Sequence[Measured], name: str) -> str:
    return f"{next(one.error for one in done if one.name == name):.1e}"


def _exact(done: Sequence[Measured]) -> bool:
    return all(one.error == 0 for one in done if one.name == "argmax")


def operation_table(done: Sequence[Measured]) -> Table:
    """Every operation beside the paper's."""
    rows = []
    for one in done:
        rounds, slowdown = PUBLISHED[one.name]
        rows.append((
            one.name, " x ".join(map(str, one.shape)), str(one.rounds), rounds, words.ratio(one.slowdown),
            words.ratio(one.slowdown_dealt), f"{slowdown:,}×", words.seconds(one.plain), words.seconds(one.online),
            words.seconds(one.tape), words.seconds(one.dealing), words.size(one.sent), words.size(one.dealt),
        ))  # fmt: skip
    columns = (
        "operation", "numbers", "rounds", "published rounds", "slowdown, online", "with tape and dealing",
        "published slowdown", "numpy", "a party, online", "a party, its tape", "dealer", "sent by a party", "dealt",
    )  # fmt: skip
    return Table("Operations on shares, two parties", columns, tuple(rows))


def picture(done: Sequence[Measured]) -> Figure:
    """Draw slowdowns beside the published ones."""
    figure, (ax,) = pictures.panels(1, height=3.4)
    theme.style(ax, x="slowdown against a plain operation (logarithmic)", y="", grid="x")
    kinds = (
        ("ours, online", [one.slowdown for one in done], SERIES[0], 1.0),
        ("ours, with tape and dealing", [one.slowdown_dealt for one in done], SERIES[2], 1.0),
        ("published (processes, PyTorch)", [float(PUBLISHED[one.name][1]) for one in done], INK, 0.55),
    )
    for i, (label, values, colour, alpha) in enumerate(kinds):
        places = [number + (i - 1) * 0.27 for number in range(len(done))]
        bars = ax.barh(places, values, height=0.25, color=colour, alpha=alpha, label=label)
        ax.bar_label(bars, [words.ratio(value) for value in values], padding=3, color=INK, fontsize=8)
    ax.set_xscale("log")
    ax.set_xlim(1.0, 3e5)
    ax.set_yticks(range(len(done)), [f"{one.name}\n{one.rounds} rounds" for one in done])
    ax.invert_yaxis()
    pictures.legend(figure, ax, 3)
    return figure


TABLE1 = Experiment(
    id="mpc-contextual/table1",
    title="Private contextual bandits, table 1: rounds and slowdown of operations",
    reference=f"{REFERENCE}, table 1",
    tags=("mpc-contextual", "time"),
    sweep=sweep,
)
