"""Who is pulled, and what each owner earned: parties alone, parties together, and somebody on the
wire.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posse.core.errors import DataError, FrameError, PosseError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import Entry, View
from posse.privacy.crypto.frames import ClearFrames, Frames
from posse.privacy.crypto.paillier import Ciphertext, PrivateKey
from posse.privacy.leakage.attack import WIRE, Attack, Evidence, Score, Truth
from posse.privacy.leakage.scores import area, hits
from posse.systems.samba.attacks.reading import policy_of
from posse.systems.samba.messages import Batch, Reply, Sum
from posse.systems.samba.messages import Score as Frame
from posse.systems.samba.strict.comp import pads

if TYPE_CHECKING:
    from posse.systems.samba.settings import Samba

PLANTED = "runs in which one step in ten names the arm"


def frame_key(view: View) -> bytes:
    """k_frame, if these parties have it."""
    found = b""
    for secrets in view.secrets.values():
        found = secrets.get("k_frame", b"") or secrets.get("keys", b"")[:32] or found
    return found


def who(view: View, seed: int) -> dict[str, Any]:
    """How likely each owner was the one to pull in a step, from all that these parties saw and can
    open.
    """
    if view.public.get("system") != "samba":
        raise DataError("expected a view of samba.")
    owners, level = int(view.public["owners"]), str(view.public["level"])
    names = owner_numbers(view)
    passes = len(policy_of(view.public).passes())
    opened = _Opener(view, owners, level)
    steps: dict[int, list[Any]] = {}
    clear: dict[int, list[Any]] = {}
    for entry in view.entries:
        message: Any = entry.message
        if not isinstance(message, Frame | Reply) or (message.index + 1) % passes:
            continue
        t = message.index // passes
        if isinstance(message, Reply) and entry.receiver in names:
            bit = opened.bit(message)
            if bit is not None:
                clear.setdefault(t, [None] * owners)[names[entry.receiver]] = bit
        elif isinstance(message, Frame) and entry.sender in names:
            value = opened.score(message, names[entry.sender])
            steps.setdefault(t, [None] * owners)[names[entry.sender]] = value
    found = {**steps, **clear}
    known = sorted(found)
    scores = np.array([_largest(found[t]) for t in known]).reshape(len(known), owners)
    own = [names[name] for name in view.parties if name in names]
    return {"steps": np.array(known, np.int64), "scores": scores, "own": own}


def owner_numbers(view: View) -> dict[str, int]:
    """Numbers of the owners, by name, in the order of the arms."""
    return {name: number for number, name in enumerate(view.public["names"])}


def _largest(values: Sequence[Any]) -> list[float]:
    """1 for the largest, 0 for the others; nothing is said where only one is known and it is no bit
    that is set.
    """
    known = [one for one in values if one is not None]
    most = max(known)
    return [float(one == most and (len(known) > 1 or most == 1)) for one in values]


class _Opener:
    """Opens frames and replies with whatever keys these parties have; what stays closed is taken as
    a number.
    """

    def __init__(self, view: View, owners: int, level: str) -> None:
        frame = frame_key(view)
        manifest = next(
            (bytes(one["manifest"]) for one in view.secrets.values() if one.get("manifest")), b""
        )
        digest, off = hashlib.sha256(manifest).digest(), view.public["off"]
        self._owners, self._level = owners, level
        self._frames: Any = ClearFrames() if level == "paper" and "aes" in off else None
        self._replies: Any = self._frames
        if frame and self._frames is None and level != "strict":
            self._frames = Frames(frame, digest, b"scores", owners)
            self._replies = Frames(frame, digest, b"replies", owners)
        streams = view.secrets.get("comp", {}).get("streams", ())
        self._pads = [pads(stream) for stream in streams] if level == "strict" else []

    def bit(self, message: Reply) -> int | None:
        if len(message.reply) == 2 and message.reply[0] == 0:
            return message.reply[1]
        if self._replies is None:
            return None
        try:
            return int(self._replies.open(message.index, message.reply)[0])
        except (FrameError, IndexError):
            return None

    def score(self, message: Frame, owner: int) -> float:
        if self._pads:
            pad = self._pads[owner].rows(message.index, 1)[0][0]
            return int((np.frombuffer(message.frame, "<u8") + pad).view(np.int64)[0])
        plain = message.frame
        if self._frames is not None:
            try:
                plain = self._frames.open(message.index, message.frame)
            except FrameError as error:
                raise DataError(
                    f"a frame of pass {message.index} does not open: {error}"
                ) from error
        if len(plain) == 8 and self._level == "paper":
            return float(np.frombuffer(plain, "<f8")[0])
        return int.from_bytes(plain[:24], "little")


def score_who(guesses: Sequence[Any], truths: Sequence[Truth]) -> Score:
    """AUC of the arms pulled, over the owners that are not in the coalition."""
    scores, labels = [], []
    for guess, truth in zip(guesses, truths, strict=True):
        others = [i for i in range(len(truth["pulls"])) if i not in guess["own"]]
        decided = guess["steps"] <= len(
            truth["arms"]
        )  # a run that is looked at may be in the middle of a step
        arms = truth["arms"][guess["steps"][decided] - 1]
        scores.append(guess["scores"][decided][:, others].ravel())
        labels.append((arms[:, None] == np.array(others)[None, :]).ravel())
    return area(np.concatenate(scores), np.concatenate(labels), "pairs of a step and an owner")


def other_arms(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Arms that were drawn at random."""
    rng = np.random.default_rng((seed, 67))
    return [
        {**truth, "arms": rng.integers(len(truth["pulls"]), size=len(truth["arms"]))}
        for truth in truths
    ]


def plant_who(evidence: Evidence, seed: int) -> Evidence:
    """Let the replies of one step in ten travel in the clear."""
    view, truth = evidence.seen, evidence.truth
    owners, passes = int(view.public["owners"]), len(policy_of(view.public).passes())
    rng, made = np.random.default_rng((seed, 71)), []
    for t in range(owners + 1, len(truth["arms"]) + 1):
        if rng.random() < 0.1:
            index = (t + 1) * passes - 1
            for name, number in owner_numbers(view).items():
                reply = bytes([0, int(number == truth["arms"][t - 1])])
                made.append(Entry(0, "controller", name, Reply(index, reply), 2, t))
    quiet = [one for one in view.entries if not isinstance(one.message, Frame | Batch | Reply)]
    return Evidence(View(view.parties, [*quiet, *made], view.secrets, view.public), truth)


def _tell_who(guess: Any) -> str:
    scores = guess["scores"]
    named = scores[scores.sum(axis=1) == 1].sum(axis=0).astype(int).tolist()
    times = ", ".join(map(str, named[:20]))
    return f"names one owner in {sum(named):,} of {len(scores):,} steps: each {times} times"


def _who(
    name: str,
    adversary: tuple[str, ...],
    claims: tuple[str, ...],
    missing: Any = lambda settings: "",
    title: str = "who is pulled in every step",
) -> Attack:
    return Attack(
        name,
        title,
        adversary,
        claims,
        who,
        score_who,
        "AUC",
        plant_who,
        PLANTED,
        other_arms,
        missing=missing,
        tell=_tell_who,
    )


def _no_dealer(settings: Samba) -> str:
    return "" if settings.level == "strict" else f"level '{settings.level}' has no dealer."


def _not_published(settings: Samba) -> str:
    if settings.level == "paper":
        return (
            "at level 'paper' an owner's mask seed gives comp exact scores, which 'tracker' reads "
            "without it."
        )
    return ""


# Sums ---------------------------------------------------------------------------------------------


def sums(view: View, seed: int) -> list[float | None]:
    """What each owner earned, by decrypting what each sent (paper: nothing hides it from customer
    and controller).
    """
    owners = int(view.public["owners"])
    found: list[float | None] = [None] * owners
    primes = view.secrets.get("customer", {}).get("paillier")
    key = PrivateKey(*primes) if primes else None
    for entry in view.entries:
        if not isinstance(entry.message, Sum):
            continue
        owner, body = owner_numbers(view)[entry.sender], entry.message.ciphertext
        try:
            value = int.from_bytes(body, "big")
            if key is not None and len(body) > 64:
                value = key.decrypt(Ciphertext.from_bytes(body, key.public_key))
        except (PosseError, ValueError):
            continue
        # No sum is larger than 2^80: such a one stayed closed.
        found[owner] = value / REWARD_ONE if value < 1 << 80 else None
    return found


def score_sums(guesses: Sequence[Any], truths: Sequence[Truth]) -> Score:
    """Sums that are right within 1; a guess has 1 in 10."""
    pairs = [
        (one, true)
        for guess, truth in zip(guesses, truths, strict=True)
        for one, true in zip(guess, truth["sums"].tolist(), strict=True)
    ]
    right = sum(one is not None and abs(one - true) <= 1 for one, true in pairs)
    return hits(right, len(pairs), 0.1, "owners' sums within 1")


def other_sums(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Sums that no owner has."""
    return [{**truth, "sums": truth["sums"] + 7.0 + seed} for truth in truths]


def plant_sums(evidence: Evidence, seed: int) -> Evidence:
    """Let owners send their sums without masks and encryption."""
    view, truth = evidence.seen, evidence.truth
    made = [
        Entry(
            0,
            name,
            "controller",
            Sum(int(truth["sums"][number] * REWARD_ONE).to_bytes(8, "big")),
            8,
            0,
        )
        for name, number in owner_numbers(view).items()
    ]
    quiet = [one for one in view.entries if not isinstance(one.message, Sum)]
    return Evidence(View(view.parties, [*quiet, *made], view.secrets, view.public), truth)


def _tell_sums(guess: Sequence[float | None]) -> str:
    shown = ", ".join("not known" if one is None else f"{one:,.0f}" for one in guess[:20])
    return f"sums {shown}" if any(one is not None for one in guess) else "no sum"


def _sums(name: str, adversary: tuple[str, ...], claims: tuple[str, ...]) -> Attack:
    return Attack(
        name,
        "what each owner earned",
        adversary,
        claims,
        sums,
        score_sums,
        "right",
        plant_sums,
        "runs whose sums are sent in the clear",
        other_sums,
        tell=_tell_sums,
    )


CONTROLLER = (
    "The controller holds one share of every score",
    "The published protocol",
    "AES is OFF",
    "At level 'paper' the controller draws the mask seed",
)
TOGETHER = "The controller with comp or with any one owner"
ATTACKS = (
    _who("controller-alone", ("controller",), CONTROLLER),
    _who(
        "both-servers",
        ("controller", "comp"),
        (
            "Any two of controller, comp and dealer",
            TOGETHER,
            "The permutation is OFF",
            "All parties are assumed to follow the protocol (honest but curious), and comp",
        ),
    ),
    _who(
        "owner-and-controller",
        ("owner", "controller"),
        (TOGETHER, "The controller holds one share"),
    ),
    _who(
        "owner-and-comp",
        ("owner", "comp"),
        (TOGETHER, "Comp with any one owner", "Comp holds the other share"),
        _not_published,
    ),
    _who("dealer-alone", ("dealer",), ("The dealer",), _no_dealer),
    _who("wire-tap", (WIRE,), ("AES is OFF", "The published protocol")),
    _who("owner-on-the-wire", ("owner", WIRE), ("Owners know",)),
    _sums(
        "customer-and-controller",
        ("customer", "controller"),
        ("At level 'paper' the customer with the controller", "The customer learns the total"),
    ),
    _sums("sums-at-the-controller", ("controller",), ("Paillier is OFF", *CONTROLLER[:3])),
)


def known_to(kind: str, key: PrivateKey | None, seed: int) -> Mapping[str, Any]:
    """What a party knows beside what its role saves: its key, or the seed that a simulation gives
    every owner.
    """
    if kind == "customer" and key is not None:
        return {"paillier": key.primes}
    return {"world_seed": seed} if kind == "owner" else {}
