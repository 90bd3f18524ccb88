"""fed-contextual for a page: rounds, the cohort, the deployed model, what a decision earns,
clipping and epsilon.

Devices are worked on together inside one compiled program: `last` in the picture says in a sentence
what the last round did, and which lines of code it ran. Messages are those of a view: orders and
answers of every round, and what reached the server in the last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from posse.core.statistics import wilson
from posse.systems.base import not_protected
from posse.systems.fed_contextual.computing.cohorts import cohort_of
from posse.systems.fed_contextual.levels import DEVICE, SERVER
from posse.systems.modules import Scenario, Scene
from posse.systems.registry import system_of
from posse.systems.scenes import (
    Code,
    Part,
    format_number,
    line_numbers,
    line_texts,
    message_parts,
)

if TYPE_CHECKING:
    from posse.runtime.memory import Delivery
    from posse.systems.fed_contextual.record import Outcome
    from posse.systems.fed_contextual.run import FedRun
    from posse.systems.fed_contextual.settings import FedContextual

KINDS = (SERVER, DEVICE)
SHOWN = 60
"""Devices of a cohort that are drawn."""
SMOOTH = 10
"""Rounds over which what a decision earns is averaged."""

SCENARIOS = (
    Scenario(
        "Sixty devices learn digits",
        "Each device sees images of its own and chooses one of ten arms for each; twenty of them a "
        "round send a "
        "clipped update of the model. No image leaves a device.",
        {"data": "digits", "horizon": 120},
    ),
    Scenario(
        "The same under noise",
        "Six hundred devices, and normal noise on the sum of every round: see epsilon grow with "
        "the rounds, and what "
        "the noise costs in reward.",
        {
            "data": "digits",
            "clients": 600,
            "cohort": 60,
            "horizon": 120,
            "noise": 1.0,
            "clip": 0.05,
            "delta": 1e-4,
        },
    ),
    Scenario(
        "Sums that the server cannot take apart",
        "Updates are rounded as secure sums need them: on real devices the server then sees their "
        "sum alone.",
        {"data": "digits", "horizon": 120, "levels": 65536},
    ),
    Scenario(
        "Until the budget is spent",
        "Noise and a limit of epsilon 8: training stops by itself before a device would have spent "
        "more.",
        {
            "data": "digits",
            "clients": 600,
            "cohort": 60,
            "horizon": 400,
            "noise": 0.8,
            "clip": 0.05,
            "limit": 8.0,
            "delta": 1e-4,
        },
    ),
)

SOURCES = {
    SERVER: "posse.systems.fed_contextual.computing.server:advance",
    DEVICE: "posse.systems.fed_contextual.computing.client:client_round",
}


def code(settings: FedContextual) -> Code:
    """Return what server and devices do in a round."""
    noise, levels = settings.noise, settings.levels
    norm, given = format_number(settings.norm), settings.server_rate
    rate = format_number(given) if given else "by the size of contexts"
    follows = bool(settings.follows)
    summed = "sum of the updates" + (
        f" + normal noise of {format_number(noise)} norms" if noise else ""
    )
    server = [
        ("loop", f"for every round, up to {settings.horizon}:"),
        (
            "draw",
            "  draw "
            f"{'about ' if settings.sampling == 'poisson' or noise else ''}{settings.cohort} "
            "devices",
        ),
        *([("pay", "  pay for the round from the privacy budget, or stop")] if noise else []),
        ("send", "  send them the model, the deployed one, and the norm"),
        ("sum", f"  G ← {summed}, divided by the number of devices"),
        ("step", f"  model ← {settings.optimiser} step along G, rate {rate}"),
        *([("norm", "  move the norm so that most updates are within it")] if follows else []),
        ("deploy", f"  every {settings.deploy_every} rounds: deploy the model"),
    ]
    device = [
        (
            "act",
            f"for every context: choose an arm by {settings.exploration().name} on the deployed "
            "model's scores",
        ),
        ("log", "  write context, arm, its probability and the reward into its own log"),
        ("train", f"train the model on the log, {settings.loss} loss, batches of {settings.batch}"),
        (
            "clip",
            "u ← what changed, clipped to norm "
            f"{norm}{' or what the server says' if follows else ''}",
        ),
        *([("round", f"u ← rounded to {levels} levels, under masks in a fleet")] if levels else []),
        ("answer", "send u, and sums of rewards, probabilities and samples"),
    ]
    return {"server": server, "device": device}


def scene(run: FedRun) -> dict[str, Any]:
    """Return the picture of this moment."""
    from posse.systems.fed_contextual.record import Outcome, without_model

    settings, setup = run.settings, run.setup
    one = run.current
    outcome = Outcome(run.seeds[0]) if one is None else one.outcome
    done = outcome.rounds
    samples, rewards = outcome.column("samples"), outcome.column("reward")
    recent, earned = float(samples[-SMOOTH:].sum()), float(rewards[-SMOOTH:].sum())
    average = earned / recent if recent else 0.0
    low, high = wilson(min(earned, recent), int(recent))
    deployed = max(0, done - 1) // settings.deploy_every * settings.deploy_every
    devices = _devices(run, outcome, done)
    every = float(samples.sum())
    figures = [
        {
            "name": "a decision",
            "value": average,
            "of": 1.0,
            "text": f"{format_number(average, 3)} earned a decision in the last {min(done, SMOOTH)} rounds",
        },
        {
            "name": "reward",
            "value": float(rewards.sum()),
            "text": f"{format_number(float(rewards.sum()), 0)} earned in {format_number(every, 0)} decisions",
        },
        *_clipping(outcome, done),
        *_privacy(run, done),
    ]
    curves = {"a decision": average}
    if done:
        curves |= {"at least": low, "at most": high}
        bare = settings.cached(
            "scene without a model", lambda: without_model(settings, setup, [outcome])
        )
        names = (("at random", "chance_reward"), ("best fixed arm", "best_fixed_reward"))
        curves |= {name: float(bare[key]) for name, key in names if key in bare}
    return {
        "parties": [
            {
                "name": "server",
                "kind": "server",
                "label": "server",
                "text": f"round {done} of {setup.rounds}, model of round {deployed} deployed",
            },
            {
                "name": "cohort",
                "kind": "device",
                "label": "the cohort",
                "short": "all",
                "text": f"{len(devices)} devices",
                "weight": len(devices),
            },
            *devices[:SHOWN],
        ],
        "links": [["server", "device"], ["device", "server"]],
        "now": {"chosen": ["cohort"] if done else []},
        "figures": figures,
        "curves": curves,
        "last": _last(run, outcome, done, len(devices)),
    }


def _devices(run: FedRun, outcome: Outcome, done: int) -> list[dict[str, Any]]:
    """The devices of the last round, each with how many samples it holds."""
    if not done:
        return []
    numbers, present = cohort_of(run.simulation.plan.schedule, outcome.seed, done - 1)
    return [
        {"name": f"device-{at + 1}", "kind": "device", "label": f"device {at + 1}", "text": ""}
        for at in sorted(numbers[present > 0].tolist())
    ]


def _clipping(outcome: Outcome, done: int) -> list[dict[str, Any]]:
    if not done:
        return []
    norm, within = float(outcome.column("limit")[-1]), float(outcome.column("within")[-1])
    return [
        {
            "name": "within the clip",
            "value": within,
            "of": 1.0,
            "text": f"{within:.0%} of the updates are within the norm {format_number(norm, 3)}",
        }
    ]


def _privacy(run: FedRun, done: int) -> list[dict[str, Any]]:
    """Epsilon of the rounds done, by Renyi accounting; the record has the tighter figure."""
    mechanism, settings = run.setup.mechanism, run.settings
    if mechanism is None:
        return []
    spent = (
        settings.cached(f"epsilon {done}", lambda: mechanism.epsilon(done, settings.delta, "rdp"))
        if done
        else 0.0
    )
    if not math.isfinite(spent):
        return [
            {
                "name": "epsilon",
                "value": 0.0,
                "text": f"no finite epsilon at delta {settings.delta:g}",
            }
        ]
    limit = {"of": settings.limit} if settings.limit else {}
    text = (
        f"epsilon {format_number(spent, 2)} at delta {settings.delta:g} for one device, after {done} "
        "rounds"
    )
    return [{"name": "epsilon", "value": spent, **limit, "text": text}]


def _last(run: FedRun, outcome: Outcome, done: int, devices: int) -> dict[str, Any] | None:
    """Say in a sentence what the last round did."""
    if not done:
        return None
    reward, samples = float(outcome.column("reward")[-1]), float(outcome.column("samples")[-1])
    how = "rounded, under masks in a fleet" if run.settings.levels else "clipped"
    noise = " and adds noise to their sum" if run.settings.noise else ""
    says = (
        f"Round {done}: {{cohort}} of {devices} devices makes {format_number(samples, 0)} decisions that "
        "earn "
        f"{format_number(reward / samples if samples else 0.0, 3)} each; {{server}} takes their updates, "
        f"{how}{noise}."
    )
    deploys = done % run.settings.deploy_every == 0
    ran = {
        "server": [
            "loop",
            "draw",
            "pay",
            "send",
            "sum",
            "step",
            "norm",
            *(["deploy"] if deploys else []),
        ],
        "device": ["act", "log", "train", "clip", "round", "answer"],
    }
    size = devices * 4 * run.setup.parameters
    return {
        "number": done,
        "time": done,
        "sender": "cohort",
        "receiver": "server",
        "name": "Round",
        "says": says,
        "step": f"round {done}",
        "clear": [["an update", f"{4 * run.setup.parameters:,} bytes"]],
        "parts": [],
        "lines": line_numbers(code(run.settings), ran),
        "chosen": None,
        "size": size,
    }


# Messages -----------------------------------------------------------------------------------------


def explain(run: FedRun, delivery: Delivery) -> dict[str, Any]:
    """Explain a message of a view."""
    from posse.systems.fed_contextual.run import Update

    message: Any = delivery.message
    says, clear, ran = _words(run, message)
    covered = message_parts(message, _described(run), KINDS)
    found: dict[str, Any] = {
        "step": f"round {message.round + 1}",
        "says": says,
        "clear": clear,
        "chosen": None,
        "parts": covered,
        "lines": line_numbers(code(run.settings), ran),
    }
    # Of one device's update every byte is here; other messages have the size that a fleet would
    # move.
    return found | (
        {"size": sum(part["length"] for part in covered)} if isinstance(message, Update) else {}
    )


def _words(run: FedRun, message: Any) -> tuple[str, list[list[str]], dict[str, list[str]]]:
    """Return sentence, meaning and lines."""
    from posse.systems.fed_contextual.run import Answers, Order, Update

    size, noise = f"{4 * run.setup.parameters:,} bytes", run.settings.noise
    later = " Noise is added to the sum, not to this." if noise else ""
    ran = {"device": ["train", "clip", "round", "answer"], "server": ["sum", "step"]}
    match message:
        case Order():
            return (
                f"{{server}} sends the model, the deployed one and the norm to all "
                f"{message.devices} devices of {{cohort}}.",
                [
                    ["norm", format_number(message.limit)],
                    ["deployed", f"model of round {message.deployment}"],
                    ["a model", f"{size}, which are not held here"],
                ],
                {"server": ["draw", "pay", "send"]},
            )
        case Answers():
            return (
                f"All {message.devices} devices of {{cohort}} answer {{server}}: their updates, "
                "and sums of rewards, probabilities and samples, "
                f"{format_number(message.samples, 0)} decisions in all.",
                [
                    ["reward", format_number(message.reward, 1)],
                    ["within the norm", f"{message.within:.0%}"],
                    ["norm of the mean update", format_number(message.moved)],
                ],
                {"device": ["answer"], "server": ["sum"]},
            )
        case Update():
            device, numbers = str(message.device + 1), f"{run.setup.parameters:,} numbers"
            return (
                f"Device {device} of {{cohort}} sends {{server}} its clipped update, which the "
                f"server reads.{later}",
                [["device", device], ["update", numbers]],
                ran,
            )
    numbers = f"{run.setup.parameters:,} whole numbers"
    return (
        f"{{cohort}} sends {{server}} updates under masks, which cancel: the server reads their "
        f"sum alone.{later}",
        [["sum", numbers], ["an update", f"{size} under masks"]],
        ran,
    )


def _described(run: FedRun) -> Callable[[str, str, Any], Sequence[Part] | None]:
    """Say what fields are; arrays are counted as they come."""
    arrays = 0

    def describe(kind: str, field: str, value: Any) -> Sequence[Part] | None:
        nonlocal arrays
        if not isinstance(value, bytes):
            return [Part(_FIELDS.get(field, field), "clear", 0, KINDS)]
        arrays += 1
        what = f"{'update' if kind == 'Update' else 'sum of updates'}, array {arrays} of the model"
        why = "clipped, no noise yet" if run.settings.noise else "clipped"
        return [
            Part(
                what,
                "clear",
                len(value),
                KINDS,
                why if kind == "Update" else "masks cancelled in the sum",
            )
        ]

    return describe


_FIELDS = {"moved": "norm of the mean update", "within": "share within the norm", "limit": "norm"}

_KNOWS = {
    "server": (
        ["The model, when devices take part, and sums of rewards, probabilities and samples."],
        ["A context, an arm or a reward of one device as such."],
    ),
    "device": (
        ["Its own contexts, arms and rewards, and the deployed model."],
        ["Anything of another device but what the model says."],
    ),
}


def knowledge(settings: FedContextual, kind: str) -> dict[str, Sequence[str]]:
    """Return what the server or a device knows, can never know, and could infer."""
    knows, never = (list(one) for one in _KNOWS[kind])
    if kind == "server":
        if settings.levels:
            never.append("One device's update, on a fleet with secure sums.")
        else:
            knows.append("Every device's clipped update.")
    words = ("server", "update", "model") if kind == "server" else ("device", "model", "arm")
    sentences = not_protected(system_of(settings), settings)
    return {
        "knows": knows,
        "never": never,
        "could": [text for text in sentences if any(word in text for word in words)],
    }


def variants(settings: FedContextual) -> Sequence[tuple[str, FedContextual]]:
    """Return the settings with and without noise, and with and without rounding for secure sums."""
    named = [("as set", settings)]
    if settings.noise:
        plain = system_of(settings).twin(settings.but(levels=0))
        named.append(("without noise", plain.but(levels=settings.levels)))
    if settings.levels:
        named.append(("without secure sums", settings.but(levels=0)))
    else:
        named.append(("with secure sums", settings.but(levels=65536)))
    return named


SCENE: Scene[FedContextual, FedRun] = Scene(
    places={SERVER: (0.75, 0.5), DEVICE: (0.25, 0.5)},
    scenarios=SCENARIOS,
    draw=scene,
    explain=explain,
    pseudocode=lambda settings: line_texts(code(settings)),
    sources=lambda settings: SOURCES,
    knowledge=knowledge,
    variants=variants,
)
