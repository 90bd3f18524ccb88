"""A run from its settings to its record: real roles in one process, or one of the two twins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from posse.core.fixed import REWARD_ONE
from posse.core.roles import Ask, Message, Role
from posse.privacy.crypto.keys import Secrets
from posse.privacy.sharing.fixed import Words
from posse.protocols.mpc_contextual import floats
from posse.protocols.mpc_contextual.dealer import DealerKeys, DealerRole
from posse.protocols.mpc_contextual.messages import Act, Acted, Earn, Earned
from posse.protocols.mpc_contextual.party import Party
from posse.protocols.mpc_contextual.payee import Payee
from posse.protocols.mpc_contextual.program import Costs, costs, plan, planned_seconds
from posse.protocols.mpc_contextual.puller import Puller
from posse.protocols.mpc_contextual.settings import ContextualSettings, Setup
from posse.protocols.mpc_contextual.terms import DEALER, PAYEE, PULLER, SHARED, WIDTH_BITS, Terms, leaks
from posse.protocols.mpc_contextual.twin import coins_of, run_fixed, seeded
from posse.results.record import Interrupted, Progress, Record, Traffic, Watch, points_of
from posse.results.values import JSON, plain_dict
from posse.runtime.memory import MemoryRun

Wholes = NDArray[np.int64]
Pay = Callable[[int, int], int]
"""Reward of a step and arm, in units of 2^-24."""
WORDS = {"party": "party"}
TWIN = ("Nothing is protected: this is the plain twin, in which one place sees everything.",)


@dataclass
class Outcome:
    """Arms and rewards of one run, up to where it came."""

    seed: int
    rows: Wholes
    arms: Wholes
    units: Wholes


@dataclass
class Spent:
    """What all runs of a record cost."""

    seconds: dict[str, float] = field(default_factory=dict)
    hops: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, run: MemoryRun) -> None:
        """Add a run."""
        for kind, spent in run.seconds.items():
            self.seconds[kind] = self.seconds.get(kind, 0.0) + spent
        for hop, traffic in run.hops.items():
            messages, size = self.hops.get(hop, (0, 0))
            self.hops[hop] = (messages + traffic.messages, size + traffic.bytes)


def run_contextual(settings: ContextualSettings, *, watch: Watch | None = None) -> Record:
    """Run the bandit of the settings once a seed, and record it.

    >>> settings = ContextualSettings(rows=100, components=6, seed=5)
    >>> shared = run_contextual(settings)
    >>> shared.total == run_contextual(settings.model_copy(update={"path": "fixed"})).total
    True
    """
    setup = settings.check()
    warm_up()
    started = time.process_time()
    outcomes: list[Outcome] = []
    spent = Spent()
    try:
        for number, seed in enumerate(settings.seeds):
            if settings.path == "parties":
                _parties(settings, setup, seed, number, outcomes, spent, watch)
            else:
                outcomes.append(_twin(settings.path, setup, seed))
            if watch is not None:
                watch(Progress(number, settings.runs, (number + 1) / settings.runs))
    except KeyboardInterrupt as stop:
        seconds = time.process_time() - started
        raise Interrupted(_record(settings, setup, outcomes, spent, seconds, "interrupted")) from stop
    return _record(settings, setup, outcomes, spent, time.process_time() - started, "finished")


def warm_up() -> None:
    """Compile what the twins call, so that compiling is not counted as running."""
    for batch in (1, 2):
        terms = Terms("warm up", ("a", "b"), (1, 1), 2, 2, (1, 2), batch=batch)
        coins, units = coins_of(terms, 0), np.zeros((2, 2), np.int64)
        keys = list(DealerKeys(terms, seeded(0, DEALER)).tapes.values())
        run_fixed(terms, plan(terms), np.zeros((2, 2), np.uint64), units, coins, keys)
    floats.run(np.zeros((2, 2)), np.zeros((2, 2)), coins)


def _parties(
    settings: ContextualSettings, setup: Setup, seed: int, number: int, outcomes: list[Outcome], spent: Spent,
    watch: Watch | None,
) -> None:  # fmt: skip
    """Run real roles; whatever they did stays in `outcomes`, also when interrupted."""
    rows = setup.order(seed)
    units = setup.units(seed, rows)
    roles = federation(setup.terms, setup.encoded(rows), seed)
    run = MemoryRun(roles, SimulatedWorld(lambda step, arm: int(units[step, arm])))
    puller, payee = run.roles[PULLER], run.roles[PAYEE]
    assert isinstance(puller, Puller)
    assert isinstance(payee, Payee)
    try:
        for event in run:
            if watch is not None and event.party == PAYEE and event.step % 8 == 0:
                done = (number + event.step / setup.terms.steps) / settings.runs
                watch(Progress(number, settings.runs, done))
    finally:
        outcomes.append(Outcome(seed, rows, puller.arms[: payee.step], payee.rewards))
        if payee.finished or len(outcomes) == 1:  # of an interrupted record only whole runs count, if there are any
            spent.add(run)


def _twin(path: str, setup: Setup, seed: int) -> Outcome:
    """Run the twin on the same coins: in fixed point, or in floats."""
    rows = setup.order(seed)
    units, coins = setup.units(seed, rows), coins_of(setup.terms, seed)
    if path == "fixed":
        keys = list(DealerKeys(setup.terms, seeded(seed, DEALER)).tapes.values())
        fixed = run_fixed(setup.terms, plan(setup.terms), setup.encoded(rows), units, coins, keys)
        return Outcome(seed, rows, fixed.arms, fixed.rewards)
    terms = setup.terms
    arms = floats.run(
        setup.features(rows), units / REWARD_ONE, coins, batch=terms.batch, exploration=terms.bonus or "greedy",
        width=terms.width / 2**WIDTH_BITS, normals=coins.normals,
    ).arms  # fmt: skip
    return Outcome(seed, rows, arms, units[np.arange(len(arms)), arms])


def _record(
    settings: ContextualSettings, setup: Setup, outcomes: list[Outcome], spent: Spent, seconds: float, status: str
) -> Record:
    """Make the record; curves of an interrupted one end where its shortest run ended."""
    if status != "finished" and len(outcomes) > 1:
        outcomes = outcomes[:-1]
    terms, contexts = setup.terms, setup.contexts
    protected = settings.path == "parties"
    done = min((len(outcome.units) for outcome in outcomes), default=0)
    points = points_of(terms.steps, settings.points)
    points = points[points <= done]
    reward = np.array([outcome.units[:done].cumsum()[points - 1] for outcome in outcomes]) / REWARD_ONE
    regret = [_regret(contexts.means, outcome, done)[points - 1] for outcome in outcomes]
    shape = (len(outcomes), len(points))
    return Record(
        kind="mpc-contextual",
        config=_config(settings, setup),
        problem={**_problem(setup), "words": WORDS},
        level=SHARED if protected else "plain",
        leaks=leaks(terms) if protected else TWIN,
        seeds=tuple(outcome.seed for outcome in outcomes),
        steps=points,
        reward=reward.reshape(shape),
        regret=np.array(regret).reshape(shape),
        total=tuple(float(outcome.units.sum()) / REWARD_ONE for outcome in outcomes),
        pulls=np.array([np.bincount(outcome.arms, minlength=terms.arms) for outcome in outcomes]).reshape(
            len(outcomes), terms.arms
        ),
        status=status,
        privacy=_privacy(settings, setup, done) if protected else (),
        role_seconds=spent.seconds,
        traffic=tuple(Traffic(f"{a} -> {b}", *sums) for (a, b), sums in sorted(spent.hops.items())),
        seconds=seconds,
        summary=_summary(settings, setup, sum(len(outcome.units) for outcome in outcomes), spent),
    )


def _regret(means: NDArray[np.float64], outcome: Outcome, done: int) -> NDArray[np.float64]:
    rows, arms = outcome.rows[:done], outcome.arms[:done]
    missed: NDArray[np.float64] = means[rows].max(axis=1) - means[rows, arms]
    return missed.cumsum()


def _privacy(settings: ContextualSettings, setup: Setup, done: int) -> tuple[Mapping[str, JSON], ...]:
    """Return the figure of one step and that of all steps that were done; each run is a world of its own."""
    if not done:
        return ()
    ledger = settings.ledger(setup.terms, done)
    return tuple({"party": PULLER, **plain_dict(one.entry(), "guarantee")} for one in ledger.guarantees())


def _config(settings: ContextualSettings, setup: Setup) -> dict[str, JSON]:
    """Every setting with the value that was used."""
    return {
        **settings.resolved(),
        **settings.used(setup.contexts),
        "arms": setup.terms.arms,
        "budget": setup.terms.steps,
        "steps": setup.terms.steps,
        "policy": _policy(settings, setup),
    }


def _policy(settings: ContextualSettings, setup: Setup) -> dict[str, JSON]:
    width: dict[str, JSON] = {"width": settings.width} if setup.terms.bonus else {}
    return {"name": settings.policy, "epsilon": setup.terms.rate, **width}


def _problem(setup: Setup) -> dict[str, JSON]:
    told = plain_dict(setup.contexts.describe(), "problem")
    return {**told, "names": list(setup.contexts.arms)}


def _summary(settings: ContextualSettings, setup: Setup, steps: int, spent: Spent) -> dict[str, str | float | int]:
    """Return rounds and bytes of a step, and what a step would take over a network of the given latency."""
    if settings.path != "parties":
        return {"twin_of": SHARED, "path": settings.path, "steps_done": steps}
    one: Costs = costs(setup.terms)
    told: dict[str, str | float | int] = {
        "path": settings.path, "steps_done": steps, "rounds_a_step": one.rounds,
        "bytes_a_step_sent_by_a_party": one.sent, "bytes_a_step_dealt_to_a_party": one.dealt,
    }  # fmt: skip
    if setup.terms.batch > 1:
        told["model_frozen_for_steps"] = setup.terms.batch
    if settings.latency is not None and steps:
        slowest = spent.seconds["party"] / len(setup.terms.parties) / steps
        told["latency_ms"] = settings.latency
        told["planned_seconds_a_step"] = planned_seconds(one, settings.latency, settings.bandwidth, slowest)
    return told


# All roles in one process -------------------------------------------------------------------------------------------


def federation(terms: Terms, features: Words, seed: int | None = None, *, checkpoint_every: int = 0) -> list[Role]:
    """Make all roles; `features` are everybody's, a row a step, in fixed point."""
    made = plan(terms)

    def secrets(name: str) -> Secrets:
        return Secrets.fresh() if seed is None else seeded(seed, name)

    roles: list[Role] = []
    at = 0
    for party, size in zip(terms.parties, terms.features, strict=True):
        block = features[:, at : at + size]
        roles.append(Party(party, terms, made, block, secrets(party), checkpoint_every=checkpoint_every))
        at += size
    return [*roles, Puller(terms), Payee(terms), DealerRole(terms, made, secrets(DEALER))]


class SimulatedWorld:
    """Pays what the arm of a step earns; it is the only one that sees both."""

    def __init__(self, pay: Pay) -> None:
        self._pay = pay
        self._pulled: dict[int, int] = {}

    def __call__(self, ask: Ask) -> Message:
        """Answer the puller or the payee."""
        if isinstance(ask, Act):
            self._pulled[ask.step] = ask.arm
            return Acted(ask.step)
        assert isinstance(ask, Earn)
        return Earned(ask.step, self._pay(ask.step, self._pulled.pop(ask.step)))
