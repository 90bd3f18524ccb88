"""Engines joined by links: whatever is cut, killed or lost, the run is the undisturbed one."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest

from posse.core.errors import (
    DisagreementError,
    EarlyError,
    JournalError,
    LinkError,
    ProtocolError,
)
from posse.core.roles import Message, Reward
from posse.runtime.journal import Journal
from posse.runtime.network.connection import Wiring
from posse.runtime.network.engine import Engine, Vocabulary
from posse.runtime.network.links import LARGEST_EARLY, MOST_EARLY, BehindError, GapError
from posse.runtime.network.party import Party
from tests.kit.toy_roles import WORDS, Done, Hub, Leaf, Work, expected, reward
from tests.network.disks import MemoryDisk
from tests.network.seam import Network


class Text(Message, frozen=True, array_like=True, tag=True, gc=False):
    """A message as long as it is wanted."""

    text: str


LONG = Vocabulary((Text,), ())
LEAVES = ("a", "b", "c")
STEPS = 60

FAULTS = {
    "none": {},
    "cuts": {"cut": 0.05},
    "kills": {"kill": 0.05},
    "power": {"power": 0.05},
    "seam": {"duplicate": 0.05, "reorder": 0.05, "drop": 0.03, "cut": 0.05},
    "everything": {
        "duplicate": 0.03,
        "reorder": 0.03,
        "drop": 0.02,
        "cut": 0.05,
        "kill": 0.04,
        "power": 0.04,
    },
}


def network(seed, **how):
    make = {
        "hub": lambda: Hub(LEAVES, STEPS),
        **{name: lambda name=name: Leaf(name) for name in LEAVES},
    }
    return Network(make, [("hub", name) for name in LEAVES], WORDS, reward, seed, **how)


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("snapshot_bytes", [300, 10**9])
def test_whatever_happens_the_run_is_the_same(faults, seed, snapshot_bytes):
    world = network(seed, snapshot_bytes=snapshot_bytes)
    world.run(FAULTS[faults])
    assert world.engines["hub"].role.history == expected(LEAVES, STEPS)
    pulls = sum(world.engines[name].role.pulls for name in LEAVES)
    assert pulls == STEPS  # every pull counted once


@pytest.mark.parametrize("who", ["hub", "a"])
def test_what_was_held_is_taken_without_another_connection(who):
    """A party forgets much of a run and nothing fails after it: what comes too early is taken as
    soon as it can be.
    """
    most = 0
    for seed in range(10):
        world = network(seed, snapshot_bytes=10**9, sync_answers=False, syncs=0.0)
        for _ in range(300 + 20 * seed):
            world.step({})
        world.kill(who, power=True)
        for _ in range(5_000):
            held = {peer: len(link.held) for peer, link in world.engines[who].links.items()}
            most = max(most, sum(held.values()))
            if not world.step({}):
                break
        assert world.engines["hub"].role.history == expected(LEAVES, STEPS), held
    assert most > 2


def test_what_was_held_goes_with_its_connection(tmp_path):
    engine = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r")
    engine.receive("hub", 1, msgspec.msgpack.encode(Work(0)))
    engine.links["hub"].connected(0, 0)
    engine.receive(
        "hub", 1, msgspec.msgpack.encode(Work(3))
    )  # of a hub that forgot what it had sent
    engine.begin()
    engine.answer(1, Reward(0, 5))
    assert msgspec.msgpack.decode(engine.links["hub"].last, type=Done) == Done(3, 5)


def test_a_reward_that_was_journalled_is_never_asked_for_again():
    """With answers on disk before anything follows, a machine that dies asks only for what it has
    not got.
    """
    for seed in range(30):
        given = Counter()
        world = network(seed)
        world._world = partial(fickle, given)
        world.run({"power": 0.05, "cut": 0.02})
        # An answer is journalled in the same breath as it is taken: nobody is asked twice.
        assert set(given.values()) == {1}


def fickle(given, pull):
    """A source that breaks the rule of answering the same: the first answer that was kept must
    stand.
    """
    given[pull.party, pull.number] += 1
    return Reward(pull.number, (reward(pull).units + given[pull.party, pull.number]) % 11)


def test_a_message_that_the_role_refuses_is_counted_once_and_changes_nothing(tmp_path):
    engine = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r")
    engine.begin()
    assert not engine.receive("hub", 1, msgspec.msgpack.encode(Done(1, 1)))
    assert not engine.receive("hub", 2, b"\xff\xff")
    assert [peer for peer, _ in engine.refusals] == ["hub", "hub"]
    assert engine.receive("hub", 3, msgspec.msgpack.encode(Work(0)))
    engine.commit()
    engine._journal.close()
    again = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r")
    assert again.links["hub"].received == 3
    assert list(again.asks) == [1]
    assert not again.refusals


def test_what_peers_may_know_to_be_on_the_disk_moves_by_the_clock_and_not_with_an_answer(tmp_path):
    """Marks that moved with an answer would show who was answered, such as the owner that pulled."""
    engine = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r")
    engine.links["hub"].connected(0, 0)
    engine.begin()
    engine.receive("hub", 1, msgspec.msgpack.encode(Work(0)))
    engine.commit()
    link = engine.links["hub"]
    engine.answer(1, Reward(0, 5))
    assert engine.commit()  # the disk was waited for
    assert (link.received, link.durable) == (1, 0)
    with engine.syncing() as wait:
        wait()
    assert link.durable == 1


def test_what_comes_twice_is_dropped_and_a_second_answer_too(tmp_path):
    engine = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r")
    engine.begin()
    work = msgspec.msgpack.encode(Work(0))
    assert engine.receive("hub", 1, work)
    assert not engine.receive("hub", 1, work)
    engine.answer(1, Reward(0, 5))
    engine.answer(1, Reward(0, 9))
    assert engine.role.total == 5
    assert engine.links["hub"].sent == 1


def test_an_answer_that_the_role_refuses_leaves_the_ask_open(tmp_path):
    engine = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r")
    engine.begin()
    engine.receive("hub", 1, msgspec.msgpack.encode(Work(0)))
    with pytest.raises(ProtocolError):
        engine.answer(1, Reward(7, 5))
    assert list(engine.asks) == [1]
    engine.answer(1, Reward(0, 5))
    assert engine.role.total == 5


def test_what_comes_before_the_role_starts_is_held_until_then(tmp_path):
    engine = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r")
    assert not engine.receive("hub", 1, msgspec.msgpack.encode(Work(0)))
    with pytest.raises(ProtocolError, match="the run has not begun"):
        engine.instruct(Work(0))
    assert not engine.asks
    engine.begin()
    assert list(engine.asks) == [1]
    assert engine.links["hub"].received == 1


def test_a_party_that_is_behind_takes_no_instruction_until_it_has_caught_up(tmp_path):
    """What it would send now would bear the number of a message that the peer has."""
    engine = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r")
    engine.begin()
    engine.links["hub"].connected(
        1, 0
    )  # the hub has one of its messages: it was sent before the power failed
    with pytest.raises(BehindError, match="hub"):
        engine.instruct(Work(0))
    assert not engine.asks
    engine.receive("hub", 1, msgspec.msgpack.encode(Work(0)))
    engine.answer(1, Reward(0, 5))
    assert not engine.links["hub"].behind
    with pytest.raises(ProtocolError, match="not what a leaf waits for"):  # the role hears it
        engine.instruct(Work(1))


def test_an_instruction_waits_for_the_peers_that_are_needed_and_for_no_others(tmp_path):
    """Only they can have messages that this party has forgotten; others may have left."""
    engine = Engine(Leaf("a"), Journal(tmp_path), ["hub", "other"], WORDS, run="r")
    engine.begin()
    wiring = Wiring("toy", {"hub": "hub", "other": "leaf"})
    party = Party(engine, wiring, lambda _: ("", ""), needs=lambda: ["hub"])
    with pytest.raises(BehindError, match="hub"):
        party.instruct(Work(0))
    engine.links["hub"].connected(0, 0)
    with pytest.raises(BehindError, match="other"):
        engine.instruct(Work(0))
    with pytest.raises(ProtocolError, match="not what a leaf waits for"):  # the role hears it
        party.instruct(Work(0))
    engine.close()


class Early(Leaf):
    """Waits for a message of another peer before it takes any work."""

    def receive(self, sender, message):
        raise EarlyError("the other peer comes first.")


@pytest.mark.parametrize(("size", "most"), [(1, MOST_EARLY), (LARGEST_EARLY // 2, 2)])
def test_no_more_is_held_early_than_a_limit_until_all_peers_have_connected(tmp_path, size, most):
    """A peer cannot fill the memory of a party that waits for another one."""
    engine = Engine(Early("a"), Journal(tmp_path), ["hub", "other"], LONG, run="r")
    engine.begin()
    engine.links["hub"].connected(0, 0)
    body = msgspec.msgpack.encode(Text("x" * size))
    for number in range(most):
        assert not engine.receive("hub", number + 1, body)
    with pytest.raises(GapError, match="hub"):
        engine.receive("hub", most + 1, body)
    assert len(engine.links["hub"].held) == most
    assert not engine.refusals
    engine.links["other"].connected(2, 0)  # this party sent two messages that it has lost
    assert not engine.receive(
        "hub", most + 1, body
    )  # the limit of a party that is behind is higher
    assert not engine.refusals
    engine.close()


def test_what_is_early_is_refused_once_all_peers_have_connected(tmp_path):
    engine = Engine(Early("a"), Journal(tmp_path), ["hub", "other"], WORDS, run="r")
    engine.begin()
    for peer in ("hub", "other"):
        engine.links[peer].connected(0, 0)
    assert not engine.receive("hub", 1, msgspec.msgpack.encode(Work(0)))
    assert [peer for peer, _ in engine.refusals] == ["hub"]
    engine.close()


def test_terms_bind_a_journal_from_the_first_input_on(tmp_path):
    def life(rounds, *inputs):
        engine = Engine(
            Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r", terms={"rounds": rounds}
        )
        engine.begin()
        for number, message in enumerate(inputs, 1):
            engine.receive("hub", number, msgspec.msgpack.encode(message))
        engine.commit()
        engine.close()
        return engine

    assert not life("100").bound
    assert life("200", Work(0)).bound
    assert life("200").links["hub"].received == 1
    with pytest.raises(JournalError, match="rounds is 200 when it agreed and 100 in its file now"):
        life("100")


def test_a_journal_set_back_is_noticed():
    world = network(1)
    world.run({})
    hub = world.engines["hub"]
    fresh = Engine(Leaf("a"), Journal(Path("/other"), MemoryDisk()), ["hub"], WORDS, run="run-1")
    with pytest.raises(LinkError, match="set back"):
        hub.links["a"].connected(fresh.links["hub"].received, fresh.links["hub"].durable)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_journal_of_another_party_or_run_is_refused(tmp_path, snapshot):
    engine = Engine(Leaf("a"), Journal(tmp_path), ["hub"], WORDS, run="r")
    engine.begin()
    engine.receive("hub", 1, msgspec.msgpack.encode(Work(0)))
    engine.commit()
    if snapshot:
        engine.checkpoint()
    engine._journal.close()
    for name, run in (("b", "r"), ("a", "s")):
        journal = Journal(tmp_path)
        with pytest.raises(JournalError, match="the journal is of 'a' in run r"):
            Engine(Leaf(name), journal, ["hub"], WORDS, run=run)
        journal.close()


class Picky(Hub):
    """A hub whose file says how much it takes at most: more is a disagreement, and the file can be
    corrected.
    """

    def __init__(self, most):
        super().__init__(["a"], 3)
        self.most = most

    def receive(self, sender, message):
        if message.total > self.most:
            raise DisagreementError(
                f"{message.total} is more than {self.most}. Correct the file that is wrong."
            )
        return super().receive(sender, message)


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("lives", [1, 3])
def test_a_message_that_a_corrected_restart_accepts_is_not_used_up(tmp_path, snapshot, lives):
    """Refused any number of times, by as many lives, it comes again under its number and is taken
    when it can be.
    """
    encoded = [msgspec.msgpack.encode(Done(step, total)) for step, total in enumerate((5, 9, 2))]
    engine = Engine(Picky(7), Journal(tmp_path), ["a"], WORDS, run="r")
    engine.begin()
    assert engine.receive("a", 1, encoded[0])
    engine.commit()
    if snapshot:
        engine.checkpoint()
    for _ in range(lives):
        link, sent = engine.links["a"], engine.links["a"].sent
        with pytest.raises(DisagreementError, match="9 is more than 7"):
            engine.receive("a", 2, encoded[1])
        engine.commit()
        assert (link.received, link.sent, engine.role.history) == (1, sent, [5])
        assert not engine.refusals
        engine.close()
        engine = Engine(Picky(7), Journal(tmp_path), ["a"], WORDS, run="r")
        assert engine.links["a"].received == 1  # so the peer sends the second again
    engine.close()
    corrected = Engine(Picky(10), Journal(tmp_path), ["a"], WORDS, run="r")
    assert corrected.receive("a", 2, encoded[1])
    assert corrected.receive("a", 3, encoded[2])
    corrected.commit()
    assert corrected.role.history == [5, 9, 2]
    corrected.close()
    again = Engine(Picky(10), Journal(tmp_path), ["a"], WORDS, run="r")
    assert again.role.history == [5, 9, 2]
    again.close()


def test_what_no_file_could_make_right_is_used_up_in_all_lives(tmp_path):
    """Or a replay would take another path than the peers saw."""
    engine = Engine(Hub(["a"], 3), Journal(tmp_path), ["a"], WORDS, run="r")
    engine.begin()
    assert not engine.receive("a", 1, msgspec.msgpack.encode(Done(7, 1)))
    assert [peer for peer, _ in engine.refusals] == ["a"]
    engine.commit()
    engine.close()
    again = Engine(Hub(["a"], 3), Journal(tmp_path), ["a"], WORDS, run="r")
    assert again.links["a"].received == 1
    assert not again.receive("a", 1, msgspec.msgpack.encode(Done(0, 1)))
    assert again.receive("a", 2, msgspec.msgpack.encode(Done(0, 1)))
    again.close()
