"""The server: moves sealed shares, adds masked vectors up as they come, and takes off what is left of the masks.

Sans-IO and without a clock: its operator says when a stage is over (`close`, or the message `StageOver`). Closing with
fewer clients than the plan's minimum, or with too few neighbours of one, raises and leaves the stage open: wait, or
give the round up. There is no way to a sum of fewer.

What it holds: public keys, sealed shares until they are delivered, one running sum of masked vectors, signatures, and
in the end one share kind for each client. Never one client's vector: each is added to the sum on arrival, under masks.
A vector that comes after its stage was closed is discarded, and a note says so.

A client whose shares from another do not open complains and drops out; `suspects` says whom to leave out of the round
when it is run again.

A server that stops gives its round up: clients answer one request to unmask, so it could not finish it anyway.

Cost for n clients, k neighbours, d words: n k sealed shares of 82 bytes, n vectors of 4 d bytes; then `unmask`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from posse.core.errors import ProtocolError
from posse.core.roles import OPERATOR, Action, Message, Note, Send
from posse.privacy.aggregation.client import SERVER
from posse.privacy.aggregation.masks import FRAME_BYTES, PURPOSE_SURVIVORS, add_streams, check_advertised
from posse.privacy.aggregation.messages import (
    Advertise,
    Complaint,
    Delivery,
    Keys,
    Masked,
    Shares,
    Shown,
    Signed,
    StageOver,
    Survivors,
    Unmask,
)
from posse.privacy.aggregation.quantise import Ring
from posse.privacy.aggregation.rules import kinds
from posse.privacy.aggregation.shamir import SHARE_BYTES
from posse.privacy.aggregation.terms import Stage, Terms
from posse.privacy.aggregation.unmask import WrongShares, leftovers
from posse.privacy.crypto.keys import verify

_STAGES: dict[type[Message], Stage] = {
    Advertise: Stage.KEYS,
    Shares: Stage.SHARES,
    Masked: Stage.MASKED,
    Complaint: Stage.MASKED,
    Signed: Stage.SURVIVORS,
    Shown: Stage.UNMASK,
}


class Server:
    """The server's part of one round."""

    kind = "server"

    def __init__(self, terms: Terms, name: str = SERVER) -> None:
        self.name, self.stage = name, Stage.KEYS
        self._terms = terms
        self._came: dict[Stage, list[str]] = {stage: [] for stage in Stage}
        """Who did its part, stage by stage; in the next stage nobody else is expected."""
        self._keys: dict[str, Advertise] = {}
        self._frames: dict[str, list[tuple[str, bytes]]] = {}
        """Sealed shares by receiver."""
        self._sum: Ring = np.zeros(terms.length, np.uint32)
        self._signatures: dict[str, bytes] = {}
        self._shown: dict[str, Shown] = {}
        self._complaints: dict[str, tuple[str, ...]] = {}
        """Whose shares did not open, by the client that says so."""
        self._dealers: tuple[str, ...] = ()
        """Whose shares gave no secret though some were to spare."""

    def start(self) -> Sequence[Action]:
        """Wait for keys."""
        return ()

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message; what the protocol does not allow is refused with the state as it was."""
        if sender == OPERATOR and isinstance(message, StageOver):
            return self.close(message.stage)
        stage = _STAGES.get(type(message))
        if stage is None or sender not in self._terms.positions:
            raise ProtocolError(f"the server got a {type(message).__name__} of '{sender}', which it expects of nobody.")
        assert isinstance(message, Advertise | Shares | Masked | Complaint | Signed | Shown)
        if message.terms != self._terms.digest:
            raise ProtocolError(f"{sender} sent a {type(message).__name__} of another round or other terms.")
        if sender in self._came[stage] or (stage == Stage.MASKED and sender in self._complaints):
            raise ProtocolError(f"{sender} has sent its {type(message).__name__} already; a round takes one.")
        if stage < self.stage:
            return (Note(self.name, "late", int(stage), sender),)  # declared dropped: it is discarded
        if stage > self.stage or (stage and sender not in self._came[Stage(stage - 1)]):
            raise ProtocolError(f"{sender} sent a {type(message).__name__} and has not done what comes before it.")
        self._take(sender, message)
        if not isinstance(message, Complaint):
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
            raise ProtocolError(f"the round is at stage {self.stage.name.lower()} and has no sum yet.")
        return self._sum

    @property
    def survivors(self) -> tuple[str, ...]:
        """Whose vectors are in the sum."""
        return tuple(sorted(self._came[Stage.MASKED]))

    @property
    def suspects(self) -> tuple[str, ...]:
        """Whom to leave out when the round is run again.

        Of a client that complains and the one it names, one is at fault. With at most c corrupt clients, one named by
        more than c others is, as is one that names more than c; of all other pairs both are left out.
        """
        most, named = self._terms.plan.corrupt, Counter(name for names in self._complaints.values() for name in names)
        sure = {name for name, times in named.items() if times > most}
        sure |= {name for name, names in self._complaints.items() if len(names) > most}
        pairs = [(one, other) for one, names in self._complaints.items() for other in names]
        return tuple(sorted(sure.union(*(pair for pair in pairs if sure.isdisjoint(pair)), self._dealers)))

    def state(self) -> dict[str, object]:
        """What an operator standing at the server may see."""
        came = self._came[self.stage]
        waited = self._terms.clients if self.stage == Stage.KEYS else self._came[Stage(max(self.stage - 1, 0))]
        return {
            "round": self._terms.round,
            "stage": self.stage.name.lower(),
            "here": len(came),
            "minimum": self._terms.plan.survivors,
            "waiting for": [] if self.finished else sorted(set(waited) - set(came)),
        }

    def close(self, stage: int) -> Sequence[Action]:
        """End the stage that is under way and go on with those that are there; raise if they are too few."""
        if stage != self.stage or self.finished:
            raise ProtocolError(f"stage {stage} is to be closed, and the round is at {int(self.stage)}.")
        came = set(self._came[self.stage])
        self._check_enough(came)
        answer = (self._send_keys, self._deliver, self._announce, self._request, self._finish)[stage](sorted(came))
        self.stage = Stage(stage + 1)
        return answer

    def _take(self, sender: str, message: Message) -> None:
        terms = self._terms
        match message:
            case Advertise():
                check_advertised(sender, message, terms)
                self._keys[sender] = message
            case Shares():
                names = [name for name, _ in message.frames]
                if names != sorted(terms.neighbours(sender) & self._keys.keys()):
                    raise ProtocolError(f"{sender} must share with its neighbours, each once; it shared with others.")
                if any(len(frame) != FRAME_BYTES for _, frame in message.frames):
                    raise ProtocolError(f"{sender} sealed shares that have not {FRAME_BYTES} bytes.")
                for name, frame in message.frames:
                    self._frames.setdefault(name, []).append((sender, frame))
            case Masked():
                if len(message.words) != 4 * terms.length:
                    raise ProtocolError(f"{sender} sent {len(message.words)} bytes for {terms.length} words of 4.")
                self._sum += np.frombuffer(message.words, "<u4")
            case Complaint():
                if not message.names or not set(message.names) <= self._held(sender) - {sender}:
                    raise ProtocolError(f"{sender} complains of clients that shared nothing with it.")
                self._complaints[sender] = tuple(sorted(set(message.names)))
            case Signed():
                verify(
                    terms.identity(sender), PURPOSE_SURVIVORS, terms.survivors_digest(self.survivors), message.signature
                )
                self._signatures[sender] = message.signature
            case Shown():
                asked = kinds(self._held(sender), self.survivors)
                if tuple(tuple(name for name, _ in part) for part in (message.self_masks, message.mask_keys)) != asked:
                    raise ProtocolError(f"{sender} shows other shares than it was asked for.")
                if any(len(share) != SHARE_BYTES for _, share in (*message.self_masks, *message.mask_keys)):
                    raise ProtocolError(f"{sender} shows shares that have not {SHARE_BYTES} bytes.")
                self._shown[sender] = message

    def _held(self, holder: str) -> frozenset[str]:
        """Whose shares a client holds."""
        return self._terms.holders(holder) & set(self._came[Stage.SHARES])

    def _check_enough(self, came: Collection[str]) -> None:
        plan = self._terms.plan
        if len(came) < plan.survivors:
            missing = sorted(set(self._terms.clients) - set(came))
            raise ProtocolError(
                f"stage {self.stage.name.lower()} needs {plan.survivors} of {plan.clients} clients, got {len(came)} "
                f"(missing: {', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}). Wait for more of them, or "
                "run the round again with a plan for more dropouts."
            )
        # Whose secrets will be needed: at first everyone's that is here, later those of all that shared.
        owners = came if self.stage <= Stage.SHARES else self._came[Stage.SHARES]
        for owner in owners:
            left = len(self._terms.holders(owner) & set(came))
            if left < plan.threshold:
                raise ProtocolError(
                    f"the secrets of {owner} need {plan.threshold} holders at stage {self.stage.name.lower()}, {left} "
                    "are left. Wait for more clients, or run the round again: it draws another graph."
                )

    def _send_keys(self, came: list[str]) -> Sequence[Action]:
        return [self._to(name, Keys(self._terms.digest, self._of_neighbours(name))) for name in came]

    def _of_neighbours(self, name: str) -> tuple[tuple[str, Advertise], ...]:
        return tuple((other, self._keys[other]) for other in sorted(self._terms.neighbours(name) & self._keys.keys()))

    def _deliver(self, came: list[str]) -> Sequence[Action]:
        frames, self._frames = self._frames, {}
        return [self._to(name, Delivery(self._terms.digest, tuple(sorted(frames.get(name, ()))))) for name in came]

    def _announce(self, came: list[str]) -> Sequence[Action]:
        return [self._to(name, Survivors(self._terms.digest, tuple(came))) for name in came]

    def _request(self, came: list[str]) -> Sequence[Action]:
        quorum = tuple(sorted(self._signatures.items()))[: self._terms.plan.quorum]
        asked = {name: kinds(self._held(name), self.survivors) for name in came}
        return [self._to(name, Unmask(self._terms.digest, *asked[name], quorum)) for name in came]

    def _finish(self, came: list[str]) -> Sequence[Action]:
        streams = leftovers(self._terms, self._keys, self._came[Stage.SHARES], self.survivors, self._shown)
        try:
            taken_off = list(streams)  # wrong shares raise here, before the sum is touched
        except WrongShares as error:
            self._dealers = error.dealers
            raise
        add_streams(self._sum, ((key, -sign) for key, sign in taken_off))
        self._shown, self._signatures = {}, {}
        return (Note(self.name, "sum", self._terms.round, len(self.survivors)),)

    def _to(self, name: str, message: Message) -> Send:
        return (self.name, name, message)
