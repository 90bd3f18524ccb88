"""What a role reads and writes outside of the protocol: arms, rewards, and shares of the model.

Arms go to the puller's own system and rewards come from the payee's, or both belong to a simulated
world. A role that stops between an answer and its journal asks again: a step always comes with the
same arm and earns the same, and must be done once.

A party keeps its share of the model as a file. One share says nothing about the model; the shares
of all parties together are the model. Whether to bring them together is for the parties to decide:
no role does it by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from posse.core import files
from posse.core.errors import ConfigError, DataError, DisagreementError
from posse.core.fixed import RewardRange
from posse.core.roles import Ask, Message
from posse.core.settings import IMPORTS, Settings
from posse.privacy.sharing.fixed import FixedPoint, Words
from posse.problems.contexts.contexts import SLACK, Contexts, row_norms, scale_to_bound
from posse.runtime.network.party import Source
from posse.runtime.sources import (
    FeatureSource,
    RewardSource,
    Service,
    load_function,
    needed,
    units,
)
from posse.systems.mpc_contextual.program import Layout
from posse.systems.mpc_contextual.roles.messages import Act, Acted, Earn, Earned, Look, Seen
from posse.systems.mpc_contextual.terms import Terms, largest_score

Pull = Callable[[int, int], Awaitable[object]]
"""Pulls an arm (second) for the context of a step (first)."""

ARM_BYTES = 2
KEPT = 2
"""Shares that a party keeps: parties that were stopped are at most a checkpoint apart."""
_HEADER = b"run,step,arm\n"
_NAME = re.compile(r"model-(\d+)\.share")


class ActSettings(Settings):
    """Where the puller's arms go ([source])."""

    kind: Literal["python", "csv", "http"]
    function: Annotated[str, IMPORTS] = ""
    """python: module:function, called with (run, step, arm); it may be async."""
    file: Path | None = None
    """csv: a line run,step,arm is appended for every pull, once."""
    url: str = ""
    """http: POST of {"run": ..., "step": ..., "arm": ...}."""
    timeout: float = 30.0
    """http: seconds until an attempt is given up and made again."""

    def pull(self, run: str, folder: Path) -> Pull:
        """Make what pulls; `folder` is what paths and modules are relative to."""
        if self.kind == "csv":
            return ArmLog(folder / needed(self.kind, "file", self.file), run)
        if self.kind == "python":
            function = load_function(needed(self.kind, "function", self.function), folder)
            return lambda step, arm: function(run, step, arm)
        url = needed(self.kind, "url", self.url)
        service = Service(url, self.timeout, "does not take the arm")
        return lambda step, arm: service.post(
            f"{run}/{step}", {"run": run, "step": step, "arm": arm}
        )


class ArmLog:
    """A file with a line for every pull of one run, on the disk before it is answered; a step is
    written once.
    """

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._file: int | None = None
        self._next = 0
        self._last = -1

    async def __call__(self, step: int, arm: int) -> None:
        """Write the line of a step, and wait for the disk."""
        await asyncio.to_thread(self._write, step, arm)

    def _write(self, step: int, arm: int) -> None:
        file = self._open() if self._file is None else self._file
        if step < self._next - 1 or (step == self._next - 1 and arm == self._last):
            return
        if step == self._next - 1:
            raise DataError(
                f"{self._path} has arm {self._last} for step {step}, but the run chose arm {arm}. "
                "Correct the file."
            )
        line = f"{self._run},{step},{arm}\n".encode()
        if os.write(file, line) != len(line):
            self._file = None  # the line is torn: it is cut off when the file is opened again
            os.close(file)
            raise DataError(f"{self._path} cannot be written: the disk is full. Free some space.")
        files.sync_data(file)
        self._next, self._last = step + 1, arm

    def _open(self) -> int:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise DataError(
                f"cannot write {self._path}: {error.strerror}. Choose a place you may write to."
            ) from error
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        os.ftruncate(file, len(whole))
        if not whole:
            os.write(file, _HEADER)
        last = whole.decode(errors="replace").rstrip("\n").rpartition("\n")[2].split(",")
        if len(last) == 3 and last[1].isdigit() and last[2].isdigit():
            if last[0] != self._run:
                os.close(file)
                raise DataError(
                    f"{self._path} has the arms of run '{last[0]}', this is '{self._run}'. Give "
                    "another file."
                )
            self._next, self._last = int(last[1]) + 1, int(last[2])
        self._file = file
        return file


def pulling(pull: Pull) -> Source:
    """Give what pulls as the runtime asks it."""

    async def act(ask: Ask) -> Message:
        assert isinstance(ask, Act)
        await pull(ask.step, ask.arm)
        return Acted(ask.step)

    return act


def earning(source: RewardSource, run: str, within: RewardRange) -> Source:
    """Give a source of rewards as the runtime asks it."""

    async def earn(ask: Ask) -> Message:
        assert isinstance(ask, Earn)
        return Earned(ask.step, await units(source, run, ask.step, "step", within))

    return earn


class Slotted:
    """A source whose answers come at whole slots after they were asked for, and a random while
    later.
    """

    def __init__(self, source: Source, slot: float, jitter: float) -> None:
        self.source, self._slot, self._jitter = source, slot, jitter
        self.overruns = 0
        """Answers that took longer than a slot: these show that they did."""

    async def __call__(self, ask: Ask) -> Message:
        """Ask, and wait for the end of the slot."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await self.source(ask)
        took = loop.time() - began
        slots = max(1, math.ceil(took / self._slot)) if self._slot else 0
        self.overruns += slots > 1
        chance = random.SystemRandom().uniform(0, self._jitter)
        await asyncio.sleep(max(0.0, slots * self._slot - took) + chance)
        return answer


def timed(source: Source, terms: Terms) -> Source:
    """Hold back what a source answers as the terms say."""
    return Slotted(source, terms.slot, terms.jitter) if terms.slot or terms.jitter else source


def looking(source: FeatureSource, bits: int, size: int, bound: float, *, scale: bool) -> Source:
    """Give a source of features as the runtime asks it: in fixed point, each row within the party's
    norm.
    """

    async def look(ask: Ask) -> Message:
        assert isinstance(ask, Look)
        arrived = await source(ask.step)
        if arrived is None:
            return Seen(ask.step, "", b"", over=True)
        row, numbers = arrived
        if len(numbers) != size or not all(map(math.isfinite, numbers)):
            raise DataError(
                f"context {ask.step + 1} must have {size} finite features, got {str(numbers)[:80]}."
            )
        values = np.array([numbers])
        values = scale_to_bound(values, bound) if scale else values
        if (norm := float(row_norms(values)[0])) > bound + SLACK:
            raise DataError(
                f"context {ask.step + 1} must have a norm of at most the bound {bound:.6g}, got "
                f"{norm:.6g}. Scale the "
                "features, or set scale to have longer rows scaled down."
            )
        return Seen(ask.step, row, FixedPoint(bits, bound).encode(values).tobytes())

    return look


class WorldArms:
    """A simulated world's arms, 2 bytes a step: written for the puller, read for the payee.

    They survive the death of processes, not of the machine.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    async def pull(self, step: int, arm: int) -> None:
        """Note the arm of a step."""
        os.pwrite(self._open(), arm.to_bytes(ARM_BYTES, "little"), ARM_BYTES * step)

    def at(self, step: int) -> int:
        """Return the arm of a step."""
        arm = os.pread(self._open(), ARM_BYTES, ARM_BYTES * step)
        if len(arm) != ARM_BYTES:
            raise DataError(
                f"{self._path} has no arm of step {step + 1}. Restore it, or begin another run."
            )
        return int.from_bytes(arm, "little")

    def _open(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._file


def row_order(contexts: Contexts, seed: int, terms: Terms) -> NDArray[np.int64]:
    """Row of every step of a simulated world: a run that starts from another goes on where that one
    ended.
    """
    return contexts.order(seed, terms.before + terms.steps)[terms.before :]


def simulated(contexts: Contexts, seed: int, terms: Terms, arms: WorldArms) -> Source:
    """Pay what the arm of a step earns in a simulated world."""
    rows = row_order(contexts, seed, terms)

    async def earn(ask: Ask) -> Message:
        assert isinstance(ask, Earn)
        return Earned(ask.step, contexts.reward(seed, int(rows[ask.step]), arms.at(ask.step)))

    return earn


# Shares of the model ------------------------------------------------------------------------------


class Share(msgspec.Struct, frozen=True, array_like=True, tag="Share", forbid_unknown_fields=True):
    """One party's share after a step, with the terms of the run."""

    terms: Terms
    party: str
    step: int
    data: bytes
    digest: bytes
    """Of the data: a damaged share would make another model, and nobody would see it."""
    tag: str = ""
    """The same in all shares of one step of one run, and in no others; it says nothing about the
    model.
    """
    columns: tuple[str, ...] = ()
    """Names of this party's features, where they came from a table."""

    @property
    def start(self) -> str:
        """What a run says in its terms that starts from it: steps learnt from, and the tag."""
        return f"{self.terms.before + self.step}:{self.tag}"

    @property
    def words(self) -> Words:
        """The share: (arms, size)."""
        return np.frombuffer(self.data, np.uint64).reshape(self.terms.arms, -1)


@dataclass(frozen=True, eq=False)
class Model:
    """The model in the clear."""

    terms: Terms
    step: int
    words: Words
    """(arms, D (D + 1) / 2 + D) in fixed point: the upper triangle of P, w behind."""

    @property
    def weights(self) -> NDArray[np.float64]:
        """(arms, D) weights."""
        return self._numbers[:, Layout(self.terms.dimension).triangle :]

    @property
    def inverse(self) -> NDArray[np.float64]:
        """(arms, D, D) inverse of I + sum of x x' over the steps in which an arm was pulled."""
        layout = Layout(self.terms.dimension)
        return self._numbers[:, layout.rows[:-1]]

    def check(self) -> Model:
        """Raise where rounding has broken the model: P must be positive, and weights within their
        bound.

        Whoever may read the model can notice it, and a simulation. Parties on shares cannot: what
        they open is masked, and a bit that says "out of range" would be one about the contexts.
        """
        least, most = np.linalg.eigvalsh(self.inverse)[:, 0], np.abs(self.weights).max(axis=1)
        for arm in np.flatnonzero(
            (least <= 0) | (most > largest_score(self.terms.lessons))
        ).tolist():
            raise DataError(
                f"the model of arm {arm + 1} is broken after {self.step:,} steps: the least "
                "eigenvalue of P is "
                f"{least[arm]:.3g} and the largest weight {most[arm]:.3g}. Check that contexts "
                "have norm at most 1; "
                "take more bits, or fewer steps."
            )
        return self

    @property
    def _numbers(self) -> NDArray[np.float64]:
        return FixedPoint(self.terms.bits, 1.0).decode(self.words)


def make_place(folder: Path, terms: Terms) -> None:
    """Make a folder for the shares of a run's end; refuses one that has shares of other steps."""
    for party in terms.parties:
        files.make_private_folder(folder / party)
        if others := sorted(set(_shares(folder / party)) - {terms.steps}):
            raise ConfigError(
                f"{folder / party} has shares of another run, of {others[-1]} steps. Give "
                "keep_shares another folder."
            )


def write_share(
    folder: Path,
    terms: Terms,
    party: str,
    step: int,
    data: bytes,
    tag: str = "",
    columns: tuple[str, ...] = (),
) -> Path:
    """Write a party's share, for its owner's eyes only, and remove all but the last ones."""
    path = folder / f"model-{step}.share"
    share = Share(terms, party, step, data, hashlib.sha256(data).digest(), tag, columns)
    files.write_whole(path, msgspec.msgpack.encode(share), mode=files.PRIVATE)
    for old in sorted(_shares(folder))[:-KEPT]:
        (folder / f"model-{old}.share").unlink(missing_ok=True)
    return path


def read_shares(places: Path | Iterable[Path], step: int | None = None) -> Model:
    """Add up the shares of all parties: `places` are their files, or folders that hold them at any
    depth.

    Of folders it takes the last step of which all parties have a share, or the given one.
    """
    held = gathered(places, step)
    first = next(iter(held.values()))
    words: Words = np.sum([share.words for share in held.values()], axis=0, dtype=np.uint64)
    return Model(first.terms, first.step, words).check()


def own_share(path: Path, party: str, terms: Terms) -> Words:
    """Return the share that a party starts from; refuses that of another party, run or step than
    the terms name.
    """
    share = _read(path)
    if share.party != party:
        raise DataError(
            f"{path} is the share of '{share.party}', this is '{party}'. Give its own in "
            "start_from."
        )
    if not share.tag:
        raise DataError(
            f"{path} has no tag: an older version of Posse wrote it. Take the shares of a newer "
            "run."
        )
    if not terms.start:
        raise ConfigError(
            f"all must agree on the shares that they start from. For {path} give start = "
            f'"{share.start}" to everyone, '
            "and compare it with the other parties."
        )
    if share.start != terms.start:
        raise DisagreementError(
            f"{path} is of {share.start[:15]}..., the terms start from {terms.start[:15]}...: "
            "another run or step. "
            "Give the shares of one step of one run to all parties."
        )
    check_fits(share.terms, terms)
    return share.words


def check_fits(earlier: Terms, terms: Terms) -> None:
    """Refuse to start from a model of other parties, features, arms, bits or rewards, or one that
    explored less.
    """
    for name in ("parties", "features", "arms", "bits", "reward_range"):
        if (had := getattr(earlier, name)) != (has := getattr(terms, name)):
            raise ConfigError(
                f"the model to start from was learnt with {name} {had}, and this run has {has}. "
                "Take the same."
            )
    if earlier.rate < terms.rate:
        raise ConfigError(
            f"epsilon must be at most {earlier.rate:g}, that of the earlier model, got "
            f"{terms.rate:g}: else earlier arms would count for less privacy than they cost. "
            "Lower epsilon."
        )


def gathered(places: Path | Iterable[Path], step: int | None = None) -> dict[str, Share]:
    """Return the shares of all parties of one step of one run."""
    by_step: dict[int, list[tuple[Path, Share]]] = {}
    for path in _files([places] if isinstance(places, Path) else places):
        share = _read(path)
        by_step.setdefault(share.step, []).append((path, share))
    if not by_step:
        raise DataError(
            f"there are no shares of a model in {places}. Give the folder of files called "
            "model-<step>.share, which is next to a journal."
        )
    whole = [each for each, shares in by_step.items() if not _missing(shares)]
    if step is None and any(
        by_step[each][0][1].terms != by_step[whole[0]][0][1].terms for each in whole
    ):
        raise DataError(f"there are shares of several runs in {places}. Give the folder of one.")
    at = step if step is not None else max(whole, default=max(by_step))
    if at not in by_step:
        raise DataError(
            f"there are no shares of step {at}. There are some of "
            f"{', '.join(map(str, sorted(by_step)))}."
        )
    shares = by_step[at]
    first = shares[0][1]
    for path, share in shares:
        if share.terms != first.terms or share.tag != first.tag:
            raise DataError(
                f"{path} is of another run than {shares[0][0]}. Bring shares of one run together."
            )
    if missing := _missing(shares):
        raise DataError(
            f"the share of '{missing[0]}' is missing for step {first.step}, and a model needs "
            "the shares of all parties. Add it."
        )
    held = {share.party: share for _, share in shares}
    return {party: held[party] for party in first.terms.parties}


def features_in(shares: Mapping[str, Share]) -> tuple[str, ...]:
    """Names of all features, where each party had its own from a table; party:name where two have
    one of a name.
    """
    every = [(party, name) for party, share in shares.items() for name in share.columns]
    named = [name for _, name in every]
    sizes = next(iter(shares.values())).terms.features
    if tuple(len(share.columns) for share in shares.values()) != sizes:
        return ()
    return tuple(name if named.count(name) == 1 else f"{party}:{name}" for party, name in every)


def share_file(folder: Path, party: str, start: str) -> Path:
    """Return the file of a party's share with this steps and tag."""
    return next(
        path
        for path in _files([folder])
        if (one := _read(path)).party == party and one.start == start
    )


def _missing(shares: Sequence[tuple[Path, Share]]) -> list[str]:
    held = {share.party for _, share in shares}
    return [party for party in shares[0][1].terms.parties if party not in held]


def _files(places: Iterable[Path]) -> list[Path]:
    paths: list[Path] = []
    for place in places:
        paths += sorted(place.rglob("model-*.share")) if place.is_dir() else [place]
    return paths


def _read(path: Path) -> Share:
    try:
        share = msgspec.msgpack.decode(path.read_bytes(), type=Share)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.MsgspecError as error:
        raise DataError(f"{path} is no share of a model: {error}.") from error
    size = 8 * share.terms.arms * Layout(share.terms.dimension).size
    if len(share.data) != size or hashlib.sha256(share.data).digest() != share.digest:
        raise DataError(f"{path} is damaged. Take another copy, or the shares of another step.")
    return share


def _shares(folder: Path) -> list[int]:
    return [int(match[1]) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
