"""Figure 4: clipping and noise, reward and probability of the chosen arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from posse.results import plots
from posse.results.plots import INK
from reproduction import kit
from reproduction.fed_contextual import findings
from reproduction.fed_contextual.findings import Statement, better, no_worse
from reproduction.fed_contextual.problem import CLIPS, KINDS, Form, Printed, printed
from reproduction.fed_contextual.runs import Found, opened, private_lines
from reproduction.kit import Analysis, Floats, Table, Watch, mean_of, write_files

Lines = Mapping[str, Sequence[Found]]
"""By population."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run or read Softmax from scratch without privacy, clipped, and with two noises."""
    with opened(small, out, watch) as runs:
        lines = [line for kind in KINDS for line in private_lines(runs.form, kind)]
        ran = list(runs.of(lines).values())
        watch("figure and analysis", 1.0)
        return analyse(
            runs.form, {kind: [one for one in ran if one.line.kind == kind] for kind in KINDS}, out
        )


def chances(one: Found, *, late: bool) -> Floats:
    """Mean probability of the chosen arm in the last, or the first, tenth of the rounds; one a
    seed.
    """
    tenth = max(1, one.probabilities.shape[1] // 10)
    part = one.probabilities[:, -tenth:] if late else one.probabilities[:, :tenth]
    mean: Floats = part.mean(axis=1)
    return mean


def quarter(one: Found, number: int) -> Floats:
    """Mean probability of the chosen arm in a quarter of the rounds; the second follows the first
    deployment.
    """
    size = one.probabilities.shape[1] // 4
    mean: Floats = one.probabilities[:, number * size : (number + 1) * size].mean(axis=1)
    return mean


def claims(kind: str, found: Sequence[Found]) -> list[Statement]:
    """What the paper says: clipping costs nothing, much noise does, and Softmax explores less and
    less.
    """
    plain, clipped, little, much = (one.ends for one in found)
    first = found[0]
    claimed = [no_worse(f"{kind}: clipping alone costs nothing", clipped, plain)]
    if kind == "images":  # of tags the paper does not say it
        claimed.append(no_worse(f"{kind}: {found[2].line.label} costs nothing", little, clipped))
    grown = (chances(first, late=late) for late in (True, False))
    early, late = (
        np.abs(quarter(found[3], number) - quarter(found[1], number)) for number in (1, 3)
    )
    when = better(f"{kind}: noise changes that probability more early than late", early, late)
    if kind == "images":
        when = better(f"{kind}: noise changes that probability more late than early", late, early)
    return [
        *claimed,
        better(
            f"{kind}: {found[3].line.label} earns less than {found[2].line.label}", little, much
        ),
        better(f"{kind}: the probability of the chosen arm grows, without DP", *grown),
        when,
    ]


def analyse(form: Form, found: Lines, out: Path) -> Analysis:
    """Write rows and picture, and say what clipping and noise cost."""
    every = [one for some in found.values() for one in some]
    files = write_files(out, "fig4", findings.rows_of(every), picture(found))
    claimed = [statement for kind, some in found.items() for statement in claims(kind, some)]
    tables = [findings.statement_table(claimed)]
    for kind, some in found.items():
        rewards = findings.reward_table(some, some[0])
        rates = findings.rate_table(some, _printed(form, kind), "table 9")
        rewards, rates = (
            replace(table, title=f"{kind}: {table.title}") for table in (rewards, rates)
        )
        tables += [rewards, chance_table(kind, some), rates]
    notes = (
        *(one.words for one in claimed),
        f"Clipping norms are fixed, {form.images.clip:g} for images and {form.tags.clip:g} for "
        "tags (paper: "
        f"{CLIPS['images']:g} and {CLIPS['tags']:g}); without DP the norm follows the 0.8 "
        "quantile. Noise is "
        "multiplier x norm on the sum of a round, so that fewer clients a round feel it more.",
        "No epsilon is claimed: a population of hundreds of clients of which many take part in "
        "every round has none "
        "that means anything, and rounds here have a fixed number of clients. The paper's own "
        "figures, for 342,477 "
        "clients, are test vectors of the accountant.",
        *(findings.protocol_note(form, kind) for kind in KINDS),
    )
    costs = ", ".join(
        f"{findings.above(some[3].ends, some[0].ends).text(3, sign=True)} for {kind} at "
        f"{some[3].line.label}"
        for kind, some in found.items()
    )
    headline = f"What clipping with the larger noise changes: {costs}; {findings.counts(claimed)}."
    paper = {name: row for kind in found for name, row in _printed(form, kind).items()}
    parts = {
        "clipping": "clipping alone",
        "annealing": "probability of",
        "stage": "that probability",
        "noise": ": noise ",
    }
    judged = []
    for name, words in parts.items():
        own = [
            one
            for one in claimed
            if words in one.claim and (name == "stage") == ("that prob" in one.claim)
        ]
        judged.append(findings.judged(name, own))
    judged.append(findings.chosen("rates", every, paper))
    return Analysis(
        headline, tuple(tables), notes, files, tuple(judged), findings.computed_on(every)
    )


def chance_table(kind: str, found: Sequence[Found]) -> Table:
    """Probability of the chosen arm at both ends of training."""
    rows = tuple(
        (one.line.label, *(mean_of(chances(one, late=late)).text(3) for late in (False, True)))
        for one in found
    )
    return Table(
        f"{kind}: probability of the chosen arm, mean over seeds ± 95 % t interval",
        ("line", "first tenth of rounds", "last tenth of rounds"),
        rows,
    )


def _printed(form: Form, kind: str) -> dict[str, Printed]:
    """Give table 9 by the names of lines: clipping alone, small and large noise, each beside its
    own.
    """
    own = (0.0, *form.size(kind).noises)
    return {
        f"fig4-{kind}-noise-{noise:g}": values
        for noise, values in zip(own, printed()[kind].values(), strict=True)
    }


def picture(found: Lines) -> plots.Figure:
    """Draw reward and probability side by side, images above tags."""
    figure = plots.blank(7.2, width=9.0)
    axes = figure.subplots(len(found), 2, squeeze=False)
    for (left, right), (kind, some) in zip(axes, found.items(), strict=True):
        findings.curves(left, some)
        plots.style(right, x="round", y="probability of the chosen arm")
        for number, one in enumerate(some):
            findings.band(right, findings.smoothed(one.probabilities), number, one.line.label)
        kit.title(left, f"{kind}: reward")
        kit.title(right, f"{kind}: how sure Softmax is")
        left.legend(frameon=False, fontsize=8, labelcolor=INK)
    kit.footnote(figure, findings.seeds_note(one for some in found.values() for one in some))
    return figure
