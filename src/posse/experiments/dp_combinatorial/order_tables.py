"""Tables and sentences of the order."""

from __future__ import annotations

from collections.abc import Sequence

from posse.experiments.dp_combinatorial.fives import fives, published_words
from posse.experiments.dp_combinatorial.fresh import FIRST, Fresh
from posse.experiments.dp_combinatorial.methods import PAPER, TIGHT, matched
from posse.experiments.dp_combinatorial.problem import DELTA, UNIT, Size
from posse.experiments.dp_combinatorial.ranking import SAVING, SHARE, Break, Ranking
from posse.experiments.dp_combinatorial.statistics import ratio_of_means
from posse.experiments.dp_combinatorial.sweep import Cost
from posse.experiments.dp_combinatorial.wording import cost_words, privacy_words
from posse.experiments.kit import Table
from posse.results import words
from posse.results.statistics import Interval, regret_ratio


def target(reached: bool) -> str:
    """The word for a target."""
    return "reached" if reached else "missed"


def share_words(holds: Sequence[bool]) -> str:
    """Write a share and whether it reaches the target.

    >>> share_words([True] * 9 + [False]), share_words([True, False])
    ('9 of 10 (90 %): reached', '1 of 2 (50 %): missed')
    """
    share = sum(holds) / len(holds)
    return f"{sum(holds)} of {len(holds)} ({100 * share:.0f} %): {target(share >= SHARE)}"


def saving_words(ratio: Interval) -> str:
    """Say whether tight noise saves what it should, from regret with tight over regret with paper noise.

    >>> saving_words(Interval(0.70, 0.60, 0.85, level=0.95, resamples=1, over="instances"))
    'reached by the median, not by the whole interval'
    """
    if ratio.estimate > 1 - SAVING:
        return "missed"
    return "reached by the " + ("whole interval" if ratio.high <= 1 - SAVING else "median, not by the whole interval")


def order_table(rankings: Sequence[Ranking]) -> Table:
    """How often the order holds."""
    rows: list[tuple[str, str, str]] = [
        (one.distribution, share_words(one.holds), ", ".join(_broken(one)) or "none") for one in rankings
    ]
    both = [held for one in rankings for held in one.holds]
    rows.append(("both", share_words(both), ""))
    columns = ("distribution", "instances in order", "out of order")
    return Table(
        f"Regret alone > P-FCB (paper noise) > FCB: target {100 * SHARE:g} % of instances", columns, tuple(rows)
    )


def _broken(one: Ranking) -> list[str]:
    return [str(seed) for seed, held in zip(one.seeds, one.holds, strict=True) if not held]


def noise_table(rankings: Sequence[Ranking], size: Size) -> Table:
    """Tight noise beside paper noise, at the same claimed and at the same proved figure."""
    proved = f"({PAPER.proved(size):g}, {DELTA:g})"
    rows = []
    for one in rankings:
        claimed, same = regret_ratio(one.tight, one.paper), regret_ratio(one.matched, one.paper)
        rows += [
            (
                one.distribution,
                f"claimed (1, {DELTA:g})",
                f"(1, {DELTA:g})",
                proved,
                str(claimed),
                saving_words(claimed),
            ),
            (one.distribution, f"proved {proved}", proved, proved, str(same), "no target"),
        ]
    columns = (
        "distribution", "the same", "tight noise proves", "paper noise proves",
        "regret with tight over with paper, median", f"target: {100 * SAVING:g} % less",
    )  # fmt: skip
    return Table(f"Tight noise beside paper noise, unit {UNIT}", columns, tuple(rows))


def ratio_table(rankings: Sequence[Ranking], size: Size) -> Table:
    """FRR and ratios to FCB of every method."""
    rows = []
    for one in rankings:
        regrets = {PAPER: one.paper, TIGHT: one.tight, matched(size): one.matched}
        for method, mine in regrets.items():
            rows.append((
                one.distribution, method.name, method.privacy(size), str(regret_ratio(mine, one.alone)),
                str(ratio_of_means(mine, one.fcb)), str(regret_ratio(mine, one.fcb)),
            ))  # fmt: skip
        rows += [
            (one.distribution, "FCB", "none: in the clear", str(regret_ratio(one.fcb, one.alone)), "1", "1"),
            (
                one.distribution, "alone", "nothing is sent", "1", str(ratio_of_means(one.alone, one.fcb)),
                str(regret_ratio(one.alone, one.fcb)),
            ),
        ]  # fmt: skip
    columns = ("distribution", "method", "privacy", "FRR, median", "over FCB, ratio of means", "over FCB, median")
    return Table("Ratios of regret, 95 % intervals over instances", columns, tuple(rows))


def break_table(breaks: Sequence[Break]) -> Table:
    """Every instance out of order."""
    rows = tuple(
        (
            one.distribution, str(one.seed), words.number(one.alone), words.number(one.paper), words.number(one.fcb),
            "P-FCB not below alone" if one.paper >= one.alone else "FCB not below P-FCB", f"{one.runs} of {one.of}",
            f"{one.worse} of {one.agents}, the worst {one.worst:.2f} times", str(one.seen),
        )
        for one in breaks
    )  # fmt: skip
    columns = (
        "distribution", "instance", "alone", "P-FCB, paper noise", "FCB", "what breaks", "runs out of order",
        "agents that lose by taking part", "their estimates at the last round",
    )  # fmt: skip
    return Table("Instances out of order (regret an agent)", columns, rows)


def headline(rankings: Sequence[Ranking]) -> str:
    """Say which targets are reached."""
    both = [held for one in rankings for held in one.holds]
    each = "; ".join(_saved(one) for one in rankings)
    return (
        f"The order alone > P-FCB > FCB holds in {share_words(both)}. Regret with tight noise over that with paper "
        f"noise, unit {UNIT}: {each}. {published_words(fives(rankings))}"
    )


def _saved(one: Ranking) -> str:
    claimed, proved = regret_ratio(one.tight, one.paper), regret_ratio(one.matched, one.paper)
    return (
        f"{one.distribution} {claimed} at the same claimed (1, {DELTA:g}) (target of {100 * SAVING:g} % less "
        f"{saving_words(claimed)}), {proved} at the same proved figure"
    )


def notes(taken: Sequence[Fresh], breaks: Sequence[Break], size: Size, cost: Cost) -> tuple[str, ...]:
    """What a reader must know about the order."""
    skipped = "; ".join(
        f"{one.distribution}: {FIRST} to {one.kept[-1].seed} without {', '.join(map(str, one.skipped)) or 'exception'}"
        for one in taken
    )
    return (
        f"Instances are consecutive seeds, without those whose quality constraint binds ({skipped}): "
        f"{size.instances} of each distribution, {words.count(size.runs, 'run')} each, the same seeds for every "
        "method. Whether it binds is known before anything is run.",
        privacy_words(size),
        _why(breaks),
        f"Time: {cost_words(cost)}",
    )


def _why(breaks: Sequence[Break]) -> str:
    if not breaks:
        return "No instance is out of order."
    losing = [one for one in breaks if one.paper >= one.alone]
    seen = [one for one in losing if one.seen.left + one.seen.kept > 0]
    return (
        f"{words.count(len(breaks), 'instance')} out of order, in {len(losing)} because P-FCB has not less regret than "
        f"alone; in {len(seen)} of these some agent's decision about a producer is wrong at the last round because "
        "noise that it accepted holds its estimate beside the truth. Reports count ten times when accepted, and are "
        "accepted when their ratio is near the agent's own estimate, however large their noise is."
    )
