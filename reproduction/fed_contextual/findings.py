"""What the paper claims and what came out: statements from paired differences, tables and pictures
of lines.

A claim holds, does not hold, or cannot be told from the seeds that were run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posse.core import statistics
from posse.results import plots
from posse.results.plots import INK
from reproduction import claims, kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.fed_contextual.problem import SETTINGS, Form, Printed
from reproduction.fed_contextual.runs import LABELS, Found
from reproduction.kit import Floats, Mean, Row, Table, mean_of

TOLERANCE = 0.05
"""Differences below this share of the reward are small: an interval within it shows that two lines
are alike.
"""

NARROW = 0.1
"""Share of half an interval below which its distance from the number that decides is called
narrow.
"""

Ends = Mapping[str, Floats]
"""Rewards at the end by line, one a seed; seeds are paired."""


@dataclass(frozen=True)
class Statement:
    """A claim, the difference that it is told from, and what that says."""

    claim: str
    difference: Mean
    verdict: str
    edge: float = math.inf
    """How far the interval stays from the number that would leave the claim untold."""

    @property
    def because(self) -> str:
        """Say how many seeds would tell, or that the verdict is narrow: a GPU does not repeat a run
        bit for bit.

        >>> Statement("more", Mean(0.2, 0.19, 9), HOLDS, 0.01).because
        'by a margin of 0.0100: another run on a GPU could leave it open'
        """
        if self.verdict == UNKNOWN:
            return kit.runs_needed(self.difference)
        narrow = self.edge < NARROW * self.difference.half
        return (
            f"by a margin of {self.edge:.4f}: another run on a GPU could leave it open"
            if narrow
            else ""
        )

    @property
    def words(self) -> str:
        """One sentence."""
        why = f"; {self.because}" if self.because and self.verdict != UNKNOWN else ""
        return f"{self.claim}: {self.verdict} ({self.difference.text(sign=True)}){why}."

    @property
    def finding(self) -> Finding:
        """The statement as a part of a claim."""
        return Finding(self.claim, self.difference.text(sign=True), self.verdict, self.because)


def above(one: Floats, other: Floats) -> Mean:
    """Average the difference of two lines over the seeds that both have: 1, 2, ..."""
    both = min(len(one), len(other))
    return mean_of(one[:both] - other[:both])


def better(claim: str, one: Floats, other: Floats) -> Statement:
    """Claim that one line earns more: holds if the whole interval is above 0, does not if it is
    below.

    >>> better("more", np.array([0.5, 0.6, 0.7]), np.array([0.1, 0.21, 0.29])).verdict
    'holds'
    """
    gap = above(one, other)
    return Statement(
        claim, gap, HOLDS if gap.low > 0 else FAILS if gap.high < 0 else UNKNOWN, _edge(gap)
    )


def no_worse(claim: str, one: Floats, other: Floats) -> Statement:
    """Claim that one line earns as much or more.

    Holds if the interval reaches 0 and not further below it than the tolerance; does not if all of
    it is below 0.
    """
    gap = above(one, other)
    if gap.high < 0:
        return Statement(claim, gap, FAILS, -gap.high)
    small = TOLERANCE * abs(float(other.mean()))
    return Statement(claim, gap, HOLDS if gap.low >= -small else UNKNOWN, gap.low + small)


def alike(claim: str, one: Floats, other: Floats) -> Statement:
    """Claim that two lines earn the same: holds if the interval is within the tolerance, does not
    if it is beyond 0.
    """
    gap = above(one, other)
    small = TOLERANCE * abs(float(other.mean()))
    if (most := max(abs(gap.low), abs(gap.high))) <= small:
        return Statement(claim, gap, HOLDS, small - most)
    return Statement(claim, gap, FAILS if gap.low > 0 or gap.high < 0 else UNKNOWN, _edge(gap))


def _edge(gap: Mean) -> float:
    return min(abs(gap.low), abs(gap.high))


def exploring(ends: Ends, greedy: str, others: Sequence[str]) -> list[Statement]:
    """Claim of every policy that explores that it earns no less than Greedy."""
    return [
        no_worse(f"{other} earns no less than {greedy}", ends[other], ends[greedy])
        for other in others
    ]


def close_to_best(ends: Ends, own: str, others: Sequence[str]) -> Statement:
    """Claim that a line is the best, or that its interval reaches the best: against the best of the
    others.
    """
    best = max(others, key=lambda other: float(ends[other].mean()))
    return no_worse(
        f"{own} earns no less than the best other policy ({best})",
        ends[own],
        ends[best],
    )


@dataclass(frozen=True)
class Spread:
    """Standard deviation over seeds as a share of the mean, with a bound that it is below in 95 of
    100 cases.
    """

    share: float
    bound: float

    @property
    def verdict(self) -> str:
        """Whether it is negligible: below the tolerance."""
        return HOLDS if self.bound <= TOLERANCE else FAILS if self.share > TOLERANCE else UNKNOWN


def spread(values: Floats) -> Spread:
    """Measure the spread over seeds; the bound is by chi-squared (Wilson and Hilferty's form of its
    quantile).

    >>> spread(np.array([0.70, 0.701, 0.699])).verdict
    'holds'
    """
    free = len(values) - 1
    share = float(values.std(ddof=1)) / abs(float(values.mean()))
    root = 1 - 2 / (9 * free) - 1.6449 * math.sqrt(2 / (9 * free))
    return Spread(share, share * math.sqrt(1 / root**3) if root > 0 else math.inf)


def statement_table(statements: Sequence[Statement]) -> Table:
    """Every claim with its difference."""
    rows = tuple((one.claim, one.difference.text(sign=True), one.verdict) for one in statements)
    return Table(
        "What the paper says, here",
        ("claim", "difference ± 95 % t interval, paired by seed", "so"),
        rows,
    )


def judged(claim: str, statements: Sequence[Statement]) -> Finding:
    """Judge a claim of the paper by statements that all must hold."""
    return claims.combined(claim, [one.finding for one in statements])


def chosen(claim: str, found: Sequence[Found], printed: Mapping[str, Printed]) -> Finding:
    """Put hyper-parameters chosen here beside the paper's; other data and grids choose others."""
    own = {
        one.line.name: one.chosen
        for one in found
        if one.chosen is not None and one.line.name in printed
    }
    same = sum(
        (one.client, one.server) == (printed[name].client, printed[name].server)
        for name, one in own.items()
    )
    text = "; ".join(
        f"{name.partition('-')[2]} {one.client:g}/{one.server:g} "
        f"(paper {printed[name].client:g}/{printed[name].server:g})"
        for name, one in own.items()
    )
    because = (
        f"{same} of {len(own)} pairs of rates are the paper's; data, rounds and grid are not the "
        "paper's"
    )
    if all(math.isnan(one.reward) for one in own.values()):
        because = "rates are taken from the paper's table: none were chosen here"
    return Finding(claim, text, UNKNOWN, because)


def counts(statements: Sequence[Statement]) -> str:
    """How many claims hold.

    >>> counts([Statement("a", Mean(1, 0.1, 3), HOLDS), Statement("b", Mean(0, 0.1, 3), UNKNOWN)])
    '1 of 2 claims holds, 0 do not, 1 cannot be told'
    """
    held, failed, open_ = (
        sum(one.verdict == word for one in statements) for word in (HOLDS, FAILS, UNKNOWN)
    )
    return (
        f"{held} of {len(statements)} claims {'holds' if held == 1 else 'hold'}, {failed} "
        f"{'does' if failed == 1 else 'do'} not, {open_} cannot be told"
    )


# Tables.

POINTS = 100
"""Rounds of a line that are kept as rows, at most."""


def reward_table(found: Sequence[Found], against: Found | None = None) -> Table:
    """Rewards over all rounds and over the last tenth of them, and the difference from one line."""
    columns = ["line", "average reward, all rounds", "average reward, last tenth of rounds"]
    rows = []
    for one in found:
        reward, samples = (np.asarray(leaf[0], np.float64) for leaf in one.result.seen[:2])
        last = max(1, reward.shape[-1] // 10)
        late = reward[:, -last:].sum(axis=-1) / samples[:, -last:].sum(axis=-1).clip(1)
        row = [one.line.label, mean_of(one.ends).text(), mean_of(late).text()]
        if against is not None:
            row.append("-" if one is against else above(one.ends, against.ends).text(sign=True))
        rows.append(tuple(row))
    if against is not None:
        columns.append(f"all rounds, above {against.line.label}")
    return Table("Reward, mean over seeds ± 95 % t interval", tuple(columns), tuple(rows))


def rate_table(found: Sequence[Found], printed: Mapping[str, Printed], table: str) -> Table:
    """Hyper-parameters that were chosen, beside those that the paper prints (by the name of the
    line).
    """
    rows = []
    for one in found:
        if one.chosen is None:
            continue
        own = one.chosen
        paper = printed.get(one.line.name)
        rows.append(
            (
                one.line.label,
                f"{own.client:g}",
                f"{own.server:g}",
                own.explore,
                own.edge,
                *(
                    ("-", "-", "-")
                    if paper is None
                    else (f"{paper.client:g}", f"{paper.server:g}", paper.explore)
                ),
            )
        )
    columns = (
        "line",
        "client rate",
        "server rate",
        "exploration",
        "at an edge of its grid",
        "paper: client",
        "server",
        "exploration of the paper",
    )
    return Table(f"Hyper-parameters chosen here, and the paper's ({table})", columns, tuple(rows))


def rows_of(found: Sequence[Found]) -> list[Row]:
    """Give what every seed of every line showed, at up to a hundred rounds."""
    rows: list[Row] = []
    for one in found:
        rounds = one.curves.shape[1]
        every = max(1, rounds // POINTS)
        for number, seed in enumerate(one.result.job["seeds"]):
            rows += [
                {
                    "line": one.line.name,
                    "setting": one.line.figure,
                    "label": one.line.label,
                    "seed": int(seed),
                    "round": at + 1,
                    "average_reward": float(one.curves[number, at]),
                    "probability": float(one.probabilities[number, at]),
                }
                for at in range(every - 1, rounds, every)
            ]
    return rows


ALONE = (
    " (one seed: another seed may choose other rates, which changes a mean by more than its "
    "interval)"
)


def protocol_note(form: Form, kind: str) -> str:
    """Say at what size a figure was made, and how hyper-parameters were chosen."""
    size = form.size(kind)
    what = {
        "letters": "digits called letters of both cases, 60 Dirichlet clients, a linear model",
        "bags": "made-up texts of 90 users with 20 tags, a linear model",
        "emnist": "EMNIST by class, test part (116,323 images, 590 Dirichlet clients of 197; the paper has 3,400 "
        f"writers), a network of {size.channels[0]} and {size.channels[1]} channels and "
        f"{size.hidden} hidden units "
        "(paper: 32, 64 and 128)",
        "stackexchange": "questions of three small Stack Exchange sites (1,672 of 696 users, 50 tags; the paper has "
        "342,477 users of StackOverflow), so that every client is met many times",
        "femnist": f"FEMNIST, the paper's images, a network of {size.channels[0]} and {size.channels[1]} channels and "
        f"{size.hidden} hidden units",
        "stackoverflow": "StackOverflow, the paper's sentences and tags, 342,477 users",
    }[size.data]
    paper = {"images": 800, "tags": 1600}[kind]
    clients, server = (
        ", ".join(f"{rate:g}" for rate in rates) for rates in (size.client_rates, size.server_rates)
    )
    more = "".join(f", {pattern} 1 to {count}" for pattern, count in form.more.items())
    how = (
        f"Every policy has the same grid: client rates {clients}; server rates {server}; and "
        "values of exploration "
        f"({len(form.betas)} for Softmax, {len(form.epsilons)} for ε-Greedy, {len(form.falcons)} "
        "for FALCON, none for "
        f"Greedy). Chosen on seed {_listed(form.choose)}{'' if len(form.choose) > 1 else ALONE}, "
        "reported"
    )
    if form.as_printed:
        how = "Hyper-parameters are those that the paper prints, chosen on its own data. Reported"
    return (
        f"Population: {what}. {size.rounds:,} rounds, {size.before} of them pre-training where "
        "there is some "
        f"(paper: {paper:,} and 100), {size.cohort} clients a round (paper: 64), models deployed "
        "every "
        f"{size.seldom} rounds, or {size.often} where often (paper: 200, 40). {how} on "
        f"{_listed(form.report)}"
        f"{f' (lines {more[2:]}; lines are compared on the seeds that both have)' if more else ''}."
    )


def computed_on(found: Iterable[Found]) -> str:
    """Name the machines that lines were computed on, where one is not this; nothing where all are.

    Results of a study elsewhere say what it ran on; figures and tables are always made here.
    """
    here = claims.this_machine()
    others = {
        one.result.about.get("machine", "GPU")
        for one in found
        if one.result.about.get("device") == "gpu"
    }
    return f"one {', one '.join(sorted(others))} (the table: {here})" if others else ""


def _listed(seeds: Sequence[int]) -> str:
    """Name seeds, a row of them by its ends."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def setting_words(form: Form, figure: str) -> str:
    """Name a setting: scenario and how often models are deployed."""
    setting = SETTINGS[figure]
    size = form.size(setting.kind)
    return (
        f"{setting.scenario}, deployed every {size.often if setting.often else size.seldom} rounds"
    )


# Pictures.

REWARD = "running average reward"
_SMOOTH = 0.05
"""Share of the rounds over which a probability is averaged."""
_NUMBERS = {"Softmax": 0, "ε-Greedy": 1, "FALCON": 2, "Greedy": 3}


def seeds_note(found: Iterable[Found]) -> str:
    """Say over how many seeds the lines of a picture are averaged, and what their bands are."""
    seeds = sorted({len(one.curves) for one in found})
    return f"Mean over {' or '.join(map(str, seeds))} seeds; bands: 95 % t interval"


def curves(ax: plots.Axes, found: Sequence[Found], words: Sequence[str] | None = None) -> None:
    """Draw running average rewards; the first rounds, whose averages are of little, set no scale.

    Policies have a look each; lines with words of their own are numbered.
    """
    plots.style(ax, x="round", y=REWARD)
    shown = []
    for number, one in enumerate(found):
        label = one.line.label if words is None else words[number]
        band(ax, one.curves, _NUMBERS.get(label, number), label)
        rounds = one.curves.shape[1]
        shown += [one.curves[:, rounds // 10 :], one.curves.mean(axis=0)[rounds // 50 :]]
    low, high = min(float(part.min()) for part in shown), max(float(part.max()) for part in shown)
    room = 0.06 * (high - low)
    ax.set_ylim(max(0.0, low - room), high + room)


def band(ax: plots.Axes, values: Floats, number: int, label: str) -> None:
    """Draw the mean of (seeds, rounds) with its t interval."""
    x, over = np.arange(1, values.shape[1] + 1), statistics.band(values)
    if label == LABELS["init"]:
        ax.plot(x, over.mean, color=INK, linewidth=1.2, linestyle=(0, (1, 2)), label=label)
        ax.fill_between(x, over.low, over.high, color=INK, alpha=0.12, linewidth=0)
        return
    kit.line(ax, x, over.mean, number, label, marker=False)
    kit.band(ax, x, over.low, over.high, number)


def one_panel(found: Sequence[Found], title: str) -> plots.Figure:
    """Draw one setting."""
    figure, (ax,) = kit.panels(1, (title,))
    curves(ax, found)
    kit.legend(figure, ax, 5, seeds_note(found))
    return figure


def smoothed(values: Floats) -> Floats:
    """Average over the rounds just before, so that the trend is seen."""
    width = max(1, round(_SMOOTH * values.shape[1]))
    sums = np.cumsum(np.pad(values, ((0, 0), (width, 0))), axis=1)
    counts = np.minimum(np.arange(1, values.shape[1] + 1), width)
    averaged: Floats = (sums[:, width:] - sums[:, :-width]) / counts
    return averaged
