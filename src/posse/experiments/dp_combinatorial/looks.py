"""How the figures of this paper look and read: one colour a method, a column a distribution, shared sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from posse.experiments.claims import FAILS, HOLDS, UNKNOWN, Finding
from posse.experiments.dp_combinatorial import markets
from posse.experiments.dp_combinatorial.markets import DELTA, DISTRIBUTIONS, PAPER, UNIT, Band, Cost, Method, Size
from posse.experiments.kit import Floats
from posse.problems.markets.instances import Distribution, binds
from posse.results import plots, words
from posse.results.plots import DASHES, SERIES
from posse.results.statistics import Interval, regret_ratio

_BLUE, _ORANGE, _GREEN, _PURPLE, _PINK, _OCHRE, _TEAL, _RED = SERIES

_LOOKS = {
    markets.ALONE.name: (_ORANGE, "-", "o"),
    markets.ALONE_HALF.name: (_OCHRE, DASHES[1], "p"),
    markets.PAPER.name: (_BLUE, "-", "s"),
    markets.TIGHT.name: (_GREEN, "-", "^"),
    markets.MATCHED: (_TEAL, DASHES[3], "v"),
    markets.FUSED.name: (_GREEN, DASHES[2], "<"),
    markets.TIGHT_HALF.name: (_OCHRE, DASHES[3], ">"),
    markets.CLEAR.name: (_RED, DASHES[1], "P"),
    markets.PLACEBO.name: (_PINK, DASHES[2], "x"),
    markets.FCB.name: (_PURPLE, "-", "D"),
}
"""Colour, dashes and marker of a method."""
HOMOGENEOUS = "#6b8e23"
"""FCB among agents that are all alike."""


def line(method: Method) -> dict[str, Any]:
    """Colour and dashes of a method's line."""
    colour, dashes, _ = _LOOKS[method.name]
    return {"color": colour, "linestyle": dashes, "linewidth": 1.7}


def dots(method: Method) -> dict[str, Any]:
    """Colour and marker of a method's points."""
    colour, _, marker = _LOOKS[method.name]
    return {"color": colour, "marker": marker, "markersize": 5}


def saves(claim: str, ratio: Interval, below: float = 1.0) -> Finding:
    """Judge a claim that a ratio of regrets lies below a number."""
    if not ratio.known:
        return Finding(claim, str(ratio), UNKNOWN, "too few instances for an interval")
    if ratio.low <= below <= ratio.high:
        return Finding(claim, str(ratio), UNKNOWN, f"the interval holds {below:g}; more instances would tell")
    return Finding(claim, str(ratio), HOLDS if ratio.high < below else FAILS)


INTERVAL = "bands: 95 % intervals over instances"


def columns(
    rows: int, height: float, *, share_y: bool = True
) -> tuple[plots.Figure, list[dict[Distribution, plots.Axes]]]:
    """Make a figure with a column a distribution; each row maps a distribution to its axes."""
    figure = plots.blank(height, width=9.0)
    grid = figure.subplots(rows, len(DISTRIBUTIONS), squeeze=False, sharey="row" if share_y else False)
    return figure, [dict(zip(DISTRIBUTIONS, row, strict=True)) for row in grid]


def curve(
    ax: plots.Axes, x: Sequence[float] | Floats, band: Band, style: dict[str, Any], label: str,
    *, filled: bool = True,
) -> None:  # fmt: skip
    """Draw an estimate and, where asked for, its interval."""
    middle, low, high = band
    ax.plot(x, middle, label=label, **style)
    if filled:
        ax.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def instances_words(size: Size, agents: int | None = None) -> str:
    """Say which instances were taken, and in how many the quality constraint binds (among so many agents)."""
    places = [place for distribution in DISTRIBUTIONS for place in size.places(distribution, agents=agents)]
    bound = [f"{place.distribution} {place.seed}" for place in places if binds(place.market())]
    return (
        f"Instances are seeds 1 to {size.instances} of each distribution, in order, none left out; the quality "
        f"constraint binds in {len(bound)} of {len(places)}{': ' + ', '.join(bound) if bound else ''}. "
        f"{words.count(size.runs, 'run')} each, the same seeds for every method."
    )


def privacy_words(size: Size) -> str:
    """Say what the figures of privacy are about, and what is proved for the published noise."""
    return (
        f"Privacy is told for one {UNIT} (one agent's purchase from one producer in one round) at delta {DELTA:g}. The "
        f"published noise claims (1, {DELTA:g}); what is proved for it is ({PAPER.proved(size):g}, {DELTA:g}). Tight "
        "noise is the least that proves what it says."
    )


def privacy_note(size: Size, *, same: bool = False) -> str:
    """Say the same in a line below a figure; `same` where tight noise is drawn at paper's proved figure as well."""
    return (
        f"Unit {UNIT}: paper noise claims (1, {DELTA:g}) and proves ({PAPER.proved(size):g}, {DELTA:g}); tight noise "
        f"proves (1, {DELTA:g}){', or where said the same as paper noise' if same else ''}."
    )


def note(size: Size) -> str:
    """Say below a figure what was run, what the bands are, and what the figures of privacy are about."""
    return f"{size.instances} instances, {size.runs} runs each; {INTERVAL}.\n{privacy_note(size)}"


def cost_words(cost: Cost) -> str:
    """Say what a sweep took."""
    return (
        f"{words.count(cost.runs, 'run')} in {words.seconds(cost.wall)} with {cost.cores:.1f} cores in use on average; "
        f"{words.seconds(cost.cpu)} of CPU, {cost.speed / 1e6:.2f} million agent-rounds a second of it: "
        f"{words.seconds(cost.cpu / 2)} on two cores that do nothing else. Compilation is not counted."
    )


def against(mine: Floats, base: Floats) -> str:
    """Write the median over instances of mine / base with its interval; 1 where both are the same."""
    return "1" if np.array_equal(mine, base) else str(regret_ratio(mine, base))
