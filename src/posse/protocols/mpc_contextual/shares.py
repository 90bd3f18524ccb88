"""A party's share of the model as a file, and the model that all shares together make.

One share says nothing about the model. Whoever brings the files of all parties together has it: that is for them to
decide, and no party does it by itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from posse.core import files
from posse.core.errors import DataError
from posse.privacy.sharing.fixed import FixedPoint, Words
from posse.protocols.mpc_contextual.program import Layout
from posse.protocols.mpc_contextual.terms import Terms

KEPT = 2
"""Shares that a party keeps: parties that were stopped are at most a checkpoint apart."""
_NAME = re.compile(r"model-(\d+)\.share")


class Share(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """One party's share after a step, with the terms of the run."""

    terms: Terms
    party: str
    step: int
    data: bytes
    digest: bytes
    """Of the data: a damaged share would make another model, and nobody would see it."""


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

    @property
    def _numbers(self) -> NDArray[np.float64]:
        return FixedPoint(self.terms.bits, 1.0).decode(self.words)


def write_share(folder: Path, terms: Terms, party: str, step: int, data: bytes) -> Path:
    """Write a party's share, for its owner's eyes only, and remove all but the last ones."""
    path = folder / f"model-{step}.share"
    share = Share(terms, party, step, data, hashlib.sha256(data).digest())
    files.write_whole(path, msgspec.msgpack.encode(share), mode=files.PRIVATE)
    for old in sorted(_shares(folder))[:-KEPT]:
        (folder / f"model-{old}.share").unlink(missing_ok=True)
    return path


def read_shares(places: Path | Iterable[Path], step: int | None = None) -> Model:
    """Add up the shares of all parties: `places` are their files, or folders that hold them at any depth.

    Of folders it takes the last step of which all parties have a share, or the step that is asked for.
    """
    found: dict[int, list[tuple[Path, Share]]] = {}
    for path in _files([places] if isinstance(places, Path) else places):
        share = _read(path)
        found.setdefault(share.step, []).append((path, share))
    if not found:
        raise DataError(f"no shares of a model there: {places}. They are called model-<step>.share, beside a journal.")
    whole = [each for each, shares in found.items() if not _missing(shares)]
    at = step if step is not None else max(whole, default=max(found))
    if at not in found:
        raise DataError(f"there are no shares of step {at}. There are some of {', '.join(map(str, sorted(found)))}.")
    return _together(found[at])


def _together(shares: Sequence[tuple[Path, Share]]) -> Model:
    terms, step = shares[0][1].terms, shares[0][1].step
    for path, share in shares:
        if share.terms != terms:
            raise DataError(f"{path} is of another run than {shares[0][0]}. Bring shares of one run together.")
    if missing := _missing(shares):
        raise DataError(
            f"the shares of step {step} lack that of '{missing[0]}': without it the others say nothing. Bring it too."
        )
    held = {share.party: np.frombuffer(share.data, np.uint64) for _, share in shares}
    words: Words = np.sum([held[party] for party in terms.parties], axis=0, dtype=np.uint64)
    return Model(terms, step, words.reshape(terms.arms, Layout(terms.dimension).size))


def _missing(shares: Sequence[tuple[Path, Share]]) -> list[str]:
    held = {share.party for _, share in shares}
    return [party for party in shares[0][1].terms.parties if party not in held]


def _files(places: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        found += sorted(place.rglob("model-*.share")) if place.is_dir() else [place]
    return found


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
