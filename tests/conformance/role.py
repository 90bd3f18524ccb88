"""What all roles have in common: decoding, refusing, signed and sealed fields (sections 8 and 9)."""

from collections.abc import Sequence
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256

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
        self.closed = False

    def start(self) -> Sent:
        """Return what the party sends on Go (section 8, step 5)."""
        return []

    def receive(self, sender: str, message: bytes) -> Sent:
        """Take an encoded message and return what is sent in turn."""
        try:
            decoded = msgspec.msgpack.decode(message, type=m.ANY)
        except msgspec.ValidationError as error:
            raise Refused(f"malformed message: {error}") from error
        name = type(decoded).__name__
        handler = getattr(self, "on_" + name.lower(), None)
        kind = "owner" if sender in self.owners else sender
        expected = m.SENDERS.get(self.session.kind, {}).get(name, "controller")
        require(handler and kind == expected and not self.closed, f"{name} is not expected")
        return handler(sender, decoded)

    def on_closed(self, _: str, message: m.Closed) -> Sent:
        """Take the end of the run (section 9)."""
        self.verify("customer", "closed", self.session.digest, message.signature)
        self.closed = True
        return []

    def sign(self, purpose: str, data: bytes) -> bytes:
        """Return Sign(purpose, data) of this party (section 4)."""
        return self.session.identity.sign(primitives.signed(purpose, data), ec.ECDSA(SHA256()))

    def verify(self, name: str, purpose: str, data: bytes, signature: bytes) -> None:
        """Refuse a signature of another party that is not valid."""
        identity = self.session.identities[name]
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), identity)
        try:
            public.verify(signature, primitives.signed(purpose, data), ec.ECDSA(SHA256()))
        except InvalidSignature as error:
            raise Refused(f"the signature of {name} is not valid") from error

    def unseal(self, sealed: bytes, info: bytes, length: int) -> bytes:
        """Open what is sealed to this party."""
        context = primitives.mp(self.session.kind, self.session.name, b"")
        run_key = primitives.derive(self.session, "samba run key", context)
        try:
            private = X25519PrivateKey.from_private_bytes(run_key)
            opened = primitives.HPKE.decrypt(sealed, private, info)
        except (InvalidTag, ValueError) as error:
            raise Refused("a sealed field does not open") from error
        require(len(opened) == length, "a sealed field has another length")
        return opened

    def seal_signed(self, receiver: str, content: bytes, info: bytes, purpose: str) -> list[bytes]:
        """Return a sealed content and the signature of info ‖ sealed."""
        sealed = primitives.seal(self.session.run_keys[receiver], content, info)
        return [sealed, self.sign(purpose, info + sealed)]

    def open_signed(self, sender: str, message: Any, info: bytes, purpose: str) -> bytes:
        """Open 32 sealed bytes whose sender signed info ‖ sealed."""
        self.verify(sender, purpose, info + message.sealed, message.signature)
        return self.unseal(message.sealed, info, 32)

    def info(self, *parts: str, kind: str = "strict") -> bytes:
        """Return the info of a sealed field."""
        return primitives.mp(f"posse samba {kind}", *parts, self.session.digest)

    def keys_info(self, receiver: str) -> bytes:
        """Return the info of the first owner's keys (section 8, step 5)."""
        return self.info(self.owners[0], receiver, kind="keys")

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

    def mark(self, names: Sequence[str]) -> bytes:
        """Return s_S (section 9)."""
        return primitives.present_digest(names, self.session.digest)

    def close_data(self, names: Sequence[str], number: int) -> bytes:
        """Return what the customer signs to close (section 9)."""
        return self.mark(names) + self.session.digest + number.to_bytes(8, "big")

    def check_set(self, names: Sequence[str]) -> None:
        """Refuse what is not a set of enough owners (section 9)."""
        enough = len(set(names)) == len(names) >= min(3, self.count)
        require(enough and set(names) <= set(self.owners), "not a set of owners, or too small")

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
