"""Whether the default rate of the server is near the best of a grid, over data sets of different scale and sparsity.

    python -m benchmarks.rates prepare FOLDER          populations and jobs, a file each
    python -m benchmarks.rates run FOLDER [gpu]        the jobs that have no result there yet

Everything but the server's rate is as a user gets it who names nothing but the data, the policy and the model. The score
of a rate is the average reward of all 200 rounds, the mean of five seeds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from posse.problems.populations.population import Population
from posse.problems.populations.splits import dirichlet, population

GRID = tuple(float(f"{10 ** (k / 2):.3g}") for k in range(-10, 3))
"""Rates of the server: two a decade from 0.00001 to 10."""
CNN_GRID = tuple(rate for rate in GRID if 1e-4 <= rate <= 0.1)
POLICIES = ("greedy", "epsilon-greedy", "softmax", "falcon")
SEEDS = (0, 1, 2, 3, 4)
SPLIT_SEED = 0


def _table(name: str, clients: int) -> Population:
    """A table of scikit-learn as it is, in its own units, over Dirichlet clients."""
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    labels = found["target"].astype(np.int64)
    arms = tuple(str(one) for one in found["target_names"])
    return population(name, found["data"].astype(np.float32), labels, arms, dirichlet(labels, clients, 0.3, SPLIT_SEED))


def _invented(name: str, features: int, scale: float, density: float) -> Population:
    """Normal numbers of a scale, all but a share of them 0; the best arm is the largest of ten linear functions."""
    rng = np.random.default_rng(SPLIT_SEED)
    samples, arms = 10_000, 10
    inputs = rng.normal(size=(samples, features)) * (rng.random((samples, features)) < density)
    labels = (inputs @ rng.normal(size=(features, arms))).argmax(axis=1)
    made = dirichlet(labels, 200, 0.3, SPLIT_SEED)
    return population(name, (scale * inputs).astype(np.float32), labels, tuple(map(str, range(arms))), made)


def _named(name: str) -> Population:
    from posse.problems.populations.settings import PopulationSettings

    return PopulationSettings(data=name).population()


DATA: dict[str, tuple[str, Callable[[], Population]]] = {
    "digits": ("linear", lambda: _named("digits")),
    "emnist": ("linear", lambda: _named("emnist")),
    "mnist-writers": ("linear", lambda: _named("mnist-writers")),
    "stackexchange": ("bag", lambda: _named("stackexchange")),
    "wine": ("linear", lambda: _table("wine", 30)),
    "breast-cancer": ("linear", lambda: _table("breast_cancer", 60)),
    "dense": ("linear", lambda: _invented("dense", 20, 1.0, 1.0)),
    "small": ("linear", lambda: _invented("small", 20, 0.01, 1.0)),
    "sparse": ("linear", lambda: _invented("sparse", 500, 1.0, 0.02)),
    "mnist-writers-cnn": ("cnn", lambda: _named("mnist-writers")),
}
"""Data sets, with the model that learns them."""


def jobs(name: str, found: Population, rates: tuple[float, ...]) -> list[dict[str, Any]]:
    """The jobs of a data set: one a policy, over all rates and seeds, with the defaults of a run for the rest."""
    from posse.protocols.fed_contextual.jobs import Job
    from posse.protocols.fed_contextual.remarks import default_client_rate
    from posse.protocols.fed_contextual.settings import QUANTILE, FedContextual

    usual, model = FedContextual(), DATA[name][0]
    same = {one: getattr(usual, one) for one in ("loss", "optimiser", "deploy_every", "cohort", "batch", "cap", "clip")}
    made = [
        Job(
            f"{name}.{policy}", policy=policy, client_rate=default_client_rate(found, model), server_rate=rates,
            rounds=usual.horizon, seeds=SEEDS, model=model, quantile=QUANTILE, **same,
        )
        for policy in POLICIES
    ]  # fmt: skip
    return [json.loads(job.to_json()) for job in made]


def prepare(folder: Path) -> None:
    """Write populations, compressed, and their jobs."""
    from posse.problems.populations.prepared import save

    folder.mkdir(parents=True, exist_ok=True)
    for name, (model, make) in DATA.items():
        found, path = make(), folder / f"{name.removesuffix('-cnn')}.npz"
        if not path.exists():
            save(found, path)
            with np.load(path) as kept:
                arrays = dict(kept)
            np.savez_compressed(path, **arrays)
        grid = jobs(name, found, CNN_GRID if model == "cnn" else GRID)
        (folder / f"{name}.json").write_text(json.dumps(grid))


def run(folder: Path, device: str = "cpu") -> None:
    """Run what has no result yet; seeds and rates go side by side on a GPU."""
    for name, (model, _) in DATA.items():
        side = ["--side", "8" if model == "cnn" else "65"] if device == "gpu" else []
        population_of = folder / f"{name.removesuffix('-cnn')}.npz"
        subprocess.run(
            [sys.executable, "-m", "posse.protocols.fed_contextual.study", "--data", str(population_of), "--jobs",
             str(folder / f"{name}.json"), "--out", str(folder / "results"), "--device", device, *side], check=True,
        )  # fmt: skip


if __name__ == "__main__":
    do, place = sys.argv[1], Path(sys.argv[2])
    {"prepare": prepare, "run": run}[do](place, *sys.argv[3:])
