"""Slots of level `strict`: owners answer in every slot, and what opens is whether all are ready;
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from posse.core.errors import ConfigError, ProtocolError
from posse.core.roles import WORLD, Ask, Message, Pull
from posse.policies import UCB, EpsilonGreedy, Policy, Pursuit
from posse.problems import BernoulliArms
from posse.runtime.memory import MemoryRun
from posse.systems.samba.federation import SimulatedWorld, prepare
from posse.systems.samba.levels import Switches, leaks
from posse.systems.samba.messages import End, Reply, Score, Sum
from posse.systems.samba.strict import clock, slots
from posse.systems.samba.strict.messages import Again, Dealt, Opened, Ready, Shuffled, Tick, Tock
from posse.systems.samba.twin import simulate
from tests.kit.strict_game import Game, Played, replaced

OWNERS, BUDGET, SEED = 4, 24, 3
ARMS = BernoulliArms(np.linspace(0.3, 0.7, OWNERS))
Late = Callable[[Pull], int]
"""How many slots a pull overruns."""


class Slotted:
    """A run with slots whose clock the test holds: a slot ends when nothing else is left to do."""

    def __init__(self, roles: Iterable[Any], late: Late, budget: int = BUDGET) -> None:
        self.run = MemoryRun(roles, None, transcript=10**6)
        self.world = SimulatedWorld(ARMS, SEED, budget, keep_arms=True)
        self.late, self.waits = late, {}
        self.notes: list[Any] = []

    def slot(self) -> bool:
        """Move messages until all wait, hand out the rewards that are there, and end the slot;
        False at the end.
        """
        run = self.run
        self.notes += list(run)
        pulls = {number: ask for number, ask in run.asks.items() if isinstance(ask, Pull)}
        for number, ask in pulls.items():
            left = self.waits.setdefault(number, self.late(ask))
            self.waits[number] = left - 1
            if left <= 0:
                run.answer(number, self.world(ask))
        ticks = [number for number, ask in run.asks.items() if isinstance(ask, Tick)]
        for number in ticks:
            run.answer(number, Tock(run.asks[number].number))  # type: ignore[attr-defined]
        return bool(ticks)

    def finish(self) -> Slotted:
        while self.slot():
            pass
        assert all(role.finished for role in self.run.roles.values())
        return self


def made(policy: Policy | None = None, slot: float = 0.1) -> list[Any]:
    return prepare(ARMS, policy or UCB(), BUDGET, seed=SEED, level="strict", slot=slot)()


def never(pull: Pull) -> int:
    return 0


def at_times(pull: Pull) -> int:
    return int(pull.party[-1]) % 3 if pull.number % 3 == 1 else 0


@pytest.mark.parametrize("late", [never, at_times])
@pytest.mark.parametrize(
    "policy", [UCB(), EpsilonGreedy(0.3), Pursuit(0.05)], ids=lambda policy: policy.name
)
def test_the_result_is_the_plain_one_and_overruns_are_counted(policy: Policy, late: Late) -> None:
    run = Slotted(made(policy), late).finish()
    plain = simulate(ARMS, policy, BUDGET, [SEED], level="strict")
    assert [note.value for note in run.notes if note.kind == "total"] == list(plain.total)
    assert [run.world.pulls.tolist()] == plain.pulls.tolist()
    roles: Any = run.run.roles
    controller, comp = roles["controller"].gate, roles["comp"].gate
    opened = (BUDGET - OWNERS) * len(policy.passes()) + 1  # one more after the last pull
    assert controller.slot == comp.slot == opened + controller.overruns
    assert controller.overruns == comp.overruns
    assert (controller.overruns > 0) == (late is at_times)
    own = sum(roles[f"owner-{number}"].overruns for number in range(1, OWNERS + 1))
    assert own >= controller.overruns


def test_comp_is_asked_about_a_slot_only_when_the_dealer_has_dealt() -> None:
    """A dealer that is slower than all owners: their frames of the first slot wait for it."""
    roles = made()
    controller = next(role for role in roles if role.name == "controller")
    dealt, forward, held = controller._handlers[Dealt], controller._forward, []

    def late(sender: str, message: Dealt) -> Any:
        if message.chunk:
            return dealt(sender, message)
        held.append((sender, message))
        return ()

    def then() -> Any:
        return [*forward(), *(dealt(*held.pop()) if held else ())]

    controller._handlers[Dealt], controller._forward = late, then
    run = Slotted(roles, never).finish()
    twin = simulate(ARMS, UCB(), BUDGET, [SEED], keep_arms=True)
    assert twin.arms is not None
    assert run.world.arms == twin.arms[0].tolist()


def test_every_owner_answers_in_every_slot_and_no_pad_hides_two_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[tuple[int, int]] = []
    answer = slots.answer

    def noted(score: bytes, ready: int, pads: Any, slot: int) -> bytes:
        used.append((id(pads), slot))
        return answer(score, ready, pads, slot)

    monkeypatch.setattr(slots, "answer", noted)
    run = Slotted(made(), at_times).finish()
    assert len(set(used)) == len(used)
    scores = [entry for entry in run.run.transcript or () if isinstance(entry.message, Score)]
    gate = run.run.roles["controller"].gate  # type: ignore[attr-defined]
    assert len(scores) == OWNERS * gate.slot == len(used)
    assert {entry.size for entry in scores} == {scores[0].size}
    opened = [
        entry.message for entry in run.run.transcript or () if isinstance(entry.message, Opened)
    ]
    assert {len(message.pads) for message in opened} == {0, 8 * OWNERS}


# What opens ---------------------------------------------------------------------------------------


def views(first: set[str], second: set[str], server: str) -> tuple[Any, Any, Any]:
    """Play with some owners slow at their first pull, and with others; return what a server saw of
    both, where the owners' words, and for the controller the slot's pads, make up for it; and the
    second without.
    """
    game = Game(UCB(), OWNERS, BUDGET)
    game.make = prepare(ARMS, UCB(), BUDGET, seed=SEED, level="strict", slot=0.1)

    def play(slow: set[str], programmed: Mapping[bytes, bytes]) -> Played:
        with replaced(programmed):
            run = Slotted(
                game.make(), lambda pull: int(pull.number == 0 and pull.party in slow)
            ).finish()
        return Played(game, run.run, list(run.world.arms or ()), [])

    one, two = play(first, {}), play(second, {})
    assert one.arms[OWNERS:] == two.arms[OWNERS:]
    roles: Any = two.run.roles
    before, after = (
        {e.sender: e.message for e in reversed(p.entries) if isinstance(e.message, Score)}
        for p in (one, two)
    )
    lead = min(second)
    words = {name: roles[name]._ready_words for name in (*first, *second)}
    drawn = {name: max(int(each.rows(0, 1)[0, 0]), 1) for name, each in words.items()}
    total = sum(drawn[name] for name in first) - sum(drawn[name] for name in second if name != lead)
    programmed: dict[bytes, Any] = {words[lead]._key: _stream(words[lead]._key)}
    programmed[words[lead]._key][0] = total % slots.WORD
    lead_now = total % slots.WORD
    if server == "controller":
        for name in one.names:
            key = roles[name]._slot_pads._key
            programmed[key] = _stream(key)
            old, new = (np.frombuffer(side[name].frame, "<u8") for side in (before, after))
            change = new - old  # what is sent is a value less a pad
            if name == lead:
                change[1:] += np.uint64((lead_now - drawn[lead]) % slots.WORD)
            programmed[key][:2] += change
    three = play(second, {key: words.tobytes() for key, words in programmed.items()})
    return one.view(server), three.view(server), two.view(server)


def _stream(key: bytes) -> Any:
    from posse.privacy.crypto.streams import keystream

    return np.frombuffer(keystream(key, 0, 1 << 14), "<u8").copy()


@pytest.mark.parametrize("server", ["controller", "comp"])
@pytest.mark.parametrize(
    "second", [{"owner-2"}, {"owner-2", "owner-3"}, {"owner-1", "owner-2", "owner-4"}], ids=len
)
def test_a_server_sees_neither_who_is_not_ready_nor_how_many(server: str, second: set[str]) -> None:
    first, same, other = views({"owner-1"}, second, server)
    assert first == same
    assert first != other  # so that the comparison sees ready words and pads


def test_a_ready_word_that_counts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: an owner that is not ready sends 1. One or two of them give comp different
    sums.
    """
    answer = slots.answer
    monkeypatch.setattr(
        slots, "answer", lambda score, ready, *rest: answer(score, min(ready, 1), *rest)
    )
    first, same, _ = views({"owner-1"}, {"owner-2", "owner-3"}, "comp")
    assert first != same


# What a server that does not follow the protocol can do -------------------------------------------


def until(run: Slotted, wanted: type[Message]) -> tuple[str, str, Any]:
    """Move on until a message of a kind is about to arrive; it is taken out of the queue."""
    inner = run.run
    while True:
        for at, action in enumerate(inner._queue):
            if isinstance(action, tuple) and isinstance(action[2], wanted):
                del inner._queue[at]
                return action
        if inner._queue:
            inner.deliver()
        else:
            assert run.slot()


def test_comp_answers_nothing_before_all_owners_are_ready() -> None:
    """A controller that asks in a slot that did not open learns nothing of the scores."""
    run = Slotted(made(), never)
    sender, _, message = until(run, Shuffled)
    comp: Any = run.run.roles["comp"]
    comp.gate.open = False
    with pytest.raises(ProtocolError, match="is asked about before all owners are ready"):
        comp.receive(sender, message)


def test_a_comp_that_says_that_all_are_ready_names_the_owner_that_is_not() -> None:
    """The flipped ready bit: the owner that pulls refuses the reply, which ends the run; the others
    answer.
    """
    run = Slotted(made(), lambda pull: 2 if pull.number == 1 else 0)
    while True:
        sender, receiver, message = until(run, Opened)
        if not message.pads:
            break
        run.run._queue.appendleft((sender, receiver, message))
        run.run.deliver()
    roles: Any = run.run.roles
    comp, slot = roles["comp"], message.slot
    pads = b"".join(each.rows(slot, 1)[0, :1].tobytes() for each in comp._slot_pads)
    comp.gate.open = True
    run.run._queue.extend(roles["controller"].receive("comp", Opened(slot, pads)))
    refused, replies = [], 0
    pulling = [name for name, role in roles.items() if getattr(role, "_pulling", False)]
    while replies < OWNERS:
        sender, receiver, reply = until(run, Reply)
        replies += 1
        try:
            roles[receiver].receive(sender, reply)
        except ProtocolError:
            refused.append(receiver)
    assert refused == pulling
    assert len(pulling) == 1


@pytest.mark.parametrize("pulls", [True, False])
def test_a_controller_that_alters_ready_words_sees_an_overrun_whatever_the_owner_does(
    pulls: bool,
) -> None:
    """It does not know the word of an owner that is not ready: no change of its own opens the
    slot.
    """
    run = Slotted(made(), lambda pull: int(pulls and pull.number == 1))
    for _ in range(OWNERS):  # past the first slot
        assert run.slot()
    _, _, ready = until(run, Ready)
    comp: Any = run.run.roles["comp"]
    rng = np.random.default_rng(5)
    for change in (1, -1, *rng.integers(1, 2**63, 20)):
        saved = comp.save()
        (answer,) = comp.receive(
            "controller", Ready(ready.slot, (ready.word + int(change)) % slots.WORD)
        )
        assert answer[2] == Opened(ready.slot, b"")
        with pytest.raises(ProtocolError, match="is answered"):
            comp.receive("controller", ready)
        comp._restore(saved)


def test_a_flipped_result_bit_shows_in_the_overruns_of_a_slow_arm() -> None:
    """All arms are slow. A server that flips the bit of the one that was to pull sees that nobody
    overruns.
    """
    found = []
    for flipped in (0, 1, 2, 3):
        run = Slotted(made(), lambda pull: int(pull.number > 0))
        sender, receiver, message = until(run, Reply)
        replies = [(sender, receiver, message), *(until(run, Reply) for _ in range(OWNERS - 1))]
        roles: Any = run.run.roles
        says = [
            reply.reply == roles[name]._lane._yes[roles[name]._lane._at]
            for _, name, reply in replies
        ]
        for at, (sender, name, reply) in enumerate(replies):
            bits = bytes([reply.reply[0] ^ (at == flipped)]) + reply.reply[1:]
            run.run._queue.extend(roles[name].receive(sender, Reply(reply.index, bits)))
        run.slot()
        (answer,) = roles["comp"].receive("controller", until(run, Ready)[2])
        found.append((says[flipped], not answer[2].pads))
    assert sorted(found) == [(False, True)] * (OWNERS - 1) + [(True, False)]


# Out of turn --------------------------------------------------------------------------------------


def test_what_comes_out_of_turn_is_refused_with_the_state_as_it_was() -> None:
    run = Slotted(made(), never)
    assert run.slot()
    _, _, ready = until(run, Ready)
    roles: Any = run.run.roles
    comp, owner, controller = roles["comp"], roles["owner-1"], roles["controller"]
    wrong: list[tuple[Any, str, Message]] = [
        (comp, "controller", Ready(ready.slot + 1, ready.word)),
        (owner, "controller", Again(5)),
        (owner, "comp", Again(0)),
        (controller, "comp", Opened(7, b"")),
        (controller, "owner-1", Opened(0, b"")),
        (controller, "comp", Opened(0, bytes(8))),
        (owner, "controller", Tock(0)),
    ]
    for role, sender, message in wrong:
        before = role.save()
        with pytest.raises(ProtocolError):
            role.receive(sender, message)
        assert role.save() == before
    (first,) = comp.receive("controller", ready)
    assert comp.receive("controller", ready) == (first,)  # a repeated request gets the same bytes
    with pytest.raises(ProtocolError, match="is answered"):
        comp.receive("controller", Ready(ready.slot, ready.word ^ 1))


def test_an_early_end_leaves_at_the_end_of_a_slot() -> None:
    """Whether an owner pulls or not; one that overruns answers a slot later, and the total counts
    its reward.
    """
    run = Slotted(made(), lambda pull: 2 if pull.number == 1 else 0)
    while not any(isinstance(ask, Pull) and ask.number == 1 for ask in run.run.asks.values()):
        assert run.slot()
    run.notes += list(run.run)
    customer: Any = run.run.roles["customer"]
    run.run._queue.extend(customer.receive("operator", End(customer.manifest.owners)))
    run.notes += list(run.run)
    entries = run.run.transcript
    assert entries is not None
    sent = lambda: [entry for entry in entries if isinstance(entry.message, Sum)]  # noqa: E731
    assert not sent()
    assert run.slot()
    run.notes += list(run.run)
    assert len(sent()) == OWNERS - 1
    run.finish()
    assert [note.value for note in run.notes if note.kind == "total"] == [
        run.world.units.sum() / 2**24
    ]


# Settings -----------------------------------------------------------------------------------------


def test_a_simulated_world_has_no_slots_unless_they_are_given() -> None:
    found = [
        clock.seconds(slot, None, "strict", simulated=simulated)
        for slot in (None, 0.3)
        for simulated in (1, 0)
    ]
    assert found == [0.0, clock.SLOT, 0.3, 0.3]


def test_a_slot_shorter_than_an_owners_slowest_pull_is_refused_with_the_line_to_change() -> None:
    clock.check_slot(0.1, None, "a")
    clock.check_slot(0.5, 0.5, "a")
    clock.check_slot(0.02, 0.01, "a")
    clock.check_slot(0.0, None, "a")
    for slot, slowest, line in [
        (0.1, 0.5, "slot = 0.5"),
        (0.05, None, "slot = 0.1"),
        (0.0, 0.2, "slot = 0.2"),
    ]:
        with pytest.raises(ConfigError, match=line) as raised:
            clock.check_slot(slot, slowest, "clinic-b")
        assert "'clinic-b'" in raised.value.text


def test_the_sentence_on_time_is_about_this_run() -> None:
    def timing(**how: Any) -> str:
        return leaks("strict", Switches(), 3, UCB(), **how)[-1]

    assert (
        timing()
        == "Timing can name the pulled arm: the chosen owner answers later because it pulls."
    )
    assert "slot of 0.1 s" in timing(slot=0.1)
    assert "this run" not in timing(slot=0.1)
    assert timing(slot=0.1, overruns=0).endswith("no slot of this run was overrun.")
    assert timing(slot=0.1, overruns=1).endswith("one slot of this run was overrun.")
    assert timing(slot=0.1, overruns=7).endswith("7 slots of this run were overrun.")


def test_a_tick_says_how_long_the_signed_slot_is() -> None:
    run = Slotted(made(slot=0.25), never)
    run.notes += list(run.run)
    asks: list[Ask] = list(run.run.asks.values())
    assert {ask.seconds for ask in asks if isinstance(ask, Tick)} == {0.25}
    assert [type(ask) for ask in asks if ask.party == "owner-1"] == [Tick, Pull]
    assert run.run.roles["owner-1"].receive(WORLD, Tock(9)) == ()
