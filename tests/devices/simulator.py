"""The simulator's run of the same settings, on the same samples."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posse.protocols.fed_contextual.cohorts import Schedule
from posse.protocols.fed_contextual.flower.device import first_model, rates_of, task_of
from posse.protocols.fed_contextual.flower.samples import samples_of
from posse.protocols.fed_contextual.flower.settings import DeviceSettings
from posse.protocols.fed_contextual.rounds import Cohort
from posse.protocols.fed_contextual.server import begin
from posse.protocols.fed_contextual.training import Plan, train


def simulated(settings: DeviceSettings, nodes: int) -> list[np.ndarray[Any, Any]]:
    """Return the parameters after all rounds; cohorts are the simulator's own draws."""
    whole = [samples_of(settings, {"partition-id": one, "num-partitions": nodes}, 0) for one in range(nodes)]

    def source(who: Any, here: Any, at: int) -> Cohort:
        made = [whole[int(one)] for one in who]
        contexts, labels, mask = (np.stack(part) for part in zip(*made, strict=True))
        return Cohort(contexts, labels, mask, jnp.asarray(who), jnp.asarray(here))

    task = task_of(settings)
    sampling = "poisson" if settings.noise else "fixed"
    schedule = Schedule(settings.rounds, nodes, settings.cohort, settings.deploy_every, settings.samples, sampling)
    rates = rates_of(settings)._replace(noise=settings.noise)
    first = begin(task, settings.seed, first_model(settings))
    states = train(Plan(task, rates, schedule), first, source, settings.seed)
    *_, (last, _) = states
    return [np.asarray(leaf) for leaf in jax.tree.leaves(last.params)]
