"""Figure 8 (d): the share of the time that each kind of role takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from posse.core.check import require
from posse.problems.datasets.published import embedded_arms
from posse.results import plots
from posse.systems.samba.system import SYSTEM
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.kit import (
    Analysis,
    Row,
    Table,
    Watch,
    format_range,
    mean_of,
    progress,
    write_files,
)
from reproduction.samba import problem
from reproduction.samba.problem import BUDGETS, DATASETS, POLICY_NAMES, TITLES
from reproduction.samba.times import beside, measure_secure

LEVELS = ("paper", "strict")
KINDS = ("owner", "controller", "comp", "customer")
_COLOURS = {role.kind: role.colour[0] for role in SYSTEM.roles}
MEASURED = {10: (800, 5), 100: (250, 2)}
"""Budget and repeats by K. Shares are those of a run of N = 100,000: what its steps take is
measured apart from keys and sums, which take the same time at every N.
"""


@dataclass(frozen=True)
class Shares:
    """Percent of the time of all roles, by kind of role; `owner` is all owners together."""

    source: str
    dataset: str
    policy: str
    arms: int
    budget: int
    percent: dict[str, float]
    seed: int = 1

    @property
    def each_owner(self) -> float:
        """Percent of one owner."""
        return self.percent["owner"] / self.arms

    def row(self) -> Row:
        """The shares as a row of the raw file."""
        return {
            "source": self.source,
            "dataset": self.dataset,
            "policy": self.policy,
            "K": self.arms,
            "N": self.budget,
            "seed": self.seed,
            **{f"{kind}_percent": self.percent[kind] for kind in KINDS},
            "each_owner_percent": self.each_owner,
        }


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure one secure run a cell."""
    sizes = {10: (500, 1)} if small else MEASURED
    forms = ("paper",) if small else LEVELS
    plan = list(product(DATASETS[:1] if small else DATASETS, sizes, POLICY_NAMES))
    done = []
    for dataset, arms, name in progress(plan, problem.cell_words, watch):
        (budget, repeats), chosen = sizes[arms], problem.policy(name, dataset)
        for form, seed in product(forms, kit.seeds_of(repeats)):
            if beside(dataset, form):
                run = measure_secure(embedded_arms(dataset, arms), chosen, budget, seed, form=form)
                shares = percent(run.roles_at(BUDGETS[-1]))
                done.append(Shares(form, dataset, name, arms, BUDGETS[-1], shares, seed))
        done.append(their_shares(dataset, name, arms))
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def percent(seconds: dict[str, float]) -> dict[str, float]:
    """Turn seconds into percent of their sum.

    >>> percent({"owner": 3.0, "controller": 0.5, "comp": 0.5, "customer": 0.0})["owner"]
    75.0
    """
    whole = sum(seconds.values())
    return {kind: 100 * seconds.get(kind, 0.0) / whole for kind in KINDS}


def their_shares(dataset: str, name: str, arms: int) -> Shares:
    """Give the published shares at N = 100,000."""
    cell = problem.published(dataset, name, arms, BUDGETS[-1])
    times = (cell.owners_time, cell.controller_time, cell.comp_time, cell.customer_time)
    seconds = {
        kind: spread.mean for kind, spread in zip(KINDS, times, strict=True) if spread is not None
    }
    return Shares("published", dataset, name, arms, BUDGETS[-1], percent(seconds))


def analyse(done: Sequence[Shares], out: Path) -> Analysis:
    """Write rows and figure, and say what they show."""
    files = write_files(out, "fig8d", [one.row() for one in done], share_figure(done))

    def of(source: str, kind: str) -> str:
        return format_range([one.percent[kind] for one in done if one.source == source])

    headline = (
        f"Owners together take {of('paper', 'owner')} % of the time at level paper here and "
        f"{of('published', 'owner')} % in the published runs; comp {of('paper', 'comp')} % here "
        "and "
        f"{of('published', 'comp')} % there; the controller {of('paper', 'controller')} % and "
        f"{of('published', 'controller')} %."
    )
    notes = (
        "Level `paper` is the published protocol; at `strict` a dealer works in addition to the servers, "
        "so that the shares shown do not add up to 100 there.",
        "A row is one measured run in one process, so a single one can be off by what else the "
        "machine did; CPU time "
        "inside each kind of role, of a run shorter than N: the time of its steps is taken (N - K) "
        "times, that of keys "
        "and of the sum at the end once. Published shares are means of 50 runs at N = 100000 on "
        "the authors' machine; "
        "shares, unlike times, can be compared across machines.",
    )
    return Analysis(headline, (share_table(done),), notes, files, findings(done))


def findings(done: Sequence[Shares]) -> tuple[Finding, ...]:
    """Judge the four sentences on runs at level paper; a run is one number, seeds and policies
    together.
    """
    own = [one for one in done if one.source == "paper"]
    few, many = ([one for one in own if one.arms == arms] for arms in (10, 100))
    lead = mean_of(
        [one.percent["comp"] - max(one.each_owner, one.percent["controller"]) for one in few]
    )
    ratio = mean_of([one.percent["controller"] / one.each_owner for one in few])
    near = ratio.low >= 0.5 and ratio.high <= 2
    word = HOLDS if near else FAILS if ratio.low > 2 or ratio.high < 0.5 else UNKNOWN
    least = mean_of([one.percent["customer"] for one in few])
    return (
        kit.judge(
            "comp",
            lead,
            f"comp minus the busiest other role: {lead.text(1, sign=True)} percentage points, K = 10",
        ),
        _constant(few, many),
        Finding(
            "controller",
            f"{ratio.text(2)} times the share of an owner, K = 10",
            word,
            "the interval includes one half or two" if word == UNKNOWN else "",
        ),
        Finding(
            "customer",
            f"{least.text(3)} % at N = {few[0].budget:,}, K = 10",
            HOLDS if least.high < 1 else FAILS,
        ),
    )


def _constant(few: Sequence[Shares], many: Sequence[Shares]) -> Finding:
    if not many:
        return Finding("constant", "K = 10 alone", UNKNOWN, "the small form has one K")
    low, high = (mean_of([one.percent["comp"] for one in some]) for some in (few, many))
    text = f"{low.text(1)} % at K = 10, {high.text(1)} % at K = 100"
    return Finding(
        "constant", text, HOLDS if abs(low.mean - high.mean) + low.half + high.half < 5 else FAILS
    )


def share_table(done: Sequence[Shares]) -> Table:
    """Ours and theirs, row by row."""
    columns = (
        "data",
        "K",
        "policy",
        "source",
        "N",
        "owners %",
        "each owner %",
        "controller %",
        "comp %",
        "customer %",
    )
    rows = []
    for one in done:
        numbers = [one.percent["owner"], one.each_owner, *(one.percent[kind] for kind in KINDS[1:])]
        shown = tuple(f"{number:.2f}" for number in numbers)
        rows.append(
            (TITLES[one.dataset], str(one.arms), one.policy, one.source, str(one.budget), *shown)
        )
    return Table("Shares of the time", columns, tuple(rows))


def share_figure(done: Sequence[Shares]) -> plots.Figure:
    """Draw stacked shares: ours and the published one of each policy side by side, a panel a data
    set and K.
    """
    datasets, sizes = (
        list(dict.fromkeys(one.dataset for one in done)),
        list(dict.fromkeys(one.arms for one in done)),
    )
    figure = plots.blank(0.9 + 3.7 * len(sizes), width=4.9 + 4.2 * (len(datasets) - 1))
    grid = figure.subplots(len(sizes), len(datasets), squeeze=False, sharex=True)
    for i, arms in enumerate(sizes):
        for j, dataset in enumerate(datasets):
            drawn = ("paper", "published")
            chosen = [
                one
                for one in done
                if (one.dataset, one.arms, one.seed) == (dataset, arms, 1) and one.source in drawn
            ]
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
            bar.set_alpha(0.6 if one.source == "published" else 1.0)
        shown = [f"{width:.0f}" if width >= 6 else "" for width in widths]
        ax.bar_label(bars, shown, label_type="center", color="white", fontsize=8)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    labels = [
        one.source if one.source == "published" else f"{one.policy}, {one.source}" for one in chosen
    ]
    ax.set_yticks(places, labels if names else [""] * len(places))
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    kit.title(ax, title)


FIG8D = problem.REFERENCE.experiment(
    "fig8d",
    "Samba, figure 8 (d): share of the time by role",
    ("time", "roles"),
    sweep,
    "figure 8 (d)",
)
