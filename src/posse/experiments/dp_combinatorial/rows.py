"""Raw rows: every run of every job, with the privacy of its method."""

from __future__ import annotations

from posse.experiments.dp_combinatorial.problem import DELTA, UNIT
from posse.experiments.dp_combinatorial.sweep import Job, Outcomes
from posse.experiments.kit import Row


def rows(found: Outcomes) -> list[Row]:
    """Every run as a row."""
    return [row for job in found for row in job_rows(job, found)]


def job_rows(job: Job, found: Outcomes) -> list[Row]:
    """The runs of a job as rows: where, how, with which privacy, and what came out at the last round."""
    place, method, outcome = job.place, job.method, found[job]
    noisy = bool(method.noise) and method.kind != "placebo"
    common: dict[str, str | int | float] = {
        "distribution": place.distribution, "instance": place.seed, "agents": place.agents,
        "producers": place.producers, "homogeneous": int(place.homogeneous), "overlap": place.overlap,
        "method": method.name, "epsilon_asked": method.epsilon if noisy else "",
        "epsilon_proved": method.proved(job.size) if noisy else "", "delta": DELTA if noisy else "",
        "unit": UNIT if noisy else "", "rounds": job.size.rounds,
    }  # fmt: skip
    return [
        {
            **common, "seed": seed, "regret_per_agent": float(outcome.regret[run, -1]) / place.agents,
            "revenue_per_agent": float(outcome.revenue[run, -1]) / place.agents,
            "missed_rounds_per_agent": float(outcome.missed[run].mean()),
            "entries_taken_per_agent": float(outcome.taken[run].mean()),
        }
        for run, seed in enumerate(outcome.seeds)
    ]  # fmt: skip
