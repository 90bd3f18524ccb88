"""A run from its settings to its record: with real agents in one process, or simulated."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from posse.core.random import derive
from posse.core.roles import Role
from posse.policies.purchase.oracle import exact
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.noise import Noise, SeededNoise
from posse.privacy.dp.plans import Plan, plan_of_noise
from posse.problems.markets.market import Market, make_market
from posse.problems.markets.supply import epoch_at
from posse.protocols.dp_combinatorial import twin
from posse.protocols.dp_combinatorial.agent import Agent, Buyer, Oracle
from posse.protocols.dp_combinatorial.learning import Knowledge
from posse.protocols.dp_combinatorial.messages import Buy, Delivered
from posse.protocols.dp_combinatorial.settings import MarketRunSettings, Setup
from posse.protocols.dp_combinatorial.terms import Terms, leaks
from posse.protocols.dp_combinatorial.twin import (
    Curves,
    Outcome,
    Stopped,
    Truth,
    gather,
    no_curves,
    offers_of,
    run_once,
    simulate,
    truth_of,
)
from posse.results.record import Interrupted, Progress, Record, Traffic, Watch, points_of
from posse.results.values import JSON, plain_dict
from posse.runtime.memory import MemoryRun

WORDS = {"step": "round", "arm": "producer", "pull": "unit", "reward": "revenue", "party": "agent"}


def run_market(settings: MarketRunSettings, *, watch: Watch | None = None, truth: Truth | None = None) -> Record:
    """Run the market of the settings once a seed, and record it.

    >>> settings = MarketRunSettings(agents=3, producers=8, rounds=1000, seed=5)
    >>> real = run_market(settings)
    >>> real.total == run_market(settings.model_copy(update={"path": "compiled"})).total
    True
    """
    setup = settings.check()
    truth = truth_of(setup.market) if truth is None else truth
    warm_up()
    tally = _Tally(settings, setup)
    try:
        (_compiled if settings.path == "compiled" else _agents)(settings, setup, truth, tally, watch)
    except KeyboardInterrupt as stop:
        raise Interrupted(tally.record("interrupted")) from stop
    return tally.record("finished")


def warm_up() -> None:
    """Compile what a run calls, so that compiling is not counted as running."""
    market = make_market([0.9, 0.1], [[0.5, 0.05], [0.5, 0.05]], [[3, 30], [3, 30]], alpha=0.5)
    terms = Terms(market.agents, market.producers, 8, "placebo", reports=(2, 4, 8), multipliers=(1.0, 1.0, 1.0))
    run_once(market, terms, 0)
    MemoryRun(federation(market, terms, seed=0), SimulatedMarket(market, 0, 8)).finish()


def _compiled(settings: MarketRunSettings, setup: Setup, truth: Truth, tally: _Tally, watch: Watch | None) -> None:
    def done(count: int) -> None:
        if watch is not None:
            watch(Progress(count - 1, settings.runs, count / settings.runs))

    try:
        tally.outcome = simulate(
            setup.market, setup.terms, settings.seeds, coefficient=settings.coefficient, margin=settings.margin,
            points=settings.points, truth=truth, watch=done,
        )  # fmt: skip
    except Stopped as stop:
        tally.outcome = stop.outcome
        raise
    if setup.plan is not None and settings.method != "placebo":
        tally.ledgers = [_spent(Ledger(setup.plan, name)) for name in setup.market.agents]


def _spent(ledger: Ledger[Plan]) -> Ledger[Plan]:
    """Pay for every report of a plan, as an agent would one by one."""
    for number in range(ledger.mechanism.messages):
        ledger.spend(number)
    return ledger


def _agents(settings: MarketRunSettings, setup: Setup, truth: Truth, tally: _Tally, watch: Watch | None) -> None:
    for number, seed in enumerate(settings.seeds):
        world = SimulatedMarket(setup.market, seed, settings.rounds, points=settings.points, truth=truth)
        roles = federation(
            setup.market, setup.terms, seed=seed, plan=None if settings.method == "placebo" else setup.plan,
            coefficient=settings.coefficient, margin=settings.margin,
            oracle=exact if settings.oracle == "exact" else None,
        )  # fmt: skip
        run = MemoryRun(roles, world)
        tally.begin(world, run)
        for event in run:
            if watch is not None and event.kind == "round":
                watch(Progress(number, settings.runs, (number + event.step / settings.rounds) / settings.runs))


class _Tally:
    """Adds up the runs of one record."""

    def __init__(self, settings: MarketRunSettings, setup: Setup) -> None:
        self._settings, self._setup = settings, setup
        self._worlds: list[SimulatedMarket] = []
        self._runs: list[MemoryRun] = []
        self._started = time.process_time()
        self.outcome: Outcome | None = None
        self.ledgers: Sequence[Ledger[Plan]] = ()

    def begin(self, world: SimulatedMarket, run: MemoryRun) -> None:
        """Take the next run, which is about to begin."""
        self._worlds.append(world)
        self._runs.append(run)

    def record(self, status: str) -> Record:
        """Make the record of what was done.

        Of an interrupted record only whole runs count; where there is none, the run that was going on, up to where its
        slowest agent is.
        """
        settings, setup = self._settings, self._setup
        if status != "finished" and len(self._worlds) > 1:
            self._worlds, self._runs = self._worlds[:-1], self._runs[:-1]
        outcome = self.outcome if self.outcome is not None else self._gathered()
        reached = min((world.points_reached for world in self._worlds), default=len(outcome.steps))
        steps_done = sum(int(world.reached.min()) for world in self._worlds)
        if self.outcome is not None:
            steps_done = len(outcome.seeds) * settings.rounds
        return Record(
            kind="dp-combinatorial",
            config=_config(settings, setup),
            problem=_problem(settings, setup),
            level=setup.level,
            leaks=leaks(setup.terms, settings.noise),
            seeds=outcome.seeds,
            steps=outcome.steps[:reached],
            reward=outcome.revenue[:, :reached],
            regret=outcome.regret[:, :reached],
            total=tuple(outcome.agent_revenue.cumsum(axis=1)[:, -1]) if outcome.seeds else (),
            pulls=outcome.units,
            parties=setup.market.agents,
            party_total=outcome.agent_revenue,
            party_regret=outcome.agent_regret,
            status=status,
            privacy=self._privacy(),
            role_seconds={"agent": sum(run.seconds["agent"] for run in self._runs)} if self._runs else {},
            traffic=self._traffic(),
            seconds=time.process_time() - self._started,
            summary={
                "steps_done": steps_done,
                "missed": int(outcome.missed.sum()),
                "entries_learnt": int(outcome.taken.sum()),
                "path": settings.path,
            },
        )

    def _gathered(self) -> Outcome:
        pairs = []
        for world, run in zip(self._worlds, self._runs, strict=True):
            taken = np.array([agent.taken for agent in agents_of(list(run.roles.values()))], np.int64)
            curves: Curves = world.curves._replace(taken=taken)
            nothing = np.zeros(world.bought.shape)
            pairs.append((Knowledge(world.bought, *[nothing] * (len(Knowledge._fields) - 1)), curves))
        return gather(self._settings.seeds, points_of(self._settings.rounds, self._settings.points), pairs)

    def _privacy(self) -> tuple[Mapping[str, JSON], ...]:
        """Composed guarantees first, then every release; each run is a world of its own, and they all spend alike."""
        ledgers = self.ledgers
        if self._runs:
            ledgers = [
                agent.ledger for agent in agents_of(list(self._runs[0].roles.values())) if agent.ledger is not None
            ]
        entries: list[Mapping[str, JSON]] = [
            {"party": ledger.party, **plain_dict(ledger.guarantee().entry(), "guarantee")} for ledger in ledgers
        ]
        return (*entries, *(plain_dict(entry, "release") for ledger in ledgers for entry in ledger.entries()))

    def _traffic(self) -> tuple[Traffic, ...]:
        messages = sum(hop.messages for run in self._runs for hop in run.hops.values())
        size = sum(hop.bytes for run in self._runs for hop in run.hops.values())
        return (Traffic("agent -> agent", messages, size),) if self._runs else ()


def _config(settings: MarketRunSettings, setup: Setup) -> dict[str, JSON]:
    """Every setting with the value that was used."""
    heard = {name: value for name, value in settings.resolved().items() if name not in settings.unheard}
    return {
        **heard,
        **settings.used(setup.market),
        "budget": settings.rounds,
        "policy": {"name": settings.method, "coefficient": settings.coefficient},
    }


def _problem(settings: MarketRunSettings, setup: Setup) -> dict[str, JSON]:
    name = f"{settings.instance} market" if settings.offers is None else settings.offers.name
    money = {"money": settings.currency} if settings.currency else {}
    return {"name": name, **setup.market.describe(), "words": {**WORDS, **money}}


# Agents and their market in one process ------------------------------------------------------------------------------


def federation(
    market: Market,
    terms: Terms,
    *,
    seed: int | None,
    plan: Plan | None = None,
    coefficient: float = 1.0,
    margin: float = 0.0,
    oracle: Oracle | None = None,
) -> list[Role]:
    """Make the agents of a market; each gets its own costs and capacities, its own noise and its own ledger.

    Noise without a plan is counted (unit entry, delta 1e-5) and never refused.
    With a world seed the noise derives from it, so that the run can be repeated and compared with its plain twin; it
    then protects nothing from who knows the seed. Without (`seed=None`) it comes from secrets that each agent draws
    from the operating system.
    """
    offers = offers_of(market, margin)
    if plan is None and any(terms.multipliers) and terms.method != "placebo":
        dealt = int((market.capacity > 0).sum(axis=1).max())
        plan = plan_of_noise(terms.multipliers, rounds=terms.reports, producers=dealt)
    return [
        Agent(
            name,
            terms,
            Buyer(offers.cost[j], offers.capacity[j], offers.alpha, offers.rho, coefficient, oracle),
            _noise(seed, j),
            None if plan is None else Ledger(plan, name),
        )
        for j, name in enumerate(market.agents)
    ]


def _noise(seed: int | None, agent: int) -> Noise | None:
    return None if seed is None else SeededNoise(derive(seed, agent))


class SimulatedMarket:
    """Answers purchases, and keeps what only the world knows: every agent's revenue and regret.

    Agents may be in different rounds, as far as they need not wait for each other.
    """

    def __init__(
        self, market: Market, seed: int, rounds: int, *, points: int = 200, truth: Truth | None = None
    ) -> None:
        agents, producers = market.cost.shape
        self._market, self._seed = market, np.uint64(seed)
        self._number = {name: j for j, name in enumerate(market.agents)}
        self._offers, self._truth = offers_of(market), truth_of(market) if truth is None else truth
        self._words, self._found = np.zeros((4, (producers + 3) // 4), np.uint64), np.zeros(producers)
        self._point = [0] * agents
        self.steps = points_of(rounds, points)
        self.bought = np.zeros((agents, producers))
        self.reached = np.zeros(agents, np.int64)
        """Rounds that each agent has behind it."""
        self.curves = no_curves(self.steps, agents, producers)

    def __call__(self, buy: Buy) -> Delivered:
        """Deliver what an agent bought."""
        j, t, supply = self._number[buy.party], buy.round, self._market.supply
        purchase = np.array(buy.units, np.float64)
        twin.deliver(supply, self._seed, j, t, self.bought[j], purchase, self._words, self._found)
        earned, lost, met = twin.settle(j, epoch_at(supply, t), purchase, self._found, self._offers, self._truth)
        self.bought[j] += purchase
        curves = self.curves
        curves.earned[j] += earned
        curves.lost[j] += lost
        curves.missed[j] += not met
        self.reached[j] = t
        point = self._point[j]
        if point < len(self.steps) and self.steps[point] == t:
            curves.revenue[point, j], curves.regret[point, j] = curves.earned[j], curves.lost[j]
            self._point[j] += 1
        return Delivered(t, tuple(self._found.tolist()))

    @property
    def points_reached(self) -> int:
        """Points of the curves that every agent has passed."""
        return min(self._point)


def agents_of(roles: Sequence[Role]) -> list[Agent]:
    """Give the agents among roles."""
    return [role for role in roles if isinstance(role, Agent)]
