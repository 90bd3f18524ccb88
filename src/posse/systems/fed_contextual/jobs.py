"""Jobs of a study: what is run, on which scenario, with which policy and rates; and results, one
file a job.

A job is also what a run is planned from: settings are made into one. numpy and jax are all this
needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.policies.contextual.explorations import EXPLORATIONS, Exploration
from posse.policies.contextual.schedules import CONSTANT, check_schedule
from posse.problems.populations.worlds import SCENARIOS, Availability, Drift, LabelDrift, ValueDrift
from posse.systems.fed_contextual.computing.client import LOSSES
from posse.systems.fed_contextual.computing.cohorts import SAMPLINGS
from posse.systems.fed_contextual.computing.models import MODELS, write_arrays
from posse.systems.fed_contextual.computing.server import OPTIMISERS, SERIES, Measured
from posse.systems.fed_contextual.computing.training import average_reward

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Pretraining:
    """Supervised rounds on a few clients before a model is deployed."""

    rounds: int = 100
    clients: int = 100
    client_rate: float = 0.5
    server_rate: float = 0.5
    optimiser: str = "sgd"
    noise: float = 0.0
    """Noise multiplier, where these rounds carry noise."""
    clip_noise: float = 0.0
    sampling: str = "fixed"

    def __post_init__(self) -> None:
        check.at_least(1, rounds=self.rounds)
        check.at_least(1, clients=self.clients)
        check.one_of(OPTIMISERS, optimiser=self.optimiser)


@dataclass(frozen=True)
class Job:
    """One line of a figure: runs over seeds, and over a grid of rates where several are given.

    >>> Job("fig-1a-softmax", client_rate=0.1, server_rate=0.002).runs
    ((0.1, 0.002, 0),)
    >>> Job("line", sampling="poison")
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] unknown sampling 'poison'. Did you mean 'poisson'? Known:
    fixed, poisson.
    """

    name: str
    scenario: str = "scratch"
    policy: str | Exploration = "softmax"
    """A published policy by name, or an exploration with its parameters."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Of the policy: epsilon, beta, mu and gamma; the published ones where left out."""
    client_rate: float | tuple[float, ...] = 0.1
    server_rate: float | tuple[float, ...] = 0.002
    """One rate, or several: every pair of them is run."""
    loss: str = "regression"
    optimiser: str = "adam"
    deploy_every: int = 200
    rounds: int = 800
    seeds: tuple[int, ...] = (0,)
    cohort: int = 64
    sampling: str = "fixed"
    batch: int = 16
    cap: int = 256
    """Samples of a client at most."""
    clip: float = 1.0
    """Clipping norm, or the first one."""
    quantile: float = 0.8
    """Fraction of updates within the norm, which then follows it; 0 keeps the norm fixed."""
    noise: float = 0.0
    """Noise multiplier."""
    clip_noise: float = 0.0
    """Noise on the count of updates within the norm, where that follows them under noise."""
    levels: int = 0
    """Whole numbers from 0 to the norm, as secure sums need them; 0 for floats."""
    model: str = "auto"
    hidden: int = 128
    channels: tuple[int, int] = (32, 64)
    pretraining: Pretraining = Pretraining()
    learns: bool = True
    """False: the first model, greedy or not, is left as it is."""
    centralised: bool = False
    """All samples of a round with one client: the upper baseline."""
    drift: Mapping[str, Any] | None = None
    """{"kind": "labels", "every": 200, "share": 0.5} or {"kind": "values", "period": 400, "depth":
    0.5}; and a seed.
    """
    availability: Mapping[str, Any] | None = None
    """{"missing": 0.1, "late": 0.1, "never": 0.05}; an update that is late is lost."""
    schedule: str = CONSTANT
    """How the policy's last parameter changes from deployment to deployment."""
    stale: int = 0
    """Rounds by which a deployment reaches a client late, at most."""
    keep_log: int = 0
    """Deployments whose logs a client keeps; 0: it acts anew in every round."""
    available: str | None = None
    """Arms that come and go, with their first and last round: 3:50-,7:1-120."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"a name is letters, digits, '.', '_' and '-', got {self.name!r}. Rename the job."
            )
        check.one_of(SCENARIOS, scenario=self.scenario)
        if isinstance(self.policy, str):
            check.one_of(tuple(EXPLORATIONS), policy=self.policy)
        check.one_of(LOSSES, loss=self.loss)
        check.one_of(OPTIMISERS, optimiser=self.optimiser)
        check.one_of(SAMPLINGS, sampling=self.sampling)
        check.one_of(MODELS, model=self.model)
        for least, name in (
            (1, "deploy_every"),
            (1, "rounds"),
            (1, "cohort"),
            (1, "batch"),
            (1, "cap"),
            (0, "levels"),
            (0, "stale"),
            (0, "keep_log"),
        ):
            check.at_least(least, **{name: getattr(self, name)})
        check.positive(clip=self.clip)
        check.at_least(0, noise=self.noise)
        check.between(0, 1, quantile=self.quantile)
        self._check_seeds()
        self._check_noise()
        check_schedule(self.schedule, self.exploration())

    def _check_seeds(self) -> None:
        wrong = [seed for seed in self.seeds if not 0 <= seed < 2**32]
        if not self.seeds or wrong:
            raise ConfigError(f"seeds must be in [0, 2^32), got {wrong or 'none'}. Name some.")

    def _check_noise(self) -> None:
        if self.noise and self.quantile and not self.clip_noise:
            raise ConfigError(
                "a norm that follows the updates is not accounted for under noise, got quantile "
                f"{self.quantile} and "
                f"noise {self.noise}. Set quantile = 0 and a fixed clip, or clip_noise."
            )
        if self.centralised and (self.noise or self.levels):
            raise ConfigError(
                "a centralised run has no clients to protect, got noise or levels. Leave them out."
            )
        if self.centralised and (self.stale or self.keep_log):
            raise ConfigError(
                "a centralised run has no clients that lag or keep logs, got stale or keep_log."
            )

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """Rates of clients and server, every pair."""
        return tuple(
            (one, two) for one in _several(self.client_rate) for two in _several(self.server_rate)
        )

    @property
    def runs(self) -> tuple[tuple[float, float, int], ...]:
        """(client rate, server rate, seed) of every run; seeds go fastest."""
        return tuple((*pair, seed) for pair in self.pairs for seed in self.seeds)

    def exploration(self) -> Exploration:
        """Return the policy with its parameters."""
        if isinstance(self.policy, Exploration):
            return self.policy
        return _made(EXPLORATIONS[self.policy], "policy", self.parameters)

    def drifts(self, arms: int) -> Drift | None:
        """Return how the world changes, if it does."""
        if self.drift is None:
            return None
        rest = dict(self.drift)
        kind = str(rest.pop("kind", ""))
        check.one_of(("labels", "values"), drift=kind)
        values = {"arms": arms, **rest}
        if kind == "labels":
            return _made(LabelDrift, "drift", values)
        return _made(ValueDrift, "drift", values)

    def answers(self) -> Availability | None:
        """Return how clients answer, unless all do."""
        return (
            None
            if self.availability is None
            else _made(Availability, "availability", self.availability)
        )

    def to_json(self) -> str:
        """Write as one line, keys sorted."""
        return json.dumps(asdict(self), sort_keys=True)


def read_jobs(path: Path) -> list[Job]:
    """Read a list of jobs; every name once."""
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} must be a JSON list of jobs ({error}). Correct it.") from None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ConfigError(f"{path} must be a JSON list of jobs, each an object. Correct it.")
    jobs = [job_of(one) for one in listed]
    names = [job.name for job in jobs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ConfigError(f"every job has a name of its own, got '{twice}' twice. Rename one.")
    return jobs


def job_of(given: Mapping[str, Any]) -> Job:
    """Make a job from JSON values."""
    values = {
        key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
    }
    if isinstance(before := values.get("pretraining"), Mapping):
        values["pretraining"] = _made(Pretraining, "pretraining", before)
    return _made(Job, "job", values)


def _several(rate: float | tuple[float, ...]) -> tuple[float, ...]:
    return rate if isinstance(rate, tuple) else (rate,)


def _made(kind: Callable[..., T], what: str, values: Mapping[str, Any]) -> T:
    """Make a value, and name a key it does not have."""
    known = tuple(one.name for one in fields(kind))  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ConfigError(f"unknown key '{key}' of {what}.{check.suggestion(key, known)}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"{what} is not whole: {error}. Correct it.") from None


class Result(NamedTuple):
    """What a job showed: every array is (pairs of rates, seeds, rounds), and pulls are (pairs,
    seeds, arms).
    """

    job: dict[str, Any]
    """As JSON has it."""
    seen: Measured
    """Pulls and best are none in files that were written before they were counted."""
    about: dict[str, Any]
    """Device, seconds, versions."""

    @property
    def averages(self) -> NDArray[np.float64]:
        """Running average rewards, (pairs, seeds, rounds)."""
        return average_reward(self.seen)


def write(path: Path, result: Result) -> None:
    """Keep a result in one file that is written whole."""
    arrays = {
        name: np.asarray(leaf) for name, leaf in result.seen._asdict().items() if leaf is not None
    }
    job, about = json.dumps(result.job, sort_keys=True), json.dumps(result.about)
    write_arrays(path, job=np.array(job), about=np.array(about), **arrays)


def read(path: Path) -> Result:
    """Read what `write` kept."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            series = Measured(*(kept[name] for name in SERIES))
            seen = series._replace(pulls=kept.get("pulls"), best=kept.get("best"))
            return Result(json.loads(str(kept["job"])), seen, json.loads(str(kept["about"])))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} is no whole result of a job ({error}). Remove it and run the job again."
        ) from None
