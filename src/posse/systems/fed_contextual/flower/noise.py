"""Noise on devices: what the server adds to a sum before anything is made of it, and the account of
what rounds cost.

Without a seed it comes from the operating system, in numbers of 53 bits: they have no tail beyond
8.6 standard deviations, which the figures do not miss (chance 10^-17). With a seed it is the
simulator's, and protects nothing. A sum of whole numbers (`levels`, secure sums) stays one, since
the noise is rounded: that is post-processing, and hides the low-order bits of a floating-point
number, from which noise can be read (Mironov: On significance of the least significant bits for
differential privacy, CCS 2012). A sum of floats has such bits.

A round is paid for before its devices are drawn, and training stops in time. The server draws every
device that is connected by a coin of its own, of chance q = cohort / devices, once a round; a
device that does not answer adds nothing; the sum has noise of noise x clip and is divided by
`cohort`, whatever came. So a device is in a round with a chance of q at most, fewer devices than
declared cost nobody more, and devices that drop out change no figure. A round is never drawn again:
that would make those who answer likelier than q.

Neighbours are by zeroing out (Kairouz, McMahan, Song, Thakkar, Thakurta, Xu: Practical and private
(deep) learning without sampling or shuffling, ICML 2021): a device sends what it has, or zeros. The
figures are those of the Poisson-sampled Gaussian, one clip apart. That a device takes part is not
hidden, and neither is whether it answers.

What was paid for is in a file beside the state, so that a run that is taken up again has spent what
it had.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.core.files import write_whole
from posse.privacy.dp.guarantee import figure
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.sampled import Training
from posse.systems.fed_contextual.computing.models import Leaves, Tree, normals, size_of
from posse.systems.fed_contextual.computing.server import State
from posse.systems.fed_contextual.computing.tasks import NOISE, key_of
from posse.systems.fed_contextual.flower.device import model_of
from posse.systems.fed_contextual.flower.settings import SPENT, DeviceSettings
from posse.systems.fed_contextual.levels import proved

_UNIT = 2.0**-53
NEIGHBOURS = (
    "zero out: one device sends what it has, or zeros instead, in every round it is drawn for"
)
COVERS = "everything one device holds, against whoever sees the models after every round"
NOT_COVERED = (
    "the server: it adds the noise, and sees the exact sums (and each update, where sums are not "
    "secure)",
    "sums of rewards, probabilities, samples and updates within the clip, and the average reward: "
    "they carry no noise",
    "who is drawn for a round, which must be unknown to whoever the guarantee is against",
    "whether a device answers, and when",
    "what a device shows by the arms it pulls, and logs that leave it otherwise",
    "other runs on the same devices: the figures of several add up",
)


def with_noise(total: Tree, settings: DeviceSettings, state: State) -> Tree:
    """Add normal noise of standard deviation noise x clip to every number of a sum."""
    leaves, shape = jax.tree.flatten(total)
    levels = settings.rounded_to
    deviation = settings.noise * (levels or float(state.limit))  # in steps, or as the sum is
    numbers = drawn([np.shape(leaf) for leaf in leaves], settings.seed, int(state.round))
    noisy = []
    for leaf, one in zip(map(np.asarray, leaves), numbers, strict=True):
        noise = np.rint(deviation * one) if leaf.dtype.kind == "i" else deviation * one
        noisy.append((leaf + noise).astype(leaf.dtype))
    return jax.tree.unflatten(shape, noisy)


def secret_normals(count: int) -> NDArray[np.float64]:
    """Draw independent standard normal numbers from the operating system (Box and Muller)."""
    pairs = -(-count // 2)
    words = np.frombuffer(os.urandom(16 * pairs), np.uint64).reshape(2, pairs) >> np.uint64(11)
    radius = np.sqrt(-2.0 * np.log((words[0] + np.uint64(1)) * _UNIT))
    angle = 2.0 * np.pi * (words[1] * _UNIT)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def drawn(shapes: list[tuple[int, ...]], seed: int, round_: int) -> Leaves:
    """Return standard normal numbers in some shapes."""
    if seed >= 0:
        like = [np.zeros(shape, np.float32) for shape in shapes]
        return [np.asarray(leaf) for leaf in normals(like, key_of(seed, NOISE, round_))]
    return [secret_normals(int(np.prod(shape))).reshape(shape) for shape in shapes]


def ledger_of(settings: DeviceSettings) -> Ledger[Training]:
    """Return a new ledger; a limit below the cost of one round is refused."""
    return settings.ledger(settings.mechanism(settings.devices, size_of(model_of(settings))))


class Account:
    """The ledger of a run, kept in its folder."""

    def __init__(self, settings: DeviceSettings, out: Path, done: int) -> None:
        self._settings, self._path = settings, out / SPENT
        self._ledger = ledger_of(settings)
        paid = _paid(self._path, done)
        if paid:
            self._ledger.spend(times=paid)

    @property
    def paid(self) -> int:
        """Rounds paid for."""
        return self._ledger.releases

    @property
    def epsilon(self) -> float:
        """What was spent so far, at the run's delta."""
        return self._ledger.epsilon

    @property
    def over(self) -> bool:
        """Whether the limit allows no further round."""
        return self._ledger.left == 0

    def pay(self) -> None:
        """Pay for the next round, on disk before anything of it is drawn."""
        self._ledger.spend()
        write_whole(self._path, json.dumps({"rounds": self.paid}).encode())

    def figures(self) -> list[dict[str, Any]]:
        """Return what the rounds paid for prove, by PLD and by RDP."""
        training, left_out = self._ledger.mechanism, tuple(not_covered(self._settings))
        entries = proved(
            training.gaussian,
            self.paid,
            training.delta,
            ("pld", "rdp"),
            adjacency=NEIGHBOURS,
            covers=COVERS,
            not_covered=left_out,
        )
        return [
            {**one, "figure": figure(one["epsilon"] or math.inf, one["delta"])} for one in entries
        ]


def not_covered(settings: DeviceSettings) -> list[str]:
    """Return what the figures of a run leave out."""
    more = {
        "low-order bits of sums of floating-point numbers: give levels for whole numbers": not settings.rounded_to,
        "low-order bits of the sums of an evaluation: their noise is floating-point numbers": bool(
            settings.evaluate
        ),
        "the data that the first model was made of": bool(settings.start),
        "the other devices of a round, which know who is in it": settings.secure,
        "whoever knows the seed: with it all noise can be taken off": settings.seed >= 0,
    }
    return [*NOT_COVERED, *(text for text, holds in more.items() if holds)]


def _paid(path: Path, done: int) -> int:
    """Return the rounds that were paid for, and refuse an account that does not belong to the
    run.
    """
    if not path.exists():
        if done:
            raise ConfigError(
                f"{path.parent} holds {done} rounds that were not paid for. Name another folder to "
                "train under noise."
            )
        return 0
    try:
        account = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). Name another folder.") from None
    paid = account.get("rounds") if isinstance(account, dict) else None
    if not isinstance(paid, int) or paid < done:
        raise DataError(
            f"{path} must count the {done} rounds that were done, got {paid}. Name another folder."
        )
    return paid
