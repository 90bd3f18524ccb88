"""Evaluation as a round of its own: what a candidate would earn, from devices' logs, before it is
deployed.

Devices of a cohort estimate the candidate (the new model under the run's policy) on their own logs:
`ips`, `snips` or `dr` with the candidate's own scores, single weights cut at `most_weight`. Each
gives the clipped sums of `policies.evaluation.federated` (A, B, rows, and the squares for the
interval) and nothing else: to the server, or under masks as whole numbers of 1/4096. A device clips
to a thousandth below `evaluation_clip`, so one device moves all six sums by at most `sensitivity`,
to which masks add half a step a sum for the rounding (`moved_by`).

Under noise the cohort is drawn by the coins of a round, and every sum gets normal noise of noise x
`moved_by`: the same sampled Gaussian as a round of training, and paid for as one. The interval then
counts the noise of A and B, and adds two standard deviations of the noise in its spread.

With `evaluate` set, a new version is wanted only if the lower bound of its estimate is at least
`gate`; else it is kept in the folder, and can be deployed by name. Each evaluation is a line of
`evaluations.jsonl`.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import MessageType, MetricRecord, RecordDict
from numpy.typing import NDArray

from posse.core.errors import PosseError, ProtocolError
from posse.policies.evaluation.federated import ClientSums, client_sums
from posse.policies.evaluation.offline import Log
from posse.systems.fed_contextual.flower import wire
from posse.systems.fed_contextual.flower.settings import (
    EVALUATIONS,
    MEASURE,
    DeviceSettings,
    lines_of,
)

if TYPE_CHECKING:
    from posse.systems.fed_contextual.computing.client import Log as DeviceLog
    from posse.systems.fed_contextual.computing.models import Tree
    from posse.systems.fed_contextual.computing.server import State
    from posse.systems.fed_contextual.flower.fleet import Fleet
    from posse.systems.fed_contextual.flower.noise import Account

FIRST = 1 << 30
"""Rounds of evaluation are numbered from here on, by the version: rounds of training are fewer."""
SUMS = 6
_MARGIN = 1e-3
SUMMED = "sums"
_ENDS = {"low": -math.inf, "high": math.inf}


# At a device --------------------------------------------------------------------------------------


def device_sums(settings: DeviceSettings, candidate: Tree, log: DeviceLog) -> NDArray[np.float64]:
    """Estimate a candidate on a device's log: its six sums, clipped."""
    from posse.systems.fed_contextual.flower import device

    task, rates = device.task_of(settings), device.rates_of(settings)
    scores = task.model.scores(candidate, log.contexts)
    real = np.asarray(log.mask) > 0
    chances = np.asarray(task.policy(scores, *rates.explore), np.float64)[real]
    rows = (np.asarray(column)[real] for column in (log.arms, log.rewards, log.probabilities))
    made = client_sums(
        Log(*rows),
        chances / chances.sum(axis=1, keepdims=True),
        settings.evaluation_clip * (1 - _MARGIN),
        settings.evaluate,
        predictions=np.asarray(scores, np.float64)[real],
        most_weight=settings.most_weight,
    )
    return np.array([made.numerator, made.denominator, made.rows, *made.squares])


def sums_reply(sums: NDArray[np.float64]) -> RecordDict:
    """Pack a device's sums; the squares follow from them."""
    a, b, rows = (float(one) for one in sums[:3])
    return RecordDict({SUMMED: MetricRecord({"numerator": a, "denominator": b, "rows": rows})})


def words_of(sums: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Put a device's sums into words modulo 2^32."""
    return np.rint(sums * MEASURE).astype(np.int64).astype(np.uint32)


# At the server ------------------------------------------------------------------------------------


def evaluate(
    fleet: Fleet, state: State, version: int, run_id: str, account: Account | None, out: Path
) -> tuple[bool, str]:
    """Run a round of evaluation of the newest model; return whether it passes the gate, and what
    was found.

    An estimate that is written already, by a server that was stopped before it deployed the
    version, is taken as it is if it is of the same model under the same settings.
    """
    order = wire.evaluation_order(state, FIRST + version, fleet.settings)
    about = {"version": version, "candidate": wire.candidate_of(order, fleet.settings)}
    known = [
        line
        for line in lines_of(out, EVALUATIONS)
        if "value" in line and about.items() <= line.items()
    ]
    try:
        if account and not known:
            account.pay()
        found = known[-1] if known else _estimated(fleet, state, order, FIRST + version, run_id)
    except PosseError as error:
        found = {"why": str(error)}
    low, high = (
        float(end if (one := found.get(name)) is None else one) for name, end in _ENDS.items()
    )
    passed = math.isfinite(low) and low >= fleet.settings.gate
    line = {
        **about,
        "method": fleet.settings.evaluate,
        "gate": fleet.settings.gate,
        "passed": passed,
    }
    whole = {**found, **line}  # JSON has no word for what is not finite
    shown = {
        name: None if isinstance(one, float) and not math.isfinite(one) else one
        for name, one in whole.items()
    }
    if known[-1:] != [shown]:
        with (out / EVALUATIONS).open("a") as file:
            file.write(json.dumps(shown, allow_nan=False) + "\n")
    if "value" not in found:
        return passed, f"version {version} could not be evaluated: {found['why']}"
    return passed, (
        f"version {version} is estimated to earn {found['value']:.4f} [{low:.4f}, {high:.4f}] by "
        f"{fleet.settings.evaluate}, on {found['devices']} devices; the gate is "
        f"{fleet.settings.gate:g}"
    )


def _estimated(
    fleet: Fleet, state: State, order: RecordDict, number: int, run_id: str
) -> dict[str, Any]:
    from posse.systems.fed_contextual.flower.noise import drawn

    settings, nodes = fleet.settings, fleet.cohort(state, order)
    count, sums = (_masked if settings.secure else _plain)(
        fleet, nodes, state, order, number, run_id
    )
    if count < settings.enough:
        raise ProtocolError(f"an evaluation needs {settings.enough} devices, got {count}.")
    sigma = settings.noise * moved_by(settings)
    if sigma:
        sums = sums + sigma * np.asarray(drawn([(SUMS,)], settings.seed, number)[0], np.float64)
    return estimate_of(sums, count, settings.evaluate, sigma)


def moved_by(settings: DeviceSettings) -> float:
    """Return the L2 norm by which one device moves the six sums at most, as the server gets
    them.
    """
    rounding = math.sqrt(SUMS) / (2 * MEASURE) if settings.secure else 0.0
    return ClientSums(0, 0, 0, settings.evaluation_clip).sensitivity + rounding


def estimate_of(sums: NDArray[np.float64], count: int, method: str, sigma: float) -> dict[str, Any]:
    """Give value and interval from the sums of devices, that carry noise of `sigma` each.

    >>> made = estimate_of(np.array([30.0, 60, 60, 20, 30, 60]), 15, "snips", 0.0)
    >>> (
    ...     made["value"],
    ...     made["low"]
    ...     < 0.5
    ...     < estimate_of(np.array([30.0, 60, 60, 20, 30, 60]), 15, "snips", 1.0)["high"],
    ... )
    (0.5, True)
    """
    a, b, rows, aa, ab, bb = (float(one) for one in sums)
    made = ClientSums(a, b, rows, math.inf, (aa, ab, bb), count).estimate(method, noise=sigma)
    return {
        "value": made.value,
        "low": made.low,
        "high": made.high,
        "devices": count,
        "noise": sigma,
    }


def _plain(
    fleet: Fleet, nodes: Any, state: State, order: RecordDict, number: int, run_id: str
) -> tuple[int, NDArray[np.float64]]:
    clip, total, count = fleet.settings.evaluation_clip, np.zeros(SUMS), 0
    for node, reply in fleet.ask(
        dict.fromkeys(nodes, order), int(state.round), MessageType.EVALUATE
    ).items():
        try:
            record: Any = reply[SUMMED]
            a, b, rows = (float(record[name]) for name in ("numerator", "denominator", "rows"))
            if not math.hypot(a, b, rows) <= clip:
                raise ProtocolError(f"sums must have a norm of at most {clip:g}.")
        except (KeyError, TypeError, ValueError, ProtocolError) as error:
            fleet.say(f"evaluation: {node.called} sent what does not belong to it: {error}")
            continue
        total, count = total + np.array([a, b, rows, a * a, a * b, b * b]), count + 1
    return count, total


def _masked(
    fleet: Fleet, nodes: Any, state: State, order: RecordDict, number: int, run_id: str
) -> tuple[int, NDArray[np.float64]]:
    from posse.systems.fed_contextual.flower.masked import under_masks

    found = under_masks(fleet, nodes, order, number, SUMS, run_id, int(state.round))
    return (0, np.zeros(SUMS)) if found is None else (len(found[1]), found[0] / MEASURE)
