"""How the figures of this paper look and read: one colour a method, a column a distribution, shared
sentences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from posse.core.statistics import Interval, regret_ratio, wilson
from posse.problems.markets.instances import Distribution, binds
from posse.results import plots, words
from posse.results.plots import DASHES, SERIES
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.dp_combinatorial import markets
from reproduction.dp_combinatorial.markets import (
    DELTA,
    DISTRIBUTIONS,
    PAPER,
    UNIT,
    Band,
    Cost,
    Method,
    Size,
)
from reproduction.kit import LEVEL, Floats, Mean, bonferroni, mean_of

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
    "naive, tight noise": (_GREEN, DASHES[1], "<"),
    "naive, all rounds in sequence": (_RED, DASHES[2], "v"),
    "naive, 0.01 each round": (_PINK, DASHES[3], "x"),
}
"""Colour, dashes and marker of a method."""
HOMOGENEOUS = "#6b8e23"
"""FCB among agents that are all equal."""


def line(method: Method) -> dict[str, Any]:
    """Colour and dashes of a method's line."""
    colour, dashes, _ = _LOOKS[method.name]
    return {"color": colour, "linestyle": dashes, "linewidth": 1.7}


def dots(method: Method) -> dict[str, Any]:
    """Colour and marker of a method's points."""
    colour, _, marker = _LOOKS[method.name]
    return {"color": colour, "marker": marker, "markersize": 5}


def saves(claim: str, ratio: Interval, instances: int, below: float = 1.0) -> Finding:
    """Judge a claim that a ratio of regrets lies below a number, over so many instances."""
    if not ratio.known:
        return Finding(claim, str(ratio), UNKNOWN, "too few instances for an interval")
    if ratio.low <= below <= ratio.high:
        away, half = abs(math.log(ratio.estimate / below)), math.log(ratio.high / ratio.low) / 2
        return Finding(
            claim,
            str(ratio),
            UNKNOWN,
            f"the interval includes {below:g}, and {enough(instances, half, away)}",
        )
    return Finding(claim, str(ratio), HOLDS if ratio.high < below else FAILS)


def share(claim: str, holds: Sequence[bool], least: float) -> Finding:
    """Judge a claim that something holds in at least a share of instances, by Wilson's 95 %
    interval.

    >>> (
    ...     share("order", [True] * 58 + [False] * 2, 0.9).measured,
    ...     share("order", [True] * 60, 0.9).verdict,
    ... )
    ('58 of 60, 97 % [89, 99]', 'holds')
    >>> share("order", [True] * 58 + [False] * 2, 0.9).because
    'the interval includes 90 %, and about 78 instances would decide'
    """
    hits, count = sum(holds), len(holds)
    low, high = wilson(hits, count, LEVEL)
    text = f"{hits} of {count}, {100 * hits / count:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
    if low > least or high < least:
        return Finding(claim, text, HOLDS if low > least else FAILS)
    # Wilson's interval ends where z standard errors, those of that share itself, lie between it and
    # what was seen.
    many = enough(
        1,
        NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt(least * (1 - least)),
        abs(hits / count - least),
    )
    return Finding(claim, text, UNKNOWN, f"the interval includes {100 * least:g} %, and {many}")


def below(claim: str, mean: Mean, margin: float, text: str, *, ratio: bool = False) -> Finding:
    """Judge a claim that a mean over instances lies below a margin; of a ratio, both are
    logarithms.

    >>> (
    ...     below("low", Mean(0.1, 0.05, 5), 0.25, "0.1").verdict,
    ...     below("low", Mean(0.2, 0.1, 5), 0.25, "0.2").because,
    ... )
    ('holds', 'the interval includes 0.25, and about 20 instances would decide')
    >>> below("less", Mean(-0.1, 0.2, 5), 0.0, "0.90", ratio=True).because
    'the interval includes 1, and about 20 instances would decide'
    """
    if mean.high < margin or mean.low > margin:
        return Finding(claim, text, HOLDS if mean.high < margin else FAILS)
    if math.isnan(mean.half):
        return Finding(claim, text, UNKNOWN, "too few instances for an interval")
    many = enough(mean.runs, mean.half, abs(mean.mean - margin))
    return Finding(
        claim,
        text,
        UNKNOWN,
        f"the interval includes {math.exp(margin) if ratio else margin:g}, and {many}",
    )


def times(mean: Mean) -> str:
    """Write the mean of logarithms of ratios as a ratio, with its interval.

    >>> times(Mean(0.0, math.log(2), 5))
    '1.00 [0.50, 2.00]'
    """
    if math.isnan(mean.half):
        return f"{math.exp(mean.mean):.2f}"
    return f"{math.exp(mean.mean):.2f} [{math.exp(mean.low):.2f}, {math.exp(mean.high):.2f}]"


def log_ratio(above: Floats, base: Floats, tests: int = 1) -> Mean:
    """Mean over instances of the logarithm of a ratio of regrets (instances, runs), one of several
    tests together.
    """
    return bonferroni(mean_of(np.log(above.mean(axis=1) / base.mean(axis=1))), tests)


def enough(instances: int, half: float, away: float) -> str:
    """Return how many instances would decide: half the width of an interval shrinks with the root of
    their number.

    >>> enough(5, 0.2, 0.1)
    'about 20 instances would decide'
    """
    if away <= half / 1000:
        return "no number of instances would decide: there is no difference"
    return f"about {math.ceil(instances * (half / away) ** 2 - 1e-9):,} instances would decide"


INTERVAL = "bands: 95 % intervals over instances"


def columns(
    rows: int, height: float, *, share_y: bool = True
) -> tuple[plots.Figure, list[dict[Distribution, plots.Axes]]]:
    """Make a figure with a column a distribution; each row maps a distribution to its axes."""
    figure = plots.blank(height, width=9.0)
    grid = figure.subplots(
        rows, len(DISTRIBUTIONS), squeeze=False, sharey="row" if share_y else False
    )
    return figure, [dict(zip(DISTRIBUTIONS, row, strict=True)) for row in grid]


def curve(
    ax: plots.Axes,
    x: Sequence[float] | Floats,
    band: Band,
    style: dict[str, Any],
    label: str,
    *,
    filled: bool = True,
) -> None:
    """Draw an estimate and, where asked for, its interval."""
    middle, low, high = band
    ax.plot(x, middle, label=label, **style)
    if filled:
        ax.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def instances_words(size: Size, agents: int | None = None) -> str:
    """Say which instances were taken, and in how many the quality constraint binds (among so many
    agents).
    """
    places = [
        place
        for distribution in DISTRIBUTIONS
        for place in size.places(distribution, agents=agents)
    ]
    bound = [f"{place.distribution} {place.seed}" for place in places if binds(place.market())]
    return (
        f"Instances are seeds 1 to {size.instances} of each distribution, in order, none left out; "
        "the quality "
        f"constraint binds in {len(bound)} of "
        f"{len(places)}{': ' + ', '.join(bound) if bound else ''}. "
        f"{words.count(size.runs, 'run')} each, the same seeds for every method."
    )


def privacy_words(size: Size) -> str:
    """Say what the figures of privacy are about, and what is proved for the published noise."""
    return (
        f"The privacy guarantee is for one {UNIT} (one agent's purchase from one producer in one round) at "
        f"delta {DELTA:g}. The "
        f"published noise claims (1, {DELTA:g}); what is proved for it is ({PAPER.proved(size):g}, "
        f"{DELTA:g}). Tight "
        "noise is the least that proves what it says."
    )


def privacy_note(size: Size, *, same: bool = False) -> str:
    """Say the same in a line below a figure; `same` where tight noise is drawn at paper's proved
    figure as well.
    """
    return (
        f"Unit {UNIT}: paper noise claims (1, {DELTA:g}) and proves ({PAPER.proved(size):g}, "
        f"{DELTA:g}); tight noise "
        f"proves (1, {DELTA:g}){', or where said the same as paper noise' if same else ''}."
    )


def note(size: Size) -> str:
    """Say below a figure what was run, what the bands are, and what the figures of privacy are
    about.
    """
    return f"{size.instances} instances, {size.runs} runs each; {INTERVAL}.\n{privacy_note(size)}"


def cost_words(cost: Cost) -> str:
    """Say what a sweep took."""
    return (
        f"{words.count(cost.runs, 'run')} in {words.seconds(cost.wall)} with {cost.cores:.1f} "
        "cores in use on average; "
        f"{words.seconds(cost.cpu)} of CPU, {cost.speed / 1e6:.2f} million agent-rounds a second "
        "of it: "
        f"{words.seconds(cost.cpu / 2)} on two cores that do nothing else. Compilation is not "
        "counted."
    )


def against(mine: Floats, base: Floats) -> str:
    """Write the median over instances of mine / base with its interval; 1 where both are the
    same.
    """
    return "1" if np.array_equal(mine, base) else str(regret_ratio(mine, base))
