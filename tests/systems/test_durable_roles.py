"""A role that is made anew and loads what it saved goes on as if nothing had happened; given again
what came, it does and says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import JournalError, ProtocolError
from posse.policies import UCB, EpsilonGreedy, Policy, Pursuit
from posse.privacy.crypto.keys import Secrets
from posse.privacy.crypto.paillier import PrivateKey, generate_key
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.noise import SecretNoise, SeededNoise
from posse.privacy.dp.plans import plan
from posse.privacy.sharing import shuffle
from posse.problems import BernoulliArms
from posse.problems.markets.instances import market_instance
from posse.systems.dp_combinatorial.agent import Agent
from posse.systems.dp_combinatorial.federation import SimulatedMarket
from posse.systems.dp_combinatorial.federation import federation as agents_of_market
from posse.systems.dp_combinatorial.messages import Delivered, Report
from posse.systems.dp_combinatorial.terms import Terms
from posse.systems.samba.federation import SimulatedWorld, federation
from posse.systems.samba.messages import Batch, Close
from posse.systems.samba.strict import controller as strict_controller
from posse.systems.samba.strict.closing import ask
from posse.systems.samba.strict.messages import Compare, Shuffled
from tests.systems.durable import Moved, Recorded, samba_anew, samba_meaning

KEY: PrivateKey = generate_key(2048)
ARMS, BUDGET = BernoulliArms(np.linspace(0.2, 0.8, 4)), 26
PARTIES = ["customer", "controller", "comp", "dealer", "owner-1", "owner-2", "owner-3", "owner-4"]
POLICIES: dict[str, Policy] = {
    "ucb": UCB(),
    "epsilon-greedy": EpsilonGreedy(0.4),
    "pursuit": Pursuit(0.05),
}
LEVELS = ("strict", "paper")
CASES = [(level, policy, seed) for level in LEVELS for policy in POLICIES for seed in (3, None)]

METHODS = [
    ("p-fcb", "accept"),
    ("p-fcb", "fuse"),
    ("placebo", "accept"),
    ("fcb", "accept"),
    ("alone", "accept"),
]
MARKET = market_instance(1, agents=3, producers=5, alpha=0.2)
ROUNDS, REPORTS = 24, (4, 8, 16)
PLAN = plan(Budget(1, 0.01), rounds=REPORTS, producers=5)


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """At level strict the dealer deals two passes and sixteen comparisons at a time, so that runs
    cross chunks.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "_CHUNK", 64)
        for module in (shuffle, strict_controller):
            patch.setattr(module, "PAIRS", 16)
        yield


# Samba: every role, both levels, one pass and two, with a world seed and without ------------------


@lru_cache
def samba_roles(level: str, policy: str, seed: int | None) -> list[Any]:
    """The roles of one run, from which others with the same arguments are made; without a seed all
    is from secrets.
    """
    return list(federation(ARMS, POLICIES[policy], BUDGET, seed=seed, level=level, key=KEY))  # type: ignore[arg-type]


def samba(*case: Any) -> Moved:
    world = SimulatedWorld(ARMS, 3, BUDGET, keep_arms=True)
    return Moved(map(samba_anew, samba_roles(*case)), world, samba_anew)


@lru_cache
def samba_recorded(*case: Any) -> Recorded:
    world = SimulatedWorld(ARMS, 3, BUDGET, keep_arms=True)
    return Recorded(
        map(samba_anew, samba_roles(*case)), world, samba_anew, meaning=samba_meaning(KEY)
    ).finish()


def outcome(run: Moved) -> object:
    """Everything a run is for: arms in order, pulls, sums, the customer's total and every step that
    was noted.
    """
    assert [note.value for note in run.notes if note.kind == "total"] == [
        run.world.units.sum() / 2**24
    ]
    assert len(run.world.arms) == BUDGET
    return run.world.arms, run.world.pulls.tolist(), run.world.units.tolist(), run.notes


@pytest.mark.parametrize("every", [1, pytest.param(3, marks=pytest.mark.long), 10])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_samba_goes_on_after_restarts(case: Any, every: int) -> None:
    """The receiver restarts before every so-manieth input, and from time to time everybody does."""
    run = samba(*case)
    for number, next_input in enumerate(run.inputs()):
        everybody = list(run.roles)
        for name in (
            everybody if number % 29 == 28 else [next_input.receiver] if number % every == 0 else []
        ):
            run.restart(name)
    assert outcome(run) == outcome(samba_recorded(*case))


@settings(max_examples=25, deadline=None)
@given(
    case=st.sampled_from(CASES),
    crashes=st.sets(st.tuples(st.integers(0, 500), st.sampled_from(PARTIES))),
)
def test_samba_goes_on_wherever_it_stops(case: Any, crashes: set[tuple[int, str]]) -> None:
    run = samba(*case)
    for number, _ in enumerate(run.inputs()):
        for name in run.roles:
            if (number, name) in crashes:
                run.restart(name)
    assert outcome(run) == outcome(samba_recorded(*case))


def test_passes_of_several_questions_go_on_after_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """At level strict, above 16 owners: the servers ask and answer the same, between two questions
    too.
    """
    monkeypatch.setattr(shuffle, "_CHUNK", 320)  # two passes
    arms, budget, asked = BernoulliArms(np.linspace(0.2, 0.8, 20)), 32, []
    roles = list(federation(arms, UCB(), budget, seed=None, level="strict"))
    for restarts in (False, True):
        run = Moved(
            map(samba_anew, roles), SimulatedWorld(arms, 3, budget, keep_arms=True), samba_anew
        )
        questions: list[object] = []
        for number, next_input in enumerate(run.inputs()):
            if isinstance(next_input.message, Shuffled | Compare):
                questions.append(next_input.message)
            for name in ("controller", "comp", "dealer"):
                if restarts and (name == next_input.receiver or number % 37 == 0):
                    run.restart(name)
        asked.append((questions, run.world.arms))
    assert any(isinstance(question, Compare) for question in asked[0][0])
    assert asked[0] == asked[1]


def test_samba_keeps_replies_that_came_before_a_slow_reward() -> None:
    """At level paper an exploring step does not wait for the reward of the one before."""

    def slow() -> Moved:
        world = SimulatedWorld(ARMS, 3, BUDGET, keep_arms=True)
        return Moved(
            map(samba_anew, samba_roles("paper", "epsilon-greedy", 3)), world, samba_anew, slow=True
        )

    undisturbed, run, kept = slow().finish(), slow(), 0
    for next_input in run.inputs():
        kept += bool(run.roles[next_input.receiver].save().get("early"))
        run.restart(next_input.receiver)
    assert kept > 3
    assert outcome(run) == outcome(undisturbed)


def restored(life: Any, at: int = -1) -> Any:
    fresh = samba_anew(life.role)
    fresh.load(life.saved[at])
    return fresh


def test_samba_keeps_what_is_done_once_after_a_restart() -> None:
    """One set of owners an owner, one set of frames a pass at comp, one total at the customer."""
    lives = samba_recorded("strict", "ucb", None).lives
    customer, owner = (restored(lives[name]) for name in ("customer", "owner-2"))
    close = lives["owner-2"].inputs[-2].message
    assert isinstance(close, Close)
    fewer = ask(customer._identity, close.present[:3], 1, customer._digest)
    for another in (close, fewer):
        with pytest.raises(ProtocolError, match="one set of owners"):
            owner.receive("controller", another)
    for again in lives["customer"].inputs[-2:]:
        with pytest.raises(ProtocolError):
            customer.receive(again.sender, again.message)
    lives = samba_recorded("paper", "ucb", None).lives
    comp, batch = restored(lives["comp"]), lives["comp"].inputs[-2].message
    assert isinstance(batch, Batch)
    assert samba_meaning(KEY)(comp, comp.receive("controller", batch)) == lives["comp"].meant[-2]
    size = len(batch.frames) // 4
    with pytest.raises(ProtocolError, match="is answered"):
        comp.receive("controller", Batch(batch.index, batch.frames[size:] + batch.frames[:size]))


def replayed(recorded: Recorded, name: str, first: int, last: int) -> None:
    """Load what a role saved before input `first`, give it the inputs up to `last`: it says and
    becomes the same.
    """
    life = recorded.lives[name]
    fresh = recorded.anew(life.role)
    if first == 0:
        fresh.start()
    fresh.load(life.saved[first])
    assert fresh.save() == life.saved[first]
    for at in range(first, last):
        actions = fresh.receive(life.inputs[at].sender, life.inputs[at].message)
        assert recorded.meaning(fresh, actions) == life.meant[at]
    assert fresh.save() == life.saved[last]


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(CASES), data=st.data())
def test_samba_replays(case: Any, data: st.DataObject) -> None:
    recorded = samba_recorded(*case)
    name = data.draw(st.sampled_from(sorted(recorded.lives)))
    last = data.draw(st.integers(0, len(recorded.lives[name].inputs)))
    replayed(recorded, name, data.draw(st.integers(0, last)), last)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_samba_replays_from_the_beginning(case: Any) -> None:
    for name in samba_recorded(*case).lives:
        replayed(samba_recorded(*case), name, 0, len(samba_recorded(*case).lives[name].inputs))


@pytest.mark.parametrize(
    "case",
    [("strict", "pursuit", None), ("paper", "pursuit", None), ("paper", "epsilon-greedy", None)],
    ids=str,
)
def test_samba_saves_no_root_and_nothing_that_derives_from_it(
    case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived: dict[bytes, set[bytes]] = {}
    key = Secrets.key

    def noted(self: Secrets, purpose: bytes, size: int = 32, **context: bytes) -> bytes:
        made = key(self, purpose, size, **context)
        derived.setdefault(self.export(), set()).update((made, made[::-1]))
        return made

    monkeypatch.setattr(Secrets, "key", noted)
    world = SimulatedWorld(ARMS, 3, BUDGET, keep_arms=True)
    recorded = Recorded(
        map(samba_anew, samba_roles(*case)), world, samba_anew, meaning=samba_meaning(KEY)
    ).finish()
    primes = {int(prime).to_bytes(128, "big") for prime in (KEY._p, KEY._q)}
    least = {"customer": 1, "controller": 1, "comp": 2, "dealer": 3, "owner-1": 4}
    if case[0] != "strict":
        least = {"customer": 1, "controller": 4, "comp": 2, "owner-1": 4}
    for name, life in recorded.lives.items():
        root = life.role._secrets.export()
        assert len(derived[root]) >= 2 * least.get(name, 2)
        for saved in life.saved:
            written = msgspec.msgpack.encode(saved)
            for secret in (root, root.hex().encode(), *derived[root], *primes):
                assert secret not in written, name


def test_samba_keeps_the_keys_it_was_given() -> None:
    """What cannot be derived again must be there: the test above would pass on a role that saves
    nothing.
    """
    lives = samba_recorded("paper", "ucb", None).lives
    k_frame, s_own = lives["owner-1"].role._keys
    assert lives["owner-3"].saved[-1]["keys"] == k_frame + s_own
    assert lives["comp"].saved[-1]["k_frame"] == k_frame
    assert lives["owner-1"].saved[-1]["keys"] == b""


@pytest.mark.parametrize("level", LEVELS)
def test_one_root_in_two_runs_gives_them_nothing_in_common_but_the_run_key(level: str) -> None:
    roles = samba_roles(level, "ucb", None)
    first = Moved(
        map(samba_anew, roles), SimulatedWorld(ARMS, 3, BUDGET, keep_arms=True), samba_anew
    )
    second = Moved(
        map(samba_anew, roles), SimulatedWorld(ARMS, 3, BUDGET, keep_arms=True), samba_anew
    )
    second.roles["customer"]._terms = msgspec.structs.replace(roles[0]._terms, run="another")
    one, two = first.finish().roles, second.finish().roles
    assert one["owner-1"]._run_key.public == two["owner-1"]._run_key.public
    assert not set(one["owner-1"]._keys) & set(two["owner-1"]._keys)
    mine, later, other = one["owner-2"]._lane, two["owner-2"]._lane, one["owner-3"]._lane
    assert mine._seeds._words._key != later._seeds._words._key
    if level == "paper":
        assert mine._masks._words._key != later._masks._words._key
        assert one["controller"]._order._words._key != two["controller"]._order._words._key
        assert one["comp"]._draws._words._key != two["comp"]._draws._words._key
    else:
        assert mine._coins._words._key != later._coins._words._key
        assert mine._pads._key not in (later._pads._key, other._pads._key)
    with pytest.raises(JournalError, match=r"run another"):
        samba_anew(roles[0]).load(second.roles["customer"].save())


def refuses(role: Any, saved: Any, match: str = ".") -> None:
    with pytest.raises(JournalError, match=match):
        role.load(saved)


@pytest.mark.parametrize("name", PARTIES)
def test_samba_refuses_what_another_saved(name: str) -> None:
    lives = samba_recorded("strict", "ucb", 3).lives
    anew = lambda: samba_anew(lives[name].role)  # noqa: E731
    for other in PARTIES:
        if other != name:
            refuses(anew(), lives[other].saved[-1], f"this is .*'{name}'")
    for at in (0, -1):
        refuses(anew(), samba_recorded("strict", "ucb", None).lives[name].saved[at], "another run")
        saved = lives[name].saved[at]
        refuses(anew(), {**saved, "version": 2}, "format 1")
        refuses(anew(), {**saved, "kind": "agent"}, "of agent")
        refuses(anew(), {**saved, "more": 1}, "damaged")
        refuses(anew(), {}, "format")


@pytest.mark.parametrize(
    ("name", "level"),
    [
        (name, level)
        for name in PARTIES
        for level in LEVELS
        if name != "dealer" or level == "strict"
    ],
)
def test_samba_refuses_damage(name: str, level: str) -> None:
    life = samba_recorded(level, "pursuit", 3).lives[name]
    for saved in (life.saved[0], life.saved[len(life.saved) // 2], life.saved[-1]):
        for field in saved:
            rest = {key: value for key, value in saved.items() if key != field}
            refuses(samba_anew(life.role), rest)
            refuses(samba_anew(life.role), {**saved, field: {"no": [1.5]}})
    saved = life.saved[len(life.saved) // 2]
    refuses(samba_anew(life.role), {**saved, "manifest": saved["manifest"][:-1]})
    if name != "customer":
        refuses(samba_anew(life.role), {**saved, "manifest": b""}, "without a manifest")
        for index in (0, 10**6) if name != "dealer" else ():
            refuses(samba_anew(life.role), {**saved, "index": index}, "outside the run")
    comp = {"streams": [b"short"]} if level == "strict" else {"k_frame": bytes(32)}
    wrong: Any = {
        "comp": comp,
        "controller": {"frames": {"mallory": b""}},
        "owner-2": {"keys": b"short"},
    }
    if name in wrong:
        refuses(samba_anew(life.role), {**saved, **wrong[name]}, "damaged")


# Agents -------------------------------------------------------------------------------------------


ROOTS = {name: Secrets.fresh().export() for name in MARKET.agents}


def agents(method: str, rule: str, seed: int | None) -> tuple[list[Any], SimulatedMarket, Any]:
    reports = REPORTS if method in ("p-fcb", "placebo") else ()
    terms = Terms(
        MARKET.agents,
        MARKET.producers,
        ROUNDS,
        method,
        reports,
        PLAN.multipliers if reports else (),
        rule,
        0.5,
    )
    buyers = {role.name: role._buyer for role in agents_of_market(MARKET, terms, seed=0)}  # type: ignore[attr-defined]

    def anew(role: Any) -> Agent:
        name = role if isinstance(role, str) else role.name
        noise = None if seed is None else SeededNoise(seed + MARKET.agents.index(name))
        ledger = Ledger(PLAN, name) if reports else None
        return Agent(
            name, terms, buyers[name], noise, ledger, secrets=Secrets(ROOTS[name]), run="r"
        )

    return [anew(name) for name in MARKET.agents], SimulatedMarket(MARKET, 5, ROUNDS), anew


def agents_meaning(role: Any, actions: Any) -> object:
    return list(actions)  # reports and purchases are the same bit for bit


@lru_cache
def agents_recorded(*case: Any) -> Recorded:
    return Recorded(*agents(*case), meaning=agents_meaning).finish()


AGENT_CASES = [(*method, seed) for method in METHODS for seed in (5, None)]


def knowledge(run: Moved) -> object:
    """What every agent knows, bit for bit, what it took, paid and earned."""
    rows = [
        (
            [array.tobytes() for array in role.knowledge],
            role.taken,
            role.ledger.entries() if role.ledger else None,
        )
        for role in run.roles.values()
    ]
    return rows, run.world.curves.earned.tobytes(), run.notes


@pytest.mark.parametrize("every", [1, pytest.param(4, marks=pytest.mark.long), 11])
@pytest.mark.parametrize("case", AGENT_CASES, ids=str)
def test_agents_go_on_after_restarts(case: Any, every: int) -> None:
    run = Moved(*agents(*case))
    for number, next_input in enumerate(run.inputs()):
        for name in (
            MARKET.agents
            if number % 13 == 12
            else [next_input.receiver]
            if number % every == 0
            else []
        ):
            run.restart(name)
    assert knowledge(run) == knowledge(agents_recorded(*case))
    assert all(role.finished for role in run.roles.values())
    for role in run.roles.values():
        if role.ledger is not None:
            assert role.ledger.state()["released"] == [0, 1, 2]  # each paid for once


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(AGENT_CASES), name=st.sampled_from(MARKET.agents), data=st.data())
def test_agents_replay(case: Any, name: str, data: st.DataObject) -> None:
    recorded = agents_recorded(*case)
    last = data.draw(st.integers(0, len(recorded.lives[name].inputs)))
    replayed(recorded, name, data.draw(st.integers(0, last)), last)


def test_a_replayed_payment_is_paid_once_and_its_report_has_the_same_noise() -> None:
    recorded = agents_recorded("p-fcb", "accept", None)
    life = recorded.lives[MARKET.agents[1]]
    at = next(
        i
        for i, one in enumerate(life.inputs)
        if isinstance(one.message, Delivered) and one.message.round == 8
    )
    before, after = life.saved[at], life.saved[at + 1]
    assert (before["ledger"]["released"], after["ledger"]["released"]) == ([0], [0, 1])
    assert any(
        isinstance(action.sends[0][2], Report)
        for action in life.meant[at]
        if hasattr(action, "sends")
    )  # type: ignore[attr-defined]
    for start in (at, 0):
        replayed(recorded, MARKET.agents[1], start, at + 1)


def test_an_agent_s_snapshot_holds_no_secret_and_is_bound_to_its_run() -> None:
    (first, *_), _, anew = agents("p-fcb", "accept", None)
    assert isinstance(first._noise, SecretNoise)
    terms, buyer, root = first._terms, first._buyer, ROOTS[first.name]
    for saved in agents_recorded("p-fcb", "accept", None).lives[first.name].saved:
        written = msgspec.msgpack.encode(saved)
        assert root not in written
        assert first._noise._words._key not in written
    others = [
        anew(MARKET.agents[1]),
        Agent(first.name, terms, buyer, None, Ledger(PLAN, first.name), run="r"),
        Agent(
            first.name, terms, buyer, None, Ledger(PLAN, first.name), secrets=Secrets(root), run="s"
        ),
        Agent(first.name, terms, buyer, SeededNoise(1), Ledger(PLAN, first.name), run="r"),
        Agent(
            first.name,
            msgspec.structs.replace(terms, weight=3.0),
            buyer,
            None,
            Ledger(PLAN, first.name),
            secrets=Secrets(root),
            run="r",
        ),
    ]
    for other in others:
        refuses(other, saved)
    assert others[2]._noise.pair(0, 0, 1e9) != first._noise.pair(0, 0, 1e9)


@pytest.mark.parametrize("case", [("p-fcb", "fuse", None), ("alone", "accept", 5)], ids=str)
def test_agents_refuse_damage(case: Any) -> None:
    recorded = agents_recorded(*case)
    life = recorded.lives[MARKET.agents[0]]
    anew = lambda: recorded.anew(life.role)  # noqa: E731
    for saved in (
        life.saved[0],
        max(life.saved, key=lambda one: len(one["inbox"])),
        life.saved[-1],
    ):
        for field in saved:
            if field != "first":  # which snapshots of earlier versions lack
                refuses(anew(), {key: value for key, value in saved.items() if key != field})
            refuses(anew(), {**saved, field: {"no": [1.5]}})
    for field, value in {
        "purchase": bytes(39),
        "knowledge": [bytes(40)] * 5,
        "round": ROUNDS + 1,
        "sent": -1,
        "learnt": 99,
        "greeted": ["mallory"],
        "ledger": {"party": "mallory"},
        "inbox": [["mallory", ["Report", 0, [], []]]],
    }.items():
        refuses(anew(), {**saved, field: value}, "damaged")
