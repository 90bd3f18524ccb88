"""A run that is ended early: over the owners that are left, labelled so, and for one set only."""

from __future__ import annotations

import asyncio

import pytest

from posse.core.errors import ProtocolError
from posse.core.roles import OPERATOR
from posse.protocols.samba.messages import Close, End
from posse.protocols.samba.owner import close_bytes
from tests.network.federations import laid_out, opened
from tests.network.test_samba_seam import ARMS, FAULTS, factories, key  # noqa: F401


def ended(folder, without, owners=4, *, stop=True):
    """End a run in the middle without some owners, which are stopped before or not.

    Return the customer's role, the states of those who are left, and the notes of the total.
    """
    paths = laid_out(folder, owners, budget=5_000)
    notes = []

    async def go():
        parties = {path.stem: opened(path, notes) for path in paths}
        running = {name: asyncio.create_task(party.run()) for name, party in parties.items()}
        while parties["controller"].engine.role.state()["step"] < 60:
            await asyncio.sleep(0.01)
        for name in without if stop else ():
            parties[name].stop()
            await running.pop(name)
        left = tuple(f"clinic-{i + 1}" for i in range(owners) if f"clinic-{i + 1}" not in without)
        parties["customer"].instruct(End(left))
        await asyncio.wait_for(asyncio.gather(*running.values()), 60)
        states = {name: parties[name].engine.role.state() for name in left}
        return parties["customer"].engine.role, states

    customer, states = asyncio.run(go())
    return customer, states, [note for note in notes if note.kind == "total"]


def test_the_total_is_over_those_who_are_left(tmp_path):
    customer, states, (note,) = ended(tmp_path, ["clinic-4"])
    assert customer.ended_early == ("clinic-1", "clinic-2", "clinic-3")
    assert customer.total == sum(state["reward"] for state in states.values()) > 0
    assert customer.pulls == sum(state["pulls"] for state in states.values()) == note.step
    assert 0 < customer.pulls < 5_000


def test_one_who_was_left_out_and_is_there_after_all_is_told(tmp_path):
    customer, states, _ = ended(tmp_path, ["clinic-4"], stop=False)  # all processes end, clinic-4's too
    assert customer.ended_early == ("clinic-1", "clinic-2", "clinic-3")
    assert customer.total == sum(state["reward"] for state in states.values())


def test_nobody_need_be_gone(tmp_path):
    customer, states, _ = ended(tmp_path, [], owners=3)
    assert customer.total == sum(state["reward"] for state in states.values())


@pytest.mark.parametrize("present", [(), ("owner-1",), ("owner-1", "owner-2"), ("owner-1", "owner-2", "mallory")])
def test_fewer_than_three_or_strangers_are_refused(present, key):  # noqa: F811
    network = going(key)
    customer = network.engines["customer"].role
    before = customer.save()
    with pytest.raises(ProtocolError, match="ends with at least 3 of its owners"):
        customer.receive(OPERATOR, End(present))
    assert customer.save() == before


def going(key, steps=400):  # noqa: F811
    from posse.policies import UCB
    from posse.protocols.samba.deploy import VOCABULARY
    from posse.protocols.samba.federation import SimulatedWorld, owner_names
    from tests.network.seam import Network

    links = [("controller", name) for name in ("customer", "comp", *owner_names(len(ARMS)))]
    network = Network(factories(UCB(), "standard", key), links, VOCABULARY, SimulatedWorld(ARMS, 11, 40), 3)
    for _ in range(steps):
        network.step({})
    assert network.engines["controller"].role.state()["step"] > 5
    return network


def test_an_owner_answers_for_one_set_and_only_on_the_customers_word(key):  # noqa: F811
    network = going(key)
    customer, owner = network.engines["customer"].role, network.engines["owner-1"].role
    names = ("owner-1", "owner-2", "owner-3")
    forged = Close(names, customer._identity.sign(b"close", close_bytes(names, customer._digest)), early=True)
    with pytest.raises(ProtocolError):
        owner.receive("controller", forged)  # the word for the end of the budget does not end a run early
    ((_, _, close),) = customer.receive(OPERATOR, End(names))
    owner.receive("controller", close)
    other = ("owner-1", "owner-2", "owner-3", "owner-4")
    signed = customer._identity.sign(b"close", close_bytes(other, customer._digest, early=True))
    with pytest.raises(ProtocolError):
        owner.receive("controller", Close(other, signed, early=True))
    with pytest.raises(ProtocolError, match="ended early once"):
        customer.receive(OPERATOR, End(names))


@pytest.mark.parametrize("faults", ["kills", "power", "everything"])
def test_whatever_happens_while_it_ends(faults, key):  # noqa: F811
    for seed in range(4):
        network = going(key, 300 + 40 * seed)
        network.rng.seed(seed)
        network.engines["customer"].instruct(End(("owner-1", "owner-2", "owner-3")))
        network._commit("customer")
        network.run(FAULTS[faults])
        states = [network.engines[f"owner-{i}"].role.state() for i in (1, 2, 3)]
        customer = network.engines["customer"].role
        assert customer.total == sum(state["reward"] for state in states)
        assert customer.pulls == sum(state["pulls"] for state in states)
