"""Settings of a federated contextual bandit: one model for flags, files and Python.

`LearningSettings` is what a simulation and a fleet of devices share; `FedContextual` is a simulation's. Importing this
needs no jax: help and mistakes are shown on a machine that has none.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from posse.core import check
from posse.core.check import require
from posse.core.errors import BudgetError, ConfigError
from posse.core.interrupts import held
from posse.core.settings import Settings
from posse.policies.contextual.explorations import EpsilonGreedy, Exploration, Greedy
from posse.policies.contextual.registry import PARAMETERS, ExplorationSettings, exploration, parameters_of
from posse.policies.own import is_own
from posse.privacy.dp.guarantee import Budget, figure
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.sampled import SampledGaussian, Training
from posse.problems.populations.population import Population
from posse.problems.populations.settings import PopulationSettings
from posse.problems.populations.worlds import INITIAL_CLIENTS, Availability, Scenario, scenario
from posse.protocols.base import RunSettings
from posse.protocols.fed_contextual.remarks import (
    declared_client_rate,
    default_client_rate,
    default_pretraining_rate,
    default_server_rate,
    input_size,
)

if TYPE_CHECKING:
    from posse.protocols.fed_contextual.study import Own

Published = Literal["greedy", "epsilon-greedy", "softmax", "falcon"]
Optimisers = Literal["adam", "optax-adam", "sgd"]
Samplings = Literal["poisson", "fixed"]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float | None, Field(gt=0)]

ONLY = {
    **dict.fromkeys(("hidden", "channels"), "the cnn"),
    **dict.fromkeys(
        ("pretraining", "pretrained", "pretraining_client_rate", "pretraining_server_rate", "pretraining_optimiser"),
        "scenarios with pre-training",
    ),
    **dict.fromkeys(("drift_every", "drift_share"), "worlds that drift"),
}
"""Settings that have no effect elsewhere, and where they have one."""
NAMED = ("auto", "linear", "bag-of-words", "cnn")
"""Models by name."""
OWN = "own"
"""What a record calls a model that a user gave."""
QUANTILE = 0.8
"""Fraction of updates within the norm, where it follows them and nothing else is said."""
SMALL_IMAGE = 16
"""Pixels of a side below which an image has a linear model unless another is asked for."""
RING = 2**31


class LearningSettings(Settings):
    """What every run has, simulated or on devices: how devices explore and learn, and how they are protected."""

    panels: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("policy", "explore", "model", "hidden", "channels", "features", "arms", "loss", "evaluate",
                         "start"), "How to choose"),
        **dict.fromkeys(("clip", "quantile", "noise", "delta", "limit", "levels", "sampling", "secure", "corrupt",
                         "dropout"), "Who may learn what"),
    }  # fmt: skip

    loss: Literal["regression", "importance"] = "regression"
    """Loss of a device's log: squared error, or the same over the probability of the arm."""
    cohort: Count = 20
    """Devices of a round; the expected number where they are drawn by coins."""
    deploy_every: Count = 10
    """Rounds after which devices act with the newest model."""
    batch: Count = 16
    """Samples a step of training."""
    client_rate: Rate = None
    """Learning rate of devices; 0.1 if left out, or for a linear model less where inputs are large: at most 0.5 / (mean
    squared norm of the inputs)."""
    server_rate: Rate = None
    """Learning rate of the server. If left out: 0.6 / input_size, at most 1, for linear models and bags of words, 0.002
    for the cnn, 0.01 for models of your own, 1 for plain steps."""
    input_size: Rate = None
    """How large contexts are: (mean of their sums of absolute values) / (0.2 + the share of their squared norm that is
    their mean's). Measured in a simulation if left out; devices measure nothing. Default rates follow it."""
    optimiser: Optimisers = "adam"
    """What the server does with the mean update: Adam as published (Keras'), as optax has it, or plain steps."""
    clip: Positive = 1.0
    """Norm to which updates are clipped, or the first one."""
    quantile: Annotated[float | None, Field(ge=0, le=1)] = None
    """Fraction of updates that should be within the norm, which then follows it (default: 0.8); 0 keeps it fixed, which
    noise needs."""
    noise: Annotated[float, Field(ge=0)] = 0.0
    """Noise multiplier: standard deviation of the noise on a round's sum, in clipping norms; 0 for none."""
    delta: float = 1e-6
    """Delta of the figures; below 1 / devices."""
    limit: Annotated[float | None, Field(gt=0)] = None
    """Largest epsilon (with delta) that may be spent on a device; training stops before it would be more."""
    levels: Annotated[int, Field(ge=0)] = 0
    """Whole numbers from 0 to the norm to which updates are rounded, as secure sums need them (65536 is usual); 0 for
    floats."""

    @property
    def rounded_to(self) -> int:
        """Levels in force."""
        return self.levels

    def check_protection(self) -> None:
        """Raise where settings of noise contradict each other."""
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta must be above 0 and below 1, got {self.delta:g}. Choose one below 1 / devices.")
        if self.limit and not self.noise:
            raise ConfigError(f"limit goes with noise, got limit {self.limit:g} and noise 0. Give noise.")
        if self.noise and self.quantile:
            raise ConfigError(
                f"a clip that follows the updates tells more than is accounted for, got quantile {self.quantile:g} and "
                f"noise {self.noise:g}. Fix the clip with quantile 0."
            )

    def check_delta(self, devices: int) -> None:
        """Raise where delta promises nothing for so many devices."""
        if self.delta * devices >= 1:
            raise ConfigError(
                f"delta must be below 1 / devices = {1 / devices:.3g}, got {self.delta:g}: a larger one allows to "
                "publish a device's data whole. Lower it."
            )

    def mechanism(self, devices: int, size: int, sampling: Samplings = "poisson") -> SampledGaussian:
        """Return what is accounted for, for so many devices and a model of `size` numbers.

        Rounding to levels lengthens an update of norm C by at most C sqrt(size) / levels: so much more sensitive is the
        sum, and so much less the noise counts.
        """
        longer = 1 + math.sqrt(size) / self.rounded_to if self.rounded_to else 1.0
        return SampledGaussian(devices, self.cohort, self.noise / longer, sampling)

    def ledger(self, mechanism: SampledGaussian) -> Ledger[Training]:
        """Return a new ledger; a limit below the cost of one round is refused."""
        budget = Budget(self.limit, self.delta) if self.limit else None
        ledger = Ledger(Training(mechanism, budget, self.delta))
        if ledger.most == 0:
            one = figure(mechanism.epsilon(1, self.delta, ledger.mechanism.counted_by), self.delta)
            raise BudgetError(
                f"not even one round fits the limit {budget}: with noise {self.noise:g} it costs {one}. "
                "Raise noise, limit or devices, or lower the cohort."
            )
        return ledger


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


class FedContextual(LearningSettings, ExplorationSettings, PopulationSettings, RunSettings):
    """Everything a run of fed-contextual needs to know.

    >>> FedContextual(policy="falcon", rounds=400).horizon
    400
    """

    system: ClassVar[str] = "fed-contextual"
    aliases: ClassVar[Mapping[str, str]] = {"rounds": "horizon"}

    horizon: Count = 200
    """Federated rounds."""

    model: str = "auto"
    """Reward model: linear, bag-of-words or cnn; auto: bag-of-words for texts, cnn for images of 16 pixels a side or
    more, else linear; or your own, module:function or file.py:function of (shape, arms) that returns a model."""
    hidden: Count = 128
    """Of the cnn: units of its hidden layer."""
    channels: tuple[int, ...] = (32, 64)
    """Of the cnn: channels of its two convolutions, such as 16,32."""
    sampling: Samplings | None = None
    """How devices are drawn: each by a coin of its own (poisson, the default under noise), or so many (fixed, else)."""
    cap: Count = 256
    """Samples of a device at most."""
    pretraining: Count = 100
    """Supervised rounds before the first deployment, in scenarios that have them."""
    pretraining_client_rate: Rate = None
    """Learning rate of devices in these rounds; 0.5 if left out, or for a linear model less where inputs are large: at
    most 0.5 x arms / (mean squared norm of the inputs)."""
    pretraining_server_rate: Positive = 0.5
    """Learning rate of the server in these rounds."""
    pretraining_optimiser: Optimisers = "sgd"
    """What the server does with the mean update in these rounds."""
    centralised: bool = False
    """All samples of a round in one place: what a federation is measured against. Nothing is protected."""
    evaluate: Published | None = None
    """Estimate from devices' logs what this policy would earn with the deployed model, without running it."""
    device: Literal["cpu", "gpu"] = "cpu"
    """Where it is computed."""
    keep: Path | None = None
    """Folder for the state of every run; the same command goes on from what is there."""
    model_out: Path | None = None
    """File (.npz) for the model after the last round of a single run: its arrays, and the number of rounds."""
    seed: int = 0
    """World seed, kept in the record. The split, who answers and drift follow from it, for all runs of a record."""
    runs: Count = 1
    """Number of runs: cohorts, arms, order of training and noise have seeds seed, seed + 1, ...; the split, who answers
    and drift are those of the first."""

    def parameters(self) -> dict[str, Any]:
        """Parameters of policies that were given."""
        return {name: value for name in PARAMETERS if (value := getattr(self, name)) is not None}

    def other(self) -> Exploration:
        """Return the policy to evaluate, with those of the given parameters that it has."""
        assert self.evaluate is not None
        known = parameters_of(self.evaluate)
        return exploration(self.evaluate, {name: value for name, value in self.parameters().items() if name in known})

    def _made(self) -> Any:
        """Build the policy; parameters that the policy to evaluate alone has are not its own."""

        def make() -> Exploration:
            given, others = self.parameters(), parameters_of(self.evaluate) if self.evaluate else ()
            known = parameters_of(self.policy)
            return exploration(self.policy, {n: v for n, v in given.items() if n in known or n not in others})

        return self.once("policy", make)

    def answers(self) -> Availability | None:
        """Return how devices answer; none where all do."""
        return self.availability() if self.missing or self.late or self.never else None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Raise where settings contradict each other."""
        self.check_protection()
        self._check_numbers()
        self._check_evaluation()
        self._leave_out("scenarios with pre-training", self.scenario != "scratch", f"scenario {self.scenario}")
        self._leave_out("worlds that drift", self.drift != "none", f"drift {self.drift}")
        return self

    def load(self) -> Setup:
        """Check everything before anything starts, and return what it makes; once, however often it is called."""
        return self.once("setup", self.check)

    def files(self) -> Sequence[Path]:
        """Files that the population comes from, where they are a user's own."""
        named = (self.file,) if self.file is not None and self.file.is_file() else ()
        return (*self.data_files(), *named)

    def check(self, own: Own | None = None, population: Population | None = None) -> Setup:
        """Do what `load` does, each time anew.

        `own` are a user's own model and rewards, and `population` a user's own, instead of the settings'.
        """
        self._check_files()
        with held():  # jax does not bear a Ctrl-C while it begins, nor while it compiles
            self._check_device()
        if own is not None:
            self._check_own(own)
        population = self._checked_population(population)
        with held():
            return self._setup(own, population)

    def _check_device(self) -> None:
        require("jax", extra="contextual")
        if "optax-adam" in (self.optimiser, self.pretraining_optimiser):
            require("optax", extra="contextual")
        from posse.protocols.fed_contextual.study import device_of, keep_compiled

        keep_compiled()
        device_of(self.device)

    def _setup(self, own: Own | None, population: Population) -> Setup:
        """Settle what is left open, by what the population is."""
        from posse.protocols.fed_contextual.models import Model, model_of, size_of
        from posse.protocols.fed_contextual.study import NOTHING, check_own

        own = own or NOTHING
        if is_own(self.model) or own.model is not None:
            from posse.protocols.fed_contextual.own_models import adapted, named

            if population.bags and not isinstance(own.model, Model):
                raise ConfigError("models of your own take numbers, and the data are texts. Use model bag-of-words.")
            shape, arms = tuple(getattr(population.inputs, "shape", (0,))[1:]), len(population.arms)
            made = named(self.model, shape, arms) if own.model is None else own.model
            own = own._replace(model=made if isinstance(made, Model) else adapted(made, shape, arms))
        if own != NOTHING:
            check_own(own, population)
        world = scenario(self.scenario, population, self._pretrained(population))
        if world.pretrained:
            world.initial(population.clients, self.seed)
        if self.drift != "none":
            self.drifting(len(population.arms))
        name = self._model(population) if own.model is None else OWN
        self._leave_out("the cnn", name == "cnn", f"model {name}")
        one, two = self.channels
        size = size_of(own.model or model_of(population, name, self.hidden, (one, two)))
        sampling = self.sampling or ("poisson" if self.noise else "fixed")
        mechanism, rounds = None, self.horizon
        if self.noise:
            self.check_delta(population.clients)
            mechanism = self.mechanism(population.clients, size, sampling)
            rounds = min(rounds, self.ledger(mechanism).most or rounds)
        quantile = self.quantile if self.quantile is not None else 0.0 if self.noise else QUANTILE
        declared = None if self.input_size is None else declared_client_rate(self.input_size, name)
        rate = self.client_rate or declared or default_client_rate(population, name)
        before = self.pretraining_client_rate or default_pretraining_rate(population, name)
        large = self.input_size or input_size(population, name)
        server = self.server_rate or default_server_rate(large, name, self.optimiser)
        return Setup(
            population, world, name, size, sampling, quantile, rate, server, large, before, rounds, mechanism, own
        )

    @field_validator("model")
    @classmethod
    def _known_model(cls, value: str) -> str:
        if not is_own(value):
            check.one_of(NAMED, model=value)
        return value

    def _check_numbers(self) -> None:
        if len(self.channels) != 2 or min(self.channels) < 1:
            got = ",".join(map(str, self.channels))
            raise ConfigError(f"channels must be two numbers of at least 1, such as 16,32, got {got}.")
        if self.delay != type(self).model_fields["delay"].default:
            raise ConfigError(
                f"delay changes nothing here, since an update that is late is lost, got {self.delay}. Leave it out."
            )
        if not 0 <= self.seed < 2**32 - self.runs:
            raise ConfigError(
                f"seeds must be in [0, 2^32), got {self.seed} and {self.runs} runs. Choose a smaller one."
            )
        if self.centralised and (self.noise or self.levels):
            raise ConfigError(
                "noise and secure sums need the unweighted mean of devices' clipped updates, got centralised, which "
                "has no devices to protect. Leave one of them out."
            )
        if (self.levels + 1) * self.cohort * 2 >= RING:
            raise ConfigError(
                f"a sum of whole numbers must stay below 2^31, got {self.levels} levels and a cohort of {self.cohort}. "
                "Lower one of them."
            )
        self.availability()

    def _check_files(self) -> None:
        if self.keep is not None and self.keep.is_file():
            raise ConfigError(f"keep must be a folder, and {self.keep} is a file. Name another.")
        out = self.model_out
        if out is None:
            return
        if out.suffix != ".npz" or out.is_dir():
            raise ConfigError(f"model_out must be a file whose name ends in .npz, got {out}. Name another.")
        if not os.access(out.parent, os.W_OK):
            raise ConfigError(f"model_out must be in a folder that exists and may be written to, got {out}. Make it.")
        if self.runs > 1:
            raise ConfigError(f"model_out is of a single run, got runs {self.runs}. Leave one of them out.")

    def _check_own(self, own: Own) -> None:
        if own.model is not None and self.model != "auto":
            raise ConfigError(f"a model of your own goes without another, got model {self.model}. Leave it out.")
        if own.pay is not None and (self.drift != "none" or self.scenario == "init-shift"):
            what = "drift" if self.drift != "none" else "scenario"
            raise ConfigError(
                f"{what} '{getattr(self, what)}' changes a table of rewards, and rewards of your own have none. "
                "Leave it out."
            )

    def _leave_out(self, where: str, apply: bool, got: str) -> None:
        """Raise if a given setting has no effect."""
        for name in (name for name, place in ONLY.items() if place == where and not apply):
            if name in self.model_fields_set and getattr(self, name) != type(self).model_fields[name].default:
                raise ConfigError(f"{name} applies to {where}, got {getattr(self, name)} for {got}. Leave it out.")

    def _check_evaluation(self) -> None:
        if self.evaluate is not None:
            self.other()
        made = self.exploration()
        if not isinstance(made, Greedy) and not (isinstance(made, EpsilonGreedy) and made.epsilon == 0):
            return
        for what in ("evaluate", "loss"):
            if getattr(self, what) not in (None, "regression"):
                raise ConfigError(
                    f"{what} '{getattr(self, what)}' needs logs in which every arm has a chance, got those of "
                    f"{made.name}{' with epsilon 0' if made.name != 'greedy' else ''}. Explore, or leave it out."
                )

    def _checked_population(self, given: Population | None) -> Population:
        population = self.population() if given is None else given
        if given is None and self.population_kind == "prepared" and self.verify:
            population.check()
        if self.cohort > population.clients:
            raise ConfigError(
                f"cohort must be at most {population.clients}, the number of devices of {population.name}, got "
                f"{self.cohort}. Lower it."
            )
        return population

    def _pretrained(self, population: Population) -> int:
        """Clients of pre-training: those asked for, or as many as there are."""
        if "pretrained" in self.model_fields_set:
            return self.pretrained
        return min(INITIAL_CLIENTS, population.clients)

    def _model(self, population: Population) -> str:
        if self.model != "auto":
            return {"bag-of-words": "bag"}.get(self.model, self.model)
        if population.bags:
            return "bag"
        shape: tuple[int, ...] = getattr(population.inputs, "shape", ())[1:]
        square = len(shape) == 2 and shape[0] == shape[1] >= SMALL_IMAGE
        return "cnn" if square and getattr(population.inputs, "dtype", None) == "uint8" else "linear"
