"""What comp sees of every pass, as arrays; and the truth beside it, from the run that made it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError, FrameError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import Entry, View
from posse.policies.arms.base import Policy
from posse.policies.arms.registry import policy
from posse.privacy.crypto.paillier import MINIMUM_BITS, PrivateKey, generate_key
from posse.privacy.leakage.attack import Evidence, Truth
from posse.privacy.sharing import shuffle
from posse.systems.samba.kernels import tossed
from posse.systems.samba.messages import Batch, Choice, Explore, Score
from posse.systems.samba.roles.owner import paper_frames
from posse.systems.samba.strict.comp import pads
from posse.systems.samba.strict.messages import Found, Shuffled

if TYPE_CHECKING:
    from posse.systems.samba.federation import SambaRun
    from posse.systems.samba.settings import Samba

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Passes:
    """The passes of a run as comp sees them, in the order they came."""

    owners: int
    horizon: int
    policy: Policy
    level: str
    index: Ints
    """t * passes + pass."""
    values: Floats
    """(passes, owners): what comp compares, and NaN where it was only given that the step explores;
    at `strict` the words that it is sent, less the smallest of the pass.
    """
    chosen: Ints
    """The place that comp selected; -1 where it does not know."""

    @property
    def steps(self) -> Ints:
        """The step t of every pass."""
        return self.index // len(self.policy.passes())

    @property
    def turns(self) -> Ints:
        """Which pass of its step it is."""
        return self.index % len(self.policy.passes())

    def turn(self, which: int) -> Passes:
        """Keep one pass of every step; -1 for the last."""
        return self.take(self.turns == which % len(self.policy.passes()))

    def take(self, rows: Any) -> Passes:
        """Keep some passes."""
        return replace(
            self, index=self.index[rows], values=self.values[rows], chosen=self.chosen[rows]
        )


def read(view: View) -> Passes:
    """Open what comp saw: scores at level `paper`, words at `strict`."""
    terms, secrets = view.public, view.secrets.get("comp")
    if view.public.get("system") != "samba" or secrets is None or secrets.get("kind") != "comp":
        raise DataError(
            f"expected a view of samba's comp, got one of {', '.join(view.parties) or 'nobody'}."
        )
    owners = int(terms["owners"])
    opened = _Opened(secrets, terms, owners)
    equal = float("shortcut" in terms["off"] and policy_of(terms).passes()[-1].kind == "match")
    rows: dict[int, list[Any]] = {}
    for entry in view.entries:
        message = entry.message
        try:
            if isinstance(message, Batch):
                rows.setdefault(message.index, [None, -1])[0] = opened.scores(message)
                if "shortcut" in terms["off"] and np.all(rows[message.index][0] == equal):
                    rows[message.index][0] = None  # it explores, or no arm has paid yet
            elif isinstance(message, Explore):
                rows.setdefault(message.index, [None, -1])
            elif isinstance(message, Choice) and message.index in rows:
                rows[message.index][1] = opened.chosen(message)
            elif isinstance(message, Shuffled):
                words = np.frombuffer(message.masked, "<i8").astype(np.float64)
                rows.setdefault(message.index, [None, -1])[0] = words - words.min()
            elif isinstance(message, Found) and message.index in rows:
                rows[message.index][1] = message.place
        except (FrameError, ValueError, IndexError) as error:
            raise DataError(
                f"pass {getattr(message, 'index', '?')} of the view does not open: {error}"
            ) from error
    if not rows:
        raise DataError(
            "the view holds no pass: it is of another role, or ends before the first one."
        )
    index = np.array(sorted(rows), np.int64)
    empty = np.full(owners, np.nan)
    values = np.array([empty if rows[i][0] is None else rows[i][0] for i in index.tolist()])
    chosen = np.array([rows[i][1] for i in index.tolist()], np.int64)
    return Passes(
        owners, int(terms["horizon"]), policy_of(terms), str(terms["level"]), index, values, chosen
    )


def policy_of(terms: Mapping[str, Any]) -> Policy:
    """Make the policy that the public terms name; one of the user's own cannot be made from its
    name.
    """
    described = terms["policy"]
    return policy(described["name"], described["parameters"])


class _Opened:
    """Opens frames with comp's own key, as it does."""

    def __init__(self, secrets: Mapping[str, Any], terms: Mapping[str, Any], owners: int) -> None:
        key, digest = secrets.get("k_frame", b""), hashlib.sha256(secrets["manifest"]).digest()
        self._owners = owners
        self._frames: Any = None
        if key:
            self._frames, self._replies = paper_frames(key, digest, terms["off"], owners)

    def scores(self, message: Batch) -> Floats:
        if self._frames is None:
            raise DataError("the view has passes, and comp's secrets have no key to open them.")
        plain = b"".join(self._frames.open_all(message.index, message.frames, self._owners))
        return np.frombuffer(plain, "<f8").copy()

    def chosen(self, message: Choice) -> int:
        size = len(message.replies) // self._owners
        replies = (message.replies[at : at + size] for at in range(0, size * self._owners, size))
        bits = [self._replies.open(message.index, one) for one in replies]
        return bits.index(b"\x01")


# The truth ----------------------------------------------------------------------------------------


def truth_of(run: SambaRun) -> dict[str, Any]:
    """What only the simulation knows: arms and rewards of every step, exploring steps, and who is
    in which place.
    """
    world, setup, seed = run.world, run.settings.load(), run.seeds[len(run.memories) - 1]
    made = {
        "total": float(world.units.sum()) / REWARD_ONE,
        "sums": world.units / REWARD_ONE,
        "pulls": world.pulls.copy(),
        "means": setup.arms.means,
    }
    if world.arms is None or run.memory.transcript is None:
        return made
    owners, policy = len(setup.arms), setup.policy
    explores = np.zeros(
        min(len(world.arms) + 1, run.settings.horizon), bool
    )  # the next step's passes may be seen
    if policy.explores:
        explore, parameters = type(policy).explore, policy.parameters()
        for t in range(owners + 1, len(explores) + 1):
            explores[t - 1] = tossed(np.uint64(seed), t, explore(t, owners, parameters))
    numbers = {
        name: number
        for number, name in enumerate(name for name, kind in run.kinds.items() if kind == "owner")
    }
    return {
        **made,
        "arms": np.array(world.arms),
        "rewards": np.array(world.rewards) / REWARD_ONE,
        "explores": explores,
        "slots": _slots(run, numbers),
        "settings": run.settings,
        "seed": seed,
    }


def _slots(run: SambaRun, numbers: Mapping[str, int]) -> dict[int, Ints]:
    """Which owner is in each place of every pass, in the order in which comp sees them."""
    owners, found = len(numbers), {}
    if run.settings.level == "strict":
        controller: Any = run.memory.roles["controller"].reveal()
        comp: Any = run.memory.roles["comp"].reveal()
        assert run.memory.transcript is not None
        for entry in run.memory.transcript:
            if isinstance(entry.message, Shuffled):
                n = entry.message.index - comp.start
                found[entry.message.index] = shuffle.order(
                    shuffle.words_at(controller.search.tape, n * 3 * owners, owners)
                )
        return found
    whose: dict[bytes, int] = {}
    assert run.memory.transcript is not None
    for entry in run.memory.transcript:
        message = entry.message
        if isinstance(message, Score):
            whose[message.frame] = numbers[entry.sender]
        elif isinstance(message, Batch):
            size = len(message.frames) // owners
            frames = [message.frames[at : at + size] for at in range(0, size * owners, size)]
            found[message.index] = np.array([whose.get(frame, -1) for frame in frames])
            whose.clear()
    return found


def places(passes: Passes, truth: Truth) -> Ints:
    """Return the owner in every place of every pass: (passes, owners)."""
    slots = truth["slots"]
    return np.array([slots.get(i, np.full(passes.owners, -1)) for i in passes.index.tolist()])


# The planted leak ---------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def short_key() -> PrivateKey:
    """A key for runs that are only attacked: making one takes longer than such a run."""
    return generate_key(MINIMUM_BITS)


@lru_cache(maxsize=32)
def _scores(settings: Samba, seed: int) -> tuple[Sequence[Entry], Mapping[int, Ints]]:
    """Comp's passes of the same run at level `strict`, as if its owners sent scores without pads,
    and who is in which place.
    """
    from posse.systems.samba.federation import SambaRun
    from posse.systems.samba.system import SYSTEM

    run = SambaRun(SYSTEM, settings.but(runs=1), seeds=[seed], transcript=100_000_000)
    run.finish()
    slots, owners = run.truth()["slots"], run.public_terms["names"]
    pads_of = [pads(stream) for stream in run.view("comp").secrets["comp"]["streams"]]
    sent: dict[str, bytes] = {}
    passes: list[Entry] = []
    assert run.memory.transcript is not None
    for entry in run.memory.transcript:
        message = entry.message
        if isinstance(message, Score):
            sent[entry.sender] = message.frame
        elif isinstance(message, Shuffled):
            index = message.index
            words = np.frombuffer(b"".join(sent[name] for name in owners), "<u8")
            words = words + np.array([each.rows(index, 1)[0, 0] for each in pads_of])
            scores = words[slots[index]].view(np.int64)
            shown = Shuffled(index, scores.tobytes(), message.champion, b"", b"")
            found = Found(index, int(scores.argmax()))
            passes += [entry._replace(message=shown), entry._replace(message=found)]
    return passes, slots


_planted: list[tuple[Evidence, int, Evidence]] = []


def plant_passes(evidence: Evidence, seed: int) -> Evidence:
    """Let one pass in ten show scores, and no other pass anything; the last ones made are kept."""
    for given, number, made in _planted:
        if given.seen is evidence.seen and number == seed:
            return made
    made = plant_share(evidence, seed)
    _planted[:] = [(evidence, seed, made), *_planted[:31]]
    return made


def plant_share(evidence: Evidence, seed: int, share: float = 0.1) -> Evidence:
    """Let a share of the passes show scores, and no other pass anything."""
    view, truth = evidence.seen, evidence.truth
    entries: Sequence[Entry]
    if view.public["level"] == "paper":
        entries, slots = [one for one in view.entries if _of_pass(one)], truth["slots"]
    else:
        entries, slots = _scores(truth["settings"], truth["seed"])
    indices = sorted({_index(entry) for entry in entries})
    picked = np.random.default_rng((seed, 31)).random(len(indices)) < share
    shown = {i for i, one in zip(indices, picked, strict=True) if one}
    reached = max(
        (_index(entry) for entry in view.entries if hasattr(entry.message, "index")), default=0
    )
    there = (one for one in entries if _index(one) in shown and _index(one) <= reached)
    quiet = [entry for entry in view.entries if not _of_pass(entry)]
    made = View(view.parties, [*quiet, *there], view.secrets, view.public, view.forgotten)
    return Evidence(made, {**truth, "slots": {**truth["slots"], **slots}})


def _of_pass(entry: Entry) -> bool:
    """Whether a message of comp's view shows something of a pass."""
    return isinstance(entry.message, Batch | Choice | Explore | Shuffled | Found)


def _index(entry: Entry) -> int:
    message: Any = entry.message
    return int(message.index)
