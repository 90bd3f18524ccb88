"""Figure 8 (c): cumulative reward of the six policies, beside the published ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from posse.experiments.base import Analysis, Experiment, Watch
from posse.experiments.output import write_figure, write_rows
from posse.experiments.samba.agreement import Comparison
from posse.experiments.samba.inference import Implied, implied_table, imply
from posse.experiments.samba.problem import ARMS, BUDGETS, DATASETS, POLICY_NAMES, REFERENCE
from posse.experiments.samba.reward_picture import reward_figure
from posse.experiments.samba.reward_tables import headline, reward_notes, reward_table, thompson_table, verdict_table
from posse.experiments.samba.rewards import Variant, compare_cells, thompson_variants

RUNS = 50
SMALL_RUNS = 12


@dataclass(frozen=True)
class Found:
    """Everything the sweep found."""

    comparisons: tuple[Comparison, ...]
    variants: tuple[Variant, ...]
    implied: tuple[Implied, ...]


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Simulate our world, replay theirs, compare."""
    sizes = ARMS[:1] if small else ARMS
    runs = SMALL_RUNS if small else RUNS
    budgets = BUDGETS[:2] if small else BUDGETS
    plan = [(dataset, arms, name) for dataset in DATASETS for arms in sizes for name in POLICY_NAMES]
    work = sum(arms for _, arms, _ in plan)
    comparisons: list[Comparison] = []
    behind = 0
    for dataset, arms, name in plan:
        watch(f"{dataset}, K = {arms}, {name}", 0.7 * behind / work)
        # The authors ran other K at the largest budget alone.
        chosen = budgets if arms in (10, 100) else budgets[-1:]
        comparisons += compare_cells(dataset, name, arms, chosen, runs)
        behind += arms
    variants: list[Variant] = []
    implied: list[Implied] = []
    for place, dataset in enumerate(DATASETS):
        watch(f"{dataset}, Thompson with shared streams", 0.7 + 0.15 * place)
        for one in comparisons:
            key = (one.kind, one.dataset, one.policy, one.budget)
            if key == ("benchmarks", dataset, "thompson", budgets[-1]) and one.arms in (10, 100):
                variants += thompson_variants(one)
        watch(f"{dataset}, parameters that the rewards imply", 0.8 + 0.15 * place)
        implied += imply(dataset, budgets, runs, small=small)
    watch("figure and analysis", 1.0)
    return analyse(Found(tuple(comparisons), tuple(variants), tuple(implied)), out)


def analyse(found: Found, out: Path) -> Analysis:
    """Write rows and figure, and say what agrees and what does not."""
    comparisons, variants = found.comparisons, found.variants
    rows = write_rows(out / "fig8c.csv", [one.row() for one in comparisons])
    files = (rows, *write_figure(reward_figure(comparisons), out, "fig8c"))
    tables = (
        verdict_table(comparisons),
        thompson_table(variants),
        implied_table(found.implied),
        reward_table(comparisons),
    )
    return Analysis(headline(comparisons), tables, reward_notes(comparisons, variants), files)


FIG8C = Experiment(
    id="samba/fig8c",
    title="Samba, figure 8 (c): cumulative reward",
    reference=REFERENCE,
    tags=("samba", "reward"),
    sweep=sweep,
)
