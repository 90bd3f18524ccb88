"""Algorithms 1 to 4 written out in numpy, beside what a run in one process does, round by round, on
the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posse.policies.contextual.explorations import EXPLORATIONS
from posse.results import plots
from posse.systems.fed_contextual.computing.client import LOSSES
from posse.systems.fed_contextual.computing.cohorts import cohort_of
from posse.systems.fed_contextual.computing.rounds import host
from posse.systems.fed_contextual.computing.tasks import ACT, SHUFFLE, key_of
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.fed_contextual.simulation import Simulation
from posse.systems.fed_contextual.system import SYSTEM
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, Finding
from reproduction.kit import Analysis, Floats, Row, Table, Watch, progress, write_files

EPSILON, BETA, GAMMA = 0.2, 0.1, 20.0
CLOSE = 1e-4
"""Largest difference of a model from the written-out one, as a share of its largest number: single
precision.
"""


def chances(policy: str, scores: Floats) -> list[float]:
    """Give the chance of every arm as Algorithm 2 has it.

    >>> chances("epsilon-greedy", np.array([0.1, 0.9])), chances("greedy", np.array([0.1, 0.9]))
    ([0.1, 0.9], [0.0, 1.0])
    """
    best, arms = int(np.argmax(scores)), len(scores)
    if policy == "greedy":
        return [float(arm == best) for arm in range(arms)]
    if policy == "epsilon-greedy":
        return [EPSILON / arms + (1 - EPSILON) * (arm == best) for arm in range(arms)]
    if policy == "softmax":
        raised = [math.exp((score - scores[best]) / BETA) for score in scores]
        return [one / sum(raised) for one in raised]
    others = [
        0.0 if arm == best else 1 / (arms / 5 + GAMMA * (scores[best] - scores[arm]))
        for arm in range(arms)
    ]
    others = [one / max(1.0, sum(others)) for one in others]
    return [1 - sum(others) if arm == best else others[arm] for arm in range(arms)]


@dataclass(frozen=True, eq=False)
class Model:
    """A linear model of rewards."""

    w: Floats
    b: Floats

    def numbers(self) -> Floats:
        """All of its numbers in a row."""
        return np.append(self.w.ravel(), self.b)


def model_of(params: Any) -> Model:
    """Take a run's parameters in double precision."""
    return Model(*(np.asarray(params[name], np.float64) for name in "wb"))


@dataclass(frozen=True, eq=False)
class Log:
    """What a client did: Algorithm 2."""

    x: Floats
    arms: Any
    rewards: Floats
    chance: Floats


def infer(policy: str, model: Model, x: Floats, labels: Any, uniform: Floats) -> Log:
    """Algorithm 2: score, make the chances, draw an arm, log it with its reward and chance."""
    arms, chosen = [], []
    for row, u in zip(x, uniform, strict=True):
        row_chances = chances(policy, row @ model.w + model.b)
        reached = np.cumsum(row_chances)
        arms.append(int(np.argmax(reached > u * reached[-1])))
        chosen.append(row_chances[arms[-1]])
    return Log(x, np.array(arms), (np.array(arms) == labels).astype(float), np.array(chosen))


def train(model: Model, log: Log, order: Any, rate: float, batch: int, loss: str) -> Floats:
    """Give a client's part of Algorithm 3: what one epoch of gradient descent over its log
    moves.
    """
    weights = np.ones(len(order)) if loss == "regression" else log.chance.min() / log.chance
    w, b = model.w.copy(), model.b.copy()
    for first in range(0, len(order), batch):
        some = order[first : first + batch]
        slope_w, slope_b = np.zeros_like(w), np.zeros_like(b)
        for at in some:
            arm = log.arms[at]
            error = 2 * weights[at] * (log.x[at] @ w[:, arm] + b[arm] - log.rewards[at]) / len(some)
            slope_w[:, arm] += error * log.x[at]
            slope_b[arm] += error
        w, b = w - rate * slope_w, b - rate * slope_b
    return Model(w, b).numbers() - model.numbers()


@dataclass(frozen=True)
class Round:
    """A round of a run beside the written-out one."""

    policy: str
    loss: str
    round: int
    samples: int
    deployed: bool
    """Clients act with the model of the last deployment."""
    same: bool
    """Pulls of all arms and the reward are the same."""
    probability: float
    """Difference of the mean probability of the chosen arms."""
    moved: float
    """Largest difference of the model after the round, as a share of its largest number."""

    def row(self) -> Row:
        """The round as a row of the raw file."""
        return {
            "policy": self.policy,
            "loss": self.loss,
            "round": self.round,
            "samples": self.samples,
            "deployed": int(self.deployed),
            "same_arms_and_reward": int(self.same),
            "probability": self.probability,
            "model": self.moved,
        }


@dataclass(frozen=True, eq=False)
class Followed:
    """A run, round by round, and as one command."""

    rounds: list[Round]
    whole: bool
    """The run as one command earned what its rounds did."""


def follow(policy: str, loss: str, rounds: int, every: int, seed: int = 1) -> Followed:
    """Run federated rounds, and each of them again in numpy from where the run stood."""
    own = {
        "epsilon-greedy": {"epsilon": EPSILON},
        "softmax": {"beta": BETA},
        "falcon": {"gamma": GAMMA},
    }
    settings = FedContextual.make(
        {
            "data": "digits",
            "clients": 60,
            "cohort": 6,
            "horizon": rounds,
            "deploy_every": every,
            "policy": policy,
            "loss": loss,
            "optimiser": "sgd",
            "client_rate": 0.5,
            "server_rate": 1.0,
            "seed": seed,
            **own.get(policy, {}),
        }
    )
    run = Simulation(settings, settings.load())
    schedule, state = run.plan.schedule, run.first(seed)
    gather: Any = host(run.setup.population, schedule.samples, settings.cap)
    acting, made, earned = model_of(state.params), [], 0.0
    for number in range(rounds):
        before = model_of(state.params)
        deployed = np.array_equal(model_of(state.deployed).numbers(), acting.numbers())
        clients = cohort_of(schedule, seed, number)
        cohort = gather(*clients, number)
        updates, logs = [], []
        for client, x, y, mask in zip(
            cohort.clients, cohort.contexts, cohort.labels, cohort.mask, strict=True
        ):
            real = mask > 0
            draws = (
                np.asarray(jax.random.uniform(key_of(seed, what, number, int(client)), mask.shape))
                for what in (ACT, SHUFFLE)
            )
            uniform, shuffled = (one[real].astype(float) for one in draws)
            x = x[real].reshape(real.sum(), -1) / 255.0
            logs.append(infer(policy, acting, x, y[real], uniform))
            update = train(before, logs[-1], np.argsort(shuffled), 0.5, settings.batch, loss)
            updates.append(
                update * min(1.0, float(state.limit) / max(float(np.linalg.norm(update)), 1e-30))
            )
        wanted = before.numbers() + np.mean(updates, axis=0)
        ((state, seen),) = run.rounds([state], number + 1, [seed])
        pulls = np.bincount(np.concatenate([log.arms for log in logs]), minlength=len(acting.b))
        reward, samples = sum(log.rewards.sum() for log in logs), sum(len(log.arms) for log in logs)
        chance = (
            sum(log.chance.sum() for log in logs) / samples - float(seen.probability[0]) / samples
        )
        gap = float(np.abs(model_of(state.params).numbers() - wanted).max() / np.abs(wanted).max())
        same = np.array_equal(pulls, np.asarray(seen.pulls)) and float(seen.reward[0]) == reward
        made.append(
            Round(policy, loss, number + 1, samples, deployed, same, abs(float(chance)), gap)
        )
        earned += reward
        if (number + 1) % every == 0:
            acting = model_of(state.params)
    again = SYSTEM.start(settings)
    again.finish()
    return Followed(made, again.record().total[0] == earned)


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Follow a run of every policy and loss."""
    rounds, every = (4, 2) if small else (40, 10)
    cells = [
        cell for cell in product(EXPLORATIONS, LOSSES) if cell != ("greedy", LOSSES[1])
    ]  # refused: needs chances
    cells = [("softmax", LOSSES[0]), ("falcon", LOSSES[1])] if small else cells
    runs = [
        follow(*cell, rounds, every) for cell in progress(cells, lambda c: f"{c[0]}, {c[1]}", watch)
    ]
    watch("figure and analysis", 1.0)
    return analyse(runs, out)


def analyse(runs: Sequence[Followed], out: Path) -> Analysis:
    """Write rows and figure, and judge."""
    every = [one for run in runs for one in run.rounds]
    files = write_files(out, "algorithms", [one.row() for one in every], picture(runs))
    count, samples = len(every), sum(one.samples for one in every)
    close = sum(one.moved <= CLOSE for one in every)
    deployed, same = sum(one.deployed for one in every), sum(one.same for one in every)
    kept = sum(run.whole for run in runs)
    findings = (
        _all(
            "one",
            deployed,
            count,
            "rounds use the model of the last deployment, and no other",
        ),
        _all(
            "two",
            same,
            count,
            f"rounds have equal pulls of every arm and equal reward, over {samples:,} decisions; "
            "probabilities of the chosen arms differ by at most "
            f"{max(one.probability for one in every):.1e}",
        ),
        _all(
            "three",
            close,
            count,
            f"rounds have a model that differs by at most {max(one.moved for one in every):.1e} of "
            "its largest number",
        ),
        _all("four", kept, len(runs), "runs earn the same by one command as round by round"),
    )
    body = tuple(
        (
            run.rounds[0].policy,
            run.rounds[0].loss,
            str(len(run.rounds)),
            str(sum(one.same for one in run.rounds)),
            f"{max(one.probability for one in run.rounds):.1e}",
            f"{max(one.moved for one in run.rounds):.1e}",
            "yes" if run.whole else "no",
        )
        for run in runs
    )
    columns = (
        "policy",
        "loss",
        "rounds",
        "same arms and reward",
        "largest difference of a probability",
        "largest difference of a model",
        "the same as one command",
    )
    notes = (
        "Digits of 60 Dirichlet clients, 6 a round, a linear model, one local epoch, the mean of "
        "clipped updates at "
        "the server (SGD with rate 1). Every round begins where the run stood, so that roundings "
        "of single precision "
        "do not add up; arms and order of training come from the run's own draws.",
        "FALCON's chances and importance weights are the package's where they depart from the "
        "paper (departures).",
    )
    held = sum(one.verdict == HOLDS for one in findings)
    return Analysis(
        f"{held} of 4 algorithms are what a run does.",
        (Table("Runs", columns, body),),
        notes,
        files,
        findings,
    )


def _all(claim: str, right: int, count: int, words: str) -> Finding:
    return Finding(claim, f"{right} of {count} {words}", HOLDS if right == count else FAILS)


def picture(runs: Sequence[Followed]) -> plots.Figure:
    """Draw how far a model is from the written-out one after every round."""
    figure, (ax,) = kit.panels(1)
    plots.style(ax, x="round", y="difference of the model (logarithmic)")
    for number, run in enumerate(runs):
        label = f"{run.rounds[0].policy}, {run.rounds[0].loss}"
        numbers = [one.round for one in run.rounds]
        kit.line(
            ax, numbers, [max(one.moved, 1e-12) for one in run.rounds], number, label, marker=False
        )
    ax.axhline(CLOSE, color=plots.INK, linewidth=1.0, linestyle=":", label="taken as the same")
    ax.set_yscale("log")
    kit.legend(figure, ax, 3)
    return figure
