"""Settings of a federated contextual bandit: one model for flags, files and Python.

Importing this needs no jax: help and mistakes are told on a machine that has none.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posse.core import check
from posse.core.check import require
from posse.core.errors import BudgetError, ConfigError
from posse.core.interrupts import held
from posse.policies.contextual.probabilities import Exploration
from posse.privacy.dp.guarantee import Budget, figure
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.sampled import SampledGaussian, Training
from posse.problems.populations.population import Population
from posse.problems.populations.settings import PopulationSettings
from posse.problems.populations.worlds import INITIAL_CLIENTS, Availability, Scenario, scenario
from posse.protocols.fed_contextual.rates import default_client_rate, default_pretraining_rate

if TYPE_CHECKING:
    from posse.protocols.fed_contextual.plan import Own

Explorations = Literal["greedy", "epsilon-greedy", "softmax", "falcon"]

PARAMETERS = {"greedy": (), "epsilon-greedy": ("epsilon",), "softmax": ("beta",), "falcon": ("mu", "gamma")}
"""Parameters of each policy."""
NETWORK = ("hidden", "channels")
"""Settings of a network alone."""
BEFORE = ("pretraining", "pretrained", "pretraining_client_rate", "pretraining_server_rate", "pretraining_optimiser")
"""Settings of pre-training alone."""
DRIFT = ("drift_every", "drift_share")
"""Settings of a world that drifts alone."""
WHOSE = {
    **dict.fromkeys(NETWORK, "the cnn"), **dict.fromkeys(BEFORE, "scenarios with pre-training"),
    **dict.fromkeys(DRIFT, "worlds that drift"),
}  # fmt: skip
OWN = "own"
"""What a record calls a model that a user gave."""
QUANTILE = 0.8
"""Fraction of updates within the norm, where it follows them and nothing else is said."""
SMALL_IMAGE = 16
"""Pixels of a side below which an image has a linear model unless another is asked for."""
RING = 2**31


@dataclass(frozen=True, eq=False)
class Setup:
    """What settings make, with everything settled that they leave open."""

    population: Population
    world: Scenario
    model: str
    """A name that `sources.model_of` knows, or `OWN`."""
    parameters: int
    """Numbers of the model, and of an update."""
    sampling: Literal["poisson", "fixed"]
    quantile: float
    client_rate: float
    """Learning rate of devices: the one given, or by `rates.default_client_rate`."""
    pretraining_client_rate: float
    """The same in pre-training."""
    rounds: int
    """Rounds of a run: those asked for, or as many as the privacy budget allows."""
    mechanism: SampledGaussian | None
    """What is accounted for; none without noise."""
    budget: Budget | None
    delta: float
    own: Own
    """A user's own model and rewards, where given."""

    def ledger(self) -> Ledger[Training] | None:
        """Return a new ledger for a run; none without noise."""
        return None if self.mechanism is None else Ledger(Training(self.mechanism, self.budget, delta=self.delta))


class FedSettings(PopulationSettings):
    """Everything a run of fed-contextual needs to know."""

    policy: Explorations = "softmax"
    """How devices choose an arm from the predicted rewards."""
    epsilon: float = 0.05
    """Share of decisions that epsilon-greedy draws at random."""
    beta: float = 0.05
    """Temperature of softmax."""
    mu: float | None = None
    """Of falcon: a fifth of the number of arms if left out."""
    gamma: float = 1000.0
    """Of falcon."""
    model: Literal["auto", "linear", "bag-of-words", "cnn"] = "auto"
    """Reward model; auto: bag-of-words for texts, cnn for images of 16 pixels a side or more, else linear."""
    hidden: int = 128
    """Of the cnn: units of its hidden layer."""
    channels: tuple[int, ...] = (32, 64)
    """Of the cnn: channels of its two convolutions, such as 16,32."""
    loss: Literal["regression", "importance"] = "regression"
    """Loss of a device's log: squared error, or the same over the probability of the arm."""
    rounds: int = 200
    """Federated rounds."""
    cohort: int = 20
    """Devices of a round; the expected number where they are drawn by coins."""
    sampling: Literal["poisson", "fixed"] | None = None
    """How devices are drawn: each by a coin of its own (poisson, the default under noise), or so many (fixed, else)."""
    deploy_every: int = 10
    """Rounds after which devices act with the newest model."""
    client_rate: float | None = None
    """Learning rate of devices; 0.1 if left out, or for a linear model less where inputs are large: at most 0.5 / (mean
    squared norm of the inputs)."""
    server_rate: float = 0.02
    """Learning rate of the server."""
    optimiser: Literal["adam", "optax-adam", "sgd"] = "adam"
    """What the server does with the mean update: Adam as published (Keras'), as optax has it, or plain steps."""
    batch: int = 16
    """Samples a step of training."""
    cap: int = 256
    """Samples of a device at most."""
    pretraining: int = 100
    """Supervised rounds before the first deployment, in scenarios that have them."""
    pretraining_client_rate: float | None = None
    """Learning rate of devices in these rounds; 0.5 if left out, or for a linear model less where inputs are large: at
    most 0.5 x arms / (mean squared norm of the inputs)."""
    pretraining_server_rate: float = 0.5
    """Learning rate of the server in these rounds."""
    pretraining_optimiser: Literal["adam", "optax-adam", "sgd"] = "sgd"
    """What the server does with the mean update in these rounds."""
    centralised: bool = False
    """All samples of a round in one place: what a federation is measured against. Nothing is protected."""
    clip: float = 1.0
    """Norm to which updates are clipped, or the first one."""
    quantile: float | None = None
    """Fraction of updates that should be within the norm, which then follows it (default: 0.8); 0 keeps it fixed, which
    noise needs."""
    noise: float = 0.0
    """Noise multiplier: standard deviation of the noise on a round's sum, in clipping norms; 0 for none."""
    delta: float = 1e-6
    """Delta of the figures; below 1 / devices."""
    limit: float | None = None
    """Largest epsilon (with delta) that may be spent on a device; training stops before it would be more."""
    levels: int = 0
    """Whole numbers from 0 to the norm to which updates are rounded, as secure sums need them (65536 is usual); 0 for
    floats."""
    evaluate: Explorations | None = None
    """Estimate from devices' logs what this policy would earn with the deployed model, without running it."""
    device: Literal["cpu", "gpu"] = "cpu"
    """Where it is computed."""
    keep: Path | None = None
    """Folder for the state of every run; the same command goes on from what is there."""
    model_out: Path | None = None
    """File (.npz) for the model after the last round of a single run: its arrays, and the number of rounds."""
    seed: int = 0
    """World seed, kept in the record. The split, who answers and drift follow from it, for all runs of a record."""
    runs: int = 1
    """Number of runs: cohorts, arms, order of training and noise have seeds seed, seed + 1, ...; the split, who answers
    and drift are those of the first."""
    points: int = 200
    """Points of a curve."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """One world seed a run."""
        return tuple(range(self.seed, self.seed + self.runs))

    def exploration(self, kind: Explorations | None = None) -> Exploration:
        """Return the policy, or another one with the same parameters where it has them."""
        return Exploration(kind or self.policy, self.epsilon, self.beta, self.mu, self.gamma)

    def answers(self) -> Availability | None:
        """Return how devices answer; none where all do."""
        return self.availability() if self.missing or self.late or self.never else None

    def check(self, own: Own | None = None, population: Population | None = None) -> Setup:
        """Check everything before anything starts, and return what it makes.

        `own` are a user's own model and rewards, and `population` a user's own, instead of the settings'.
        """
        self._check_numbers()
        self._check_policy()
        self._check_protection()
        self._check_files()
        self._leave_out(BEFORE, self.scenario != "scratch", f"scenario {self.scenario}")
        self._leave_out(DRIFT, self.drift != "none", f"drift {self.drift}")
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
        from posse.protocols.fed_contextual.plan import device_of

        device_of(self.device)

    def _setup(self, own: Own | None, population: Population) -> Setup:
        """Settle what is left open, by what the population is."""
        from posse.protocols.fed_contextual.plan import NOTHING, check_own
        from posse.protocols.fed_contextual.sources import model_of

        own = own or NOTHING
        if own != NOTHING:
            check_own(own, population)
        world = scenario(self.scenario, population, self._pretrained(population))
        if world.pretrained:
            world.initial(population.clients, self.seed)
        if self.drift != "none":
            self.drifting(len(population.arms))
        name = self._model(population) if own.model is None else OWN
        self._leave_out(NETWORK, name == "cnn", f"model {name}")
        one, two = self.channels
        size = _size(own.model or model_of(population, name, self.hidden, (one, two)))
        sampling = self.sampling or ("poisson" if self.noise else "fixed")
        mechanism = self._mechanism(population, sampling, size)
        budget = None if self.limit is None else Budget(self.limit, self.delta)
        rounds = self.rounds if mechanism is None else self._affordable(mechanism, budget)
        quantile = self.quantile if self.quantile is not None else 0.0 if self.noise else QUANTILE
        rate = self.client_rate or default_client_rate(population, name)
        before = self.pretraining_client_rate or default_pretraining_rate(population, name)
        return Setup(
            population, world, name, size, sampling, quantile, rate, before, rounds, mechanism, budget, self.delta, own
        )  # fmt: skip

    def _check_numbers(self) -> None:
        for least, name in (
            (1, "rounds"), (1, "cohort"), (1, "deploy_every"), (1, "batch"), (1, "cap"), (1, "pretraining"),
            (1, "runs"), (2, "points"), (0, "levels"), (0, "noise"), (1, "hidden"),
        ):  # fmt: skip
            check.at_least(least, **{name: getattr(self, name)})
        if len(self.channels) != 2 or min(self.channels) < 1:
            got = ",".join(map(str, self.channels))
            raise ConfigError(f"channels must be two numbers of at least 1, such as 16,32, got {got}.")
        for name in ("client_rate", "server_rate", "clip", "pretraining_client_rate", "pretraining_server_rate"):
            if (value := getattr(self, name)) is not None:
                check.positive(**{name: value})
        if self.delay != type(self).model_fields["delay"].default:
            raise ConfigError(
                f"delay changes nothing here, since an update that is late is lost, got {self.delay}. Leave it out."
            )
        if not 0 <= self.seed < 2**32 - self.runs:
            raise ConfigError(
                f"seeds must be in [0, 2^32), got {self.seed} and {self.runs} runs. Choose a smaller one."
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

    def _leave_out(self, names: tuple[str, ...], apply: bool, got: str) -> None:
        """Refuse settings that say nothing here."""
        for name in () if apply else names:
            if name in self.model_fields_set and getattr(self, name) != type(self).model_fields[name].default:
                raise ConfigError(
                    f"{name} applies to {WHOSE[name]}, got {getattr(self, name)} for {got}. Leave it out."
                )

    def _check_policy(self) -> None:
        used = {*PARAMETERS[self.policy], *(PARAMETERS[self.evaluate] if self.evaluate else ())}
        for name in (one for some in PARAMETERS.values() for one in some):
            if name in self.model_fields_set and name not in used and getattr(self, name) != _default(name):
                owner = next(policy for policy, some in PARAMETERS.items() if name in some)
                raise ConfigError(
                    f"{name} belongs to {owner}, got {getattr(self, name):g} for {self.policy}. Leave it out."
                )
        self.exploration()
        if self.policy != "greedy" and not (self.policy == "epsilon-greedy" and self.epsilon == 0):
            return
        for what in ("evaluate", "loss"):
            if getattr(self, what) not in (None, "regression"):
                raise ConfigError(
                    f"{what} '{getattr(self, what)}' needs logs in which every arm has a chance, got those of "
                    f"{self.policy}{' with epsilon 0' if self.policy != 'greedy' else ''}. Explore, or leave it out."
                )

    def _check_protection(self) -> None:
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta must be above 0 and below 1, got {self.delta:g}. Choose one below 1 / devices.")
        if self.quantile is not None:
            check.between(0, 1, quantile=self.quantile)
        if self.centralised and (self.noise or self.levels):
            raise ConfigError(
                "noise and secure sums need the unweighted mean of devices' clipped updates, got centralised, which "
                "has no devices to protect. Leave one of them out."
            )
        if self.noise and self.quantile:
            raise ConfigError(
                f"a clip that follows the updates tells more than is accounted for, got quantile {self.quantile:g} and "
                f"noise {self.noise:g}. Fix the clip with quantile 0."
            )
        if self.limit is not None and not self.noise:
            raise ConfigError(f"a limit of epsilon needs noise, got limit {self.limit:g} and noise 0. Give noise.")
        if (self.levels + 1) * self.cohort * 2 >= RING:
            raise ConfigError(
                f"a sum of whole numbers must stay below 2^31, got {self.levels} levels and a cohort of {self.cohort}. "
                "Lower one of them."
            )

    def _checked_population(self, given: Population | None) -> Population:
        population = self.population() if given is None else given
        if given is None and self.data == "prepared" and self.verify:
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

    def _mechanism(self, population: Population, sampling: Any, size: int) -> SampledGaussian | None:
        """Return what is accounted for.

        Rounding to levels lengthens an update of norm C by at most C sqrt(size) / levels: so much more sensitive is the
        sum, and so much less the noise counts.
        """
        if not self.noise:
            return None
        if self.delta * population.clients >= 1:
            raise ConfigError(
                f"delta must be below 1 / devices = {1 / population.clients:.3g}, got {self.delta:g}: a larger one "
                "allows to publish a device's data whole. Lower it."
            )
        longer = 1 + math.sqrt(size) / self.levels if self.levels else 1.0
        return SampledGaussian(population.clients, self.cohort, self.noise / longer, sampling)

    def _affordable(self, mechanism: SampledGaussian, budget: Budget | None) -> int:
        most = Training(mechanism, budget, delta=self.delta).most
        if most == 0:
            one = mechanism.epsilon(1, self.delta, "rdp")
            raise BudgetError(
                f"not even one round fits the limit {budget}: with noise {self.noise:g} it costs "
                f"{figure(one, self.delta)}. Raise noise or limit, or lower the cohort."
            )
        return self.rounds if most is None else min(self.rounds, most)


def _default(name: str) -> Any:
    return next(field.default for field in fields(Exploration) if field.name == name)


def _size(model: Any) -> int:
    """Count the numbers of a model, without making them."""
    import jax

    leaves = jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0)))
    return sum(math.prod(leaf.shape) for leaf in leaves)
