"""What is protected and what is not, in sentences that records and reports print; and what rounds
under noise prove.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from posse.results.record import PLAIN
from posse.systems.base import Level

if TYPE_CHECKING:
    from posse.privacy.dp.sampled import Accountant, SampledGaussian
    from posse.systems.fed_contextual.settings import FedContextual

SERVER = "server"
DEVICE = "device"

SUMS = "secure-sums"
"""Updates are rounded as masks need them: in a deployment the server sees their sum alone."""
NOISE = "noise"
"""The sum of a round carries noise, which is accounted for."""
BOTH = "noise and secure-sums"


def level_of(noise: float, levels: int) -> str:
    """Return the level of a run.

    >>> level_of(0.0, 0), level_of(0.7, 0), level_of(0.7, 65536)
    ('plain', 'noise', 'noise and secure-sums')
    """
    if noise:
        return BOTH if levels else NOISE
    return SUMS if levels else PLAIN


def learns(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What each role learns in a run of this configuration, one sentence each.

    `masked` stands in the configuration of a run on devices, whose sums were under masks or not.

    >>> learns({"levels": 65536})[1][:58]
    'The server learns the sum of the updates of a round and no'
    """
    if config.get("centralised"):
        return (
            "One place holds all samples of a round, and learns everything: this is the "
            "centralised baseline.",
        )
    fleet, server = (
        "masked" in config,
        "The server learns every device's clipped update, and which device sent it.",
    )
    if config.get("masked"):
        server = "The server learns the sum of the updates of a round and no single one."
    elif config.get("levels") and not fleet:
        server = (
            "The server learns the sum of the updates of a round and no single one, once the sums "
            "are masked "
            "(posse.privacy.aggregation, posse devices --secure); in this simulation they are "
            "rounded, not masked."
        )
    counts = (
        " This record also counts the decisions for each arm, over all devices, which a fleet does "
        "not."
    )
    evaluated = " For every evaluation it takes part in six clipped sums of its log leave it too."
    more = (evaluated if config.get("evaluate") else "") if fleet else counts
    return (
        "A device keeps its contexts, arms, rewards and probabilities; what leaves it is one "
        "clipped update for every "
        f"round it takes part in, and sums of its rewards, probabilities and samples.{more}",
        server,
        "Whoever is given the model sees it after every deployment"
        + (", under the noise of every round." if config.get("noise") else "."),
    )


def leaks(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What is not protected, one sentence each."""
    fleet = "masked" in config
    hidden = config["masked"] if fleet else config.get("levels")
    out = (
        []
        if config.get("noise")
        else ["The model carries no noise: it can tell what a device's samples were."]
    )
    if config.get("noise"):
        out.append("The server adds the noise, and sees the sum of a round before it does.")
    if not hidden:
        out.append(
            "Updates reach the server as they are: an update can tell the samples it was learnt "
            "from."
        )
    else:
        out.append(
            "The sum of a round tells the context of a sample that alone moved an arm: in first "
            "rounds of few devices."
        )
    if config.get("noise") and config.get("scenario", "scratch") != "scratch":
        public = (
            "Pre-training is on data of clients who gave them to everybody: no figure covers it."
        )
        plain = "Pre-training carries no noise: the figures do not cover the clients it is on."
        how = config.get("pretraining_privacy", "none")
        out += [] if how == "noised" else [public if how == "public" else plain]
    measured = (
        "probabilities, samples"
        + ("" if fleet else ", decisions for each arm")
        + " and updates within the clip"
    )
    drawn = (
        "The run was drawn from a seed, which is in the record: draws can be repeated, and noise "
        "taken off."
    )
    seeded = (
        "This is a simulation: its world seed is in the record, and with it all noise can be taken "
        "off."
    )
    last = () if fleet and config.get("seed", -1) < 0 else (drawn if fleet else seeded,)
    return (
        *out,
        f"Rewards, {measured} are summed without noise, and this record shows them.",
        "An arm that a device shows to others tells about its context.",
        "Which devices take part in a round, and when, is known to the server.",
        "Devices that send wrong updates can falsify the model; clipping bounds each, and nothing "
        "finds them.",
        *last,
    )


STRONGER = "posse run fed-contextual --noise 1 --levels 65536"
"""The command that switches sums and noise on."""


def _level(name: str, summary: str, **more: Any) -> Level[FedContextual]:
    return Level(
        name,
        summary,
        lambda settings: learns(settings.resolved()),
        lambda settings: leaks(settings.resolved()),
        **more,
    )


LEVELS: tuple[Level[FedContextual], ...] = (
    _level(
        PLAIN,
        "contexts and logs stay on devices; the server sees every clipped update",
        against="nobody: only locality protects, raw data stay on devices",
        broken_by="one: the server reads samples from single updates",
        attacks=("inversion", "membership", "participants"),
        command=STRONGER,
    ),
    _level(
        SUMS,
        "updates rounded as masks need them: on devices, the server sees their sum alone",
        against="a server that wants single updates, once devices mask them",
        broken_by="one: anyone with the model, which has no noise",
        attacks=("inversion", "asks-twice", "participants"),
        command=STRONGER,
    ),
    _level(
        NOISE,
        "normal noise on the sum of a round, accounted for; the server sees every clipped update",
        against="anyone with the model",
        broken_by="one: the server sees every update before it adds the noise",
        attacks=("participants", "noise", "membership"),
        command=STRONGER,
    ),
    _level(
        BOTH,
        "noise on sums of which the server, on devices, sees no part",
        against="anyone with the model, and a server that wants single updates",
        broken_by="one: the server sees the sum of a round before it adds the noise",
        attacks=("inversion", "participants", "noise"),
    ),
)


def is_linear(model: str) -> bool:
    """Whether an update of this model contains the contexts that it was learnt from."""
    return model in ("linear", "bag")


def not_linear(settings: FedContextual) -> str:
    """Return why updates of a run cannot be inverted exactly; empty if they can."""
    if settings.centralised:
        return "one place holds all samples of a round: there is nothing to find out."
    model = settings.load().model
    if is_linear(model):
        return ""
    return f"the model is '{model}', and only updates of linear models are inverted exactly."


def not_covered(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What the figures of privacy leave out in this run, beside what they always leave out."""
    sums = "rewards, probabilities, samples, decisions for each arm and updates within the clip"
    out = [f"sums of {sums}, which carry no noise"]
    how = config.get("pretraining_privacy", "none")
    if config.get("scenario", "scratch") != "scratch" and how != "noised":
        out.append(
            "pre-training, which carries no noise"
            if how == "none"
            else "pre-training, whose data are public"
        )
    given, before = (
        config.get("input_size") is not None,
        how == "noised",
    )  # pre-training's rate is measured anyway
    left = ("pretraining_client_rate",) * before + (() if given else ("server_rate", "client_rate"))
    if any(config.get(name) is None for name in left):
        out.append(
            "rates that were left out, which follow from the size of all contexts; give rates or "
            "input_size"
        )
    if config.get("scale", "none") != "none":
        out.append(
            "mean and standard deviation of every feature, which were measured on all devices "
            "without noise"
        )
    if config.get("schedule") == "falcon":
        out.append(
            "FALCON's own schedule, which follows from the mean number of decisions a device; list "
            "its values"
        )
    if config.get("supervised"):
        out.append("what a supervised model earns, which learns from all rewards without noise")
    if config.get("evaluate"):
        out.append("the estimate of another policy, which is made of logs without noise")
    if int(config.get("runs", 1)) > 1:
        out.append(
            "other runs on the same devices: a figure is of one run, and those of several add up"
        )
    return tuple(out)


def proved(
    mechanism: SampledGaussian,
    rounds: int,
    delta: float,
    accountants: Iterable[Accountant],
    *,
    more: tuple[str, ...] = (),
    **changes: Any,
) -> list[dict[str, Any]]:
    """Return what rounds prove, an entry of a record for each accountant; `more` is not covered
    either.
    """
    entries = []
    for accountant in accountants:
        made = replace(mechanism.guarantee(rounds, delta, accountant), **changes)
        counted = math.floor(mechanism.noise * 1e4) / 1e4  # never shown as more than it is
        entry = replace(made, not_covered=(*made.not_covered, *more)).entry()
        entries.append({**entry, "noise_multiplier": counted})
    return entries
