"""Test vectors of `samba-strict/1`: small runs with fixed roots, message by message.

    python -m tests.specification.vectors     writes docs/specification/vectors/*.json

Everything follows from the roots, the rewards and the terms, except HPKE ciphertexts, nonces of
AES-GCM and signatures. Instead of these a vector holds what they open to, or what they sign; both
are checked here with the keys of the run.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from posse.core.roles import WORLD, Action, Message, Pull, Reward, Role, SendMany
from posse.policies import UCB, Policy, Pursuit
from posse.privacy.crypto.keys import Identity, RunKey, Secrets, verify
from posse.privacy.crypto.pairwise import present_digest
from posse.privacy.sharing import shuffle
from posse.privacy.sharing.garbled import WORDS
from posse.systems.samba import messages as common
from posse.systems.samba.levels import Switches
from posse.systems.samba.messages import Score
from posse.systems.samba.setup import (
    COMP,
    CONTROLLER,
    CUSTOMER,
    DEALER,
    Expected,
    Manifest,
    Terms,
    join_bytes,
    policy_terms,
    read_manifest,
    sole,
)
from posse.systems.samba.strict import messages as strict
from posse.systems.samba.strict import slots
from posse.systems.samba.strict.comp import Comp, pads
from posse.systems.samba.strict.controller import StrictController
from posse.systems.samba.strict.customer import StrictCustomer
from posse.systems.samba.strict.dealer import Dealer, frames_for_comp
from posse.systems.samba.strict.messages import Tick, Tock
from posse.systems.samba.strict.owner import StrictOwner

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "specification" / "vectors"
SHOWN = 1024
"""Longer contents are stored as their length and SHA-256."""
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True)
class Case:
    """One run of the vectors."""

    policy: Policy
    owners: int
    budget: int
    slot: float = 0.0
    slow: Sequence[tuple[str, int]] = ()
    """Pulls (owner, number) whose rewards come one slot late."""


CASES: Mapping[str, Case] = {
    "three-owners": Case(Pursuit(), 3, 6),
    "eighteen-owners": Case(UCB(), 18, 21),
    "slots": Case(UCB(), 3, 6, slot=1.0, slow=(("owner-2", 0), ("owner-1", 1))),
}


def fixed_bytes(purpose: str, name: str) -> bytes:
    """Return 32 bytes that follow from two words."""
    return hashlib.sha256(f"samba-strict/1 vectors {purpose} {name}".encode()).digest()


def reward(owner: str, number: int) -> int:
    """Return the reward of an owner's pull, in units of 2^-24."""
    return int.from_bytes(fixed_bytes(f"reward {number}", owner)[:4], "big") % ((1 << 24) + 1)


@dataclass
class Run:
    """A run of a case, with every message in the order in which it was delivered."""

    case: Case
    sends: list[tuple[str, str, Message]] = field(default_factory=list)
    received: dict[str, list[tuple[str, Message]]] = field(default_factory=dict)
    """What each party received, with the sender; the world's answers too."""
    sent: dict[str, list[tuple[str, Message]]] = field(default_factory=dict)
    """What each party sent, with the receiver."""
    pulls: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = tuple(f"owner-{i + 1}" for i in range(self.case.owners))
        self.names = (*names, *sole("strict"))
        self.owners = names
        self.roots = {name: fixed_bytes("root", name) for name in self.names}
        self.scalars = {
            name: 1 + int.from_bytes(fixed_bytes("identity", name), "big") % (_P256_ORDER - 1)
            for name in self.names
        }
        self.identities = {
            name: Identity(ec.derive_private_key(scalar, ec.SECP256R1()))
            for name, scalar in self.scalars.items()
        }
        self.expected = Expected(self.case.policy, "strict", Switches(), slot=self.case.slot)

    def role(self, name: str) -> Role:
        """Make a party from its root."""
        identity, secrets = self.identities[name], Secrets(self.roots[name])
        customer = self.identities[CUSTOMER].public
        if name == CUSTOMER:
            terms = Terms(
                "vectors",
                self.case.budget,
                policy_terms(self.case.policy),
                len(self.case.policy.passes()),
                "strict",
                (),
                b"",
                self.case.slot,
            )
            admitted = {
                each: self.identities[each].public for each in self.names if each != CUSTOMER
            }
            return StrictCustomer(identity, self.expected, terms, admitted, secrets=secrets)
        if name == CONTROLLER:
            return StrictController(identity, customer, self.expected, self.owners, secrets=secrets)
        if name == COMP:
            return Comp(identity, customer, self.expected, secrets=secrets)
        if name == DEALER:
            return Dealer(identity, customer, self.expected, secrets=secrets)
        return StrictOwner(name, identity, customer, self.expected, None, secrets=secrets)

    def play(self, replaced: Mapping[str, Callable[[], Any]] | None = None) -> Run:
        """Run to the end; some roles may be replaced by others with the same methods."""
        makers = replaced or {}
        order = (CUSTOMER, CONTROLLER, COMP, DEALER, *self.owners)
        self.roles: dict[str, Any] = {
            name: makers[name]() if name in makers else self.role(name) for name in order
        }
        queue: deque[Action] = deque()
        ticks: list[Tick] = []
        late: list[Pull] = []
        for name in order:
            queue.extend(self.roles[name].start())
        while queue or ticks:
            if not queue:
                due, ticks = ticks, []
                answers, late = late, []
                for tick in due:
                    queue.extend(self._deliver(WORLD, tick.party, Tock(tick.number)))
                for pull in answers:
                    queue.extend(self._reward(pull))
                continue
            action = queue.popleft()
            if isinstance(action, tuple):
                self.sends.append(action)
                self.sent.setdefault(action[0], []).append((action[1], action[2]))
                queue.extend(self._deliver(*action))
            elif isinstance(action, SendMany):
                queue.extendleft(reversed(action.sends))
            elif isinstance(action, Tick):
                ticks.append(action)
            elif isinstance(action, Pull):
                self.pulls.append((action.party, action.number))
                if (action.party, action.number) in self.case.slow:
                    late.append(action)
                else:
                    queue.extend(self._reward(action))
        return self

    def _deliver(self, sender: str, receiver: str, message: Message) -> Sequence[Action]:
        self.received.setdefault(receiver, []).append((sender, message))
        actions: Sequence[Action] = self.roles[receiver].receive(sender, message)
        return actions

    def _reward(self, pull: Pull) -> Sequence[Action]:
        units = reward(pull.party, pull.number)
        return self._deliver(WORLD, pull.party, Reward(pull.number, units))

    def repeat(self, name: str) -> list[tuple[str, Message]]:
        """Make a party again from its root, let it receive what it received, and return what it
        sends: a restart after the last message.
        """
        role = self.role(name)
        actions = list(role.start())
        for sender, message in self.received.get(name, []):
            actions += role.receive(sender, message)
        sends: list[tuple[str, Message]] = []
        for action in actions:
            if isinstance(action, tuple):
                sends.append((action[1], action[2]))
            elif isinstance(action, SendMany):
                sends += [(receiver, message) for _, receiver, message in action.sends]
        return sends

    @property
    def manifest(self) -> tuple[bytes, Manifest, bytes]:
        """The manifest as bytes and decoded, and its digest."""
        body = next(m.manifest for _, _, m in self.sends if isinstance(m, common.Offer))
        return body, *read_manifest(body)

    def secrets(self) -> dict[str, Any]:
        """Return the secrets of section 4 by name."""
        _, _, digest = self.manifest
        return self.secrets_with(digest)

    def secrets_with(self, digest: bytes) -> dict[str, Any]:
        """Return the secrets of section 4 of a run with this manifest."""
        first = self.owners[0]

        def key(name: str, kind: str, purpose: bytes, more: bytes = b"") -> bytes:
            context = msgspec.msgpack.encode((kind, name, digest)) + more
            return Secrets(self.roots[name]).key(purpose, context=context)

        return {
            "run_keys": {
                name: self.run_key(name).private.private_bytes_raw() for name in self.names
            },
            "tag_key": key(first, "owner", b"samba k_frame"),
            "common_key": key(first, "owner", b"samba s_own"),
            "stream_keys": {
                name: key(name, "owner", b"samba strict stream") for name in self.owners
            },
            "seeds": {
                name: key(DEALER, DEALER, b"samba strict seed", name.encode())
                for name in (CONTROLLER, COMP)
            },
            "search_key": key(CONTROLLER, CONTROLLER, b"samba strict search"),
            "label_key": key(COMP, COMP, b"samba strict labels"),
        }

    def run_key(self, name: str) -> RunKey:
        """Return a party's X25519 key."""
        kind = name if name in sole("strict") else "owner"
        context = msgspec.msgpack.encode((kind, name, b""))
        return RunKey(Secrets(self.roots[name]).key(b"samba run key", context=context))

    def scores(self) -> dict[str, dict[int, int]]:
        """Return the integers x of section 5.1 by owner and pass, from what was sent."""
        streams = self.secrets()["stream_keys"]
        numbers: dict[str, dict[int, int]] = {name: {} for name in self.owners}
        opened = {slot: self._opened(slot) for slot in range(self.case.budget * 4)}
        slot_of = dict.fromkeys(self.owners, -1)
        for sender, _, message in self.sends:
            if not isinstance(message, Score):
                continue
            slot_of[sender] += 1
            word = int.from_bytes(message.frame[:8], "little")
            if self.case.slot:
                if not opened[slot_of[sender]] or message.index > self.last:
                    continue
                word += int(slots.slot_pads(streams[sender]).rows(slot_of[sender], 1)[0, 0])
            word += int(pads(streams[sender]).rows(message.index, 1)[0, 0])
            x = word % 2**64
            numbers[sender][message.index] = x - 2**64 if x >= 2**63 else x
        return numbers

    def _opened(self, slot: int) -> bool:
        return any(
            isinstance(m, strict.Opened) and m.slot == slot and m.pads for _, _, m in self.sends
        )

    @property
    def start(self) -> int:
        """The index of the first pass."""
        return (self.case.owners + 1) * len(self.case.policy.passes())

    @property
    def last(self) -> int:
        """The index of the last pass."""
        return (self.case.budget + 1) * len(self.case.policy.passes()) - 1

    def dealt(self) -> dict[str, bytes]:
        """Return what the dealer sends for pass number 0 and for comparison number 0."""
        seeds, count = self.secrets()["seeds"], self.case.owners
        dealer = shuffle.Dealer(count, seeds[CONTROLLER], seeds[COMP])
        to_controller, to_comp = dealer.passes(0)
        return {
            "pass_0_to_controller": to_controller[: 8 * count + -(-count // 8)],
            "pass_0_to_comp": to_comp[: 8 * count],
            "comparison_0_to_controller": dealer.pairs(0)[:WORDS],
        }

    # Messages as JSON -----------------------------------------------------------------------------

    def described(self, sender: str, receiver: str, message: Message) -> dict[str, Any]:
        """Return a message as JSON; raise if a signature or a sealed content is wrong."""
        party = receiver if isinstance(message, strict.Seeds) else sender
        return {"from": sender, "to": receiver, **self._struct(message, party)}

    def _struct(self, message: msgspec.Struct, party: str) -> dict[str, Any]:
        """Return a message or a part of one; `party` sealed a stream key, or has a sealed seed."""
        special = self._special(message, party)
        fields = {
            name: special[name] if name in special else self._value(getattr(message, name), party)
            for name in message.__struct_fields__
        }
        return {"type": type(message).__name__, "fields": fields}

    def _value(self, value: Any, party: str) -> Any:
        if isinstance(value, msgspec.Struct):
            return self._struct(value, party)
        if isinstance(value, tuple):
            return [self._value(each, party) for each in value]
        if isinstance(value, bytes):
            return shown(value)
        return value

    def _signs(
        self, signer: str, purpose: str, data: bytes, signature: bytes, form: str = ""
    ) -> dict[str, Any]:
        """Check a signature; `form` describes data that contain a ciphertext."""
        verify(self.identities[signer].public, purpose.encode(), data, signature)
        return {"signed_by": signer, "purpose": purpose, "data": form or shown(data)}

    def _sealed_and_signed(
        self, signer: str, purpose: str, receiver: str, info: bytes, message: Any
    ) -> dict[str, Any]:
        data = info + message.sealed
        return {
            "sealed": self._sealed(receiver, message.sealed, info),
            "signature": self._signs(signer, purpose, data, message.signature, "info ‖ sealed"),
        }

    def _sealed(self, receiver: str, sealed: bytes, info: bytes) -> dict[str, Any]:
        plain = self.run_key(receiver).open(sealed, info)
        return {"sealed_to": receiver, "info": info.hex(), "content": shown(plain)}

    def _dealt(self, chunk: int, sealed: bytes) -> dict[str, Any]:
        _, _, digest = self.manifest
        frames = frames_for_comp(self.secrets()["seeds"][COMP], digest)
        return {"frame": chunk, "content": shown(frames.open(chunk, sealed))}

    def _info(self, purpose: str, name: str) -> bytes:
        return msgspec.msgpack.encode(("posse samba strict", purpose, name, self.manifest[2]))

    def _special(self, message: msgspec.Struct, party: str) -> dict[str, Any]:
        """Return the fields that differ in every run: sealed contents and signatures."""
        if isinstance(message, common.Join):
            data = join_bytes(message.name, message.kind, message.run_key)
            return {"signature": self._signs(message.name, "join", data, message.signature)}
        if isinstance(message, common.Proposal | common.Roster):
            return {}
        body, _, digest = self.manifest
        match message:
            case common.Offer():
                return {"signature": self._signs(CUSTOMER, "manifest", body, message.signature)}
            case common.Consent():
                signer = message.name
                return {"signature": self._signs(signer, "consent", digest, message.signature)}
            case common.Go() | common.Closed():
                purpose = type(message).__name__.lower()
                return {"signature": self._signs(CUSTOMER, purpose, digest, message.signature)}
            case strict.Streams():
                pairs = zip(message.streams, self.owners, strict=True)
                return {"streams": [self._struct(stream, owner) for stream, owner in pairs]}
            case strict.Stream():
                info = self._info("stream", party)
                return self._sealed_and_signed(party, "stream", COMP, info, message)
            case strict.Dealing():
                return {
                    CONTROLLER: self._struct(message.controller, CONTROLLER),
                    COMP: self._struct(message.comp, COMP),
                }
            case strict.Seeds():
                info = self._info("seed", party)
                return self._sealed_and_signed(DEALER, "seed", party, info, message)
            case common.Keys():
                return self._keys(message, digest)
            case strict.Dealt():
                return {"comp": self._dealt(message.chunk, message.comp)}
            case strict.Relayed():
                return {"sealed": self._dealt(message.chunk, message.sealed)}
            case common.Close():
                data = self._close_bytes(message, digest)
                return {"signature": self._signs(CUSTOMER, "close", data, message.signature)}
            case strict.Share():
                info = self._info("sum", COMP) + present_digest(self.owners, digest)
                return self._sealed_and_signed(COMP, "sum", CUSTOMER, info, message)
        return {}

    def _keys(self, message: common.Keys, digest: bytes) -> dict[str, Any]:
        first = self.owners[0]
        info = {
            name: msgspec.msgpack.encode(("posse samba keys", first, name, digest))
            for name in message.sealed
        }
        commitments = message.frame_commitment, message.own_commitment
        data = msgspec.msgpack.encode((sorted(message.sealed.items()), *commitments, digest))
        form = "mp([[receiver, sealed]], frame_commitment, own_commitment, D)"
        sealed = {
            name: self._sealed(name, content, info[name])
            for name, content in message.sealed.items()
        }
        signature = self._signs(first, "keys", data, message.signature, form)
        return {"sealed": sealed, "signature": signature}

    def _close_bytes(self, message: common.Close, digest: bytes) -> bytes:
        number = message.number.to_bytes(8, "big")
        return present_digest(message.present, digest) + digest + number


def shown(data: bytes) -> Any:
    """Return bytes in hexadecimal digits, or the length and SHA-256 of long ones."""
    if len(data) <= SHOWN:
        return data.hex()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def document(name: str) -> dict[str, Any]:
    """Play a case and return its vector."""
    run = Run(CASES[name]).play()
    body, manifest, digest = run.manifest
    return {
        "protocol": "samba-strict/1",
        "case": name,
        "owners": list(run.owners),
        "budget": run.case.budget,
        "passes": manifest.terms.passes,
        "slot": run.case.slot,
        "first_pass": run.start,
        "last_pass": run.last,
        "roots": {party: root.hex() for party, root in run.roots.items()},
        "identity_scalars": {party: f"{scalar:064x}" for party, scalar in run.scalars.items()},
        "manifest": body.hex(),
        "digest": digest.hex(),
        "secrets": _hexadecimal(run.secrets()),
        "dealt": _hexadecimal(run.dealt()),
        "pulls": [
            {"owner": owner, "number": number, "reward_units": reward(owner, number)}
            for owner, number in run.pulls
        ],
        "scores": run.scores(),
        "total_units": sum(reward(owner, number) for owner, number in run.pulls),
        "messages": [run.described(*send) for send in run.sends],
    }


def _hexadecimal(values: Any) -> Any:
    if isinstance(values, bytes):
        return values.hex()
    return {name: _hexadecimal(value) for name, value in values.items()}


def write() -> None:
    """Write all vectors."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in CASES:
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(document(name), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
