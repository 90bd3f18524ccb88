"""Figure 1: agents that buy from common producers and exchange noisy statistics, seen from every
message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from posse.results import plots
from posse.runtime.memory import MemoryRun
from posse.systems.dp_combinatorial.federation import SimulatedMarket, agents_of, federation
from posse.systems.dp_combinatorial.messages import Buy, Hello, Report
from posse.systems.dp_combinatorial.twin import run_once
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, Finding
from reproduction.dp_combinatorial.markets import (
    DISTRIBUTIONS,
    PAPER,
    REFERENCE,
    SMALL,
    TIGHT,
    Method,
    Place,
    Size,
    known_market,
)
from reproduction.kit import Analysis, Floats, Row, Table, Watch, progress, write_files

BOTH = (PAPER, TIGHT)
FULL = Size(agents=6, producers=10, rounds=1_000, start=100, stop=1_000)


@dataclass(frozen=True, eq=False)
class Followed:
    """A whole run, message by message."""

    place: Place
    method: Method
    seed: int
    greetings: int
    reports: int
    planned: int
    """Reports that the schedule has, to all others."""
    others: int
    """Messages of other kinds."""
    alike: bool
    """Every receiver got the same report."""
    bought: bool
    """Agents buy every round, and from every producer at some time."""
    same: bool
    """Regret is that of the compiled twin, bit for bit."""
    noise: Floats
    """Noise of every reported number of units, in standard deviations of the plan."""

    @property
    def as_planned(self) -> bool:
        """Whether the variance of the noise is that of the plan, within four standard errors of a
        normal one.
        """
        return bool(abs((self.noise**2).mean() - 1) <= 4 * np.sqrt(2 / len(self.noise)))

    @property
    def as_drawn(self) -> bool:
        """Whether agents buy from common producers and send noisy statistics, nothing else."""
        pairs = self.place.agents * (self.place.agents - 1)
        whole = (self.greetings, self.reports) == (pairs, self.planned)
        return (
            whole
            and not self.others
            and self.alike
            and self.bought
            and self.same
            and self.as_planned
        )

    def row(self) -> Row:
        """The run as a row of the raw file."""
        return {
            "distribution": self.place.distribution,
            "agents": self.place.agents,
            "method": self.method.name,
            "seed": self.seed,
            "greetings": self.greetings,
            "reports": self.reports,
            "planned": self.planned,
            "others": self.others,
            "numbers": len(self.noise),
            "noise_mean": float(self.noise.mean()),
            "noise_deviation": float(self.noise.std()),
            "as_drawn": int(self.as_drawn),
        }


def follow(place: Place, method: Method, size: Size, seed: int) -> Followed:
    """Run real agents, and look at every message."""
    market, truth = known_market(place)
    terms = method.terms(market, size)
    world = SimulatedMarket(market, seed, size.rounds, truth=truth)
    purchases: list[Buy] = []

    def answers(buy: Buy) -> object:
        purchases.append(buy)
        return world(buy)

    run = MemoryRun(federation(market, terms, seed=seed, plan=method.plan(size)), answers)  # type: ignore[arg-type]
    agents = {agent.name: agent for agent in agents_of(list(run.roles.values()))}
    number = {name: j for j, name in enumerate(market.agents)}
    moved: Counter[type] = Counter()
    sent: dict[tuple[str, int], Report] = {}
    before = {name: np.zeros(place.producers) for name in agents}
    alike, noise = True, []
    while (one := run.deliver()) is not None:
        moved[type(one.message)] += 1
        if not isinstance(one.message, Report):
            continue
        key = one.sender, one.message.number
        if key in sent:
            alike = alike and sent[key] == one.message
            continue
        known = agents[one.sender].knowledge.sent_units.copy()
        bought, before[one.sender] = known - before[one.sender], known
        sent[key] = one.message
        deviation = terms.multiplier(one.message.number) * market.capacity[number[one.sender]]
        noise.append(
            (np.array(one.message.units) - bought)[deviation > 0] / deviation[deviation > 0]
        )
    _, curves = run_once(market, terms, seed, truth=truth)
    every = len(purchases) == place.agents * size.rounds and bool(
        (world.bought > 0)[market.capacity > 0].all()
    )
    planned = place.agents * (place.agents - 1) * len(terms.reports)
    same = np.array_equal(world.curves.regret, curves.regret)
    others = moved.total() - moved[Hello] - moved[Report]
    return Followed(
        place,
        method,
        seed,
        moved[Hello],
        moved[Report],
        planned,
        others,
        alike,
        every,
        same,
        np.concatenate(noise),
    )


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Follow runs with both kinds of noise."""
    size, runs_ = (SMALL, 1) if small else (FULL, 5)
    cells = product(DISTRIBUTIONS, BOTH, range(runs_))
    plan = [(size.places(d)[0], method, size, seed) for seed, (d, method, _) in enumerate(cells, 1)]
    runs = [
        follow(*one)
        for one in progress(plan, lambda c: f"{c[0].distribution}, {c[1].name}, run {c[3]}", watch)
    ]
    watch("figure and analysis", 1.0)
    return analyse(runs, out)


def analyse(runs: Sequence[Followed], out: Path) -> Analysis:
    """Write rows and figure, and judge."""
    files = write_files(out, "setting", [one.row() for one in runs], picture(runs))
    right, noise = sum(one.as_drawn for one in runs), np.concatenate([one.noise for one in runs])
    text = (
        f"{right} of {len(runs)} runs: every agent buys from all of its producers; agents send "
        "only the reports of "
        f"the schedule, equal for all receivers; the noise of {len(noise):,} "
        "reported numbers has "
        f"{noise.std():.3f} of the planned standard deviation; regret equals that of the compiled twin, "
        "bit for bit"
    )
    finding = Finding("agents", text, HOLDS if right == len(runs) else FAILS)
    body = tuple(
        (
            one.place.distribution,
            one.method.name,
            str(one.seed),
            str(one.place.agents),
            str(one.greetings),
            str(one.reports),
            str(one.planned),
            str(len(one.noise)),
            f"{one.noise.std():.3f}",
            "yes" if one.as_drawn else "no",
        )
        for one in runs
    )
    columns = (
        "distribution",
        "method",
        "seed",
        "agents",
        "greetings",
        "reports",
        "planned",
        "numbers of units",
        "deviation of the noise / plan",
        "as drawn",
    )
    notes = (
        "What an agent asks of the world, its purchases, goes to producers; no agent sees "
        "another's.",
    )
    headline = f"{right} of {len(runs)} runs are as drawn."
    return Analysis(
        headline, (Table("Runs of real agents", columns, body),), notes, files, (finding,)
    )


def picture(runs: Sequence[Followed]) -> plots.Figure:
    """Draw the noise of reports beside the planned normal distribution."""
    figure, (ax,) = kit.panels(1)
    plots.style(
        ax, x="noise of a reported number of units, in planned standard deviations", y="density"
    )
    noise = np.concatenate([one.noise for one in runs])
    ax.hist(
        noise,
        bins=40,
        range=(-4, 4),
        density=True,
        color=kit.line_style(0)["color"],
        alpha=0.35,
        label="reports",
    )
    x = np.linspace(-4, 4, 200)
    kit.line(ax, x, np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), 1, "planned: normal", marker=False)
    kit.legend(figure, ax, 2, f"{len(noise):,} numbers of {len(runs)} runs")
    return figure


SETTING = REFERENCE.experiment(
    "setting", "P-FCB, figure 1: what agents send", ("protocol",), sweep, "figure 1"
)
