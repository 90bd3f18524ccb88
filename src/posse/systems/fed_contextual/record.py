"""From what rounds showed to a record: curves, averages, what is earned without a model, privacy
spent, remarks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core.errors import DataError
from posse.policies.contextual.schedules import Explores
from posse.policies.decisions import Learnt
from posse.privacy.dp.sampled import Accountant
from posse.problems.populations.population import Population
from posse.results import words
from posse.results.record import Record, points_of
from posse.results.section import Section
from posse.results.values import JSON, plain_dict
from posse.systems.base import presentation
from posse.systems.fed_contextual import remarks
from posse.systems.fed_contextual.computing.cohorts import Schedule, past
from posse.systems.fed_contextual.computing.models import Leaves, Tree, leaves_of
from posse.systems.fed_contextual.computing.server import Measured
from posse.systems.fed_contextual.computing.training import joined
from posse.systems.fed_contextual.export import arm_names, check_constants, read_arrays
from posse.systems.fed_contextual.levels import not_covered, proved
from posse.systems.fed_contextual.settings import FedContextual, Setup

if TYPE_CHECKING:
    from posse.systems.fed_contextual.run import FedRun

Floats = NDArray[np.float64]
Summary = dict[str, str | float | int]


CENTRALISED = {
    "against": "nobody: one place holds all samples (the centralised baseline)",
    "broken_by": "one: the place that holds the samples",
    "attacks": [],
    "command": "",
}
"""Short description of the protection, as levels have it (`presentation_at`)."""
MOST_KEPT = 20_000
"""Numbers of a linear model that a record keeps; larger ones go to `model_out`."""


def labelled(
    population: Population,
) -> tuple[tuple[str, ...], float | tuple[float, ...], tuple[str, ...], tuple[float, ...]]:
    """Return names of arms, what contexts are divided by, names of features of a table, and what is
    taken off first.
    """
    if (scaling := population.scaling) is not None:
        return population.arms, scaling.spread, population.features, scaling.shift
    scale = 255.0 if getattr(population.inputs, "dtype", None) == np.uint8 else 1.0
    return population.arms, scale, population.features, ()


def _linear(
    leaves: Leaves,
    names: tuple[str, ...],
    scale: ArrayLike,
    features: tuple[str, ...],
    shift: ArrayLike = (),
) -> Learnt:
    """Make a linear model of its arrays: b, then w."""
    bias, weights = (np.asarray(leaf, np.float64) for leaf in leaves)
    spread, centre = (np.asarray(part, np.float64) for part in (scale, shift))
    if not centre.size:
        return Learnt(names, weights, bias, float(spread), features=features)
    return Learnt(names, weights, bias, spread, features=features, shift=centre)


def learnt_in(path: Path) -> Learnt:
    """Read a linear model from a file of `write_model`."""
    parts = read_arrays(path)
    leaves = [parts[name] for name in sorted(parts) if name.startswith("leaf")]
    _check_linear(leaves, path)
    bias, weights = leaves
    names = arm_names(parts, len(bias), path)
    features = tuple(map(str, parts.get("features", ())))
    if features and len(features) != len(weights):
        raise DataError(
            f"{path} names {len(features)} features and has {len(weights)}. Take a file of "
            "--model-out."
        )
    scale, shift = parts.get("scale", np.ones(())), parts.get("shift")
    if shift is None:
        check_constants(parts, path)
        return _linear(leaves, names, scale, features)
    if {shift.shape, scale.shape} != {weights.shape[:1]}:
        raise DataError(
            f"{path} scales {shift.size} features and has {len(weights)}. Take a file of "
            "--model-out."
        )
    return _linear(leaves, names, scale, features, shift)


def _check_linear(leaves: Leaves, path: Path) -> None:
    linear = [leaf.ndim for leaf in leaves] == [1, 2] and leaves[1].shape[1:] == leaves[0].shape
    if not linear or any(leaf.dtype.kind != "f" for leaf in leaves):
        raise DataError(
            f"{path} holds {len(leaves)} arrays that are no linear model, which alone is read here."
        )
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise DataError(f"{path} must hold finite numbers. Take a model that converged.")


@dataclass
class Outcome:
    """What one run showed, up to where it came."""

    seed: int
    parts: list[Measured] = field(default_factory=list)
    rounds: int = 0
    """Rounds done."""
    estimated: object = None
    """What another policy would earn, or why that cannot be estimated."""
    supervised: Floats | None = None
    """Rewards a round of a supervised model of the same class, on the same devices."""

    def add(self, some: Measured) -> None:
        """Put further rounds behind those that were there."""
        self.parts.append(some)
        self.rounds += len(np.asarray(some.reward))

    @property
    def seen(self) -> Measured:
        """What all rounds showed; rounds that another thread adds meanwhile are left for the next
        look.
        """
        count = len(self.parts)
        made = joined(self.parts[:count])
        self.parts[:count] = [made]
        return made

    def column(self, name: str) -> Floats:
        """One number a round."""
        return np.asarray(getattr(self.seen, name) if self.parts else [], np.float64)


@dataclass
class Clock:
    """Time of rounds, without compiling and pre-training."""

    rounds: int = 0
    wall: float = 0.0


def record_of(
    run: FedRun,
    outcomes: list[Outcome],
    clock: Clock,
    status: str,
    params: Tree | None = None,
    explores: Explores | None = None,
) -> Record:
    """Make the record of a run; if it is not finished, of the seeds that came furthest.

    Args:
        run: The run.
        outcomes: What each seed showed so far.
        clock: Time of the rounds.
        status: "finished", "running" or "interrupted".
        params: Parameters of the first seed, which the record keeps if the model is linear and has
            few numbers.
        explores: Parameters of the policy by deployment, if they follow a schedule.
    """
    settings = run.settings
    setup = run.setup
    rounds_kept = 0
    if settings.keep is not None:
        rounds_kept = sum(outcome.rounds for outcome in outcomes)
    done = max((outcome.rounds for outcome in outcomes), default=0)
    outcomes = [outcome for outcome in outcomes if outcome.rounds == done > 0]
    points = points_of(setup.rounds, settings.points)
    points = points[points <= done]
    summary = _summary(settings, setup, outcomes, clock)
    if rounds_kept:
        summary["rounds_kept"] = rounds_kept
    entries = _status_entries(settings, summary, status)
    if outcomes and len(points):
        entries["curves"] = _curves(outcomes, points)
        if explores is not None:
            entries["curves"].append(_policy_curve(settings, explores, points, len(outcomes)))
    entries |= learnt_of(setup, params)
    if settings.centralised:
        entries["protection_summary"] = CENTRALISED
    sections = [*sections_of(summary, len(outcomes)), *_coming(settings, setup, outcomes)]
    rewards = [outcome.column("reward") for outcome in outcomes]
    curves = [reward[:done].cumsum()[points - 1] for reward in rewards]
    return run.make_record(
        status,
        seeds=tuple(outcome.seed for outcome in outcomes),
        steps=points,
        reward=np.array(curves).reshape(len(outcomes), len(points)),
        total=tuple(float(reward.sum()) for reward in rewards),
        pulls=_pulls(outcomes),
        privacy=privacy_of(settings, setup, done, int(summary.get("log_used", 0))),
        summary=summary,
        show=presentation(run.system, settings, sections, **entries),
    )


def _status_entries(settings: FedContextual, summary: Summary, status: str) -> dict[str, Any]:
    """Return warnings, why the run stopped early, what it wrote and how to resume it."""
    entries: dict[str, Any] = {
        "warnings": [str(summary[key]) for key in remarks.REMARKS if key in summary]
    }
    if "stopped" in summary:
        entries["stopped"] = (
            f"{summary['stopped']}. More noise, a smaller cohort or a larger limit allow more."
        )
    if status == "finished" and settings.model_out is not None:
        entries["wrote"] = [f"the model to {settings.model_out}"]
    if "rounds_kept" in summary:
        rounds = words.count(int(summary["rounds_kept"]), "round")
        entries["resume"] = f"kept {rounds} in {settings.keep}; the same command goes on"
    return entries


def _policy_curve(
    settings: FedContextual, explores: Explores, points: NDArray[np.int64], runs: int
) -> JSON:
    """Return the last parameter of a policy that follows a schedule, at the points of the curves."""
    parameter = list(asdict(settings.exploration()))[-1]
    deployments = (points - 1) // settings.deploy_every + 1
    values = [round(explores(int(deployment))[-1], 6) for deployment in deployments]
    return {"name": f"{parameter} of the policy", "values": [values] * runs}


def learnt_of(setup: Setup, params: Tree | None) -> dict[str, Any]:
    """Return what was learnt as a record shows it: a linear model of few numbers; nothing of other
    models.
    """
    if setup.model != "linear" or params is None or setup.parameters > MOST_KEPT:
        return {}
    return {"learnt": _linear(leaves_of(params), *labelled(setup.population)).table()}


_ROWS = (
    ("average reward", "average_reward"),
    ("average reward, last tenth of the rounds", "average_reward_last_tenth"),
    ("regret a decision, to the best arm of every context", "average_regret"),
    ("a supervised model of the same class would earn", "supervised_reward"),
    ("regret a decision, to that model", "regret_to_supervised"),
    ("mean probability of the chosen arm", "average_probability"),
    ("decisions", "samples"),
    ("rounds", "rounds_done"),
    ("share of devices that had an older model", "behind"),
    ("deployments that a device was behind, at most", "most_behind"),
    ("rounds that learnt from one log, at most", "log_used"),
    ("clip norm at the end", "clip_norm"),
    ("share of updates within the clip", "within_clip"),
    ("rounds a second", "rounds_a_second"),
)


def sections_of(summary: Mapping[str, Any], runs: int) -> list[Section]:
    """What a summary says, as tables: what was earned a decision, and what another policy would
    earn.
    """
    # The average stands at the top of what is shown, beside chance and the best fixed arm, where
    # these are known.
    above = ("average_reward",) if "chance_reward" in summary else ()
    rows = [
        (name, words.number(summary[key], 4))
        for name, key in _ROWS
        if key in summary and key not in above
    ]
    if "average_reward_smallest" in summary:
        low, high = (
            words.number(summary[f"average_reward_{which}"], 4) for which in ("smallest", "largest")
        )
        rows.insert(
            0 if above else 1, ("average reward, smallest to largest run", f"{low} to {high}")
        )
    if isinstance(size := summary.get("bytes_an_update"), int):
        rows.append(("an update, or the model", words.size(size)))
    notes = (
        "Earned: mean of the runs ± its standard error, over cohorts, arms, order and noise, not "
        "over the split. "
        "All else: over all runs together.",
    )
    made = [Section("Learning", ("", ""), tuple(rows), notes if runs > 1 else (), (1,))]
    if "estimated_reward" in summary:
        value = words.plus_minus(summary["estimated_reward"], summary["estimated_reward_error"])
        each = f" of {runs} runs" if runs > 1 else ""
        decisions, devices = (
            words.number(summary[f"estimated_{what}"]) for what in ("decisions", "devices")
        )
        based = f"from {decisions} decisions{each} on {devices} devices"
        effective = f"effective sample size {summary['estimated_effective']:,.0f}"
        note = (
            f"On devices' own contexts {summary['evaluated']} with the deployed model would earn "
            f"{value} a decision "
            f"(SNIPS; ± a standard error; {based}, {effective})."
        )
        made.append(Section("", notes=(note,)))
    if "estimate_refused" in summary:
        note = (
            f"What {summary['evaluated']} would earn cannot be estimated: "
            f"{summary['estimate_refused']}"
        )
        made.append(Section("", notes=(note,)))
    return made


def _curves(outcomes: list[Outcome], points: NDArray[np.int64]) -> list[JSON]:
    """What is drawn beside rewards and regret, at the same rounds: how sure devices were of what
    they chose.
    """

    def between(values: Floats) -> Floats:
        return np.diff(values.cumsum()[points - 1], prepend=0.0)

    def a_decision(one: Outcome) -> Floats:
        """Where nobody decided, since all learn from logs that they kept, the last value stays."""
        counts = between(one.column("samples"))
        places = np.maximum.accumulate(np.where(counts > 0, np.arange(len(counts)), 0))
        return np.asarray((between(one.column("probability")) / counts.clip(1))[places])

    sure = [a_decision(one) for one in outcomes]
    made = [("mean probability of the chosen arm", sure)]
    if all(one.seen.best is not None for one in outcomes):
        lost = [one.column("best") - one.column("reward") for one in outcomes]
        made.append(
            (
                "cumulative regret to the best arm of every context",
                [one.cumsum()[points - 1] for one in lost],
            )
        )
    if all(one.supervised is not None for one in outcomes):
        gaps = [np.asarray(one.supervised) - one.column("reward") for one in outcomes]
        made.append(
            ("cumulative regret to a supervised model", [gap.cumsum()[points - 1] for gap in gaps])
        )
    return [
        {"name": name, "values": [[round(float(x), 6) for x in run] for run in values]}
        for name, values in made
    ]


def _coming(settings: FedContextual, setup: Setup, outcomes: list[Outcome]) -> list[Section]:
    """Say in which rounds arms were there, and how often they were chosen in these, where they come
    and go.
    """
    arms = setup.population.arms
    coming = settings.presence(arms)
    if coming is None:
        return []
    pulls = _pulls(outcomes).sum(axis=0)
    counts = [int(one) for one in pulls] if len(pulls) else [None] * len(arms)
    named = {name for name, _, _ in coming.periods}
    rows = tuple(
        (arm, coming.rounds(arm), words.number(count))
        for arm, count in zip(arms, counts, strict=True)
        if arm in named
    )
    note = (
        "An arm that is not there has no chance, in decisions, logs and regret; all other arms are "
        "always there."
    )
    return [Section("Arms that come and go", ("arm", "rounds", "decisions"), rows, (note,), (2,))]


def _pulls(outcomes: list[Outcome]) -> NDArray[np.int64]:
    """How often each arm was chosen, (runs, arms); no arms where a run was taken up that had not
    counted.
    """
    counts = [outcome.seen.pulls for outcome in outcomes]
    known = [np.asarray(one, np.int64) for one in counts if one is not None]
    return (
        np.array(known)
        if known and len(known) == len(counts)
        else np.zeros((len(outcomes), 0), np.int64)
    )


def privacy_of(
    settings: FedContextual, setup: Setup, done: int, used: int = 0
) -> tuple[Mapping[str, JSON], ...]:
    """Return what the rounds of a run prove: by the ledger's accountant, and by RDP where that is
    another.

    `used`: rounds that learnt from one log, at most, where logs are kept. The figure is of a client
    with all its logs, and counts every round as one clipped update of it: what the update was
    learnt from, and how often, changes nothing.
    """
    made = setup.mechanism
    if made is None or not done:
        return ()
    accountants: tuple[Accountant, ...] = ("pld", "rdp") if made.sampling == "poisson" else ("rdp",)
    before, missing = setup.before, not_covered(settings.resolved())
    kept = (
        f"; a log was learnt from in up to {words.count(used, 'round')}, each counted in full"
        if used
        else ""
    )
    if before is None:
        entries = proved(
            made, done, settings.delta, accountants, more=missing, composition=f"sequential{kept}"
        )
        return tuple(plain_dict(entry, "guarantee") for entry in entries)
    entries = []
    first_rounds = f"{before.rounds} rounds of pre-training"
    for (
        accountant
    ) in accountants:  # both phases are about the same clients: epsilons and deltas add up
        first = before.gaussian.epsilon(before.rounds, before.delta, accountant)
        both = first + made.epsilon(done, settings.delta - before.delta, accountant)
        entries += proved(
            made,
            done,
            settings.delta,
            (accountant,),
            more=missing,
            epsilon=both,
            composition=f"{first_rounds} ({first:.3g} of it) and {done} of training add up{kept}",
        )
    return tuple(plain_dict(entry, "guarantee") for entry in entries)


def _summary(
    settings: FedContextual, setup: Setup, outcomes: list[Outcome], clock: Clock
) -> Summary:
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
            sum(float(one.column(name).sum()) for one in outcomes)
            for name in ("reward", "probability")
        )
        summary["average_reward"] = rewards / samples
        summary["average_probability"] = chances / samples
        summary["average_reward_last_tenth"] = _last_tenth(outcomes)
        if all(one.seen.best is not None for one in outcomes):
            best = sum(float(one.column("best").sum()) for one in outcomes)
            summary["average_regret"] = (best - rewards) / samples
        if all(one.supervised is not None for one in outcomes):
            summary["supervised_reward"] = (
                sum(float(np.asarray(one.supervised).sum()) for one in outcomes) / samples
            )
            summary["regret_to_supervised"] = (
                float(summary["supervised_reward"]) - rewards / samples
            )
        summary |= (
            _each_run(outcomes)
            | without_model(settings, setup, outcomes)
            | _past(settings, setup, outcomes)
        )
        summary["clip_norm"] = float(np.mean([one.column("limit")[-1] for one in outcomes]))
        summary["within_clip"] = float(np.mean([one.column("within").mean() for one in outcomes]))
    if clock.wall:
        summary["rounds_a_second"] = clock.rounds / clock.wall
    if setup.rounds < settings.horizon and all(one.rounds == setup.rounds for one in outcomes):
        budget = f"({settings.limit:g}, {settings.delta:g})"
        summary["stopped"] = (
            f"privacy budget {budget} spent after {setup.rounds} of {settings.horizon} rounds"
        )
    return {**summary, **_remarks(settings, setup, outcomes), **_estimates(settings, outcomes)}


def _past(settings: FedContextual, setup: Setup, outcomes: list[Outcome]) -> Summary:
    """Return how far behind devices were, and how often logs were learnt from, where they lag or
    keep logs.
    """
    if not (settings.stale or settings.keep_log):
        return {}
    schedule = Schedule(
        0,
        setup.population.clients,
        settings.cohort,
        settings.deploy_every,
        0,
        setup.sampling,
        answers=settings.answers(),
        stale=settings.stale,
        keep_log=settings.keep_log,
    )
    every = [past(schedule, one.seed, one.rounds) for one in outcomes]
    summary: Summary = (
        {"log_used": max(one.most_used for one in every)} if settings.keep_log else {}
    )
    if settings.stale:
        summary["behind"] = sum(one.behind for one in every) / max(
            1, sum(one.parts for one in every)
        )
        summary["most_behind"] = max(one.most_behind for one in every)
    return summary


def _each_run(outcomes: list[Outcome]) -> Summary:
    """Return the smallest and the largest average reward of several runs: a mean hides one that did
    not learn.
    """
    if len(outcomes) < 2:
        return {}
    each = [
        float(one.column("reward").sum() / max(1.0, one.column("samples").sum()))
        for one in outcomes
    ]
    return {"average_reward_smallest": min(each), "average_reward_largest": max(each)}


def without_model(settings: FedContextual, setup: Setup, outcomes: list[Outcome]) -> Summary:
    """Return what is earned without a model; rewards of a user's own are known for chosen arms
    alone.
    """
    if setup.own.pay is not None:
        return {}
    drift = settings.drifting(len(setup.population.arms))
    coming = settings.presence(setup.population.arms)
    found = remarks.baselines(
        setup.population, setup.world.rewards, drift, outcomes[0].rounds, coming
    )
    return {
        "chance_reward": found.chance,
        "best_fixed_reward": found.best,
        "best_fixed_arm": found.arm,
    }


def _remarks(settings: FedContextual, setup: Setup, outcomes: list[Outcome]) -> Summary:
    """Return signs that runs did not do what was meant; of several runs, of the first that shows
    one.
    """
    if not outcomes:
        return {}
    signs: list[dict[str, str | None]] = []
    own = settings.population_kind == "own" and setup.scale == "none"
    if own or settings.server_rate is not None:  # other data have rates that fit them
        squared = remarks.squared_norm(setup.population, setup.model)
        signs.append({"large_inputs": remarks.large_inputs(squared, settings.optimiser)})
    chance = _chance(settings, setup)
    signs += [_signs(settings, setup, one, chance) for one in outcomes]
    summary: Summary = {}
    for of_one in signs:
        for key, text in of_one.items():
            if text is not None:
                summary.setdefault(key, remarks.with_flag(text) if own else text)
    return summary


def _chance(settings: FedContextual, setup: Setup) -> float | None:
    """Return what an arm at random earns, where rewards are from 0 to 1 and stay; None elsewhere."""
    table = setup.world.rewards.table
    varies = settings.drift != "none" or settings.available
    if setup.own.pay is not None or varies or table.min() < 0 or table.max() > 1:
        return None
    return remarks.baselines(setup.population, setup.world.rewards).chance


def _signs(
    settings: FedContextual, setup: Setup, outcome: Outcome, chance: float | None
) -> dict[str, str | None]:
    """Return what is said of one run, by key."""
    rates = {"client_rate": setup.client_rate}
    if setup.world.pretrained:
        rates["pretraining_client_rate"] = setup.pretraining_client_rate
    within, every = outcome.column("within"), settings.deploy_every
    diverged = remarks.diverged(outcome.column("limit"), within, setup.quantile, **rates)
    not_learnt = None
    if diverged is None and chance is not None:
        rates["server_rate"] = setup.server_rate
        rewards, samples = outcome.column("reward"), outcome.column("samples")
        not_learnt = remarks.not_learnt(rewards, samples, chance, every, **rates)
    return {
        "diverged": diverged,
        "not_learnt": not_learnt,
        "not_deployed": remarks.not_deployed(
            outcome.rounds, every, pretrained=bool(setup.world.pretrained)
        ),
        "wide_clip": remarks.wide_clip(within, outcome.column("clients"), settings.noise),
    }


def _last_tenth(outcomes: list[Outcome]) -> float:
    """Average reward of the last tenth of the rounds, or since the last decision: where the model
    has come to.
    """
    sums = np.zeros(2)
    for one in outcomes:
        decided = np.flatnonzero(one.column("samples"))
        last = max(1, one.rounds // 10, one.rounds - int(decided.max(initial=0)))
        sums += [one.column("reward")[-last:].sum(), one.column("samples")[-last:].sum()]
    return float(sums[0] / max(1.0, sums[1]))


def _estimates(settings: FedContextual, outcomes: list[Outcome]) -> Summary:
    """Return what another policy would earn: the mean over runs, with the standard error of that
    mean.
    """
    from posse.policies.evaluation.offline import Estimate

    made = [one.estimated for one in outcomes if isinstance(one.estimated, Estimate)]
    refused = [one.estimated for one in outcomes if isinstance(one.estimated, str)]
    summary: Summary = (
        {"evaluated": settings.evaluate} if settings.evaluate and (made or refused) else {}
    )
    if made:
        summary["estimated_reward"] = float(np.mean([one.value for one in made]))
        summary["estimated_reward_error"] = math.sqrt(sum(one.error**2 for one in made)) / len(made)
        summary["estimated_decisions"] = sum(one.rows for one in made)
        summary["estimated_devices"] = max(one.clients for one in made)
        summary["estimated_effective"] = float(sum(one.effective for one in made))
    if refused:
        summary["estimate_refused"] = refused[0]
    return summary
