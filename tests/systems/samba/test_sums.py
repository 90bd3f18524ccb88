"""Steps 6 and 7: one set of owners a run, and a total that cannot be bent."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from posse.core.errors import ProtocolError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import DURABLE
from posse.policies import UCB
from posse.privacy.crypto.paillier import PublicKey, generate_key
from posse.problems import BernoulliArms
from posse.systems.samba.levels import Switches, leaks
from posse.systems.samba.live import LONGEST
from posse.systems.samba.messages import Close, Closed, Total
from posse.systems.samba.strict.closing import ask
from posse.systems.samba.twin import simulate
from tests.kit.samba import Federation, snapshot

KEY = generate_key(2048)


def closing(owners: int = 4) -> tuple[Federation, Close]:
    federation = Federation(UCB(), KEY, owners=owners, level="strict")
    _, _, message = federation.until(
        lambda sender, receiver, message: isinstance(message, Close) and receiver == "owner-1"
    )
    assert isinstance(message, Close)
    return federation, message


def signed(federation: Federation, present: tuple[str, ...], number: int = 0) -> Close:
    """A close that the customer itself signed: for a set that it should not ask."""
    customer = federation.roles["customer"]
    return ask(customer._identity, present, number, customer._digest)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "present",
    [
        ("owner-1", "owner-2"),
        ("owner-1",),
        ("owner-2", "owner-3", "owner-4"),
        ("owner-1", "owner-2", "owner-3", "mallory"),
    ],
)
def test_an_owner_refuses_small_or_foreign_sets(present: tuple[str, ...]) -> None:
    federation, _ = closing()
    role = federation.roles["owner-1"]
    before = snapshot(role)
    with pytest.raises(ProtocolError):
        role.receive("controller", signed(federation, present))
    assert snapshot(role) == before


def test_an_owner_answers_for_one_set_a_run() -> None:
    federation, message = closing()
    role = federation.roles["owner-1"]
    role.receive("controller", message)
    with pytest.raises(ProtocolError, match="one set"):
        role.receive("controller", signed(federation, ("owner-1", "owner-2", "owner-3"), number=1))


def test_no_sum_before_the_budget_is_spent() -> None:
    federation = Federation(UCB(), KEY, level="strict")
    federation.until(lambda sender, receiver, message: type(message).__name__ == "Reply")
    with pytest.raises(ProtocolError, match="before the budget"):
        federation.roles["owner-1"].receive(
            "controller", signed(federation, ("owner-1", "owner-2", "owner-3", "owner-4"))
        )


def forgeries(true: bytes) -> list[bytes]:
    """Totals of level `paper` that no run of 20 pulls has, and one that does not decrypt."""
    key = PublicKey(KEY.public_key.n)
    forged = (key.encrypt(20 * REWARD_ONE + 1), key.encrypt(1 << 127))
    return [*(each.to_bytes() for each in forged), true[:-1]]


@pytest.mark.parametrize("which", range(3))
def test_an_altered_total_ends_the_run_and_the_servers_do_not_learn_it(which: int) -> None:
    """Before, a refused total could be followed by another: a controller learnt the true one from
    some 16 to 116.
    """
    federation = Federation(UCB(), KEY)
    _, _, message = federation.until(lambda sender, receiver, message: isinstance(message, Total))
    assert isinstance(message, Total)
    customer = federation.roles["customer"]
    notes = customer.receive("controller", Total(forgeries(message.ciphertext)[which]))
    closed = notes[-1]
    assert [note.kind for note in notes[:-1]] == ["refused", DURABLE]
    assert customer.state()["total"] is None
    assert customer.finished
    with pytest.raises(ProtocolError, match="known already"):
        customer.receive("controller", message)  # the true one comes too late
    again = type(customer)(
        customer._identity, customer._expected, customer._terms, {}, KEY, secrets=customer._secrets
    )
    again.load(customer.save())
    assert again.finished
    assert again.refused == customer.refused != ""
    honest = Federation(UCB(), KEY)
    sent = [entry for entry in honest.deliveries() if entry[0] == "customer"]
    assert (closed[0], closed[1], type(closed[2])) == (sent[-1][0], sent[-1][1], type(sent[-1][2]))
    assert len(msgspec.msgpack.encode(closed[2])) in range(
        70, 90
    )  # a signature and nothing else, as for a total


def test_all_have_finished_when_the_customer_has_an_answer_and_nobody_before() -> None:
    for level in ("strict", "paper"):
        federation = Federation(UCB(), KEY, level=level)
        federation.until(lambda sender, receiver, message: isinstance(message, Closed))
        assert [role.name for role in federation.roles.values() if role.finished] == ["customer"]
        federation.finish()
        assert all(role.finished for role in federation.roles.values())


def test_two_owners_are_allowed_and_told() -> None:
    federation = Federation(UCB(), KEY, owners=2)
    assert len(federation.finish()) == 1
    assert "With two owners, each owner" in leaks("paper", Switches(), 2, UCB())[1]


def test_the_whole_budget_may_be_the_first_pulls() -> None:
    """N = K: every owner pulls once and nothing is chosen."""
    federation = Federation(UCB(), KEY, owners=5, budget=5)
    totals = federation.finish()
    assert totals == [federation.world.curve[-1]]
    assert federation.world.arms == [0, 1, 2, 3, 4]
    assert totals == list(simulate(BernoulliArms(np.linspace(0.2, 0.8, 5)), UCB(), 5, [3]).total)


def test_without_a_horizon_there_are_as_many_decisions_as_sums_are_exact() -> None:
    assert (LONGEST + 1) * REWARD_ONE == 2**53
