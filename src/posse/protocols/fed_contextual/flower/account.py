"""What a run under noise costs: a round is paid for before its devices are drawn, and training stops in time.

The server draws every device that is connected by a coin of its own, of chance q = cohort / devices, once a round;
whoever does not answer adds nothing; the sum has noise of noise x clip and is divided by `cohort`, whatever came. So a
device is in a round with a chance of q at most, fewer devices than declared cost nobody more, and devices that drop out
change no figure. A round is never drawn again: that would make those who answer likelier than q.

Neighbours are by zeroing out (Kairouz, McMahan, Song, Thakkar, Thakurta, Xu: Practical and private (deep) learning
without sampling or shuffling, ICML 2021): a device sends what it has, or zeros. The figures are those of the
Poisson-sampled Gaussian, one clip apart. That a device takes part is not hidden, and neither is whether it answers.

What was paid for is in a file beside the state, so that a run that is taken up again has spent what it had.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from posse.core.errors import BudgetError, ConfigError, DataError
from posse.core.files import write_whole
from posse.privacy.dp.guarantee import Budget, figure
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.sampled import SampledGaussian, Training
from posse.protocols.fed_contextual.flower.places import SPENT
from posse.protocols.fed_contextual.flower.settings import DeviceSettings

KEPT = ("noise", "devices", "cohort", "clip", "levels", "secure")
"""Settings that a run under noise goes on with."""
NEIGHBOURS = "zero out: one device sends what it has, or zeros instead, in every round it is drawn for"
COVERS = "everything one device holds, against whoever sees the models after every round"
NOT_COVERED = (
    "the server: it adds the noise, and sees the exact sums (and each update, where sums are not secure)",
    "sums of rewards, probabilities and samples of a round, and the average reward: they carry no noise",
    "who is drawn for a round, which must be unknown to whoever the guarantee is against",
    "whether a device answers, and when",
    "what a device shows by the arms it pulls, and logs that leave it otherwise",
    "other runs on the same devices: the figures of several add up",
)


def size_of(settings: DeviceSettings) -> int:
    """Count the numbers of the model, without making it."""
    import jax

    from posse.protocols.fed_contextual.flower.tasks import model_of

    leaves = jax.tree.leaves(jax.eval_shape(model_of(settings).init, jax.random.key(0)))
    return sum(math.prod(leaf.shape) for leaf in leaves)


def mechanism_of(settings: DeviceSettings, size: int) -> SampledGaussian:
    """Return what is accounted for, for a model of `size` numbers.

    Rounding to levels lengthens an update of norm C by at most C sqrt(size) / levels: so much less the noise counts.
    """
    levels = settings.rounded_to
    longer = 1 + math.sqrt(size) / levels if levels else 1.0
    return SampledGaussian(settings.devices, settings.cohort, settings.noise / longer, "poisson")


def ledger_of(settings: DeviceSettings, size: int) -> Ledger[Training]:
    """Return a new ledger; a limit below the cost of one round is refused."""
    made = mechanism_of(settings, size)
    budget = Budget(settings.limit, settings.delta) if settings.limit else None
    ledger = Ledger(Training(made, budget, delta=settings.delta))
    if ledger.most == 0:
        one = figure(made.epsilon(1, settings.delta), settings.delta)
        raise BudgetError(
            f"not even one round fits the limit {budget}: with noise {settings.noise:g} it costs {one}. "
            "Raise noise, limit or devices, or lower the cohort."
        )
    return ledger


class Account:
    """The ledger of a run, kept in its folder."""

    def __init__(self, settings: DeviceSettings, size: int, out: Path, done: int) -> None:
        self._settings, self._path = settings, out / SPENT
        self._ledger = ledger_of(settings, size)
        paid = _paid(self._path, settings, done)
        if paid:
            self._ledger.spend(times=paid)

    @property
    def paid(self) -> int:
        """Rounds paid for."""
        return self._ledger.releases

    @property
    def over(self) -> bool:
        """Whether the limit allows no further round."""
        return self._ledger.left == 0

    def pay(self) -> None:
        """Pay for the next round, on disk before anything of it is drawn."""
        self._ledger.spend()
        kept = {name: getattr(self._settings, name) for name in KEPT}
        write_whole(self._path, json.dumps({"rounds": self.paid, **kept}).encode())

    def figures(self) -> list[dict[str, Any]]:
        """Return what the rounds paid for prove, by PLD and by RDP."""
        made, delta = self._ledger.mechanism.gaussian, self._ledger.mechanism.delta
        proved = [made.guarantee(self.paid, delta, one) for one in ("pld", "rdp")]
        left_out = tuple(not_covered(self._settings))
        told = [replace(one, adjacency=NEIGHBOURS, covers=COVERS, not_covered=left_out) for one in proved]
        counted = math.floor(made.noise * 1e4) / 1e4  # never told as more than it is
        return [{**one.entry(), "figure": one.figure, "noise_multiplier": counted} for one in told]


def not_covered(settings: DeviceSettings) -> list[str]:
    """Return what the figures of a run leave out."""
    more = {
        "low-order bits of sums of floating-point numbers: give levels for whole numbers": not settings.rounded_to,
        "the data that the first model was made of": bool(settings.start),
        "the other devices of a round, which are told who is in it": settings.secure,
        "whoever knows the seed: with it all noise can be taken off": settings.seed >= 0,
    }
    return [*NOT_COVERED, *(text for text, holds in more.items() if holds)]


def check_folder(settings: DeviceSettings, out: Path) -> None:
    """Refuse to go on with other noise than a run had, or without."""
    if settings.noise:
        _paid(out / SPENT, settings, 0)
    elif (out / SPENT).exists():
        raise ConfigError(f"{out} holds a run under noise, got noise 0. Go on with its noise, or name another folder.")


def _paid(path: Path, settings: DeviceSettings, done: int) -> int:
    """Return the rounds that were paid for, and refuse an account that does not belong to the run."""
    if not path.exists():
        if done:
            raise ConfigError(
                f"{path.parent} holds {done} rounds that were not paid for. Name another folder to train under noise."
            )
        return 0
    found = _read(path)
    name = next((name for name in KEPT if found.get(name) != getattr(settings, name)), None)
    if name is not None:
        raise ConfigError(
            f"{path.parent} holds a run with {name} {found.get(name)}, got {getattr(settings, name)}. Go on with the "
            "former, or name another folder."
        )
    paid = found.get("rounds")
    if not isinstance(paid, int) or paid < done:
        raise DataError(f"{path} must count the {done} rounds that were done, got {paid}. Name another folder.")
    return paid


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). Name another folder.") from None
    return found if isinstance(found, dict) else {}
