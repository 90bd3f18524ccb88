"""What travels says beside what messages hold: when rewards come, what others acknowledge, sizes.

Sizes are read from the wire of any run. For the others a federation runs in this process over
mutual TLS on the loopback interface: in one run the rewards of later arms take longer, in the other
they all take as long. The party knows the arms of every second step, and guesses the others. With a
`slot` puller and payee answer at whole slots.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.core.roles import Entry, View
from posse.privacy.leakage.attack import WIRE, Attack, Evidence, Score, Truth
from posse.privacy.leakage.features import nearest_class
from posse.privacy.leakage.scores import hits, shuffled
from posse.systems.mpc_contextual.roles.messages import Choice, Opening, Payoff, Reveal
from posse.systems.mpc_contextual.roles.outside import Slotted
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, terms_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
STEPS, ROWS, ARMS = 80, 120, 3
SLOWER = 0.05
"""Seconds that a reward of each arm takes more than one of the arm before."""
PARTIES = ("party-1", "party-2")


@dataclass(frozen=True, eq=False)
class Watched:
    """What a party saw of every step, and the arms that it knows."""

    values: Floats
    """(steps, numbers)"""
    known: Ints
    """The arm, or -1."""


class Tap:
    """Looks at what a party receives: arrival of choices and rewards, marks and sizes of frames
    since the last one.
    """

    def __init__(self, party: Any) -> None:
        from posse.runtime.network.wire import Data, pack

        self.chosen: dict[int, float] = {}
        self.paid: dict[int, float] = {}
        self.beside: dict[int, list[float]] = {}
        self._marks: dict[str, int] = dict.fromkeys((PARTIES[1], PULLER, PAYEE, DEALER), 0)
        self._before, self._sizes = dict(self._marks), dict.fromkeys(self._marks, 0)
        self._data, self._pack, self._decode = Data, pack, party.engine.decoder.decode
        self._frame, party.frame = party.frame, self.frame

    def frame(self, connection: Any, frame: Any) -> None:
        """Look at a frame, and let it go on."""
        peer, now = connection.peer, time.perf_counter()
        self._marks[peer] = max(self._marks[peer], getattr(frame, "durable", 0))
        if isinstance(frame, self._data):
            message = self._decode(frame.body)
            self._sizes[peer] += len(self._pack(frame))
            if isinstance(message, Choice):
                self.chosen[message.step] = now
            if isinstance(message, Payoff):
                self.paid[message.step] = now
                moved = [self._marks[name] - self._before[name] for name in self._marks]
                self.beside[message.step] = [*map(float, moved), *map(float, self._sizes.values())]
                self._before, self._sizes = dict(self._marks), dict.fromkeys(self._sizes, 0)
        self._frame(connection, frame)


def recorded(seed: int, slower: float, slot: float = 0.0, jitter: float = 0.0) -> tuple[Tap, Ints]:
    """Run a federation of two parties whose rewards take longer by arm; return what the first saw,
    and the arms.
    """
    from posse.runtime.network.connection import Timing
    from posse.runtime.network.deployment import make_party
    from posse.runtime.place import open_place
    from posse.systems.mpc_contextual.deploy import build
    from posse.systems.mpc_contextual.layout import ContextualFederation, lay_out

    timing = Timing(
        heartbeat=0.2, patience=10.0, first_wait=0.01, longest_wait=0.2, sync_every=0.02, linger=3.0
    )
    arms: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        world = {
            "problem": "clusters",
            "arms": ARMS,
            "rows": ROWS,
            "components": 4,
            "seed": seed + 3,
        }
        addresses = {
            name: f"127.0.0.1:{_free_port()}" for name in (*PARTIES, PULLER, PAYEE, DEALER)
        }
        given = {
            "run": "audit",
            "steps": STEPS,
            "epsilon": "1/2",
            "world": world,
            "addresses": addresses,
            "slot": slot,
            "jitter": jitter,
        }
        paths = lay_out(ContextualFederation.make(given), Path(folder))

        async def go() -> Tap:
            made = {
                path.stem: make_party(open_place(path), build, timing=timing)[0] for path in paths
            }
            tap = Tap(made[PARTIES[0]])
            _slow(made[PULLER], made[PAYEE], arms, slower)
            try:
                await asyncio.wait_for(
                    asyncio.gather(*(party.run() for party in made.values())), 240
                )
            finally:
                for party in made.values():
                    party.engine.close()
            return tap

        tap = asyncio.run(go())
    return tap, np.array([arms[step] for step in range(STEPS)])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _slow(puller: Any, payee: Any, arms: dict[int, int], slower: float) -> None:
    """Let rewards take a while, and longer for later arms; slots begin when a reward is asked
    for.
    """
    holds = payee.source if isinstance(payee.source, Slotted) else None
    pulls, pays = puller.source, payee.source if holds is None else holds.source

    async def pull(ask: Any) -> Any:
        arms[ask.step] = ask.arm
        return await pulls(ask)

    async def pay(ask: Any) -> Any:
        await asyncio.sleep(0.005 + slower * arms[ask.step])
        return await pays(ask)

    puller.source = pull
    if holds is None:
        payee.source = pay
    else:
        holds.source = pay


def _watched(values: Floats, arms: Ints) -> Evidence:
    known = np.where(np.arange(len(arms)) % 2 == 0, arms, -1)
    return Evidence(Watched(values, known), {"arms": arms, "asked": known < 0})


def delays(settings: MpcContextual, seed: int) -> Iterator[Evidence]:
    """Stage rewards that take longer for later arms: seconds from the choice to the reward of every
    step.
    """
    tap, arms = recorded(seed, SLOWER, settings.slot, settings.jitter)
    yield _watched(np.array([[tap.paid[step] - tap.chosen[step]] for step in range(STEPS)]), arms)


def acknowledged(settings: MpcContextual, seed: int) -> Iterator[Evidence]:
    """Stage rewards that all take as long: what every peer acknowledged in a step, and the bytes it
    sent.
    """
    tap, arms = recorded(seed, 0.0)
    rows = range(2, STEPS)  # the first steps hold what was sent before them
    yield _watched(np.array([tap.beside[step] for step in rows]), arms[2:])


def guess(seen: Watched, seed: int) -> Ints:
    """Guess the arm of every step."""
    if not isinstance(seen, Watched):
        raise ConfigError(
            "this attack needs a run over sockets, which views do not have. Audit settings instead."
        )
    return nearest_class(seen.values, seen.known)


def score(found: Sequence[Ints], truths: Sequence[Truth]) -> Score:
    """Count the arms guessed right of those that were not known."""
    right = [
        (one == truth["arms"])[truth["asked"]] for one, truth in zip(found, truths, strict=True)
    ]
    arms = np.concatenate([truth["arms"][truth["asked"]] for truth in truths])
    return hits(
        int(np.concatenate(right).sum()),
        len(arms),
        float(np.bincount(arms).max() / len(arms)),
        "arms",
    )


def tells(evidence: Evidence, seed: int) -> Evidence:
    """Plant: one of the numbers of a step is its arm."""
    values = evidence.seen.values.copy()
    values[:, 0] = evidence.truth["arms"]
    return replace(evidence, seen=replace(evidence.seen, values=values))


other_arms = shuffled("arms", 28)


# Sizes --------------------------------------------------------------------------------------------


def guess_by_size(view: View, seed: int) -> Ints:
    """Guess the arm of every pass from the sizes of its messages: passes of one pattern of sizes
    get one arm.
    """
    terms = terms_of(view)
    sizes: dict[int, list[tuple[str, str, int]]] = {}
    for entry in view.entries:
        step = getattr(entry.message, "step", None)
        if isinstance(entry.message, Opening | Choice | Payoff | Reveal) and isinstance(step, int):
            chosen = step - (terms.lag if isinstance(entry.message, Choice | Payoff) else 0)
            sizes.setdefault(chosen, []).append(
                (entry.sender, entry.receiver, entry.size - _number_bytes(entry))
            )
    if not set(sizes) >= set(range(terms.choices)):
        raise DataError(f"the view holds {len(sizes)} of {terms.passes} passes: it is cut off.")
    patterns = {
        pattern: at
        for at, pattern in enumerate(sorted({tuple(sorted(one)) for one in sizes.values()}))
    }
    found = [patterns[tuple(sorted(sizes[number]))] for number in range(terms.choices)]
    return np.array(found) % terms.arms


def _number_bytes(entry: Entry) -> int:
    """Bytes of the step's number, which is public and grows."""
    step = int(getattr(entry.message, "step", 0))
    return 1 if step < 128 else 2 if step < 256 else 3 if step < 65536 else 5


def _first_arms(arms: Ints, passes: int) -> Ints:
    """Return the first arm of every pass."""
    return np.asarray(arms).reshape(passes, -1)[:, 0]


def _score_arms(found: Sequence[Ints], truths: Sequence[Truth]) -> Score:
    arms = np.concatenate(
        [_first_arms(truth["arms"], len(one)) for one, truth in zip(found, truths, strict=True)]
    )
    right = int((np.concatenate(found) == arms).sum())
    return hits(right, len(arms), float(np.bincount(arms).max() / len(arms)), "arms")


def _longer_for_later_arms(evidence: Evidence, seed: int) -> Evidence:
    """Plant: what the puller sends is a byte longer for every arm."""
    view, terms = evidence.seen, terms_of(evidence.seen)
    arms = _first_arms(evidence.truth["arms"], terms.choices)
    entries = [
        entry._replace(size=entry.size + int(arms[entry.message.step - terms.lag]))
        if isinstance(entry.message, Choice)
        else entry
        for entry in view.entries
    ]
    return replace(evidence, seen=replace(view, entries=entries))


PUBLIC = "Who takes part, how many features each holds"
SIZES = Attack(
    "sizes",
    "the arm, from sizes of messages",
    (WIRE,),
    (PUBLIC,),
    guess_by_size,
    _score_arms,
    "share of arms",
    _longer_for_later_arms,
    "a byte more for every arm",
    other_arms,
    tell=lambda found: f"{len(np.unique(found))} patterns of sizes",
)
OVER_SOCKETS = (
    Attack(
        "delays",
        "the arm, from how long its reward takes",
        ("party",),
        (PUBLIC,),
        guess,
        score,
        "share of arms",
        tells,
        "delays that are the arm",
        other_arms,
        needs="network",
        stage=delays,
        seconds=lambda settings: 12.0 + STEPS * (2 * settings.slot + settings.jitter),
        tell=lambda found: f"{len(found)} steps over sockets",
    ),
    Attack(
        "acknowledgements",
        "the arm, from acknowledgements and sizes on the links of a party",
        ("party",),
        (PUBLIC,),
        guess,
        score,
        "share of arms",
        tells,
        "acknowledgements that count the arm",
        other_arms,
        needs="network",
        stage=acknowledged,
        seconds=lambda settings: 8.0,
        tell=lambda found: f"{len(found)} steps over sockets",
    ),
)
