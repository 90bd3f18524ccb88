"""Which bytes of a message are what: framing, nonce, AES-GCM, tag, mask, share, pad, Paillier,
signature.

One function a field; `explain` puts them together. Kinds under `opens` hold the keys to open those
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from posse.privacy.crypto.frames import NONCE_BYTES
from posse.systems.samba.messages import Batch, Choice, Reply, Score
from posse.systems.samba.scene.meaning import Pass
from posse.systems.scenes import Part, message_parts

TAG = 16
KEM = 32
"""Bytes of the ephemeral key before what is sealed to a party (HPKE with X25519)."""
_KEYED = ("owner", "comp")


def covered(message: Any, at: Pass) -> list[dict[str, Any]]:
    """Return the parts of a message, in order: together its encoded bytes."""
    if not isinstance(message, Score | Reply | Batch | Choice):
        return _covered(message, at)
    # Most of a run, and alike but for what is in them.
    key = (
        type(message),
        len(msgspec.msgpack.encode(message.index)),
        at.level,
        at.off,
        len(at.owners),
    )
    if key not in _kept:
        if len(_kept) >= 64:
            _kept.clear()
        _kept[key] = _covered(message, at)
    return list(_kept[key])


_kept: dict[tuple[Any, ...], list[dict[str, Any]]] = {}


def _covered(message: Any, at: Pass) -> list[dict[str, Any]]:
    def describe(kind: str, field: str, value: Any) -> Sequence[Part] | None:
        name, _, receiver = field.partition(":")
        found = _FIELDS.get((kind, name))
        if found is not None:
            return found(at, value)
        if receiver:
            held = "the owners' common secret and " if receiver in at.owners else ""
            key = "the tag key" if at.level == "strict" else "the frame key"
            return _sealed_to(at, value, f"{held}{key} for {receiver}", at.roles[receiver].kind)
        if name == "signature":
            return [
                Part(
                    "signature",
                    "signature",
                    len(value),
                    at.kinds,
                    "ECDSA over P-256: anyone checks it",
                )
            ]
        return [Part(name, "clear", len(value), at.kinds)] if isinstance(value, bytes) else None

    return message_parts(message, describe, at.kinds)


def _frame(at: Pass, body: Sequence[Part]) -> list[Part]:
    """A frame of AES-256-GCM: version, nonce, body, tag."""
    return [
        Part("version", "header", 1, at.kinds),
        Part(
            "nonce", "nonce", NONCE_BYTES, at.kinds, "random, so that equal scores look different"
        ),
        *body,
        Part("tag", "tag", TAG, _KEYED, "shows that nobody altered the frame, its step or its run"),
    ]


def _sealed_to(at: Pass, value: bytes, name: str, kind: str) -> list[Part]:
    """A secret sealed to one party (HPKE): ephemeral key, body, tag."""
    return [
        Part("ephemeral key", "nonce", KEM, at.kinds, "drawn for this message"),
        Part(name, "aes", len(value) - KEM - TAG, (kind,), "sealed to the run key of its receiver"),
        Part("tag", "tag", TAG, (kind,)),
    ]


# Scores and replies -------------------------------------------------------------------------------


def _score(at: Pass, also: tuple[str, ...] = ()) -> list[Part]:
    """One owner's frame."""
    if at.level == "strict":
        why = (
            "uniform whatever the score; comp could derive the pad, and never receives these bytes"
        )
        return [Part("x - pad", "share", 8, _KEYED, why)]
    masked = "mask" not in at.off
    name = "masked score" if masked else "score"
    inside = ("mask", *also) if masked else also
    if "aes" not in at.off:
        why = (
            "comp opens it and finds the score times the mask of the pass"
            if masked
            else "comp opens the true score"
        )
        return _frame(at, [Part(name, "aes", 8, _KEYED, why, inside)])
    head = Part("version", "header", 1, at.kinds)
    if masked:
        why = "AES is off: only the mask hides it, and owners and controller know the mask"
        return [head, Part(name, "mask", 8, ("owner", "controller"), why, also)]
    if also:
        return [
            head,
            Part(
                name,
                "permutation",
                8,
                at.kinds,
                "everyone reads it; whose it is the controller knows",
            ),
        ]
    return [head, Part(name, "clear", 8, at.kinds, "AES and mask are off: everyone reads it")]


def _reply(at: Pass, also: tuple[str, ...] = ()) -> list[Part]:
    """Comp's answer to one owner."""
    if at.level == "strict":
        return [
            Part(
                "b xor pad'",
                "pad",
                8,
                _KEYED,
                "uniform whatever the answer: the owner knows the pad",
            )
        ]
    if "aes" not in at.off:
        return _frame(
            at,
            [Part("pulling bit", "aes", 1, _KEYED, "the controller passes it on unopened", also)],
        )
    head = Part("version", "header", 1, at.kinds)
    if also:
        why = "everyone reads it; whose it is the controller knows"
        return [head, Part("pulling bit", "permutation", 1, at.kinds, why)]
    return [head, Part("pulling bit", "clear", 1, at.kinds, "AES is off: everyone reads who pulls")]


def _each(
    one: Callable[[Pass, tuple[str, ...]], list[Part]],
) -> Callable[[Pass, bytes], list[Part]]:
    def all_of(at: Pass, value: bytes) -> list[Part]:
        order: tuple[str, ...] = () if "permutation" in at.off else ("permutation",)
        single = one(at, order)
        named = [
            [part._replace(name=f"{part.name}, place {place + 1}") for part in single]
            for place in range(len(at.owners))
        ]
        return [part for row in named for part in row]

    return all_of


# Level strict -------------------------------------------------------------------------------------


def _words(
    name: str, opens: tuple[str, ...], why: str, protection: str = "pad"
) -> Callable[[Pass, bytes], list[Part]]:
    return lambda at, value: [
        Part(name, protection, len(value) if isinstance(value, bytes) else 0, opens, why)
    ]


def _clear(name: str, why: str = "") -> Callable[[Pass, Any], list[Part]]:
    return lambda at, value: [
        Part(name, "clear", len(value) if isinstance(value, bytes) else 0, at.kinds, why)
    ]


def _dealt(at: Pass, value: bytes) -> list[Part]:
    """The dealer's chunk for comp: a frame under a key that dealer and comp have."""
    two = ("comp", "dealer")
    return [
        Part("version", "header", 1, at.kinds),
        Part("nonce", "nonce", NONCE_BYTES, at.kinds),
        Part("p'(A') - B' of many passes", "aes", len(value) - 1 - NONCE_BYTES - TAG, two, _RANDOM),
        Part("tag", "tag", TAG, two),
    ]


def _sum(at: Pass, value: bytes) -> list[Part]:
    """One owner's sum."""
    if at.level == "strict":
        why = "uniform whatever the sum; the other share is at comp"
        return [
            Part("(s, n) - pad", "share", 16, _KEYED, why),
            Part(
                "tag - pad",
                "share",
                len(value) - 16,
                _KEYED,
                "shows the customer that no server altered the sum",
            ),
        ]
    if "paillier" in at.off:
        return [
            Part("sum", "clear", len(value), at.kinds, "Paillier is off: the controller reads it")
        ]
    return [
        Part(
            "E(s)",
            "paillier",
            len(value),
            ("customer",),
            "the controller multiplies these and opens none",
        )
    ]


def _total(at: Pass, value: bytes) -> list[Part]:
    if "paillier" in at.off:
        return [Part("total", "clear", len(value), at.kinds, "Paillier is off: everyone reads it")]
    return [
        Part(
            "E(total)",
            "paillier",
            len(value),
            ("customer",),
            "the product of all: the customer alone opens it",
        )
    ]


def _places(at: Pass, value: bytes) -> list[Part]:
    return [Part("places to compare", "permutation", len(value), at.kinds, _SHUFFLED)]


_SHUFFLED = "everyone reads it; of an order that both servers shuffled: it names no owner"
_RANDOM = "random numbers for a shuffle: no score is in them"
_SECRET = "a secret of the masks: owners and controller have it, comp never sees it"
_COMPARED = "which of the two is larger can be read by the controller, and nothing else"

_FIELDS: Mapping[tuple[str, str], Callable[[Pass, Any], Sequence[Part]]] = {
    ("Join", "identity"): _clear("public identity key"),
    ("Join", "run_key"): _clear("public key of the run"),
    ("Proposal", "terms"): _clear(
        "budget, policy and level", "everyone in the run knows these terms"
    ),
    ("Offer", "manifest"): _clear(
        "terms, names and public keys", "everyone in the run signs these"
    ),
    ("Keys", "frame_commitment"): _clear(
        "commitment to the first key", "all check that they got the same key"
    ),
    ("Keys", "own_commitment"): _clear(
        "commitment to the second key", "all check that they got the same key"
    ),
    ("Masks", "masks"): lambda at, value: [
        Part("key of the masks", "clear", len(value), at.kinds, _SECRET)
    ],
    ("Masks", "coins"): lambda at, value: [
        Part("key of the coins", "clear", len(value), at.kinds, _SECRET)
    ],
    ("Score", "index"): _clear("number of the pass"),
    ("Score", "frame"): lambda at, value: _score(at),
    ("Batch", "index"): _clear("number of the pass"),
    ("Batch", "frames"): _each(_score),
    ("Explore", "index"): _clear("number of the pass", "comp sees that this step explores"),
    ("Choice", "index"): _clear("number of the pass"),
    ("Choice", "replies"): _each(_reply),
    ("Reply", "index"): _clear("number of the pass"),
    ("Reply", "reply"): lambda at, value: _reply(at),
    ("Sum", "ciphertext"): _sum,
    ("Total", "ciphertext"): _total,
    ("Stream", "sealed"): lambda at, value: _sealed_to(at, value, "key of an owner's pads", "comp"),
    ("Seeds", "sealed"): lambda at, value: _sealed_to(
        at, value, "seed for a server", _server_of(at, value)
    ),
    ("Share", "sealed"): lambda at, value: _sealed_to(
        at, value, "comp's share of the total", "customer"
    ),
    ("Shares", "controller"): _words(
        "controller's share of the total",
        ("customer", "comp"),
        "half of the total: the customer has both",
        "share",
    ),
    ("Want", "passes"): _clear("passes wanted"),
    ("Want", "pairs"): _clear("comparisons wanted"),
    ("Dealt", "chunk"): _clear("number of the chunk"),
    ("Dealt", "controller"): _words("p(A) - B of many passes", ("dealer",), _RANDOM),
    ("Dealt", "comp"): _dealt,
    ("DealtPairs", "chunk"): _clear("number of the chunk"),
    ("DealtPairs", "data"): _words(
        "pads for comparisons", ("dealer",), "random numbers: no score is in them"
    ),
    ("Relayed", "chunk"): _clear("number of the chunk"),
    ("Relayed", "sealed"): _dealt,
    ("Ahead", "share"): lambda at, value: [
        Part(
            "pads - A",
            "pad",
            len(value),
            ("comp", "dealer"),
            "comp's share of every score, masked",
            ("share",),
        )
    ],
    ("Ahead", "replies"): _words("pad' xor E", ("comp",), "what hides the replies, masked"),
    ("Shuffled", "masked"): _words(
        "p(x) - B - A'", ("dealer",), "uniform: comp knows B and not A'", "share"
    ),
    ("Shuffled", "champion"): _clear("place that is compared", "of a random order"),
    ("Shuffled", "places"): _places,
    ("Shuffled", "shifts"): _words(
        "n xor c of every pair", ("controller", "dealer"), "uniform: comp does not know c"
    ),
    ("Compare", "champion"): _clear("place that is compared", "of a random order"),
    ("Compare", "places"): _places,
    ("Compare", "shifts"): _words(
        "n xor c of every pair", ("controller", "dealer"), "uniform: comp does not know c"
    ),
    ("Compared", "answer"): lambda at, value: [
        Part("garbled comparisons", "pad", len(value), ("controller",), _COMPARED, ("permutation",))
    ],
    ("Found", "place"): lambda at, value: [
        Part("place of the largest", "permutation", 0, at.kinds, _SHUFFLED)
    ],
    ("Placed", "bits"): lambda at, value: [
        Part(
            "[place] xor C",
            "pad",
            len(value),
            ("comp", "dealer"),
            "uniform: the controller does not know C",
            ("permutation",),
        )
    ],
    ("Ready", "word"): _words(
        "sum of ready words", ("comp",), "0 together with comp's pads if all are ready"
    ),
    ("Opened", "pads"): _words(
        "pads of the slot", (), "used once: they take the slot's mask off the shares"
    ),
}


def _server_of(at: Pass, value: bytes) -> str:
    """Which server a seed is sealed to: its own key opens it."""
    dealing = at.secrets("controller").dealing
    return "controller" if dealing is not None and dealing.controller.sealed == value else "comp"
