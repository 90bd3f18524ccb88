"""What is altered, replayed, or of another run, step, pass or sender never changes a role's
state.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from posse.core.errors import FrameError, ProtocolError
from posse.core.roles import Message
from posse.policies import UCB, EpsilonGreedy, Policy, Pursuit
from posse.privacy.crypto.paillier import PrivateKey, generate_key
from posse.systems.samba.messages import (
    Batch,
    Choice,
    Close,
    Consents,
    Explore,
    Go,
    Keys,
    Offer,
    Reply,
    Roster,
    Score,
    Spent,
    Sum,
    Total,
)
from tests.kit.samba import Federation, snapshot

KEY: PrivateKey = generate_key(2048)
POLICIES = (UCB(), EpsilonGreedy(0.5), Pursuit())


def flipped(data: bytes, bit: int) -> bytes:
    bit %= 8 * len(data)
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def refused(federation: Federation, receiver: str, sender: str, message: Message) -> None:
    """The message raises or is dropped, and the receiver is as it was."""
    role = federation.roles[receiver]
    before = snapshot(role)
    try:
        answer = list(role.receive(sender, message))
    except ProtocolError:
        answer = []
    assert answer == []
    assert snapshot(role) == before


def at(
    kind: type[Message], skip: int = 0, **options: object
) -> tuple[Federation, str, str, Message]:
    """A federation with a message of this kind about to arrive, the `skip`-th of its kind."""
    policy = options.pop("policy", UCB())
    assert isinstance(policy, Policy)
    federation = Federation(policy, KEY, **options)  # type: ignore[arg-type]
    seen = -1

    def wanted(sender: str, receiver: str, message: Message) -> bool:
        nonlocal seen
        seen += isinstance(message, kind)
        return seen == skip

    sender, receiver, message = federation.until(wanted)
    return federation, sender, receiver, message


@settings(max_examples=25, deadline=None)
@given(bit=st.integers(0, 10_000), skip=st.integers(0, 5))
def test_comp_refuses_an_altered_batch(bit: int, skip: int) -> None:
    federation, sender, receiver, message = at(Batch, skip)
    assert isinstance(message, Batch)
    refused(federation, receiver, sender, Batch(message.index, flipped(message.frames, bit)))


@settings(max_examples=25, deadline=None)
@given(bit=st.integers(0, 10_000), skip=st.integers(0, 15))
def test_an_owner_refuses_an_altered_reply(bit: int, skip: int) -> None:
    federation, sender, receiver, message = at(Reply, skip)
    assert isinstance(message, Reply)
    altered = Reply(message.index, flipped(message.reply, bit))
    with pytest.raises(ProtocolError):
        federation.roles[receiver].receive(sender, altered)
    refused(federation, receiver, sender, altered)


SENT = [
    *(("paper", policy, kind) for policy in POLICIES for kind in (Score, Batch, Choice, Reply)),
    *(("paper", policy, Explore) for policy in POLICIES if policy.explores),
    *(("strict", policy, kind) for policy in POLICIES for kind in (Score, Reply)),
]


@pytest.mark.parametrize(("level", "policy", "kind"), SENT)
@pytest.mark.parametrize("shift", [-2, -1, 1, 2])
def test_another_step_or_pass(kind: type[Message], shift: int, policy: Policy, level: str) -> None:
    federation, sender, receiver, message = at(kind, 2, level=level, policy=policy)
    moved = type(message)(
        message.index + shift, *[getattr(message, name) for name in message.__struct_fields__[1:]]
    )  # type: ignore[attr-defined]
    refused(federation, receiver, sender, moved)


AGAIN = [
    *(("paper", kind) for kind in (Score, Choice, Reply, Go, Keys, Offer, Roster, Sum, Total)),
    *(("strict", kind) for kind in (Score, Reply, Go, Keys, Offer, Roster, Close, Sum)),
]


@pytest.mark.parametrize(("level", "kind"), AGAIN)
def test_the_same_message_again(kind: type[Message], level: str) -> None:
    federation, sender, receiver, message = at(
        kind, 1 if kind in (Score, Reply) else 0, level=level
    )
    role = federation.roles[receiver]
    role.receive(sender, message)
    refused(federation, receiver, sender, message)


def test_comp_answers_a_repeated_set_alike_and_no_other() -> None:
    federation, sender, receiver, message = at(Batch, 3)
    assert isinstance(message, Batch)
    comp = federation.roles[receiver]
    first = comp.receive(sender, message)
    assert comp.receive(sender, message) == first
    size = len(message.frames) // 4
    frames = [message.frames[i * size : (i + 1) * size] for i in range(4)]
    # A controller that exchanges or repeats frames of an answered pass would learn who was chosen.
    for other in ([*frames[1:], frames[0]], [frames[0], *frames[:3]], frames[:3]):
        refused(federation, receiver, sender, Batch(message.index, b"".join(other)))


@pytest.mark.parametrize("kind", [Batch, Reply])
def test_another_run(kind: type[Message]) -> None:
    federation, sender, receiver, message = at(kind, 2)
    _, _, _, foreign = at(kind, 2)
    assert foreign != message
    refused(federation, receiver, sender, foreign)


def test_a_frame_of_another_pass_in_a_batch() -> None:
    """Frames of the pass before, moved into this pass's batch, do not open."""
    federation, sender, receiver, message = at(Batch, 2)
    assert isinstance(message, Batch)
    old = message
    federation.roles[receiver].receive(sender, message)
    with pytest.raises(FrameError):
        federation.roles[receiver].receive(sender, Batch(old.index + 1, old.frames))


FROM_ONE = [
    *(("paper", kind) for kind in (Score, Batch, Choice, Reply, Go, Keys, Offer, Consents)),
    *(("paper", kind) for kind in (Sum, Total)),
    *(("strict", kind) for kind in (Spent, Close)),
]


@pytest.mark.parametrize(("level", "kind"), FROM_ONE)
def test_another_sender(kind: type[Message], level: str) -> None:
    federation, sender, receiver, message = at(kind, level=level)
    for stranger in {"owner-2", "comp", "customer", "controller", "mallory"} - {sender, receiver}:
        if kind in (Score, Sum) and stranger.startswith("owner"):
            continue  # the controller cannot know what is inside; the transport says who sent it
        refused(federation, receiver, stranger, message)


def test_the_customer_starts_with_no_signature_of_another() -> None:
    federation, sender, receiver, message = at(Consents)
    assert isinstance(message, Consents)
    first, second, *rest = message.consents
    refused(
        federation,
        receiver,
        sender,
        Consents((replace(first, signature=second.signature), second, *rest)),
    )


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from([Go, Keys, Offer, Close]), bit=st.integers(0, 100_000))
def test_signed_messages_cannot_be_altered(kind: type[Message], bit: int) -> None:
    federation, sender, receiver, message = at(kind, level="strict" if kind is Close else "paper")
    while receiver == "controller":
        sender, receiver, message = federation.until(
            lambda s, r, m: isinstance(m, kind) and r != "controller"
        )
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    name = sorted(name for name, value in fields.items() if isinstance(value, bytes))[
        bit % 3 % len([value for value in fields.values() if isinstance(value, bytes)])
    ]
    fields[name] = flipped(fields[name], bit)
    refused(federation, receiver, sender, type(message)(**fields))
