"""Runs a list of jobs on all cores, and tells how far it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from posse.experiments.base import Watch

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job], Result],
    words: Callable[[Job], str],
    watch: Watch,
    begin: float = 0.0,
    end: float = 1.0,
) -> list[Result]:
    """Do jobs, a thread a core (compiled code runs outside the interpreter's lock); results come in their order.

    `watch` hears fractions from `begin` to `end`. An interruption ends it after the jobs at hand.

    >>> run_jobs([1, 2, 3], lambda job: job * job, str, lambda what, fraction: None)
    [1, 4, 9]
    """
    done: list[Result] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            futures = [pool.submit(work, job) for job in jobs]
            for number, (job, future) in enumerate(zip(jobs, futures, strict=True)):
                watch(words(job), begin + (end - begin) * number / len(jobs))
                done.append(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return done
