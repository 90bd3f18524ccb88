"""`posse budget arms`: what the arms of epsilon-greedy give away, in one step and in all; no run is needed."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from posse.cli import options
from posse.cli.flags import settings_of
from posse.cli.progress import Doing
from posse.cli.screen import bullets, heading, print_json, say, table

if TYPE_CHECKING:
    from posse.cli.arm_settings import ArmSettings
    from posse.privacy.dp import Claim, Guarantee


def arm_settings() -> type[ArmSettings]:
    """Import the settings of arms."""
    from posse.cli.arm_settings import ArmSettings

    return ArmSettings


def arms(context: typer.Context, config: options.Config = None, json: options.Json = False) -> None:
    """See what the arms of epsilon-greedy give away: one step, and all steps together."""
    settings = settings_of(arm_settings(), context, config)
    with Doing("composing privacy losses"):
        ledger = settings.ledger()
        claims, proved, most = ledger.mechanism.claims(settings.steps), ledger.guarantees(), settings.most_steps(ledger)
    if json:
        figures = [{**asdict(claim), "epsilon": _finite(claim.epsilon)} for claim in claims]
        told = {"guarantees": [made.entry() for made in proved], "figures": figures, "most_steps": most}
        print_json({"settings": settings.resolved(), **told})
        return
    _figures(settings, claims)
    for made, what in zip(proved, ("One step", _all(settings.steps)), strict=True):
        _proved(made, what)
    if settings.limit is not None:
        _limit(settings, most)
    heading("Not covered")
    bullets(proved[0].not_covered, style="yellow")


def _figures(settings: ArmSettings, claims: tuple[Claim, ...]) -> None:
    from posse.results import words

    arms = words.count(settings.arms, "arm")
    heading(f"{arms}, exploration {settings.epsilon}, {words.count(settings.steps, 'step')}: figures, all of them true")
    table(("(epsilon, delta)", "how"), [(_written(claim.epsilon, claim.delta), claim.how) for claim in claims])


def _proved(made: Guarantee, what: str) -> None:
    from posse.results.privacy import Guarantee as Told

    heading(f"{what}: {_written(made.epsilon, made.delta)} for unit {made.unit}")
    hollow = Told("", (), dict(made.entry())).hollow
    bullets([f"covers {made.covers}", f"adjacency: {made.adjacency}", made.terms, *([hollow] if hollow else [])])


def _limit(settings: ArmSettings, most: int | None) -> None:
    from posse.results import words

    allowed = "any number of steps" if most is None else words.count(most, "step")
    heading(f"A limit of {_written(settings.limit or 0.0, settings.delta)} for one context allows {allowed}")
    say("A run with this limit is refused before it starts where it has more (posse run mpc-contextual --limit).")


def _all(steps: int) -> str:
    from posse.results import words

    return "The same step, with all that follows from it" if steps == 1 else f"All {words.count(steps, 'step')}"


def _written(epsilon: float, delta: float) -> str:
    from posse.results.privacy import up

    # Without a comma between thousands, which would make three numbers of two.
    written = up(epsilon).replace(",", "")
    return f"no finite epsilon at delta {delta:g}" if _finite(epsilon) is None else f"({written}, {delta:g})"


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
