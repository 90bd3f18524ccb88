"""Runs of Samba at level `strict` on chosen worlds, what a coalition saw of them, and streams
programmed so that the honest server's and owners' randomness makes up for other scores, arms and
rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from posse.core.roles import Entry, Message, Pull, Reward
from posse.policies import Policy
from posse.privacy.crypto import streams
from posse.privacy.crypto.keys import hkdf
from posse.privacy.crypto.pairwise import present_digest
from posse.privacy.sharing import shuffle
from posse.privacy.sharing.garbled import LABELS, LAYERS, WORDS, choose, garble
from posse.problems import BernoulliArms
from posse.runtime.memory import MemoryRun
from posse.systems.samba.federation import prepare
from posse.systems.samba.messages import Keys, Score, Sum
from posse.systems.samba.strict import sums
from posse.systems.samba.strict.messages import (
    Ahead,
    Compare,
    Compared,
    Dealing,
    Dealt,
    Found,
    Keyring,
    Placed,
    Relayed,
    Seeds,
    Share,
    Shuffled,
    Stream,
)

Words = NDArray[np.uint64]
World = Callable[[int, int], int]
"""Pays an owner's pull: (owner from 0, number of the pull) -> units."""
LOW = np.uint64(2**63 - 1)


class Game:
    """A federation whose roles are made from the same secrets in every run."""

    def __init__(self, policy: Policy, owners: int, budget: int, seed: int = 5) -> None:
        self.policy, self.owners, self.budget = policy, owners, budget
        arms = BernoulliArms(np.linspace(0.3, 0.7, owners))
        self.make = prepare(arms, policy, budget, seed=seed, level="strict")

    def play(self, world: World, programmed: Mapping[bytes, bytes] | None = None) -> Played:
        """Run to the end in a world, with some streams replaced."""
        arms: list[int] = []
        rewards: list[int] = []

        def pay(pull: Pull) -> Reward:
            owner = int(pull.party.removeprefix("owner-")) - 1
            arms.append(owner)
            rewards.append(world(owner, pull.number))
            return Reward(pull.number, rewards[-1])

        run = MemoryRun(self.make(), pay, transcript=10**6)
        with replaced(programmed or {}) as read:
            run.finish()
        assert read == set(programmed or {})
        assert all(role.finished for role in run.roles.values())
        return Played(self, run, arms, rewards)


@contextmanager
def replaced(programmed: Mapping[bytes, bytes]) -> Iterator[set[bytes]]:
    """Let these keys give these streams; yields the keys that were read."""
    read: set[bytes] = set()
    original = streams.keystream

    def keystream(key: bytes, counter: int, length: int) -> bytes:
        if key not in programmed:
            return original(key, counter, length)
        read.add(key)
        return programmed[key][16 * counter : 16 * counter + length]

    modules = (streams, shuffle, sums)
    for module in modules:
        module.keystream = keystream  # type: ignore[attr-defined]
    try:
        yield read
    finally:
        for module in modules:
            module.keystream = original  # type: ignore[attr-defined]


@dataclass
class Pass:
    """One pass: what its messages said."""

    frames: Words
    ahead: Ahead
    shuffled: Shuffled
    questions: list[Shuffled | Compare]
    answers: list[bytes]
    found: int
    placed: bytes


class Played:
    """A run that is over."""

    def __init__(self, game: Game, run: MemoryRun, arms: list[int], rewards: list[int]) -> None:
        self.game, self.run, self.arms, self.rewards = game, run, arms, rewards
        assert run.transcript is not None
        self.entries: list[Entry] = list(run.transcript)
        roles: Any = run.roles
        self.controller, self.comp, self.dealer = (
            roles["controller"],
            roles["comp"],
            roles["dealer"],
        )
        self.names = tuple(f"owner-{number + 1}" for number in range(game.owners))
        self.streams = [pads._key for pads in self.comp._pads_of]
        self.start = self.comp._start
        self.total = roles["customer"].total

    def passes(self) -> list[Pass]:
        """Read every pass off the transcript."""
        found: dict[int, Any] = {}
        for entry in self.entries:
            message: Any = entry.message
            if isinstance(message, Score):
                one = found.setdefault(
                    message.index, {"frames": {}, "questions": [], "answers": []}
                )
                one["frames"][entry.sender] = int.from_bytes(message.frame, "little")
            elif isinstance(message, (Shuffled, Compare)):
                found[message.index]["questions"].append(message)
            elif isinstance(message, Compared):
                found[message.index]["answers"].append(message.answer)
            elif isinstance(message, Found):
                found[message.index]["found"] = message.place
            elif isinstance(message, Placed):
                found[message.index]["placed"] = message.bits
            for ahead in (message, getattr(message, "ahead", None)):
                if isinstance(ahead, Ahead):
                    one = found.setdefault(
                        ahead.index, {"frames": {}, "questions": [], "answers": []}
                    )
                    one["ahead"] = ahead
        made = []
        for index in sorted(found):
            one = found[index]
            frames = np.array([one["frames"][name] for name in self.names], np.uint64)
            parts = one["questions"], one["answers"], one["found"], one["placed"]
            made.append(Pass(frames, one["ahead"], one["questions"][0], *parts))
        return made

    def pads(self, index: int) -> Words:
        """Both pads of every owner in a pass."""
        return np.array([shuffle.words_at(key, 2 * index, 2) for key in self.streams]).T

    def numbers(self) -> NDArray[np.int64]:
        """The scores of every pass, as the integers that are compared."""
        return np.array(
            [
                (one.frames + self.pads(self.start + n)[0]).view(np.int64)
                for n, one in enumerate(self.passes())
            ]
        )

    def view(self, *coalition: str) -> list[tuple[str, str, str, object]]:
        """What these parties together saw; sealed parts as what one of them opens, or as their
        length.

        Scores of a pass come in the order of the owners: that the one that pulls comes last is
        time, which slots hide.
        """
        entries = [
            entry
            for entry in self.entries
            if entry.sender in coalition or entry.receiver in coalition
        ]
        seen = [
            (
                entry.sender,
                entry.receiver,
                type(entry.message).__name__,
                self._seen(entry.message, coalition),
            )
            for entry in entries
        ]
        begins = 0
        for at in range(len(seen) + 1):
            if at == len(seen) or seen[at][2] not in ("Score", "Sum", "Reward"):
                seen[begins:at] = sorted(seen[begins:at], key=lambda one: (one[2], one[:2]))
                begins = at + 1
        return seen

    def _seen(self, message: Message, coalition: Sequence[str]) -> object:
        comp, controller = "comp" in coalition, "controller" in coalition
        if isinstance(message, Dealt):
            opened = (
                self.comp._frames.open(message.chunk, message.comp) if comp else len(message.comp)
            )
            return (
                message.chunk,
                message.controller if controller or "dealer" in coalition else None,
                opened,
            )
        if isinstance(message, Relayed):
            return message.chunk, self.comp._frames.open(
                message.chunk, message.sealed
            ) if comp else len(message.sealed)
        if isinstance(message, Seeds | Stream | Share | Keys | Keyring | Dealing):
            return len(message.keys) if isinstance(message, Keyring) else type(message).__name__
        fields = {
            name: getattr(message, name)
            for name in message.__struct_fields__
            if name != "signature"
        }
        for name in ("joins", "consents"):
            if name in fields:
                fields[name] = [each.name for each in fields[name]]
        if "streams" in fields:
            fields["streams"] = len(fields["streams"])
        if "comp" in fields:
            fields["comp"] = "sealed"
        return msgspec.msgpack.encode(fields)


# Programming --------------------------------------------------------------------------------------


def ranks(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rank of every value, 0 the smallest."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")


def words_for(order: NDArray[np.int64]) -> Words:
    """Words whose order is this permutation."""
    words = np.empty(len(order), np.uint64)
    words[order] = np.arange(len(order), dtype=np.uint64)
    return words


class Programme:
    """Streams of the honest parties under which a run on other numbers looks the same to the
    rest.
    """

    def __init__(self, first: Played, numbers: NDArray[np.int64]) -> None:
        self.first, self.numbers, self.k = first, numbers, first.game.owners
        self.seen = first.passes()
        self.before = first.numbers()
        self.buffers: dict[bytes, Words] = {}

    def buffer(self, key: bytes, size: int) -> Words:
        """A stream that can be written, as it was."""
        if key not in self.buffers:
            self.buffers[key] = shuffle.words_at(key, 0, size + size % 2).copy()
        return self.buffers[key]

    @property
    def streams(self) -> dict[bytes, bytes]:
        """What was programmed."""
        return {key: words.tobytes() for key, words in self.buffers.items()}

    def orders(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The permutations of a pass in the first run."""
        controller, comp, k = self.first.controller._first, self.first.comp._second, self.k
        width = shuffle._second_words(k)
        return (
            shuffle.order(shuffle.words_at(controller.tape, n * 3 * k, k)),
            shuffle.order(shuffle.words_at(comp.tape, n * width, k)),
        )

    def pairs(self, n: int) -> Iterator[tuple[NDArray[Any], NDArray[Any], Words, Words]]:
        """Places of both numbers, shifts and answer words of every question of a pass."""
        for question, answer in zip(self.seen[n].questions, self.seen[n].answers, strict=True):
            one, other = shuffle._pairs(question.champion, np.frombuffer(question.places, "<u2"))
            yield (
                one,
                other,
                np.frombuffer(question.shifts, "<u8"),
                np.frombuffer(answer, "<u8").reshape(-1, WORDS),
            )

    def for_controller(self) -> dict[bytes, bytes]:
        """Program comp and the owners: what the controller sees stays."""
        first, k, passes = self.first, self.k, len(self.seen)
        server, comp, width = (
            first.controller._first,
            first.comp._second,
            shuffle._second_words(self.k),
        )
        whole = shuffle.passes(k) * -(-passes // shuffle.passes(k)) + 2 * shuffle.passes(k)
        compared = comp.compared + 64 * shuffle.PAIRS
        tape = self.buffer(comp.tape, whole * width)
        pads, labels = (
            self.buffer(comp.pads, compared * WORDS),
            self.buffer(comp._own, compared * LABELS),
        )
        at = 0
        for n, one in enumerate(self.seen):
            mine, theirs = self.orders(n)
            words = server_words = shuffle.words_at(server.tape, n * 3 * k, 3 * k)
            old = shuffle.words_at(comp.tape, n * width, width)
            x = self.numbers[n].view(np.uint64)
            pad = x - one.frames
            a = pad - np.frombuffer(one.ahead.share, "<u8")
            delta = old[k : 2 * k][mine] - old[2 * k : 3 * k]
            shuffled = self.numbers[n][mine]
            order = np.argsort(shuffled, kind="stable")[ranks(self.before[n][mine][theirs])]
            row = tape[n * width : (n + 1) * width]
            row[:k], row[k : 2 * k], row[2 * k : 3 * k] = words_for(order), a, a[mine] - delta
            before = shuffle._returns(old, k)
            flips = (before >> 1) & 1
            flips[mine] ^= before & 1
            c = np.unpackbits(np.frombuffer(one.placed, np.uint8), count=k)
            c[order[one.found]] ^= 1
            e = flips.copy()
            e[mine] ^= c
            tail = np.zeros(8 * (width - 3 * k), np.uint8)
            tail[:k] = c | e << 1
            row[3 * k :] = tail.view(np.uint64)
            self._owner_pads(n, pad, np.frombuffer(one.ahead.replies, "<u8") ^ e)
            z = shuffled[order].view(np.uint64) - server_words[2 * k :]
            hidden = words[2 * k :]
            for left, right, shifts, answer in self.pairs(n):
                n_ = ~(hidden[left] - hidden[right]) & LOW
                span = slice(at * WORDS, (at + len(left)) * WORDS)
                made = solve(answer, n_, shifts, z[left] - z[right], pads[span].reshape(-1, WORDS))
                pads[span], labels[at * LABELS : (at + len(left)) * LABELS] = (
                    made[0].ravel(),
                    made[1].ravel(),
                )
                at += len(left)
        return self.streams

    def _owner_pads(self, n: int, scores: Words, replies: Words) -> None:
        size = 2 * (self.first.start + len(self.seen) + 512)
        for key, score, reply in zip(self.first.streams, scores, replies, strict=True):
            place = 2 * (self.first.start + n)
            buffer = self.buffer(key, size)
            buffer[place], buffer[place + 1] = score, reply

    def for_comp(self) -> dict[bytes, bytes]:
        """Program the controller: what comp sees stays. Owners' pads are comp's too, and stay."""
        first, k, passes = self.first, self.k, len(self.seen)
        server, comp, width = (
            first.controller._first,
            first.comp._second,
            shuffle._second_words(self.k),
        )
        whole = shuffle.passes(k) * -(-passes // shuffle.passes(k)) + 2 * shuffle.passes(k)
        tape = self.buffer(server.tape, whole * 3 * k)
        choices = self.buffer(server.pads, comp.compared + 64 * shuffle.PAIRS)
        at = 0
        for n, one in enumerate(self.seen):
            mine, theirs = self.orders(n)
            own = shuffle.words_at(server.tape, n * 3 * k, 3 * k)
            old = shuffle.words_at(comp.tape, n * width, width)
            order = np.argsort(self.numbers[n], kind="stable")[ranks(self.before[n][mine])]
            delta = own[k : 2 * k][theirs] - own[2 * k :]
            a = (
                self.numbers[n][order].view(np.uint64)
                - old[2 * k : 3 * k]
                - np.frombuffer(one.shuffled.masked, "<u8")
            )
            b = a[theirs] - delta
            row = tape[n * 3 * k : (n + 1) * 3 * k]
            row[:k], row[k : 2 * k], row[2 * k :] = words_for(order), a, b
            for left, right, shifts, _ in self.pairs(n):
                choices[at : at + len(left)] = (~(b[left] - b[right]) & LOW) ^ shifts
                at += len(left)
        return self.streams

    def for_dealer(self) -> dict[bytes, bytes]:
        """Program the order in which the controller takes places: what the dealer sees, which knows
        the rest, stays.
        """
        key, k = self.first.controller._first._own, self.k
        words = self.buffer(key, len(self.seen) * k)
        for n in range(len(self.seen)):
            mine, theirs = self.orders(n)
            taken = shuffle.order(shuffle.words_at(key, n * k, k))
            seen = ranks(self.before[n][mine][theirs][taken])
            words[n * k : (n + 1) * k] = words_for(
                np.argsort(self.numbers[n][mine][theirs], kind="stable")[seen]
            )
        return self.streams

    def sums(self, other: Played, honest: Sequence[str]) -> None:
        """Program comp's shares of the honest owners' sums, so that the controller's stay."""
        sent = [
            {e.sender: e.message for e in p.entries if isinstance(e.message, Sum)}
            for p in (self.first, other)
        ]
        digest = present_digest(self.first.names, self.first.comp._digest)
        for name, stream in zip(self.first.names, self.first.comp._streams, strict=True):
            if name in honest:
                key = hkdf(stream, b"posse strict sum" + digest)
                true = sums.added((sums.decode(sent[1][name].ciphertext), sums.pad(stream, digest)))
                seen = sums.decode(sent[0][name].ciphertext)
                pads = [(t - s) % sums.PRIME for t, s in zip(true, seen, strict=True)]
                self.buffers[key] = np.frombuffer(
                    b"".join(p.to_bytes(32, "big") for p in pads), "<u8"
                ).copy()


def solve(
    answer: Words, n: Words, shifts: Words, numbers: Words, pads: Words
) -> tuple[Words, Words]:
    """Return pads and labels with which the sender, having other numbers of the same order, sends
    the same words.

    The receiver's choices are n XOR shifts; the pads of these stay.
    """
    choices = n ^ shifts
    dealt, chosen = np.empty(answer.shape, np.uint8), np.empty(answer.shape, np.uint8)
    choose(pads, choices, dealt)
    choose(answer, choices, chosen)
    chosen ^= dealt
    labels = np.zeros((len(answer), LABELS), np.uint64)
    for i in range(len(answer)):
        both = _labels(chosen[i], int(n[i]), int(numbers[i]))
        labels[i] = [zero | one << 32 for zero, one in both]
    found = np.empty_like(answer)
    garble(numbers, shifts, np.zeros_like(answer), labels, found)
    return found ^ answer, labels


def _labels(chosen: NDArray[np.uint8], n: int, d: int) -> list[tuple[int, int]]:
    """Both labels before every layer but the first: of the true state what the receiver opened, of
    the other what fits the entry that it could not open.
    """
    active, entries = _opened(chosen)
    states = [0]
    for layer in range(LAYERS):
        mine, theirs = n >> 3 * layer & 7, d >> 3 * layer & 7
        states.append(int(mine < theirs) if mine != theirs else states[-1])
    flip = d >> 63
    following = (flip, flip ^ 1)
    made: list[tuple[int, int]] = []
    for layer in range(LAYERS - 1, 0, -1):
        mine, theirs = n >> 3 * layer & 7, d >> 3 * layer & 7
        state = states[layer]
        after = int(mine < theirs) if mine != theirs else 1 - state
        pointer = active[layer] & 1
        other = (entries[layer][1 - pointer] ^ following[after]) << 1 | (1 - pointer)
        both = (active[layer], other) if state == 0 else (other, active[layer])
        made.append(both)
        following = both
    return made[::-1]


def _opened(chosen: NDArray[np.uint8]) -> tuple[list[int], list[tuple[int, int]]]:
    """The label that the receiver opens before every layer, and both entries of every layer as it
    has them.
    """
    label = int(chosen[0]) | int(chosen[1]) << 8 | int(chosen[2]) << 16
    active, entries, word = [0], [(0, 0)], 3
    for layer in range(1, LAYERS):
        active.append(label)
        left, both = LAYERS - layer, [0, 0]
        for j in range(-(-left // 4)):
            for b in range(4):
                for pointer in (0, 1):
                    both[pointer] |= (int(chosen[word]) >> (2 * b + pointer) & 1) << (4 * j + b)
            word += 1
        entries.append((both[0] & (1 << left) - 1, both[1] & (1 << left) - 1))
        label = (entries[-1][label & 1] ^ label >> 1) & ((1 << left) - 1)
    return active, entries
