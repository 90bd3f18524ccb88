"""Attacks on Samba that need runs of their own: features of whole runs, repeated totals, parties
that deviate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.core.roles import View
from posse.policies.arms.base import Policy
from posse.privacy.crypto.frames import ClearFrames, Frames
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.privacy.leakage.scores import determination, hits
from posse.runtime.memory import MemoryRun
from posse.systems.samba.attacks.reading import Floats, plant_passes, read, short_key
from posse.systems.samba.attacks.watching import CLAIMS, PLANTED
from posse.systems.samba.levels import Switches
from posse.systems.samba.messages import Reply
from posse.systems.samba.messages import Score as Frame
from posse.systems.samba.roles.draws import CommonDraws, Draws
from posse.systems.samba.roles.lanes import PaperLane
from posse.systems.samba.roles.owner import Owner
from posse.systems.samba.strict.lane import StrictLane
from posse.systems.samba.strict.owner import StrictOwner

if TYPE_CHECKING:
    from posse.systems.samba.settings import Samba

RUNS, LENGTH = 24, 600
"""Runs of a regression, and the steps of each at most."""
TRAINING = 200
"""Runs that an adversary simulates to learn what a total looks like."""
GAMES = 16
"""Games of an active attack."""


# Features of a whole run --------------------------------------------------------------------------


def shapes_of(values: Floats, level: str) -> Floats:
    """Scores of passes in order of size, less what their scale and shift hide: (..., passes,
    owners).
    """
    rows = np.sort(values, axis=-1)
    if level == "paper":  # a scale alone: ratios to the largest
        return np.asarray(rows / np.maximum(rows[..., -1:], 1e-300))
    return np.asarray((rows - rows[..., :1]) / np.maximum(rows[..., -1:] - rows[..., :1], 1e-300))


def features(shapes: Floats) -> Floats:
    """Means over five parts of a run, and spreads over two: (..., features)."""
    parts = [part.mean(axis=-2) for part in np.array_split(shapes, 5, axis=-2) if part.shape[-2]]
    spreads = [part.std(axis=-2) for part in np.array_split(shapes, 2, axis=-2) if part.shape[-2]]
    return np.concatenate([*parts, *spreads], axis=-1)


FOUND_R2 = 0.7
"""R2 over `RUNS` runs from which on a mean reward is found out. By Fisher's z (standard error 1 /
sqrt(24 - 3)) a true R2 of .89, which Thompson has where comp sees scores, shows as less than .8 in one audit
of 15 and as less than .7 in one of 190, one of .82 (Softmax) in more than every third and in one of
11; a true R2 of .5 shows as .7 or more in one of 15.
"""


def drawn(rng: np.random.Generator, runs: int, owners: int) -> Floats:
    """Means of arms, between two limits that differ from run to run.

    Were they uniform on [0, 1] alike in all runs, the best of ten would be .91 with a deviation of
    .083, and whoever guesses that without a view would be near. The upper one of two uniform limits
    has a deviation of .24, so that what a run earns is not known beforehand.
    """
    limits = np.sort(rng.random((runs, 2)), axis=1)
    return limits[:, :1] + (limits[:, 1:] - limits[:, :1]) * rng.random((runs, owners))


@lru_cache(maxsize=4)
def simulated(
    owners: int, policy: Policy, level: str, steps: int, seed: int
) -> tuple[Floats, Floats]:
    """Shapes of all passes and mean rewards of runs with means drawn at random, made from the
    public terms.
    """
    rng, k = np.random.default_rng((seed, 83)), owners
    tau = float(policy.parameters()[0]) if policy.name == "softmax" else 1.0
    means = drawn(rng, TRAINING, k)
    wins, pulls = (rng.random((TRAINING, k)) < means).astype(np.float64), np.ones((TRAINING, k))
    rows, every = np.empty((TRAINING, steps - k, k)), np.arange(TRAINING)
    for step in range(steps - k):
        if policy.name == "thompson":
            scores = rng.beta(wins + 1, pulls - wins + 1)
            best = scores.argmax(axis=1)
        else:
            scores = wins / pulls + tau * rng.gumbel(size=(TRAINING, k))
            best = scores.argmax(axis=1)
            if level == "paper":
                scores = np.exp((wins / pulls - 1) / tau)
        rows[:, step] = scores
        wins[every, best] += rng.random(TRAINING) < means[every, best]
        pulls[every, best] += 1
    return shapes_of(rows, level), wins.sum(axis=1) / steps


def run_level(view: View, seed: int) -> float:
    """The mean reward of a run, by a ridge regression on simulated ones, from the passes that were
    seen.
    """
    passes = read(view).turn(0)
    known = ~np.isnan(passes.values).any(axis=1)
    mine = features(shapes_of(passes.values[known], passes.level))
    shapes, totals = simulated(passes.owners, passes.policy, passes.level, passes.horizon, seed)
    given = features(shapes[:, passes.steps[known] - passes.owners - 1])
    middle, spread = given.mean(axis=0), given.std(axis=0) + 1e-9
    x = np.column_stack([np.ones(len(given)), (given - middle) / spread])
    weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]) * 3.0, x.T @ totals)
    return float(np.concatenate([[1.0], np.clip((mine - middle) / spread, -4, 4)]) @ weights)


def stage_runs(settings: Samba, seed: int) -> Iterator[Evidence]:
    """Runs on means drawn at random: comp's view, and what was earned."""
    from posse.systems.samba.federation import SambaRun
    from posse.systems.samba.system import SYSTEM

    rng = np.random.default_rng((seed, 89))
    owners = len(settings.load().arms)
    for number in range(RUNS):
        means = tuple(drawn(rng, 1, owners)[0].round(4).tolist())
        changed = settings.but(
            means=means,
            owners=None,
            data="embedded:movielens",
            horizon=min(settings.horizon, LENGTH),
            runs=1,
            seed=seed + number,
        )
        run = SambaRun(SYSTEM, changed, transcript=100_000_000, key=short_key())
        run.finish()
        yield Evidence(run.view("comp"), run.truth())


def score_runs(guesses: Sequence[float], truths: Sequence[Truth]) -> Score:
    """R2 of the mean reward over runs."""
    return determination(guesses, [truth["total"] / len(truth["arms"]) for truth in truths], "runs")


def other_runs(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Totals of other runs."""
    order = np.random.default_rng((seed, 97)).permutation(len(truths))
    return [truths[i] for i in order]


def _noisy(settings: Samba) -> str:
    return (
        ""
        if settings.make_policy().name in ("thompson", "softmax")
        else "the tracker reads runs of this policy."
    )


# The customer over repeated runs ------------------------------------------------------------------


def best_mean(totals: Sequence[float], seed: int) -> float:
    """The largest mean, from the totals of repeated runs and their length."""
    return float(np.mean(totals))


def stage_totals(settings: Samba, seed: int) -> Iterator[Evidence]:
    """Totals that a customer is given by five runs on each of some data: a run's total is that of
    its plain twin.
    """
    from posse.problems.arms.rewards import BernoulliArms
    from posse.systems.samba.twin import simulate

    rng, setup = np.random.default_rng((seed, 101)), settings.load()
    for number in range(RUNS):
        means = rng.random(len(setup.arms))
        length = min(settings.horizon, LENGTH)
        seeds = [1_000 * number + i for i in range(5)]
        made = simulate(BernoulliArms(means), setup.policy, length, seeds, level=settings.level)
        yield Evidence([total / length for total in made.total], {"best": float(means.max())})


def score_best(guesses: Sequence[float], truths: Sequence[Truth]) -> Score:
    """R2 of the largest mean over data."""
    return determination(guesses, [truth["best"] for truth in truths], "sets of means")


def plant_best(evidence: Evidence, seed: int) -> Evidence:
    """Totals that are the largest mean itself."""
    return Evidence([evidence.truth["best"]], evidence.truth)


# Parties that deviate -----------------------------------------------------------------------------


class InflatedPaperLane(PaperLane):
    """Sends larger scores than its arm has, once it is `inflated`."""

    inflated = False

    def _score(self, index: int) -> float:
        score = super()._score(index)
        return 1e3 * (1.0 + score) if self.inflated else score


class InflatedStrictLane(StrictLane):
    """Sends larger scores than its arm has, from the first block after it is `inflated`."""

    inflated = False

    def _hide(self, index: int, numbers: NDArray[np.int64]) -> None:
        super()._hide(index, numbers + (1 << 58) if self.inflated else numbers)


class InflatingOwner(Owner):
    """An owner that can add to its score what no arm has."""

    def _paper_lane(
        self, frames: Frames | ClearFrames, replies: Frames | ClearFrames, masks: Draws | None
    ) -> PaperLane:
        seeds = self._own_seeds()
        return InflatedPaperLane(self._arm, self._policy, frames, replies, masks, seeds)

    def inflate(self) -> None:
        """Send larger scores from now on, if it has its keys."""
        if isinstance(self._lane, InflatedPaperLane | InflatedStrictLane):
            self._lane.inflated = True


class InflatingStrictOwner(InflatingOwner, StrictOwner):
    """The same at level `strict`."""

    def _strict_lane(self, stream: bytes, coins: CommonDraws) -> StrictLane:
        return InflatedStrictLane(self._arm, self._policy, stream, coins, self._own_seeds())


def game(settings: Samba, seed: int, owner: type[Owner] | None = None) -> MemoryRun:
    """Make the roles of a short run at a level, to deviate in; owners may be of another class."""
    from posse.systems.samba.federation import SimulatedWorld, prepare

    setup = settings.load()
    key = None if settings.level == "strict" else short_key()
    budget = min(settings.horizon, 20 * len(setup.arms))
    make = prepare(
        setup.arms,
        setup.policy,
        budget,
        seed=seed,
        level=settings.level,
        switches=Switches(),
        key=key,
        kinds=None if owner is None else {"owner": owner},
    )
    return MemoryRun(make(), SimulatedWorld(setup.arms, seed, budget, keep_arms=True))


def stage_inflated(settings: Samba, seed: int) -> Iterator[Evidence]:
    """Runs in which one owner adds to its score what no arm has, beside the same run without."""
    kind = InflatingStrictOwner if settings.level == "strict" else InflatingOwner
    for number in range(3):
        shares = []
        for cheats in (False, True):
            run = game(settings, seed + number, kind)
            owner: Any = next(role for role in run.roles.values() if role.kind == "owner")
            for _ in run:
                if cheats:
                    owner.inflate()
                if run.world.reached >= run.world.steps[-1]:  # type: ignore[union-attr]
                    break
            world: Any = run.world
            after = world.arms[len(world.pulls) :]
            shares.append((sum(arm == 0 for arm in after), len(after)))
        yield Evidence(shares, {"cheats": True})


def score_inflated(guesses: Sequence[Any], truths: Sequence[Truth]) -> Score:
    """Share of the steps that the owner is pulled in, against its share without."""
    honest = [sum(one[0][i] for one in guesses) for i in range(2)]
    cheated = [sum(one[1][i] for one in guesses) for i in range(2)]
    return hits(cheated[0], cheated[1], honest[0] / max(1, honest[1]), "steps pulled")


def _at_strict(settings: Samba) -> str:
    return "" if settings.level == "strict" else "it is for level 'strict'."


def stage_flipped(settings: Samba, seed: int) -> Iterator[Evidence]:
    """A server flips the bit that one owner opens, and counts who pulls afterwards."""
    rng = np.random.default_rng((seed, 103))
    for number in range(GAMES):
        run = game(settings, seed + number)
        owners: dict[str, Any] = {
            name: role for name, role in run.roles.items() if role.kind == "owner"
        }
        at = (len(owners) + 2 + number % 5) * len(settings.make_policy().passes())
        replies: list[Any] = []
        while len(replies) < len(owners):
            if run.pending and _is_reply(run.pending[0], at):
                replies.append(run.take())
            elif run.deliver() is None:
                break
        yes = [owners[name].reveal().lane.yes == reply.reply for _, name, reply in replies]
        target = int(rng.integers(len(replies))) if number % 2 else yes.index(True)
        for i, (sender, name, reply) in enumerate(replies):
            bits = bytes([reply.reply[0] ^ (i == target)]) + reply.reply[1:]
            owners[name].receive(sender, Reply(reply.index, bits))
        pulling = sum(owner.reveal().pulling for owner in owners.values())
        yield Evidence(pulling, {"chosen": yes[target]})


def _is_reply(action: Any, index: int) -> bool:
    return isinstance(action, tuple) and isinstance(action[2], Reply) and action[2].index == index


def score_flipped(guesses: Sequence[int], truths: Sequence[Truth]) -> Score:
    """Games in which what follows says whether the owner was to pull: nobody does, or two do."""
    right = sum(
        (pulling == 0) == truth["chosen"] for pulling, truth in zip(guesses, truths, strict=True)
    )
    return hits(
        right,
        len(truths),
        max(0.5, sum(truth["chosen"] for truth in truths) / len(truths)),
        "games",
    )


def stage_chosen(settings: Samba, seed: int) -> Iterator[Evidence]:
    """A controller adds to its share of a helping owner's score, and the owner says whether it was
    chosen.
    """
    rng = np.random.default_rng((seed, 107))
    for number in range(GAMES):
        run = game(settings, seed + number)
        owners: dict[str, Any] = {
            name: role for name, role in run.roles.items() if role.kind == "owner"
        }
        helper, at = list(owners)[-1], (len(owners) + 2) * len(settings.make_policy().passes())
        numbers: dict[str, int] = {}
        answer: bool | None = None
        while answer is None:
            head: Any = run.pending[0] if run.pending else None
            if isinstance(head, tuple) and isinstance(head[2], Frame) and head[2].index == at:
                numbers[head[0]] = owners[head[0]].reveal().lane.number
                if head[0] == helper:
                    run.take()
                    held = head
                    if len(numbers) < len(owners):
                        run.put([head])
                        del numbers[head[0]]
                        continue
                    others = max(one for name, one in numbers.items() if name != helper)
                    above = bool(rng.integers(2))
                    shift = (
                        others
                        + (1 if above else -1) * (1 + int(rng.integers(1 << 20)))
                        - numbers[helper]
                    )
                    frame = (int.from_bytes(held[2].frame, "little") + shift) % 2**64
                    message = Frame(at, frame.to_bytes(8, "little"))
                    run.put(run.roles["controller"].receive(helper, message))
                    continue
            if _is_reply(head, at) and head[1] == helper:
                answer = bool(head[2].reply == owners[helper].reveal().lane.yes)
            elif run.deliver() is None:
                raise ProtocolError("the game ended before its question was answered.")
        yield Evidence(answer, {"chosen": above})


def score_chosen(guesses: Sequence[bool], truths: Sequence[Truth]) -> Score:
    """Games in which the owner's bit says whether the score of one's choice is above the largest of
    the others.
    """
    right = sum(guess == truth["chosen"] for guess, truth in zip(guesses, truths, strict=True))
    return hits(right, len(truths), 0.5, "games")


def plant_pulls(evidence: Evidence, seed: int) -> Evidence:
    """Nobody pulls where the owner was to, and two do where it was not."""
    return Evidence(0 if evidence.truth["chosen"] else 2, evidence.truth)


def plant_answers(evidence: Evidence, seed: int) -> Evidence:
    """Let what is seen be the answer."""
    return Evidence(evidence.truth["chosen"], evidence.truth)


def other_answers(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Answers at random."""
    rng = np.random.default_rng((seed, 109))
    return [{**truth, "chosen": bool(rng.integers(2))} for truth in truths]


def _truth_of_game(one: Any) -> str:
    return (
        f"{one} owners pull"
        if isinstance(one, int) and not isinstance(one, bool)
        else f"chosen: {one}"
    )


DEVIATES = "All parties are assumed to follow the protocol (honest but curious). A server"
ATTACKS = (
    Attack(
        "run-level",
        "the mean reward of a run, from its whole shape",
        ("comp",),
        CLAIMS,
        run_level,
        score_runs,
        "R2",
        plant_passes,
        PLANTED,
        other_runs,
        finds=FOUND_R2,
        needs="runs",
        stage=stage_runs,
        of_view=lambda view, like: view,
        seconds=lambda settings: 0.002 * RUNS * min(settings.horizon, LENGTH),
        missing=_noisy,
        tell=lambda one: f"mean reward {one:.3f}",
    ),
    Attack(
        "repeated-totals",
        "the largest mean, from the totals of five runs",
        ("customer",),
        ("The customer learns the total",),
        best_mean,
        score_best,
        "R2",
        plant_best,
        "totals that are the mean",
        other_runs,
        finds=0.8,
        needs="runs",
        stage=stage_totals,
        seconds=lambda settings: 2.0,
        tell=lambda one: f"largest mean about {one:.3f}",
    ),
    Attack(
        "inflated-score",
        "to be pulled more, by sending a larger score",
        ("owner",),
        ("All parties are assumed to follow",),
        lambda seen, seed: seen,
        score_inflated,
        "share",
        needs="runs",
        stage=stage_inflated,
        seconds=lambda settings: 4.0,
        plant=lambda evidence, seed: Evidence([(0, 10), (10, 10)], evidence.truth),
        planted="owners always pulled",
        tell=lambda one: f"pulled in {one[1][0]} of {one[1][1]} steps, {one[0][0]} without",
    ),
    Attack(
        "flipped-bit",
        "whether an owner was to pull, by flipping its bit",
        ("controller",),
        (DEVIATES,),
        lambda seen, seed: seen,
        score_flipped,
        "right",
        plant_pulls,
        "games that say it",
        other_answers,
        needs="runs",
        stage=stage_flipped,
        seconds=lambda settings: 10.0,
        missing=_at_strict,
        tell=_truth_of_game,
    ),
    Attack(
        "chosen-score",
        "how a score of one's choice compares with the others",
        ("controller", "owner"),
        (DEVIATES,),
        lambda seen, seed: seen,
        score_chosen,
        "right",
        plant_answers,
        "games that say it",
        other_answers,
        needs="runs",
        stage=stage_chosen,
        seconds=lambda settings: 10.0,
        missing=_at_strict,
        tell=_truth_of_game,
    ),
)
