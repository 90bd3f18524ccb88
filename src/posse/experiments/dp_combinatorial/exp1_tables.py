"""Tables and sentences of EXP1."""

from __future__ import annotations

from collections.abc import Sequence

from posse.experiments.dp_combinatorial.agreement import PUBLISHED, Comparison, verdict
from posse.experiments.dp_combinatorial.methods import ALONE, ALONE_HALF, FCB, PAPER, TIGHT, TIGHT_HALF, Method
from posse.experiments.dp_combinatorial.problem import DISTRIBUTIONS, Place, Size
from posse.experiments.dp_combinatorial.statistics import at_end, ratio_of_means
from posse.experiments.dp_combinatorial.sweep import Cost, Outcomes
from posse.experiments.dp_combinatorial.wording import against, cost_words, instances_words, privacy_words
from posse.experiments.kit import Table
from posse.results import words
from posse.results.statistics import regret_ratio


def comparisons(found: Outcomes, size: Size) -> tuple[Comparison, ...]:
    """Put every published ratio beside ours."""
    made = []
    for distribution in DISTRIBUTIONS:
        places = size.places(distribution)
        base = at_end(found, places, FCB, size)
        for method in (PAPER, ALONE):
            mine = at_end(found, places, method, size)
            made.append(
                Comparison(
                    distribution, method.name, PUBLISHED[distribution][method.name], ratio_of_means(mine, base),
                    regret_ratio(mine, base),
                )
            )  # fmt: skip
    return tuple(made)


def published_table(made: Sequence[Comparison]) -> Table:
    """Say for every published ratio whether it lies in our intervals."""
    rows = tuple(
        (
            one.distribution, one.method, f"{one.published:g}", str(one.means), verdict(one.published, one.means),
            str(one.median), verdict(one.published, one.median),
        )
        for one in made
    )  # fmt: skip
    columns = (
        "distribution", "method", "published", "ours, ratio of means", "published lies", "ours, median of instances",
        "published lies",
    )  # fmt: skip
    return Table("Regret over that of FCB at the last round, 95 % intervals over instances", columns, rows)


def method_table(found: Outcomes, methods: Sequence[Method], size: Size) -> Table:
    """Every method, with its privacy."""
    rows = []
    for distribution in DISTRIBUTIONS:
        places = size.places(distribution)
        alone, fcb = at_end(found, places, ALONE, size), at_end(found, places, FCB, size)
        for method in methods:
            mine = at_end(found, places, method, size)
            rows.append((
                distribution, method.name, method.privacy(size), words.number(float(mine.mean())),
                against(mine, alone), "1" if method == FCB else str(ratio_of_means(mine, fcb)),
                _missed(found, places, method, size),
            ))  # fmt: skip
    columns = (
        "distribution", "method", "privacy", "regret an agent, mean", "FRR, median", "over FCB, ratio of means",
        "rounds below the threshold",
    )  # fmt: skip
    return Table("All methods at the last round", columns, tuple(rows))


def _missed(found: Outcomes, places: Sequence[Place], method: Method, size: Size) -> str:
    jobs = [job for job in found if job.place in places and job.method == method]
    share = sum(float(found[job].missed.mean()) for job in jobs) / len(jobs) / size.rounds
    return f"{100 * share:.2g} %" if share >= 1e-5 else "below 0.001 %"


def time_table(first: Cost, second: Cost) -> Table:
    """What the paper's part and ours took."""
    rows = tuple(
        (
            part, f"{cost.runs:,}", f"{cost.agent_rounds:,}", words.seconds(cost.wall), words.seconds(cost.cpu),
            f"{cost.speed / 1e6:.2f} million", f"{cost.cores:.2f}",
        )
        for part, cost in (("the paper's methods: alone, P-FCB, FCB", first), ("the other methods", second))
    )  # fmt: skip
    columns = ("part", "runs", "agent-rounds", "wall", "CPU", "agent-rounds a second of CPU", "cores in use")
    return Table("Time", columns, rows)


def notes(found: Outcomes, size: Size, cost: Cost) -> tuple[str, ...]:
    """What a reader must know about the regrets."""
    return (
        instances_words(size),
        f"{size.instances} instances are few, here as in the paper: intervals over so few cover less than 95 %, are "
        "wide all the same and so agree with much, and other fives would give other ratios. `dp-combinatorial/order` "
        "draws random fives from many instances and says how far they spread.",
        privacy_words(size),
        _honest(found, size),
        f"The paper's part: {cost_words(cost)}",
    )


def _honest(found: Outcomes, size: Size) -> str:
    """Say how the cheapest baseline does beside federation, and what federation adds to it."""
    alone, joined = [], []
    for distribution in DISTRIBUTIONS:
        places = size.places(distribution)
        half, paper, tight, both = (
            at_end(found, places, m, size).mean() for m in (ALONE_HALF, PAPER, TIGHT, TIGHT_HALF)
        )
        alone.append(f"{distribution} {half / paper:.2f} (paper noise) and {half / tight:.2f} (tight noise)")
        joined.append(f"{distribution} {both / half:.2f}")
    return (
        "Nobody needs a federation to explore less: the mean regret of agents alone with coefficient 0.5 instead of 1, "
        f"over that of P-FCB with coefficient 1, is {'; '.join(alone)}. Where all explore with 0.5, the mean regret of "
        f"P-FCB (tight noise) over that alone is {'; '.join(joined)}."
    )
