"""`posse budget`: what an epsilon costs in noise, and what noise proves; no run is needed.

`arms` and `sampled` are beside it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from posse.cli import options
from posse.cli.flags import flags_given, settings_group, settings_of
from posse.cli.progress import Doing
from posse.cli.screen import bullets, heading, print_json, say, table
from posse.core.errors import ConfigError

if TYPE_CHECKING:
    from posse.privacy.dp import BudgetSettings, Claim, Guarantee, Plan


def budget_settings() -> type[BudgetSettings]:
    """Import the settings of budgets."""
    from posse.privacy.dp.plans import BudgetSettings

    return BudgetSettings


app = typer.Typer(cls=settings_group(budget_settings), invoke_without_command=True)


@app.callback()
def budget(context: typer.Context, config: options.Config = None, json: options.Json = False) -> None:
    """Plan the noise of a privacy budget, or see what given noise proves.

    'arms' tells what arms give away, 'sampled' what rounds of federated training cost.
    """
    if context.invoked_subcommand is not None:
        if flags_given(context) or config is not None or json:
            raise ConfigError(
                f"flags before '{context.invoked_subcommand}' belong to the noise of reports. Put those of "
                f"'{context.invoked_subcommand}' behind it."
            )
        return
    settings = settings_of(budget_settings(), context, config)
    with Doing("composing privacy losses"):
        plan = settings.plan()
        proved = _proved(plan)
        claims = plan.claims() if plan.schedule == "paper" else ()
    if json:
        print_json(_document({**settings.resolved(), **_used(plan)}, plan, proved, claims))
        return
    _noise(plan)
    _guarantees(plan, proved)
    if claims:
        heading("Figures for the published noise")
        table(("(epsilon, delta)", "a proof", "how"), [(c.figure, "yes" if c.proved else "no", c.how) for c in claims])
    heading("Not covered")
    bullets(proved[0].not_covered)


def _document(
    settings: dict[str, Any], plan: Plan, proved: list[Guarantee], claims: tuple[Claim, ...]
) -> dict[str, Any]:
    return {
        "settings": settings,
        "messages": _messages(plan),
        "guarantee": proved[0].entry(),
        "other_units": [guarantee.entry() for guarantee in proved[1:]],
        "claims": [asdict(claim) for claim in claims],
    }


def _proved(plan: Plan) -> list[Guarantee]:
    """Prove the plan's own unit first, then the others."""
    from posse.privacy.dp import UNITS

    return [plan.guarantee(), *(plan.guarantee(unit) for unit in UNITS if unit != plan.unit.name)]


def _used(plan: Plan) -> dict[str, Any]:
    """Give what was used where a setting was left out."""
    return {"epsilon": plan.budget and plan.budget.epsilon, "schedule": plan.schedule}


def _messages(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "message": z + 1,
            "round": round_,
            "window": window,
            "multiplier": plan.multipliers[z],
            "noise_multiplier": plan.noise_multiplier(z),
        }
        for z, (round_, window) in enumerate(zip(plan.rounds, plan.windows, strict=True))
    ]


def _noise(plan: Plan) -> None:
    from posse.results import words

    made = f"schedule {plan.schedule}, for {plan.budget}" if plan.budget is not None else "as given"
    heading(f"Noise of {words.count(len(plan.rounds), 'message')}: {made}")
    rows = [
        (
            words.number(one["round"]),
            words.number(one["window"]),
            words.number(one["multiplier"], 4),
            words.number(one["noise_multiplier"], 4),
        )
        for one in _messages(plan)
    ]
    table(("round", "about rounds", "sigma / k", "sigma / sensitivity"), rows, numeric=(0, 1, 2, 3))
    say("\nk: capacity of the agent at the producer; sensitivity: of the unit below.", style="dim")


def _guarantees(plan: Plan, proved: list[Guarantee]) -> None:
    from posse.results import words

    own = proved[0]
    heading(f"Proved: {own.figure} for unit {own.unit}")
    bullets(
        (
            f"covers {own.covers} ({words.count(plan.producers, 'producer')})",
            f"adjacency: {own.adjacency}",
            own.terms,
        )
    )
    heading("The same noise for other units")
    rows = [(other.unit, other.figure, other.composition, other.covers) for other in proved[1:]]
    table(("unit", "(epsilon, delta)", "composition", "covers"), rows, optional=1)
