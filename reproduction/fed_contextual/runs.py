"""Lines of the figures as jobs of a study, and their results: choose hyper-parameters first, then
report.

A line has one job for each value of exploration to choose by, and one to report. Results of a full
form lie in the folder that POSSE_FED_CONTEXTUAL_RESULTS names, else in `results` beside the output
folders of the experiments, which share them. What is there is not run again; what is missing is run
here. The small form keeps nothing, and needs no download: its populations are digits called
letters, and texts drawn from topics.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posse.core.errors import ConfigError, DataError
from posse.policies.contextual.explorations import EXPLORATIONS
from posse.problems.datasets.files import data_folder, find
from posse.problems.datasets.mnist import digits_population
from posse.problems.populations.population import Population
from posse.problems.populations.prepared import load
from posse.systems.fed_contextual.jobs import Job, Pretraining, Result, job_of, read
from posse.systems.fed_contextual.study import Bench, run_jobs
from reproduction.fed_contextual.problem import (
    FORM,
    KINDS,
    SETTINGS,
    WHOLE,
    Form,
    form_of,
    printed,
)
from reproduction.kit import Floats, Watch
from reproduction.loaders.emnist import FEMNIST_FILES, emnist_population, femnist_population
from reproduction.loaders.questions import (
    Question,
    questions_population,
    stackexchange_population,
)

RESULTS = "POSSE_FED_CONTEXTUAL_RESULTS"
"""Environment variable that names the folder of a study's results."""
LABELS = {
    "greedy": "Greedy",
    "epsilon-greedy": "ε-Greedy",
    "softmax": "Softmax",
    "falcon": "FALCON",
    "init": "Init",
}


@dataclass(frozen=True)
class Chosen:
    """Hyper-parameters of a line, and what they earned where they were chosen."""

    client: float
    server: float
    parameters: Mapping[str, float]
    reward: float
    edge: str
    """Which rates are the smallest or largest of several that were tried."""

    @property
    def explore(self) -> str:
        """What exploration depends on, in words."""
        return ", ".join(f"{name} {value:g}" for name, value in self.parameters.items()) or "-"


@dataclass(frozen=True)
class Line:
    """One line: what is fixed; rates and exploration are chosen, unless nothing is learnt."""

    name: str
    figure: str
    """The setting: population, scenario and how often models are deployed."""
    policy: str
    label: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Of the job, beside that: loss, optimiser, clipping, noise."""
    betas: tuple[float, ...] | None = None
    """Values of Softmax's beta that are tried, where not the form's."""

    @property
    def kind(self) -> str:
        """Images or tags."""
        return SETTINGS[self.figure].kind

    @property
    def learns(self) -> bool:
        """Whether it learns."""
        return bool(self.fixed.get("learns", True))

    def explorations(self, form: Form) -> tuple[dict[str, float], ...]:
        """Give the values of its exploration that are tried."""
        if self.betas is not None:
            return tuple({"beta": beta} for beta in self.betas)
        return form.explorations(self.policy, form.size(self.kind).arms)

    def to_choose(self, form: Form) -> list[Job]:
        """Give the jobs that hyper-parameters are chosen by; none if nothing is learnt, or all are
        printed.
        """
        if not self.learns or form.as_printed:
            return []
        size = form.size(self.kind)
        server = size.sgd_rates if self.fixed.get("optimiser") == "sgd" else size.server_rates
        return [
            self._job(
                form, f"{self.name}-choose-{number}", form.choose, size.client_rates, server, values
            )
            for number, values in enumerate(self.explorations(form), 1)
        ]

    def chosen(self, form: Form, tried: Sequence[Job], results: Sequence[Result]) -> Chosen | None:
        """Give the hyper-parameters that it is reported with; none if nothing is learnt."""
        if not self.learns:
            return None
        return self.printed(form) if form.as_printed else choose(form, tried, results)

    def printed(self, form: Form) -> Chosen:
        """Give the hyper-parameters that the paper prints for it, or say that there are none.

        >>> line_of("fig2c", "softmax").printed(form_of(small=True)).explore
        'beta 0.1'
        """
        table, row = self.figure, self.policy
        if self.name.startswith("fig4"):
            table, row = (
                (self.kind, f"{self.fixed['noise']:g}")
                if "noise" in self.fixed
                else (self.figure, "softmax")
            )
        elif self.name != f"{table}-{row}":
            raise ConfigError(
                f"the paper prints no hyper-parameters for '{self.name}', and the form "
                f"'{form.name}' chooses none. "
                f"Set {FORM}=paper, or =brief, to have them chosen."
            )
        found = printed()[table][row]
        return Chosen(found.client, found.server, found.parameters, math.nan, "-")

    def to_report(self, form: Form, chosen: Chosen | None) -> Job:
        """Give the job that is reported."""
        seeds = form.seeds(self.name)
        if chosen is None:
            return self._job(form, self.name, seeds, 0.1, 0.1, {})
        return self._job(form, self.name, seeds, chosen.client, chosen.server, chosen.parameters)

    def _job(
        self,
        form: Form,
        name: str,
        seeds: tuple[int, ...],
        client: float | tuple[float, ...],
        server: float | tuple[float, ...],
        parameters: Mapping[str, float],
    ) -> Job:
        setting, size = SETTINGS[self.figure], form.size(self.kind)
        first = size.supervised.get(setting.scenario)
        before = (
            Pretraining() if first is None else Pretraining(size.before, size.pretrained, *first)
        )
        return Job(
            f"{form.name}-{name}",
            setting.scenario,
            self.policy,
            dict(parameters),
            client,
            server,
            deploy_every=size.often if setting.often else size.seldom,
            rounds=size.phase(setting.scenario),
            seeds=seeds,
            model=size.model,
            hidden=size.hidden,
            channels=size.channels,
            pretraining=before,
            **{"cohort": size.cohort, **self.fixed},
        )


def figure_lines(figure: str) -> tuple[Line, ...]:
    """Give the four policies of a setting, and the unchanged first model."""
    lines = tuple(
        Line(f"{figure}-{policy}", figure, policy, LABELS[policy]) for policy in EXPLORATIONS
    )
    if SETTINGS[figure].scenario == "scratch":
        return lines
    return (*lines, Line(f"{figure}-init", figure, "greedy", LABELS["init"], {"learns": False}))


def line_of(figure: str, policy: str) -> Line:
    """Give the line of one policy."""
    return next(line for line in figure_lines(figure) if line.policy == policy and line.learns)


def private_lines(form: Form, kind: str) -> tuple[Line, ...]:
    """Give figure 4's lines: no privacy, clipping alone, and two noises; Softmax of beta 0.05 from
    scratch.
    """
    size, figure = form.size(kind), {"images": "fig1a", "tags": "fig2a"}[kind]
    plain = Line(f"fig4-{kind}-plain", figure, "softmax", "no DP", betas=(0.05,))
    noisy = tuple(
        Line(
            f"fig4-{kind}-noise-{noise:g}",
            figure,
            "softmax",
            f"noise {noise:g}" if noise else "clipped, no noise",
            {"clip": size.clip, "quantile": 0.0, "noise": noise},
            (0.05,),
        )
        for noise in (0.0, *size.noises)
    )
    return (plain, *noisy)


def scaled_lines(form: Form) -> tuple[Line, Line, Line]:
    """Give tags with figure 4's larger noise, with many times it, and with as many times the
    clients beside that.
    """
    size, (*_, small) = form.tags, private_lines(form, "tags")
    much, cohort = size.noises[1] * size.scale, size.cohort * size.scale
    fixed = {"clip": size.clip, "quantile": 0.0, "noise": much}
    loud = Line(
        "noise-tags-much",
        "fig2a",
        "softmax",
        f"noise {much:g}, {size.cohort} clients",
        fixed,
        (0.05,),
    )
    both = replace(
        loud,
        name="noise-tags-scaled",
        label=f"noise {much:g}, {cohort} clients",
        fixed={**fixed, "cohort": cohort},
    )
    return small, loud, both


def beta_lines(form: Form) -> dict[tuple[float, float], Line]:
    """Give Softmax on tags by beta and noise; those of beta 0.05 are figure 4's."""
    lines = {}
    for noise, line in zip((0.0, *form.tags.noises), private_lines(form, "tags")[1:], strict=True):
        for beta in sorted(form.betas):
            own = replace(line, name=f"noise-tags-beta-{beta:g}-{noise:g}", betas=(beta,))
            lines[beta, noise] = line if beta == 0.05 else own
    return lines


def choice_lines(kind: str) -> tuple[Line, ...]:
    """Give section 5.2's own lines, in init-shift: Softmax with SGD at the server, and weighted
    epsilon-Greedy.
    """
    figure = {"images": "fig1c", "tags": "fig2c"}[kind]
    return (
        Line(f"sec5_2-{kind}-sgd", figure, "softmax", "Softmax, SGD", {"optimiser": "sgd"}),
        Line(
            f"sec5_2-{kind}-weighted",
            figure,
            "epsilon-greedy",
            "ε-Greedy, weighted",
            {"loss": "importance"},
        ),
    )


def all_lines(form: Form) -> tuple[Line, ...]:
    """Give every line of every figure once."""
    figures = tuple(line for figure in SETTINGS for line in figure_lines(figure))
    others = [line for kind in KINDS for line in (*private_lines(form, kind), *choice_lines(kind))]
    every = (*figures, *others, *scaled_lines(form), *beta_lines(form).values())
    return tuple({line.name: line for line in every}.values())


# Populations.

LETTERS = ("A", "B", "C", "D", "E", "a", "b", "c", "d", "e")
_TAGS, _WORDS, _TEXTS, _USERS = 20, 120, 900, 90


def letters() -> Population:
    """Call the ten digits letters of both cases, so that rewards can shift between cases.

    >>> made = letters()
    >>> made.clients, made.samples, made.arms[5]
    (60, 1797, 'a')
    """
    return replace(digits_population(), name="letters", arms=LETTERS)


def bags(seed: int = 0) -> Population:
    """Draw texts of 90 users: one or two of 20 tags each, frequent ones more often, and words that
    go with them.

    >>> made = bags()
    >>> made.clients, made.samples, len(made.arms), len(made.vocabulary)
    (90, 900, 20, 120)
    """
    draw = np.random.Generator(np.random.Philox(seed))
    share = 1 / np.arange(2, _TAGS + 2)
    questions = []
    for text in range(_TEXTS):
        first = int(draw.choice(_TAGS, p=share / share.sum()))
        own = sorted({first, int(draw.integers(_TAGS))}) if draw.random() < 0.3 else [first]
        near = [tag * 5 + word for tag in own for word in range(5)]
        drawn = [*draw.choice(near, 4), *draw.integers(0, _WORDS, 4)]
        user = text if text < _USERS else int(draw.integers(_USERS))
        questions.append(
            Question(
                f"user-{user:02d}",
                tuple(f"word-{word}" for word in drawn),
                tuple(f"tag-{tag}" for tag in own),
            )
        )
    return questions_population(questions, _WORDS, _TAGS)


PREPARED = "stackoverflow-prepared"
"""Folder below that of the data files to which StackOverflow was prepared."""


def population_of(data: str, data_dir: Path | None = None) -> Population:
    """Make a stand-in, or read a population from the folder of data files."""
    match data:
        case "letters":
            return letters()
        case "bags":
            return bags()
        case "emnist":
            return emnist_population(data_dir)
        case "femnist":
            return femnist_population(data_dir)
        case "stackexchange":
            return stackexchange_population(data_dir)
        case "stackoverflow":
            return load(data_folder(data_dir) / PREPARED)
    raise ValueError(f"no population is called '{data}'.")


def with_whole_data(form: Form, data_dir: Path | None = None) -> Form:
    """Take the paper's own data, FEMNIST and StackOverflow, where a form wants them and they are
    found.
    """
    files = {"femnist": FEMNIST_FILES, "stackoverflow": (PREPARED,)}
    taken: dict[str, Any] = {}
    for kind in KINDS if form.whole else ():
        name = WHOLE[form.size(kind).data]
        with suppress(DataError):
            find(files[name], "", data_dir)
            taken[kind] = replace(form.size(kind), data=name)
    return replace(
        form, name="-".join((form.name, *(size.data for size in taken.values()))), **taken
    )


# Results.


@dataclass(frozen=True, eq=False)
class Found:
    """A line that was run: its hyper-parameters, and what every seed showed."""

    line: Line
    chosen: Chosen | None
    result: Result

    @cached_property
    def curves(self) -> Floats:
        """Running average rewards, (seeds, rounds)."""
        curves: Floats = self.result.averages[0]
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
        mean: Floats = np.asarray(seen.probability[0], np.float64) / np.maximum(
            np.asarray(seen.samples[0]), 1
        )
        return mean


@lru_cache(maxsize=2)
def bench_of(data: str) -> Bench:
    """Make a bench once, on a GPU where there is one: what is compiled and pre-trained serves all
    experiments.
    """
    return Bench(population_of(data), "gpu" if jax.default_backend() == "gpu" else "cpu")


def choose(form: Form, jobs: Sequence[Job], results: Sequence[Result]) -> Chosen:
    """Take what earned most, on average over seeds that are not reported."""
    best: Chosen | None = None
    for job, result in zip(jobs, results, strict=True):
        if set(result.job["seeds"]) & set(form.seeds(job.name.removeprefix(f"{form.name}-"))):
            raise ConfigError(
                f"{job.name} was run on seeds that are reported. Choose hyper-parameters on others."
            )
        means = result.averages[..., -1].mean(axis=1)
        at = int(np.nanargmax(means))
        if best is None or means[at] > best.reward:
            client, server = job.pairs[at]
            best = Chosen(
                client, server, job.parameters, float(means[at]), _edge(job, client, server)
            )
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
    """A form, where results are kept, and what is called with the progress."""

    form: Form
    folder: Path
    watch: Watch

    def of(self, lines: Sequence[Line]) -> dict[str, Found]:
        """Choose hyper-parameters of every line, and run it on the seeds that are reported; by the
        lines' names.
        """
        total = sum(len(line.to_choose(self.form)) + 1 for line in lines)
        found: dict[str, Found] = {}
        done = 0
        for line in lines:
            tried = line.to_choose(self.form)
            results = [
                self._result(line.kind, job, done + number, total)
                for number, job in enumerate(tried)
            ]
            done += len(tried)
            chosen = line.chosen(self.form, tried, results)
            found[line.name] = Found(
                line,
                chosen,
                self._result(line.kind, line.to_report(self.form, chosen), done, total),
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
        if job_of(result.job).to_json() != job.to_json():
            raise ConfigError(
                f"{path} is the result of another job of that name. Name another folder in "
                f"{RESULTS}, or remove it."
            )
        return result


@contextmanager
def opened(small: bool, out: Path, watch: Watch) -> Iterator[Runs]:
    """Give the runs of a form, with a folder for results."""
    form = with_whole_data(form_of(small))
    if small:
        with tempfile.TemporaryDirectory() as folder:
            yield Runs(form, Path(folder), watch)
        return
    named = os.environ.get(RESULTS)
    yield Runs(form, Path(named) if named else out.parent / "results", watch)
