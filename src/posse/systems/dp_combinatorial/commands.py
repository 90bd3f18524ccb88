"""The command of dp-combinatorial alone: the noise that a privacy budget needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from posse.results import words
from posse.results.section import Section
from posse.systems.modules import Command, Commands

if TYPE_CHECKING:
    from posse.privacy.dp.plans import BudgetSettings, Plan


def show_budget(settings: BudgetSettings) -> Iterator[Section]:
    """Yield the noise that an epsilon needs, or what given noise proves, for every unit."""
    from posse.privacy.dp.schedules import UNITS

    plan = settings.plan()
    guarantee = plan.guarantee()
    other_units = [plan.guarantee(unit) for unit in UNITS if unit != plan.unit.name]
    claims = plan.claims() if plan.schedule == "paper" else ()
    yield _noise(
        plan,
        {
            "settings": _planned_settings(settings, plan),
            "messages": _messages(plan),
            "guarantee": guarantee.entry(),
            "other_units": [other.entry() for other in other_units],
            "claims": [asdict(claim) for claim in claims],
        },
    )
    yield Section(
        f"Proved: {guarantee.figure} for unit {guarantee.unit}",
        notes=(
            f"- covers {guarantee.covers} ({words.count(plan.producers, 'producer')})",
            f"- adjacency: {guarantee.adjacency}",
            f"- {guarantee.terms}",
        ),
    )
    yield Section(
        "The same noise for other units",
        ("unit", "(epsilon, delta)", "composition", "covers"),
        tuple((other.unit, other.figure, other.composition, other.covers) for other in other_units),
    )
    if claims:
        yield Section(
            "Figures for the published noise",
            ("(epsilon, delta)", "a proof", "how"),
            tuple((claim.figure, "yes" if claim.proved else "no", claim.how) for claim in claims),
        )
    not_covered = guarantee.simulated().not_covered
    yield Section("Not covered", notes=tuple(f"- {sentence}" for sentence in not_covered))


def _planned_settings(settings: BudgetSettings, plan: Plan) -> dict[str, Any]:
    """Return the settings with the epsilon and the schedule that were planned."""
    epsilon = None if plan.budget is None else plan.budget.epsilon
    return {**settings.resolved(), "epsilon": epsilon, "schedule": plan.schedule}


def _messages(plan: Plan) -> list[dict[str, Any]]:
    rows = [plan.row(message) for message in range(plan.messages)]
    return [{name: value for name, value in row.items() if name != "unit"} for row in rows]


def _noise(plan: Plan, data: dict[str, Any]) -> Section:
    schedule = "as given"
    if plan.budget is not None:
        schedule = f"schedule {plan.schedule}, for {plan.budget}"
    columns = ("round", "window", "multiplier", "noise_multiplier")
    return Section(
        f"Noise of {words.count(len(plan.rounds), 'message')}: {schedule}",
        ("round", "about rounds", "sigma / k", "sigma / sensitivity"),
        tuple(
            tuple(words.number(message[column], 4) for column in columns)
            for message in data["messages"]
        ),
        ("k: capacity of the agent at the producer; sensitivity: of the unit below.",),
        numeric=(0, 1, 2, 3),
        data=data,
    )


def _budget_settings() -> type[BudgetSettings]:
    from posse.privacy.dp.plans import BudgetSettings

    return BudgetSettings


COMMANDS = Commands(
    commands=(
        Command(
            ("budget",),
            "Plan the noise of a privacy budget, or see what noise proves.",
            _budget_settings,
            show_budget,
            examples=(
                "posse budget --epsilon 1 --producers 30",
                "posse budget sampled --noise 1.1",
            ),
        ),
    )
)
