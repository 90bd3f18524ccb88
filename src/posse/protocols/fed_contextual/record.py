"""From what rounds showed to a record: curves, averages, what is earned without a model, privacy spent, remarks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.policies.contextual.registry import described
from posse.policies.decisions import Learnt
from posse.privacy.dp.sampled import Accountant
from posse.problems.populations.population import Population
from posse.protocols.base import System
from posse.protocols.fed_contextual import remarks
from posse.protocols.fed_contextual.levels import not_covered, proved
from posse.protocols.fed_contextual.models import Leaves, leaves_of
from posse.protocols.fed_contextual.server import Measured
from posse.protocols.fed_contextual.settings import FedContextual, Setup
from posse.protocols.fed_contextual.training import joined
from posse.results import words
from posse.results.record import Record, points_of
from posse.results.sections import Section
from posse.results.values import JSON, plain_dict

Floats = NDArray[np.float64]
Summary = dict[str, str | float | int]


MOST_KEPT = 20_000
"""Numbers of a linear model that a record keeps; larger ones go to `model_out`."""


def labelled(population: Population) -> tuple[tuple[str, ...], float, tuple[str, ...]]:
    """Return names of arms, what contexts are divided by, and names of features where they came from a table."""
    scale = 255.0 if getattr(population.inputs, "dtype", None) == np.uint8 else 1.0
    return population.arms, scale, population.features


def _linear(leaves: Leaves, names: tuple[str, ...], scale: float, features: tuple[str, ...]) -> Learnt:
    """Make a linear model of its arrays: b, then w."""
    bias, weights = (np.asarray(leaf, np.float64) for leaf in leaves)
    return Learnt(names, weights, bias, scale, features=features)


def learnt_in(path: Path) -> Learnt:
    """Read a linear model from a file of `write_model`."""
    try:
        with np.load(path, allow_pickle=False) as found:
            leaves = [found[name] for name in sorted(found.files) if name.startswith("leaf")]
            names = tuple(str(name) for name in found["arms"]) if "arms" in found.files else ()
            scale = float(found["scale"]) if "scale" in found.files else 1.0
            features = tuple(str(name) for name in found["features"]) if "features" in found.files else ()
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise DataError(f"the model {path} cannot be read ({why}). Take a file of --model-out.") from None
    linear = [leaf.ndim for leaf in leaves] == [1, 2] and leaves[1].shape[1:] == leaves[0].shape
    if not linear or any(leaf.dtype.kind != "f" for leaf in leaves):
        raise DataError(f"{path} holds {len(leaves)} arrays that are no linear model, which alone is read here.")
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise DataError(f"{path} must hold finite numbers. Take a model that converged.")
    if names and len(names) != len(leaves[0]):
        raise DataError(f"{path} names {len(names)} arms and has {len(leaves[0])}. Take a file of --model-out.")
    if features and len(features) != len(leaves[1]):
        raise DataError(f"{path} names {len(features)} features and has {len(leaves[1])}. Take a file of --model-out.")
    return _linear(leaves, names or tuple(f"arm {at + 1}" for at in range(len(leaves[0]))), scale, features)


@dataclass
class Outcome:
    """What one run showed, up to where it came."""

    seed: int
    parts: list[Measured] = field(default_factory=list)
    rounds: int = 0
    """Rounds done."""
    estimated: object = None
    """What another policy would earn, or why that cannot be estimated."""

    def add(self, some: Measured) -> None:
        """Put further rounds behind those that were there."""
        self.parts.append(some)
        self.rounds += len(np.asarray(some.reward))

    @property
    def seen(self) -> Measured:
        """What all rounds showed."""
        self.parts[:] = [joined(self.parts)]
        return self.parts[0]

    def column(self, name: str) -> Floats:
        """One number a round."""
        return np.asarray(getattr(self.seen, name) if self.parts else [], np.float64)


@dataclass
class Clock:
    """Time of rounds, without compiling and pre-training."""

    rounds: int = 0
    wall: float = 0.0


def record_of(
    system: System, settings: FedContextual, setup: Setup, outcomes: list[Outcome], clock: Clock, seconds: float,
    status: str, params: Any = None,
) -> Record:  # fmt: skip
    """Make the record; of one that is not finished only the runs that came furthest count.

    `params` are those of the first seed, which the record keeps where they are a linear model of few numbers.
    """
    kept = sum(outcome.rounds for outcome in outcomes) if settings.keep is not None else 0
    done = max((outcome.rounds for outcome in outcomes), default=0)
    outcomes = [outcome for outcome in outcomes if outcome.rounds == done > 0]
    points = points_of(setup.rounds, settings.points)
    points = points[points <= done]
    curves = [outcome.column("reward")[:done].cumsum()[points - 1] for outcome in outcomes]
    summary = {**_summary(settings, setup, outcomes, clock), **({"rounds_kept": kept} if kept else {})}
    more: dict[str, Any] = {"warnings": [str(summary[key]) for key in remarks.REMARKS if key in summary]}
    if "stopped" in summary:
        more["stopped"] = f"{summary['stopped']}. More noise, a smaller cohort or a larger limit allow more."
    if kept:
        more["resume"] = f"kept {words.count(kept, 'round')} in {settings.keep}; the same command goes on"
    if setup.model == "linear" and params is not None and setup.parameters <= MOST_KEPT:
        more["learnt"] = _linear(leaves_of(params), *labelled(setup.population)).table()
    return Record(
        kind=system.name,
        config=config_of(settings, setup),
        problem={**plain_dict(setup.population.describe(), "problem"), "names": list(setup.population.arms),
                 "words": dict(system.words)},
        level=system.level_of(settings),
        leaks=system.not_protected(settings),
        seeds=tuple(outcome.seed for outcome in outcomes),
        steps=points,
        reward=np.array(curves).reshape(len(outcomes), len(points)),
        total=tuple(float(outcome.column("reward").sum()) for outcome in outcomes),
        pulls=_pulls(outcomes),
        status=status,
        privacy=privacy_of(settings, setup, done),
        seconds=seconds,
        summary=summary,
        show=system.show(settings, sections_of(summary, len(outcomes)), **more),
    )  # fmt: skip


_ROWS = (
    ("average reward", "average_reward"), ("average reward, last tenth of the rounds", "average_reward_last_tenth"),
    ("mean probability of the chosen arm", "average_probability"), ("decisions", "samples"),
    ("rounds", "rounds_done"), ("clip norm at the end", "clip_norm"),
    ("share of updates within the clip", "within_clip"), ("rounds a second", "rounds_a_second"),
)  # fmt: skip


def sections_of(summary: Mapping[str, Any], runs: int) -> list[Section]:
    """What a summary says, as tables: what was earned a decision, and what another policy would earn."""
    # The average stands at the top of what is shown, beside chance and the best fixed arm, where these are known.
    above = ("average_reward",) if "chance_reward" in summary else ()
    rows = [(name, words.number(summary[key], 4)) for name, key in _ROWS if key in summary and key not in above]
    if "average_reward_smallest" in summary:
        low, high = (words.number(summary[f"average_reward_{which}"], 4) for which in ("smallest", "largest"))
        rows.insert(0 if above else 1, ("average reward, smallest to largest run", f"{low} to {high}"))
    if isinstance(size := summary.get("bytes_an_update"), int):
        rows.append(("an update, or the model", words.size(size)))
    notes = (
        "Earned: mean of the runs ± its standard error, over cohorts, arms, order and noise, not over the split. "
        "All else: over all runs together.",
    )  # fmt: skip
    made = [Section("Learning", ("", ""), tuple(rows), notes if runs > 1 else (), (1,))]
    if "estimated_reward" in summary:
        value = words.plus_minus(summary["estimated_reward"], summary["estimated_reward_error"])
        each = f" of {runs} runs" if runs > 1 else ""
        decisions, devices = (words.number(summary[f"estimated_{what}"]) for what in ("decisions", "devices"))
        based = f"from {decisions} decisions{each} on {devices} devices"
        effective = f"effective sample size {summary['estimated_effective']:,.0f}"
        note = (
            f"On devices' own contexts {summary['evaluated']} with the deployed model would earn {value} a decision "
            f"(SNIPS; ± a standard error; {based}, {effective})."
        )
        made.append(Section("", notes=(note,)))
    if "estimate_refused" in summary:
        note = f"What {summary['evaluated']} would earn cannot be estimated: {summary['estimate_refused']}"
        made.append(Section("", notes=(note,)))
    return made


def _pulls(outcomes: list[Outcome]) -> NDArray[np.int64]:
    """How often each arm was chosen, (runs, arms); no arms where a run was taken up that had not counted."""
    counts = [outcome.seen.pulls for outcome in outcomes]
    known = [np.asarray(one, np.int64) for one in counts if one is not None]
    return np.array(known) if known and len(known) == len(counts) else np.zeros((len(outcomes), 0), np.int64)


def privacy_of(settings: FedContextual, setup: Setup, done: int) -> tuple[Mapping[str, JSON], ...]:
    """Return what the rounds of a run prove: by the ledger's accountant, and by RDP where that is another."""
    made = setup.mechanism
    if made is None or not done:
        return ()
    accountants: tuple[Accountant, ...] = ("pld", "rdp") if made.sampling == "poisson" else ("rdp",)
    entries = proved(made, done, settings.delta, accountants, more=not_covered(settings.resolved()))
    return tuple(plain_dict(entry, "guarantee") for entry in entries)


def config_of(settings: FedContextual, setup: Setup) -> dict[str, JSON]:
    """Every setting with the value that was used."""
    chosen = settings.exploration()
    parameters = dict(zip(asdict(chosen), chosen.values(len(setup.population.arms)), strict=True))
    return {
        **settings.resolved(),
        "clients": setup.population.clients,
        "client_rate": setup.client_rate,
        "server_rate": setup.server_rate,
        "input_size": setup.input_size or None,
        "pretraining_client_rate": setup.pretraining_client_rate,
        "model": {"bag": "bag-of-words"}.get(setup.model, setup.model),
        "sampling": setup.sampling,
        "quantile": setup.quantile,
        "pretrained": setup.world.pretrained,
        "horizon": setup.rounds,
        "policy": {**described(chosen), "parameters": parameters},
    }


def _summary(settings: FedContextual, setup: Setup, outcomes: list[Outcome], clock: Clock) -> Summary:
    """Return averages over all runs, and why training stopped where it was before its time."""
    samples = sum(float(outcome.column("samples").sum()) for outcome in outcomes)
    summary: Summary = {
        "rounds_done": sum(outcome.rounds for outcome in outcomes),
        "steps_done": sum(outcome.rounds for outcome in outcomes),
        "samples": int(samples),
        "parameters": setup.parameters,
        "bytes_an_update": 4 * setup.parameters,
    }
    if samples:
        rewards, chances = (
            sum(float(one.column(name).sum()) for one in outcomes) for name in ("reward", "probability")
        )  # fmt: skip
        summary["average_reward"] = rewards / samples
        summary["average_probability"] = chances / samples
        summary["average_reward_last_tenth"] = _last_tenth(outcomes)
        summary |= _each_run(outcomes) | without_model(settings, setup, outcomes)
        summary["clip_norm"] = float(np.mean([one.column("limit")[-1] for one in outcomes]))
        summary["within_clip"] = float(np.mean([one.column("within").mean() for one in outcomes]))
    if clock.wall:
        summary["rounds_a_second"] = clock.rounds / clock.wall
    if setup.rounds < settings.horizon and all(one.rounds == setup.rounds for one in outcomes):
        budget = f"({settings.limit:g}, {settings.delta:g})"
        summary["stopped"] = f"privacy budget {budget} spent after {setup.rounds} of {settings.horizon} rounds"
    return {**summary, **_remarks(settings, setup, outcomes), **_estimates(settings, outcomes)}


def _each_run(outcomes: list[Outcome]) -> Summary:
    """Return the smallest and the largest average reward of several runs: a mean hides one that did not learn."""
    if len(outcomes) < 2:
        return {}
    each = [float(one.column("reward").sum() / max(1.0, one.column("samples").sum())) for one in outcomes]
    return {"average_reward_smallest": min(each), "average_reward_largest": max(each)}


def without_model(settings: FedContextual, setup: Setup, outcomes: list[Outcome]) -> Summary:
    """Return what is earned without a model; rewards of a user's own are known for chosen arms alone."""
    if setup.own.pay is not None:
        return {}
    drift = settings.drifting(len(setup.population.arms))
    found = remarks.baselines(setup.population, setup.world.rewards, drift, outcomes[0].rounds)
    return {"chance_reward": found.chance, "best_fixed_reward": found.best, "best_fixed_arm": found.arm}


def _remarks(settings: FedContextual, setup: Setup, outcomes: list[Outcome]) -> Summary:
    """Return signs that runs did not do what was meant; of several runs, of the first that shows one."""
    squared = remarks.squared_norm(setup.population, setup.model) if settings.server_rate is not None else 0.0
    large = remarks.large_inputs(squared, settings.optimiser)
    summary: Summary = {} if large is None or not outcomes else {"large_inputs": large}
    pretrained, rates = bool(setup.world.pretrained), {"client_rate": setup.client_rate}
    stays = setup.own.pay is None and settings.drift == "none"
    table = setup.world.rewards.table
    chance = remarks.baselines(setup.population, setup.world.rewards).chance if stays and outcomes else 0.0
    stays = stays and float(table.min()) >= 0 and float(table.max()) <= 1
    if pretrained:
        rates["pretraining_client_rate"] = setup.pretraining_client_rate
    for one in outcomes:
        limits, within, clients = (one.column(name) for name in ("limit", "within", "clients"))
        grew = remarks.diverged(limits, within, setup.quantile, **rates)
        both = {**rates, "server_rate": setup.server_rate}
        lost = stays and grew is None and remarks.not_learnt(
            one.column("reward"), one.column("samples"), chance, settings.deploy_every, **both
        )  # fmt: skip
        for key, found in (
            ("diverged", grew),
            ("not_learnt", lost or None),
            ("not_deployed", remarks.not_deployed(one.rounds, settings.deploy_every, pretrained=pretrained)),
            ("wide_clip", remarks.wide_clip(within, clients, settings.noise)),
        ):
            if found is not None:
                summary.setdefault(key, found)
    return summary


def _last_tenth(outcomes: list[Outcome]) -> float:
    """Average reward of the last tenth of the rounds: where the model has come to."""
    sums = np.zeros(2)
    for one in outcomes:
        last = max(1, one.rounds // 10)
        sums += [one.column("reward")[-last:].sum(), one.column("samples")[-last:].sum()]
    return float(sums[0] / max(1.0, sums[1]))


def _estimates(settings: FedContextual, outcomes: list[Outcome]) -> Summary:
    """Return what another policy would earn: the mean over runs, with the standard error of that mean."""
    from posse.policies.evaluation.offline import Estimate

    made = [one.estimated for one in outcomes if isinstance(one.estimated, Estimate)]
    refused = [one.estimated for one in outcomes if isinstance(one.estimated, str)]
    summary: Summary = {"evaluated": settings.evaluate} if settings.evaluate and (made or refused) else {}
    if made:
        summary["estimated_reward"] = float(np.mean([one.value for one in made]))
        summary["estimated_reward_error"] = math.sqrt(sum(one.error**2 for one in made)) / len(made)
        summary["estimated_decisions"] = sum(one.rows for one in made)
        summary["estimated_devices"] = max(one.clients for one in made)
        summary["estimated_effective"] = float(sum(one.effective for one in made))
    if refused:
        summary["estimate_refused"] = refused[0]
    return summary
