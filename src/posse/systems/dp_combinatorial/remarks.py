"""What a record of a market says beside its curves: what to buy, the threshold, noise, and what was
spent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from posse.policies.purchase.oracle import greedy
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.plans import Plan
from posse.privacy.dp.rounds import EveryRound
from posse.problems.markets.market import Market
from posse.results import words
from posse.results.section import Section
from posse.results.values import JSON, plain_dict
from posse.systems.dp_combinatorial.learning import Floats
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.dp_combinatorial.terms import Terms
from posse.systems.dp_combinatorial.twin import Outcome

LARGE = 0.1
"""Noise over what is reported, above which the paper would wait: it wants a magnitude between
them.
"""


def what_to_buy(
    market: Market, learnt: Sequence[Floats], bought: NDArray[np.int64], *, known: bool
) -> Section:
    """What every agent would buy at the qualities it learnt, added up by producer, beside what was
    bought.
    """
    buys = np.zeros((len(learnt), *market.cost.shape))
    out, work = np.zeros((2, len(market.producers)))
    for run, quality in enumerate(learnt):
        for j, row in enumerate(np.nan_to_num(quality)):
            greedy(
                row,
                market.cost[j],
                market.capacity[j].astype(np.float64),
                market.alpha,
                market.rho,
                out,
                work,
            )
            buys[run, j] = out
    seen = [~np.isnan(quality) for quality in learnt]
    counts = np.sum([one.sum(axis=0) for one in seen], axis=0)
    sums = np.sum([np.nan_to_num(quality).sum(axis=0) for quality in learnt], axis=0)
    units, agents = buys.sum(axis=1).mean(axis=0), (buys > 0).sum(axis=1).mean(axis=0)
    order = sorted(range(len(units)), key=lambda i: (-units[i], i))
    rows = tuple(
        (
            market.producers[i],
            words.number(round(float(units[i]), 1)),
            f"{agents[i]:.0f} of {len(market.agents)}",
            f"{sums[i] / counts[i]:.3f}" if counts[i] else words.UNKNOWN,
            *((f"{market.quality[:, i].mean():.3f}",) if known else ()),
            words.number(round(float(bought[:, i].mean()), 1)),
        )
        for i in order
    )
    columns = (
        "producer",
        "units a round",
        "agents that buy",
        "quality learnt",
        *(("true quality",) if known else ()),
    )
    note = (
        "At what was learnt by the end, the mean over runs; a quality is the mean of the agents "
        "that saw any."
    )
    return Section(
        "What to buy",
        (*columns, "bought in a run"),
        rows,
        (note,),
        tuple(range(1, len(columns) + 1)),
    )


def threshold(market: Market, settings: DpCombinatorial, outcome: Outcome, reached: int) -> Section:
    """How often purchases fell below the threshold by each round, beside the bound of the paper's
    proof.
    """
    n = len(market.agents) if settings.policy == "fcb" else 1
    share, steps = outcome.below[:, :reached].mean(axis=0), outcome.steps[:reached]
    chosen = sorted(
        {int(np.searchsorted(steps, mark)) for mark in np.geomspace(steps[0], steps[-1], 6).round()}
    )
    rows = tuple(
        (
            f"{steps[i]:,}",
            f"{100 * share[i]:.3g} %",
            f"{100 * bound_below(market, n, int(steps[i])):.3g} %",
        )
        for i in chosen
    )
    gap = float(np.abs(market.quality - market.alpha).min())
    notes = (
        f"Qualities are separated from {market.alpha:g} by {gap:.2g}: no producer's is nearer to "
        "the threshold (the "
        f"paper's gamma). Pure exploration took {settings.explore:,} rounds.",
        f"The bound is that of the paper's equation 4 for n = {n}: on rounds in which some quality "
        "lies outside its "
        "interval. An agent that takes upper ends for true can buy below the threshold while all "
        "lie inside.",
    )
    columns = ("up to round", "purchases below the threshold", "bound")
    return Section("Rounds below the threshold", columns, rows, notes, (0, 1, 2))


def bound_below(market: Market, n: int, t: int) -> float:
    """Bound on the share of rounds 1 to t in which some quality lies outside its interval, for n
    agents that pool.

    Equation 4 of the paper: in round s the chance is at most 2 k n^-3 s^-2 for a producer, k the
    largest capacity; here it is summed over the m producers, and over rounds by an integral from
    where it falls below 1.

    >>> from posse.problems.markets.instances import market_instance
    >>> market = market_instance(7, agents=2, producers=4)
    >>> [round(bound_below(market, 1, t), 3) for t in (1, 100, 10_000)]
    [1.0, 0.354, 0.004]
    """
    most = 2 * len(market.producers) * float(market.capacity.max()) / n**3
    sure = max(1.0, math.sqrt(most))
    return 1.0 if t <= sure else (sure + most / sure - most / t) / t


def first_noise(settings: DpCombinatorial, outcome: Outcome) -> list[str]:
    """Warn of a first report whose noise is above a tenth of what it is about."""
    terms, capacity = settings.load().terms, settings.load().market.capacity
    units = float(outcome.first.sum(axis=(1, 2)).mean()) if len(outcome.first) else 0.0
    noise = terms.multiplier(0) * float(capacity.sum()) if settings.noisy else 0.0
    return large_noise(terms, noise, units, "the first report")


def large_noise(terms: Terms, noise: float, units: float, whose: str) -> list[str]:
    """Warn of a first report by its noise (standard deviations, over producers) and the units that
    it is about.
    """
    if terms.method == "placebo" or not units or noise / units <= LARGE:
        return []
    remedy = (
        ""
        if terms.always
        else " Let the first report come later (start or reports), or ask for less privacy."
    )
    return [
        f"Noise of {whose} (round {terms.opening:,}) is {noise / units:.2g} of the units it is "
        f"about; above {LARGE:g} "
        f"it can spoil what agents know.{remedy}"
    ]


def sums_of_rounds(ledgers: Sequence[Ledger[Plan]]) -> list[Section]:
    """What noise in every round adds up to, by each way of adding; nothing where reports are
    few.
    """
    if (
        not ledgers
        or not isinstance(plan := ledgers[0].mechanism, EveryRound)
        or not ledgers[0].releases
    ):
        return []
    made = plan.claims(Counter({0: ledgers[0].releases}))
    rows = tuple((claim.how, claim.figure, "yes" if claim.proved else "no") for claim in made)
    notes = (
        "One entry is in one report. What all reports show together, such as a habit, is what adds "
        "up.",
    )
    return [
        Section(
            "What noise in every round adds up to",
            ("how", "(epsilon, delta)", "a proof"),
            rows,
            notes,
        )
    ]


def privacy_of(ledgers: Sequence[Ledger[Plan]]) -> tuple[Mapping[str, JSON], ...]:
    """Composed guarantees first, then every release; each run is a world of its own, and they all
    spend alike.
    """
    entries: list[Mapping[str, JSON]] = [
        {"party": ledger.party, **plain_dict(ledger.guarantee().simulated().entry(), "guarantee")}
        for ledger in ledgers
    ]
    return (
        *entries,
        *(plain_dict(entry, "release") for ledger in ledgers for entry in ledger.entries()),
    )
