"""The memory runtime: order, pausing, faults, and what it counts."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from posse.core.errors import ProtocolError
from posse.core.roles import WORLD, Message, Note, Reward
from posse.runtime.memory import LATE, MemoryRun, Transcript
from tests.runtime.toys import ROUNDS, WORKERS, Answer, Ask, burn, toy

MESSAGES = 2 * len(WORKERS) * ROUNDS
EVENTS = [Note("caller", "round", n) for n in range(1, ROUNDS + 1)] + [
    Note("caller", "end", ROUNDS, MESSAGES // 2)
]


def moved(run: MemoryRun) -> list[tuple[str, str, Message]]:
    assert run.transcript is not None
    return [(entry.sender, entry.receiver, entry.message) for entry in run.transcript]


def whole() -> MemoryRun:
    run, _ = toy(transcript=1000)
    run.finish()
    return run


def test_messages_move_first_in_first_out() -> None:
    run, caller = toy(transcript=1000)
    assert list(run) == EVENTS
    one_round = [
        *(("caller", worker, Ask(0)) for worker in WORKERS),
        *((WORLD, worker, Reward(0, 10 * i)) for i, worker in enumerate(WORKERS)),
        *((worker, "caller", Answer(0, bytes(10 * i))) for i, worker in enumerate(WORKERS)),
    ]
    assert moved(run)[:9] == one_round
    assert [sender for sender, _ in caller.heard] == list(WORKERS) * ROUNDS
    assert list(run) == []


def test_one_message_at_a_time_is_the_same_run() -> None:
    run, caller = toy(transcript=1000)
    deliveries = []
    while (delivery := run.deliver()) is not None:
        deliveries.append(delivery)
    assert moved(run) == moved(whole())
    assert [(d.sender, d.receiver, d.message) for d in deliveries] == [
        m for m in moved(run) if m[0] != WORLD
    ]
    assert caller.round == ROUNDS
    assert run.deliver() is None


def test_every_event_is_told_when_messages_are_delivered_one_at_a_time() -> None:
    run, _ = toy()
    told: list[Note] = []
    while (delivery := run.deliver()) is not None:
        told.extend(delivery.notes)
    assert told == EVENTS


def test_delivering_shows_the_state_after_every_message() -> None:
    run, _ = toy()
    pulls = []
    while run.deliver() is not None:
        pulls.append(sum(int(str(run.roles[name].state()["pulls"])) for name in WORKERS))
    assert pulls == sorted(pulls)
    assert pulls[-1] == len(WORKERS) * ROUNDS


@pytest.mark.parametrize("stop", range(1, len(EVENTS) + 1))
def test_a_paused_run_goes_on_where_it_stopped(stop: int) -> None:
    run, _ = toy(transcript=1000)
    first = list(itertools.islice(run, stop))
    assert first == EVENTS[:stop]
    assert first + list(run) == EVENTS
    assert moved(run) == moved(whole())


@pytest.mark.parametrize("messages", range(MESSAGES + 1))
def test_any_mixture_of_steps_and_iteration_moves_every_message_once(messages: int) -> None:
    run, _ = toy(transcript=1000)
    for _ in range(messages):
        run.deliver()
    for _ in run:
        break
    run.deliver()
    run.finish()
    assert moved(run) == moved(whole())


def test_an_iterator_left_behind_moves_nothing_twice() -> None:
    run, caller = toy(transcript=1000)
    behind = iter(run)
    next(behind)
    run.finish()
    list(behind)
    assert moved(run) == moved(whole())
    assert len(caller.heard) == MESSAGES // 2


def test_the_transcript_is_bounded_and_says_what_it_forgot() -> None:
    run, _ = toy(transcript=10)
    run.finish()
    assert run.transcript is not None
    everything = moved(whole())
    assert len(run.transcript) == 10
    assert run.transcript.forgotten == len(everything) - 10
    assert moved(run) == everything[-10:]
    assert [entry.number for entry in run.transcript] == list(
        range(len(everything) - 10, len(everything))
    )


def test_without_a_transcript_nothing_is_kept() -> None:
    run, _ = toy()
    run.finish()
    assert run.transcript is None


def test_a_view_is_what_a_party_sent_and_received() -> None:
    run = whole()
    assert run.transcript is not None
    for party in ("caller", *WORKERS):
        view = run.transcript.view(party)
        assert view == [
            entry for entry in run.transcript if party in (entry.sender, entry.receiver)
        ]
    assert all(
        {entry.sender, entry.receiver} <= {"ann", "caller", WORLD}
        for entry in run.transcript.view("ann")
    )
    assert len(run.transcript.view("ann")) == 3 * ROUNDS
    assert run.transcript.view("nobody") == []


@pytest.mark.parametrize("one_by_one", [False, True], ids=["finish", "deliver"])
def test_bytes_and_messages_are_those_of_the_encoded_messages(one_by_one: bool) -> None:
    run, _ = toy(transcript=1000)
    if one_by_one:
        while run.deliver() is not None:
            pass
    else:
        run.finish()
    sizes: dict[tuple[str, str], list[int]] = {}
    for sender, receiver, message in moved(run):
        if sender != WORLD:  # the world is no party: its answers cross no wire
            hop = (run.roles[sender].kind, run.roles[receiver].kind)
            sizes.setdefault(hop, []).append(len(msgspec.msgpack.encode(message)))
    assert {hop: (traffic.messages, traffic.bytes) for hop, traffic in run.hops.items()} == {
        hop: (len(each), sum(each)) for hop, each in sizes.items()
    }
    assert len(set(sizes["worker", "caller"])) > 1
    bare, _ = toy()
    bare.finish()
    assert bare.hops == run.hops


def test_a_message_survives_the_wire() -> None:
    for message in (Ask(3), Answer(2, b"\x00\xff"), Reward(1, 1 << 24)):
        assert (
            msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)) == message
        )


def test_time_is_counted_by_kind_of_role_and_never_negative() -> None:
    run, _ = toy(work=lambda name, n: burn(0.01))
    assert run.seconds == {"caller": 0.0, "worker": 0.0}
    run.finish()
    assert set(run.seconds) == {"caller", "worker"}
    assert run.seconds["worker"] >= 0.9 * 0.01 * len(WORKERS) * ROUNDS
    assert 0.0 <= run.seconds["caller"] < 0.5 * run.seconds["worker"]


def test_what_the_reader_of_events_does_is_not_counted_as_a_role_s_time() -> None:
    run, _ = toy()
    for _ in run:
        burn(0.05)
    assert sum(run.seconds.values()) < 0.05


def refusing(name: str, number: int, error: type[BaseException]) -> tuple[list[int], MemoryRun]:
    """A run in which one worker refuses one question, once."""
    refused: list[int] = []

    def work(worker: str, n: int) -> None:
        if (worker, n) == (name, number) and not refused:
            refused.append(n)
            raise error("not now")

    return refused, toy(transcript=1000, work=work)[0]


def test_a_protocol_error_passes_through_and_the_rest_goes_on() -> None:
    refused, run = refusing("bob", 1, ProtocolError)
    with pytest.raises(ProtocolError, match="not now"):
        run.finish()
    assert refused == [1]
    run.finish()
    # The others were asked and answered; the caller waits for bob alone.
    assert [run.roles[name].state()["pulls"] for name in WORKERS] == [2, 1, 2]
    assert run.roles["caller"].state() == {"round": 1, "heard": 5}
    assert run.roles["bob"].receive(
        "caller", Ask(1)
    )  # its state is as it was: it takes the question again


def test_a_refused_message_is_counted_and_shown_for_it_was_sent() -> None:
    _, run = refusing("bob", 0, ProtocolError)
    with pytest.raises(ProtocolError):
        run.finish()
    run.finish()
    assert run.hops["caller", "worker"].messages == len(WORKERS)
    assert ("caller", "bob", Ask(0)) in moved(run)


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("name", WORKERS)
def test_an_interrupt_inside_a_role_leaves_the_run_resumable(name: str, number: int) -> None:
    """What was not being delivered at that moment is delivered later, once."""
    refused, run = refusing(name, number, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    assert refused == [number]
    run.finish()
    others = [worker for worker in WORKERS if worker != name]
    assert [run.roles[worker].state()["pulls"] for worker in others] == [number + 1] * 2
    assert all(seconds >= 0 for seconds in run.seconds.values())
    assert len(moved(run)) == len(set(moved(run)))


def test_an_interrupt_of_the_world_does_not_lose_the_others() -> None:
    calls = itertools.count()

    def world(pull: object) -> Reward:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return Reward(pull.number, 1)  # type: ignore[attr-defined]

    run, _ = toy()
    interrupted = MemoryRun(run.roles.values(), world)
    with pytest.raises(KeyboardInterrupt):
        interrupted.finish()
    interrupted.finish()
    assert [interrupted.roles[name].state()["pulls"] for name in WORKERS] == [1, 0, 1]


def test_a_run_without_roles_ends_at_once() -> None:
    run = MemoryRun([], world=lambda pull: Reward(0, 0))
    assert list(run) == []
    assert run.deliver() is None


def test_copies_of_a_long_transcript_hold_its_end() -> None:
    kept = Transcript(5_000)
    for _ in range(5_000):
        kept.add("a", "b", Ask(0), 1)
    whole = kept.copy()
    assert whole.forgotten == 0
    assert whole.entries[0] is kept.entries[0]
    kept.add("a", "b", Ask(0), 1)
    late = kept.copy()
    assert (len(late), late.count, late.forgotten) == (LATE, 5_001, 5_001 - LATE)
    late.add("b", "a", Ask(0), 1)
    assert late.entries[-1].number == 5_001
    assert len(kept) == 5_000
