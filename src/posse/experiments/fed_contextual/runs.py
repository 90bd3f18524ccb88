"""Runs the jobs of some lines, or reads what a study elsewhere left: choose first, then report.

Results of a full form lie in the folder that POSSE_FED_CONTEXTUAL_RESULTS names, else in `results` beside the output
folders of the experiments, which share them. What is there is not run again; what is missing is run here. The small
form keeps nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.experiments.fed_contextual import stand_ins
from posse.experiments.fed_contextual.forms import Form, form_of
from posse.experiments.fed_contextual.lines import Chosen, Line
from posse.experiments.kit import Watch
from posse.problems.populations.population import Population
from posse.problems.populations.settings import PopulationSettings
from posse.protocols.fed_contextual.bench import Bench
from posse.protocols.fed_contextual.jobs import Job
from posse.protocols.fed_contextual.results import Result, average_rewards, read
from posse.protocols.fed_contextual.study import run_jobs

RESULTS = "POSSE_FED_CONTEXTUAL_RESULTS"
"""Environment variable that names the folder of a study's results."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Found:
    """A line that was run: its hyper-parameters, and what every seed showed."""

    line: Line
    chosen: Chosen | None
    result: Result

    @cached_property
    def curves(self) -> Floats:
        """Running average rewards, (seeds, rounds)."""
        curves: Floats = average_rewards(self.result)[0]
        return curves

    @property
    def ends(self) -> Floats:
        """Average rewards of whole runs, one a seed."""
        ends: Floats = self.curves[:, -1]
        return ends

    @cached_property
    def probabilities(self) -> Floats:
        """Mean probability of the arm that was chosen, (seeds, rounds)."""
        seen = self.result.seen
        mean: Floats = np.asarray(seen.probability[0], np.float64) / np.maximum(np.asarray(seen.samples[0]), 1)
        return mean


def population_of(data: str) -> Population:
    """Make a population: a stand-in, or one of the data folder."""
    made = {"letters": stand_ins.letters, "bags": stand_ins.bags}.get(data)
    return PopulationSettings.model_validate({"data": data}).population() if made is None else made()


@lru_cache(maxsize=2)
def bench_of(data: str) -> Bench:
    """Make a bench once, on a GPU where there is one: what is compiled and pre-trained serves all experiments."""
    return Bench(population_of(data), "gpu" if jax.default_backend() == "gpu" else "cpu")


def choose(form: Form, jobs: Sequence[Job], results: Sequence[Result]) -> Chosen:
    """Take what earned most, on average over seeds that are not reported."""
    best: Chosen | None = None
    for job, result in zip(jobs, results, strict=True):
        if set(result.job["seeds"]) & set(form.report):
            raise ConfigError(f"{job.name} was run on seeds that are reported. Choose hyper-parameters on others.")
        means = average_rewards(result)[..., -1].mean(axis=1)
        at = int(np.nanargmax(means))
        if best is None or means[at] > best.reward:
            client, server = job.pairs[at]
            best = Chosen(client, server, job.parameters, float(means[at]), _edge(job, client, server))
    if best is None:
        raise ValueError("nothing to choose from: give a job.")
    return best


def _edge(job: Job, client: float, server: float) -> str:
    tried = {"client": (client, job.client_rate), "server": (server, job.server_rate)}
    ends = [
        name
        for name, (rate, rates) in tried.items()
        if isinstance(rates, tuple) and len(rates) > 1 and rate in (min(rates), max(rates))
    ]
    return ", ".join(ends) or "-"


@dataclass(frozen=True)
class Runs:
    """A form, where results are kept, and who is told."""

    form: Form
    folder: Path
    watch: Watch

    def of(self, lines: Sequence[Line]) -> dict[str, Found]:
        """Choose hyper-parameters of every line, and run it on the seeds that are reported; by the lines' names."""
        total = sum(len(line.to_choose(self.form)) + 1 for line in lines)
        found: dict[str, Found] = {}
        done = 0
        for line in lines:
            tried = line.to_choose(self.form)
            results = [self._result(line.kind, job, done + number, total) for number, job in enumerate(tried)]
            done += len(tried)
            chosen = choose(self.form, tried, results) if tried else None
            found[line.name] = Found(
                line, chosen, self._result(line.kind, line.to_report(self.form, chosen), done, total)
            )
            done += 1
        return found

    def _result(self, kind: str, job: Job, number: int, total: int) -> Result:
        path = self.folder / f"{job.name}.npz"
        self.watch(job.name, number / total)
        if not path.exists():
            bench = bench_of(self.form.size(kind).data)
            tell = self.watch

            def progress(at: Job, done: int, rounds: int, rate: float) -> None:
                tell(f"{at.name}: {done:,} of {rounds:,} rounds", (number + done / rounds) / total)

            for _ in run_jobs(bench, [job], self.folder, progress):
                pass
        result = read(path)
        if json.dumps(result.job, sort_keys=True) != job.to_json():
            raise ConfigError(
                f"{path} is the result of another job of that name. Name another folder in {RESULTS}, or remove it."
            )
        return result


@contextmanager
def opened(small: bool, out: Path, watch: Watch) -> Iterator[Runs]:
    """Give the runs of a form, with a folder for results."""
    form = form_of(small)
    if small:
        with tempfile.TemporaryDirectory() as folder:
            yield Runs(form, Path(folder), watch)
        return
    named = os.environ.get(RESULTS)
    yield Runs(form, Path(named) if named else out.parent / "results", watch)
