"""Figure 8 (d): the share of the time that each kind of role takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from posse.core.check import require
from posse.experiments import kit
from posse.experiments.kit import Analysis, Row, Table, Watch, progress, span, write_files
from posse.experiments.samba import problem
from posse.experiments.samba.problem import BUDGETS, DATASETS, POLICY_NAMES, TITLES
from posse.experiments.samba.times import measure_secure
from posse.problems.datasets.published import embedded_arms
from posse.protocols.samba.system import SYSTEM
from posse.results import plots

KINDS = ("owner", "controller", "comp", "customer")
_COLOURS = {role.kind: role.colour[0] for role in SYSTEM.roles}
MEASURED_BUDGET = {10: 20_000, 100: 10_000}
"""Shares need no full-size run: all roles but the customer work in proportion to N."""


@dataclass(frozen=True)
class Shares:
    """Percent of the time of all roles, by kind of role; `owner` is all owners together."""

    source: str
    dataset: str
    policy: str
    arms: int
    budget: int
    percent: dict[str, float]

    @property
    def each_owner(self) -> float:
        """Percent of one owner."""
        return self.percent["owner"] / self.arms

    def row(self) -> Row:
        """The shares as a row of the raw file."""
        return {
            "source": self.source, "dataset": self.dataset, "policy": self.policy, "K": self.arms, "N": self.budget,
            **{f"{kind}_percent": self.percent[kind] for kind in KINDS}, "each_owner_percent": self.each_owner,
        }  # fmt: skip


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure one secure run a cell."""
    budgets = {10: 500} if small else MEASURED_BUDGET
    plan = list(product(DATASETS[:1] if small else DATASETS, budgets, POLICY_NAMES))
    done = []
    for dataset, arms, name in progress(plan, problem.cell_words, watch):
        run = measure_secure(embedded_arms(dataset, arms), problem.policy(name, dataset), budgets[arms])
        done.append(Shares("ours", dataset, name, arms, budgets[arms], percent(run.roles)))
        done.append(their_shares(dataset, name, arms))
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def percent(seconds: dict[str, float]) -> dict[str, float]:
    """Turn seconds into percent of their sum.

    >>> percent({"owner": 3.0, "controller": 0.5, "comp": 0.5, "customer": 0.0})["owner"]
    75.0
    """
    whole = sum(seconds[kind] for kind in KINDS)
    return {kind: 100 * seconds[kind] / whole for kind in KINDS}


def their_shares(dataset: str, name: str, arms: int) -> Shares:
    """Give the published shares at N = 100,000."""
    cell = problem.published(dataset, name, arms, BUDGETS[-1])
    times = (cell.owners_time, cell.controller_time, cell.comp_time, cell.customer_time)
    seconds = {kind: spread.mean for kind, spread in zip(KINDS, times, strict=True) if spread is not None}
    return Shares("published", dataset, name, arms, BUDGETS[-1], percent(seconds))


def analyse(done: Sequence[Shares], out: Path) -> Analysis:
    """Write rows and figure, and say what they show."""
    files = write_files(out, "fig8d", [one.row() for one in done], share_figure(done))

    def of(source: str, kind: str) -> str:
        return span([one.percent[kind] for one in done if one.source == source])

    headline = (
        f"Owners together take {of('ours', 'owner')} % of the time here and {of('published', 'owner')} % in the "
        f"published runs; comp {of('ours', 'comp')} % here and {of('published', 'comp')} % there; the controller "
        f"{of('ours', 'controller')} % and {of('published', 'controller')} %."
    )
    notes = (
        "Ours is level 'standard', not level 'paper', which is the published protocol. In the published runs comp "
        "opens K scores and seals K answers a step, and is the busiest single party. Here it opens K scores and "
        "answers with tokens, without sealing; its share is smaller, the controller's larger.",
        "Ours is one measured run a row at the N given, in one process, so a single row can be off by what else the "
        "machine did; CPU time inside each kind of role. The sum at the end (Paillier, owners and customer) weighs "
        "more at a smaller N. Published shares are means of 50 runs at N = 100000 on the authors' machine; shares, "
        "unlike times, can be compared across machines.",
    )
    return Analysis(headline, (share_table(done),), notes, files)


def share_table(done: Sequence[Shares]) -> Table:
    """Ours and theirs, row by row."""
    columns = ("data", "K", "policy", "source", "N", "owners %", "each owner %", "controller %", "comp %", "customer %")
    rows = []
    for one in done:
        numbers = [one.percent["owner"], one.each_owner, *(one.percent[kind] for kind in KINDS[1:])]
        shown = tuple(f"{number:.2f}" for number in numbers)
        rows.append((TITLES[one.dataset], str(one.arms), one.policy, one.source, str(one.budget), *shown))
    return Table("Shares of the time", columns, tuple(rows))


def share_figure(done: Sequence[Shares]) -> plots.Figure:
    """Draw stacked shares: ours and the published one of each policy side by side, a panel a data set and K."""
    datasets, sizes = list(dict.fromkeys(one.dataset for one in done)), list(dict.fromkeys(one.arms for one in done))
    figure = plots.blank(0.9 + 3.7 * len(sizes), width=4.9 + 4.2 * (len(datasets) - 1))
    grid = figure.subplots(len(sizes), len(datasets), squeeze=False, sharex=True)
    for i, arms in enumerate(sizes):
        for j, dataset in enumerate(datasets):
            chosen = [one for one in done if (one.dataset, one.arms) == (dataset, arms)]
            _panel(grid[i][j], chosen, f"{TITLES[dataset]}, K = {arms}", names=j == 0)
    patch = require("matplotlib.patches", extra="plot").Patch
    words = {"owner": "all owners"}
    patches = [patch(color=_COLOURS[role], label=words.get(role, role)) for role in KINDS]
    kit.legend(figure, None, 4, extra=patches, length=2.2)
    return figure


def _panel(ax: plots.Axes, chosen: Sequence[Shares], title: str, *, names: bool) -> None:
    plots.style(ax, x="share of CPU time (%)", y="", grid="x")
    # Two bars a policy, close to each other, and room before the next policy.
    places = [i + i // 2 * 0.5 for i in range(len(chosen))]
    left = [0.0] * len(chosen)
    for role in KINDS:
        widths = [one.percent[role] for one in chosen]
        bars = ax.barh(places, widths, left=left, height=0.88, color=_COLOURS[role])
        for bar, one in zip(bars, chosen, strict=True):
            bar.set_alpha(1.0 if one.source == "ours" else 0.6)
        shown = [f"{width:.0f}" if width >= 6 else "" for width in widths]
        ax.bar_label(bars, shown, label_type="center", color="white", fontsize=8)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    labels = [f"{one.policy}, ours" if one.source == "ours" else "published" for one in chosen]
    ax.set_yticks(places, labels if names else [""] * len(places))
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    kit.title(ax, title)


FIG8D = problem.REFERENCE.experiment(
    "fig8d", "Samba, figure 8 (d): share of the time by role", ("time", "roles"), sweep
)
