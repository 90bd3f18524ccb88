"""Figures 1 and 2: running average reward of four policies in one setting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reproduction.fed_contextual import findings
from reproduction.fed_contextual.findings import Statement
from reproduction.fed_contextual.problem import SETTINGS, Form, printed
from reproduction.fed_contextual.runs import LABELS, Found, figure_lines, opened
from reproduction.kit import Analysis, Watch, mean_of, write_files

GREEDY, SOFTMAX = LABELS["greedy"], LABELS["softmax"]
EXPLORING = (SOFTMAX, LABELS["epsilon-greedy"], LABELS["falcon"])


def sweep(figure: str, small: bool, out: Path, watch: Watch) -> Analysis:
    """Run or read the lines of a setting."""
    with opened(small, out, watch) as runs:
        found = list(runs.of(figure_lines(figure)).values())
        watch("figure and analysis", 1.0)
        return analyse(figure, runs.form, found, out)


def claims(found: Sequence[Found]) -> list[Statement]:
    """What the paper says of a setting."""
    ends = {one.line.label: one.ends for one in found}
    claimed = [
        *findings.exploring(ends, GREEDY, EXPLORING),
        findings.close_to_best(ends, SOFTMAX, [x for x in ends if x != SOFTMAX]),
    ]
    first = LABELS["init"]
    if first in ends and SETTINGS[found[0].line.figure].scenario == "init-shift":
        claimed.append(
            findings.better(
                f"{SOFTMAX} earns more than the unchanged first model",
                ends[SOFTMAX],
                ends[first],
            )
        )
    return claimed


def analyse(figure: str, form: Form, found: Sequence[Found], out: Path) -> Analysis:
    """Write rows and picture, and say what holds."""
    setting = SETTINGS[figure]
    title = findings.setting_words(form, figure)
    files = write_files(out, figure, findings.rows_of(found), findings.one_panel(found, title))
    claimed = claims(found)
    paper = {f"{figure}-{policy}": values for policy, values in printed()[figure].items()}
    learnt = [one for one in found if one.line.learns]
    best = max(learnt, key=lambda one: float(one.ends.mean()))
    headline = (
        f"{title}: most is earned by {best.line.label}, {mean_of(best.ends).text(3)} a sample over "
        f"{best.curves.shape[1]:,} rounds; {findings.counts(claimed)}."
    )
    number = list(SETTINGS).index(figure) + 1
    notes = [one.words for one in claimed]
    if setting.scenario == "init":
        notes.append(
            "The paper finds little to gain over a first model that fits: above it are "
            + ", ".join(
                f"{x.line.label} {findings.above(x.ends, found[-1].ends).text(3, sign=True)}"
                for x in learnt
            )
            + "."
        )
    notes += [
        "The paper prints its rewards as a picture: none can be compared with ours. "
        "Differences compare equal seeds, which "
        "draw the same clients.",
        findings.protocol_note(form, setting.kind),
    ]
    greedy = next(one for one in found if one.line.label == GREEDY)
    tables = (
        findings.reward_table(found, greedy),
        findings.statement_table(claimed),
        findings.rate_table(found, paper, f"table {number}"),
    )
    ends = {one.line.label: one.ends for one in found}
    if setting.scenario == "init":
        little = findings.alike(
            "Softmax earns little more than the first model", ends[SOFTMAX], ends[LABELS["init"]]
        )
        judged = [findings.judged("little", [little])]
    else:
        judged = [findings.judged("exploring", claimed[: len(EXPLORING)])]
    judged += [
        findings.judged("softmax", [claimed[len(EXPLORING)]]),
        findings.chosen("rates", found, paper),
    ]
    if setting.scenario == "init-shift":
        judged.append(findings.judged("first", claimed[-1:]))
    return Analysis(
        headline, tables, tuple(notes), files, tuple(judged), findings.computed_on(found)
    )
