"""The app at the server: sample devices, send models, add clipped updates, take the optimiser's step, deploy.

Its folder (`out`) holds `state.npz` after every round, from which a run goes on that was stopped; `progress.jsonl`, a
line a round; and at the end `model.npz` and `result.json`. What the server sees is what `client_app` says leaves a
device.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Context, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from posse.core.errors import PosseError, ProtocolError
from posse.protocols.fed_contextual.flower import carry
from posse.protocols.fed_contextual.flower.advance import Leaves, advanced, check_update, total_of
from posse.protocols.fed_contextual.flower.fleet import Fleet, Node
from posse.protocols.fed_contextual.flower.places import FAILED, PROGRESS, RESULT, STATE
from posse.protocols.fed_contextual.flower.settings import DeviceSettings
from posse.protocols.fed_contextual.flower.tasks import rates_of, task_of
from posse.protocols.fed_contextual.rounds import Measured, State, Task, begin, deploy
from posse.protocols.fed_contextual.training import average_reward, joined, load, save

MODEL = "model.npz"
TRIES = 5
"""How often a round is done again before the run is given up."""


def make() -> ServerApp:
    """Make the app."""
    app = ServerApp()
    app.main()(main)
    return app


def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    out = Path(str(context.run_config.get("out", "."))).expanduser()
    try:
        run(grid, DeviceSettings.of(dict(context.run_config)), str(context.run_id))
    except Exception as error:
        text = str(error) if isinstance(error, PosseError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            out.mkdir(parents=True, exist_ok=True)
            (out / FAILED).write_text(text)
        raise


def run(grid: Any, settings: DeviceSettings, run_id: str) -> State:
    """Run the rounds that the folder's state has not seen."""
    out = Path(settings.out).expanduser()
    out.mkdir(parents=True, exist_ok=True)
    task, fleet = task_of(settings), Fleet(grid, settings, lambda text: log(WARNING, "%s", text))
    state, seen = _begun(task, settings, out)
    while int(state.round) < settings.rounds:
        began, number = time.monotonic(), int(state.round)
        state, measured, who = _round(fleet, task, state, run_id)
        if (number + 1) % settings.deploy_every == 0:
            state = deploy(state)
        seen.append(jax.tree.map(np.atleast_1d, measured))
        save(out / STATE, state, joined(seen))
        _tell(out, number, settings, measured, who, time.monotonic() - began)
    _finish(out, settings, state, joined(seen))
    return state


def _begun(task: Task, settings: DeviceSettings, out: Path) -> tuple[State, list[Measured]]:
    state = begin(task, settings.seed if settings.seed >= 0 else secrets.randbits(31))
    if not (out / STATE).exists():
        (out / PROGRESS).write_text("")
        return state, []
    try:
        state, seen = load(out / STATE, state)
    except ValueError as error:
        raise ProtocolError(f"{error} Or name another folder with 'out'.") from error
    log(INFO, "going on after round %d", int(state.round))
    return state, [seen]


def _round(fleet: Fleet, task: Task, state: State, run_id: str) -> tuple[State, Measured, list[Any]]:
    """Do a round, again where too few answered; returns who was in it, in the order of the sum."""
    settings, number = fleet.settings, int(state.round)
    sent = carry.order_of(state, number // settings.deploy_every * settings.deploy_every)
    for _ in range(TRIES):
        nodes = fleet.cohort(number)
        if settings.secure:
            from posse.protocols.fed_contextual.flower.secure_server import secure_sum

            found = secure_sum(fleet, nodes, number, sent, run_id, carry.shape_of(settings))
        else:
            found = _plain_sum(fleet, nodes, state, sent)
        if found is not None:
            total, told, who = found
            after, measured = advanced(task, rates_of(settings), state, total, jnp.asarray(told, jnp.float32))
            return after, measured, who
        log(WARNING, "round %d had too few answers and is done again", number + 1)
    raise ProtocolError(f"round {number + 1} had too few answers {TRIES} times; the last trouble was: {fleet.last}")


def _plain_sum(
    fleet: Fleet, nodes: Sequence[Node], state: State, sent: RecordDict
) -> tuple[Any, list[float], list[Any]] | None:
    """Ask devices for their updates and add them in the order of the draw; None where too few answered."""
    like, number = carry.shape_of(fleet.settings), int(state.round)
    updates, told, who = [], np.zeros(5, np.float32), []
    for node, reply in fleet.ask(dict.fromkeys(nodes, sent), number).items():
        try:
            update, said, client = _read(reply, fleet.settings, jax.tree.leaves(like), float(state.limit))
        except (KeyError, TypeError, ValueError, ProtocolError) as error:
            fleet.say(f"round {number + 1}: {node.name or node.id} sent what does not belong to the round: {error}")
            continue
        updates.append(update)
        who.append(client)
        told += said
    if len(updates) < fleet.settings.least:
        return None
    return carry.tree_of(total_of(updates), like), told.tolist(), who


def _read(
    reply: RecordDict, settings: DeviceSettings, like: list[Any], limit: float
) -> tuple[Leaves, NDArray[np.float32], int]:
    """Read a device's answer: its update, what it measured, its number; what no honest device sends is refused."""
    metrics: Any = reply[carry.TOLD]
    known: Any = reply[carry.ROUND]
    update = carry.unpacked(reply[carry.UPDATE])
    check_update(update, like, limit, settings.rounded_to)
    reward, samples, probability, within = (
        float(metrics[name]) for name in ("reward", "samples", "probability", "within")
    )
    if not (0 <= probability <= samples + 1 <= settings.samples + 1 and 0 <= within <= 1 and math.isfinite(reward)):
        raise ProtocolError("what is measured must be of at most as many samples as a device has.")
    return update, np.array([reward, samples, probability, 1.0, within], np.float32), int(known["client"])


def _tell(
    out: Path, number: int, settings: DeviceSettings, measured: Measured, who: list[Any], seconds: float
) -> None:  # fmt: skip
    samples = max(1.0, float(measured.samples))
    line = {
        "round": number + 1, "of": settings.rounds, "clients": who, "samples": int(measured.samples),
        "reward": float(measured.reward) / samples, "probability": float(measured.probability) / samples,
        "within": float(measured.within), "limit": float(measured.limit), "seconds": round(seconds, 3),
    }  # fmt: skip
    with (out / PROGRESS).open("a") as file:
        file.write(json.dumps(line) + "\n")
    log(INFO, "round %d of %d: %d devices, average reward %.4f", number + 1, settings.rounds, len(who), line["reward"])


def _finish(out: Path, settings: DeviceSettings, state: State, seen: Measured) -> None:
    leaves = {f"leaf{at}": leaf for at, leaf in enumerate(carry.leaves_of(state.params))}
    np.savez(out / MODEL, allow_pickle=False, deployment=np.array(int(state.round)), **leaves)
    result = {
        "rounds": int(state.round), "average_reward": float(average_reward(seen)[-1]), "secure": settings.secure,
        "reproducible": settings.seed >= 0, "model": str(out / MODEL),
    }  # fmt: skip
    part = out / f"{RESULT}.part"
    part.write_text(json.dumps(result, indent=1))
    part.replace(out / RESULT)
