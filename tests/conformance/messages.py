"""The messages after Go (section 6), and those of world and operator to a party."""

from functools import reduce
from operator import or_
from typing import Any

import msgspec

_OPTIONS = {"array_like": True, "tag": True, "frozen": True, "forbid_unknown_fields": True}
_kinds: list[Any] = []


def _message(name: str, /, **fields: Any) -> Any:
    """Return the class of a message: on the wire the list of its name and its fields."""
    _kinds.append(msgspec.defstruct(name, list(fields.items()), **_OPTIONS))
    return _kinds[-1]


Go = _message("Go", signature=bytes)
Stream = _message("Stream", sealed=bytes, signature=bytes)
_COMMITMENTS = {"frame_commitment": bytes, "own_commitment": bytes}
Keys = _message("Keys", sealed=dict[str, bytes], **_COMMITMENTS, signature=bytes)
Keyring = _message("Keyring", keys=list[Keys])
Seeds = _message("Seeds", sealed=bytes, signature=bytes)
Dealing = _message("Dealing", controller=Seeds, comp=Seeds)
Streams = _message("Streams", streams=list[Stream])
Want = _message("Want", passes=int, pairs=int)
Dealt = _message("Dealt", chunk=int, controller=bytes, comp=bytes)
DealtPairs = _message("DealtPairs", chunk=int, data=bytes)
Relayed = _message("Relayed", chunk=int, sealed=bytes)
Score = _message("Score", index=int, frame=bytes)
Ahead = _message("Ahead", index=int, share=bytes, replies=bytes)
Shuffled = _message("Shuffled", index=int, masked=bytes, champion=int, places=bytes, shifts=bytes)
Compare = _message("Compare", index=int, champion=int, places=bytes, shifts=bytes)
Compared = _message("Compared", index=int, answer=bytes)
Found = _message("Found", index=int, place=int)
Placed = _message("Placed", index=int, bits=bytes, ahead=Ahead | None)
Reply = _message("Reply", index=int, reply=bytes)
Ready = _message("Ready", slot=int, word=int)
Opened = _message("Opened", slot=int, pads=bytes)
Again = _message("Again", slot=int)
Spent = _message("Spent", present=list[str])
Close = _message("Close", present=list[str], number=int, signature=bytes)
Sum = _message("Sum", ciphertext=bytes)
Share = _message("Share", sealed=bytes, signature=bytes)
Shares = _message("Shares", controller=bytes, comp=Share)
Closed = _message("Closed", signature=bytes)

Pull = _message("Pull", number=int)
Reward = _message("Reward", number=int, units=int)
Tick = _message("Tick", slot=int, seconds=float)
Tock = _message("Tock", slot=int)

ANY = reduce(or_, _kinds)

SENDERS = {
    "owner": {"Reward": "world", "Tock": "world"},
    "controller": {
        **dict.fromkeys(("Stream", "Keyring", "Score", "Sum"), "owner"),
        **dict.fromkeys(("Dealing", "Dealt", "DealtPairs"), "dealer"),
        **dict.fromkeys(("Ahead", "Compared", "Placed", "Opened", "Share"), "comp"),
        **dict.fromkeys(("Close", "Closed"), "customer"),
    },
}  # kind of the sender by kind of the receiver and message; else the controller
