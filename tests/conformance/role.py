"""What all roles have in common: decoding, refusing, signed and sealed fields (sections 8 and 9).

The early end of section 9 is left out.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
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
        names = sorted(name.encode() for name in session.owners)
        present = b"posse/pairwise/present", b"1", session.digest, *names
        self.mark = sha256(primitives.framed(*present)).digest()  # s_S of all owners
        self.close_data = self.mark + session.digest + bytes(8)  # signed at the normal end
        self.tag_key = b""  # τ, at owners and customer
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
        message = primitives.labelled(b"posse", purpose.encode(), data)
        return self.session.identity.sign(message, ec.ECDSA(SHA256()))

    def verify(self, name: str, purpose: str, data: bytes, signature: bytes) -> None:
        """Refuse a signature of another party that is not valid."""
        identity = self.session.identities[name]
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), identity)
        message = primitives.labelled(b"posse", purpose.encode(), data)
        try:
            public.verify(signature, message, ec.ECDSA(SHA256()))
        except InvalidSignature as error:
            raise Refused(f"the signature of {name} is not valid") from error

    def seal(self, receiver: str, content: bytes, info: bytes) -> bytes:
        """Return Seal to the run key of another party (section 4)."""
        public = X25519PublicKey.from_public_bytes(self.session.run_keys[receiver])
        return primitives.HPKE.encrypt(content, public, info)

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
        sealed = self.seal(receiver, content, info)
        return [sealed, self.sign(purpose, info + sealed)]

    def open_signed(self, sender: str, message: Any, info: bytes, purpose: str) -> bytes:
        """Open 32 sealed bytes whose sender signed info ‖ sealed."""
        self.verify(sender, purpose, info + message.sealed, message.signature)
        return self.unseal(message.sealed, info, 32)

    def info(self, *parts: str, kind: str = "strict") -> bytes:
        """Return the info of a sealed field."""
        return primitives.mp(f"posse samba {kind}", *parts, self.session.digest)

    def keys_data(self, sealed: dict[str, bytes], commitments: Sequence[bytes]) -> bytes:
        """Return what the first owner signs (section 8, step 5)."""
        return primitives.mp([*sealed.items()], *commitments, self.session.digest)

    def commitments(self, *secrets: bytes) -> list[bytes]:
        """Return the commitments to τ and γ (section 8, step 5)."""
        kind, digest = b"posse commitment", self.session.digest
        pairs = zip((b"frame" + digest, b"own" + digest), secrets, strict=False)
        return [sha256(primitives.labelled(kind, *pair)).digest() for pair in pairs]

    def check_keys(self, keys: m.Keys, receiver: str) -> tuple[bytes, bytes]:
        """Verify the first owner's keys for a receiver; return the commitments (section 8)."""
        require([*keys.sealed] == [receiver], "keys for another receiver")
        commitments = keys.frame_commitment, keys.own_commitment
        data = self.keys_data(keys.sealed, commitments)
        self.verify(self.owners[0], "keys", data, keys.signature)
        return commitments

    def open_keys(self, keys: m.Keys, count: int) -> None:
        """Open τ, and γ if `count` is 2; recompute the commitments (section 8, step 6)."""
        require(not self.tag_key, "keys came before")
        name = self.session.name
        commitments = self.check_keys(keys, name)
        info = self.info(self.owners[0], name, kind="keys")
        opened = self.unseal(keys.sealed[name], info, 32 * count)
        fit = self.commitments(opened[:32], opened[32:])[:count] == [*commitments[:count]]
        require(fit, "the secrets do not fit the commitments")
        self.tag_key = opened[:32]

    def check_close(self, close: m.Close) -> None:
        """Verify the customer's Close of all owners (section 9)."""
        require(close.present == sorted(self.owners) and close.number == 0, "not the normal end")
        self.verify("customer", "close", self.close_data, close.signature)
