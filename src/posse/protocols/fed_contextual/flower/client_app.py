"""The app on a device: act, keep the log, learn, clip, and send the clipped update.

The log stays in `Context.state`, which never leaves the device: Flower keeps it in the SuperNode's memory for the run.
What leaves is in the reply alone: the clipped update, how many samples there were, the rewards and the probabilities of
the chosen arms added up, whether the update was within the norm, and the device's number. In a secure round nothing
leaves but masked words (`secure_client`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from posse.core.errors import DataError
from posse.protocols.fed_contextual.flower.settings import DeviceSettings

if TYPE_CHECKING:
    from posse.protocols.fed_contextual.client import Log
    from posse.protocols.fed_contextual.flower.device import Learnt, Who
    from posse.protocols.fed_contextual.rounds import Rates, Task
    from posse.protocols.fed_contextual.trees import Tree

SECURE = "secure"
"""Action of the messages of a secure round."""


def make() -> ClientApp:
    """Make the app."""
    app = ClientApp()
    app.train()(train)
    app.train(SECURE)(train_securely)
    return app


def train(message: Message, context: Context) -> Message:
    """Answer a round with the clipped update."""
    from posse.protocols.fed_contextual.flower import carry

    settings = DeviceSettings.of(dict(context.run_config))
    made = contribution(settings, message.content, context)
    reward, samples, probability = (float(one) for one in made.told)
    reply = RecordDict({
        carry.UPDATE: carry.arrays(carry.leaves_of(made.update)),
        carry.TOLD: carry.told_record(reward, samples, probability, float(made.within)),
        carry.ROUND: ConfigRecord({"client": _number(context)}),
    })  # fmt: skip
    return Message(reply, reply_to=message)


def train_securely(message: Message, context: Context) -> Message:
    """Answer one stage of a secure round."""
    from posse.protocols.fed_contextual.flower.secure_client import answer

    return Message(answer(message.content, context), reply_to=message)


def contribution(settings: DeviceSettings, sent: RecordDict, context: Context) -> Learnt:
    """Act (or take up a log) and learn: the device's part of a round."""
    keep_compiled()
    from posse.protocols.fed_contextual.flower import carry, device
    from posse.protocols.fed_contextual.flower.tasks import rates_of, task_of

    task, rates = task_of(settings), rates_of(settings)
    like = carry.shape_of(settings)
    told: Any = sent[carry.ROUND]
    params = carry.tree_of(carry.unpacked(sent[carry.PARAMS]), like)
    deployed = carry.tree_of(carry.unpacked(sent[carry.DEPLOYED]), like) if carry.DEPLOYED in sent else params
    seed = settings.seed if settings.seed >= 0 else secrets.randbits(31)
    who = device.Who(seed, int(told["round"]), _number(context))
    deployment = int(told["deployment"])
    _hand_over(context, deployed, deployment)
    log = _log(settings, task, rates, deployed, deployment, who, context)
    return device.learnt(task, rates, params, log, float(told["limit"]), who)


def _log(
    settings: DeviceSettings, task: Task, rates: Rates, deployed: Tree, deployment: int, who: Who, context: Context
) -> Log:  # fmt: skip
    """Return the log to learn from: the application's own, one kept since the deployment, or one made now."""
    import jax
    import jax.numpy as jnp

    from posse.protocols.fed_contextual.client import Log
    from posse.protocols.fed_contextual.flower import carry, device
    from posse.protocols.fed_contextual.flower.samples import log_of, samples_of

    if "log" in context.node_config:
        own = log_of(settings, Path(str(context.node_config["log"])).expanduser())
        return Log(*(jax.tree.map(jnp.asarray, part) for part in own))
    samples = samples_of(settings, context.node_config, context.node_id)
    kept: Any = context.state.get(carry.LOG)
    if settings.keep_log and kept is not None and int(kept["deployment"].numpy()) == deployment:
        again = [kept[name].numpy() for name in ("arms", "rewards", "probabilities")]
        return Log(*(jax.tree.map(jnp.asarray, part) for part in (samples.contexts, *again, samples.mask)))
    log = device.acted(task, rates, deployed, samples, who)
    context.state[carry.LOG] = ArrayRecord({
        "deployment": Array(np.array(deployment)), "arms": Array(np.asarray(log.arms)),
        "rewards": Array(np.asarray(log.rewards)), "probabilities": Array(np.asarray(log.probabilities)),
    })  # fmt: skip
    return log


def _hand_over(context: Context, deployed: Tree, deployment: int) -> None:
    """Write the deployed model where the application of the device reads it; whole or not at all."""
    if "model" not in context.node_config:
        return
    from posse.protocols.fed_contextual.flower.carry import leaves_of

    path = Path(str(context.node_config["model"])).expanduser()
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            leaves = {f"leaf{at}": leaf for at, leaf in enumerate(leaves_of(deployed))}
            np.savez(file, allow_pickle=False, deployment=np.array(deployment), **leaves)
        part.replace(path)
    except OSError as error:
        raise DataError(f"the model cannot be written to {path}: {error.strerror}. Choose another place.") from error


def _number(context: Context) -> int:
    from posse.protocols.fed_contextual.flower.samples import number_of

    return number_of(context.node_config, context.node_id)


def keep_compiled() -> None:
    """Keep what jax compiles in Flower's folder: every message starts a process, and it would compile anew."""
    import jax

    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "posse-compiled"
    update: Callable[[str, object], None] = jax.config.update
    update("jax_compilation_cache_dir", str(home))
    update("jax_persistent_cache_min_compile_time_secs", 0.0)
    update("jax_persistent_cache_min_entry_size_bytes", -1)
