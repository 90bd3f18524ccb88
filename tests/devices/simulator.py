"""The simulator's run of the same settings, on the same population, gathered as the simulator gathers it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posse.problems.datasets.mnist import digits_population
from posse.problems.populations.population import Population
from posse.problems.populations.prepared import load, save
from posse.protocols.fed_contextual.cohorts import Schedule, cohort_of
from posse.protocols.fed_contextual.flower.device import first_model, rates_of, task_of
from posse.protocols.fed_contextual.flower.settings import DeviceSettings
from posse.protocols.fed_contextual.rounds import bandit_round, host
from posse.protocols.fed_contextual.server import begin, deploy

SIZES = (200, 20, 64, 90, 33)
"""Samples of uneven clients, sorted by label: some have more than a device takes, some fewer."""


def uneven(folder: Path) -> str:
    """Write the digits over clients of different sizes; returns the file."""
    whole = digits_population(1)
    order = np.argsort(np.asarray(whole.labels), kind="stable")[:: whole.samples // sum(SIZES)][: sum(SIZES)]
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    made = Population("uneven", whole.arms, offsets, np.asarray(whole.inputs)[order], np.asarray(whole.labels)[order])
    return str(save(made, folder / "uneven.npz"))


def population_of(settings: DeviceSettings, nodes: int) -> Population:
    return digits_population(nodes) if settings.data == "digits" else load(settings.data)


def simulated(
    settings: DeviceSettings, nodes: int, cohorts: Sequence[Sequence[int]] | None = None
) -> list[np.ndarray[Any, Any]]:
    """Return the parameters after all rounds; cohorts are the simulator's own draws, or those of who answered."""
    task, samples = task_of(settings), settings.samples
    source = host(population_of(settings, nodes), samples, samples)
    sampling = "poisson" if settings.noise else "fixed"
    schedule = Schedule(settings.rounds, nodes, settings.cohort, settings.deploy_every, samples, sampling)
    rates = rates_of(settings)._replace(noise=settings.noise)
    step = jax.jit(partial(bandit_round, task))
    state = begin(task, settings.seed, first_model(settings))
    for at in range(settings.rounds):
        numbers, here = cohort_of(schedule, settings.seed, at)
        if cohorts is not None:
            numbers, here = np.zeros_like(numbers), np.zeros_like(here)
            numbers[: len(cohorts[at])], here[: len(cohorts[at])] = cohorts[at], 1
        state, _ = step(rates, state, source(numbers, here, at), jnp.uint32(settings.seed))  # type: ignore[operator]
        if (at + 1) % settings.deploy_every == 0:
            state = deploy(state)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state.params)]
