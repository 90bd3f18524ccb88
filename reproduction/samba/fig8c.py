"""Figure 8 (c): cumulative reward of the six policies, beside the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from posse.results import plots
from posse.results.plots import INK
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.kit import Analysis, Floats, Table, Watch, legend_entry, write_files
from reproduction.samba import agreement, problem
from reproduction.samba.agreement import (
    BEYOND,
    LIMIT,
    OWN,
    SHARED,
    THEIRS,
    Comparison,
    Variant,
    verdict,
)
from reproduction.samba.problem import (
    BUDGETS,
    COLOURS,
    DATASETS,
    MARKERS,
    POLICY_NAMES,
    TITLES,
)

RUNS = 10
SIZES = (10, 100)
SMALL_RUNS = 12


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Simulate our world, replay theirs, compare."""
    sizes = SIZES[:1] if small else SIZES
    runs = SMALL_RUNS if small else RUNS
    budgets = BUDGETS[:2] if small else BUDGETS
    plan = list(product(DATASETS, sizes, POLICY_NAMES))
    work = sum(arms for _, arms, _ in plan)
    comparisons: list[Comparison] = []
    behind = 0
    for dataset, arms, name in plan:
        watch(problem.cell_words((dataset, arms, name)), 0.7 * behind / work)
        comparisons += agreement.compare_cells(dataset, name, arms, budgets, runs)
        behind += arms
    variants: list[Variant] = []
    implied: list[agreement.Implied] = []
    for place, dataset in enumerate(DATASETS):
        watch(f"{dataset}, Thompson with shared streams", 0.7 + 0.15 * place)
        for one in comparisons:
            key = (one.kind, one.dataset, one.policy, one.budget)
            if key == ("benchmarks", dataset, "thompson", budgets[-1]) and one.arms == SIZES[0]:
                variants += agreement.thompson_variants(one)
        watch(f"{dataset}, parameters that the rewards imply", 0.8 + 0.15 * place)
        implied += agreement.imply(dataset, budgets, runs, small=small)
    watch("figure and analysis", 1.0)
    return analyse(comparisons, variants, implied, out)


def analyse(
    comparisons: Sequence[Comparison],
    variants: Sequence[Variant],
    implied: Sequence[agreement.Implied],
    out: Path,
) -> Analysis:
    """Write rows and figure, and say what agrees and what does not."""
    files = write_files(
        out, "fig8c", [one.row() for one in comparisons], reward_figure(comparisons)
    )
    tables = (
        verdict_table(comparisons),
        thompson_table(variants),
        agreement.implied_table(implied),
        reward_table(comparisons),
    )
    notes = reward_notes(comparisons, variants)
    return Analysis(headline(comparisons), tables, notes, files, findings(comparisons))


def findings(comparisons: Sequence[Comparison]) -> tuple[Finding, ...]:
    """Judge the replayed rewards, the rankings on two data sets, and whether Thompson is always
    best.
    """
    loop = loop_of(comparisons)
    cells: dict[tuple[str, int, int], dict[str, Comparison]] = {}
    for one in comparisons:
        if one.kind == "benchmarks":
            cells.setdefault((one.dataset, one.arms, one.budget), {})[one.policy] = one
    beaten = {
        who: sum(
            any(_above(own[name], own["thompson"], who) for name in own) for own in cells.values()
        )
        for who in ("ours", "theirs")
    }
    here, there = beaten["ours"], beaten["theirs"]
    first = sum(
        own["thompson"].ours.mean >= max(one.ours.mean for one in own.values())
        for own in cells.values()
    )
    text = (
        f"Thompson sampling has the largest mean in {first} of {len(cells)} cells here; another policy "
        f"is clearly above in {here} cells "
    )
    many = max(
        (
            agreement.runs_to_tell(one.ours, own["thompson"].ours)
            for own in cells.values()
            for one in own.values()
            if one.ours.mean > own["thompson"].ours.mean
        ),
        default=0,
    )
    thompson = best_of(
        "thompson", f"{text}here, {there} published", here or there, first == len(cells), many
    )
    turned = [
        f"{a} and {b}"
        for (dataset, arms, budget), own in cells.items()
        if dataset == DATASETS[0] and (DATASETS[1], arms, budget) in cells
        for a in own
        for b in own
        if _above(own[a], own[b], "ours")
        and _above(cells[DATASETS[1], arms, budget][b], cells[DATASETS[1], arms, budget][a], "ours")
    ]
    named = ", ".join(dict.fromkeys(turned)) or "none"
    rankings = Finding(
        "rankings",
        f"pairs whose order is clearly reversed on the other data set: {named}",
        HOLDS if turned else UNKNOWN,
        "" if turned else "no pair is clearly reversed; more runs would decide",
    )
    return loop, rankings, thompson


def loop_of(comparisons: Sequence[Comparison]) -> Finding:
    """Judge the replayed rewards; cells that differ where fewer runs were replayed than published
    cannot tell.
    """
    others, count = (
        [one for one in comparisons if verdict(one.z_replay) != "agrees"],
        len(comparisons),
    )
    text = (
        f"{count - len(others)} of {count} cells have the published reward, on the rewards that the "
        f"authors drew (|z| < {LIMIT:g})"
    )
    chance = count * BEYOND
    if len(others) <= chance + 3 * max(1.0, chance) ** 0.5:
        return Finding("loop", text, HOLDS)
    if any(one.replayed.runs >= one.theirs.runs for one in others):
        return Finding("loop", text, FAILS)
    few, most = others[0].replayed.runs, max(one.theirs.runs for one in others)
    names = ", ".join(
        dict.fromkeys(f"{one.policy} on {TITLES[one.dataset]}, K = {one.arms}" for one in others)
    )
    why = (
        f"the others are {names}: {few} of the authors' {most} runs were repeated; {most} runs "
        "would decide"
    )
    return Finding("loop", text, UNKNOWN, why)


def best_of(claim: str, text: str, beaten: int, first: bool, runs: int = 0) -> Finding:
    """Judge "always best": not if another is clearly above somewhere, yes if its mean is the
    largest everywhere.

    `runs` would make clear what is not.
    """
    if beaten or first:
        return Finding(claim, text, FAILS if beaten else HOLDS)
    return Finding(
        claim,
        text,
        UNKNOWN,
        f"another policy has a larger mean in a cell, but not clearly; about {runs:,} runs would decide",
    )


def _above(one: Comparison, other: Comparison, who: str) -> bool:
    return agreement.z_score(getattr(one, who), getattr(other, who)) > LIMIT


def agreeing(zs: Sequence[float]) -> str:
    """How many agree, of how many.

    >>> agreeing([0.5, -2.9, 3.0])
    '2 of 3'
    """
    return f"{sum(verdict(z) == 'agrees' for z in zs)} of {len(zs)}"


def verdict_table(comparisons: Sequence[Comparison]) -> Table:
    """Count agreement by data and policy, the K = 10 cells (seen by the inference) apart from the
    others.
    """
    rows = []
    for dataset, name in dict.fromkeys((one.dataset, one.policy) for one in comparisons):
        own = [one for one in comparisons if (one.dataset, one.policy) == (dataset, name)]
        for label, group in (
            ("10", [one for one in own if one.arms == 10]),
            ("20 to 100", [one for one in own if one.arms > 10]),
        ):
            if group:
                replayed = [one.z_replay for one in group]
                rows.append(
                    (
                        TITLES[dataset],
                        name,
                        label,
                        agreeing([one.z for one in group]),
                        agreeing([one.z_world for one in group]),
                        agreeing(replayed),
                        f"{max(replayed, key=abs):+.1f}",
                    )
                )
    columns = (
        "data",
        "policy",
        "K",
        "ours agree (their runs counted as independent)",
        "ours agree (their one world's luck counted)",
        "replayed in their world agree",
        "largest z, replayed",
    )
    return Table(f"Agreement: |z| < {LIMIT:g}", columns, tuple(rows))


def reward_table(comparisons: Sequence[Comparison]) -> Table:
    """Every cell."""
    rows = tuple(
        (
            TITLES[one.dataset],
            one.policy,
            str(one.arms),
            str(one.budget),
            str(one.theirs.runs),
            str(one.theirs),
            str(one.ours),
            f"{one.z:+.1f}",
            f"{one.z_world:+.1f}",
            str(one.replayed),
            f"{one.z_replay:+.1f}",
            verdict(one.z_replay),
        )
        for one in comparisons
    )
    columns = (
        "data",
        "policy",
        "K",
        "N",
        "published runs",
        "published ± s.e.",
        "ours ± s.e.",
        "z",
        "z, world's luck counted",
        "replayed ± s.e.",
        "z, replayed",
        "replayed",
    )
    return Table("Cumulative rewards", columns, rows)


def thompson_table(variants: Sequence[Variant]) -> Table:
    """Thompson sampling with what the authors' code does switched on one by one."""
    rows = []
    for one in variants:
        z = agreement.z_score(one.reward, one.theirs)
        rows.append(
            (
                TITLES[one.dataset],
                str(one.arms),
                str(one.budget),
                "theirs" if one.their_world else "independent",
                one.draws,
                str(one.reward),
                str(one.theirs),
                f"{one.reward.mean - one.theirs.mean:+.0f}",
                f"{z:+.1f}",
                verdict(z),
            )
        )
    columns = (
        "data",
        "K",
        "N",
        "rewards",
        "owners draw from",
        "reward",
        "published",
        "difference",
        "z",
        "verdict",
    )
    return Table("Thompson sampling: controls", columns, tuple(rows))


def headline(comparisons: Sequence[Comparison]) -> str:
    """The result in one sentence."""
    others = [one for one in comparisons if one.policy != "thompson"]
    mine = [one for one in comparisons if one.policy == "thompson"]
    return (
        f"In the authors' own world our policies give the published reward (|z| < {LIMIT:g}) in "
        f"{agreeing([one.z_replay for one in others])} cells without Thompson and "
        f"{agreeing([one.z_replay for one in mine])} with it; in independent worlds in "
        f"{agreeing([one.z_world for one in others])} and "
        f"{agreeing([one.z_world for one in mine])}, once the luck of "
        "the one world that their runs share is counted."
    )


def reward_notes(comparisons: Sequence[Comparison], variants: Sequence[Variant]) -> tuple[str, ...]:
    """What a reader must know about the rewards."""
    low, high = agreement.draw_correlation(THEIRS)
    own = max(abs(value) for value in agreement.draw_correlation(OWN))
    tight = [one for one in comparisons if one.policy == "ucb"]
    ratio = sum(one.theirs.sd / one.ours.sd for one in tight) / len(tight)
    count = len(comparisons)
    return (
        "Rewards come from the plain twin; that a secure run gives the same reward bit for bit is "
        "proven by the tests "
        "of equivalence, not here.",
        f"{count} comparisons; if all numbers agreed and were independent, {count * BEYOND:.1f} "
        "would still differ. "
        "They are not independent: budgets of one run share its beginning, here and there.",
        "Parameters and the decreasing schedule (epsilon = 1 / log2 t) are those of the authors' "
        "repository; the paper "
        "does not print them. Which values the published rewards allow is checked at "
        "K = 10 alone (more "
        "than one, often), so agreement at the other K is not circular. Arms are the K largest of "
        "the authors' means, "
        "as in their benchmark; these means divide by all users.",
        "The authors' runs are not independent: all arms of a step are compared with one number, "
        "and run r + 1 sees "
        f"the numbers of run r one step earlier. UCB's published standard deviation is {ratio:.2f} "
        "of that of "
        "independent runs. Counted as independent, their mean looks more certain than it is; "
        "`replayed` puts our "
        f"policies into their world instead (their first {comparisons[0].ours.runs} runs).",
        "Thompson: in the authors' code all owners draw from one stream. Samples of five arms then "
        "correlate "
        f"{low:.2f} to {high:.2f}; with own streams at most {own:.2f} in size. "
        + _thompson_words(variants),
    )


def _thompson_words(variants: Sequence[Variant]) -> str:
    """Say, from the numbers, what each control does to the distance from the published reward at
    the largest K.
    """
    largest = max(variant.arms for variant in variants)

    def distance(their_world: bool, draws: str) -> float:
        chosen = [
            v for v in variants if (v.arms, v.their_world, v.draws) == (largest, their_world, draws)
        ]
        return sum(abs(v.reward.mean - v.theirs.mean) for v in chosen) / len(chosen)

    own, stream, world = distance(False, OWN), distance(False, SHARED), distance(True, OWN)
    both, exact = distance(True, SHARED), distance(True, THEIRS)
    nearer = "nearer to" if exact < min(own, world) else "not nearer to"
    return (
        f"Mean distance from the published reward at K = {largest}: {own:.0f} with independent "
        "rewards and own "
        f"streams, {stream:.0f} with one stream alone, {world:.0f} in their world alone, "
        f"{both:.0f} with both, and "
        f"{exact:.0f} with their sampler of Beta as well (that is `replayed`): what their code "
        f"does lands {nearer} the "
        "published reward. With one stream the samples of the arms are not independent, as "
        "Thompson sampling asks: "
        "the published numbers are those of another policy."
    )


def reward_figure(comparisons: Sequence[Comparison]) -> plots.Figure:
    """Draw cumulative reward against N at the largest K above, and what it is a pull below, a
    column a data set.
    """
    largest = max(one.arms for one in comparisons)
    kind = "rewards" if any(one.kind == "rewards" for one in comparisons) else "benchmarks"
    chosen = [one for one in comparisons if one.arms == largest and one.kind == kind]
    datasets = list(dict.fromkeys(one.dataset for one in chosen))
    figure = plots.blank(7.6, width=9.0)
    grid = figure.subplots(2, len(datasets), squeeze=False, sharex=True)
    for j, dataset in enumerate(datasets):
        own = [one for one in chosen if one.dataset == dataset]
        _panel(grid[0][j], own, per_pull=False)
        _panel(grid[1][j], own, per_pull=True)
        kit.title(grid[0][j], f"{TITLES[dataset]}, K = {largest}")
    signs = [
        *(
            legend_entry(name, color=COLOURS[name], marker=MARKERS[name], markersize=5)
            for name in POLICY_NAMES
        ),
        legend_entry("ours, independent worlds ± 2 s.e.", color=INK, linestyle="-"),
        legend_entry("ours, in the authors' world", color=INK, linestyle=(0, (5, 2))),
        legend_entry(
            "published ± 2 s.e.", color=INK, marker="o", markerfacecolor="white", linestyle=""
        ),
    ]
    kit.legend(figure, None, 3, extra=signs, length=2.2)
    return figure


def _panel(ax: plots.Axes, chosen: Sequence[Comparison], *, per_pull: bool) -> None:
    quantity = "reward a pull" if per_pull else "cumulative reward (thousands)"
    plots.style(ax, x="budget N (thousands of pulls)", y=quantity)
    for name in dict.fromkeys(one.policy for one in chosen):
        own = [one for one in chosen if one.policy == name]
        x = [one.budget / 1000 for one in own]
        colour = COLOURS[name]

        def scaled(values: Iterable[float], own: Sequence[Comparison] = own) -> Floats:
            """Divide by the pulls, or by a thousand."""
            return np.array(
                [v / (one.budget if per_pull else 1000) for v, one in zip(values, own, strict=True)]
            )

        ours = scaled(one.ours.mean for one in own)
        width = scaled(2 * one.ours.error for one in own)
        ax.plot(x, ours, "-", color=colour, linewidth=1.5)
        ax.fill_between(x, ours - width, ours + width, color=colour, alpha=0.16, linewidth=0)
        again = scaled(one.replayed.mean for one in own)
        ax.plot(x, again, color=colour, linestyle=(0, (5, 2)), linewidth=1.2)
        ax.errorbar(
            x,
            scaled(one.theirs.mean for one in own),
            yerr=scaled(2 * one.theirs.error for one in own),
            fmt=MARKERS[name],
            color=colour,
            markerfacecolor="white",
            markersize=5.5,
            elinewidth=1.0,
            capsize=2,
        )


FIG8C = problem.REFERENCE.experiment(
    "fig8c", "Samba, figure 8 (c): cumulative reward", ("reward",), sweep, "figure 8 (c)"
)
