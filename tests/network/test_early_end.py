"""A run that is ended early: over the owners that are left, labelled so, for one set that all of
them acknowledged.
"""

from __future__ import annotations

import asyncio

import pytest

from posse.core.errors import ConfigError, ProtocolError
from posse.core.roles import OPERATOR
from posse.policies import UCB
from posse.privacy.crypto.pairwise import present_digest
from posse.problems import BernoulliArms
from posse.runtime.network.deployment import make_party
from posse.runtime.place import open_place
from posse.systems.samba.deploy import VOCABULARY, build
from posse.systems.samba.federation import SimulatedWorld, prepare
from posse.systems.samba.messages import Agreed, Close, End, Sum
from posse.systems.samba.strict import sums
from posse.systems.samba.strict.closing import agree, ask
from posse.systems.samba.strict.messages import Shares
from tests.kit.federations import laid_out, opened, settled
from tests.network.seam import FAULTS, Network

ARMS = BernoulliArms([0.2, 0.5, 0.8, 0.6])


def names(*numbers):
    return tuple(f"clinic-{i}" for i in numbers)


def ended(folder, gone, ends, owners=4):
    """End a run in the middle after some owners were stopped, by each of `ends` in turn.

    Return the customer's role, the states of those who are left, the step that was reached and the
    notes of the total.
    """
    paths = laid_out(folder, owners, level="strict", sync=True, budget=5_000)
    notes = []

    async def go():
        parties = {path.stem: opened(path, notes) for path in paths}
        running = {name: asyncio.create_task(party.run()) for name, party in parties.items()}
        controller, customer = (parties[name].engine.role for name in ("controller", "customer"))
        while controller.state()["step"] < 60:
            await asyncio.sleep(0.01)
        for name in gone:
            parties[name].stop()
            await running.pop(name)
        for present in ends:
            parties["customer"].instruct(End(present))
            if present != ends[-1]:
                await settled([parties[name] for name in running])
                assert not customer._settled
                assert not controller._sums
        await asyncio.wait_for(asyncio.gather(*running.values()), 240)
        states = {name: parties[name].engine.role.state() for name in customer.ended_early}
        return customer, states, controller._index - 1

    customer, states, steps = asyncio.run(go())
    return customer, states, steps, [note for note in notes if note.kind == "total"]


def test_the_total_is_over_those_who_are_left_and_says_no_pulls(tmp_path):
    customer, states, steps, (note,) = ended(tmp_path, ["clinic-4"], [names(1, 2, 3)])
    assert customer.ended_early == names(1, 2, 3)
    assert customer.total == sum(state["reward"] for state in states.values()) > 0
    assert customer.pulls is None  # the steps done less these pulls would be those of clinic-4
    assert note.step == steps


def test_one_who_was_left_out_and_is_there_after_all_is_told(tmp_path):
    customer, states, *_ = ended(
        tmp_path, [], [names(1, 2, 3)]
    )  # all processes end, clinic-4's too
    assert customer.ended_early == names(1, 2, 3)
    assert customer.total == sum(state["reward"] for state in states.values())


def test_nobody_need_be_gone_and_then_the_pulls_are_the_steps_done(tmp_path):
    customer, states, steps, _ = ended(tmp_path, [], [names(1, 2, 3)], owners=3)
    assert customer.total == sum(state["reward"] for state in states.values())
    assert customer.pulls == sum(state["pulls"] for state in states.values()) == steps


def test_an_end_that_forgot_who_is_gone_is_corrected(tmp_path):
    """Before, the end over everyone, the gone one included, could not be repeated: the run was
    lost.
    """
    customer, states, *_ = ended(tmp_path, ["clinic-4"], [names(1, 2, 3, 4), names(1, 2, 3)])
    assert customer.ended_early == names(1, 2, 3)
    assert customer.total == sum(state["reward"] for state in states.values())


def test_one_who_was_left_out_by_mistake_is_asked_after_all(tmp_path):
    customer, states, *_ = ended(
        tmp_path, ["clinic-5"], [names(1, 2, 3, 5), names(1, 2, 3, 4)], owners=5
    )
    assert customer.ended_early == names(1, 2, 3, 4)
    assert customer.total == sum(state["reward"] for state in states.values())


def test_names_that_are_no_owners_are_refused(tmp_path):
    (path,) = [path for path in laid_out(tmp_path, 4) if path.stem == "customer"]
    party, made = make_party(open_place(path), build)
    end = made.commands["end"]
    party.engine.close()
    assert end("") == End(names(1, 2, 3, 4))
    assert end("clinic-2, clinic-4") == End(names(1, 3))
    with pytest.raises(
        ConfigError, match=r"'clinik-4' is no owner of this run\. Owners: clinic-1, clinic-2"
    ):
        end("clinic-2,clinik-4")


@pytest.mark.parametrize(
    "present", [(), ("owner-1",), ("owner-1", "owner-2"), ("owner-1", "owner-2", "mallory")]
)
def test_fewer_than_three_or_strangers_are_refused(present):
    network = going()
    customer = network.engines["customer"].role
    before = customer.save()
    with pytest.raises(ProtocolError, match="ends with at least 3 of its owners"):
        customer.receive(OPERATOR, End(present))
    assert customer.save() == before


def going(steps=900):
    """A run of four owners under way, over a network that a test moves."""
    made = prepare(ARMS, UCB(), 40, seed=11)
    make = {
        role.name: lambda name=role.name: next(each for each in made() if each.name == name)
        for role in made()
    }
    links = [("controller", name) for name in make if name != "controller"]
    network = Network(make, links, VOCABULARY, SimulatedWorld(ARMS, 11, 40), 3)
    for _ in range(steps):
        network.step({})
    assert network.engines["controller"].role.state()["step"] > 5
    return network


def owners(*numbers):
    return tuple(f"owner-{i}" for i in numbers)


def agreed(network, close, who=None):
    """The acknowledgements of a close, as its owners sign them."""
    roles = [network.engines[name].role for name in who or close.present]
    return Agreed(
        close, tuple(agree(r._identity, r.name, close, r._index, r._digest) for r in roles)
    )


@pytest.fixture
def standing():
    """A run in which all owners stand before one pass and nobody pulls."""
    network = going()
    while len({network.engines[name].role._index for name in owners(1, 2, 3, 4)}) > 1 or any(
        network.engines[name].asks for name in owners(1, 2, 3, 4)
    ):
        network.step({})
    return network


def test_an_owner_sends_its_sum_after_all_in_the_set_acknowledged_it(standing):
    customer, owner = standing.engines["customer"].role, standing.engines["owner-1"].role
    ((_, _, close),) = customer.receive(OPERATOR, End(owners(1, 2, 3)))
    ((_, _, mine),) = owner.receive("controller", close)
    assert (mine.name, mine.number, mine.index) == ("owner-1", 1, owner._index)
    before = owner.save()
    whole = agreed(standing, close)
    stranger = agreed(standing, close, owners(1, 2, 4))
    elsewhere = agree(
        standing.engines["owner-3"].role._identity,
        "owner-3",
        close,
        owner._index + 1,
        owner._digest,
    )
    for wrong in (
        Agreed(close, whole.agrees[:2]),
        stranger,
        Agreed(close, (*whole.agrees[:2], elsewhere)),
        Agreed(ask(customer._identity, owners(1, 2, 3, 4), 1, customer._digest), whole.agrees),
    ):
        with pytest.raises(ProtocolError):
            owner.receive("controller", wrong)
        assert owner.save() == before
    ((_, _, sent),) = owner.receive("controller", whole)
    assert isinstance(sent, Sum)


def test_sums_over_sets_that_differ_by_an_owner_are_refused(standing):
    """Whoever had both would know that owner's sum."""
    customer, owner = standing.engines["customer"].role, standing.engines["owner-1"].role
    ((_, _, close),) = customer.receive(OPERATOR, End(owners(1, 2, 3)))
    owner.receive("controller", close)
    owner.receive("controller", agreed(standing, close))
    for number in (1, 2):
        other = ask(customer._identity, owners(1, 2, 3, 4), number, customer._digest)
        with pytest.raises(ProtocolError, match="one set"):
            owner.receive("controller", other)
        with pytest.raises(ProtocolError, match="one set"):
            owner.receive("controller", agreed(standing, other))


def test_an_end_is_the_customers_word_and_final_when_all_acknowledged(standing):
    customer, owner = standing.engines["customer"].role, standing.engines["owner-1"].role
    ((_, _, close),) = customer.receive(OPERATOR, End(owners(1, 2, 3)))
    for forged in (
        Close(
            close.present, 0, close.signature
        ),  # the word for an early end is not that for the end of the budget
        Close(close.present, 2, close.signature),
        Close(owners(1, 2, 4), 1, close.signature),
        ask(owner._identity, close.present, 1, owner._digest),
    ):
        with pytest.raises(ProtocolError):
            owner.receive("controller", forged)
    ((_, _, later),) = customer.receive(OPERATOR, End(owners(1, 2, 4)))
    assert later.number == 2
    assert customer.receive("controller", agreed(standing, close)) == ()  # it was corrected since
    owner.receive("controller", later)
    with pytest.raises(ProtocolError):
        owner.receive("controller", close)  # an older end
    customer.receive("controller", agreed(standing, later))
    with pytest.raises(ProtocolError, match="until all its owners have acknowledged"):
        customer.receive(OPERATOR, End(owners(1, 2, 3)))


@pytest.mark.parametrize("name", ["owner-1", "controller", "comp"])
def test_no_party_takes_an_early_end_of_fewer_than_three_owners(standing, name):
    """The customer signed it: with one owner of two it would read the sum of the other."""
    customer, role = standing.engines["customer"].role, standing.engines[name].role
    close = ask(customer._identity, owners(1, 2), 1, customer._digest)
    message = agreed(standing, close) if name == "comp" else close
    before = role.save()
    with pytest.raises(ProtocolError, match="at least 3 owners"):
        role.receive("customer" if name == "controller" else "controller", message)
    assert role.save() == before


@pytest.mark.parametrize("left", [(1, 2, 3), (1, 2, 3, 4)])
def test_a_pull_count_is_sent_only_where_nobody_is_left_out(standing, left):
    customer = standing.engines["customer"].role
    ((_, _, close),) = customer.receive(OPERATOR, End(owners(*left)))
    roles = [standing.engines[name].role for name in close.present]
    pulls = sum(role.pulls for role in roles)
    assert all(role.receive("controller", close) for role in roles)
    whole = agreed(standing, close)
    customer.receive("controller", whole)
    sent = [sums.decode(role.receive("controller", whole)[0][2].ciphertext) for role in roles]
    comp, digest = standing.engines["comp"].role, present_digest(close.present, customer._digest)
    pads = [sums.pad(role._stream(), digest) for role in roles]
    _, counted = sums.opened(
        [*sent, *pads], key=customer._tag, present=digest, owners=close.present
    )
    assert counted == (pulls if len(left) == 4 else 0)
    first = roles[0]
    more = sums.share(
        first._arm.units,
        first._counted(close.present) + 1,
        key=first._keys[0],
        stream=first._stream(),
        present=digest,
        owner=first.name,
    )
    lying = sums.encode(sums.added([sums.decode(more), *sent[1:]]))
    ((_, _, share),) = comp.receive("controller", whole)
    customer.receive("controller", Shares(lying, share))
    assert "another number of pulls" in customer.refused


@pytest.mark.parametrize("faults", ["kills", "power", "everything"])
def test_whatever_happens_while_it_ends(faults):
    for seed in range(4):
        network = going(900 + 40 * seed)
        network.rng.seed(seed)
        for present in [owners(1, 2, 3, 4), owners(1, 2, 3)][seed % 2 :]:
            if not network.engines["customer"].role._settled:
                network.engines["customer"].instruct(End(present))
                network._commit("customer")
            for _ in range(seed * 8):
                network.step(FAULTS[faults])
        network.run(FAULTS[faults])
        customer = network.engines["customer"].role
        states = [network.engines[name].role.state() for name in customer.ended_early]
        assert customer.total == sum(state["reward"] for state in states)
        assert customer.pulls in (None, sum(state["pulls"] for state in states))
        assert (customer.pulls is None) == (len(states) < 4)
