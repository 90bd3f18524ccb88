"""The app on a device: act, keep the log, learn, clip, and send the clipped update; or take part in
a secure sum.

The log stays in `Context.state`, which never leaves the device: Flower keeps it in the SuperNode's
memory for the run. What leaves is in the reply alone: the clipped update, how many samples there
were, the rewards and the probabilities of the chosen arms added up, whether the update was within
the norm, and the device's number. In a secure round nothing leaves but masked words (`secure`).

Under noise, and in secure rounds, whether a device answers depends on nothing that it has: where
its data cannot be used it says so in its own log, and sends zeros. So it does where its program
fails on them, with the traceback; a model that fails on any contexts is refused before they are
read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from logging import ERROR, WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log as note
from numpy.typing import NDArray

from posse.core.errors import ConfigError, MissingExtraError, PosseError, ProtocolError
from posse.core.files import make_private_folder
from posse.policies.own import explain
from posse.systems.fed_contextual.flower import evaluation, wire
from posse.systems.fed_contextual.flower.deployment import (
    check_fits,
    parsed,
    read_version,
    write_version,
)
from posse.systems.fed_contextual.flower.samples import (
    log_of,
    number_of,
    samples_of,
    scaling_of,
)
from posse.systems.fed_contextual.flower.secure import SECURE, answer, home
from posse.systems.fed_contextual.flower.settings import DeviceSettings

if TYPE_CHECKING:
    from posse.systems.fed_contextual.computing.client import Contribution, Log
    from posse.systems.fed_contextual.computing.models import Tree
    from posse.systems.fed_contextual.computing.tasks import Draws


Order: TypeAlias = Any
"""One of Flower's records: values by name."""


def make() -> ClientApp:
    """Make the app."""
    app = ClientApp()
    app.train()(train)
    app.train(SECURE)(train_securely)
    app.evaluate()(evaluate)
    app.query(wire.DEPLOY)(take_version)
    return app


def train(message: Message, context: Context) -> Message:
    """Answer a round with the clipped update."""
    made = contribution(_plain_settings(context), message.content, context)
    return Message(
        wire.reply_of(made, number_of(context.node_config, context.node_id)), reply_to=message
    )


def train_securely(message: Message, context: Context) -> Message:
    """Answer one stage of a secure round."""

    def vector(settings: DeviceSettings) -> bytes:
        words = (
            evaluation.words_of(sums_of(settings, message.content, context))
            if wire.METHOD in message.content[wire.ROUND]
            else wire.words_of(contribution(settings, message.content, context))
        )
        return words.astype("<u4").tobytes()

    return Message(answer(message.content, context, vector), reply_to=message)


def evaluate(message: Message, context: Context) -> Message:
    """Answer a round of evaluation with the device's clipped sums."""
    sums = sums_of(_plain_settings(context), message.content, context)
    return Message(evaluation.sums_reply(sums), reply_to=message)


def _plain_settings(context: Context) -> DeviceSettings:
    """Return the run's settings; refuse to show the server anything of this device alone where sums
    are secure.
    """
    settings = DeviceSettings.of(dict(context.run_config))
    node = context.node_config
    if (
        settings.secure
        or node.get("secure", "roster" in node or "least-honest" in node) is not False
    ):
        raise ProtocolError(
            "this device takes part in secure sums only, and the server asked for its sums "
            "in the clear."
        )
    return settings


def sums_of(settings: DeviceSettings, sent: RecordDict, context: Context) -> NDArray[np.float64]:
    """Estimate a candidate on the device's log; zeros where the log cannot be used and that must
    not show.
    """
    keep_compiled()
    from posse.systems.fed_contextual.computing.models import shape_of, tree_of
    from posse.systems.fed_contextual.flower import device

    like = shape_of(device.model_of(settings, context.node_config))
    candidate, deployed = (
        tree_of(wire.unpacked(sent[name]), like) for name in (wire.PARAMS, wire.DEPLOYED)
    )
    order: Order = sent[wire.ROUND]
    if (order[wire.METHOD], order["limit"]) != (settings.evaluate, settings.evaluation_clip):
        raise ProtocolError(
            "the server asked for an evaluation with another method or limit than the run's "
            "settings have."
        )
    try:
        number = number_of(context.node_config, context.node_id)
        draws = device.draws_of(settings, int(order["round"]), number)
        log = _log(settings, deployed, int(order["deployment"]), draws, context)
        return evaluation.device_sums(settings, candidate, log)
    except (ConfigError, MissingExtraError):
        raise
    except Exception as error:
        if not (settings.secure or settings.noise):
            raise
        _note_zeros("log", error)
    return np.zeros(evaluation.SUMS)


def contribution(settings: DeviceSettings, sent: RecordDict, context: Context) -> Contribution:
    """Return the device's part of a round; zeros where its data cannot be used and that must not
    show.
    """
    keep_compiled()
    from posse.systems.fed_contextual.computing.models import leaves_of, shape_of, tree_of
    from posse.systems.fed_contextual.flower import device

    model = device.model_of(settings, context.node_config)
    like = shape_of(model)
    params = tree_of(wire.unpacked(sent[wire.PARAMS]), like)
    deployed = (
        tree_of(wire.unpacked(sent[wire.DEPLOYED]), like) if wire.DEPLOYED in sent else params
    )
    order: Order = sent[wire.ROUND]
    try:
        made = _learnt(settings, params, deployed, order, context)
        leaves = leaves_of(made.update)
        wire.check_update(leaves, leaves, float(order["limit"]), settings.rounded_to)
        return made
    except (ConfigError, MissingExtraError):
        raise
    except Exception as error:
        if not (settings.secure or settings.noise):
            raise
        _note_zeros("data", error)
    return device.zeros_of(settings, model)


def _note_zeros(what: str, error: Exception) -> None:
    """Say in the device's own log why it sends zeros; of a fault in a program, where it is."""
    if isinstance(error, PosseError):
        note(WARNING, "this device sends zeros, since its %s cannot be used: %s", what, error)
    else:
        note(
            ERROR,
            "this device sends zeros, since its program failed: %s",
            explain(error),
            exc_info=error,
        )


def _learnt(
    settings: DeviceSettings, params: Tree, deployed: Tree, order: Order, context: Context
) -> Contribution:
    """Act (or take up a log) and learn."""
    from posse.systems.fed_contextual.flower import device

    number = number_of(context.node_config, context.node_id)
    draws = device.draws_of(settings, int(order["round"]), number)
    log = _log(settings, deployed, int(order["deployment"]), draws, context)
    task, rates = device.task_of(settings), device.rates_of(settings)
    made: Contribution = device.learnt(task, rates, params, log, np.float32(order["limit"]), draws)
    return made


def _log(
    settings: DeviceSettings, deployed: Tree, deployment: int, draws: Draws, context: Context
) -> Log:
    """Return the log to learn from: the application's own, one kept since the deployment, or one
    made now.
    """
    import jax
    import jax.numpy as jnp

    from posse.systems.fed_contextual.computing.client import Log
    from posse.systems.fed_contextual.flower import device

    if "log" in context.node_config:
        path = Path(str(context.node_config["log"])).expanduser()
        own = log_of(settings, path, scaling_of(settings, context.node_config))
        return Log(*(jax.tree.map(jnp.asarray, part) for part in own))
    samples = samples_of(settings, context.node_config, context.node_id)
    kept: Any = context.state.get(wire.LOG)
    if settings.keep_log and kept is not None and int(kept["deployment"].numpy()) == deployment:
        again = [kept[name].numpy() for name in ("arms", "rewards", "probabilities")]
        return Log(
            *(jax.tree.map(jnp.asarray, part) for part in (samples.contexts, *again, samples.mask))
        )
    log: Log = device.acted(
        device.task_of(settings), device.rates_of(settings), deployed, *samples, draws
    )
    context.state[wire.LOG] = ArrayRecord(
        {
            "deployment": Array(np.array(deployment)),
            "arms": Array(np.asarray(log.arms)),
            "rewards": Array(np.asarray(log.rewards)),
            "probabilities": Array(np.asarray(log.probabilities)),
        }
    )
    return log


def take_version(message: Message, context: Context) -> Message:
    """Take a version of the model to act with, if it fits, and say which one the device has."""
    path, why = model_file(context), ""
    try:
        _take(message.content, context, path)
    except PosseError as error:
        why = str(error)
        note(WARNING, "this device refuses a model: %s", error)
    version, sha256 = -1, ""
    with suppress(PosseError):
        held = read_version(path)
        version, sha256 = held.version, held.hash
    return Message(wire.held_reply(version, sha256, why), reply_to=message)


def _take(sent: RecordDict, context: Context, path: Path) -> None:
    from posse.systems.fed_contextual.flower import device

    settings, node = DeviceSettings.of(dict(context.run_config)), context.node_config
    about: Order = sent[wire.DEPLOY]
    version = parsed(about[wire.ABOUT], wire.unpacked(sent[wire.PARAMS]))
    schema = (
        settings.model,
        settings.features,
        settings.arms,
        settings.divisor,
        settings.scaling,
    )
    if (
        version.model,
        version.features,
        version.arms,
        version.divisor,
        version.scaling,
    ) != schema:
        raise ProtocolError(
            f"version {version.version} has another schema than this run's settings."
        )
    shapes = device.shapes_of(device.model_of(settings, context.node_config))
    width = None
    if "log" in node and settings.model != "bag":
        with (
            suppress(OSError, ValueError, KeyError, EOFError, BadZipFile),
            Path(str(node["log"])).expanduser().open("rb") as file,
            np.load(file) as log,
        ):
            contexts = log["contexts"]
            width = int(np.prod(contexts.shape[1:]))
            if contexts.dtype == np.uint8 and not version.divisor:
                note(
                    WARNING,
                    "the log holds bytes, and the model does not say so: set contexts = bytes of "
                    "the run",
                )
    check_fits(version, shapes, node, width)
    scaling = scaling_of(settings, node)
    make_private_folder(path.parent)
    write_version(path, version, scaling)


def model_file(context: Context) -> Path:
    """Return the file from which the application of the device reads the deployed model."""
    if "model" in context.node_config:
        return Path(str(context.node_config["model"])).expanduser()
    return home() / "posse-models" / f"{context.node_id}.npz"


def keep_compiled() -> None:
    """Keep what jax compiles in Flower's folder: every message starts a process, and it would
    compile anew.

    A folder that the user has given to jax (JAX_COMPILATION_CACHE_DIR) stays.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    import jax

    update: Callable[[str, object], None] = jax.config.update
    update("jax_compilation_cache_dir", str(home() / "posse-compiled"))
    update("jax_persistent_cache_min_compile_time_secs", 0.0)
    update("jax_persistent_cache_min_entry_size_bytes", -1)
