"""Writes populations and jobs for a study on another machine, such as one with a GPU.

`python -m reproduction prepare study DIR` writes `images.npz` and `tags.npz` (prepared populations,
compressed), and `images-choose.json` and `tags-choose.json`: the jobs by which hyper-parameters are
chosen. On the other machine, for images and for tags:

    python -m posse.systems.fed_contextual.study --data DIR/images.npz \\
        --jobs DIR/images-choose.json --out DIR/results --device gpu

The first command again, once `DIR/results` holds these results, writes `images-report.json` and
`tags-report.json`: the jobs that are reported, with what was chosen. When they were run too,
POSSE_FED_CONTEXTUAL_RESULTS=DIR/results before `python -m reproduction run 'fed-contextual/*'`
makes the figures. `--only 'fig1[ac]-*'` writes the jobs of some lines.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posse.core.errors import ConfigError
from posse.problems.populations.population import Population
from posse.problems.populations.prepared import save
from posse.systems.fed_contextual.jobs import Job, read
from reproduction.fed_contextual.problem import KINDS, Form
from reproduction.fed_contextual.runs import Line, all_lines, population_of


class Written(NamedTuple):
    """A file of jobs, and how much work it is."""

    path: Path
    jobs: int
    runs: int
    rounds: int
    """Of all runs together."""


def write_jobs(
    out: Path,
    form: Form,
    data_dir: Path | None = None,
    kinds: Sequence[str] = KINDS,
    only: Sequence[str] = ("*",),
) -> list[Written]:
    """Write populations that are not there yet, jobs to choose by, and jobs to report where the
    choice can be made.

    `only` are patterns of lines' names, such as `fig1a-*`, `fig4-images-*` or `sec5_2-*`.
    """
    out.mkdir(parents=True, exist_ok=True)
    wanted = [
        line
        for line in all_lines(form)
        if line.kind in kinds and any(fnmatch(line.name, p) for p in only)
    ]
    if not wanted:
        raise ConfigError(
            f"no line of {', '.join(kinds)} has a name like {', '.join(only)}. Try 'fig1a-*'."
        )
    written = []
    for kind in dict.fromkeys(line.kind for line in wanted):
        path = out / f"{kind}.npz"
        if not path.exists():
            _save(population_of(form.size(kind).data, data_dir), path)
        lines = [line for line in wanted if line.kind == kind]
        written.append(
            _write(
                out / f"{kind}-choose.json", [job for line in lines for job in line.to_choose(form)]
            )
        )
        report = jobs_to_report(form, lines, out / "results")
        if report is not None:
            written.append(_write(out / f"{kind}-report.json", report))
    return written


def jobs_to_report(form: Form, lines: Sequence[Line], results: Path) -> list[Job] | None:
    """Give the second stage, or nothing while a result of the first is missing."""
    jobs = []
    for line in lines:
        tried = line.to_choose(form)
        paths = [results / f"{job.name}.npz" for job in tried]
        if not all(path.exists() for path in paths):
            return None
        jobs.append(line.to_report(form, line.chosen(form, tried, [read(path) for path in paths])))
    return jobs


def _save(population: Population, path: Path) -> None:
    """Write a prepared population, compressed."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        with np.load(save(population, Path(folder) / "whole.npz"), allow_pickle=False) as found:
            arrays: dict[str, Any] = {name: found[name] for name in found.files}
        part = Path(folder) / path.name
        np.savez_compressed(part, **arrays)
        part.replace(path)


def _write(path: Path, jobs: Sequence[Job]) -> Written:
    path.write_text(
        json.dumps([json.loads(job.to_json()) for job in jobs], indent=1) + "\n", encoding="utf-8"
    )
    return Written(
        path, len(jobs), sum(len(j.runs) for j in jobs), sum(len(j.runs) * j.rounds for j in jobs)
    )
