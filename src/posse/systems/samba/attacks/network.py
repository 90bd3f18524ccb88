"""What a controller sees of a run over sockets beside the messages: acknowledgements, sizes and
arrival times.

The federation runs in this process over mutual TLS on the loopback interface; every reward takes a
few milliseconds.
"""

from __future__ import annotations

import asyncio
import math
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from posse.core.statistics import mean_interval
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.systems.samba.attacks.reading import Floats
from posse.systems.samba.messages import Score as Frame
from posse.systems.samba.strict.clock import Clock

if TYPE_CHECKING:
    from posse.systems.samba.settings import Samba

OWNERS, BUDGET, PULL_SECONDS = 4, 120, 0.004
SLOT = 0.04
"""Seconds of a slot, where there are slots: ten pulls."""


class Wire:
    """What the controller receives from owners, as it stands when the last score of a pass
    arrives.
    """

    def __init__(self, party: Any, owners: Sequence[str], pulled: Sequence[str]) -> None:
        from posse.runtime.network.wire import Data, pack

        self.owners, self._pulled = tuple(owners), pulled
        self.rows: list[tuple[list[int], list[int], list[float]]] = []
        self.arms: list[int] = []
        """Who pulled last before each row."""
        self._marks, self._now = dict.fromkeys(owners, 0), dict[str, tuple[int, float]]()
        self._data, self._pack, self._decode = Data, pack, party.engine.decoder.decode
        self._frame, party.frame = party.frame, self.frame

    def frame(self, connection: Any, frame: Any) -> None:
        """Look at a frame, and let it go on."""
        peer = connection.peer
        if peer in self.owners:
            self._marks[peer] = max(self._marks[peer], getattr(frame, "durable", 0))
            if isinstance(frame, self._data) and isinstance(self._decode(frame.body), Frame):
                self._now[peer] = (len(self._pack(frame)), time.perf_counter())
            if len(self._now) == len(self.owners):
                sizes = [self._now[name][0] for name in self.owners]
                times = [self._now[name][1] for name in self.owners]
                if len(self._pulled) > len(self.owners):  # before, all make their first pull
                    self.rows.append(([self._marks[name] for name in self.owners], sizes, times))
                    self.arms.append(self.owners.index(self._pulled[-1]))
                self._now = {}
        self._frame(connection, frame)


def recorded(settings: Samba, seed: int, slot: float = 0.0) -> Evidence:
    """Run a federation of four owners with a slow source; return what its controller received, and
    who pulled.

    The scores of step t come after the pull of step t - 1, and in every slot.
    """
    from posse.runtime.network.connection import Timing
    from posse.runtime.network.deployment import make_party
    from posse.runtime.place import open_place
    from posse.systems.samba.deploy import build
    from posse.systems.samba.layout import FederationFile, lay_out

    timing = Timing(
        heartbeat=0.2, patience=4.0, first_wait=0.01, longest_wait=0.2, sync_every=0.02, linger=3.0
    )
    pulled: list[str] = []
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # bound, so that nobody else takes the port
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        given = {
            "run": "audit",
            "level": settings.level,
            "listen": f"127.0.0.1:{port}",
            "budget": BUDGET,
            "policy": "ucb",
            "owner": [{"name": f"owner-{i + 1}"} for i in range(OWNERS)],
            "world": {"seed": seed + 7, "means": [0.5] * OWNERS},
            **({"slot": slot} if settings.level == "strict" else {"paillier_bits": 2048}),
            **({"slowest_pull": PULL_SECONDS} if slot else {}),
        }
        paths = lay_out(FederationFile.make(given), Path(folder))

        async def go() -> Wire:
            parties = {
                path.stem: make_party(open_place(path), build, timing=timing)[0] for path in paths
            }
            wire = Wire(
                parties["controller"],
                [name for name in parties if name.startswith("owner")],
                pulled,
            )
            for name in wire.owners:
                _slow(parties[name], pulled)
            await asyncio.wait_for(
                asyncio.gather(*(party.run() for party in parties.values())), 120
            )
            return wire

        wire = asyncio.run(go())
    return Evidence(wire.rows, {"arms": np.array(wire.arms)})


def _slow(party: Any, pulled: list[str]) -> None:
    clock = party.source
    source = clock.pull if isinstance(clock, Clock) else clock

    async def later(ask: Any) -> Any:
        pulled.append(ask.party)
        await asyncio.sleep(PULL_SECONDS)
        return await source(ask)

    if isinstance(clock, Clock):
        clock.pull = later
    else:
        party.source = later


_made: dict[tuple[str, int], Evidence] = {}


def stage(settings: Samba, seed: int) -> Iterator[Evidence]:
    """One run for all attacks of an audit."""
    if (settings.level, seed) not in _made:
        _made.clear()
        _made[settings.level, seed] = recorded(settings, seed)
    yield _made[settings.level, seed]


def stage_slots(settings: Samba, seed: int) -> Iterator[Evidence]:
    """A run with slots."""
    yield recorded(settings, seed, SLOT)


def has_slots(settings: Samba) -> str:
    """Why there are no slots at this level."""
    return "" if settings.level == "strict" else "slots are of level 'strict'."


def reader(column: int) -> Callable[[Any, int], Floats]:
    """How much each owner stands out in a pass: by acknowledgements (0), sizes (1) or arrival
    (2).
    """

    def read(rows: Any, seed: int) -> Floats:
        values = np.array([row[column] for row in rows], np.float64).reshape(len(rows), -1)
        if column == 0:  # what was acknowledged since the pass before
            values = np.diff(values, axis=0, prepend=values[:1])
        values = values - values.mean(axis=1, keepdims=True)
        return np.asarray(
            values - values.mean(axis=0)
        )  # who is always first or last says nothing about one pass

    return read


def score(guesses: Sequence[Floats], truths: Sequence[Truth]) -> Score:
    """AUC of the owner that pulled before a pass among the owners of that pass; one drawn at random
    has .5.
    """
    below = np.concatenate([_below(guess) for guess in guesses])
    arms = np.concatenate([truth["arms"] for truth in truths])
    found, spread = below[np.arange(len(arms)), arms], float(below.var(axis=1).sum())
    auc = mean_interval(found)
    p = NormalDist().cdf(-(auc.estimate - 0.5) * len(arms) / math.sqrt(spread)) if spread else 1.0
    bounds = max(0.0, auc.low), min(1.0, auc.high)
    return Score(auc.estimate, bounds, f"{len(arms):,} passes", 0.5, p)


def _below(values: Floats) -> Floats:
    """The share of the other owners of a pass that each owner is above; ties count half."""
    above = (values[:, :, None] > values[:, None, :]) + 0.5 * (
        values[:, :, None] == values[:, None, :]
    )
    return np.asarray((above.sum(axis=2) - 0.5) / (values.shape[1] - 1))


def shuffle(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Owners drawn at random."""
    rng = np.random.default_rng((seed, 113))
    return [{"arms": rng.integers(OWNERS, size=len(truth["arms"]))} for truth in truths]


def planter(column: int, by: float) -> Callable[[Evidence, int], Evidence]:
    """Let the owner that pulled stand out in every second pass."""

    def plant(evidence: Evidence, seed: int) -> Evidence:
        rng, rows = np.random.default_rng((seed, 127)), []
        more = np.zeros(OWNERS)
        for row, arm in zip(evidence.seen, evidence.truth["arms"].tolist(), strict=True):
            copy = [list(one) for one in row]
            if rng.random() < 0.5:
                more[arm] += by
            added = more if column == 0 else by * (np.arange(OWNERS) == arm) * (rng.random() < 0.5)
            copy[column] = [
                one + float(extra) for one, extra in zip(copy[column], added, strict=True)
            ]
            rows.append(copy)
        return Evidence(rows, evidence.truth)

    return plant


def _attack(
    name: str,
    title: str,
    column: int,
    by: float,
    planted: str,
    claims: tuple[str, ...],
    **more: Any,
) -> Attack:
    given = {"stage": stage, "seconds": lambda settings: 6.0, **more}
    return Attack(
        name,
        title,
        ("controller",),
        claims,
        reader(column),
        score,
        "AUC",
        planter(column, by),
        planted,
        shuffle,
        finds=0.8,
        needs="network",
        tell=lambda one: f"{len(one):,} passes over sockets",
        **given,
    )


CONTROLLER = (
    "The controller holds one share",
    "The published protocol",
)
ATTACKS = (
    _attack(
        "acknowledgements",
        "who pulled, from what owners acknowledge",
        0,
        1.0,
        "runs with one more in two passes",
        CONTROLLER,
    ),
    _attack(
        "frame-sizes",
        "who pulled, from the sizes of frames",
        1,
        1.0,
        "frames one byte longer in half the passes",
        CONTROLLER,
    ),
    _attack(
        "arrival-times",
        "who pulled, from when frames arrive",
        2,
        0.02,
        "frames 20 ms later in half the passes",
        ("Timing can name the pulled arm",),
    ),
    _attack(
        "arrivals-in-slots",
        "who pulled, from when frames arrive, with slots",
        2,
        0.02,
        "frames 20 ms later in half the passes",
        ("A pull that takes longer than the slot",),
        stage=stage_slots,
        missing=has_slots,
        seconds=lambda settings: 10.0,
    ),
)
