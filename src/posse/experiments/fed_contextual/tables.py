"""Tables that figures share: rewards at the end, and hyper-parameters beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from posse.experiments.fed_contextual.forms import Form
from posse.experiments.fed_contextual.published import Printed
from posse.experiments.fed_contextual.runs import Found
from posse.experiments.fed_contextual.settings import SETTINGS
from posse.experiments.kit import Row, Table, mean_of

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
            row.append("-" if one is against else mean_of(one.ends - against.ends).text(sign=True))
        rows.append(tuple(row))
    if against is not None:
        columns.append(f"all rounds, above {against.line.label}")
    return Table("Reward, mean over seeds ± 95 % t interval", tuple(columns), tuple(rows))


def rate_table(found: Sequence[Found], printed: Mapping[str, Printed], table: str) -> Table:
    """Hyper-parameters that were chosen, beside those that the paper prints (by the name of the line)."""
    rows = []
    for one in found:
        if one.chosen is None:
            continue
        own = one.chosen
        paper = printed.get(one.line.name)
        rows.append((
            one.line.label, f"{own.client:g}", f"{own.server:g}", own.explore, own.edge,
            *(("-", "-", "-") if paper is None else (f"{paper.client:g}", f"{paper.server:g}", paper.explore)),
        ))  # fmt: skip
    columns = (
        "line", "client rate", "server rate", "exploration", "at an edge of its grid", "paper: client", "server",
        "exploration of the paper",
    )  # fmt: skip
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
                    "line": one.line.name, "setting": one.line.figure, "label": one.line.label, "seed": int(seed),
                    "round": at + 1, "average_reward": float(one.curves[number, at]),
                    "probability": float(one.probabilities[number, at]),
                }
                for at in range(every - 1, rounds, every)
            ]  # fmt: skip
    return rows


def protocol_note(form: Form, kind: str) -> str:
    """Say at what size a figure was made, and how hyper-parameters were chosen."""
    size = form.size(kind)
    what = {
        "letters": "digits called letters of both cases, 60 Dirichlet clients, a linear model",
        "bags": "made-up texts of 90 users with 20 tags, a linear model",
        "emnist": "EMNIST by class, test part (116,323 images, 590 Dirichlet clients of 197; the paper has 3,400 "
        f"writers), a network of {size.channels[0]} and {size.channels[1]} channels and {size.hidden} hidden units "
        "(paper: 32, 64 and 128)",
        "stackexchange": "questions of three small Stack Exchange sites (1,672 of 696 users, 50 tags; the paper has "
        "342,477 users of StackOverflow), so that every client is met many times",
    }[size.data]
    paper = {"images": 800, "tags": 1600}[kind]
    clients, server = (", ".join(f"{rate:g}" for rate in rates) for rates in (size.client_rates, size.server_rates))
    return (
        f"Population: {what}. {size.rounds:,} rounds, {size.before} of them pre-training where there is some "
        f"(paper: {paper:,} and 100), {size.cohort} clients a round (paper: 64), models deployed every "
        f"{size.seldom} rounds, or {size.often} where often (paper: 200, 40). "
        f"Every policy has the same grid: client rates {clients}; server rates {server}; and values of exploration "
        f"({len(form.betas)} for Softmax, {len(form.epsilons)} for ε-Greedy, {len(form.falcons)} for FALCON, none for "
        f"Greedy). Chosen on seed {_listed(form.choose)}, reported on {_listed(form.report)}."
    )


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def setting_words(form: Form, figure: str) -> str:
    """Name a setting: scenario and how often models are deployed."""
    setting = SETTINGS[figure]
    size = form.size(setting.kind)
    return f"{setting.scenario}, deployed every {size.often if setting.often else size.seldom} rounds"
