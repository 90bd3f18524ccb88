"""Agents that do not follow the protocol: what one that lies, replays or leaves its noise out
gains.

| attack | the agent | seeks |
|---|---|---|
| `lies` | reports 2^53 units of a quality of its choice | what all others believe of each producer |
| `replays` | sends a report again, to a receiver that may have been restarted | that it counts twice |
| `without-noise` | leaves its own noise out | what others bought: does its own protection hide anything of theirs? |

In a game coins say what the agent wants: which producers shall look good, and whether it replays at
all. What others do is compared with the coins, so an agent that nobody follows is right in half of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.privacy.dp.noise import Noise, SeededNoise
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.privacy.leakage.scores import hits
from posse.systems.dp_combinatorial.agent import LARGEST_COUNT, Agent, Buyer
from posse.systems.dp_combinatorial.federation import MarketRun, agents_of
from posse.systems.dp_combinatorial.messages import Report
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.dp_combinatorial.terms import AGENT, Terms
from posse.systems.registry import system_of

Floats = NDArray[np.float64]
GAMES = 4
ROUNDS = 1000
"""Rounds of a game, at most."""
INSIDE = 0.08
"""Where others accept what lies within a tenth of the half-width of what they know, a lie is so far
off.
"""
LIES = "An agent that lies in its reports"


def _started(
    settings: DpCombinatorial, seed: int, last: Callable[..., Agent] = Agent
) -> tuple[MarketRun, list[Agent]]:
    """Start a run whose last agent is of a given class."""
    made = settings.but(
        horizon=min(settings.horizon, ROUNDS), path="agents", runs=1, seed=settings.seed + seed
    )
    kinds = {made.load().market.agents[-1]: last}
    run: Any = system_of(settings).start(made, transcript=1 << 20, kinds=kinds)
    return run, agents_of(list(run.memory.roles.values()))


def _silent(settings: DpCombinatorial) -> str:
    """Why no agent can lie: none reports."""
    if settings.policy == "alone":
        return "agents send no reports."
    late = settings.policy != "fcb" and settings.report_rounds()[0] > min(settings.horizon, ROUNDS)
    return "the first report comes after the game." if late else ""


# Lies ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Believed:
    """By how much the others' belief of each producer is higher than in the same run without lies;
    their regrets.
    """

    moved: Floats
    regret: float
    honest: float


def believed(agents: Sequence[Agent]) -> Floats:
    """Return what agents take for the quality of each producer, on average."""
    known = [agent.knowledge for agent in agents]
    beliefs = [(k.good + k.told_good) / np.maximum(k.units + k.told_units, 1.0) for k in known]
    return np.asarray(np.mean(beliefs, axis=0))


class LyingAgent(Agent):
    """An agent that reports as many units as a report can hold, of the quality that it wants others
    to believe.

    Where others accept only what is near to their own estimate, the lie is as far from the liar's
    own as it may be.
    """

    def __init__(
        self, *arguments: Any, good: NDArray[np.bool_], accepts: bool, **options: Any
    ) -> None:
        """Take the producers that shall look `good`, and whether others accept only what is near."""
        super().__init__(*arguments, **options)
        self._side, self._accepts = np.where(good, 1.0, -1.0), accepts

    def _make_report(self, number: int) -> Report:
        made, known = super()._make_report(number), self.knowledge
        units = np.maximum(known.units + known.told_units, 1.0)
        near = INSIDE * np.sqrt(1.5 * np.log(max(self._round, 2)) / units)
        reach = near if self._accepts else 2.0
        quality = np.clip((known.good + known.told_good) / units + self._side * reach, 0.0, 1.0)
        many = np.full(len(quality), LARGEST_COUNT)
        return Report(
            number,
            tuple(many.tolist()),
            tuple((many * quality).tolist()),
            tuple(0.0 for _ in made.sigma),
        )


def stage_lies(settings: DpCombinatorial, seed: int) -> Iterator[Evidence]:
    """Play every game twice: the last agent lies, and it does not."""
    for number in range(GAMES):
        outcomes = []
        coins = (
            np.random.default_rng((seed, number, 60)).integers(
                2, size=len(settings.load().market.producers)
            )
            == 1
        )
        liar = partial(LyingAgent, good=coins, accepts=settings.selects)
        for last in (liar, Agent):
            run, agents = _started(settings, seed + number, last)
            run.finish()
            outcomes.append((believed(agents[:-1]), float(run.world.curves.lost[:-1].sum())))
        (after, regret), (before, honest) = outcomes
        yield Evidence(Believed(after - before, regret, honest), {"coins": coins})


def _score_lies(found: Sequence[Believed], truths: Sequence[Truth]) -> Score:
    follow = [(one.moved > 0) == truth["coins"] for one, truth in zip(found, truths, strict=True)]
    made = hits(
        int(np.concatenate(follow).sum()), sum(map(len, follow)), 0.5, "beliefs that follow the lie"
    )
    moved = float(np.mean([np.abs(one.moved).mean() for one in found]))
    times = sum(one.regret for one in found) / max(sum(one.honest for one in found), 1e-9)
    return replace(
        made,
        text=f"{made.text}, moved by {moved:.2g}; the others' regret is {times:.2g} times as large",
    )


def _follow(evidence: Evidence, seed: int) -> Evidence:
    """Plant: others believe every lie."""
    return replace(
        evidence, seen=replace(evidence.seen, moved=np.where(evidence.truth["coins"], 0.5, -0.5))
    )


def _other_coins(truths: Sequence[Truth], seed: int) -> list[Truth]:
    rng = np.random.default_rng((seed, 61))
    return [{**truth, "coins": rng.integers(2, size=len(truth["coins"])) == 1} for truth in truths]


# Replays ------------------------------------------------------------------------------------------


def stage_replays(settings: DpCombinatorial, seed: int) -> Iterator[Evidence]:
    """Ten times in a run give every receiver the last agent's reports again, or not; each was just
    restarted.
    """
    for number in range(GAMES):
        run, agents = _started(settings, seed + number)
        rng, liar = np.random.default_rng((seed, number, 62)), agents[-1].name
        changed, coins = [], []
        for part in range(1, 11):
            run.advance(run.horizon * part // 10 - run.time)
            seen = (one for one in run.view(liar).entries if one.sender == liar)
            sent = {
                one.message.number: one.message for one in seen if isinstance(one.message, Report)
            }
            restarted = {agent.name: agent for agent in run.new_agents()}
            for receiver in agents[:-1] if sent else ():
                kept, again, copy = receiver.save(), bool(rng.integers(2)), restarted[receiver.name]
                copy.load(kept)
                holds = receiver.reveal()
                for report in sent.values() if again else ():
                    if report.number < holds.learnt or report.number in holds.inbox:
                        # it has come before
                        with suppress(ProtocolError):
                            copy.receive(liar, report)
                changed.append(copy.save() != kept)
                coins.append(again)
        yield Evidence(np.array(changed), {"coins": np.array(coins)})


def _score_replays(found: Sequence[Any], truths: Sequence[Truth]) -> Score:
    right = np.concatenate(
        [one == truth["coins"] for one, truth in zip(found, truths, strict=True)]
    )
    replayed = np.concatenate(
        [one[truth["coins"]] for one, truth in zip(found, truths, strict=True)]
    )
    coins = np.concatenate([truth["coins"] for truth in truths])
    made = hits(
        int(right.sum()), len(right), max(float(coins.mean()), 1 - float(coins.mean())), "receivers"
    )
    return replace(
        made, text=f"{int(replayed.sum())} of {len(replayed)} receivers counted a report again"
    )


# Its own noise ------------------------------------------------------------------------------------


class NoNoise(SeededNoise):
    """What an agent adds that leaves its noise out."""

    def pair(self, release: int, producer: int, sigma: float) -> tuple[float, float]:
        """Return nothing to add."""
        return 0.0, 0.0


def stage_without(settings: DpCombinatorial, seed: int) -> Iterator[Evidence]:
    """Let the last agent leave its noise out, and look at what it is sent."""

    def noiseless(name: str, terms: Terms, buyer: Buyer, noise: Noise, *more: Any) -> Agent:
        return Agent(name, terms, buyer, NoNoise(0), *more)

    run, agents = _started(settings, seed, noiseless)
    run.finish()
    yield Evidence(run.view(agents[-1].name), run.truth())


DEVIATIONS = (
    Attack(
        "lies",
        "to fix what others believe of producers, by reports of untrue units",
        (AGENT,),
        (LIES,),
        lambda seen, seed: seen,
        _score_lies,
        "share of beliefs",
        _follow,
        "agents that believe every lie",
        _other_coins,
        needs="runs",
        stage=stage_lies,
        seconds=lambda settings: 20.0,
        missing=_silent,
        tell=lambda found: f"beliefs moved by {np.abs(found.moved).mean():.2g}",
    ),
    Attack(
        "replays",
        "to let a report count twice, by sending it again",
        (AGENT,),
        (LIES,),
        lambda seen, seed: seen,
        _score_replays,
        "share of receivers",
        lambda evidence, seed: replace(evidence, seen=evidence.truth["coins"]),
        "receivers that count it again",
        _other_coins,
        needs="runs",
        stage=stage_replays,
        seconds=lambda settings: 10.0,
        missing=_silent,
        tell=lambda found: f"{int(found.sum())} of {len(found)} receivers changed",
    ),
)
