"""What all roles have in common: decoding, refusing, set-up, the signatures of the end."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tests.conformance import messages as m
from tests.conformance import primitives
from tests.conformance.session import Session

Sent = list[tuple[str, Any]]


class Refused(Exception):
    """A message that the specification refuses. The state is as before."""


def require(condition: object, reason: str) -> None:
    """Refuse a message unless a condition holds."""
    if not condition:
        raise Refused(reason)


class Role:
    """A party of samba-strict/1 after the handshake. Its methods on_… take messages."""

    def __init__(self, session: Session) -> None:
        self.session, self.owners, self.count = session, session.owners, len(session.owners)
        self.begun = self.told = self.closed = False

    def begin(self) -> Sent:
        """Take the start of the run: the party has Go."""
        sent, self.begun = [] if self.begun else self.start(), True
        return [(to, msgspec.to_builtins(each, builtin_types=(bytes,))) for to, each in sent]

    def receive(self, sender: str, message: Sequence[Any]) -> Sent:
        """Take a message and return what is sent in turn."""
        try:
            decoded = msgspec.convert(message, m.ANY, builtin_types=(bytes,))
        except msgspec.ValidationError as error:
            raise Refused(f"malformed message: {error}") from error
        name = type(decoded).__name__
        handler = getattr(self, "on_" + name.lower(), None)
        kind = "owner" if sender in self.owners else sender
        expected = m.SENDERS.get(self.session.kind, {}).get(name, "controller")
        require(handler and kind == expected, f"{name} is not expected from this party")
        require((self.begun or name == "Go") and not self.closed, "before the run, or after it")
        sent = handler(sender, decoded)
        return [(to, msgspec.to_builtins(each, builtin_types=(bytes,))) for to, each in sent]

    def start(self) -> Sent:
        """Return what the party sends on Go (section 8, step 5)."""
        return []

    def on_go(self, _: str, message: m.Go) -> Sent:
        """Take the customer's signature of D (section 8); after `begin` only check it."""
        require(not self.told, "Go came before")
        self.verify("customer", "go", self.session.digest, message.signature)
        sent = [] if self.begun else self.start()
        self.told = self.begun = True
        return sent

    def on_closed(self, _: str, message: m.Closed) -> Sent:
        """Take the end of the run (section 9)."""
        self.verify("customer", "closed", self.session.digest, message.signature)
        self.closed = True
        return []

    def sign(self, purpose: str, data: bytes) -> bytes:
        """Return this party's signature."""
        return primitives.sign(self.session.identity, purpose, data)

    def verify(self, name: str, purpose: str, data: bytes, signature: bytes) -> None:
        """Refuse a signature of another party that is not valid."""
        valid = primitives.verify(self.session.identities[name], purpose, data, signature)
        require(valid, f"the signature of {name} is not valid")

    def unseal(self, sealed: bytes, info: bytes, length: int) -> bytes:
        """Open what is sealed to this party."""
        opened = primitives.unseal(primitives.run_key(self.session), sealed, info)
        require(len(opened) == length, "a sealed field does not open")
        return opened

    def seal_signed(self, receiver: str, content: bytes, info: bytes, purpose: str) -> list[bytes]:
        """Return a sealed content and the signature of info ‖ sealed (sections 8 and 9)."""
        sealed = primitives.seal(self.session.run_keys[receiver], content, info)
        return [sealed, self.sign(purpose, info + sealed)]

    def open_signed(self, sender: str, message: Any, info: bytes, purpose: str) -> bytes:
        """Open 32 sealed bytes whose sender signed info ‖ sealed (sections 8 and 9)."""
        self.verify(sender, purpose, info + message.sealed, message.signature)
        return self.unseal(message.sealed, info, 32)

    def info(self, *parts: str) -> bytes:
        """Return the info of a sealed field (sections 8 and 9)."""
        return primitives.mp("posse samba strict", *parts, self.session.digest)

    def keys_info(self, receiver: str) -> bytes:
        """Return the info of the first owner's keys (section 8, step 5)."""
        return primitives.mp("posse samba keys", self.owners[0], receiver, self.session.digest)

    def keys_data(self, sealed: dict[str, bytes], commitments: Sequence[bytes]) -> bytes:
        """Return what the first owner signs (section 8, step 5)."""
        return primitives.mp([*sealed.items()], *commitments, self.session.digest)

    def check_keys(self, keys: m.Keys, receiver: str) -> tuple[bytes, bytes]:
        """Verify the first owner's keys for a receiver; return the commitments (section 8)."""
        require([*keys.sealed] == [receiver], "keys for another receiver")
        commitments = keys.frame_commitment, keys.own_commitment
        data = self.keys_data(keys.sealed, commitments)
        self.verify(self.owners[0], "keys", data, keys.signature)
        return commitments

    def close_data(self, names: Sequence[str], number: int) -> bytes:
        """Return s_S ‖ D ‖ BE_8(number), which the customer signs to close (section 9)."""
        mark = primitives.present_digest(names, self.session.digest)
        return mark + self.session.digest + number.to_bytes(8, "big")

    def check_set(self, names: Sequence[str]) -> None:
        """Refuse what is not a set of enough owners (section 9)."""
        require(len(set(names)) == len(names) >= min(3, self.count), "not a set, or too small")
        require(set(names) <= set(self.owners), "not a set of owners")

    def check_close(self, close: m.Close) -> None:
        """Verify a Close of the customer (section 9)."""
        self.check_set(close.present)
        everybody = len(close.present) == self.count
        require(0 < close.number < 1 << 63 or (close.number == 0 and everybody), "not a number")
        data = self.close_data(close.present, close.number)
        self.verify("customer", "close", data, close.signature)

    def agree_data(self, close: m.Close, index: int) -> bytes:
        """Return what an owner signs at an early end (section 9)."""
        require(self.session.first <= index <= self.session.last + 1, "not an index of the run")
        return self.close_data(close.present, close.number) + index.to_bytes(8, "big")

    def check_agreed(self, agreed: m.Agreed) -> int:
        """Verify that all owners of a set agree, and return the index (section 9)."""
        close, agrees = agreed.close, agreed.agrees
        self.check_close(close)
        require(sorted(a.name for a in agrees) == sorted(close.present), "not one agree per owner")
        index, number = agrees[0].index, close.number
        same = all((a.index, a.number) == (index, number) for a in agrees)
        require(same and number, "the owners do not agree")
        data = self.agree_data(close, index)
        for agree in agrees:
            self.verify(agree.name, "agree", data, agree.signature)
        return index
