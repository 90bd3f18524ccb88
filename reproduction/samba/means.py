"""Means as the text of section 6.1 defines them, from raw ratings, and figure 8 (c) on them.

The authors' own lists divide by all users (`problem`); here a mean is the ratings above a threshold
over the ratings received. MovieLens of the edition at hand (ml-latest-small, or u.data and u.item
of ml-100k) and Jester are read from the folder that POSSE_DATA names. The small form takes the
ratings of invented stores, which ship.
"""

from __future__ import annotations

import csv
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from posse.core.errors import DataError
from posse.problems.arms.settings import INVENTED, ProblemSettings
from posse.results import plots
from posse.systems.samba.twin import simulate
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding
from reproduction.kit import Analysis, Row, Table, Watch, progress, write_files
from reproduction.samba.agreement import LIMIT, Estimate, estimate, runs_to_tell, z_score
from reproduction.samba.fig8c import best_of
from reproduction.samba.problem import (
    COLOURS,
    DATASETS,
    MARKERS,
    POLICY_NAMES,
    REFERENCE,
    TITLES,
    policy,
)

RUNS = 10
SIZES = (10, 100)
BUDGET = 100_000


@dataclass(frozen=True)
class Earned:
    """Rewards of one policy on one problem."""

    data: str
    arms: int
    policy: str
    budget: int
    reward: Estimate

    def row(self) -> Row:
        """The cell as a row of the raw file."""
        return {
            "data": self.data,
            "K": self.arms,
            "policy": self.policy,
            "N": self.budget,
            "reward_mean": self.reward.mean,
            "reward_sd": self.reward.sd,
            "runs": self.reward.runs,
        }


def counted(settings: ProblemSettings) -> tuple[int, int]:
    """Count the ratings of every arm one by one; return how many means are that quotient, and how
    many there are.
    """
    arms, ratings = settings.arms(), settings.ratings()
    assert ratings is not None
    threshold = settings.used(arms)["threshold"]
    assert threshold is not None
    received: Counter[str] = Counter()
    above: Counter[str] = Counter()
    for item, value in zip(ratings.item.tolist(), ratings.value.tolist(), strict=True):
        received[ratings.names[item]] += 1
        above[ratings.names[item]] += value > threshold
    means = arms.means.tolist()
    same = sum(
        mean == above[name] / received[name] for name, mean in zip(arms.names, means, strict=True)
    )
    return same, len(means)


def oldest(folder: Path) -> ProblemSettings:
    """Write ratings in the layout of the 943-user MovieLens, u.data and u.item, and read them."""
    draw = random.Random(1)
    with (folder / "u.data").open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerows(
            (user, film, draw.randint(1, 5), 0) for user in range(1, 41) for film in range(1, 13)
        )
    rest = "|".join(["01-Jan-1995", "", "", *["0"] * 19])
    (folder / "u.item").write_bytes(
        "".join(f"{n}|Film {n}|{rest}\n" for n in range(1, 13)).encode("latin-1")
    )
    return ProblemSettings(data="movielens", data_dir=folder, owners=10, threshold=3, minimum=1)


def problems(small: bool) -> list[tuple[str, ProblemSettings]]:
    """Problems of the figure: raw data that are there, by their names."""
    if small:
        return [("invented stores", ProblemSettings(data=INVENTED))]
    found = []
    for name, owners in product(DATASETS, SIZES):
        settings = ProblemSettings(data=name, owners=owners)
        try:
            settings.arms()
        except DataError:
            continue
        found.append((name, settings))
    return found


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Count means, simulate the plain bandit on them."""
    watch("means of raw ratings", 0.0)
    with tempfile.TemporaryDirectory() as folder:
        own = oldest(Path(folder))
        checks = [("u.data and u.item, written here", counted(own))]
    chosen = problems(small)
    checks += [
        (f"{TITLES.get(name, name)}, K = {len(settings.arms())}", counted(settings))
        for name, settings in chosen
    ]
    budget, runs = (300, 3) if small else (BUDGET, RUNS)
    done = []
    plan = list(product(chosen, POLICY_NAMES))
    for (data, settings), name in progress(plan, lambda c: f"{c[0][0]}, {c[1]}", watch, 0.1, 1.0):
        made = policy(name, data if data in DATASETS else DATASETS[0])
        total = simulate(settings.arms(), made, budget, kit.seeds_of(runs), points=2).total
        done.append(Earned(data, len(settings.arms()), name, budget, estimate(np.array(total))))
    watch("figure and analysis", 1.0)
    return analyse(done, checks, out)


def analyse(
    done: Sequence[Earned], checks: Sequence[tuple[str, tuple[int, int]]], out: Path
) -> Analysis:
    """Write rows and figure, and judge the sentences on figure 8 (c) on these means."""
    if not done:
        raise DataError(
            "neither MovieLens nor Jester is there. Set POSSE_DATA to the folder that holds them."
        )
    files = write_files(out, "means", [one.row() for one in done], picture(done))
    exact = all(same == count for _, (same, count) in checks)
    words = "; ".join(f"{what}: {same} of {count}" for what, (same, count) in checks)
    findings = (
        Finding(
            "definition",
            f"means equal to the quotient of counted ratings: {words}",
            HOLDS if exact else FAILS,
        ),
        *figure_8c(done),
    )
    columns = ("data", "K", "N", "policy", "reward ± s.e.", "runs")
    rows = tuple(
        (
            TITLES.get(one.data, one.data),
            str(one.arms),
            str(one.budget),
            one.policy,
            str(one.reward),
            str(one.reward.runs),
        )
        for one in done
    )
    notes = (
        "Thresholds are those of the data sets ('posse problems'): 4 stars or more of films with "
        "at least 50 ratings, "
        "more than 4.5 of 10 of jokes.",
        "Parameters of the policies are the authors', who tuned them on other means.",
    )
    headline = (
        f"{words}. Rewards of the plain bandit on these means, {done[0].reward.runs} runs a cell."
    )
    return Analysis(headline, (Table("Cumulative rewards", columns, rows),), notes, files, findings)


def _cells(done: Sequence[Earned]) -> dict[tuple[str, int], dict[str, Estimate]]:
    cells: dict[tuple[str, int], dict[str, Estimate]] = {}
    for one in done:
        cells.setdefault((one.data, one.arms), {})[one.policy] = one.reward
    return cells


def figure_8c(done: Sequence[Earned]) -> tuple[Finding, Finding]:
    """Judge whether Thompson is always best, and whether data sets rank policies differently."""
    cells = _cells(done)
    beaten = {
        cell: [name for name, reward in own.items() if z_score(reward, own["thompson"]) > LIMIT]
        for cell, own in cells.items()
    }
    text = "; ".join(
        f"{TITLES.get(data, data)}, K = {arms}: {', '.join(names) or 'none'}"
        for (data, arms), names in beaten.items()
    )
    first = sum(
        own["thompson"].mean >= max(one.mean for one in own.values()) for own in cells.values()
    )
    text = (
        f"Thompson sampling has the largest mean in {first} of {len(cells)} cells; policies clearly above: "
        f"{text}"
    )
    larger = [
        runs_to_tell(one, own["thompson"])
        for own in cells.values()
        for one in own.values()
        if one.mean > own["thompson"].mean
    ]
    thompson = best_of(
        "thompson",
        text,
        sum(map(len, beaten.values())),
        first == len(cells),
        max(larger, default=0),
    )
    pairs = {
        f"{a} and {b}, K = {arms}": ((own[a], own[b]), (theirs[b], theirs[a]))
        for (data, arms), own in cells.items()
        for theirs in (value for key, value in cells.items() if key[1] == arms and key[0] > data)
        for a, b in product(own, own)
        if own[a].mean > own[b].mean and theirs[b].mean > theirs[a].mean
    }
    turned = [name for name, both in pairs.items() if all(z_score(*one) > LIMIT for one in both)]
    many = min((max(runs_to_tell(*one) for one in both) for both in pairs.values()), default=0)
    why = "one data set" if len({data for data, _ in cells}) < 2 else "no pair is clearly reversed"
    why += f"; about {many:,} runs would decide the closest pair" if many else ""
    return thompson, Finding(
        "rankings",
        f"pairs whose order is clearly reversed on the other data set: {', '.join(turned) or 'none'}",
        HOLDS if turned else UNKNOWN,
        "" if turned else why,
    )


def picture(done: Sequence[Earned]) -> plots.Figure:
    """Draw the reward a pull of every policy, a panel a problem."""
    cells = _cells(done)
    titles = [f"{TITLES.get(data, data)}, K = {arms}" for data, arms in cells]
    figure, axes = kit.panels(len(cells), titles, height=3.4, width=max(7.2, 3.0 * len(cells)))
    for ax, own in zip(axes, cells.values(), strict=True):
        plots.style(ax, x="reward a pull", y="", grid="x")
        for place, (name, reward) in enumerate(own.items()):
            look: dict[str, Any] = {"fmt": MARKERS[name], "color": COLOURS[name], "capsize": 2}
            ax.errorbar(
                [reward.mean / done[0].budget],
                [place],
                xerr=[2 * reward.error / done[0].budget],
                **look,
            )
        ax.set_yticks(range(len(own)), list(own) if ax is axes[0] else [""] * len(own))
        ax.invert_yaxis()
    return figure


MEANS = REFERENCE.experiment(
    "means",
    "Samba, section 6.1: means as the text defines them, and figure 8 (c) on them",
    ("reward", "data"),
    sweep,
    "section 6.1",
)
