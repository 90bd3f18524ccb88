"""The server: moves sealed shares, adds masked vectors up as they come, and takes off what is left
of the masks.

Sans-IO and without a clock: its operator says when a stage is over (`close`, or the message
`StageOver`). Closing with fewer clients than the plan's minimum, or with too few neighbours of one,
raises and leaves the stage open: wait, or give the round up. There is no way to a sum of fewer.

What it holds: public keys, sealed shares until they are delivered, one running sum of masked
vectors, signatures, and in the end one share kind for each client. Never one client's vector: each
is added to the sum on arrival, under masks. A vector that comes after its stage was closed is
discarded, and a note says so.

A client whose shares from another do not open complains and drops out; `suspects` says whom to
leave out of the round when it is run again.

A server that stops gives its round up, but for the last stage: clients answer one request to
unmask, and the same one again. What it needs to end the round then is `masked`, which is public
keys, names and the masked sum.

What it takes off the sum of masked vectors, once clients have shown their shares (`leftovers`):

    sum of x_u = sum of y_u - sum over survivors u of G(b_u)
                 - sum over dropped v and their surviving neighbours u of  +-G(k_uv)   modulo 2^32

b_u of a survivor and the masking key of a dropped client are reconstructed from t shares each, and
compared with the commitment and the public key that the client signed. Where they differ, a share
is wrong: other sets of t holders are tried, at most 300, and if none is right the round ends
instead of spoiling the sum. Where shares are to spare, that overcomes one wrong holder of any
number, and two of 20. Whether a holder altered its share or was dealt a wrong one cannot be told.

Cost for n clients, k neighbours, d words: n k sealed shares of 82 bytes, n vectors of 4 d bytes;
then, for s survivors and r clients dropped after sharing, s + r reconstructions of t
multiplications (t^2 more for each new set of holders) and s + r k streams of the vector's length.
Leaks to the server: the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations, islice

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from posse.core.errors import ProtocolError
from posse.core.roles import OPERATOR, Action, Message, Note
from posse.privacy.aggregation import masks, messages
from posse.privacy.aggregation.client import SERVER, kinds
from posse.privacy.aggregation.messages import Advertise, Named
from posse.privacy.aggregation.quantise import Ring
from posse.privacy.aggregation.shamir import SHARE_BYTES, reconstruct
from posse.privacy.aggregation.terms import Stage, Terms
from posse.privacy.crypto.keys import commitment, verify

_TRIES = 300
"""Sets of holders that are tried for a secret."""
_STAGES: dict[type[Message], Stage] = {
    Advertise: Stage.KEYS,
    messages.Shares: Stage.SHARES,
    messages.Masked: Stage.MASKED,
    messages.Complaint: Stage.MASKED,
    messages.Signed: Stage.SURVIVORS,
    messages.Shown: Stage.UNMASK,
}


class Unmasking(msgspec.Struct, frozen=True):
    """What a server needs to end a round whose masks clients were asked to take off."""

    keys: dict[str, Advertise]
    sharers: tuple[str, ...]
    survivors: tuple[str, ...]
    signers: tuple[str, ...]
    words: bytes
    """The sum of the survivors' vectors under what is left of the masks, little-endian."""


class Server:
    """The server's part of one round."""

    kind = name = SERVER

    def __init__(self, terms: Terms, masked: Unmasking | None = None) -> None:
        """Wait for keys; or for shares, as another server was when it gave `masked`."""
        self.stage, self._terms = Stage.KEYS, terms
        self._came: dict[Stage, list[str]] = {stage: [] for stage in Stage}
        """Who did its part, stage by stage; in the next stage nobody else is expected."""
        self._keys: dict[str, Advertise] = {}
        self._frames: dict[str, list[tuple[str, bytes]]] = {}
        """Sealed shares by receiver."""
        self._sum: Ring = np.zeros(terms.length, np.uint32)
        self._signatures: dict[str, bytes] = {}
        self._shown: dict[str, messages.Shown] = {}
        self._complaints: dict[str, tuple[str, ...]] = {}
        """Whose shares did not open, by the client that says so."""
        self._dealers: tuple[str, ...] = ()
        """Whose shares gave no secret though some were to spare."""
        if masked is not None:
            self._go_on(masked)

    def _go_on(self, masked: Unmasking) -> None:
        self.stage, self._keys = Stage.UNMASK, masked.keys
        for stage, names in zip(
            Stage, (masked.keys, masked.sharers, masked.survivors, masked.signers), strict=False
        ):
            self._came[stage] = list(names)
        self._sum = np.frombuffer(masked.words, "<u4").astype(np.uint32)

    @property
    def masked(self) -> Unmasking:
        """What is needed to end the round from now on, before its first share has come."""
        if self.stage != Stage.UNMASK or self._shown:
            raise ProtocolError(
                f"the round is at stage {self.stage.name.lower()}, and is kept before it is "
                "unmasked."
            )
        sharers, masked, signers = (
            tuple(self._came[stage]) for stage in (Stage.SHARES, Stage.MASKED, Stage.SURVIVORS)
        )
        return Unmasking(self._keys, sharers, masked, signers, self._sum.astype("<u4").tobytes())

    def start(self) -> Sequence[Action]:
        """Wait for keys."""
        return ()

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message; what the protocol does not allow is refused with the state as it
        was.
        """
        if sender == OPERATOR and isinstance(message, messages.StageOver):
            return self.close(message.stage)
        stage = _STAGES.get(type(message))
        if stage is None or sender not in self._terms.positions:
            raise ProtocolError(
                f"the server got a {type(message).__name__} of '{sender}', which it expects of "
                "nobody."
            )
        assert isinstance(message, messages.OfClient)
        if message.terms != self._terms.digest:
            raise ProtocolError(
                f"{sender} sent a {type(message).__name__} of another round or other terms."
            )
        if sender in self._came[stage] or (stage == Stage.MASKED and sender in self._complaints):
            raise ProtocolError(
                f"{sender} has sent its {type(message).__name__} already; a round takes one."
            )
        if stage < self.stage:
            return (
                Note(self.name, "late", int(stage), sender),
            )  # declared dropped: it is discarded
        if stage > self.stage or (stage and sender not in self._came[Stage(stage - 1)]):
            raise ProtocolError(
                f"{sender} sent a {type(message).__name__} and has not done what comes before it."
            )
        self._take(sender, message)
        if not isinstance(message, messages.Complaint):
            self._came[stage].append(sender)
        return ()

    @property
    def finished(self) -> bool:
        """Whether the sum is there."""
        return self.stage == Stage.OVER

    @property
    def total(self) -> Ring:
        """The sum of the survivors' vectors modulo 2^32."""
        if not self.finished:
            raise ProtocolError(
                f"the round is at stage {self.stage.name.lower()} and has no sum yet."
            )
        return self._sum

    @property
    def survivors(self) -> tuple[str, ...]:
        """Whose vectors are in the sum."""
        return tuple(sorted(self._came[Stage.MASKED]))

    @property
    def enough(self) -> int:
        """Answers with which a stage can be closed; whether it can also depends on whose they
        are.
        """
        return self._terms.plan.survivors

    @property
    def suspects(self) -> tuple[str, ...]:
        """Whom to leave out when the round is run again.

        Of a client that complains and the one it names, one is at fault. With at most c corrupt
        clients, one named by more than c others is, as is one that names more than c; of all other
        pairs both are left out.
        """
        most, named = (
            self._terms.plan.corrupt,
            Counter(name for names in self._complaints.values() for name in names),
        )
        sure = {name for name, times in named.items() if times > most}
        sure |= {name for name, names in self._complaints.items() if len(names) > most}
        pairs = [(one, other) for one, names in self._complaints.items() for other in names]
        return tuple(
            sorted(sure.union(*(pair for pair in pairs if sure.isdisjoint(pair)), self._dealers))
        )

    def state(self) -> dict[str, object]:
        """What an operator standing at the server may see."""
        came = self._came[self.stage]
        waited = (
            self._terms.clients
            if self.stage == Stage.KEYS
            else self._came[Stage(max(self.stage - 1, 0))]
        )
        return {
            "round": self._terms.round,
            "stage": self.stage.name.lower(),
            "here": len(came),
            "minimum": self._terms.plan.survivors,
            "waiting for": [] if self.finished else sorted(set(waited) - set(came)),
        }

    def close(self, stage: int) -> Sequence[Action]:
        """End the stage that is under way and go on with those that are there; raise if they are
        too few.
        """
        if stage != self.stage or self.finished:
            raise ProtocolError(
                f"stage {stage} is to be closed, and the round is at {int(self.stage)}."
            )
        came = sorted(self._came[self.stage])
        self._check_enough(came)
        answer: Sequence[Action]
        if stage == Stage.UNMASK:
            answer = self._finish()
        else:
            answer = [
                (self.name, name, reply)
                for name, reply in zip(came, self._replies(came), strict=True)
            ]
        self.stage = Stage(stage + 1)
        return answer

    def _take(self, sender: str, message: messages.OfClient) -> None:
        """Check what a client sent and keep it."""
        terms = self._terms
        match message:
            case Advertise():
                masks.check_advertised(sender, message, terms)
                self._keys[sender] = message
            case messages.Shares():
                self._take_shares(sender, message)
            case messages.Masked():
                if len(message.words) != 4 * terms.length:
                    raise ProtocolError(
                        f"{sender} sent {len(message.words)} bytes for {terms.length} words of 4."
                    )
                self._sum += np.frombuffer(message.words, "<u4")
            case messages.Complaint():
                if not message.names or not set(message.names) <= self._held(sender) - {sender}:
                    raise ProtocolError(
                        f"{sender} complains of clients that shared nothing with it."
                    )
                self._complaints[sender] = tuple(sorted(set(message.names)))
            case messages.Signed():
                signed = terms.survivors_digest(self.survivors)
                verify(terms.identity(sender), masks.PURPOSE_SURVIVORS, signed, message.signature)
                self._signatures[sender] = message.signature
            case messages.Shown():
                self._take_shown(sender, message)

    def _take_shares(self, sender: str, message: messages.Shares) -> None:
        names = [name for name, _ in message.frames]
        if names != sorted(self._terms.neighbours(sender) & self._keys.keys()):
            raise ProtocolError(
                f"{sender} must share with its neighbours, each once; it shared with others."
            )
        if any(len(frame) != masks.FRAME_BYTES for _, frame in message.frames):
            raise ProtocolError(f"{sender} sealed shares that have not {masks.FRAME_BYTES} bytes.")
        for name, frame in message.frames:
            self._frames.setdefault(name, []).append((sender, frame))

    def _take_shown(self, sender: str, message: messages.Shown) -> None:
        self_masks = tuple(name for name, _ in message.self_masks)
        mask_keys = tuple(name for name, _ in message.mask_keys)
        if (self_masks, mask_keys) != kinds(self._held(sender), self.survivors):
            raise ProtocolError(f"{sender} shows other shares than it was asked for.")
        if any(len(share) != SHARE_BYTES for _, share in (*message.self_masks, *message.mask_keys)):
            raise ProtocolError(f"{sender} shows shares that have not {SHARE_BYTES} bytes.")
        self._shown[sender] = message

    def _held(self, holder: str) -> frozenset[str]:
        """Whose shares a client holds."""
        return self._terms.holders(holder) & set(self._came[Stage.SHARES])

    def _check_enough(self, came: Collection[str]) -> None:
        plan, stage = self._terms.plan, self.stage.name.lower()
        if len(came) < plan.survivors:
            missing = sorted(set(self._terms.clients) - set(came))
            raise ProtocolError(
                f"stage {stage} needs {plan.survivors} of {plan.clients} clients, got {len(came)} "
                f"(missing: {', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}). Wait "
                "for more of them, or "
                "run the round again with a plan for more dropouts."
            )
        # Whose secrets will be needed: at first everyone's that is here, later those of all that
        # shared.
        owners = came if self.stage <= Stage.SHARES else self._came[Stage.SHARES]
        for owner in owners:
            left = len(self._terms.holders(owner) & set(came))
            if left < plan.threshold:
                raise ProtocolError(
                    f"the secrets of {owner} need {plan.threshold} holders at stage {stage}, "
                    f"{left} "
                    "are left. Wait for more clients, or run the round again: it draws another "
                    "graph."
                )

    def _replies(self, came: list[str]) -> Sequence[Message]:
        """What each client is sent at the end of the stage that is under way."""
        digest, survivors = self._terms.digest, self.survivors
        if self.stage == Stage.KEYS:
            neighbours = [sorted(self._terms.neighbours(name) & self._keys.keys()) for name in came]
            known = [tuple((other, self._keys[other]) for other in others) for others in neighbours]
            return [messages.Keys(digest, keys) for keys in known]
        if self.stage == Stage.SHARES:
            frames, self._frames = self._frames, {}
            return [messages.Delivery(digest, tuple(sorted(frames.get(name, ())))) for name in came]
        if self.stage == Stage.MASKED:
            return [messages.Survivors(digest, survivors)] * len(came)
        quorum = tuple(sorted(self._signatures.items()))[: self._terms.plan.quorum]
        return [
            messages.Unmask(digest, *kinds(self._held(name), survivors), quorum) for name in came
        ]

    def _finish(self) -> Sequence[Action]:
        streams = leftovers(
            self._terms, self._keys, self._came[Stage.SHARES], self.survivors, self._shown
        )
        try:
            taken_off = list(streams)  # wrong shares raise here, before the sum is touched
        except WrongShares as error:
            self._dealers = error.dealers
            raise
        masks.add_streams(self._sum, ((key, -sign) for key, sign in taken_off))
        self._shown, self._signatures = {}, {}
        return (Note(self.name, "sum", self._terms.round, len(self.survivors)),)


class WrongShares(ProtocolError):
    """No set of shares gives what a client signed."""

    def __init__(self, name: str, spare: int) -> None:
        super().__init__(
            f"the shares of a secret of {name} do not give what it signed: it, or a holder, gave a "
            "wrong one, and "
            f"{spare} were to spare. Run the round again"
            + (f" without {name}." if spare else ", with a plan for more dropouts.")
        )
        self.dealers = (name,) if spare else ()
        """Whom to leave out; nobody where nothing was to spare, since it may have been any
        holder.
        """


def leftovers(
    terms: Terms,
    keys: Mapping[str, Advertise],
    sharers: Collection[str],
    survivors: Collection[str],
    shown: Mapping[str, messages.Shown],
) -> Iterator[tuple[bytes, int]]:
    """Yield the keys of all streams left in the sum, each with its sign there."""
    alive = set(survivors)
    seeds = _by_client((holder, message.self_masks) for holder, message in shown.items())
    privates = _by_client((holder, message.mask_keys) for holder, message in shown.items())
    wrong: Counter[str] = Counter()

    def seed_of(name: str, found: bytes) -> bool:
        return commitment(found, masks.self_label(terms, name)) == keys[name].commitment

    def key_of(name: str, found: bytes) -> bool:
        return (
            X25519PrivateKey.from_private_bytes(found).public_key().public_bytes_raw()
            == keys[name].masking
        )

    for name in sorted(alive):
        yield masks.self_stream(_secret(terms, name, seeds, seed_of, wrong)), 1
    for name in sorted(set(sharers) - alive):
        others = sorted(terms.neighbours(name) & alive)
        if others:
            private = X25519PrivateKey.from_private_bytes(
                _secret(terms, name, privates, key_of, wrong)
            )
            for other in others:
                key, sign = masks.pair_stream(private, name, other, keys[other].masking, terms)
                yield key, -sign  # it is in the sum as the survivor added it


def _by_client(lists: Iterator[tuple[str, Named]]) -> dict[str, dict[str, bytes]]:
    """Sort shares by the client whose secret they belong to: client -> holder -> share."""
    found: dict[str, dict[str, bytes]] = {}
    for holder, shares in lists:
        for name, share in shares:
            found.setdefault(name, {})[holder] = share
    return found


def _secret(
    terms: Terms,
    name: str,
    shares: Mapping[str, Mapping[str, bytes]],
    right: Callable[[str, bytes], bool],
    wrong: Counter[str],
) -> bytes:
    """Reconstruct a secret of a client; `wrong` counts the holders left out so far, who come last
    from then on.
    """
    t, held = terms.plan.threshold, shares.get(name, {})
    if len(held) < t:
        raise ProtocolError(
            f"a secret of {name} needs the shares of {t} holders, {len(held)} are left. "
            "Wait for more clients, or run the round again."
        )
    order = sorted(held, key=lambda holder: (wrong[holder], holder))
    for left_out in islice(_sets(order, t), _TRIES):
        used = [holder for holder in order if holder not in left_out][:t]
        try:
            secret = reconstruct({terms.place(holder): held[holder] for holder in used}, t)
        except ProtocolError:
            continue
        if right(name, secret):
            wrong.update(left_out)
            return secret
    raise WrongShares(name, spare=len(held) - t)


def _sets(order: list[str], t: int) -> Iterator[tuple[str, ...]]:
    """Yield whom to leave out: nobody, then one, then two and so on, as long as t are left; each
    set of t once.
    """
    for count in range(len(order) - t + 1):
        yield from combinations(order[: t + count - 1], count)
