"""What each role sees, what never leaves a role, and what a run costs in memory."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from posse.core.errors import ConfigError
from posse.policies import ARGMAX, UCB, EpsilonGreedy, Policy, Selection, Softmax
from posse.policies.arms.shipped import mean
from posse.privacy.crypto import frames
from posse.privacy.crypto.paillier import generate_key
from posse.problems import BernoulliArms
from posse.problems.datasets.published import embedded_arms
from posse.results.document import sections
from posse.runtime.memory import MemoryRun
from posse.systems.registry import run, start
from posse.systems.samba.attacks.reading import read
from posse.systems.samba.deploy import _bill
from posse.systems.samba.federation import SimulatedWorld, federation
from posse.systems.samba.layout import invite
from posse.systems.samba.levels import LEVELS, Switches, check_level, leaks
from posse.systems.samba.messages import Batch, Choice, Explore, Reply, Score
from posse.systems.samba.roles.lanes import frame_bytes
from posse.systems.samba.settings import Samba
from posse.systems.samba.setup import Terms
from posse.systems.samba.strict import lane
from posse.systems.samba.strict.messages import Compared, Found, Shuffled
from posse.systems.samba.twin import simulate
from tests.kit.samba import Federation, secrets_of

KEY = generate_key(2048)


class Choosing(EpsilonGreedy):
    """Takes the first place by a function of its own."""

    def passes(self) -> tuple[Selection, ...]:
        return (Selection("custom", choose=lambda scores, u: 0),)


def transcript(policy: Policy, level: str, budget: int = 60) -> MemoryRun:
    arms = embedded_arms("movielens", 6)
    run = MemoryRun(
        federation(arms, policy, budget, seed=2, level=level, key=KEY),
        SimulatedWorld(arms, 2, budget),
        transcript=10**6,
    )
    run.finish()
    assert run.transcript is not None
    assert run.transcript.forgotten == 0
    return run


def test_exploring_looks_like_exploiting_on_the_wire_at_strict() -> None:
    """Every pass has K scores, one question of all pairs with its answer, and K replies of the same
    sizes, whatever the coin says.
    """
    run = transcript(EpsilonGreedy(0.5), "strict")
    assert run.transcript is not None
    passes: dict[int, Counter[tuple[str, int]]] = {}
    for entry in run.transcript:
        if isinstance(entry.message, (Score, Shuffled, Compared, Found, Reply)):
            size = sum(
                len(getattr(entry.message, name, b""))
                for name in ("frame", "masked", "places", "shifts", "answer", "reply")
            )
            passes.setdefault(entry.message.index, Counter())[
                type(entry.message).__name__, size
            ] += 1
    assert len(passes) == 54
    assert len({tuple(sorted(count.items())) for count in passes.values()}) == 1


def test_exploring_is_visible_at_paper() -> None:
    run = transcript(EpsilonGreedy(0.5), "paper")
    assert run.transcript is not None
    explored = [
        entry.message.index for entry in run.transcript if isinstance(entry.message, Explore)
    ]
    scored = {entry.message.index for entry in run.transcript if isinstance(entry.message, Score)}
    assert 10 < len(explored) < 45
    assert not scored & set(explored)


def test_exploring_as_described_sends_in_every_pass_and_comp_sees_equal_numbers() -> None:
    """Sizes and counts on the wire are the same in every pass; what comp opens of an exploring one
    is K times 0.
    """
    run = start(
        Samba(
            policy="epsilon-greedy",
            epsilon=0.5,
            means=(0.6, 0.7, 0.8),
            level="paper",
            horizon=60,
            shortcut=False,
        ),
        transcript=10**6,
        key=KEY,
    )
    run.finish()
    passes: dict[int, Counter[str]] = {}
    for entry in run.memory.transcript:
        if isinstance(entry.message, (Score, Batch, Choice, Reply, Explore)):
            passes.setdefault(entry.message.index, Counter())[type(entry.message).__name__] += 1
    assert len(passes) == 57
    assert all(
        count == {"Score": 3, "Batch": 1, "Choice": 1, "Reply": 3} for count in passes.values()
    )
    explored = run.truth()["explores"][3:60].tolist()
    assert 10 < sum(explored) < 48
    opened = read(run.view("comp"))
    assert (
        np.isnan(opened.values[:, 0]).tolist() == explored
    )  # no exploiting step has means of 0 here
    text = " ".join(run.settings.leaks())
    assert "all owners send the same number in it" in text
    (costs,) = [one for one in sections(run.record()) if one.title == "Cost in primitives"]
    assert [row[1] == row[2] for row in costs.rows] == [
        True,
        True,
        False,
        True,
        True,
    ]  # Theorem 4, but for K + 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"level": "strict"}, "shortcut applies to level 'paper' only, got it off at 'strict'"),
        ({"level": "paper", "policy": "ucb"}, "policy 'ucb' has none. Leave shortcut out"),
        ({"level": "paper", "policy": Choosing()}, "need not choose among equal scores at random"),
        ({"level": "paper", "shortcut": "perhaps"}, "shortcut must be a valid boolean"),
    ],
)
def test_the_shortcut_is_switched_off_where_it_is(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        Samba(
            **{"policy": "epsilon-greedy", "owners": 3, "horizon": 20, "shortcut": False, **given}
        )


@pytest.mark.parametrize("level", LEVELS)
def test_every_owner_states_what_it_is_owed_and_nobody_else_does(level: str) -> None:
    prices = (0.1, 0.25, 0.02)
    run = start(
        Samba(policy="ucb", means=(0.3, 0.5, 0.7), level=level, horizon=40, price=prices), key=KEY
    )
    assert all("owed" not in run.state(name) for name in run.parties)  # nothing is agreed on yet
    run.finish()
    pulls = run.record().pulls[0].tolist()
    states = {name: run.state(name) for name in run.parties}
    for i, price in enumerate(prices):
        assert states[f"owner-{i + 1}"]["owed"] == float(Decimal(str(price)) * pulls[i])
    assert [name for name, state in states.items() if "owed" in state] == [
        "owner-1",
        "owner-2",
        "owner-3",
    ]
    (owed,) = [one for one in sections(run.record()) if one.title == "What owners are owed"]
    plain = start(run.settings.plain())
    plain.finish()
    assert [one.rows for one in sections(plain.record()) if one.title == owed.title] == [owed.rows]
    assert any(
        sentence.startswith("An owner's statement of what it is owed")
        for sentence in run.settings.leaks()
    )
    bare = Samba(policy="ucb", owners=3, horizon=40, level=level)
    assert not any("owed" in sentence for sentence in bare.leaks())


@pytest.mark.parametrize(
    ("price", "says"),
    [
        (-1, "price must be 0 or more, got -1"),
        ((1, 2), "one number, or one an owner, got 2 for 3 owners"),
        (float("nan"), "price"),
        ("much", "price"),
    ],
)
def test_a_price_that_is_none_is_refused(price: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        Samba(owners=3, horizon=20, price=price).load()


def test_a_bill_says_no_more_than_the_number_of_pulls() -> None:
    terms = Terms("r", 80, "", 1, "strict", (), b"", price=(0.25,))
    assert _bill(80, terms) == (("price of a pull", "0.25"), ("owed to all owners", "20"))
    assert _bill(80, msgspec.structs.replace(terms, price=(0.25, 0.5))) == ()
    assert _bill(80, msgspec.structs.replace(terms, price=())) == ()


def test_replies_hide_the_bit_and_differ_at_strict() -> None:
    run = transcript(UCB(), "strict")
    assert run.transcript is not None
    replies = [entry.message.reply for entry in run.transcript if isinstance(entry.message, Reply)]
    assert len(set(replies)) == len(replies) == 54 * 6
    assert {len(reply) for reply in replies} == {8}


def test_comp_sees_other_frames_every_pass() -> None:
    """The same scores twice in a row (ties at zero) never give comp the same frames."""
    run = transcript(UCB(), "paper")
    assert run.transcript is not None
    batches = [entry.message.frames for entry in run.transcript if isinstance(entry.message, Batch)]
    size = frame_bytes(())
    chunks = [batch[i : i + size] for batch in batches for i in range(0, len(batch), size)]
    assert len(set(chunks)) == len(chunks) == 54 * 6


@pytest.mark.parametrize("level", LEVELS)
def test_no_secret_in_states_records_or_errors(
    level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    federation_ = Federation(Softmax(0.1), KEY, level=level, budget=40)
    shown: list[str] = []
    secrets: set[bytes] = set()
    for count, (_, receiver, message) in enumerate(federation_.deliveries()):
        if count % 7:
            continue
        for role in federation_.roles.values():
            secrets |= secrets_of(role)
            shown.append(repr(role.state()) + repr(role) + str(role))
        try:
            federation_.roles[receiver].receive("mallory", message)
        except Exception as error:
            shown.append(f"{error!r} {error}")
    record = run(Samba(policy="softmax", owners=4, budget=30, level=level, seed=987654321), key=KEY)  # type: ignore[arg-type]
    document = json.dumps(record.metadata())
    assert (
        "987654321" in document
    )  # the world seed of a simulation is in the record, and nothing secret is
    secrets |= {int(prime).to_bytes(128, "big") for prime in (KEY._p, KEY._q)}
    assert len(secrets) > 50
    text = document + "".join(shown) + "".join(capsys.readouterr())
    for secret in secrets:
        assert secret.hex() not in text
        assert repr(secret)[2:-1] not in text
        if len(secret) <= 128:
            assert str(int.from_bytes(secret, "big")) not in text
            assert str(int.from_bytes(secret, "little")) not in text


def test_memory_does_not_grow_with_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    # How long the blocks of an owner are depends on how often it is chosen, and so does their
    # memory, up to that of the longest block.
    monkeypatch.setattr(lane, "LONGEST_BLOCK", lane.SHORTEST_BLOCK)
    arms = embedded_arms("movielens", 5)

    def peak(budget: int) -> int:
        run = MemoryRun(federation(arms, UCB(), budget, seed=1), SimulatedWorld(arms, 1, budget))
        tracemalloc.start()
        for note in run:
            if note.step == budget:
                break
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(300)
    # Six thousand steps more: a single number kept a step (28 bytes and more) would show as 168,000
    # bytes.
    short, long = peak(2000), peak(8000)
    assert long < short + 100_000, (short, long)


def test_keys_change_within_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key for 64 indices only, a run passes through several keys and gives the same arms."""
    monkeypatch.setattr(frames, "FRAMES_PER_KEY", 64 * 6)
    arms = embedded_arms("movielens", 6)
    world = SimulatedWorld(arms, 8, 300, keep_arms=True)
    roles = federation(arms, UCB(), 300, seed=8, level="paper", key=KEY)
    MemoryRun(roles, world).finish()
    comp = next(role for role in roles if role.kind == "comp")
    assert comp._frames._epoch == 300 // 64  # type: ignore[attr-defined]
    twin = simulate(arms, UCB(), 300, [8], level="paper", keep_arms=True)
    assert twin.arms is not None
    assert world.arms == twin.arms[0].tolist()


def second_best(scores: np.ndarray, u: float) -> int:
    """Return the position of the second largest score."""
    return int(np.argsort(scores)[-2])


class SecondBest(Policy):
    """A user's own policy with a selection of its own."""

    name = "second-best"
    score = staticmethod(mean)

    def passes(self) -> tuple[Selection, ...]:
        return (ARGMAX, Selection("custom", choose=second_best))


def test_a_policy_of_ones_own() -> None:
    arms = BernoulliArms([0.1, 0.5, 0.9, 0.4])
    world = SimulatedWorld(arms, 4, 60, keep_arms=True)
    MemoryRun(federation(arms, SecondBest(), 60, seed=4, level="paper", key=KEY), world).finish()
    twin = simulate(arms, SecondBest(), 60, [4], level="paper", keep_arms=True)
    assert twin.arms is not None
    assert world.arms == twin.arms[0].tolist()
    assert world.pulls[2] < 56  # it is not the argmax


def test_a_plain_run_says_whose_twin_it_is_at_level_paper() -> None:
    found = [Samba(path="plain", level=level).protection for level in ("paper", "strict")]
    assert found == ["plain, twin of paper", "plain"]


def test_switches_belong_to_level_paper() -> None:
    with pytest.raises(ConfigError, match="level 'paper' only"):
        check_level("strict", Switches(mask=False), UCB())
    assert any("mask is OFF" in line for line in leaks("paper", Switches(mask=False), 5, UCB()))


@pytest.mark.parametrize("level", LEVELS)
def test_records_of_twins_are_identical_but_for_their_costs(level: str) -> None:
    settings = Samba(policy="pursuit", owners=4, budget=120, runs=2, seed=5, level=level)
    secure, plain = run(settings, key=KEY), run(settings.plain())
    np.testing.assert_array_equal(secure.reward, plain.reward)
    np.testing.assert_array_equal(secure.regret, plain.regret)
    np.testing.assert_array_equal(secure.pulls, plain.pulls)
    assert secure.total == plain.total
    assert secure.level == level
    assert plain.level == "plain"
    assert secure.bytes > 0
    dealers = {"dealer"} if level == "strict" else set()
    assert set(secure.role_seconds) == {"owner", "controller", "comp", "customer"} | dealers


def test_level_standard_of_0_1_is_refused_with_what_replaces_it() -> None:
    for mistake in (
        lambda: Samba(level="standard"),
        lambda: Samba(level="standard", path="plain"),
        lambda: invite({"level": "standard", "owners": ["a", "b"], "budget": 9}, Path()),
    ):
        with pytest.raises(ConfigError, match=r"removed in Posse 0\.2\. Use level 'strict'"):
            mistake()
