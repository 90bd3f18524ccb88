"""Runs with their progress shown."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from posse.cli.progress import Doing

if TYPE_CHECKING:
    from posse.privacy.crypto.paillier import PrivateKey
    from posse.protocols.dp_combinatorial.settings import MarketRunSettings
    from posse.protocols.fed_contextual.settings import FedSettings, Setup
    from posse.protocols.mpc_contextual.settings import ContextualSettings
    from posse.protocols.samba.settings import Samba
    from posse.results.record import Record

_BATCH_SCORES = 20_000_000
"""Scores that a batch of plain runs computes: about a second, after which it can be interrupted."""

_MEASURED, _MOST_TIMES = 0.05, 50
"""CPU seconds over which a quick twin is timed, and how often it is run for that at most."""


def secure(settings: Samba, key: PrivateKey | None = None) -> Record:
    """Run the federation in this process."""
    from posse.protocols.registry import run

    return _run(settings, f"secure run ({settings.level})", run, key)


def plain(settings: Samba) -> Record:
    """Run the plain twin."""
    from posse.protocols.registry import run

    return _run(settings.plain(), f"plain runs of {settings.policy}", run)


def _run(settings: Any, name: str, run: Any, key: PrivateKey | None = None) -> Record:
    from posse.results.record import Progress

    _compile(settings, secure=settings.path != "plain")
    with Doing(name) as doing:

        def watch(progress: Progress) -> None:
            which = f" {progress.run + 1} of {progress.runs}" if progress.together == 1 < progress.runs else ""
            doing.at(progress.fraction, name + which)

        made: Record = run(settings, watch=watch, **({} if key is None else {"key": key}))
        return made


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


def _compile(settings: Samba, *, secure: bool = False) -> None:
    """Compile what a run calls, which takes seconds the first time and nothing after."""
    from posse.protocols.samba.system import warm_up

    policy = settings.load().policy
    with Doing(f"compiling {settings.policy}, which is done once"):
        warm_up(policy, settings.level, secure=secure)
