"""What leaves an agent, and that it holds no more than its noise lets through."""

from __future__ import annotations

import numpy as np

from posse.core.random import derive_key
from posse.core.roles import WORLD, SendMany
from posse.privacy.dp.audit import Canary, audit, trials_needed
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.noise import SeededNoise
from posse.privacy.dp.plans import plan_of_noise
from posse.problems.markets.instances import market_instance
from posse.problems.markets.market import make_market
from posse.runtime.memory import MemoryRun
from posse.systems.dp_combinatorial.agent import Agent, Buyer
from posse.systems.dp_combinatorial.federation import SimulatedMarket, federation
from posse.systems.dp_combinatorial.messages import Delivered, Hello, Report
from posse.systems.dp_combinatorial.terms import VERSION, Terms


def transcript(market, terms, seed=1):
    run = MemoryRun(
        federation(market, terms, seed=seed),
        SimulatedMarket(market, seed, terms.rounds),
        transcript=10_000,
    )
    run.finish()
    return run.transcript


def sent(entries, sender):
    return [
        entry for entry in entries if entry.sender == sender and isinstance(entry.message, Report)
    ]


def test_everyone_gets_the_same_pair_once():
    market = market_instance(1, agents=4, producers=6, alpha=0.2)
    terms = Terms(
        market.agents, market.producers, 100, reports=(20, 40, 80), multipliers=(2.0, 2.0, 2.0)
    )
    entries = transcript(market, terms)
    for name in market.agents:
        mine = sent(entries, name)
        assert len(mine) == 3 * 3
        for number in range(3):
            assert len({entry.message for entry in mine if entry.message.number == number}) == 1


def test_reports_are_whole_numbers_also_where_quality_is_not():
    rng = np.random.default_rng(1)
    market = make_market(
        None,
        rng.random((2, 3)) * 0.3,
        rng.integers(1, 9, (2, 3)),
        alpha=0.2,
        records=[rng.random(17) for _ in range(3)],
    )
    terms = Terms(market.agents, market.producers, 50, reports=(20, 40), multipliers=(1.0, 1.0))
    for entry in transcript(market, terms):
        if isinstance(entry.message, Report):
            assert all(x == round(x) for x in (*entry.message.units, *entry.message.good))


def test_a_report_tells_nothing_of_producers_an_agent_does_not_deal_with():
    market = market_instance(3, agents=4, producers=8, overlap=0.5, alpha=0.2)
    terms = Terms(market.agents, market.producers, 50, reports=(20, 40), multipliers=(1.0, 1.0))
    for j, name in enumerate(market.agents):
        for entry in sent(transcript(market, terms), name):
            assert not np.array(entry.message.units)[market.capacity[j] == 0].any()


def test_capacities_are_told_only_where_reports_are_fused():
    market = market_instance(1, agents=3, producers=5, alpha=0.2)
    for rule, told in (("accept", 0), ("fuse", 5)):
        terms = Terms(
            market.agents, market.producers, 50, reports=(20, 40), multipliers=(1.0, 1.0), rule=rule
        )
        assert {
            len(entry.message.sigma) for entry in sent(transcript(market, terms), "agent-1")
        } == {told}


def test_alone_says_nothing_and_placebo_nothing_of_purchases():
    market = market_instance(1, agents=3, producers=5, alpha=0.2)
    silent = transcript(market, Terms(market.agents, market.producers, 30, "alone"))
    assert not [entry for entry in silent if isinstance(entry.message, Report | Hello)]
    terms = Terms(
        market.agents, market.producers, 50, "placebo", reports=(20, 40), multipliers=(1.0, 1.0)
    )
    richer = make_market(
        market.quality[0], market.cost * 0, market.capacity, alpha=0.0
    )  # buys everything
    said = [entry.message for entry in sent(transcript(market, terms), "agent-1")]
    assert said == [entry.message for entry in sent(transcript(richer, terms), "agent-1")]


MULTIPLIER, CAPACITY, PRODUCERS = 2.66, 20, 300
CLAIMED = np.sqrt(2) / MULTIPLIER


class Reports:
    """Real agents that buy a canary entry and report it; every producer of a report is one trial.

    `noise` weakens the noise against what is claimed; `twice` lets the adversary see the window
    reported twice.
    """

    def __init__(self, noise=1.0, twice=False):
        self._noise, self._releases, self._seed = noise, 2 if twice else 1, 0

    def __call__(self, entry, trials):
        reports = -(-trials // PRODUCERS)
        rows = [
            np.concatenate([self._report(entry) for _ in range(self._releases)]).T
            for _ in range(reports)
        ]
        return np.concatenate(rows)[:trials]

    def _report(self, entry):
        """One agent's report about one round in which it bought `entry` units of every producer,
        all good.
        """
        self._seed += 1
        names = tuple(f"p{i}" for i in range(PRODUCERS))
        terms = Terms(("a", "b"), names, 1, reports=(1,), multipliers=(self._noise * MULTIPLIER,))
        bought = np.full(PRODUCERS, float(entry))
        capacity = np.full(PRODUCERS, float(CAPACITY))
        buyer = Buyer(np.zeros(PRODUCERS), capacity, 0.0, 1.0, oracle=lambda *_: bought)
        ledger = Ledger(plan_of_noise(terms.multipliers, rounds=(1,), producers=PRODUCERS), "a")
        agent = Agent("a", terms, buyer, SeededNoise(derive_key(self._seed, 0)), ledger)
        agent.start()
        (buy,) = agent.receive("b", Hello(VERSION, terms.digest))
        actions = agent.receive(WORLD, Delivered(1, tuple(map(float, buy.units))))
        (report,) = {
            send[2] for action in actions if isinstance(action, SendMany) for send in action.sends
        }
        return np.array([report.units, report.good])


def test_the_audit_has_its_size_and_power_on_real_reports():
    """40 audits each: a size of .01 gives 4 or more alarms with chance 1e-4, a power of .95 under
    33 with 1e-3.
    """
    trials = trials_needed(CLAIMED, np.sqrt(2) * CLAIMED)
    sound, halved, twice = Reports(), Reports(noise=0.5), Reports(twice=True)
    canary, doubled = (
        Canary(0, CAPACITY, direction=np.ones(2)),
        Canary(0, CAPACITY, direction=np.ones(4)),
    )

    def alarms(reports, canary):
        return sum(
            not audit(reports, canary, claimed_mu=CLAIMED, trials=trials).passed for _ in range(40)
        )

    assert alarms(sound, canary) < 4
    assert alarms(halved, canary) >= 33
    assert alarms(twice, doubled) >= 33
