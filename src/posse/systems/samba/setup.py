"""Agreement before the first step: one manifest that everyone signs, and keys that the controller
never sees.

    everyone  -> controller -> customer   Join: a run key signed with the identity key
    customer  -> controller -> everyone   Offer: the manifest (terms, roster, keys, Paillier n), signed
    everyone  -> controller -> customer   Consent: a signature on the manifest's digest
    customer  -> controller -> everyone   Go: all consents verify and are for the same digest
    owner 1   -> controller -> everyone   Keys: k_frame for owners and comp, s_own for owners, sealed with HPKE

The digest of the manifest is in the associated data of every frame, so parties that were shown
different manifests cannot talk to each other.

Every secret of a party derives from its root (`Secrets`), for a purpose, under its name, and after
the offer under the digest of the manifest. A party that is restored and given the same messages
again seals the same plaintexts under the same keys with other nonces, which shows nothing new; one
that is taken back to an old snapshot and given *other* messages would use masks and pads twice, and
must not go on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, TypeVar

import msgspec

from posse.core.agreement import describe_difference, terms_as_texts
from posse.core.errors import ConfigError, DisagreementError, JournalError, ProtocolError
from posse.core.roles import Action, Message, Send
from posse.core.snapshots import VERSION, Snapshot, damaged_snapshot, unpack
from posse.policies.arms.base import Policy
from posse.privacy.crypto.keys import (
    Identity,
    RunKey,
    Secrets,
    check_commitment,
    commitment,
    seal_to,
    verify,
)
from posse.privacy.crypto.paillier import PublicKey
from posse.systems.samba.levels import Switches, check_budget, check_level, check_price
from posse.systems.samba.messages import Closed, Consent, Go, Join, Keys, Offer
from posse.version import PROTOCOL_VERSION, __version__

Handlers: TypeAlias = dict[type[Message], Callable[..., Sequence[Action]]]
"""Which method takes which message."""

CONTROLLER, COMP, CUSTOMER, DEALER = "controller", "comp", "customer", "dealer"
_AGREED = ("level", "off", "slot", "threshold", "price")
"""Terms that a party compares with its own, beside the policy and its passes."""


def sole(level: str) -> tuple[str, ...]:
    """Names of the parties that a run of a level has one of; every other party is an owner."""
    return (
        (CONTROLLER, COMP, CUSTOMER, DEALER) if level == "strict" else (CONTROLLER, COMP, CUSTOMER)
    )


class Terms(msgspec.Struct, frozen=True):
    """What the customer asks for."""

    run: str
    budget: int
    policy: str
    """Name, parameters and selections of the policy (`policy_terms`)."""
    passes: int
    level: str
    off: tuple[str, ...]
    paillier_n: bytes
    slot: float = 0.0
    """Seconds of a slot at level `strict`; 0 where there are none."""
    threshold: float | None = None
    """Owners that hold ratings earn 1 for a rating above it."""
    price: tuple[float, ...] = ()
    """What the customer owes for a pull: one number, or one an owner."""


def policy_terms(policy: Policy) -> str:
    """Everything about a policy that parties must agree on; its source by digest, so that nobody
    imports another's.
    """
    selections = [(each.kind, each.scale, each.floor, each.ceiling) for each in policy.passes()]
    return json.dumps([policy.describe(), selections], sort_keys=True)


def named(of: Terms | Expected) -> dict[str, Any]:
    """Give terms by name, as parties compare them before they begin; a policy that does not decode
    stays as written.
    """
    policy = of.policy if isinstance(of, Terms) else policy_terms(of.policy)
    try:
        described, _ = json.loads(policy)
    except (ValueError, TypeError):
        described = policy
    more = {
        "slot": of.slot if of.level == "strict" else None,
        "threshold": of.threshold,
        "price": of.price or None,
    }
    return {
        "policy": described,
        "level": of.level,
        "off": of.off,
        **{k: v for k, v in more.items() if v is not None},
    }


@lru_cache(maxsize=4)
def paillier_key(n: bytes) -> PublicKey:
    """Check a Paillier modulus and make its key; it is public, so the parties of a process share
    the work.
    """
    return PublicKey(int.from_bytes(n, "big"))


@dataclass(frozen=True)
class Expected:
    """What a party was started for; it signs nothing else."""

    policy: Policy
    level: str
    switches: Switches
    limit: int | None = None
    """The largest budget that this party signs; any where none is given."""
    slot: float = 0.0
    """Seconds of a slot at level `strict`."""
    threshold: float | None = None
    """Ratings above it earn 1."""
    price: tuple[float, ...] = ()
    """Price of a pull, as in `Terms`."""
    done: int = 0
    """Steps that were done before, by a run in this process that goes on with fresh keys."""

    def start(self, manifest: Manifest) -> int:
        """Return the index of the first pass: the one after every arm was pulled once, or after
        what was done.
        """
        return (max(len(manifest.owners), self.done) + 1) * manifest.terms.passes

    @property
    def off(self) -> tuple[str, ...]:
        """Names of the switches that are off."""
        return self.switches.terms

    def check(self, terms: Terms, owners: int, party: str) -> None:
        """Raise unless the terms are these, in range, and within the limit of this party."""
        mine = (
            policy_terms(self.policy),
            len(self.policy.passes()),
            *(getattr(self, name) for name in _AGREED),
        )
        if (terms.policy, terms.passes, *(getattr(terms, name) for name in _AGREED)) != mine:
            given = terms_as_texts(named(terms))
            text = (
                describe_difference(given, terms_as_texts(named(self)), ("there", "here"))
                or "its policy selects otherwise"
            )
            raise DisagreementError(
                f"the manifest is for other terms than this party was started for: {text}. "
                "Correct the wrong file, or install the same version of Posse at all parties."
            )
        if self.limit is not None and terms.budget > self.limit:
            raise DisagreementError(
                f"'{party}' refuses {terms.budget} pulls: budget in its [consent] is {self.limit}. "
                "Ask for fewer pulls, or raise budget in [consent].",
                rule="samba.budget.above-consent",
                public_text=f"'{party}' refuses {terms.budget} pulls: budget in its [consent] is "
                f"lower. Ask for fewer pulls, or ask '{party}' to raise it.",
            )
        try:
            check_level(terms.level, self.switches, self.policy)
            check_budget(owners, terms.budget)
            check_price(terms.price, owners)
            if terms.level != "strict":
                paillier_key(terms.paillier_n)
        except ConfigError as error:
            raise DisagreementError(f"the manifest's terms are refused: {error.text}") from error


class Member(msgspec.Struct, frozen=True):
    """A party of the run with its keys."""

    name: str
    kind: str
    identity: bytes
    run_key: bytes


class Manifest(msgspec.Struct, frozen=True, dict=True):
    """Everything the parties agree on; its digest names the run."""

    version: str
    protocol_version: int
    terms: Terms
    members: tuple[Member, ...]

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """Names of the owners, in the order of the manifest."""
        return tuple(member.name for member in self.members if member.kind == "owner")

    @cached_property
    def by_name(self) -> dict[str, Member]:
        """The members by name."""
        return {member.name: member for member in self.members}

    def check_roster(self, customer: bytes) -> None:
        """Raise unless parts follow from names, keys differ, and the customer is the one that is
        known.

        Keys are sealed by part, so a party must not choose its own.
        """
        if self.member(CUSTOMER).identity != customer:
            raise ProtocolError("the manifest names another customer.")

    def member(self, name: str) -> Member:
        """Return the member of this name."""
        found = self.by_name.get(name)
        if found is None:
            raise ProtocolError(f"'{name}' is not in the manifest.")
        return found


@lru_cache(maxsize=4)
def read_manifest(body: bytes) -> tuple[Manifest, bytes]:
    """Decode a manifest and return it with its digest; it is public, so the parties of a process
    share the work.
    """
    manifest = decode(Manifest, body)
    assert isinstance(manifest, Manifest)
    check_members(manifest.members, manifest.terms.level)
    return manifest, hashlib.sha256(body).digest()


def check_members(members: Sequence[Member | Join], level: str) -> None:
    """Raise unless there is one controller, comp and customer, by name, all others are owners, and
    keys are sound.

    At level `strict` there is a dealer. No two parties have one identity: controller and comp under
    one would know all.
    """
    names, alone = [member.name for member in members], sole(level)
    if len(set(names)) != len(names) or not set(alone) <= set(names):
        raise ProtocolError(f"a roster needs different names, among them {', '.join(alone)}.")
    seen: dict[bytes, str] = {}
    for member in members:
        if (other := seen.setdefault(member.identity, member.name)) != member.name:
            raise ProtocolError(
                f"'{member.name}' has the identity of '{other}': it must be a party of its own."
            )
        if member.kind != (member.name if member.name in alone else "owner"):
            raise ProtocolError(f"'{member.name}' joins as {member.kind}, which is not its part.")
        if len(member.run_key) != 32 or not any(member.run_key):
            raise ProtocolError(f"the run key of '{member.name}' is not a key.")
    if len({member.run_key for member in members}) != len(names):
        raise ProtocolError("two parties have the same run key.")


def decode(kind: type[msgspec.Struct], body: bytes) -> msgspec.Struct:
    """Decode a signed structure strictly."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a {kind.__name__.lower()} does not decode: {error}.") from error


def join_bytes(name: str, kind: str, run_key: bytes) -> bytes:
    """What a party signs when it joins."""
    return msgspec.msgpack.encode((name, kind, run_key, PROTOCOL_VERSION))


class ParticipantSaved(Snapshot, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of every party: `run` is its public run key."""

    manifest: bytes
    """As it was signed; empty before."""
    going: bool
    over: bool


S = TypeVar("S", bound=ParticipantSaved)


class Participant:
    """What all parties do before the first step, and how a message finds its handler.

    `secrets` is the party's root in this run, for those that restore it; a fresh one where none is
    given.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        identity: Identity,
        customer: bytes,
        expected: Expected,
        *,
        secrets: Secrets | None,
    ) -> None:
        self.name, self.kind = name, kind
        self._identity, self._customer, self._expected = identity, customer, expected
        self._secrets = secrets or Secrets.fresh()
        self._manifest: Manifest | None = None
        self._signed = self._digest = b""
        self._run_key = RunKey(self._secrets.key(b"samba run key", context=self._context()))
        self._going = self._over = False

    @property
    def manifest(self) -> Manifest:
        """The manifest this party signed."""
        if self._manifest is None:
            raise ProtocolError(f"'{self.name}' has not seen a manifest yet.")
        return self._manifest

    @property
    def agreed(self) -> tuple[Terms | None, tuple[str, ...]]:
        """The terms and the owners that all signed; none before."""
        return (
            (None, ()) if self._manifest is None else (self._manifest.terms, self._manifest.owners)
        )

    @property
    def digest(self) -> str:
        """Short digest of the manifest, to compare by telephone."""
        return self._digest.hex()[:16]

    def progress(self, index: int) -> dict[str, object]:
        """Say which pull the pass `index` is of, of how many."""
        terms, _ = self.agreed
        if terms is None:
            return {"step": 0, "unit": "pull"}
        return {
            "step": min(index // terms.passes, terms.budget),
            "horizon": terms.budget,
            "unit": "pull",
        }

    def _context(self) -> bytes:
        """The party and the run that a key is derived for."""
        return msgspec.msgpack.encode((self.kind, self.name, self._digest))

    def join(self) -> Join:
        """Offer this party's keys."""
        signed = self._identity.sign(
            b"join", join_bytes(self.name, self.kind, self._run_key.public)
        )
        return Join(self.name, self.kind, self._identity.public, self._run_key.public, signed)

    def consider(self, offer: Offer) -> Consent:
        """Check the customer's manifest and sign it; a party signs one manifest a run."""
        verify(self._customer, b"manifest", offer.manifest, offer.signature)
        if self._manifest is not None:
            raise ProtocolError(f"'{self.name}' has signed a manifest already.")
        self._accept(offer.manifest)
        return self.consent()

    def consent(self) -> Consent:
        """Sign the manifest that was accepted."""
        return Consent(self.name, self._identity.sign(b"consent", self._digest))

    def _accept(self, body: bytes) -> None:
        """Take a manifest that has this party's keys and the terms it was started for."""
        manifest, digest = read_manifest(body)
        if manifest.protocol_version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"the manifest is of protocol version {manifest.protocol_version} (posse "
                f"{manifest.version}), this is "
                f"{PROTOCOL_VERSION} (posse {__version__}). Install the same version at every "
                "party."
            )
        mine = manifest.member(self.name)
        if (mine.kind, mine.identity, mine.run_key) != (
            self.kind,
            self._identity.public,
            self._run_key.public,
        ):
            raise ProtocolError(f"the manifest has other keys for '{self.name}' than it offered.")
        manifest.check_roster(self._customer)
        self._expected.check(manifest.terms, len(manifest.owners), self.name)
        self._manifest, self._signed, self._digest = manifest, body, digest

    def go(self, message: Go) -> None:
        """Take the customer's word that everyone signed the same manifest."""
        verify(self._customer, b"go", self._digest, message.signature)
        if self._going:
            raise ProtocolError("the run has started already.")
        self._going = True

    def close(self, message: Closed) -> Sequence[Action]:
        """Take the customer's word that it has an answer."""
        verify(self._customer, b"closed", self._digest, message.signature)
        self._over = True
        return ()

    @property
    def finished(self) -> bool:
        """Whether the customer has an answer: before, it may still need this party."""
        return self._over

    @property
    def needs(self) -> tuple[str, ...]:
        """Peers without which this party cannot finish, and then those that cannot finish without
        it.
        """
        return () if self._over else (CONTROLLER,)

    def own_keys(self) -> tuple[bytes, bytes]:
        """Derive k_frame and s_own of this run: the first owner's are everyone's."""
        context = self._context()
        return self._secrets.key(b"samba k_frame", context=context), self._secrets.key(
            b"samba s_own", context=context
        )

    def make_keys(self) -> Keys:
        """Draw k_frame and s_own, and seal them to those entitled: both to every owner, k_frame to
        comp.
        """
        frame, own = self.own_keys()
        entitled = {"owner": frame + own, "comp": frame}
        secrets = {
            each.name: entitled[each.kind]
            for each in self.manifest.members
            if each.kind in entitled
        }
        return self._sealed(secrets, frame, own)

    def make_keyring(self) -> tuple[Keys, ...]:
        """Draw a tag key and s_own, and seal them: both to every owner, the tag key to the
        customer; each signed.
        """
        tag, own = self.own_keys()
        secrets = {**dict.fromkeys(self.manifest.owners, tag + own), CUSTOMER: tag}
        return tuple(self._sealed({name: secret}, tag, own) for name, secret in secrets.items())

    def _sealed(self, secrets: Mapping[str, bytes], frame: bytes, own: bytes) -> Keys:
        member, digest = self.manifest.member, self._digest
        sealed = {
            name: seal_to(member(name).run_key, secret, self._info(name))
            for name, secret in secrets.items()
        }
        commitments = commitment(frame, b"frame" + digest), commitment(own, b"own" + digest)
        return Keys(
            sealed,
            *commitments,
            self._identity.sign(b"keys", self._keys_bytes(sealed, *commitments)),
        )

    def info(self, purpose: str, name: str) -> bytes:
        """What a sealed secret is bound to: what it is for, from or for whom, and the run."""
        return msgspec.msgpack.encode(("posse samba strict", purpose, name, self._digest))

    def open_keys(self, message: Keys) -> tuple[bytes, bytes]:
        """Open what the first owner sealed for this party: k_frame, and s_own (empty for comp)."""
        first = self.manifest.member(self.manifest.owners[0])
        body = self._keys_bytes(message.sealed, message.frame_commitment, message.own_commitment)
        verify(first.identity, b"keys", body, message.signature)
        if self.name not in message.sealed:
            raise ProtocolError(f"the key message holds nothing for '{self.name}'.")
        secret = self._run_key.open(message.sealed[self.name], self._info(self.name))
        if len(secret) != (64 if self.kind == "owner" else 32):
            raise ProtocolError(f"the keys for '{self.name}' have the wrong length.")
        check_commitment(secret[:32], b"frame" + self._digest, message.frame_commitment)
        if self.kind == "owner":
            check_commitment(secret[32:], b"own" + self._digest, message.own_commitment)
        return secret[:32], secret[32:]

    def _info(self, receiver: str) -> bytes:
        return msgspec.msgpack.encode(
            ("posse samba keys", self.manifest.owners[0], receiver, self._digest)
        )

    def _keys_bytes(self, sealed: dict[str, bytes], frame: bytes, own: bytes) -> bytes:
        return msgspec.msgpack.encode((sorted(sealed.items()), frame, own, self._digest))

    def _saved(self) -> dict[str, Any]:
        """What every snapshot of this protocol begins with."""
        return {
            "version": VERSION,
            "kind": self.kind,
            "name": self.name,
            "run": self._run_key.public,
            "manifest": self._signed,
            "going": self._going,
            "over": self._over,
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what `save` returned."""
        try:
            self._restore(saved)
        except JournalError:
            raise
        except (ProtocolError, ValueError, LookupError) as error:
            raise damaged_snapshot(self.kind, self.name, error) from error

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Read a snapshot of the role's own shape and set everything."""
        raise NotImplementedError

    def _loaded(self, saved: Mapping[str, Any], shape: type[S]) -> S:
        """Read a snapshot, and set what all parties have; the customer's signature was verified
        before it was saved.
        """
        read = unpack(saved, shape, kind=self.kind, name=self.name, run=self._run_key.public)
        if read.manifest:
            self._accept(read.manifest)
        if (read.going or read.over) and self._manifest is None:
            raise ProtocolError("it goes on without a manifest.")
        self._going, self._over = read.going, read.over
        return read

    def to_controller(self, message: Message) -> tuple[Send]:
        """Every party but the controller sends to the controller only."""
        return ((self.name, CONTROLLER, message),)

    def unexpected(self, sender: str, message: Message) -> Sequence[Action]:
        """Refuse a message that this party does not take."""
        raise ProtocolError(
            f"{self.kind} '{self.name}' does not take a {type(message).__name__} from '{sender}'."
        )


class Peer(Participant):
    """A party that joins at the controller and takes messages from it alone; `_handlers` has those
    of its own.
    """

    def __init__(self, *who: Any, secrets: Secrets | None) -> None:
        super().__init__(*who, secrets=secrets)
        self._handlers: Handlers = {Offer: self._on_offer, Closed: self.close}

    def start(self) -> Sequence[Action]:
        """Join the run."""
        return self.to_controller(self.join())

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message."""
        handler = self._handlers.get(type(message))
        return (
            self.unexpected(sender, message)
            if handler is None or sender != CONTROLLER
            else handler(message)
        )

    def _on_offer(self, offer: Offer) -> Sequence[Action]:
        return self.to_controller(self.consider(offer))
