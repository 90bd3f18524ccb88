"""Level `strict`: what a server that does not follow the protocol can do, what is refused, and the
final sum.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError, ProtocolError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import Message
from posse.policies import UCB, EpsilonGreedy, Policy, Thompson
from posse.privacy.crypto.keys import Secrets, hkdf, seal_to
from posse.privacy.crypto.paillier import generate_key
from posse.privacy.crypto.pairwise import present_digest
from posse.problems import BernoulliArms
from posse.systems import registry
from posse.systems.samba.federation import federation
from posse.systems.samba.levels import Switches, check_level
from posse.systems.samba.messages import (
    Agreed,
    Close,
    Closed,
    Consents,
    End,
    Go,
    Join,
    Keys,
    Offer,
    Reply,
    Roster,
    Score,
)
from posse.systems.samba.settings import Samba
from posse.systems.samba.setup import check_members
from posse.systems.samba.strict import sums
from posse.systems.samba.strict.closing import agree, ask
from posse.systems.samba.strict.messages import (
    Compare,
    Compared,
    Dealing,
    Dealt,
    DealtPairs,
    Found,
    Keyring,
    Placed,
    Ready,
    Relayed,
    Seeds,
    Share,
    Shares,
    Shuffled,
    Stream,
    Streams,
    Want,
)
from tests.kit.policies import SecondBest
from tests.kit.samba import Federation, snapshot

KEY = generate_key(2048)


def strict(policy: Policy | None = None, **options: Any) -> Federation:
    return Federation(policy or UCB(), KEY, level="strict", **options)


def flipped(data: bytes, bit: int = 0) -> bytes:
    place = bit % (8 * len(data))
    return data[: place // 8] + bytes([data[place // 8] ^ 1 << place % 8]) + data[place // 8 + 1 :]


# What a malicious server can do -------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [True, False])
def test_a_server_can_flip_a_bit_so_that_none_or_two_pull(chosen: bool) -> None:
    """And by what follows it sees whether the owner was to pull: nobody answers late, or two do."""
    run = strict(owners=4, budget=30)
    owners: list[Any] = [run.roles[f"owner-{number}"] for number in range(1, 5)]
    run.until(lambda *one: isinstance(one[2], Reply) and one[2].index == 12)
    replies: list[Any] = [run.queue.popleft() for _ in owners]
    says = [
        reply.reply == owner._lane._yes[owner._lane._at]
        for owner, (_, _, reply) in zip(owners, replies, strict=True)
    ]
    assert sum(says) == 1
    target = says.index(chosen)
    for at, (sender, name, message) in enumerate(replies):
        bits = flipped(message.reply) if at == target else message.reply
        run.roles[name].receive(sender, Reply(message.index, bits))
    assert sum(owner._pulling for owner in owners) == (0 if chosen else 2)


def test_a_server_with_an_owners_help_compares_a_score_of_its_choice_with_the_largest() -> None:
    """Whoever adds to a share moves that owner's score; the owner's own bit says whether it is
    above the others.
    """
    for above in (True, False):
        run = strict(owners=4, budget=30)
        frames, pads = {}, {}
        for sender, _, message in run.deliveries():
            if isinstance(message, Score) and message.index == 10:
                lane: Any = run.roles[sender]
                numbers = lane._lane._numbers[lane._lane._at]
                frames[sender], pads[sender] = int(numbers), message
                if len(frames) == 4:
                    break
        best = max(number for name, number in frames.items() if name != sender)
        shift = best + (1 if above else -1) - frames[sender]
        altered = (int.from_bytes(pads[sender].frame, "little") + shift) % 2**64
        run.queue.extend(
            run.roles["controller"].receive(sender, Score(10, altered.to_bytes(8, "little")))
        )
        for _, receiver, message in run.deliveries():
            if isinstance(message, Reply) and message.index == 10 and receiver == sender:
                owner: Any = run.roles[sender]
                assert (message.reply == owner._lane._yes[owner._lane._at]) is above
                break


def test_a_controller_can_have_an_owner_of_its_choice_pull() -> None:
    """It adds as much to this owner's share as no score has."""
    run = strict(owners=4, budget=20)
    controller: Any = run.roles["controller"]
    begin = controller._begin_pass

    def begun() -> Any:
        more = int.from_bytes(controller._frames["owner-3"], "little") + 2**61
        controller._frames["owner-3"] = (more % 2**64).to_bytes(8, "little")
        return begin()

    controller._begin_pass = begun
    assert run.finish() == [run.world.units.sum() / REWARD_ONE]
    assert run.world.pulls.tolist() == [1, 1, 17, 1]


def test_a_server_alone_cannot_alter_the_total_and_with_an_owner_it_can() -> None:
    """Whichever it is, what the customer sends is the same: the one word that it has an answer."""
    sent = []
    for helped in (False, True):
        run = strict(owners=4, budget=20)
        _, _, message = run.until(lambda *one: isinstance(one[2], Shares))
        assert isinstance(message, Shares)
        owner: Any = run.roles["owner-1"]
        digest = present_digest(sorted(owner.manifest.owners), owner._digest)
        slope, _ = sums._coefficients(owner._keys[0], digest, ())
        number, tag = sums.decode(message.controller)
        more = (1 << sums.PULLS) * REWARD_ONE
        changed = sums.encode((number + more, tag + (slope * more if helped else 1)))
        customer: Any = run.roles["customer"]
        actions = customer.receive("controller", Shares(changed, message.comp))
        sent.append(
            [(action[1], type(action[2])) for action in actions if isinstance(action, tuple)]
        )
        if helped:
            assert customer.total == run.world.units.sum() / REWARD_ONE + 1
        else:
            assert "tag" in customer.refused
            assert customer.total is None
        with pytest.raises(ProtocolError, match="known already"):
            customer.receive("controller", message)
    assert sent == [[("controller", Closed)]] * 2


# What is refused ----------------------------------------------------------------------------------

ALTERED = (
    Score,
    Shuffled,
    Compare,
    Compared,
    Placed,
    Dealt,
    DealtPairs,
    Relayed,
    Stream,
    Streams,
    Seeds,
    Dealing,
    Keyring,
    Keys,
    Share,
    Shares,
    Found,
    Want,
)


@pytest.mark.parametrize("kind", ALTERED, ids=lambda kind: kind.__name__)
def test_a_message_from_another_party_is_refused_with_the_state_as_it_was(
    kind: type[Message],
) -> None:
    run = strict(owners=20, budget=60)
    _, receiver, message = run.until(lambda *one: isinstance(one[2], kind))
    role = run.roles[receiver]
    before = snapshot(role)
    with pytest.raises(ProtocolError):
        role.receive("mallory", message)
    assert snapshot(role) == before
    assert run.finish() == [run.world.units.sum() / REWARD_ONE]


@pytest.mark.parametrize(
    "kind",
    [
        Dealt,
        DealtPairs,
        Relayed,
        Streams,
        Seeds,
        Dealing,
        Keyring,
        Keys,
        Stream,
        Shuffled,
        Compare,
        Placed,
        Share,
        Shares,
    ],
)
def test_a_message_again_is_refused_or_answered_with_the_same_bytes(kind: type[Message]) -> None:
    run = strict(owners=20, budget=60)
    sender, receiver, message = run.until(lambda *one: isinstance(one[2], kind))
    run.queue.popleft()
    role = run.roles[receiver]
    first = role.receive(sender, message)
    before = snapshot(role)
    if kind in (Shuffled, Compare):
        assert role.receive(sender, message) == first
    else:
        with pytest.raises(ProtocolError):
            role.receive(sender, message)
    assert snapshot(role) == before
    run.queue.extend(first)
    assert run.finish() == [run.world.units.sum() / REWARD_ONE]


AUTHENTIC = (
    Offer,
    Go,
    Consents,
    Roster,
    Dealing,
    Streams,
    Seeds,
    Keys,
    Relayed,
    Close,
    Closed,
    Reply,
)
"""What a receiver can tell to be of another run, by a signature, a seal or a pad of this one. The
rest is numbers, of which TLS alone says who sends them, or is relayed to the party that can tell;
out of turn they are refused too.
"""
REPEATED = (Shuffled, Compare, Found, Ready)
"""Questions that comp answers again with the same bytes."""


@pytest.mark.parametrize("slot", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_no_replayed_foreign_or_misdirected_frame_changes_a_role(seed: int, slot: float) -> None:
    """Before every message of a run, to a role at random: one that it was sent before, one of
    another run of the same parties, one that another party sends. Each is refused with the state as
    it was, and the run ends as it would.
    """
    rng, seen, tried = (
        random.Random(seed),
        list[tuple[str, str, Message]](),
        Counter[tuple[str, str]](),
    )
    options: dict[str, Any] = {"owners": 3, "budget": 12, "slot": slot}
    foreign = [each for each in strict(**options).deliveries() if isinstance(each[2], AUTHENTIC)]
    run = strict(**options)

    def hostile(kind: str, sender: str, receiver: str, message: Message) -> None:
        role = run.roles[receiver]
        before = snapshot(role)
        try:
            answers = tuple(role.receive(sender, message))
        except ProtocolError:
            answers = ()
        again = kind == "replayed" and isinstance(message, REPEATED)
        where = kind, type(message).__name__, receiver
        assert not answers or (
            again and all(each in (*seen, current, *run.queue) for each in answers)
        ), where
        assert snapshot(role) == before, where
        tried[kind, receiver] += 1

    for current in run.deliveries():
        sender, receiver, message = current
        if seen:
            hostile("replayed", *rng.choice(seen))
        hostile("foreign", *rng.choice(foreign))
        others = ["mallory", *(name for name in run.roles if name[:5] != sender[:5])]
        hostile("misdirected", rng.choice(others), receiver, message)
        seen.append(current)
    assert [note.value for note in run.notes if note.kind == "total"] == [
        run.world.units.sum() / REWARD_ONE
    ]
    assert {receiver for kind, receiver in tried if kind == "misdirected"} == set(run.roles)
    assert (
        min(
            sum(n for (kind, _), n in tried.items() if kind == one)
            for one in ("replayed", "foreign")
        )
        > 100
    )


@pytest.mark.parametrize("committed", [True, False])
def test_a_first_owner_that_gives_others_other_secrets_is_refused(committed: bool) -> None:
    """With commitments to both, by the controller; with one for all, by the owner whose secrets do
    not fit it.
    """
    run = strict(owners=4, budget=12)
    _, _, message = run.until(lambda *one: isinstance(one[2], Keyring))
    assert isinstance(message, Keyring)
    first: Any = run.roles["owner-1"]
    secrets, first._secrets = first._secrets, Secrets.fresh()
    others = {name: keys for keys in first.make_keyring() for name in keys.sealed}
    first._secrets = secrets
    keys = [
        others[name] if (name := next(iter(one.sealed))) == "owner-3" else one
        for one in message.keys
    ]
    if not committed:
        one = message.keys[0]
        body = first._keys_bytes(keys[2].sealed, one.frame_commitment, one.own_commitment)
        keys[2] = Keys(
            keys[2].sealed,
            one.frame_commitment,
            one.own_commitment,
            first._identity.sign(b"keys", body),
        )
    run.queue[0] = ("owner-1", "controller", Keyring(tuple(keys)))
    role = run.roles["controller" if committed else "owner-3"]
    kind = Keyring if committed else Keys
    sender, _, message = run.until(
        lambda _, receiver, one: isinstance(one, kind) and run.roles[receiver] is role
    )
    before = snapshot(role)
    with pytest.raises(ProtocolError, match="commit"):
        role.receive(sender, message)
    assert snapshot(role) == before


def test_every_role_can_be_saved_before_anything_came() -> None:
    for name, role in strict(owners=4, budget=12).roles.items():
        assert role.save(), name


def test_comp_ends_no_pass_before_the_next_one_is_dealt() -> None:
    run = strict(owners=4, budget=12)
    sender, receiver, message = run.until(lambda *one: isinstance(one[2], Found))
    comp: Any = run.roles[receiver]
    comp._second._dealt.clear()
    before = snapshot(comp)
    with pytest.raises(ProtocolError, match="the dealer's chunk of the next pass comes before"):
        comp.receive(sender, message)
    assert snapshot(comp) == before


def test_comp_answers_one_question_in_its_place() -> None:
    """Other numbers, other pairs or another place for a pass that was answered are refused."""
    run = strict(owners=20, budget=60)
    sender, receiver, message = run.until(
        lambda *one: isinstance(one[2], Shuffled) and one[2].index == 25
    )
    assert isinstance(message, Shuffled)
    comp = run.roles[receiver]
    run.queue.popleft()
    actions = comp.receive(sender, message)
    before = snapshot(comp)
    for other in (
        msgspec.structs.replace(message, masked=flipped(message.masked)),
        msgspec.structs.replace(message, shifts=flipped(message.shifts)),
        msgspec.structs.replace(message, index=24),
        Found(26, 0),
        Compare(24, -1, b"", b""),
    ):
        with pytest.raises(ProtocolError):
            comp.receive(sender, other)
    assert snapshot(comp) == before
    run.queue.extend(actions)
    assert run.finish() == [run.world.units.sum() / REWARD_ONE]


@given(
    kind=st.sampled_from([Dealt, Relayed, Stream, Seeds, Dealing, Keyring, Share]),
    bit=st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_what_is_sealed_or_signed_cannot_be_altered(kind: type[Message], bit: int) -> None:
    """One bit of any sealed part: refused by whoever opens it, never taken."""
    run = strict(owners=3, budget=12)
    sender, receiver, message = run.until(lambda *one: isinstance(one[2], kind))
    run.queue.popleft()
    changed: Any = message
    if isinstance(message, Dealing):
        changed = Dealing(
            msgspec.structs.replace(
                message.controller, sealed=flipped(message.controller.sealed, bit)
            ),
            message.comp,
        )
    elif isinstance(message, Keyring):
        keys = message.keys[0]
        sealed = {name: flipped(one, bit) for name, one in keys.sealed.items()}
        changed = Keyring((msgspec.structs.replace(keys, sealed=sealed), *message.keys[1:]))
    elif isinstance(message, Dealt):
        changed = msgspec.structs.replace(message, comp=flipped(message.comp, bit))
    else:
        changed = msgspec.structs.replace(message, sealed=flipped(message.sealed, bit))  # type: ignore[attr-defined]
    run.queue.appendleft((sender, receiver, changed))
    if kind is Share:  # the one total of the run is refused, and nobody learns that it was
        assert run.finish() == []
        assert run.roles["customer"].refused  # type: ignore[attr-defined]
        return
    with pytest.raises(ProtocolError):
        run.finish()


@pytest.mark.parametrize("kind", [Dealing, Seeds, Streams])
def test_what_is_sealed_for_a_server_is_signed_by_its_sender(kind: type[Message]) -> None:
    """Anybody can seal to a server; a server that chose a seed or a stream key would open shares."""
    run = strict(owners=3, budget=12)
    sender, receiver, message = run.until(lambda *one: isinstance(one[2], kind))
    run.queue.popleft()
    server: Any = run.roles[receiver]
    forger: Any = run.roles["owner-3"]

    def forged(purpose: str, of: str, size: int) -> tuple[bytes, bytes]:
        info = server.info(purpose, of)
        sealed = seal_to(server.manifest.member(receiver).run_key, bytes(size), info)
        return sealed, forger._identity.sign(purpose.encode(), info + sealed)

    changed: Message
    match message:
        case Dealing():
            changed = Dealing(Seeds(*forged("seed", "controller", 32)), message.comp)
        case Seeds():
            changed = Seeds(*forged("seed", "comp", 32))
        case Streams():
            changed = Streams((Stream(*forged("stream", "owner-1", 32)), *message.streams[1:]))
    before = snapshot(server)
    with pytest.raises(ProtocolError, match="signature"):
        server.receive(sender, changed)
    assert snapshot(server) == before


def test_two_owners_with_one_stream_key_are_refused() -> None:
    """One pad would hide the scores of both."""
    run = strict(owners=3, budget=12)
    first, second = (run.roles[name] for name in ("owner-1", "owner-2"))
    second._stream = first._stream  # type: ignore[attr-defined]
    sender, receiver, message = run.until(lambda *one: isinstance(one[2], Streams))
    comp = run.roles[receiver]
    before = snapshot(comp)
    with pytest.raises(ProtocolError, match="same stream key"):
        comp.receive(sender, message)
    assert snapshot(comp) == before


def test_a_policy_that_chooses_by_itself_is_refused_and_named_paper() -> None:
    with pytest.raises(ConfigError, match="Use level 'paper'"):
        check_level("strict", Switches(), SecondBest())
    with pytest.raises(ConfigError, match="paper"):
        Samba(level="strict", aes=False, owners=3, horizon=10)


def test_a_record_of_one_process_says_that_roles_are_not_separated() -> None:
    record = registry.run(Samba(level="strict", means=(0.2, 0.8), horizon=10, seed=1))
    assert record.level == "strict"
    assert "no separation of roles" in record.leaks[-1]
    assert any("honest but curious" in leak for leak in record.leaks)


def test_the_dealer_must_be_a_party_of_its_own() -> None:
    """Under the identity of a server, the customer or an owner it is refused."""
    run = strict(owners=3, budget=12)
    _, _, roster = run.until(lambda *one: isinstance(one[2], Roster))
    assert isinstance(roster, Roster)
    joins = list(roster.joins)
    dealer = next(join for join in joins if join.name == "dealer")
    customer = Join("customer", "customer", b"c" * 33, b"k" * 32, b"")
    for name in ("controller", "comp", "owner-2", "customer"):
        everybody = [*joins, customer]
        same = [
            msgspec.structs.replace(join, identity=dealer.identity) if join.name == name else join
            for join in everybody
        ]
        with pytest.raises(ProtocolError, match="dealer"):
            check_members(same, "strict")
    check_members([*joins, customer], "strict")
    with pytest.raises(ProtocolError, match="dealer"):
        check_members([join for join in (*joins, customer) if join.name != "dealer"], "strict")


# The final sum ------------------------------------------------------------------------------------


@given(
    numbers=st.lists(
        st.tuples(st.integers(0, 2**53), st.integers(0, 2**29)), min_size=1, max_size=8
    )
)
def test_shares_add_up_to_the_sum(numbers: list[tuple[int, int]]) -> None:
    key, present = b"k" * 32, b"present"
    streams = {f"owner-{i}": hkdf(b"%d" % i, b"stream") for i in range(len(numbers))}
    sent = [
        sums.share(*number, key=key, stream=streams[name], present=present, owner=name)
        for name, number in zip(streams, numbers, strict=True)
    ]
    comp = sums.added(sums.pad(stream, present) for stream in streams.values())
    both = sums.added(map(sums.decode, sent)), comp
    total = tuple(np.array(numbers, object).sum(axis=0))
    assert sums.opened(both, key=key, present=present, owners=tuple(streams)) == total
    with pytest.raises(ProtocolError, match="tag"):
        sums.opened(both, key=key, present=b"other", owners=tuple(streams))
    with pytest.raises(ProtocolError, match="tag"):
        sums.opened(
            (both[0], (comp[0] + 1, comp[1])), key=key, present=present, owners=tuple(streams)
        )


def test_a_share_of_the_sum_is_uniform_and_another_set_has_another_pad() -> None:
    streams = [hkdf(b"%d" % i, b"stream") for i in range(400)]
    shares = [
        sums.decode(sums.share(7, 1, key=b"k" * 32, stream=s, present=b"p", owner="a"))[0]
        for s in streams
    ]
    halves = sum(share > sums.PRIME // 2 for share in shares)
    assert 140 < halves < 260  # six standard deviations of 400 fair coins
    assert len(set(shares)) == 400
    assert sums.pad(streams[0], b"p") != sums.pad(streams[0], b"q")


def test_a_run_that_ends_early_sums_up_who_is_left() -> None:
    run = strict(Thompson(), owners=5, budget=40)
    run.until(lambda *one: isinstance(one[2], Reply) and one[2].index == 20)
    left = ("owner-1", "owner-3", "owner-4", "owner-5")
    run.queue.extend(run.roles["customer"].receive("operator", End(left)))
    (total,) = run.finish()
    assert total == run.world.units[[0, 2, 3, 4]].sum() / REWARD_ONE
    assert all(role.finished for role in run.roles.values())


def test_owners_and_comp_answer_for_one_set_of_owners() -> None:
    run = strict(owners=4, budget=12)
    _, receiver, close = run.until(lambda *one: isinstance(one[2], Close) and one[1] == "comp")
    assert isinstance(close, Close)
    run.finish()
    customer: Any = run.roles["customer"]
    fewer = ask(customer._identity, close.present[:3], 1, customer._digest)
    owners: list[Any] = [run.roles[name] for name in fewer.present]
    agrees = (
        agree(owner._identity, owner.name, fewer, owner._index, owner._digest) for owner in owners
    )
    agreed = Agreed(fewer, tuple(agrees))
    for name in (receiver, "owner-1"):
        for message in (fewer, agreed):
            with pytest.raises(ProtocolError):
                run.roles[name].receive("controller", message)


def test_without_a_world_seed_coins_come_from_the_owners_secret() -> None:
    """A run as deployed: it goes to its end, and the servers hold nothing that coins derive
    from.
    """
    arms = BernoulliArms([0.2, 0.5, 0.8])
    for policy in (EpsilonGreedy(0.3), Thompson()):
        run = strict(policy, owners=3, budget=40, seed=None)
        assert run.finish() == [run.world.units.sum() / REWARD_ONE]
        owner: Any = run.roles["owner-1"]
        for name in ("controller", "comp", "dealer"):
            assert owner._keys[1] not in msgspec.msgpack.encode(run.roles[name].save())
    assert len(federation(arms, UCB(), 10, seed=1, level="strict")) == 7
