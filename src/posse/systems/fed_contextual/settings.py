"""Settings of a simulated federated contextual bandit: one model for flags, files and Python.

Importing this needs no jax: help and mistakes are shown on a machine that has none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from posse.core import check
from posse.core.check import require
from posse.core.errors import ConfigError
from posse.core.interrupts import defer_interrupt
from posse.core.settings import External
from posse.policies.contextual.explorations import EpsilonGreedy, Exploration, Greedy
from posse.policies.contextual.registry import (
    PARAMETERS,
    ScheduledSettings,
    described,
    exploration,
    parameters_of,
)
from posse.policies.contextual.schedules import OWN_FALCON, C
from posse.policies.own import explain, is_own, load, source_of
from posse.privacy.dp.sampled import SampledGaussian, Training
from posse.problems.populations.population import Population, Ragged, standardised
from posse.problems.populations.settings import PopulationSettings
from posse.problems.populations.worlds import Availability, Scenario
from posse.results.values import JSON, plain_dict
from posse.systems.base import RunSettings
from posse.systems.fed_contextual.learning import (
    RING,
    Before,
    Count,
    LearningSettings,
    Optimisers,
    Positive,
    Published,
    Rate,
    Samplings,
)
from posse.systems.fed_contextual.remarks import (
    declared_client_rate,
    default_client_rate,
    default_pretraining_rate,
    default_server_rate,
    input_size,
)
from posse.systems.registry import system_of

if TYPE_CHECKING:
    from posse.systems.fed_contextual.study import Own

ONLY = {
    **dict.fromkeys(("hidden", "channels"), "the cnn"),
    **dict.fromkeys(
        (
            "pretraining",
            "pretrained",
            "pretraining_client_rate",
            "pretraining_server_rate",
            "pretraining_optimiser",
            "first",
            "pretraining_privacy",
        ),
        "scenarios with pre-training",
    ),
    "before": "scenario init-shift",
    **dict.fromkeys(("drift_every", "drift_share"), "worlds that drift"),
}
"""Settings that have no effect elsewhere, and where they have one."""
NAMED = ("auto", "linear", "bag-of-words", "cnn")
"""Models by name."""
OWN = "own"
"""What a record calls a model that a user gave."""
SMALL_IMAGE = 16
"""Pixels of a side below which an image has a linear model unless another is asked for."""


@dataclass(frozen=True, eq=False)
class Setup:
    """What settings make, with everything settled that they leave open."""

    population: Population
    world: Scenario
    model: str
    """A name that `models.model_of` knows, or `OWN`."""
    parameters: int
    """Numbers of the model, and of an update."""
    sampling: Literal["poisson", "fixed"]
    quantile: float
    client_rate: float
    """Learning rate of devices: the one given, or by `remarks.default_client_rate`."""
    server_rate: float
    """Learning rate of the server: the one given, or by `remarks.default_server_rate`."""
    input_size: float
    """How large contexts are, as declared or by `remarks.input_size`."""
    pretraining_client_rate: float
    """The same in pre-training."""
    rounds: int
    """Rounds of a run: those asked for, or as many as the privacy budget allows."""
    mechanism: SampledGaussian | None
    """What is accounted for; none without noise."""
    own: Own
    """A user's own model and rewards, where given."""
    training: Training | None = None
    """What the ledger of the bandit phase spends; none without noise."""
    before: Before | None = None
    """What pre-training under noise spends; none where it carries none."""

    @property
    def scale(self) -> Literal["none", "standard"]:
        """How features are scaled."""
        return "none" if self.population.scaling is None else "standard"


class FedContextual(LearningSettings, ScheduledSettings, PopulationSettings, RunSettings):
    """Everything a run of fed-contextual needs to know.

    >>> FedContextual(policy="falcon", rounds=400).horizon
    400
    """

    system: ClassVar[str] = "fed-contextual"
    writes: ClassVar[tuple[str, ...]] = ("model_out",)
    counts: ClassVar[bool] = True
    defaults_in_version_0_1: ClassVar[Mapping[str, object]] = {"scale": "none"}
    aliases: ClassVar[Mapping[str, str]] = {"rounds": "horizon"}

    horizon: Count = 200
    """Federated rounds."""

    model: Annotated[str, External.except_for(NAMED)] = "auto"
    """Reward model: linear, bag-of-words or cnn; auto: bag-of-words for texts, cnn for images of 16
    pixels a side or more, else linear; or your own, module:function or file.py:function of (shape,
    arms) that returns a model.
    """
    hidden: Count = 128
    """Of the cnn: units of its hidden layer."""
    channels: tuple[int, ...] = (32, 64)
    """Of the cnn: channels of its two convolutions, such as 16,32."""
    sampling: Samplings | None = None
    """How devices are drawn: each by a coin of its own (poisson, the default under noise), or so
    many (fixed, else).
    """
    clip_noise: Rate = None
    """Of a norm that follows updates under noise: standard deviation of the noise on the count of
    those within it. If left out: 0.05 x cohort, and no less than 0.5 and noise.
    """
    cap: Count = 256
    """Samples of a device at most."""
    pretraining: Count = 100
    """Supervised rounds before the first deployment, in scenarios that have them."""
    pretraining_client_rate: Rate = None
    """Learning rate of devices in these rounds; 0.5 if left out, or for a linear model less where
    inputs are large: at most 0.5 x arms / (mean squared norm of the inputs).
    """
    pretraining_server_rate: Positive = 0.5
    """Learning rate of the server in these rounds."""
    pretraining_optimiser: Optimisers = "sgd"
    """What the server does with the mean update in these rounds."""
    pretraining_privacy: Literal["none", "public", "noised"] = "none"
    """How these rounds count under noise: not at all, and the record says so (none); as data of
    clients who gave them to everybody (public); or with the same clip and noise, through the ledger
    (noised).
    """
    centralised: bool = False
    """All samples of a round in one place: what a federation is measured against. Nothing is
    protected.
    """
    evaluate: Published | None = None
    """Estimate from devices' logs what this policy would earn with the deployed model, without
    running it.
    """
    supervised: bool = False
    """Also train a supervised model of the same class on all rewards of all devices, and record the
    regret to it.
    """
    device: Literal["cpu", "gpu"] = "cpu"
    """Where it is computed."""
    cores: Annotated[int | None, Field(ge=0)] = None
    """CPU cores that the devices of a large round are spread over, 0 for all that there are; in one
    piece on one core if left out. A seed gives the same bits on any number of cores, and in one
    piece the same to rounding.
    """
    keep: Path | None = None
    """Folder for the state of every run; the same command goes on from what is there."""
    model_out: Path | None = None
    """File (.npz) for the model after the last round of a single run: its arrays, and the number of
    rounds.
    """
    seed: int = 0
    """World seed, kept in the record. The split, who answers and drift follow from it, for all runs
    of a record.
    """
    runs: Count = 1
    """Number of runs: cohorts, arms, order of training and noise have seeds seed, seed + 1, ...;
    the split, who answers and drift are those of the first.
    """

    def parameters(self) -> dict[str, Any]:
        """Parameters of policies that were given."""
        return {name: value for name in PARAMETERS if (value := getattr(self, name)) is not None}

    def other(self) -> Exploration:
        """Return the policy to evaluate, with those of the given parameters that it has."""
        assert self.evaluate is not None
        known = parameters_of(self.evaluate)
        return exploration(
            self.evaluate,
            {name: value for name, value in self.parameters().items() if name in known},
        )

    def _made(self) -> Any:
        """Build the policy; parameters that the policy to evaluate alone has are not its own."""

        def make() -> Exploration:
            given, others = self.parameters(), parameters_of(self.evaluate) if self.evaluate else ()
            known = parameters_of(self.policy)
            if self.schedule == OWN_FALCON and "gamma" in known:
                given.setdefault("gamma", C)
            return exploration(
                self.policy, {n: v for n, v in given.items() if n in known or n not in others}
            )

        return self.cached("policy", make)

    @property
    def count_noise(self) -> float:
        """Noise on the count of updates within the norm: that given, or the usual one."""
        usual = super().count_noise
        return (self.clip_noise or usual) if usual else 0.0

    def answers(self) -> Availability | None:
        """Return how devices answer; none where all do."""
        return self.availability() if self.missing or self.late or self.never else None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Raise where settings contradict each other."""
        self.check_protection()
        if self.clip_noise is not None and not self.count_noise:
            raise ConfigError(
                "clip_noise applies to a clip that follows updates under noise, got "
                f"{self.clip_noise:g} for noise "
                f"{self.noise:g} and quantile {self.follows:g}. Leave it out."
            )
        self._check_numbers()
        self._check_evaluation()
        supervised = self.scenario != "scratch" or self.supervised  # which has the same rates
        self._leave_out("scenarios with pre-training", supervised, f"scenario {self.scenario}")
        self._leave_out("scenario init-shift", self.scenario == "init-shift", self.scenario)
        self._leave_out("worlds that drift", self.drift != "none", f"drift {self.drift}")
        return self

    def shorter(self, rounds: int) -> Self:
        """Return the settings of a single run of so many rounds that keeps and writes nothing."""
        lags = {
            "stale": min(self.stale, rounds),
            "keep_log": min(self.keep_log, -(-rounds // self.deploy_every)),
        }
        return self.but(
            horizon=rounds, limit=None, keep=None, model_out=None, evaluate=None, runs=1, **lags
        )

    def load(self) -> Setup:
        """Check everything before anything starts, and return what it makes; once, however often it
        is called.
        """
        return self.cached("setup", self.check)

    def customised(self, own: Own | None = None, population: Population | None = None) -> Self:
        """Return these settings with custom parts, from which `load` then makes what it returns.

        Args:
            own: A custom model and custom rewards.
            population: A custom population instead of `data`.
        """
        setup = self.check(own, population)
        settings = self.but()
        settings.cached("setup", lambda: setup)
        return settings

    def config(self) -> dict[str, JSON]:
        """Return every setting with the value that was used."""
        setup = self.load()
        policy = self.exploration()
        values = policy.values(len(setup.population.arms))
        parameters = dict(zip(asdict(policy), values, strict=True))
        return {
            **self.resolved(),
            "clients": setup.population.clients,
            "client_rate": setup.client_rate,
            "server_rate": setup.server_rate,
            "input_size": setup.input_size or None,
            "pretraining_client_rate": setup.pretraining_client_rate,
            "scale": setup.scale,
            "model": "bag-of-words" if setup.model == "bag" else setup.model,
            "sampling": setup.sampling,
            "quantile": setup.quantile,
            "clip": self.norm,
            "clip_noise": self.count_noise or None,
            "pretrained": setup.world.pretrained,
            "horizon": setup.rounds,
            "policy": {**described(policy), "parameters": parameters},
        }

    def problem(self) -> dict[str, JSON]:
        """Describe the devices, as a record stores them."""
        population = self.load().population
        return {
            **plain_dict(population.describe(), "problem"),
            "names": list(population.arms),
            "words": dict(system_of(self).about.nouns),
        }

    def files(self) -> Sequence[Path]:
        """Files of a user's own: what the population comes from, and functions that settings
        name.
        """
        named = [
            str(getattr(self, name) or "") for name in ("model", "schedule", "before", "first")
        ]
        found = [source_of(one) if is_own(one) else Path(one) for one in named]
        return (
            *self.data_files(),
            *(path for path in found if path is not None and os.path.isfile(path)),
        )

    def check(self, own: Own | None = None, population: Population | None = None) -> Setup:
        """Do what `load` does, each time anew.

        `own` are a user's own model and rewards, and `population` a user's own, instead of the
        settings'.
        """
        self._check_files()
        with defer_interrupt():  # jax does not bear a Ctrl-C while it begins, nor while it compiles
            self._check_device()
        if own is not None:
            self._check_own(own)
        own_devices = population is not None
        population = self._checked_population(population)
        if population.scaling is None and self._standardises(own, population, own_devices):
            population = standardised(population)
        with defer_interrupt():
            return self._setup(own, population)

    def _standardises(self, own: Own | None, population: Population, own_devices: bool) -> bool:
        """Return whether features are to be scaled: as asked, or if that is left out, by the data.

        A custom model or custom rewards may read contexts as they are, and `input_size` declares
        the size of contexts as they are, so none of these are scaled unless asked. Neither is a
        kept run of 0.1, which did not scale them.
        """
        inputs = population.inputs
        if isinstance(inputs, Ragged) or inputs.ndim != 2:
            if self.scale == "standard":
                raise ConfigError(
                    "scale=standard needs one row of numbers per sample, and this population has "
                    "images or words. Leave scale out.",
                    rule="fed_contextual.scale.not-rows",
                )
            return False
        if self.scale is not None:
            return self.scale == "standard"
        shipped = not own_devices and self.population_kind != "own"
        if shipped or inputs.dtype != np.float32:
            return False
        functions = () if own is None else (own.model, own.pay, own.before)
        custom = any(function is not None for function in functions)
        custom = custom or is_own(self.model) or is_own(self.before)
        if custom or self.input_size is not None:
            return False
        return self.keep is None or not _kept_unscaled(self.keep)

    def _check_device(self) -> None:
        require("jax", extra="contextual")
        if "optax-adam" in (self.optimiser, self.pretraining_optimiser):
            require("optax", extra="contextual")
        from posse.systems.fed_contextual.study import device_of, keep_compiled

        keep_compiled()
        device_of(self.device)

    def _setup(self, own: Own | None, population: Population) -> Setup:
        """Settle what is left open, by what the population is."""
        from posse.systems.fed_contextual.computing.models import model_of, size_of

        own = self._own_parts(own, population)
        world = self.world(
            population, own.before is not None, own.first and partial(_fits, own.first)
        )
        if self.drift != "none":
            self.drifting(len(population.arms))
        if (coming := self.presence(population.arms)) is not None:
            coming.check(self.horizon)
        name = self._model(population) if own.model is None else OWN
        self._leave_out("the cnn", name == "cnn", f"model {name}")
        one, two = self.channels
        size = size_of(own.model or model_of(population, name, self.hidden, (one, two)))
        sampling = self.sampling or ("poisson" if self.noise else "fixed")
        mechanism = before = training = None
        rounds = self.horizon
        if self.noise:
            self.check_delta(population.clients)
            mechanism = self.mechanism(population.clients, size, sampling)
            before = self._before(world, size, sampling)
            training = self.ledger(
                mechanism, (0.0, 0.0) if before is None else before.spent
            ).mechanism
            rounds = min(rounds, training.most or rounds)
            self.check_logs(rounds, self.stale, self.centralised, sampling)
        declared = None if self.input_size is None else declared_client_rate(self.input_size, name)
        rate = self.client_rate or declared or default_client_rate(population, name)
        first = self.pretraining_client_rate or default_pretraining_rate(population, name)
        large = self.input_size or input_size(population, name)
        server = self.server_rate or default_server_rate(large, name, self.optimiser)
        return Setup(
            population,
            world,
            name,
            size,
            sampling,
            self.follows,
            rate,
            server,
            large,
            first,
            rounds,
            mechanism,
            own,
            training,
            before,
        )

    def _own_parts(self, own: Own | None, population: Population) -> Own:
        """Return the custom parts, with those that settings name; check that they fit."""
        from posse.systems.fed_contextual.computing.models import Model
        from posse.systems.fed_contextual.computing.own_models import adapted, named
        from posse.systems.fed_contextual.study import NOTHING, check_own

        own = self._loaded(own or NOTHING)
        if is_own(self.model) or own.model is not None:
            if population.bags and not isinstance(own.model, Model):
                raise ConfigError(
                    "models of your own take numbers, and the data are texts. Use model "
                    "bag-of-words."
                )
            shape, arms = tuple(getattr(population.inputs, "shape", (0,))[1:]), len(population.arms)
            made = named(self.model, shape, arms) if own.model is None else own.model
            own = own._replace(
                model=made if isinstance(made, Model) else adapted(made, shape, arms)
            )
        if own != NOTHING:
            check_own(own, population)
        return own

    def _before(self, world: Scenario, size: int, sampling: Samplings) -> Before | None:
        """Return what pre-training spends, where it carries noise: half of delta is its own."""
        if self.pretraining_privacy != "noised" or not world.pretrained:
            return None
        made = self.mechanism(world.pretrained, size, sampling, min(self.cohort, world.pretrained))
        return Before(made, self.pretraining, self.delta / 2)

    def _loaded(self, own: Own) -> Own:
        """Add functions that settings name: rewards before deployment, and who the first clients
        are.
        """
        for name in ("before", "first"):
            where, given = getattr(self, name), getattr(own, name)
            if given is not None and where is not None:
                raise ConfigError(
                    f"{name} is given twice, as a setting and as a function. Leave one out."
                )
            if is_own(where):
                if not callable(made := load(where, "function", callable)):
                    raise ConfigError(f"{name} must name a function, got {made!r}.")
                own = own._replace(**{name: made})  # type: ignore[arg-type]
        return own

    @field_validator("model")
    @classmethod
    def _known_model(cls, value: str) -> str:
        if not is_own(value):
            check.one_of(NAMED, model=value)
        return value

    def _check_numbers(self) -> None:
        if len(self.channels) != 2 or min(self.channels) < 1:
            got = ",".join(map(str, self.channels))
            raise ConfigError(
                f"channels must be two numbers of at least 1, such as 16,32, got {got}."
            )
        if self.delay != type(self).model_fields["delay"].default:
            raise ConfigError(
                "delay changes nothing here, since an update that is late is lost, got "
                f"{self.delay}. Leave it out."
            )
        if not 0 <= self.seed < 2**32 - self.runs:
            raise ConfigError(
                f"seeds must be in [0, 2^32), got {self.seed} and {self.runs} runs. Choose a "
                "smaller one."
            )
        if self.centralised and (self.noise or self.levels):
            raise ConfigError(
                "noise and secure sums need the unweighted mean of devices' clipped updates, got "
                "centralised, which "
                "has no devices to protect. Leave one of them out."
            )
        if self.pretraining_privacy != "none" and not self.noise:
            raise ConfigError(
                f"pretraining_privacy goes with noise, got {self.pretraining_privacy} and noise 0. "
                "Give noise."
            )
        if (self.levels + 1) * self.cohort * 2 >= RING:
            raise ConfigError(
                f"a sum of whole numbers must stay below 2^31, got {self.levels} levels and a "
                f"cohort of {self.cohort}. "
                "Lower one of them."
            )
        if self.supervised and self.drift != "none":
            raise ConfigError(
                f"supervised needs rewards that stay as they are, got drift {self.drift}. Leave "
                "one out."
            )
        self.check_logs(self.horizon, self.stale, self.centralised, self.sampling)
        self.availability()

    def _check_files(self) -> None:
        if self.keep is not None and self.keep.is_file():
            raise ConfigError(f"keep must be a folder, and {self.keep} is a file. Name another.")
        out = self.model_out
        if out is None:
            return
        if out.suffix != ".npz" or out.is_dir():
            raise ConfigError(
                f"model_out must be a file whose name ends in .npz, got {out}. Name another."
            )
        if not os.access(out.parent, os.W_OK):
            raise ConfigError(
                f"model_out must be in a folder that exists and may be written to, got {out}. Make "
                "it."
            )
        if self.runs > 1:
            raise ConfigError(
                f"model_out is of a single run, got runs {self.runs}. Leave one of them out."
            )

    def _check_own(self, own: Own) -> None:
        if own.model is not None and self.model != "auto":
            raise ConfigError(
                f"a model of your own goes without another, got model {self.model}. Leave it out."
            )
        if own.pay is not None and self.drift != "none":
            raise ConfigError(
                f"drift '{self.drift}' changes a table of rewards, and rewards of your own have "
                "none. Leave it out."
            )
        if (
            own.pay is not None
            and self.scenario == "init-shift"
            and self.before is None
            and own.before is None
        ):
            raise ConfigError(
                "init-shift with rewards of your own needs those before deployment too. Give "
                "before: a table labels x "
                "arms, or a function."
            )
        if own.before is not None and self.scenario != "init-shift":
            raise ConfigError(
                f"before applies to scenario init-shift, got {self.scenario}. Leave it out."
            )

    def _leave_out(self, where: str, apply: bool, got: str) -> None:
        """Raise if a given setting has no effect."""
        for name in (name for name, place in ONLY.items() if place == where and not apply):
            if (
                name in self.model_fields_set
                and getattr(self, name) != type(self).model_fields[name].default
            ):
                raise ConfigError(
                    f"{name} applies to {where}, got {getattr(self, name)} for {got}. Leave it out."
                )

    def _check_evaluation(self) -> None:
        if self.evaluate is not None:
            self.other()
        made = self.exploration()
        if not isinstance(made, Greedy) and not (
            isinstance(made, EpsilonGreedy) and made.epsilon == 0
        ):
            return
        for what in ("evaluate", "loss"):
            if getattr(self, what) not in (None, "regression"):
                raise ConfigError(
                    f"{what} '{getattr(self, what)}' needs logs in which every arm has a chance, "
                    "got those of "
                    f"{made.name}{' with epsilon 0' if made.name != 'greedy' else ''}. Explore, or "
                    "leave it out."
                )

    def _checked_population(self, given: Population | None) -> Population:
        population = self.population() if given is None else given
        if given is None and self.population_kind == "prepared" and self.verify:
            population.check()
        if self.cohort > population.clients:
            raise ConfigError(
                f"cohort must be at most {population.clients}, the number of devices of "
                f"{population.name}, got "
                f"{self.cohort}. Lower it."
            )
        return population

    def _model(self, population: Population) -> str:
        if self.model != "auto":
            return {"bag-of-words": "bag"}.get(self.model, self.model)
        if population.bags:
            return "bag"
        shape: tuple[int, ...] = getattr(population.inputs, "shape", ())[1:]
        square = len(shape) == 2 and shape[0] == shape[1] >= SMALL_IMAGE
        return (
            "cnn" if square and getattr(population.inputs, "dtype", None) == "uint8" else "linear"
        )


def _kept_unscaled(folder: Path) -> bool:
    """Return whether a folder holds a kept run whose contexts are not scaled."""
    from posse.systems.fed_contextual.computing.models import HEADER

    try:
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "scaling" not in header.get("population", {})


def _fits(first: Callable[[str], bool], name: str) -> bool:
    """Whether pre-training may draw a client, by a user's own function."""
    try:
        return bool(first(name))
    except Exception as error:
        raise ConfigError(f"first fails on the client '{name}': {explain(error)}.") from error
