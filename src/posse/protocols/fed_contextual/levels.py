"""What is protected and what is not, in sentences that every record and report prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from posse.privacy.dp.sampled import Accountant, SampledGaussian
from posse.results.naming import PLAIN

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

    >>> learns({"levels": 65536})[1][:58]
    'The server learns the sum of the updates of a round and no'
    """
    if config.get("centralised"):
        return ("One place holds all samples of a round, and learns everything: this is the centralised baseline.",)
    if config.get("levels"):
        server = (
            "The server learns the sum of the updates of a round and no single one, once the sums are masked "
            "(posse.privacy.aggregation, posse devices --secure); in this simulation they are rounded, not masked."
        )
    else:
        server = "The server learns every device's clipped update, and which device sent it."
    return (
        "A device keeps its contexts, arms, rewards and probabilities; what leaves it is one clipped update for every "
        "round it takes part in, and sums of its rewards, probabilities and samples. This record also counts the "
        "decisions for each arm, over all devices, which a fleet does not.",
        server,
        "Whoever is given the model sees it after every deployment"
        + (", under the noise of every round." if config.get("noise") else "."),
    )


def leaks(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What is not protected, one sentence each."""
    out = [] if config.get("noise") else ["The model carries no noise: it can tell what a device's samples were."]
    if config.get("noise"):
        out.append("The server adds the noise, and sees the sum of a round before it does.")
    if not config.get("levels"):
        out.append("Updates reach the server as they are: an update can tell the samples it was learnt from.")
    if config.get("noise") and config.get("scenario", "scratch") != "scratch":
        out.append("Pre-training carries no noise: the figures do not cover the clients it is on.")
    return (
        *out,
        "Rewards, probabilities, samples and decisions for each arm are summed without noise, and this record shows "
        "them.",
        "An arm that a device shows to others tells about its context.",
        "Which devices take part in a round, and when, is known to the server.",
        "Devices that send wrong updates can falsify the model; clipping bounds each, and nothing finds them.",
        "This is a simulation: its world seed is in the record, and with it all noise can be taken off.",
    )


def not_covered(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What the figures of privacy leave out in this run, beside what they always leave out."""
    out = ["sums of rewards, probabilities, samples and decisions for each arm, which carry no noise"]
    if config.get("scenario", "scratch") != "scratch":
        out.append("pre-training, which carries no noise")
    if config.get("evaluate"):
        out.append("the estimate of another policy, which is made of logs without noise")
    if int(config.get("runs", 1)) > 1:
        out.append("other runs on the same devices: a figure is of one run, and those of several add up")
    return tuple(out)


def proved(
    mechanism: SampledGaussian, rounds: int, delta: float, accountants: Iterable[Accountant], *,
    more: tuple[str, ...] = (), **changes: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return what rounds prove, an entry of a record for each accountant; `more` is not covered either."""
    entries = []
    for accountant in accountants:
        made = replace(mechanism.guarantee(rounds, delta, accountant), **changes)
        counted = math.floor(mechanism.noise * 1e4) / 1e4  # never shown as more than it is
        entry = replace(made, not_covered=(*made.not_covered, *more)).entry()
        entries.append({**entry, "noise_multiplier": counted})
    return entries
