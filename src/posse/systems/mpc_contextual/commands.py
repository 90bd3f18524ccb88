"""Commands of mpc-contextual alone: the privacy of its arms, and the range of its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from posse.results import guarantees, words
from posse.results.section import Section
from posse.systems.modules import Command, Commands

if TYPE_CHECKING:
    from posse.privacy.dp.guarantee import Guarantee
    from posse.systems.mpc_contextual.settings import ArmSettings, MpcContextual


def show_arms(settings: ArmSettings) -> Iterator[Section]:
    """Yield the privacy of the arm of one step and of all steps, and what it does not cover."""
    from posse.privacy.dp.arms import SIMULATED_COINS

    ledger = settings.ledger()
    guarantees = ledger.guarantees()
    claims = ledger.mechanism.claims(settings.steps)
    most_steps = settings.most_steps()
    arms = words.count(settings.arms, "arm")
    steps = words.count(settings.steps, "step")
    yield Section(
        f"{arms}, exploration {settings.epsilon}, {steps}: figures, all of them true",
        ("(epsilon, delta)", "how"),
        tuple((_figure(claim.epsilon, claim.delta), claim.how) for claim in claims),
        data={
            "guarantees": [guarantee.entry() for guarantee in guarantees],
            "figures": [{**asdict(claim), "epsilon": _finite(claim.epsilon)} for claim in claims],
            "most_steps": most_steps,
        },
    )
    one_step, all_steps = guarantees
    yield _proved("One step", one_step)
    if settings.steps == 1:
        yield _proved("The same step, with all that follows from it", all_steps)
    else:
        yield _proved(f"All {steps}", all_steps)
    if settings.limit is not None:
        limit = _figure(settings.limit, settings.delta)
        allowed = "any number of steps" if most_steps is None else words.count(most_steps, "step")
        yield Section(
            f"A limit of {limit} for one context allows {allowed}",
            notes=("With this --limit, a run of more steps is refused before it starts.",),
        )
    not_covered = one_step.simulated(SIMULATED_COINS).not_covered
    yield Section("Not covered", notes=tuple(f"- {sentence}" for sentence in not_covered))


def _proved(title: str, guarantee: Guarantee) -> Section:
    notes = [f"covers {guarantee.covers}", f"adjacency: {guarantee.adjacency}", guarantee.terms]
    hollow = guarantees.Guarantee("", (), dict(guarantee.entry())).hollow
    if hollow:
        notes.append(hollow)
    return Section(
        f"{title}: {_figure(guarantee.epsilon, guarantee.delta)} for unit {guarantee.unit}",
        notes=tuple(f"- {note}" for note in notes),
    )


def _figure(epsilon: float, delta: float) -> str:
    if _finite(epsilon) is None:
        return f"no finite epsilon at delta {delta:g}"
    # A comma between thousands would turn the two numbers into three.
    rounded = words.rounded_up(epsilon).replace(",", "")
    return f"({rounded}, {delta:g})"


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def show_ranges(settings: MpcContextual) -> Iterator[Section]:
    """Yield the bounds of all intermediates, which the fixed-point twin checks in every step."""
    from posse.privacy.sharing.fixed import LIMIT
    from posse.systems.mpc_contextual.terms import ranges

    terms = settings.load().terms
    bounds = ranges(terms)
    rows = []
    entries = []
    for bound in bounds:
        largest = words.number(bound.largest, 4)
        rows.append((bound.name, largest, f"2^-{bound.bits}", f"{bound.log2:.1f}", bound.why))
        entries.append(
            {
                "name": bound.name,
                "largest": bound.largest,
                "fraction_bits": bound.bits,
                "log2": bound.log2,
                "why": bound.why,
            }
        )
    closest = max(bounds, key=lambda bound: bound.log2)
    rewards = "are in [0, 1]"
    if terms.reward_range != (0.0, 1.0):
        rewards = f"in {terms.reward_range} are scaled to [0, 1]"
    steps = words.count(terms.steps, "step")
    arms = words.count(terms.arms, "arm")
    yield Section(
        f"How large everything can become: {steps}, {arms}, {terms.bits} fraction bits",
        ("intermediate", "at most", "unit", f"bits of {LIMIT}", "why"),
        tuple(rows),
        (
            f"Closest to the limit: {closest.name}, {LIMIT - closest.log2:.1f} bits below "
            f"2^{LIMIT}.",
            f"Contexts have norm at most 1, rewards {rewards}; the fixed-point twin asserts every "
            "bound.",
        ),
        numeric=(1, 2, 3),
        data={
            "limit_log2": LIMIT,
            "fraction_bits": terms.bits,
            "steps": terms.steps,
            "ranges": entries,
        },
    )


def _arm_settings() -> type[ArmSettings]:
    from posse.systems.mpc_contextual.settings import ArmSettings

    return ArmSettings


def _run_settings() -> type[MpcContextual]:
    from posse.systems.mpc_contextual.settings import MpcContextual

    return MpcContextual


COMMANDS = Commands(
    commands=(
        Command(
            ("budget", "arms"),
            "See what the arms of epsilon-greedy give away: one step, and all steps together.",
            _arm_settings,
            show_arms,
            examples=(
                "posse budget arms --arms 5 --epsilon 0.1",
                "posse budget arms --steps 1000 --limit 2",
            ),
        ),
        Command(
            ("check", "ranges"),
            "Print how large every intermediate of mpc-contextual can become, and run nothing.",
            _run_settings,
            show_ranges,
            examples=(
                "posse check ranges",
                "posse check ranges --horizon 100000 --bits 20",
            ),
        ),
    )
)
