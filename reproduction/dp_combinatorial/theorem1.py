"""Theorem 1: regret against agents and rounds among agents that are all equal, beside its bound; a
fit under noise.

n regret / ln(nT) is bounded where the theorem holds, so its growth is measured: its exponent in n
at the last round, and in T among the most agents, over the last two decades of rounds. An exponent
of 0 is the theorem's rate. Regret that fell as 1 / sqrt(n) would have 1/2, and regret that grew as
sqrt(T) nearly that. `MARGIN` lies between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posse.problems.markets.instances import Distribution
from posse.results import plots, words
from posse.results.record import points_of
from posse.systems.dp_combinatorial.remarks import bound_below
from reproduction import claims, kit
from reproduction.claims import FAILS, HOLDS, Finding
from reproduction.dp_combinatorial import looks, markets
from reproduction.dp_combinatorial.markets import (
    DISTRIBUTIONS,
    FCB,
    PAPER,
    TIGHT,
    Method,
    Place,
    Runs,
    Size,
)
from reproduction.kit import (
    Analysis,
    Floats,
    Mean,
    Table,
    Watch,
    exponent,
    mean_of,
    write_files,
)

AGENTS = (2, 4, 8, 16)
SMALL_AGENTS = (2, 4)
MARGIN = 0.25
"""Exponent of n regret / ln(nT) below which it counts as bounded."""
ZETA = 0.05
"""The paper gives no zeta for its exploration phase, and no y: this one, and y = 1."""
METHODS = (FCB, TIGHT, PAPER)


def explored(agents: int, rounds: int) -> Method:
    """FCB with the exploration phase of Algorithm 1, 3 ln T / (2 n zeta^2) rounds.

    >>> [explored(n, 100_000).explore for n in (2, 16)]
    [3454, 432]
    """
    phase = math.ceil(3 * math.log(rounds) / (2 * agents * ZETA**2))
    return Method("FCB, exploring first", "fcb", explore=min(phase, rounds))


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run agents that are all equal, few and many."""
    size, agents = (markets.SMALL, SMALL_AGENTS) if small else (markets.FEWER, AGENTS)
    made: Runs | None = None
    for number, n in enumerate(agents):
        places = [
            place for d in DISTRIBUTIONS for place in size.places(d, agents=n, homogeneous=True)
        ]
        ends = [0.98 * sum(agents[:k]) / sum(agents) for k in (number, number + 1)]
        runs = markets.run_markets(size, places, (*METHODS, explored(n, size.rounds)), watch, *ends)
        made = runs if made is None else Runs(size, made.outcomes | runs.outcomes, runs.cost)
    watch("figure and analysis", 1.0)
    assert made is not None
    return analyse(Found(made, agents), out)


@dataclass(frozen=True, eq=False)
class Found:
    """Runs among few and many agents."""

    runs: Runs
    agents: tuple[int, ...]

    @property
    def size(self) -> Size:
        """Size of the runs."""
        return self.runs.size

    @property
    def rounds(self) -> tuple[int, ...]:
        """Rounds at which regret is read: a hundredth and a tenth of all, and all."""
        return tuple(self.size.rounds // part for part in (100, 10, 1))

    def places(self, distribution: Distribution, n: int) -> tuple[Place, ...]:
        """Instances among n agents."""
        return self.size.places(distribution, agents=n, homogeneous=True)

    def regret(self, distribution: Distribution, n: int, method: Method) -> Floats:
        """(instances, rounds) regret an agent, the mean over runs."""
        points = points_of(self.size.rounds, markets.POINTS)
        at = [int(np.searchsorted(points, t)) for t in self.rounds]
        curves = self.runs.curves(self.places(distribution, n), method)
        return np.asarray(np.maximum(curves.mean(axis=1)[:, at], 1e-9))

    def scaled(self, distribution: Distribution, n: int, method: Method) -> Floats:
        """(instances, rounds) n regret / ln(nT)."""
        return np.asarray(
            n * self.regret(distribution, n, method) / np.log(n * np.array(self.rounds))
        )

    def in_agents(self, distribution: Distribution, method: Method) -> Mean:
        """Exponent in n at the last round, over instances."""
        each = np.stack([self.scaled(distribution, n, method)[:, -1] for n in self.agents], axis=1)
        return mean_of([exponent(self.agents, row) for row in each])

    def in_rounds(self, distribution: Distribution, method: Method) -> Mean:
        """Exponent in T among the most agents, over instances."""
        return mean_of(
            [
                exponent(self.rounds, row)
                for row in self.scaled(distribution, self.agents[-1], method)
            ]
        )


def explicit(place: Place, n: int, rounds: int) -> float:
    """The bound of the proof's last line, with the largest Delta_min that it can have and without
    R.

    Delta_min is at most what one unit of the least producer changes, min |r_i|, and R (the
    smoothness of revenue) divides it: the theorem's own bound is larger still.
    """
    market, truth = markets.known_market(place)
    worth = np.abs(truth.revenue[0, 0][market.capacity[0] > 0])
    smallest, largest, k = (
        float(worth.min()),
        float(truth.worst[0, 0]),
        float(market.capacity.max()),
    )
    terms = math.pi**2 * k / (3 * n**3) + 6 * math.log(n * rounds) / (n * smallest**2)
    return terms * len(market.producers) * largest


def ratios_to_bound(found: Found) -> list[float]:
    """Regret of FCB over the explicit bound, for every distribution, n, T and instance."""
    return [
        float(regret) / explicit(place, n, rounds)
        for d in DISTRIBUTIONS
        for n in found.agents
        for place, row in zip(found.places(d, n), found.regret(d, n, FCB), strict=True)
        for rounds, regret in zip(found.rounds, row, strict=True)
    ]


def findings(found: Found) -> tuple[Finding, ...]:
    """Judge growth, the explicit bound, the quality constraint, and the fit under noise."""

    def grows(method: Method) -> list[Finding]:
        parts = []
        for d in DISTRIBUTIONS:
            for what, mean in (
                ("n", found.in_agents(d, method)),
                ("T", found.in_rounds(d, method)),
            ):
                name = (
                    f"{d}, {method.name}, exponent in {what}"
                    if method != FCB
                    else f"{d}, exponent in {what}"
                )
                parts.append(looks.below(name, mean, MARGIN, mean.text(2, sign=True)))
        return parts

    ratios = ratios_to_bound(found)
    met = f"regret divided by the bound: {kit.format_range(ratios, '.1g')}"
    return (
        claims.combined("bound", grows(FCB)),
        Finding("explicit", met, HOLDS if max(ratios) <= 1 else FAILS),
        claims.combined("threshold", [_threshold(found, d) for d in DISTRIBUTIONS]),
        claims.combined("noise", [*grows(TIGHT), *grows(PAPER)]),
    )


def _threshold(found: Found, distribution: Distribution) -> Finding:
    """Judge the rounds below alpha of agents that share everything, among the most of them."""
    n = found.agents[-1]
    places = found.places(distribution, n)
    missed = [float(found.runs.of(place, FCB).missed.mean()) for place in places]
    bounds = [
        bound_below(place.market(), n, found.size.rounds) * found.size.rounds for place in places
    ]
    text = (
        f"{np.mean(missed):,.1f} rounds per agent below the threshold, bound {np.mean(bounds):,.1f}"
    )
    return looks.below(distribution, mean_of(np.array(missed) - np.array(bounds)), 0.0, text)


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say how far the theorem's rate is met."""
    files = write_files(out, "theorem1", found.runs.rows(), rate_figure(found))
    size = found.size
    notes = (
        "Agents of one instance are all equal (homogeneous), as the theorem requires. Instances are "
        "seeds 1 to "
        f"{size.instances} of each distribution, in order, none left out; "
        f"{words.count(size.runs, 'run')} each.",
        "The bound takes the largest Delta_min that an instance can have, one unit of its least "
        "producer, and leaves "
        "the division by R out: the theorem's own is larger.",
        f"`{explored(2, size.rounds).name}` has the phase of Algorithm 1 with zeta = {ZETA:g} and "
        "y = 1, which the "
        "paper does not give: 3 ln T / (2 n zeta^2) rounds of one unit of every producer.",
        looks.privacy_words(size),
    )
    return Analysis(
        headline(found), (rate_table(found), fit_table(found)), notes, files, findings(found)
    )


def rate_table(found: Found) -> Table:
    """Regret, n regret / ln(nT) and the bound, for all n and T."""
    rows = []
    for d in DISTRIBUTIONS:
        for n in found.agents:
            first = found.regret(d, n, explored(n, found.size.rounds)).mean(axis=0)
            regret, scaled = (
                found.regret(d, n, FCB).mean(axis=0),
                found.scaled(d, n, FCB).mean(axis=0),
            )
            for at, t in enumerate(found.rounds):
                bounds = [explicit(place, n, t) for place in found.places(d, n)]
                rows.append(
                    (
                        d,
                        str(n),
                        f"{t:,}",
                        words.number(float(regret[at])),
                        words.number(float(scaled[at])),
                        f"{min(bounds):.2g}",
                        words.number(float(first[at])),
                    )
                )
    columns = (
        "distribution",
        "agents n",
        "rounds T",
        "regret an agent, mean",
        "n regret / ln(nT)",
        "explicit bound, smallest",
        "regret, exploring first",
    )
    return Table("FCB among agents that are all equal", columns, tuple(rows))


def fit_table(found: Found) -> Table:
    """Exponents of n regret / ln(nT), without noise and with it."""
    rows = tuple(
        (
            d,
            method.name,
            method.privacy(found.size),
            found.in_agents(d, method).text(2, sign=True),
            found.in_rounds(d, method).text(2, sign=True),
        )
        for d in DISTRIBUTIONS
        for method in METHODS
    )
    columns = (
        "distribution",
        "method",
        "privacy",
        "exponent in n",
        f"exponent in T, n = {found.agents[-1]}",
    )
    return Table("n regret / ln(nT) ~ n^a T^b: 0 is the theorem's rate", columns, rows)


def headline(found: Found) -> str:
    """Say how n regret / ln(nT) grows."""
    said = [
        f"{d} n^{found.in_agents(d, FCB).text(2, sign=True)} and "
        f"T^{found.in_rounds(d, FCB).text(2, sign=True)}"
        for d in DISTRIBUTIONS
    ]
    largest = max(ratios_to_bound(found))
    return (
        f"n regret / ln(nT) of FCB grows as {'; '.join(said)}; regret is at most {largest:.1g} of "
        "the explicit bound."
    )


def rate_figure(found: Found) -> plots.Figure:
    """Draw n regret / ln(nT) against n, a line a method."""
    figure, (row,) = looks.columns(1, 4.6, share_y=False)
    for distribution, ax in row.items():
        plots.style(ax, x="agents n", y="n regret / ln(nT) at the last round")
        kit.title(
            ax, f"{distribution}, all alike, m = {found.size.producers}, T = {found.size.rounds:,}"
        )
        values: list[float] = []
        for method in METHODS:
            each = np.stack(
                [found.scaled(distribution, n, method)[:, -1] for n in found.agents], axis=1
            )
            band = markets.band(each)
            looks.curve(
                ax, found.agents, band, looks.line(method) | looks.dots(method), method.name
            )
            values += [*band[1].tolist(), *band[2].tolist()]
        kit.log_axis(ax, values)
        ax.set_xscale("log", base=2)
        ax.set_xticks(found.agents, [str(n) for n in found.agents])
    note = (
        f"Means of {found.size.instances} instances, {found.size.runs} runs each; {looks.INTERVAL}"
    )
    kit.legend(figure, row[DISTRIBUTIONS[0]], 3, note)
    return figure


THEOREM1 = markets.REFERENCE.experiment(
    "theorem1",
    "P-FCB, theorem 1: regret against agents and rounds, and its bound",
    ("regret", "theory"),
    sweep,
)
