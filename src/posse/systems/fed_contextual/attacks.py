"""Attacks on fed-contextual: what the server reads in updates, and whoever is given the model in
the model.

| attack | by | seeks | stopped by |
|---|---|---|---|
| `inversion` | server | contexts of devices, from the updates of one round | secure sums, where many move an arm |
| `membership` | server | whether a sample is on a device, from its update | secure sums leave what the sum tells |
| `participants` | device | whether a device took part, from the next model: canary devices in one run | noise |
| `noise` | device | the same, against the figure of the ledger: is the noise as large as it is paid for? | |
| `arms` | device | contexts, from arms that devices show | exploration, in part |

Canary devices have one sample each, in a feature of their own, large enough that their update is
clipped: all of it lies in one number of the model. All take part in one round of a real run, with
the noise, norm and levels of the settings, and coins say which of them exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.core.roles import Entry, View
from posse.privacy.dp.audit import trials_needed
from posse.privacy.leakage import canaries, features, inversion
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.privacy.leakage.inversion import Inverted
from posse.privacy.leakage.scores import Bools, area_of, hits, shuffled
from posse.systems.fed_contextual.deviations import DEVIATIONS, deployed_model, start_shorter
from posse.systems.fed_contextual.levels import DEVICE, SERVER, is_linear, not_linear
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.modules import Attacks
from posse.systems.registry import system_of

if TYPE_CHECKING:
    pass

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ROUNDS = 5
"""Rounds of a run whose last one is looked at for members."""
EACH = 6
"""Samples of a device that are asked about, and as many that are not on it."""
FEWEST_CANARIES, MOST_CANARIES = 200, 4000
STRANGERS = 60
"""Devices whose samples an adversary knows who looks at the arms of others."""
LARGE = 100.0
"""Feature of a canary device: its update is longer than any norm in use."""


# What the server reads ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Read:
    """Updates of the last round of a view: of each device, or their sum."""

    devices: Ints
    """Who sent each; empty for a sum."""
    bias: Floats
    weights: Floats


def updates_in(view: View) -> Read:
    """Take the updates of a linear model, or their sum, out of the server's view."""
    from posse.systems.fed_contextual.run import Total, Update

    shapes, model = view.public.get("shapes"), view.public.get("model")
    if not shapes or not isinstance(model, str):
        raise DataError("this is no view of fed-contextual: its public terms lack the model.")
    if not is_linear(model) or len(shapes) != 2:
        raise DataError(
            f"the model is '{model}', and only updates of linear models are inverted exactly."
        )
    given = [one.message for one in view.entries if isinstance(one.message, Update | Total)]
    if not given:
        raise DataError(
            "the view holds no update: it is cut off, not the server's, or of a run that has not "
            "begun."
        )
    kind = np.int32 if isinstance(given[0], Total) else np.float32
    arrays = []
    for at, shape in enumerate(shapes):
        parts = [np.frombuffer(one.data[at], kind) for one in given]
        if any(part.size != math.prod(shape) for part in parts):
            raise DataError(
                f"an update must have arrays of the shapes {shapes}: the view is damaged."
            )
        arrays.append(np.stack(parts).reshape(len(parts), *shape).astype(np.float64))
    devices = [one.device for one in given if isinstance(one, Update)]
    return Read(np.array(devices, np.int64), arrays[0], arrays[1])


def read_contexts(view: View, seed: int) -> tuple[Ints, Inverted]:
    """Read a context of every device and arm; without devices where there is only a sum."""
    read = updates_in(view)
    return read.devices, inversion.invert(read.bias, read.weights)


def _score_contexts(found: Sequence[tuple[Ints, Inverted]], truths: Sequence[Truth]) -> Score:
    right = tries = 0
    chances = []
    for (devices, made), truth in zip(found, truths, strict=True):
        summed = not len(devices)
        if not summed:
            places = {int(device): at for at, device in enumerate(truth["devices"])}
            made = replace(
                made, owner=np.array([places[int(devices[one])] for one in made.owner], np.int64)
            )
        owner = None if summed else truth["owner"]
        right += int(inversion.matches(made, truth["contexts"], owner, truth["arms"]).sum())
        tries += len(made.arms)
        # Without the view: the context of one sample for that of another, of the same arm where
        # there is one.
        other = replace(made, contexts=np.roll(made.contexts, len(made.arms) // 2 + 1, axis=0))
        chances.append(inversion.matches(other, truth["contexts"], owner, truth["arms"]).mean())
    return hits(
        right, tries, max(float(np.mean(chances)), 0.002), "contexts within a tenth of a true one"
    )


def _one_sample_an_arm(evidence: Evidence, seed: int) -> Evidence:
    """Plant: every device has one sample an arm, and its update reaches the server as it is."""
    from posse.systems.fed_contextual.run import Update

    view, truth = evidence.seen, evidence.truth
    rng = np.random.default_rng((seed, 50))
    size, arms = view.public["shapes"][1]
    entries = [one for one in view.entries if not hasattr(one.message, "data")]
    for place, device in enumerate(truth["devices"]):
        bias, weights = np.zeros(arms, np.float32), np.zeros((size, arms), np.float32)
        for arm in np.unique(truth["arms"][truth["owner"] == place]).tolist():
            row = rng.choice(np.flatnonzero((truth["owner"] == place) & (truth["arms"] == arm)))
            bias[arm] = rng.normal()
            weights[:, arm] = bias[arm] * truth["contexts"][row]
        entries.append(
            Entry(
                len(entries),
                "cohort",
                SERVER,
                Update(0, int(device), (bias.tobytes(), weights.tobytes())),
            )
        )
    return replace(evidence, seen=replace(view, entries=entries))


def _other_contexts(truths: Sequence[Truth], seed: int) -> list[Truth]:
    rng = np.random.default_rng((seed, 51))
    return [{**truth, "contexts": rng.normal(size=truth["contexts"].shape)} for truth in truths]


# Samples of a device ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Asked:
    """Updates that the server has, and samples of which it asks whether they are on a device."""

    read: Read
    contexts: Floats
    labels: Ints
    place: Ints
    """Which device each sample is asked of."""


def _asked(settings: FedContextual, seed: int) -> Iterator[Evidence]:
    run = start_shorter(settings, min(ROUNDS, settings.load().rounds), seed)
    view, truth = run.view(SERVER), run.truth()
    rng, labels = np.random.default_rng((seed, 52)), truth["labels"]
    if labels.ndim == 2:  # of several tags the first
        labels = labels.argmax(axis=1)
    rows, places, member = [], [], []
    for place in range(len(truth["devices"])):
        own, others = (
            np.flatnonzero(truth["owner"] == place),
            np.flatnonzero(truth["owner"] != place),
        )
        many = min(EACH, len(own), len(others))
        rows += [*rng.choice(own, many, replace=False), *rng.choice(others, many, replace=False)]
        places += [place] * 2 * many
        member += [True] * many + [False] * many
    at = np.array(rows, np.int64)
    yield Evidence(
        Asked(
            updates_in(view), truth["contexts"][at], labels[at].astype(np.int64), np.array(places)
        ),
        {"member": np.array(member)},
    )


def ask(seen: Asked, seed: int) -> Floats:
    """Return how much the update of a device, or the sum, looks as if each sample was learnt
    from.
    """
    if not isinstance(seen, Asked):
        raise ConfigError(
            "this attack needs samples to ask about, which views do not have. Audit settings "
            "instead."
        )
    found = np.empty(len(seen.place))
    for at in np.unique(seen.place):
        rows = seen.place == at
        which = int(at) if len(seen.read.devices) else 0
        bias, weights = seen.read.bias[which], seen.read.weights[which]
        found[rows] = inversion.aligned(bias, weights, seen.contexts[rows], seen.labels[rows])
    return found


def _learnt_from_members(evidence: Evidence, seed: int) -> Evidence:
    """Plant: every device's update is one step on the samples that are asked about and on it."""
    seen, member = evidence.seen, evidence.truth["member"]
    count = int(seen.place.max()) + 1
    bias, weights = (
        np.zeros((count, seen.read.bias.shape[1])),
        np.zeros((count, *seen.read.weights.shape[1:])),
    )
    for row in np.flatnonzero(member):
        bias[seen.place[row], seen.labels[row]] += 1
        weights[seen.place[row], :, seen.labels[row]] += seen.contexts[row]
    return replace(evidence, seen=replace(seen, read=Read(np.arange(count), bias, weights)))


# Canary devices -----------------------------------------------------------------------------------


def claimed_noise(settings: FedContextual, size: int) -> float:
    """Return the noise multiplier that is paid for, for a model of `size` numbers."""
    return settings.mechanism(max(settings.cohort, 2), size).noise


def canary_count(settings: FedContextual) -> int:
    """Canaries that find half of the noise with probability .95; within what one run holds."""
    if not settings.noise:
        return FEWEST_CANARIES
    mu = 1 / settings.noise
    needed = math.ceil(2.5 * trials_needed(mu, 2 * mu) / (1 - canaries.KNOWN))
    return min(MOST_CANARIES, max(FEWEST_CANARIES, needed))


def canary_devices(
    settings: FedContextual, seed: int, noise: float | None = None
) -> Iterator[Evidence]:
    """Run one round in which all canary devices that exist take part; `noise` is another than is
    claimed.
    """
    from posse.problems.populations.population import Population

    count = canary_count(settings)
    coins = canaries.coins_of(count, seed)
    there = np.flatnonzero(coins)
    inputs = np.zeros((len(there), count), np.float32)
    inputs[np.arange(len(there)), there] = LARGE
    nobody = np.zeros(len(there), np.int32)
    devices = Population("canaries", ("arm", "other"), np.arange(len(there) + 1), inputs, nobody)
    used = settings.noise if noise is None else noise
    own = FedContextual(
        noise=used,
        clip=settings.norm,
        levels=settings.levels,
        cohort=len(there),
        horizon=1,
        policy="greedy",
        model="linear",
        optimiser="sgd",
        server_rate=1.0,
        client_rate=0.5,
        quantile=0.0,
        sampling="fixed",
        seed=(settings.seed + seed) % 2**32,
        scale="none",
        deploy_every=1,
        delta=min(settings.delta, 0.1 / len(there)),
    )
    run = system_of(settings).start(own, population=devices)
    run.finish()
    bias, weights = deployed_model(run)
    values = weights.astype(np.float64) * len(there) / settings.norm
    mu = 1 / claimed_noise(settings, bias.size + weights.size) if settings.noise else math.inf
    yield canaries.tossed(values, coins, np.array([1.0, 0.0]), mu, settings.delta)


def _score_participants(found: Sequence[Bools], truths: Sequence[Truth]) -> Score:
    right = [
        (one == (truth["coins"] == 1))[truth["asked"]]
        for one, truth in zip(found, truths, strict=True)
    ]
    return hits(int(np.concatenate(right).sum()), len(np.concatenate(right)), 0.5, "canary devices")


def _without_noise(evidence: Evidence, seed: int) -> Evidence:
    """Plant: the same canaries without noise."""
    exact = evidence.truth["coins"][:, None] * evidence.truth["shift"]
    return replace(evidence, seen=replace(evidence.seen, values=exact))


# Arms that devices show ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Shown:
    """Arms that devices show, and samples of others with the arm that the deployed model prefers
    for them.
    """

    arms: Ints
    known: Floats
    known_arms: Ints


def _shown(settings: FedContextual, seed: int) -> Iterator[Evidence]:
    from posse.systems.fed_contextual.computing.rounds import dense, host

    run = start_shorter(settings, min(settings.load().rounds, 2 * settings.deploy_every + 1), seed)
    truth, population = run.truth(), run.setup.population
    others = np.setdiff1d(np.arange(population.clients), truth["devices"])[:STRANGERS].astype(
        np.int32
    )
    if not len(others):
        raise DataError(
            "this attack needs devices that are in no round, and all devices take part. "
            "Lower cohort, or use fewer rounds."
        )
    gather = host(population, run.simulation.plan.schedule.samples, settings.cap)
    cohort = gather(others, np.ones(len(others), np.float32), 0)
    known = dense(cohort.contexts, population)[np.asarray(cohort.mask) > 0]
    bias, weights = deployed_model(run)
    seen = Shown(truth["arms"], known, (known @ weights + bias).argmax(axis=1))
    yield Evidence(seen, {"features": truth["contexts"], "mean": known.mean(axis=0)})


def place(seen: Shown, seed: int) -> Floats:
    """Estimate the context behind every arm."""
    if not isinstance(seen, Shown):
        raise ConfigError(
            "this attack needs samples that the adversary knows, which views do not have. "
            "Audit settings instead."
        )
    return features.by_group(seen.known, seen.known_arms, seen.arms)


def _score_shown(found: Sequence[Floats], truths: Sequence[Truth]) -> Score:
    rows = np.vstack([truth["features"] for truth in truths])
    return features.r_squared(
        np.vstack(found), rows, np.mean([truth["mean"] for truth in truths], axis=0)
    )


def _nearest_arm(evidence: Evidence, seed: int) -> Evidence:
    """Plant: devices show the group of the known sample that is nearest to theirs."""
    rows, seen = evidence.truth["features"], evidence.seen
    away = ((rows[:, None, :] - seen.known[None, :, :]) ** 2).sum(axis=2)
    groups = np.arange(len(seen.known))
    return replace(evidence, seen=Shown(away.argmin(axis=1), seen.known, groups))


CLEAR, EXACT = "Updates reach the server as they are", "The model carries no noise"
GIVEN = "Whoever is given the model sees it"
CURIOUS = (
    Attack(
        "inversion",
        "contexts of devices, from the updates of one round",
        (SERVER,),
        (
            CLEAR,
            "The sum of a round tells",
            "The server learns",
            "The server adds the noise",
            "A device keeps its",
        ),
        read_contexts,
        _score_contexts,
        "share of contexts",
        _one_sample_an_arm,
        "devices with one sample an arm",
        _other_contexts,
        missing=not_linear,
        tell=lambda found: f"{len(found[1].arms)} contexts of {len(found[0]) or 'all'} devices",
    ),
    Attack(
        "membership",
        "whether a sample is on a device, from its update",
        (SERVER,),
        (CLEAR, "The server learns"),
        ask,
        area_of("member", "samples on their device"),
        "AUC",
        _learnt_from_members,
        "updates of one step",
        shuffled("member", 53),
        needs="runs",
        stage=_asked,
        seconds=lambda settings: 10.0,
        missing=not_linear,
        tell=lambda found: f"{len(found)} samples asked about",
    ),
    Attack(
        "participants",
        "whether a device took part, from the model",
        (DEVICE,),
        (EXACT, GIVEN),
        canaries.guess,
        _score_participants,
        "share of devices",
        _without_noise,
        "models without noise",
        canaries.toss_again,
        needs="runs",
        stage=canary_devices,
        seconds=lambda settings: 10.0,
        tell=lambda found: f"{int(found.sum())} of {len(found)} called in",
    ),
    Attack(
        "noise",
        "whether a device took part, against the ledger's claim",
        (DEVICE,),
        (GIVEN,),
        canaries.guess,
        canaries.claim_score,
        "epsilon of a round at least",
        canaries.halve_the_noise,
        "half of the noise",
        canaries.toss_again,
        finds=0.0,
        needs="runs",
        stage=canary_devices,
        seconds=lambda settings: 10.0,
        missing=lambda settings: (
            "" if settings.noise else "there is no noise, and no claim to test."
        ),
        tell=lambda found: f"{int(found.sum())} of {len(found)} called in",
    ),
    Attack(
        "arms",
        "contexts, from arms that devices show",
        (DEVICE,),
        ("An arm that a device shows",),
        place,
        _score_shown,
        "R2 of contexts",
        _nearest_arm,
        "arms that name the nearest known sample",
        shuffled("features", 54),
        needs="runs",
        stage=_shown,
        seconds=lambda settings: 15.0,
        missing=not_linear,
        tell=lambda found: f"contexts of {len(found):,} arms that were shown",
    ),
)

ATTACKS = Attacks(
    attacks=(*CURIOUS, *DEVIATIONS),
    unattacked={
        "One place holds all samples": "Nothing is hidden from that place.",
        "Pre-training carries no noise": (
            "Figures leave it out; attacks on a model without noise show what it tells."
        ),
        "Pre-training is on data of clients who gave": "It is said of the data: they are public.",
        "Rewards, probabilities": "They are printed in the record: there is nothing to find out.",
        "Which devices take part": "The server is given it, to send them the model.",
        "This is a simulation": (
            "The seed is in the record: the same command draws the same noise again."
        ),
        "The run was drawn from a seed": (
            "The seed is in the record: the same command draws the same noise again."
        ),
    },
)
