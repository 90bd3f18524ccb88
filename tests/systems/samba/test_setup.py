"""Setting up: nobody chooses its own part, and nobody signs what it was not started for."""

from __future__ import annotations

import cProfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

from posse.core.errors import ConfigError, ProtocolError
from posse.core.roles import WORLD, Message, Reward
from posse.policies import UCB, Policy, Pursuit, Softmax
from posse.privacy.crypto.keys import RunKey
from posse.privacy.crypto.paillier import generate_key
from posse.systems.samba.layout import invite
from posse.systems.samba.levels import Switches
from posse.systems.samba.messages import Choice, Join, Masks, Offer, Reply, Roster, Sum, Total
from posse.systems.samba.setup import Expected, Manifest, Terms, check_members, join_bytes, named
from tests.kit.samba import Federation, snapshot

KEY = generate_key(2048)


def forged(federation: Federation, offer: Offer, **changes: object) -> Offer:
    """An offer with other terms, signed by the customer itself: not its key is in doubt but what it
    asks.
    """
    manifest = msgspec.msgpack.decode(offer.manifest, type=Manifest)
    body = msgspec.msgpack.encode(
        msgspec.structs.replace(manifest, terms=msgspec.structs.replace(manifest.terms, **changes))
    )
    return Offer(body, federation.roles["customer"]._identity.sign(b"manifest", body))  # type: ignore[attr-defined]


def offered(policy: Policy | None = None, **options: object) -> tuple[Federation, Offer]:
    federation = Federation(policy or UCB(), KEY, **options)  # type: ignore[arg-type]
    _, _, message = federation.until(lambda s, r, m: isinstance(m, Offer) and r == "owner-2")
    assert isinstance(message, Offer)
    return federation, message


def refuses(
    federation: Federation, name: str, sender: str, message: Message, match: str = "."
) -> None:
    role = federation.roles[name]
    before = snapshot(role)
    with pytest.raises(ProtocolError, match=match):
        role.receive(sender, message)
    assert snapshot(role) == before


@pytest.mark.parametrize("part", ["comp", "owner", "customer"])
def test_the_controller_cannot_join_as_another_part(part: str) -> None:
    """As comp or owner it would be sealed the frame key, and read every score with its sender."""
    federation = Federation(UCB(), KEY)
    federation.roles["controller"].kind = part  # type: ignore[misc]
    with pytest.raises(ProtocolError, match="not its part"):
        federation.finish()


@pytest.mark.parametrize("party", ["owner-2", "comp"])
@pytest.mark.parametrize(
    "changes",
    [
        {"level": "standard"},
        {"level": "strict"},
        {"off": ("paillier",)},
        {"off": ("permutation", "aes")},
        {"passes": 2},
        {"passes": 0},
        {"budget": 3},
        {"budget": -5},
        {"budget": 1 << 30},
        {"paillier_n": b""},
        {"paillier_n": bytes(256)},
        {"policy": "ucb"},
    ],
    ids=lambda changes: "-".join(f"{name} {str(value)[:20]}" for name, value in changes.items()),
)
def test_other_terms_are_not_signed(changes: dict[str, object], party: str) -> None:
    federation, offer = offered()
    refuses(federation, party, "controller", forged(federation, offer, **changes))
    federation.finish()  # and the right manifest still is


@pytest.mark.parametrize("other", [Softmax(0.2), UCB(), Pursuit()], ids=lambda policy: policy.name)
def test_parties_started_for_other_policies_do_not_sign(other: Policy) -> None:
    """The parameters count too: two temperatures in one federation would go unnoticed otherwise."""
    for name in ("owner-2", "comp"):
        federation, offer = offered(Softmax(0.1))
        federation.roles[name]._expected = Expected(other, "paper", Switches())  # type: ignore[attr-defined]
        refuses(federation, name, "controller", offer, "was started for")


def test_a_manifest_that_is_no_manifest() -> None:
    federation, offer = offered()
    customer = federation.roles["customer"]
    for body in (
        b"",
        b"\xc1",
        offer.manifest[:-1],
        offer.manifest.replace(b"owner-1", b"owner\xff1"),
    ):
        signed = Offer(body, customer._identity.sign(b"manifest", body))  # type: ignore[attr-defined]
        refuses(federation, "owner-2", "controller", signed)


@pytest.mark.parametrize("key", [b"", bytes(32), b"\x01" * 31, b"\x01" + bytes(31)])
def test_a_run_key_that_is_no_key_is_not_admitted(key: bytes) -> None:
    federation = Federation(UCB(), KEY)
    owner = federation.roles["owner-3"]
    owner._run_key.public = key  # type: ignore[attr-defined]
    federation.queue = type(federation.queue)(
        action
        if not (isinstance(action, tuple) and action[0] == "owner-3")
        else ("owner-3", "controller", owner.join())  # type: ignore[attr-defined]
        for action in federation.queue
    )
    with pytest.raises(ProtocolError, match="not a key"):
        federation.finish()


def test_two_parties_with_one_run_key_are_not_admitted() -> None:
    federation = Federation(UCB(), KEY)
    shared = RunKey()
    for name in ("owner-1", "owner-3"):
        federation.roles[name]._run_key = shared  # type: ignore[attr-defined]
    federation.queue = type(federation.queue)(
        action for role in federation.roles.values() for action in role.start()
    )
    with pytest.raises(ProtocolError, match="same run key"):
        federation.finish()


def test_a_stranger_is_not_admitted() -> None:
    federation = Federation(UCB(), KEY)
    stranger = Federation(UCB(), KEY).roles["owner-2"]
    federation.queue = type(federation.queue)(
        action
        if not (isinstance(action, tuple) and action[0] == "owner-2")
        else ("owner-2", "controller", stranger.join())  # type: ignore[attr-defined]
        for action in federation.queue
    )
    with pytest.raises(ProtocolError, match="not admitted"):
        federation.finish()


def test_prices_go_by_the_order_of_the_owners_that_the_customer_named() -> None:
    """A controller that names owners in another order would exchange what they are owed."""
    for price in ((0.5,), (0.1, 0.2, 0.3, 0.4)):
        federation = Federation(UCB(), KEY, price=price)
        _, _, roster = federation.until(lambda s, r, m: isinstance(m, Roster))
        assert isinstance(roster, Roster)
        one, two, *rest = roster.joins
        turned = Roster((two, one, *rest))
        if len(price) > 1:
            refuses(federation, "customer", "controller", turned, "another order")
            federation.finish()
            assert federation.roles["owner-2"].manifest.owners == tuple(
                f"owner-{i}" for i in range(1, 5)
            )  # type: ignore[attr-defined]
        else:
            federation.roles["customer"].receive("controller", turned)


def test_a_join_is_signed_for_its_name_and_part() -> None:
    assert (
        join_bytes("a", "owner", b"k")
        != join_bytes("a", "comp", b"k")
        != join_bytes("b", "comp", b"k")
    )


def test_no_total_is_taken_before_it_was_asked_for() -> None:
    federation, _ = offered()
    total = Total(KEY.public_key.encrypt(5 << 24).to_bytes())
    refuses(federation, "customer", "controller", total, "not asked for")


def test_answers_of_another_size_leave_the_pass_open() -> None:
    federation = Federation(UCB(), KEY)
    sender, receiver, message = federation.until(lambda s, r, m: isinstance(m, Choice))
    assert isinstance(message, Choice)
    for replies in (b"", message.replies[:-4], message.replies + message.replies):
        refuses(federation, receiver, sender, Choice(message.index, replies))
    federation.finish()


def test_keys_and_sums_of_another_size_at_level_paper() -> None:
    federation = Federation(UCB(), KEY, level="paper", switches=Switches(paillier=False))
    federation.until(lambda s, r, m: isinstance(m, Masks) and r == "owner-1")
    for keys in ((bytes(31), bytes(32)), (bytes(32), bytes(33))):
        refuses(federation, "owner-1", "controller", Masks(*keys), "32 bytes")
    federation.until(lambda s, r, m: isinstance(m, Sum))
    refuses(federation, "controller", "owner-1", Sum(bytes(40)), "16 bytes")


def test_a_refused_early_reply_costs_neither_reward_nor_score() -> None:
    """At level paper replies may come before a slow reward; junk among them is dropped."""
    federation = Federation(UCB(), KEY, level="paper")
    _, receiver, message = federation.until(lambda s, r, m: isinstance(m, Reply))
    owner = federation.roles[receiver]
    owner._pulling, owner._listening = True, False  # type: ignore[attr-defined]
    owner.receive("controller", Reply(message.index, b"junk"))  # type: ignore[attr-defined]
    number = int(str(owner.state()["pulls"]))
    asked = owner.receive(WORLD, Reward(number, 0))
    assert len(asked) == 1
    assert owner.state()["pulls"] == number + 1


def test_join_is_the_only_thing_an_unknown_party_can_say() -> None:
    federation = Federation(UCB(), KEY)
    with pytest.raises(ProtocolError):
        federation.roles["controller"].receive("mallory", Join("mallory", "owner", b"", b"", b""))


@pytest.mark.parametrize(
    "pair", [("controller", "comp"), ("comp", "owner-2"), ("owner-1", "owner-3")]
)
def test_two_parties_under_one_identity_are_refused(pair: tuple[str, str]) -> None:
    """Controller and comp under one identity would be one party that knows everything."""
    federation = Federation(UCB(), KEY)
    _, _, roster = federation.until(lambda s, r, m: isinstance(m, Roster))
    assert isinstance(roster, Roster)
    joins = {join.name: join for join in roster.joins}
    joins["customer"] = msgspec.structs.replace(
        joins["comp"], name="customer", kind="customer", identity=b"c" * 33, run_key=b"k" * 32
    )
    check_members(list(joins.values()), "paper")
    joins[pair[1]] = msgspec.structs.replace(joins[pair[1]], identity=joins[pair[0]].identity)
    with pytest.raises(ProtocolError, match="must be a party of its own"):
        check_members(list(joins.values()), "paper")


def test_setting_up_level_strict_is_linear_in_the_number_of_owners() -> None:
    """In calls of functions, to the end of the first pass (`make bench` fits time and memory up to
    3,000 owners).
    """
    sizes, calls = (4, 20, 40, 80), []
    for owners in sizes:
        profile = cProfile.Profile()
        profile.enable()
        run = Federation(UCB(), KEY, owners=owners, budget=owners + 2, level="strict")
        run.until(lambda *one: isinstance(one[2], Reply))
        profile.disable()
        calls.append(sum(entry.callcount for entry in profile.getstats()))
    slopes = np.diff(calls[1:]) / np.diff(sizes[1:])  # the first one fills caches
    assert slopes[1] == pytest.approx(slopes[0], rel=0.1)


def test_terms_are_named_with_those_that_a_run_has() -> None:
    more = [
        named(Terms("r", 9, '["ucb", 1]', 1, level, (), b"", 0.1, threshold, price))
        for level, threshold, price in (("strict", None, (0.5,)), ("paper", 3.0, ()))
    ]
    common = {"policy": "ucb", "off": ()}
    strict = {**common, "level": "strict", "slot": 0.1, "price": (0.5,)}
    assert more == [strict, {**common, "level": "paper", "threshold": 3.0}]


def test_a_run_of_a_living_federation_has_two_owners_and_a_pull_for_each() -> None:
    run = {"level": "strict", "policy": "ucb", "world": {"seed": 1, "owners": 2}}
    assert set(invite({**run, "budget": 2, "owners": ["a", "b"]}, Path()).files) >= {
        "a",
        "b",
        "controller",
    }
    for owners, budget in ((["a"], 9), (["a", "b", "c"], 2)):
        with pytest.raises(ConfigError, match="owners"):
            invite({**run, "budget": budget, "owners": owners}, Path())
