"""An agent refuses what the protocol does not allow, with its state as it was."""

from __future__ import annotations

import copy
import math
import pickle

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import BudgetError, ConfigError, ProtocolError
from posse.core.roles import WORLD, Message, Note, SendMany
from posse.privacy.crypto.keys import Secrets
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.noise import SecretNoise, SeededNoise
from posse.privacy.dp.plans import plan, plan_of_noise
from posse.problems.markets.instances import market_instance
from posse.runtime.memory import MemoryRun
from posse.systems.dp_combinatorial.agent import Agent, Buyer
from posse.systems.dp_combinatorial.federation import SimulatedMarket, federation
from posse.systems.dp_combinatorial.messages import Buy, Delivered, Hello, Report
from posse.systems.dp_combinatorial.terms import VERSION, Terms

TERMS = Terms(("a", "b", "c"), ("p", "q"), 6, reports=(2, 4), multipliers=(1.0, 1.0))
REPORT = Report(0, (5.0, 3.0), (2.0, 1.0))


def agent(name="a", terms=TERMS, ledger=None):
    buyer = Buyer(np.array([0.1, 0.2]), np.array([4.0, 5.0]), 0.2, 1.0)
    if ledger is None and any(terms.multipliers):
        ledger = Ledger(plan_of_noise(terms.multipliers, rounds=terms.reports, producers=2), name)
    return Agent(name, terms, buyer, SeededNoise(3), ledger)


def greeted(one=None):
    one = one or agent()
    one.start()
    actions = [one.receive(other, Hello(VERSION, one._terms.digest)) for other in ("b", "c")]
    return one, actions[-1][0]


def waiting():
    """An agent that has sent report 0 and waits for those of b and c."""
    one, buy = greeted()
    (*_, buy) = one.receive(WORLD, Delivered(1, tuple(float(x) for x in buy.units)))
    one.receive(WORLD, Delivered(2, (0.0, 0.0)))
    return one


def refused(one: Agent, sender: str, message: Message, what: str) -> None:
    """Deliver a message; it must be refused with these words and change nothing."""
    before = pickle.dumps(one.__dict__)
    with pytest.raises(ProtocolError, match=what):
        one.receive(sender, message)
    assert pickle.dumps(one.__dict__) == before


def test_plays_on_when_all_is_well():
    one = waiting()
    assert one.receive("c", REPORT) == ()
    (buy,) = one.receive("b", REPORT)
    assert isinstance(buy, Buy)
    assert buy.round == 3


@pytest.mark.parametrize(
    ("sender", "message", "what"),
    [
        ("mallory", REPORT, "does not know 'mallory'"),
        ("a", REPORT, "does not know 'a'"),
        ("b", Report(2, (5.0, 3.0), (2.0, 1.0)), "expects report 0 of b, got report 2"),
        ("b", Report(-1, (5.0, 3.0), (2.0, 1.0)), "expects report 0"),
        ("b", Report(0, (5.0,), (2.0,)), "must have 2 numbers"),
        ("b", Report(0, (5.0, 3.0), (2.0, 1.0, 0.0)), "must have 2 numbers"),
        ("b", Report(0, (5.0, 3.0), (2.0, 1.0), (1.0, 1.0)), "must have 2 numbers"),
        ("b", Report(0, (5.0, math.nan), (2.0, 1.0)), "numbers up to"),
        ("b", Report(0, (5.0, 1.0), (-math.inf, 1.0)), "numbers up to"),
        ("b", Report(0, (1e300, 1.0), (1.0, 1.0)), "numbers up to"),
        ("b", Hello(VERSION, TERMS.digest), "greeted a already"),
        ("b", Delivered(2, (0.0, 0.0)), "nothing agents send"),
        (WORLD, Delivered(2, (0.0, 0.0)), "is in round 2"),
        (WORLD, REPORT, "does not know 'world'"),
    ],
)
def test_refuses(sender, message, what):
    refused(waiting(), sender, message, what)


def test_refuses_a_second_report_of_one_number():
    one = waiting()
    one.receive("b", REPORT)
    refused(one, "b", Report(0, (9.0, 9.0), (9.0, 9.0)), "has report 0 of b already")


def test_takes_a_report_one_ahead_and_uses_it_later():
    one = waiting()
    one.receive("b", REPORT)
    one.receive("b", Report(1, (1.0, 1.0), (1.0, 1.0)))
    refused(one, "b", Report(2, (1.0, 1.0), (1.0, 1.0)), "expects report 0 of b, got report 2")
    (buy,) = one.receive("c", REPORT)
    for t in (3, 4):
        assert buy.round == t
        *_, buy = one.receive(WORLD, Delivered(t, (0.0, 0.0)))
    assert isinstance(buy, SendMany)  # its own report 1; b's lies ready, c's does not
    (buy,) = one.receive("c", Report(1, (1.0, 1.0), (1.0, 1.0)))
    assert buy.round == 5


@pytest.mark.parametrize(
    "good", [(-1.0, 0.0), (5.0, 0.0), (0.0,), (math.nan, 0.0), (0.0, 0.0, 0.0)]
)
def test_refuses_deliveries_that_cannot_be(good):
    one, buy = greeted()
    assert buy.units == (4, 5)
    refused(one, WORLD, Delivered(1, good), "each from 0 to the units that")


def test_takes_reports_of_those_who_have_greeted_and_of_nobody_else():
    one = agent()
    one.start()
    refused(one, "b", REPORT, "expects report 0")
    one.receive("b", Hello(VERSION, TERMS.digest))
    assert one.receive("b", REPORT) == ()  # c's greeting may come later than b's report
    refused(one, "c", REPORT, "expects report 0")


def test_a_delivery_comes_once_and_not_before_it_was_asked_for():
    one = agent()
    one.start()
    refused(one, WORLD, Delivered(0, (0.0, 0.0)), "is in round 0")
    alone = agent(terms=Terms(("a", "b"), ("p", "q"), 1, method="alone"))
    alone.start()
    refused(alone, "b", Hello(VERSION, TERMS.digest), "does not know 'b'")
    alone.receive(WORLD, Delivered(1, (0.0, 0.0)))
    refused(alone, WORLD, Delivered(1, (0.0, 0.0)), "is in round 1")


def test_reports_beyond_the_plan_are_refused():
    one = agent(terms=Terms(("a", "b", "c"), ("p", "q"), 6, reports=(2,), multipliers=(1.0,)))
    greeted(one)
    refused(one, "b", Report(1, (5.0, 3.0), (2.0, 1.0)), "got report 1")


@pytest.mark.parametrize(
    "ledger",
    [
        None,
        Ledger(plan_of_noise((1.0, 2.0), rounds=(2, 4), producers=2), "a"),
        Ledger(plan_of_noise((1.0, 1.0), rounds=(2, 5), producers=2), "a"),
        Ledger(plan_of_noise((1.0, 1.0), rounds=(2, 4), producers=1), "a"),
    ],
)
def test_a_ledger_must_pay_for_what_is_sent(ledger):
    buyer = Buyer(np.array([0.1, 0.2]), np.array([4.0, 5.0]), 0.2, 1.0)
    with pytest.raises(ConfigError, match="ledger"):
        Agent("a", TERMS, buyer, SeededNoise(3), ledger)
    fcb = Terms(("a", "b"), ("p", "q"), 6, method="fcb")
    with pytest.raises(ConfigError, match="every round"):
        Agent(
            "a",
            fcb,
            buyer,
            SeededNoise(3),
            Ledger(plan_of_noise(1.0, rounds=(2,), producers=2), "a"),
        )


def test_noise_beyond_the_arithmetic_is_refused():
    ledger = Ledger(plan_of_noise(1e6, rounds=(2,), producers=2), "a")
    buyer = Buyer(np.array([0.1, 0.2]), np.array([4.0, 1e9]), 0.2, 1.0)
    with pytest.raises(ConfigError, match="larger than 53-bit arithmetic"):
        Agent(
            "a",
            Terms(("a", "b"), ("p", "q"), 6, reports=(2,), multipliers=(1e6,)),
            buyer,
            SeededNoise(3),
            ledger,
        )


def test_refuses_other_terms_and_other_versions():
    one = agent()
    one.start()
    other = msgspec.structs.replace(TERMS, multipliers=(1.0, 0.5))
    refused(one, "b", Hello(VERSION, other.digest), "the terms of 'b' differ from those here")
    refused(
        one, "b", Hello(VERSION + 1, TERMS.digest), f"version {VERSION + 1} .* version {VERSION}"
    )


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_no_sequence_of_messages_breaks_an_agent(data):
    """Whatever arrives, it is taken or refused without a change; reports are never sent twice."""
    one = agent()
    one.start()
    sent = []
    for _ in range(data.draw(st.integers(1, 25))):
        sender = data.draw(st.sampled_from(["b", "c", "a", "d", WORLD]))
        numbers = st.floats(-50, 50, width=16)
        pair = st.tuples(numbers, numbers)
        message = data.draw(
            st.one_of(
                st.just(Hello(VERSION, TERMS.digest)),
                st.builds(Report, st.integers(-1, 3), pair, pair),
                st.builds(
                    Delivered, st.integers(0, 7), st.tuples(st.integers(0, 4), st.integers(0, 5))
                ),
            )
        )
        before = pickle.dumps(one.__dict__)
        try:
            actions = one.receive(sender, message)
        except ProtocolError:
            assert pickle.dumps(one.__dict__) == before
            continue
        sent += [action.sends[0][2].number for action in actions if isinstance(action, SendMany)]
    assert sent == sorted(set(sent))


def test_the_budget_is_paid_before_anything_is_sent():
    planned = plan(Budget(1, 0.01), rounds=TERMS.reports, producers=2)
    ledger = Ledger(planned, "a")
    ledger.spend(0)  # a first release of the same window, before a crash say
    terms = msgspec.structs.replace(TERMS, multipliers=planned.multipliers)
    one, _ = greeted(agent(terms=terms, ledger=ledger))
    one.receive(WORLD, Delivered(1, (0.0, 0.0)))
    before = one.state()
    with pytest.raises(BudgetError, match="cannot send message 1"):
        one.receive(WORLD, Delivered(2, (1.0, 1.0)))
    assert one.state() == before


def test_noise_from_the_system_differs_between_runs_and_seeded_noise_does_not():
    market = market_instance(1, agents=3, producers=6, alpha=0.2)
    terms = Terms(market.agents, market.producers, 60, reports=(20, 40), multipliers=(1.0, 1.0))

    def reports(seed):
        run = MemoryRun(
            federation(market, terms, seed=seed), SimulatedMarket(market, 5, 60), transcript=1000
        )
        run.finish()
        return [entry.message for entry in run.transcript if isinstance(entry.message, Report)]

    assert reports(5) == reports(5)
    assert reports(None) != reports(None)
    assert isinstance(federation(market, terms, seed=None)[0]._noise, SecretNoise)


def test_one_secret_draws_other_noise_for_every_agent_run_terms_and_offers():
    """Two windows under one noise would show the difference of what was bought in them."""
    secrets = Secrets.fresh()

    def drawn(name="a", run="march", rounds=6, cost=0.1):
        terms = msgspec.structs.replace(TERMS, rounds=rounds)
        buyer = Buyer(np.array([cost, 0.2]), np.array([4.0, 5.0]), 0.2, 1.0)
        plan = plan_of_noise(terms.multipliers, rounds=terms.reports, producers=2)
        one = Agent(name, terms, buyer, None, Ledger(plan, name), secrets=secrets, run=run)
        return one._noise.pair(0, 0, 1e9)

    assert drawn() == drawn()
    others = [drawn(name="b"), drawn(run="april"), drawn(rounds=7), drawn(cost=0.3)]
    assert len({drawn(), *others}) == 5


def test_state_shows_whom_it_waits_for():
    one = waiting()
    one.receive("b", REPORT)
    state = copy.deepcopy(one.state())
    assert state["waiting for"] == ["c"]
    assert (state["step"], state["unit"]) == (2, "round")
    assert agent().state()["waiting for"] == ["b", "c"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"method": "gossip"}, "unknown method 'gossip'"),
        ({"rule": "vote"}, "unknown rule 'vote'"),
        ({"agents": ("a",)}, "at least 2 agents"),
        ({"multipliers": (1.0,)}, "one noise multiplier per report"),
        ({"reports": (4, 2)}, "increasing rounds"),
        ({"weight": 0.0}, "weight must be"),
    ],
)
def test_terms_that_cannot_be(changes, what):
    with pytest.raises(ConfigError, match=what):
        msgspec.structs.replace(TERMS, **changes)


def test_a_finished_agent_says_so():
    one = agent(terms=Terms(("a",), ("p", "q"), 1, method="alone"))
    one.start()
    *_, last = one.receive(WORLD, Delivered(1, (0.0, 0.0)))
    assert isinstance(last, Note)
    assert last.kind == "done"
