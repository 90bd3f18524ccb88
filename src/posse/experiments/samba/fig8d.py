"""Figure 8 (d): the share of the time that each kind of role takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from posse.experiments.base import Analysis, Experiment, Table, Watch
from posse.experiments.output import Row, write_figure, write_rows
from posse.experiments.samba.pictures import share_figure
from posse.experiments.samba.problem import BUDGETS, DATASETS, POLICY_NAMES, REFERENCE, TITLES, policy
from posse.experiments.samba.published import published
from posse.experiments.samba.times import span
from posse.experiments.samba.timing import measure_secure
from posse.problems.datasets.published import embedded_arms

KINDS = ("owner", "controller", "comp", "customer")
MEASURED_BUDGET = {10: 20_000, 100: 10_000}
"""Shares need no full-size run: all roles but the customer work in proportion to N."""


@dataclass(frozen=True)
class Shares:
    """Percent of the time of all roles, by kind of role; `owner` is all owners together."""

    source: str
    dataset: str
    policy: str
    arms: int
    budget: int
    percent: dict[str, float]

    def row(self) -> Row:
        """The shares as a row of the raw file."""
        each = self.percent["owner"] / self.arms
        return {
            "source": self.source, "dataset": self.dataset, "policy": self.policy, "K": self.arms, "N": self.budget,
            **{f"{kind}_percent": self.percent[kind] for kind in KINDS}, "each_owner_percent": each,
        }  # fmt: skip


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Measure one secure run a cell."""
    datasets = DATASETS[:1] if small else DATASETS
    budgets = {10: 1_000} if small else MEASURED_BUDGET
    plan = [(dataset, arms, name) for dataset in datasets for arms in budgets for name in POLICY_NAMES]
    done: list[Shares] = []
    for number, (dataset, arms, name) in enumerate(plan):
        watch(f"{dataset}, K = {arms}, {name}", number / len(plan))
        run = measure_secure(embedded_arms(dataset, arms), policy(name, dataset), budgets[arms])
        done.append(Shares("ours", dataset, name, arms, budgets[arms], percent(run.roles)))
        done.append(their_shares(dataset, name, arms))
    watch("figure and analysis", 1.0)
    return analyse(done, out)


def percent(seconds: dict[str, float]) -> dict[str, float]:
    """Turn seconds into percent of their sum.

    >>> percent({"owner": 3.0, "controller": 0.5, "comp": 0.5, "customer": 0.0})["owner"]
    75.0
    """
    whole = sum(seconds[kind] for kind in KINDS)
    return {kind: 100 * seconds[kind] / whole for kind in KINDS}


def their_shares(dataset: str, name: str, arms: int) -> Shares:
    """Give the published shares at N = 100,000."""
    cell = published(dataset, name, arms, BUDGETS[-1])
    times = {
        "owner": cell.owners_time, "controller": cell.controller_time, "comp": cell.comp_time,
        "customer": cell.customer_time,
    }  # fmt: skip
    seconds = {kind: spread.mean for kind, spread in times.items() if spread is not None}
    return Shares("published", dataset, name, arms, BUDGETS[-1], percent(seconds))


def analyse(done: list[Shares], out: Path) -> Analysis:
    """Write rows and figure, and say what they show."""
    rows = write_rows(out / "fig8d.csv", [one.row() for one in done])
    files = (rows, *write_figure(share_figure(done), out, "fig8d"))

    def of(source: str, kind: str) -> str:
        return span([one.percent[kind] for one in done if one.source == source])

    headline = (
        f"Owners together take {of('ours', 'owner')} % of the time here and {of('published', 'owner')} % in the "
        f"published runs; comp {of('ours', 'comp')} % here and {of('published', 'comp')} % there; the controller "
        f"{of('ours', 'controller')} % and {of('published', 'controller')} %."
    )
    notes = (
        "Ours is level 'standard', not level 'paper', which is the published protocol. In the published runs comp "
        "opens K scores and seals K answers a step, and is the busiest single party. Here it opens K scores and "
        "answers with tokens, without sealing; its share is smaller, the controller's larger.",
        "Ours is one measured run a row at the N given, in one process, so a single row can be off by what else the "
        "machine did; CPU time inside each kind of role. The sum at the end (Paillier, owners and customer) weighs "
        "more at a smaller N. Published shares are means of 50 runs at N = 100000 on the authors' machine; shares, "
        "unlike times, can be compared across machines.",
    )
    return Analysis(headline, (share_table(done),), notes, files)


def share_table(done: list[Shares]) -> Table:
    """Ours and theirs, row by row."""
    columns = ("data", "K", "policy", "source", "N", "owners %", "each owner %", "controller %", "comp %", "customer %")
    rows = []
    for one in done:
        numbers = [one.percent["owner"], one.percent["owner"] / one.arms]
        numbers += [one.percent[kind] for kind in KINDS[1:]]
        shown = tuple(f"{number:.2f}" for number in numbers)
        rows.append((TITLES[one.dataset], str(one.arms), one.policy, one.source, str(one.budget), *shown))
    return Table("Shares of the time", columns, tuple(rows))


FIG8D = Experiment(
    id="samba/fig8d",
    title="Samba, figure 8 (d): share of the time by role",
    reference=REFERENCE,
    tags=("samba", "time", "roles"),
    sweep=sweep,
)
