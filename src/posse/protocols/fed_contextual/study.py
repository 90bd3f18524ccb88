"""Runs jobs on a prepared population, one file of results a job: numpy and jax are all it needs.

    python -m posse.protocols.fed_contextual.study --data prepared.npz --jobs jobs.json --out results --device gpu

Seeds and rates of a grid run side by side on a GPU and one after the other on a CPU. A job whose results are there is
skipped, so that a study that was stopped is started again by the same command.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from posse.core.errors import ConfigError, PosseError
from posse.problems.populations.prepared import load
from posse.protocols.fed_contextual.bench import Bench, Progress
from posse.protocols.fed_contextual.jobs import Job, read_jobs
from posse.protocols.fed_contextual.results import average_rewards, read, write


def run_jobs(bench: Bench, jobs: Iterable[Job], out: Path, progress: Progress | None = None) -> Iterator[Path]:
    """Run jobs that have no result in a folder yet; yields every job's file as it is there."""
    out.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        path = out / f"{job.name}.npz"
        if not path.exists():
            write(path, bench.run(job, progress))
        elif json.dumps(read(path).job, sort_keys=True) != job.to_json():
            raise ConfigError(f"{path} is the result of another job of that name. Rename the job, or remove the file.")
        yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study from the command line."""
    parser = argparse.ArgumentParser(prog="python -m posse.protocols.fed_contextual.study", description=__doc__)
    parser.add_argument("--data", required=True, help="a prepared population: an .npz file or a folder")
    parser.add_argument("--jobs", required=True, type=Path, help="a JSON list of jobs")
    parser.add_argument("--out", required=True, type=Path, help="folder of results")
    parser.add_argument("--device", default="cpu", help="cpu or gpu")
    parser.add_argument("--side", type=int, help="runs side by side; 8 on a GPU, 1 on a CPU")
    given = parser.parse_args(arguments)
    try:
        bench = Bench(load(given.data), given.device, given.side)
        for path in run_jobs(bench, read_jobs(given.jobs), given.out, _print_progress):
            _print_result(path)
    except PosseError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _print_progress(job: Job, done: int, total: int, rate: float) -> None:
    print(f"{job.name}: {done} of {total} rounds, {rate:.3g} rounds/s", flush=True)


def _print_result(path: Path) -> None:
    result = read(path)
    last = average_rewards(result)[..., -1].mean(axis=1)
    shown = ", ".join(f"{value:.4f}" for value in last)
    print(
        f"{path}: average reward {shown} over {len(result.job['seeds'])} seeds, {result.about['seconds']:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
