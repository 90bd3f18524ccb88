"""What is drawn in a run of `mpc_contextual`: every tape, every item of it, every mask of an input,
every stream.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from posse.privacy.sharing.dealing import Plan, Supply
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.tape import TRACKS, Shape, Tape
from posse.systems.mpc_contextual.roles.dealer import DealerKeys
from posse.systems.mpc_contextual.terms import PAYEE, PULLER, Terms

_MPC = "posse.systems.mpc_contextual"
_STREAMS = ("posse.privacy.crypto.streams", "posse.privacy.sharing.dealing", f"{_MPC}.program")


class Meter:
    """Looks on while roles run."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.tapes: list[tuple[bytes, int, Tape]] = []
        """Seed and number of every tape that a party opened."""
        self.items: defaultdict[int, list[tuple[str, int, NDArray[Any]]]] = defaultdict(list)
        """Track, place and content of everything handed out, by identity of the tape."""
        self.inputs: list[tuple[bytes, int, Words]] = []
        """Seed, step and words of every mask of an input that its owner drew."""
        self.streams: set[tuple[bytes, int, int]] = set()
        """Key, counter and bytes of every AES stream that anyone expanded, the dealer included."""
        self._tapes(patch)
        for module in ("party", "puller_and_payee"):
            self._inputs(patch, f"{_MPC}.roles.{module}")
        for module in _STREAMS:
            self._streams(patch, module)

    def _tapes(self, patch: pytest.MonkeyPatch) -> None:
        opened, took = Supply.open, Tape._take

        def open_(supply: Supply, number: int) -> Tape:
            tape = opened(supply, number)
            self.tapes.append((supply._key, number, tape))
            return tape

        def take(tape: Tape, name: str, shape: Shape) -> NDArray[np.uint64]:
            at = tape._at[name]
            found = took(tape, name, shape)
            self.items[id(tape)].append((name, at, found.ravel()))
            return found

        patch.setattr(Supply, "open", open_)
        patch.setattr(Tape, "_take", take)

    def _inputs(self, patch: pytest.MonkeyPatch, module: str) -> None:
        drawn = import_module(module).input_masks

        def input_masks(key: bytes, number: int, count: int) -> Words:
            words: Words = drawn(key, number, count)
            self.inputs.append((key, number, words))
            return words

        patch.setattr(import_module(module), "input_masks", input_masks)

    def _streams(self, patch: pytest.MonkeyPatch, module: str) -> None:
        expand = import_module(module).keystream

        def keystream(key: bytes, counter: int, length: int) -> bytes:
            self.streams.add((key, counter, length))
            data: bytes = expand(key, counter, length)
            return data

        patch.setattr(import_module(module), "keystream", keystream)


def check_once(meter: Meter, terms: Terms, plan: Plan, keys: DealerKeys) -> None:
    """Check that everything dealt was used, and used once."""
    passes = range(terms.passes)
    assert Counter((key, number) for key, number, _ in meter.tapes) == Counter(
        (key, number) for key in keys.tapes.values() for number in passes
    )
    contexts = [(terms.batch + terms.lag) * size for size in terms.features]
    outside = [terms.batch * terms.arms, terms.batch]
    sizes = dict(zip((*terms.parties, PULLER, PAYEE), (*contexts, *outside), strict=True))
    assert Counter((key, number, len(words)) for key, number, words in meter.inputs) == Counter(
        (keys.inputs[owner], number, size) for owner, size in sizes.items() for number in passes
    )
    for _, number, tape in meter.tapes:
        _check_tape(meter.items[id(tape)], plan, number)
    _check_counters(meter, 3 * len(terms.parties) + 3)
    _check_words(meter)


def _check_tape(items: list[tuple[str, int, NDArray[Any]]], plan: Plan, number: int) -> None:
    """Check that what was handed out covers every track, each place once."""
    for track in TRACKS:
        times = np.zeros(getattr(plan.sizes, track), np.int64)
        for name, at, words in items:
            if name == track:
                times[at : at + len(words)] += 1
        assert times.size, f"nothing of '{track}' is planned"
        assert (times == 1).all(), f"pass {number} used an item of '{track}' never or twice"


def _check_counters(meter: Meter, keys: int) -> None:
    """Check that two streams of one key have no AES block in common; parties and dealer expand the
    same ones.
    """
    by_key = defaultdict(list)
    for key, counter, length in meter.streams:
        by_key[key].append((counter, counter + -(-length // 16)))
    # A seed of tapes for every party, one of inputs for every owner, the dealer's coins, the
    # parties' places and pads.
    assert len(by_key) == keys
    for spans in by_key.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start, (
                f"streams overlap: a block before {end} is used from {start} on once more"
            )


def _check_words(meter: Meter) -> None:
    """Check that no word comes twice; among n words of 64 bits chance has it with n^2 / 2^65."""
    words = [words for _, _, words in meter.inputs]
    for _, _, tape in meter.tapes:
        words += [found for name, _, found in meter.items[id(tape)] if name in ("mask", "wide")]
    every = np.concatenate(words)
    assert len(every) ** 2 / 2**65 < 1e-9
    assert len(np.unique(every)) == len(every), "a word of 64 bits comes twice"
