"""mpc-contextual as a system: what it declares about itself."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from posse.core.check import require
from posse.core.errors import DataError, MissingExtraError
from posse.results import words
from posse.results.reports.sections import Guarantee as Told
from posse.results.reports.sections import Section, up
from posse.results.statistics import standard_error
from posse.systems.base import Action, Level, Parties, RoleKind, System
from posse.systems.mpc_contextual.terms import DEALER, LEARNS, PAYEE, PULLER, SHARED, leaks
from posse.systems.runs import Run

if TYPE_CHECKING:
    from posse.policies.decisions import Learnt
    from posse.privacy.dp.guarantee import Claim, Guarantee
    from posse.privacy.leakage.attack import Attack
    from posse.results.record import Record
    from posse.systems.mpc_contextual.settings import ArmSettings, MpcContextual

BESIDE = {"parties": ("fixed", "float"), "fixed": ("float",), "float": ()}
"""The twins that are run beside each path."""


class MpcContextualSystem(System):
    """A contextual bandit on features that nobody shows."""

    name = "mpc-contextual"
    title = "MPC contextual"
    pictures = "posse.systems.mpc_contextual.scene"
    summary = (
        "Parties hold different features of one context; one role pulls the arm, another one is "
        "paid."
    )
    unserved = (
        "its contexts lie in parts with parties that pull and pay by their own tables and "
        "sources, a step at a time. Use posse.start, or a federation whose parties have sources of "
        "their own."
    )
    reference = (
        "Hannun, Knott, Sengupta, van der Maaten: Privacy-preserving multi-party contextual "
        "bandits, arXiv 2019"
    )
    protects = "features, scores and model, by secret sharing; the arm, by exploration"
    exact = True
    words: ClassVar[dict[str, str]] = {"party": "party"}
    story = (
        "A clinic and a laboratory hold half of the features of each of 500 images and learn "
        "together which of ten "
        "arms pays; neither shows the other a feature, and neither learns the arm or the reward."
    )
    roles = (
        RoleKind(
            "party",
            "party",
            ("#3b8ea5", "#3b8ea5"),
            "its features, and a share of the model",
            (0.2, 0.5),
        ),
        RoleKind(
            PULLER, "puller", ("#c2477f", "#c2477f"), "the arm of every step", (0.6, 0.25), True
        ),
        RoleKind(
            PAYEE, "payee", ("#6b8e23", "#6b8e23"), "the reward of every step", (0.6, 0.75), True
        ),
        RoleKind(
            DEALER,
            "dealer",
            ("#7a7f8c", "#7a7f8c"),
            "seeds of correlated randomness; no data",
            (0.9, 0.5),
            True,
        ),
    )
    levels = (
        Level(
            SHARED,
            "additive shares modulo 2^64, and arms that are drawn at random at the exploration "
            "rate",
            lambda settings: LEARNS,
            lambda settings: leaks(settings.load().terms),
        ),
    )
    unattacked: ClassVar[dict[str, str]] = {
        "Every party bounds the norm": "It is about what is computed on larger features, not about what anyone reads.",
    }
    actions = (
        Action(
            ("budget", "arms"),
            "See what the arms of epsilon-greedy give away: one step, and all steps together.",
            lambda: _settings().ArmSettings,
            lambda settings: show_arms(settings),
        ),
        Action(
            ("ranges",),
            "Print how large every intermediate of mpc-contextual can become, and run nothing.",
            lambda: _settings().MpcContextual,
            lambda settings: show_ranges(settings),
        ),
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "demo": {"rows": 500},
        "three parties": {"parties": 3, "rows": 300, "policy": "linucb", "width": 0.5},
        "batches": {"rows": 400, "batch": 8},
    }

    @property
    def Settings(self) -> type[MpcContextual]:
        """The model of its settings."""
        made: type[MpcContextual] = _settings().MpcContextual
        return made

    @property
    def attacks(self) -> tuple[Attack, ...]:
        """Attacks on its runs."""
        from posse.systems.mpc_contextual import attacks, deviations

        return (*attacks.ATTACKS, *deviations.ATTACKS)

    def start(
        self,
        settings: MpcContextual,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
        **options: Any,
    ) -> Run:
        """Begin a run on real roles, or one of its twins."""
        from posse.systems.mpc_contextual.federation import ContextualRun, TwinRun

        if settings.path != "parties":
            return TwinRun(self, settings, seeds)
        return ContextualRun(
            self, settings, seeds=seeds, world=world, transcript=transcript, **options
        )

    def learnt(self, place: Path) -> Learnt | None:
        """Bring the shares of all parties together: their files, in folders at any depth."""
        if not (place.is_dir() and next(place.rglob("model-*.share"), None)):
            return None
        import numpy as np

        from posse.policies.decisions import Learnt
        from posse.systems.mpc_contextual.roles.outside import features_in, gathered, read_shares

        model = read_shares(place).check()
        weights, (low, high) = model.weights.T, model.terms.reward_range
        names = tuple(f"arm {at + 1}" for at in range(weights.shape[1]))
        bias, features = np.full(weights.shape[1], float(low)), features_in(gathered(place))
        return Learnt(names, weights * (high - low), bias, features=features)

    def twin(self, settings: MpcContextual) -> MpcContextual:
        """Return the settings of the fixed-point twin; a twin is its own."""
        return (
            settings if settings.path != "parties" else settings.but(path="fixed", keep_shares=None)
        )

    def level_of(self, settings: MpcContextual) -> str:
        """Return "shared", or "plain" for a twin."""
        return SHARED if settings.path == "parties" else "plain"

    def beside(self, settings: MpcContextual) -> Sequence[MpcContextual]:
        """Return the twins: in fixed point, which is equal, and on floats."""
        return [settings.but(path=path, keep_shares=None) for path in BESIDE[settings.path]]

    def remarks(self, records: Sequence[Record]) -> Sequence[Section]:
        """Say what was earned a step, and what fixed point changes against floats."""
        each = [_a_step(record) for record in records]
        rows = tuple(
            (
                one.protection,
                words.plus_minus(_mean(earned), standard_error(earned)),
                words.seconds(_seconds(one)),
            )
            for one, earned in zip(records, each, strict=True)
        )
        floats = next(
            (record for record in records[1:] if record.summary.get("path") == "float"), None
        )
        differences = (
            []
            if floats is None
            else [a - b for a, b in zip(each[0], _a_step(floats), strict=False)]
        )
        notes = () if floats is None else (_against_floats(records[0], floats, differences),)
        columns = ("", "earned a step", "CPU time a step, all roles")
        return (
            Section(
                "A step",
                columns,
                rows,
                notes,
                (1, 2),
                data={"more_a_step_than_floats": _mean(differences)},
            ),
        )

    def policies(self) -> Section:
        """The policies on shares."""
        rows = (
            ("epsilon-greedy", "epsilon 0.1", "the best score"),
            (
                "linucb",
                "epsilon 0.1, width 1.0",
                "the best score and a bonus for what is little known",
            ),
            ("thompson", "epsilon 0.1, width 1.0", "the best of scores drawn from what is known"),
        )
        facts = [
            {"name": name, "parameters": parameters, "summary": summary}
            for name, parameters, summary in rows
        ]
        columns = ("policy", "parameters", "pulls, where the arm is not drawn by epsilon")
        return Section(
            "Contexts on shares (mpc-contextual)", columns, rows, data={"policies": facts}
        )

    def problems(self, folder: Path | None) -> Section:
        """The contextual problems, and whether their data are there."""
        from posse.problems.contexts.settings import PROBLEMS

        facts: list[dict[str, Any]] = [
            {"name": name, "what": what, "reason": _missing(name, folder)}
            for name, what in PROBLEMS.items()
        ]
        facts = [{**one, "ready": not one["reason"]} for one in facts]
        rows = tuple(
            (
                one["name"],
                "yours" if one["name"] == "own" else "yes" if one["ready"] else "no",
                one["what"],
            )
            for one in facts
        )
        notes = tuple(f"{one['name']}: {one['reason']}" for one in facts if one["reason"])
        columns = ("--data", "ready", "what it is")
        return Section("Contexts (mpc-contextual)", columns, rows, notes, data={"data": facts})

    @property
    def deployment(self) -> Parties:
        """Parties over the network."""
        from posse.systems.mpc_contextual.deploy import VOCABULARY, build
        from posse.systems.mpc_contextual.layout import invite, layout

        return Parties(build, layout, invite, VOCABULARY)

    def variants(self, settings: MpcContextual) -> Sequence[tuple[str, MpcContextual]]:
        """On shares, the same on plain integers, and on floats."""
        names = {
            "parties": "on shares",
            "fixed": "plain, in fixed point",
            "float": "plain, on floats",
        }
        others = [
            (names[path], settings.but(path=path, keep_shares=None))
            for path in names
            if path != settings.path
        ]
        return [("as set", settings), *others]


def _settings() -> Any:
    from posse.systems.mpc_contextual import settings

    return settings


def _missing(name: str, folder: Path | None) -> str:
    """Say why a contextual problem cannot be made; an empty string where it can."""
    from posse.problems.datasets.mnist import HOME, load_mnist

    if name == "mnist" and folder is None and not os.environ.get("POSSE_DATA"):
        return f"get it from {HOME} and set POSSE_DATA (or --data-dir) to the folder that holds it."
    try:
        if name in ("digits", "clusters"):
            require("sklearn", extra="data")
        if name == "mnist":
            load_mnist(folder)
    except (DataError, MissingExtraError) as error:
        return str(error)
    return ""


# Records beside each other ------------------------------------------------------------------------


def _against_floats(record: Record, floats: Record, differences: Sequence[float]) -> str:
    """Say what fixed point changes in the average reward."""
    if record.status != "finished" or floats.status != "finished":
        return "The float twin was not finished beside it: the two cannot be compared."
    mean = _mean(differences)
    if mean is None or not any(differences):
        return "The float twin earned the same."
    more = "less" if mean > 0 else "more"
    apart = words.plus_minus(abs(mean), standard_error(differences))
    return (
        f"The float twin earned {apart} {more} a step: fixed point rounds, and an arm may win by a "
        "hair elsewhere."
    )


def _a_step(record: Record) -> list[float]:
    """Average reward a step of every run."""
    steps = record.steps_done / record.runs if record.runs else 0
    return [total / steps for total in record.total] if steps else []


def _seconds(record: Record) -> float | None:
    return record.seconds / record.steps_done if record.steps_done else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# Commands of its own ------------------------------------------------------------------------------


def show_arms(settings: ArmSettings) -> Iterator[Section]:
    """Say what arms give away: figures of one step and of all, and what they do not cover."""
    from posse.privacy.dp.arms import SIMULATED_COINS

    ledger = settings.ledger()
    claims, proved, most = (
        ledger.mechanism.claims(settings.steps),
        ledger.guarantees(),
        settings.most_steps(),
    )
    rows = tuple((_written(claim.epsilon, claim.delta), claim.how) for claim in claims)
    what = (
        f"{words.count(settings.arms, 'arm')}, exploration {settings.epsilon}, "
        f"{words.count(settings.steps, 'step')}"
    )
    yield Section(
        f"{what}: figures, all of them true",
        ("(epsilon, delta)", "how"),
        rows,
        data={
            "guarantees": [made.entry() for made in proved],
            "figures": _figures(claims),
            "most_steps": most,
        },
    )
    every = f"All {words.count(settings.steps, 'step')}"
    titles = (
        "One step",
        "The same step, with all that follows from it" if settings.steps == 1 else every,
    )
    for made, title in zip(proved, titles, strict=True):
        yield _proved(made, title)
    if settings.limit is not None:
        allowed = "any number of steps" if most is None else words.count(most, "step")
        title = (
            f"A limit of {_written(settings.limit, settings.delta)} for one context allows "
            f"{allowed}"
        )
        yield Section(
            title,
            notes=(
                "A run with this limit is refused before it starts where it has more (--limit).",
            ),
        )
    yield Section(
        "Not covered",
        notes=tuple(f"- {one}" for one in proved[0].simulated(SIMULATED_COINS).not_covered),
    )


def _figures(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    return [{**asdict(claim), "epsilon": _finite(claim.epsilon)} for claim in claims]


def _proved(made: Guarantee, what: str) -> Section:
    hollow = Told("", (), dict(made.entry())).hollow
    notes = (
        f"covers {made.covers}",
        f"adjacency: {made.adjacency}",
        made.terms,
        *([hollow] if hollow else []),
    )
    title = f"{what}: {_written(made.epsilon, made.delta)} for unit {made.unit}"
    return Section(title, notes=tuple(f"- {note}" for note in notes))


def _written(epsilon: float, delta: float) -> str:
    # Without a comma between thousands, which would make three numbers of two.
    written = up(epsilon).replace(",", "")
    return (
        f"no finite epsilon at delta {delta:g}"
        if _finite(epsilon) is None
        else f"({written}, {delta:g})"
    )


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def show_ranges(settings: MpcContextual) -> Iterator[Section]:
    """List the bounds of all intermediates; the fixed-point twin asserts them in every step."""
    from posse.privacy.sharing.fixed import LIMIT
    from posse.systems.mpc_contextual.terms import ranges

    terms = settings.load().terms
    bounds = ranges(terms)
    rows = tuple(
        (r.name, words.number(r.largest, 4), f"2^-{r.bits}", f"{r.log2:.1f}", r.why) for r in bounds
    )
    most = max(bounds, key=lambda one: one.log2)
    pays = terms.reward_range
    scaled = "are in [0, 1]" if pays == (0.0, 1.0) else f"in {pays} are scaled to [0, 1]"
    notes = (
        f"Closest to the limit: {most.name}, {LIMIT - most.log2:.1f} bits below 2^{LIMIT}.",
        f"Contexts have norm at most 1, rewards {scaled}; the fixed-point twin asserts every "
        "bound.",
    )
    facts = [
        {
            "name": r.name,
            "largest": r.largest,
            "fraction_bits": r.bits,
            "log2": r.log2,
            "why": r.why,
        }
        for r in bounds
    ]
    steps, arms = words.count(terms.steps, "step"), words.count(terms.arms, "arm")
    yield Section(
        f"How large everything can become: {steps}, {arms}, {terms.bits} fraction bits",
        ("intermediate", "at most", "unit", f"bits of {LIMIT}", "why"),
        rows,
        notes,
        (1, 2, 3),
        data={
            "limit_log2": LIMIT,
            "fraction_bits": terms.bits,
            "steps": terms.steps,
            "ranges": facts,
        },
    )


SYSTEM = MpcContextualSystem()
