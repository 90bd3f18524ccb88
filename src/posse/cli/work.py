"""Runs with their progress shown."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from posse.cli.progress import Doing

if TYPE_CHECKING:
    from posse.privacy.crypto.paillier import PrivateKey
    from posse.protocols.dp_combinatorial.settings import MarketRunSettings
    from posse.protocols.fed_contextual.settings import FedSettings, Setup
    from posse.protocols.mpc_contextual.settings import ContextualSettings
    from posse.protocols.samba.run import SambaSettings
    from posse.results.record import Record

_BATCH_SCORES = 20_000_000
"""Scores that a batch of plain runs computes: about a second, after which it can be interrupted."""

_MEASURED, _MOST_TIMES = 0.05, 50
"""CPU seconds over which a quick twin is timed, and how often it is run for that at most."""


def secure(settings: SambaSettings, key: PrivateKey | None = None) -> Record:
    """Run the federation in this process."""
    from posse.protocols.samba.run import Progress, run_secure

    _compile(settings, secure=True)
    whole = settings.runs * settings.budget
    whole_level = settings.aes and settings.paillier and settings.permutation and settings.mask
    name = f"secure run ({settings.level})" if whole_level else f"run ({settings.level}, protections off)"
    with Doing(name) as doing:

        def watch(progress: Progress) -> None:
            what = name
            if settings.runs > 1:
                what += f" {progress.run + 1} of {settings.runs}"
            doing.at((progress.run * settings.budget + progress.step) / whole, what)

        return run_secure(settings, watch=watch, key=key)


def plain(settings: SambaSettings) -> Record:
    """Run the plain twin."""
    from posse.protocols.samba.run import Progress, run_plain

    arms, policy, _ = settings.check()
    _compile(settings)
    scores = settings.budget * len(arms) * len(policy.passes())
    batch = max(os.cpu_count() or 1, min(16, _BATCH_SCORES // scores))
    with Doing(f"plain runs of {settings.policy}") as doing:

        def watch(progress: Progress) -> None:
            doing.at((progress.run + 1) / progress.runs, f"plain runs of {settings.policy}")

        return run_plain(settings, watch=watch, batch=batch)


def market(settings: MarketRunSettings) -> Record:
    """Run a market."""
    from posse.protocols.dp_combinatorial.run import run_market, warm_up
    from posse.results.record import Progress

    with Doing("compiling the market, which is done once"):
        warm_up()
    how = "agents" if settings.path == "agents" else "simulated"
    name = f"{settings.method} ({how})"
    with Doing(name) as doing:

        def watch(progress: Progress) -> None:
            what = f"{name}, run {progress.run + 1} of {progress.runs}" if progress.runs > 1 else name
            doing.at(progress.fraction, what)

        return run_market(settings, watch=watch)


def contextual(settings: ContextualSettings) -> Record:
    """Run a contextual bandit: on shares, or one of its twins."""
    from posse.protocols.mpc_contextual.run import run_contextual, warm_up
    from posse.results.record import Progress

    with Doing("compiling the twins, which is done once"):
        warm_up()
        if settings.path != "parties" and settings.batch > 1:
            # Batches have loops of their own.
            run_contextual(settings.model_copy(update={"steps": settings.batch, "runs": 1}))
    name = {"parties": "shared run", "fixed": "fixed-point twin", "float": "float twin"}[settings.path]
    with Doing(name) as doing:

        def watch(progress: Progress) -> None:
            what = f"{name}, run {progress.run + 1} of {progress.runs}" if progress.runs > 1 else name
            doing.at(progress.fraction, what)

        record = run_contextual(settings, watch=watch)
        if settings.path != "float":
            return record
        # The slowdown is told against this one, which takes a millisecond: once would measure the clock.
        times, spent = 1, record.seconds
        while spent < _MEASURED and times < _MOST_TIMES:
            spent += run_contextual(settings).seconds
            times += 1
    return replace(record, seconds=spent / times, summary={**record.summary, "times_measured": times})


def fed(settings: FedSettings, setup: Setup) -> Record:
    """Run a federated contextual bandit on simulated devices."""
    from posse.core.interrupts import held
    from posse.results.record import Progress

    with held():
        from posse.protocols.fed_contextual.run import run_fed

    name, whole = f"{settings.policy} on {setup.population.clients:,} devices", settings.runs * setup.rounds
    with Doing(f"{name}, compiling") as doing:
        first: list[tuple[float, float]] = []

        def watch(progress: Progress) -> None:
            # Rates are told from the first report on: what a run took up from a folder is not counted as done now.
            first[:] = first or [(time.monotonic(), progress.fraction)]
            elapsed, done = time.monotonic() - first[0][0], (progress.fraction - first[0][1]) * whole
            rate = f", {done / elapsed:.3g} rounds/s" if done > 0 and elapsed > 0 else ""
            first_run, last_run = progress.run + 1, progress.run + progress.together
            which = f"runs {first_run} to {last_run}" if last_run > first_run else f"run {first_run}"
            what = f"{name}, {which} of {progress.runs}" if progress.runs > 1 else name
            doing.at(progress.fraction, what + rate)

        return run_fed(settings, watch=watch, setup=setup)


def _compile(settings: SambaSettings, *, secure: bool = False) -> None:
    """Compile what a run calls, which takes seconds the first time and nothing after."""
    from posse.protocols.samba.run import warm_up

    _, policy, _ = settings.check()
    with Doing(f"compiling {settings.policy}, which is done once"):
        warm_up(policy, settings.level, secure=secure)
