"""Section 5.2: how often models are deployed, the server's optimiser, and importance weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from posse.policies.contextual.explorations import EXPLORATIONS
from posse.results import plots
from posse.results.plots import INK
from reproduction import kit
from reproduction.fed_contextual import findings
from reproduction.fed_contextual.findings import Statement, alike, better, counts, curves
from reproduction.fed_contextual.problem import KINDS, OPTIMISER, WEIGHTED, Form, printed
from reproduction.fed_contextual.runs import LABELS, Found, choice_lines, line_of, opened
from reproduction.kit import Analysis, Table, Watch, mean_of, write_files

SELDOM, OFTEN = {"images": "fig1c", "tags": "fig2c"}, {"images": "fig1d", "tags": "fig2d"}
_ROOM = 0.35
"""Below the lines, for the legend."""
Ran = Mapping[str, Found]
"""By name of line."""


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run or read all policies in init-shift at both frequencies, and the lines of this section."""
    with opened(small, out, watch) as runs:
        lines = [
            line
            for kind in KINDS
            for line in (
                *(
                    line_of(figure, policy)
                    for figure in (SELDOM[kind], OFTEN[kind])
                    for policy in EXPLORATIONS
                ),
                *choice_lines(kind),
            )
        ]
        found = runs.of(lines)
        watch("figure and analysis", 1.0)
        return analyse(runs.form, found, out)


def frequency_claims(form: Form, kind: str, found: Ran) -> list[Statement]:
    """Whether deploying often earns more, for every policy."""
    size = form.size(kind)
    return [
        better(
            f"{kind}: {LABELS[policy]} earns more when deployed every {size.often} rounds than "
            f"every {size.seldom}",
            found[f"{OFTEN[kind]}-{policy}"].ends,
            found[f"{SELDOM[kind]}-{policy}"].ends,
        )
        for policy in EXPLORATIONS
    ]


def choice_claims(kind: str, found: Ran) -> list[Statement]:
    """What SGD at the server and importance weights change."""
    adam, plain = (
        found[f"{SELDOM[kind]}-{policy}"].ends for policy in ("softmax", "epsilon-greedy")
    )
    sgd, weighted = (found[f"sec5_2-{kind}-{what}"].ends for what in ("sgd", "weighted"))
    compared = (
        alike(f"{kind}: Softmax earns the same with Adam and SGD at the server", adam, sgd)
        if kind == "images"
        else better(f"{kind}: Softmax earns more with Adam at the server than with SGD", adam, sgd)
    )
    return [
        compared,
        better(f"{kind}: ε-Greedy earns less with importance weights", plain, weighted),
    ]


def analyse(form: Form, found: Ran, out: Path) -> Analysis:
    """Write rows and picture, and say what holds."""
    files = write_files(out, "sec5_2", findings.rows_of(list(found.values())), picture(form, found))
    often = [one for kind in KINDS for one in frequency_claims(form, kind, found)]
    choices = [one for kind in KINDS for one in choice_claims(kind, found)]
    own = [one for name, one in found.items() if name.startswith("sec5_2")]
    plain = [
        found[f"{SELDOM[kind]}-{policy}"]
        for kind in KINDS
        for policy in ("softmax", "epsilon-greedy")
    ]
    paper = {
        f"{figure}-{policy}": row
        for figure, rows in printed().items()
        for policy, row in rows.items()
    }
    tables = (
        findings.statement_table([*often, *choices]),
        frequency_table(form, found),
        choice_table(found),
        findings.rate_table([*plain, *own], paper, "tables 3 and 7"),
    )
    notes = (
        *(one.words for one in (*often, *choices)),
        "Hyper-parameters of every line, these among them, are chosen on a separate grid; SGD "
        "has larger rates at "
        "the server. Weights are 1 / probability, scaled so that the largest of a client is 1.",
        *(findings.protocol_note(form, kind) for kind in KINDS),
    )
    headline = f"Deploying often: {counts(often)}. Optimiser and weights: {counts(choices)}."
    weights = [one for one in choices if "weights" in one.claim]
    optimiser = findings.judged("optimiser", [one for one in choices if one not in weights])
    if len(form.choose) == 1:
        reasons = (optimiser.because, f"rates are chosen on {findings.ALONE.strip(' ()')}")
        optimiser = replace(optimiser, because="; ".join(filter(None, reasons)))
    judged = (findings.judged("often", often), findings.judged("weights", weights), optimiser)
    return Analysis(headline, tables, notes, files, judged, findings.computed_on(found.values()))


def frequency_table(form: Form, found: Ran) -> Table:
    """Rewards at both frequencies."""
    rows = tuple(
        (
            kind,
            LABELS[policy],
            mean_of(seldom.ends).text(),
            mean_of(often.ends).text(),
            findings.above(often.ends, seldom.ends).text(sign=True),
        )
        for kind in KINDS
        for policy in EXPLORATIONS
        for seldom, often in [(found[f"{SELDOM[kind]}-{policy}"], found[f"{OFTEN[kind]}-{policy}"])]
    )
    columns = (
        "population",
        "policy",
        f"every {form.images.seldom}",
        f"every {form.images.often}",
        "difference",
    )
    return Table(
        "Average reward in init-shift by rounds between deployments, ± 95 % t interval",
        columns,
        rows,
    )


def choice_table(found: Ran) -> Table:
    """Rewards with and without, beside the paper's."""
    rows = []
    for kind in KINDS:
        for what, policy, paper, words in (
            ("sgd", "softmax", OPTIMISER, "SGD for Adam, Softmax"),
            ("weighted", "epsilon-greedy", WEIGHTED, "importance weights, ε-Greedy"),
        ):
            one, other = found[f"{SELDOM[kind]}-{policy}"].ends, found[f"sec5_2-{kind}-{what}"].ends
            theirs = f"{paper[kind][0]:g} to {paper[kind][1]:g}" if kind in paper else "no change"
            rows.append(
                (
                    kind,
                    words,
                    mean_of(one).text(),
                    mean_of(other).text(),
                    findings.above(other, one).text(sign=True),
                    theirs,
                )
            )
    columns = ("population", "change", "before", "after", "difference", "paper")
    return Table("Average reward in init-shift, ± 95 % t interval", columns, tuple(rows))


def picture(form: Form, found: Ran) -> plots.Figure:
    """Draw Softmax at both frequencies and with SGD, and epsilon-Greedy with and without
    weights.
    """
    figure = plots.blank(7.2, width=9.0)
    axes = figure.subplots(len(KINDS), 2, squeeze=False)
    for (left, right), kind in zip(axes, KINDS, strict=True):
        size = form.size(kind)
        soft = [
            found[f"{SELDOM[kind]}-softmax"],
            found[f"{OFTEN[kind]}-softmax"],
            found[f"sec5_2-{kind}-sgd"],
        ]
        words = (
            f"Adam, every {size.seldom} rounds",
            f"Adam, every {size.often} rounds",
            f"SGD, every {size.seldom}",
        )
        plain = [found[f"{SELDOM[kind]}-epsilon-greedy"], found[f"sec5_2-{kind}-weighted"]]
        _panel(left, soft, words, f"{kind}, init-shift: Softmax")
        _panel(right, plain, ("regression", "importance-weighted"), f"{kind}, init-shift: ε-Greedy")
    kit.footnote(figure, findings.seeds_note(found.values()))
    return figure


def _panel(ax: plots.Axes, found: Sequence[Found], words: Sequence[str], title: str) -> None:
    curves(ax, found, words)
    kit.title(ax, title)
    low, high = ax.get_ylim()
    ax.set_ylim(low - _ROOM * (high - low), high)
    ax.legend(loc="lower right", frameon=False, fontsize=8, labelcolor=INK)
