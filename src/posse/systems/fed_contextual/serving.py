"""A federated contextual bandit in use: devices decide by the deployed model, and a server learns
from their logs.

A decision is made on a device (`client`, a number) for a context; its reward goes into that
device's log, which stays with it. After some decisions, or when `learn` is called, there is a
round: the devices that are drawn for it learn from their logs and send clipped updates, rounded
where sums are secure; the server adds noise where it is asked for, makes its step, and deploys the
model after every `deploy_every` rounds. A log is spent by the round that learns from it.

Draws are those of a simulation: devices that decide on the same contexts in the same rounds choose
the same arms.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.interrupts import defer_interrupt
from posse.policies.contextual.schedules import CONSTANT, explores_of
from posse.privacy.dp.ledger import Ledger
from posse.problems.populations.population import Population
from posse.systems.base import presentation
from posse.systems.fed_contextual.computing.client import acted
from posse.systems.fed_contextual.computing.cohorts import cohort_of
from posse.systems.fed_contextual.computing.models import Tree, write_model
from posse.systems.fed_contextual.computing.rounds import Cohort, logged_round
from posse.systems.fed_contextual.computing.server import State, begin, deploy
from posse.systems.fed_contextual.computing.tasks import Draws, Rates, Task
from posse.systems.fed_contextual.record import labelled, learnt_of, privacy_of
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.fed_contextual.simulation import Simulation, check_finite
from posse.systems.live import Choice, Serving
from posse.systems.registry import system_of

Rewarded: TypeAlias = tuple[int, NDArray[Any], int, float, float]
"""Number, context, arm, probability and reward of a decision."""
DEVICES = 60
"""Devices where the settings name no number and the contexts are the caller's own."""
ROUNDS = 1 << 30
"""Rounds of a bandit in use: as many as there will be."""
REFUSED = {
    "centralised": False,
    "drift": "none",
    "scenario": "scratch",
    "evaluate": None,
    "keep": None,
    "stale": 0,
    "keep_log": 0,
    "available": None,
}
"""Settings of simulations that mean nothing here, and the values that they must have."""


@partial(jax.jit, static_argnames=("task",))
def _decided(
    task: Task,
    rates: Rates,
    deployed: Tree,
    context: jax.Array,
    at: jax.Array,
    samples: jax.Array,
    draws: Draws,
) -> tuple[jax.Array, jax.Array]:
    """Choose for one context as a device does in a round for the sample at this place."""
    places = jnp.arange(samples.shape[0])
    contexts = jnp.zeros((samples.shape[0], *context.shape), context.dtype).at[at].set(context)
    log = acted(task, rates, deployed, contexts, samples, (places <= at).astype(jnp.float32), draws)
    return log.arms[at], log.probabilities[at]


_learnt = jax.jit(logged_round, static_argnames=("task",))


class FedServing(Serving):
    """Decisions on devices and rounds of a server, in one process."""

    settings: FedContextual

    def __init__(self, settings: FedContextual, samples: int | None, every: int) -> None:
        self.settings = settings
        self._setup = setup = settings.load()
        self._every = every
        with defer_interrupt():
            self._simulation = Simulation(settings, setup, 1)
            self._plan = self._simulation.plan
            if samples is not None:
                self._plan = self._plan._replace(
                    schedule=self._plan.schedule._replace(samples=samples)
                )
            arms, decisions = len(setup.population.arms), every * settings.deploy_every
            explores = explores_of(
                settings.schedule, settings.exploration(), arms, decisions, setup.parameters
            )
            self._plan = self._plan._replace(explores=explores)
            self._state: State = begin(self._plan.task, settings.seed)
        self._ledger = None if setup.training is None else Ledger(setup.training)
        self._samples = self._plan.schedule.samples
        self._shape: tuple[int, ...] = np.asarray(setup.population.inputs).shape[1:]
        self._dtype = np.asarray(setup.population.inputs).dtype
        self._made, self._since = 0, 0
        self._counts: dict[int, int] = {}
        """Decisions of each device since it last learnt."""
        self._open: dict[int, tuple[int, NDArray[Any], int, float]] = {}
        """Device, context, arm and probability of decisions whose reward has not come."""
        self._logs: dict[int, list[Rewarded]] = {}
        """Of every device, decisions not learnt from yet."""
        self._pulls = np.zeros(len(self.names), np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self._setup.population.arms

    @property
    def config(self) -> dict[str, Any]:
        """The settings, without those of simulations."""
        left_out = {"horizon", "runs", "points", "model_out", "data", *REFUSED}
        return {name: v for name, v in self.settings.config().items() if name not in left_out}

    @property
    def _done(self) -> int:
        return int(self._state.round)

    def choose(self, context: Any, client: int | None) -> Choice:
        """Choose by the deployed model; without a client the devices take turns."""
        devices = self._setup.population.clients
        client = self._made % devices if client is None else client
        if isinstance(client, bool) or not isinstance(client, int) or not 0 <= client < devices:
            raise ConfigError(
                f"client must be a device's number from 0 to {devices - 1}, got {client!r}."
            )
        given = self._scaled(self._context(context))
        if self._since >= self._every:
            self.end_round()
        at, settings = self._counts.get(client, 0), self.settings
        turn, place = divmod(at, self._samples)
        # Beyond a full log draws repeat no address: a device's next ones are those of another seed.
        draws = Draws(jnp.uint32((settings.seed + turn * 0x9E3779B1) % 2**32), self._done, client)
        with defer_interrupt(), jax.default_device(self._simulation.device):
            arm, chance = _decided(
                self._plan.task,
                self._plan.at(self._done),
                self._state.deployed,
                jnp.asarray(given),
                jnp.int32(place),
                jnp.zeros(self._samples, jnp.int32),
                draws,
            )
        made, self._made, self._since = self._made, self._made + 1, self._since + 1
        self._counts[client] = at + 1
        self._open[made] = client, given, int(arm), float(chance)
        return Choice(int(arm), float(chance), (made,))

    def _context(self, context: Any) -> NDArray[Any]:
        """Check one context: numbers of the shape that the model takes."""
        if context is None:
            raise ConfigError(
                f"a decision needs a context of shape {self._shape}, got none. Call "
                "decide(context)."
            )
        try:
            given = np.asarray(context, np.float64 if self._dtype == np.uint8 else self._dtype)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(
                f"a context must be numbers of shape {self._shape}, got {context!r}."
            ) from None
        if given.shape != self._shape or not np.isfinite(given).all():
            raise ConfigError(
                f"a context must be finite numbers of shape {self._shape}, got shape {given.shape}."
            )
        if self._dtype == np.uint8 and ((given < 0) | (given > 255) | (given % 1 != 0)).any():
            raise ConfigError(
                "a context of bytes must be whole numbers from 0 to 255. Scale it as the data are."
            )
        return given.astype(self._dtype)

    def _scaled(self, context: NDArray[Any]) -> NDArray[Any]:
        """Scale a context as the table was that the settings name."""
        scaling = self._setup.population.scaling
        return context if scaling is None else scaling(context).astype(self._dtype)

    def check_reward(self, value: float) -> None:
        """Rewards are what the model predicts; where sums are secure, from -1 to 1 as on
        devices.
        """
        if self.settings.levels and not -1 <= value <= 1:
            raise ConfigError(
                f"a reward must be from -1 to 1 where sums are secure, got {value:g}. Scale it."
            )

    def reward(self, key: tuple[int, ...], value: float | None) -> None:
        """Write a decision with its reward into the device's log; one that was given up is in
        none.
        """
        client, context, arm, chance = self._open.pop(key[0])
        if value is not None:
            self._logs.setdefault(client, []).append((key[0], context, arm, chance, value))
            self._pulls[arm] += 1

    def end_round(self) -> None:
        """Do a round with the devices that are drawn for it; a spent privacy budget ends learning,
        not deciding.
        """
        self._since = 0
        if (
            self._ledger is not None
            and self._ledger.most is not None
            and self._ledger.releases >= self._ledger.most
        ):
            return
        plan, seed = self._plan, self.settings.seed
        numbers, present = cohort_of(plan.schedule, seed, self._done)
        drawn = {int(number): place for place, number in enumerate(numbers) if present[place]}
        if self._ledger is not None:
            self._ledger.spend()  # paid for before anything is computed
        with defer_interrupt(), jax.default_device(self._simulation.device):
            cohort = self._cohort(numbers, present, drawn)
            state, seen = _learnt(plan.task, plan.rates, self._state, cohort, jnp.uint32(seed))
            check_finite(seen, self._done + 1, self._setup.client_rate, self._setup.server_rate)
            self._state = (
                deploy(state) if int(state.round) % plan.schedule.deploy_every == 0 else state
            )
        for client in drawn:
            self._logs.pop(client, None)
            self._counts.pop(client, None)

    def _cohort(
        self, numbers: NDArray[np.int32], present: NDArray[np.float32], drawn: dict[int, int]
    ) -> Cohort:
        """Put the logs of the devices of a round side by side, padded, in the order in which they
        decided.
        """
        shape = len(numbers), self._samples
        contexts, arms = np.zeros((*shape, *self._shape), self._dtype), np.zeros(shape, np.int32)
        rewards, mask = np.zeros((2, *shape), np.float32)
        chances = np.ones(shape, np.float32)
        for client, place in drawn.items():
            for row, (_, context, arm, chance, value) in enumerate(self._log(client)):
                contexts[place, row], arms[place, row], chances[place, row] = context, arm, chance
                rewards[place, row], mask[place, row] = value, 1
        return Cohort(contexts, (arms, rewards, chances), mask, numbers, present)  # type: ignore[arg-type]

    def _log(self, client: int) -> list[Rewarded]:
        """The last decisions of a device, as many as a round takes."""
        return sorted(self._logs.get(client, ()), key=lambda one: one[0])[-self._samples :]

    def finish(self) -> None:
        """Learn from what is left, and write the model where that is asked for."""
        if any(self._logs.values()):
            self.end_round()
        if self.settings.model_out is not None:
            write_model(
                self.settings.model_out,
                self._state.params,
                self._done,
                *labelled(self._setup.population),
            )

    def record_fields(self) -> dict[str, Any]:
        """Return what was chosen, rounds and privacy."""
        settings = self.settings
        measured = settings.but(
            schedule=CONSTANT
        )  # FALCON's own follows from `every` here, and not from data
        learnt = learnt_of(self._setup, self._state.params)
        return {
            "pulls": self._pulls[None],
            "seeds": (settings.seed,),
            "show": presentation(system_of(settings), settings, **learnt),
            "problem": {"clients": self._setup.population.clients},
            "privacy": privacy_of(measured, self._setup, self._done),
            "summary": {"rounds_done": self._done, "samples": int(self._pulls.sum())},
        }

    def save(self) -> Any:
        """Return the model, the optimiser's state and the devices' logs."""
        leaves = [_text(np.asarray(leaf)) for leaf in jax.tree.leaves(self._state)]
        logs = [
            [c, n, x.tolist(), arm, p, v]
            for c, log in self._logs.items()
            for n, x, arm, p, v in log
        ]
        opened = [[n, c, x.tolist(), arm, p] for n, (c, x, arm, p) in self._open.items()]
        return {
            "state": leaves,
            "logs": logs,
            "open": opened,
            "counts": list(self._counts.items()),
            "made": self._made,
            "since": self._since,
            "pulls": self._pulls.tolist(),
            "scaling": self._scaling(),
        }

    def _scaling(self) -> list[list[float]]:
        """How contexts are scaled, as a file keeps it: the model and the logs are of scaled
        ones.
        """
        return [list(part) for part in self._setup.population.scaling or ()]

    def load(self, saved: Any) -> None:
        """Go on from there; rounds that were paid for are paid."""
        if saved.get("scaling", []) != self._scaling():
            raise ConfigError(
                "the table has changed since the bandit was saved, and contexts would be scaled "
                "differently. Restore the table."
            )
        like, shape = jax.tree.flatten(self._state)
        leaves = [_array(text) for text in saved["state"]]
        if [leaf.shape for leaf in leaves] != [jnp.shape(leaf) for leaf in like]:
            raise ValueError("another model")
        state = jax.tree.unflatten(shape, [jnp.asarray(leaf) for leaf in leaves])
        logs: dict[int, list[Rewarded]] = {}
        for client, number, context, arm, chance, value in saved["logs"]:
            logs.setdefault(int(client), []).append(
                (int(number), self._context(context), int(arm), chance, value)
            )
        opened = {
            int(n): (int(c), self._context(x), int(arm), float(p))
            for n, c, x, arm, p in saved["open"]
        }
        self._state, self._logs, self._open = state, logs, opened
        self._counts = {int(client): int(count) for client, count in saved["counts"]}
        self._made, self._since = int(saved["made"]), int(saved["since"])
        self._pulls = np.array(saved["pulls"], np.int64)
        if self._ledger is not None:
            self._ledger = Ledger(self._ledger.mechanism)
            if self._done:
                self._ledger.spend(times=self._done)


def _text(array: NDArray[Any]) -> list[Any]:
    return [
        array.dtype.str,
        list(array.shape),
        base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
    ]


def _array(text: Any) -> NDArray[Any]:
    kind, shape, data = text
    return np.frombuffer(base64.b64decode(data, validate=True), np.dtype(kind)).reshape(shape)


def serve(
    settings: FedContextual,
    arms: tuple[str, ...] | None,
    *,
    features: int | None = None,
    every: int | None = None,
) -> FedServing:
    """Serve decisions for the arms and contexts of the settings' data, or for named arms and so
    many features.
    """
    for name, value in REFUSED.items():
        if getattr(settings, name) != value:
            given = getattr(settings, name)
            raise ConfigError(
                f"{name} is a setting of simulations, got {given!r} for a bandit in use. Leave it "
                "out."
            )
    if (arms is None) != (features is None):
        raise ConfigError(
            "arms and features go together: names of arms, and the numbers of a context. Give both."
        )
    if every is not None:
        check.at_least(1, every=every)
    settings = settings.but(horizon=ROUNDS)
    samples = None
    if arms is not None and features is not None:
        check.at_least(1, features=features)
        if settings.scale == "standard":
            raise ConfigError(
                "scale measures the features of a table in data, got standard for contexts to "
                "come. Scale contexts yourself, and leave scale out."
            )
        settings = settings.but(scale="none")
        if (
            settings.input_size is None
        ):  # nothing is known of contexts to come: numbers from 0 to 1, as on devices
            settings = settings.but(input_size=max(1.0, features / 4))
        devices = settings.clients or max(DEVICES, settings.cohort)
        settings = settings.customised(population=_population(arms, features, devices))
        samples = -(-settings.cap // settings.batch) * settings.batch
    population = settings.load().population
    if population.bags:
        raise ConfigError(
            f"contexts of a bandit in use are numbers, and {population.name} has texts. Give "
            "arms and features."
        )
    return FedServing(settings, samples, settings.cohort if every is None else every)


def _population(arms: tuple[str, ...], features: int, clients: int) -> Population:
    """Make devices without a past: what their settings are checked against."""
    inputs, labels = np.zeros((clients, features), np.float32), np.zeros(clients, np.int32)
    return Population("live", arms, np.arange(clients + 1), inputs, labels)
