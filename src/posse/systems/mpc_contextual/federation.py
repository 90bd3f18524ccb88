"""Runs in one process: all roles with a simulated world, or one of the two twins in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import Ask, Message, Role, View
from posse.privacy.crypto.keys import Secrets
from posse.privacy.dp.arms import SIMULATED_COINS
from posse.privacy.leakage.attack import Truth
from posse.privacy.sharing.dealing import Plan
from posse.privacy.sharing.fixed import Words
from posse.results import words
from posse.results.record import Record, Traffic, points_of, yardsticks
from posse.results.section import Section
from posse.results.values import JSON, plain_dict
from posse.runtime.memory import fork
from posse.systems.base import AnySystem, presentation
from posse.systems.mpc_contextual.program import costs, plan, planned_seconds
from posse.systems.mpc_contextual.roles.dealer import DealerKeys, DealerRole
from posse.systems.mpc_contextual.roles.messages import (
    Act,
    Acted,
    Choice,
    Dealt,
    Earn,
    Earned,
    Opening,
    Payoff,
    Reveal,
)
from posse.systems.mpc_contextual.roles.outside import Model, make_place, write_share
from posse.systems.mpc_contextual.roles.party import Party
from posse.systems.mpc_contextual.roles.puller_and_payee import Payee, Puller
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, SHARED, WIDTH_BITS, Terms
from posse.systems.mpc_contextual.twins import floats
from posse.systems.mpc_contextual.twins.floats import FloatTwin
from posse.systems.mpc_contextual.twins.twin import FixedTwin, coins_of, run_fixed, seeded
from posse.systems.runs import RolesRun, Run

Wholes = NDArray[np.int64]
Pay = Callable[[int, int], int]
"""Reward of a step and arm, in units of 2^-24."""
Summary = dict[str, str | float | int]


@dataclass(frozen=True, eq=False)
class Outcome:
    """Arms and rewards of one seed, as far as it came."""

    seed: int
    arms: Wholes
    units: Wholes


# All roles ----------------------------------------------------------------------------------------


def federation(
    terms: Terms,
    features: Words,
    seed: int | None = None,
    *,
    planned: Plan | None = None,
    shares: Mapping[str, Words] | None = None,
) -> list[Role]:
    """Make all roles; `features` are everybody's, a row a step, in fixed point; `shares` those of
    the first model.
    """
    made = plan(terms) if planned is None else planned

    def secrets(name: str) -> Secrets:
        return Secrets.fresh() if seed is None else seeded(seed, name)

    roles: list[Role] = []
    at = 0
    for party, size in zip(terms.parties, terms.features, strict=True):
        block = features[:, at : at + size]
        roles.append(
            Party(
                party, terms, made, block, secrets(party), start=shares[party] if shares else None
            )
        )
        at += size
    return [*roles, Puller(terms), Payee(terms), DealerRole(terms, made, secrets(DEALER))]


class SimulatedWorld:
    """Pays what the arm of a step earns; it is the only one that sees both."""

    def __init__(self, pay: Pay) -> None:
        self._pay = pay
        self._pulled: dict[int, int] = {}
        self.reached = 0
        """Steps that were paid."""

    def __call__(self, ask: Ask) -> Message:
        """Answer the puller or the payee."""
        if isinstance(ask, Act):
            self._pulled[ask.step] = ask.arm
            return Acted(ask.step)
        assert isinstance(ask, Earn)
        self.reached = ask.step + 1
        return Earned(ask.step, self._pay(ask.step, self._pulled.pop(ask.step)))

    def answered(self, ask: Ask, reward: object) -> None:
        """Count a step that a world outside has paid."""
        if isinstance(ask, Earn):
            self.reached = ask.step + 1


class ContextualRun(RolesRun):
    """Parties, puller, payee and dealer in one process."""

    settings: MpcContextual

    def __init__(
        self,
        system: AnySystem,
        settings: MpcContextual,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
    ) -> None:
        self._setup = settings.load()
        self.plan = plan(self._setup.terms)
        self._outcomes: list[Outcome] = []
        """Of the seeds that are over."""
        if settings.keep_shares is not None:
            make_place(settings.keep_shares, self._setup.terms)
        super().__init__(system, settings, seeds=seeds, world=world, transcript=transcript)

    @property
    def _seed_horizon(self) -> int:
        return self._setup.terms.steps

    def _role_maker(self, seed: int) -> Callable[[], list[Role]]:
        setup = self._setup
        features = setup.encoded(setup.order(seed))
        return lambda: federation(
            setup.terms, features, seed, planned=self.plan, shares=setup.shares
        )

    def _make_world(self, seed: int) -> SimulatedWorld:
        units = self._setup.units(seed, self._setup.order(seed))
        return SimulatedWorld(lambda step, arm: int(units[step, arm]))

    def _begin_seed(self, number: int) -> None:
        """Begin a seed; of the one before only arms, rewards and costs are kept."""
        if number:
            self._outcomes.append(self._checked_outcome())
            self.memory.roles = {}
            self.worlds[-1] = None
        super()._begin_seed(number)

    def _end_seed(self) -> None:
        """Begin the next seed; at the end of the run keep the shares, if asked to."""
        super()._end_seed()
        if self._over and self.settings.keep_shares is not None:
            for party in self.parties_on_shares:
                folder, steps = self.settings.keep_shares / party.name, self._seed_horizon
                write_share(
                    folder,
                    self._setup.terms,
                    party.name,
                    steps,
                    party.model.tobytes(),
                    party.tag(steps),
                )

    def save(self) -> Any:
        """Return this moment, with what the seeds before it came to."""
        return {**super().save(), "outcomes": list(self._outcomes)}

    def load(self, saved: Any) -> None:
        """Come back to a saved moment of this run."""
        super().load(saved)
        self._outcomes = list(saved["outcomes"])

    @property
    def parties_on_shares(self) -> list[Party]:
        """The roles that hold features."""
        return [role for role in self.memory.roles.values() if isinstance(role, Party)]

    @property
    def puller(self) -> Puller:
        """The role that pulls arms."""
        role = self.memory.roles[PULLER]
        assert isinstance(role, Puller)
        return role

    @property
    def payee(self) -> Payee:
        """The role that is paid."""
        role = self.memory.roles[PAYEE]
        assert isinstance(role, Payee)
        return role

    def model(self) -> Words:
        """Add up the shares of the model."""
        shares = [party.model for party in self.parties_on_shares]
        return np.asarray(np.sum(shares, axis=0, dtype=np.uint64))

    def outcome(self) -> Outcome:
        """Return what came of the current seed so far."""
        seed = self.seeds[len(self.memories) - 1]
        return Outcome(seed, self.puller.arms[: self.payee.step], self.payee.rewards)

    def _checked_outcome(self) -> Outcome:
        """Return the outcome; raise where the run is over and rounding has broken the model."""
        if all(party.finished for party in self.parties_on_shares):
            Model(self._setup.terms, self.payee.step, self.model()).check()
        return self.outcome()

    def _reply(self, ask: Ask, reward: object) -> Message:
        """Say to the puller that the arm was pulled, or to the payee what it earned."""
        if isinstance(ask, Act):
            return Acted(ask.step)
        assert isinstance(ask, Earn)
        within = self._setup.terms.reward_range
        if not isinstance(reward, int | float) or not within.contains(reward):
            raise ConfigError(f"a reward must be in {within}, got {reward!r} for step {ask.step}.")
        return Earned(ask.step, int(within.units(reward)))

    @property
    def public_terms(self) -> dict[str, object]:
        """The terms that everybody knows."""
        return msgspec.structs.asdict(self._setup.terms)

    def truth(self) -> Truth:
        """What only the simulation knows: contexts in their order, arms, rewards, means of arms,
        steps explored.

        Rewards and means are scaled to [0, 1].
        """
        setup, outcome = self._setup, self._checked_outcome()
        rows = setup.order(outcome.seed)
        return {
            "features": setup.features(rows),
            "arms": outcome.arms,
            "rewards": outcome.units / REWARD_ONE,
            "means": setup.contexts.scaled[rows],
            "explored": coins_of(setup.terms, outcome.seed).explore[: len(outcome.arms)],
        }

    def part_for_attacks(self, message: Message) -> Message:
        """Keep a party's masked features, opened first in every step; of all else that is opened or
        dealt its size.
        """
        if isinstance(message, Opening):
            inputs = 8 * self._setup.terms.batch * max(self._setup.terms.features)
            return Opening(
                message.step, message.round, b"" if message.round else message.data[:inputs]
            )
        if isinstance(message, Dealt):
            return Dealt(message.chunk, b"")
        return (
            type(message)(message.step, b"")
            if isinstance(message, Choice | Payoff | Reveal)
            else message
        )

    def view(self, *parties: str) -> View:
        """Return what these parties together saw of the current seed; the dealer also has the key
        of its coins.
        """
        seen = super().view(*parties)
        if DEALER not in parties:
            return seen
        keys = DealerKeys(self._setup.terms, seeded(self.seeds[len(self.memories) - 1], DEALER))
        return replace(
            seen, secrets={**seen.secrets, DEALER: {**seen.secrets[DEALER], "coins": keys.coins}}
        )

    def record(self, status: str | None = None) -> Record:
        """Return the record: of the whole runs where there are some, else of the one going on, as
        far as it came.
        """
        last = [self._checked_outcome()] if self.done or not self._outcomes else []
        outcomes = [*self._outcomes, *last]
        hops, seconds = self.traffic(len(outcomes)), self.role_seconds(len(outcomes))
        steps = sum(len(outcome.units) for outcome in outcomes)
        summary = self._summary(steps, seconds)
        sections = costs_section(self.settings, summary, seconds, steps)
        return _record(
            self,
            outcomes,
            summary,
            status,
            sections,
            known=not self.outside,
            role_seconds=seconds,
            privacy=_privacy(self.settings, min(len(outcome.units) for outcome in outcomes)),
            traffic=tuple(Traffic(f"{a} -> {b}", *sums) for (a, b), sums in sorted(hops.items())),
        )

    def _summary(self, steps: int, seconds: Mapping[str, float]) -> Summary:
        """Return rounds and bytes of a step, and what a step would take over a network of the given
        latency.
        """
        settings, terms = self.settings, self._setup.terms
        one = costs(terms)
        summary: Summary = {
            "path": settings.path,
            "steps_done": steps,
            "rounds_a_step": one.rounds,
            "bytes_a_step_sent_by_a_party": one.sent,
            "bytes_a_step_dealt_to_a_party": one.dealt,
        }
        if terms.batch > 1 or terms.overlap:
            summary["model_frozen_for_steps"] = max(terms.batch, 1 + terms.lag)
        if settings.latency is not None and steps:
            slowest = seconds["party"] / len(terms.parties) / steps
            summary["latency_ms"] = settings.latency
            summary["planned_seconds_a_step"] = planned_seconds(
                one, settings.latency, settings.bandwidth, slowest
            )
        return summary


def costs_section(
    settings: MpcContextual, summary: Mapping[str, Any], seconds: Mapping[str, float], steps: int
) -> tuple[Section, ...]:
    """Return what one step costs as a table: rounds, bytes, time by role, and an estimate for
    another network.
    """
    if not steps:
        return ()
    terms = settings.load().terms
    rows = [("rounds", words.number(summary["rounds_a_step"], 3))]
    if terms.batch > 1:
        rows.append(("steps that share rounds and a model", str(terms.batch)))
    if terms.overlap:
        rows.append(("rewards that a decision does without", "the one before it"))
    rows.append(
        ("bytes that a party sends", words.size(int(summary["bytes_a_step_sent_by_a_party"])))
    )
    rows.append(
        ("bytes that a party is dealt", words.size(int(summary["bytes_a_step_dealt_to_a_party"])))
    )
    for role, spent in seconds.items():
        many = len(terms.parties) if role == "party" else 1
        rows.append(
            (
                f"CPU time of {'each' if role == 'party' else 'the'} {role}",
                words.seconds(spent / steps / many),
            )
        )
    if "planned_seconds_a_step" in summary:
        one = summary["planned_seconds_a_step"]
        there = (
            f"estimated time at {settings.latency:g} ms one way and {settings.bandwidth:g} Mbit/s"
        )
        rows.append((there, words.seconds(one)))
        rows.append(
            (
                f"the same for all {words.count(terms.steps, 'step')}",
                words.seconds(one * terms.steps),
            )
        )
    return (Section("What a step costs", ("cost", "a step"), tuple(rows), numeric=(1,)),)


# The twins ----------------------------------------------------------------------------------------


class TwinRun(Run):
    """The same bandit on plain integers, or on floats, one seed after the other."""

    settings: MpcContextual

    def __init__(
        self, system: AnySystem, settings: MpcContextual, seeds: Sequence[int] | None
    ) -> None:
        super().__init__(system, settings, seeds)
        self._setup = settings.load()
        self.plan = plan(self._setup.terms)
        warm_up(self._setup.terms.batch)
        self._outcomes: list[Outcome] = []
        self._twin = self._begin(self.seeds[0])

    def _begin(self, seed: int) -> FixedTwin | FloatTwin:
        setup, terms = self._setup, self._setup.terms
        rows = setup.order(seed)
        units, coins = setup.units(seed, rows), coins_of(terms, seed)
        self._units = units
        if self.settings.path == "fixed":
            return FixedTwin(terms, self.plan, setup.encoded(rows), units, coins, seed, setup.model)
        model = None if setup.model is None else Model(terms, 0, setup.model)
        return FloatTwin(
            setup.features(rows),
            units / REWARD_ONE,
            coins,
            batch=terms.batch,
            exploration=terms.bonus or "greedy",
            width=terms.width / 2**WIDTH_BITS,
            normals=coins.normals,
            lift=terms.lift,
            overlap=terms.overlap,
            start=None if model is None else (model.weights, model.inverse),
            frozen=terms.frozen,
        )

    @property
    def time(self) -> int:
        """Steps made in all runs."""
        return self._setup.terms.steps * len(self._outcomes) + (0 if self.done else self._twin.time)

    @property
    def horizon(self) -> int:
        """Steps of all runs."""
        return self._setup.terms.steps * len(self.seeds)

    @property
    def done(self) -> bool:
        """Whether all steps of all runs are made."""
        return len(self._outcomes) == len(self.seeds)

    def _advance(self, n: int) -> None:
        """Make n steps of the current run, up to the end of a batch."""
        if self.done:
            return
        self._twin.advance(n)
        if self._twin.time == self._setup.terms.steps:
            self._outcomes.append(self.outcome())
            if not self.done:
                self._twin = self._begin(self.seeds[len(self._outcomes)])

    def outcome(self) -> Outcome:
        """Return what came of the current seed so far."""
        if self.done:
            return self._outcomes[-1]
        arms = self._twin.arms[: self._twin.time]
        return Outcome(
            self.seeds[len(self._outcomes)], arms, self._units[np.arange(len(arms)), arms]
        )

    def record(self, status: str | None = None) -> Record:
        """Return the record: of the whole runs where there are some, else of the one going on, as
        far as it came.
        """
        outcomes = self._outcomes or [self.outcome()]
        steps = sum(len(outcome.units) for outcome in outcomes)
        summary: Summary = {"twin_of": SHARED, "path": self.settings.path, "steps_done": steps}
        return _record(self, outcomes, summary, status)

    def save(self) -> Any:
        """Return this moment."""
        return fork(self._twin), self._units, list(self._outcomes), self.seconds

    def load(self, saved: Any) -> None:
        """Come back to a saved moment."""
        self._twin, self._units, self._outcomes, self.seconds = (
            fork(saved[0]),
            saved[1],
            list(saved[2]),
            saved[3],
        )


def warm_up(batch: int = 1) -> None:
    """Compile what the twins call, so that compiling is not counted as running."""
    terms = Terms("warm up", ("a", "b"), (1, 1), 2, 2, (1, 2), batch=min(2, batch))
    coins, units = coins_of(terms, 0), np.zeros((2, 2), np.int64)
    run_fixed(terms, plan(terms), np.zeros((2, 2), np.uint64), units, coins, 0)
    floats.run(np.zeros((2, 2)), np.zeros((2, 2)), coins)


# Records ------------------------------------------------------------------------------------------


def _record(
    run: Run,
    outcomes: Sequence[Outcome],
    summary: Summary,
    status: str | None,
    sections: Sequence[Section] = (),
    *,
    known: bool = True,
    **more: Any,
) -> Record:
    """Make the record of a run or of a twin; curves end where the shortest run ended.

    Where arms are pulled in a world outside, what they pay on average is not `known`, and there is
    no regret.
    """
    settings = run.settings
    assert isinstance(settings, MpcContextual)
    terms, contexts, many = settings.load().terms, settings.load().contexts, len(outcomes)
    done = min(len(outcome.units) for outcome in outcomes)
    points = points_of(terms.steps, settings.points)
    points = points[points <= done]
    reward = np.array(
        [terms.reward_range.running_sums(outcome.units[:done])[points - 1] for outcome in outcomes]
    )
    return run.make_record(
        status,
        seeds=tuple(outcome.seed for outcome in outcomes),
        steps=points,
        reward=reward.reshape(many, len(points)),
        regret=_regrets(settings, outcomes, points) if known else None,
        total=tuple(terms.reward_range.total(outcome.units) for outcome in outcomes),
        pulls=np.array(
            [np.bincount(outcome.arms, minlength=terms.arms) for outcome in outcomes]
        ).reshape(many, -1),
        summary={
            **summary,
            **(yardsticks(contexts.means, contexts.arms) if known else {}),
        },
        show=presentation(
            run.system, settings, sections, protection=settings.protection, implied=["path"]
        ),
        **more,
    )


def _regrets(
    settings: MpcContextual, outcomes: Sequence[Outcome], points: Wholes
) -> NDArray[np.float64]:
    """What the best arm of every context would have added on average, at the points of the
    curves.
    """
    setup, curves = settings.load(), []
    for outcome in outcomes:
        done = len(outcome.arms)
        means = setup.contexts.means[setup.order(outcome.seed)[:done]]
        missed = means.max(axis=1) - means[np.arange(done), outcome.arms]
        curves.append(missed.cumsum()[points - 1])
    return np.array(curves).reshape(len(outcomes), len(points))


def _privacy(settings: MpcContextual, done: int) -> tuple[Mapping[str, JSON], ...]:
    """Return the figure of one step and that of all steps that were done; each run is a world of
    its own.
    """
    if not done:
        return ()
    ledger = settings.ledger(settings.load().terms, done)
    proved = (one.simulated(SIMULATED_COINS) for one in ledger.guarantees())
    return tuple({"party": PULLER, **plain_dict(one.entry(), "guarantee")} for one in proved)
