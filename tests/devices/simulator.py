"""The simulator's run of the same settings, on the same population, gathered as the simulator
gathers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posse.problems.datasets.mnist import digits_population
from posse.problems.populations.population import Population
from posse.problems.populations.prepared import load, save
from posse.systems.fed_contextual.computing.cohorts import Schedule, cohort_of, logs_of
from posse.systems.fed_contextual.computing.rounds import bandit_round, host
from posse.systems.fed_contextual.computing.server import begin, deploy
from posse.systems.fed_contextual.flower.device import first_model, rates_of, task_of
from posse.systems.fed_contextual.flower.settings import DeviceSettings

SIZES = (200, 20, 64, 90, 33)
"""Samples of uneven clients, sorted by label: some have more than a device takes, some fewer."""


def uneven(folder: Path) -> str:
    """Write the digits over clients of different sizes; returns the file."""
    whole = digits_population(1)
    order = np.argsort(np.asarray(whole.labels), kind="stable")[:: whole.samples // sum(SIZES)][
        : sum(SIZES)
    ]
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    made = Population(
        "uneven",
        whole.arms,
        offsets,
        np.asarray(whole.inputs)[order],
        np.asarray(whole.labels)[order],
    )
    return str(save(made, folder / "uneven.npz"))


def population_of(settings: DeviceSettings, nodes: int) -> Population:
    return digits_population(nodes) if settings.data == "digits" else load(settings.data)


def simulated(
    settings: DeviceSettings,
    nodes: int,
    cohorts: Sequence[Sequence[int]] | None = None,
    lines: Sequence[Any] = (),
) -> list[np.ndarray[Any, Any]]:
    """Return the parameters after all rounds; cohorts are the simulator's own draws, or those of
    who answered.

    With `lines` of a fleet's progress, samples and rewards of every round must be the simulator's.
    """
    task, samples = task_of(settings), settings.samples
    source = host(population_of(settings, nodes), samples, samples)
    sampling = "poisson" if settings.noise else "fixed"
    kept, every = int(settings.keep_log), settings.deploy_every
    schedule = Schedule(
        settings.rounds, nodes, settings.cohort, every, samples, sampling, keep_log=kept
    )
    rates = rates_of(settings)._replace(noise=settings.noise)
    step = jax.jit(partial(bandit_round, task))
    state = begin(task, settings.seed, first_model(settings))
    for at in range(settings.rounds):
        numbers, here = cohort_of(schedule, settings.seed, at)
        if cohorts is not None:
            numbers, here = np.zeros_like(numbers), np.zeros_like(here)
            numbers[: len(cohorts[at])], here[: len(cohorts[at])] = cohorts[at], 1
        cohort = source(numbers, here, at)._replace(
            logs=logs_of(schedule, settings.seed, at, numbers)
        )  # type: ignore[operator]
        state, seen = step(rates, state, cohort, jnp.uint32(settings.seed))
        if lines:
            assert lines[at]["samples"] == int(seen.samples)
            assert lines[at]["reward"] * lines[at]["samples"] == pytest.approx(
                float(seen.reward), abs=1e-2
            )
        if (at + 1) % settings.deploy_every == 0:
            state = deploy(state)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state.params)]
