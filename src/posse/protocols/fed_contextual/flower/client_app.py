"""The app on a device: act, keep the log, learn, clip, and send the clipped update; or take part in a secure sum.

The log stays in `Context.state`, which never leaves the device: Flower keeps it in the SuperNode's memory for the run.
What leaves is in the reply alone: the clipped update, how many samples there were, the rewards and the probabilities of
the chosen arms added up, whether the update was within the norm, and the device's number. In a secure round nothing
leaves but masked words.

A secure round is the client of `posse.privacy.aggregation` between Flower's messages. Every message starts a process,
so the client's snapshot and the root of its secrets wait in `Context.state` until its part of the round is over. Flower
puts that state away after the answer has left; so that no message is ever answered twice, whatever happens in between,
each (round, stage) is marked in a file first, and a second message of its kind is refused. Marks are kept for 30 days.

What the server says is not taken on trust: the plan must be the one that follows from its numbers, it must suppose as
many corrupt devices and leave as many honest ones in a sum as the node's own configuration demands, and where the node
has a `roster` (a file of known keys, a line each) every identity of the terms must be in it and the plan must have a
quorum. What the device computes from (the model, the norm, the round, the settings of the run) must be what the terms
say, which are the same for all devices of a sum: each signs their digest with its keys and with the set of survivors,
and takes part with nobody who signed another one.

Keys of the node's configuration (`key`, `roster`, `least-honest`, `corrupt`): docs/devices.md.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from posse.core import roles
from posse.core.errors import ConfigError, DataError, ProtocolError
from posse.core.roles import WORLD, Action
from posse.privacy.aggregation.client import SERVER, Client
from posse.privacy.aggregation.messages import Contribute
from posse.privacy.aggregation.messages import Contribution as Masked
from posse.privacy.aggregation.terms import Plan, Terms, complete_plan, plan
from posse.privacy.crypto.keys import Identity, Secrets, fingerprint
from posse.protocols.fed_contextual.flower import wire
from posse.protocols.fed_contextual.flower.samples import log_of, number_of, samples_of
from posse.protocols.fed_contextual.flower.settings import DeviceSettings

if TYPE_CHECKING:
    from posse.protocols.fed_contextual.client import Contribution, Log
    from posse.protocols.fed_contextual.models import Tree
    from posse.protocols.fed_contextual.tasks import Draws

SECURE = "secure"
"""Action of the messages of a secure round, and the name of its state."""
LEAST_HONEST = 2
CORRUPT = 0.1
"""Share of devices that a plan must suppose to be with the server."""
KEPT = 30 * 86_400.0
"""Seconds for which marks of answered messages are kept."""


def make() -> ClientApp:
    """Make the app."""
    app = ClientApp()
    app.train()(train)
    app.train(SECURE)(train_securely)
    return app


def train(message: Message, context: Context) -> Message:
    """Answer a round with the clipped update."""
    made = contribution(DeviceSettings.of(dict(context.run_config)), message.content, context)
    return Message(wire.reply_of(made, number_of(context.node_config, context.node_id)), reply_to=message)


def train_securely(message: Message, context: Context) -> Message:
    """Answer one stage of a secure round."""
    return Message(answer(message.content, context), reply_to=message)


def contribution(settings: DeviceSettings, sent: RecordDict, context: Context) -> Contribution:
    """Act (or take up a log) and learn: the device's part of a round."""
    keep_compiled()
    import jax.numpy as jnp

    from posse.protocols.fed_contextual.flower import device
    from posse.protocols.fed_contextual.models import shape_of, tree_of
    from posse.protocols.fed_contextual.tasks import Draws

    like = shape_of(device.model_of(settings))
    order: Any = sent[wire.ROUND]
    params = tree_of(wire.unpacked(sent[wire.PARAMS]), like)
    deployed = tree_of(wire.unpacked(sent[wire.DEPLOYED]), like) if wire.DEPLOYED in sent else params
    seed = settings.seed if settings.seed >= 0 else secrets.randbits(31)
    draws = Draws(jnp.uint32(seed), int(order["round"]), number_of(context.node_config, context.node_id))
    deployment = int(order["deployment"])
    _hand_over(context, deployed, deployment)
    log = _log(settings, deployed, deployment, draws, context)
    task, rates = device.task_of(settings), device.rates_of(settings)
    made: Contribution = device.learnt(task, rates, params, log, jnp.float32(order["limit"]), draws)
    return made


def _log(settings: DeviceSettings, deployed: Tree, deployment: int, draws: Draws, context: Context) -> Log:
    """Return the log to learn from: the application's own, one kept since the deployment, or one made now."""
    import jax
    import jax.numpy as jnp

    from posse.protocols.fed_contextual.client import Log
    from posse.protocols.fed_contextual.flower import device

    if "log" in context.node_config:
        own = log_of(settings, Path(str(context.node_config["log"])).expanduser())
        return Log(*(jax.tree.map(jnp.asarray, part) for part in own))
    samples = samples_of(settings, context.node_config, context.node_id)
    kept: Any = context.state.get(wire.LOG)
    if settings.keep_log and kept is not None and int(kept["deployment"].numpy()) == deployment:
        again = [kept[name].numpy() for name in ("arms", "rewards", "probabilities")]
        return Log(*(jax.tree.map(jnp.asarray, part) for part in (samples.contexts, *again, samples.mask)))
    log: Log = device.acted(device.task_of(settings), device.rates_of(settings), deployed, *samples, draws)
    context.state[wire.LOG] = ArrayRecord({
        "deployment": Array(np.array(deployment)), "arms": Array(np.asarray(log.arms)),
        "rewards": Array(np.asarray(log.rewards)), "probabilities": Array(np.asarray(log.probabilities)),
    })  # fmt: skip
    return log


def _hand_over(context: Context, deployed: Tree, deployment: int) -> None:
    """Write the deployed model where the application of the device reads it."""
    if "model" in context.node_config:
        from posse.protocols.fed_contextual.models import write_model

        write_model(Path(str(context.node_config["model"])).expanduser(), deployed, deployment)


def keep_compiled() -> None:
    """Keep what jax compiles in Flower's folder: every message starts a process, and it would compile anew.

    A folder that the user has given to jax (JAX_COMPILATION_CACHE_DIR) stays.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    import jax

    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "posse-compiled"
    update: Callable[[str, object], None] = jax.config.update
    update("jax_compilation_cache_dir", str(home))
    update("jax_persistent_cache_min_compile_time_secs", 0.0)
    update("jax_persistent_cache_min_entry_size_bytes", -1)


# Secure rounds --------------------------------------------------------------------------------------------------------


def answer(sent: RecordDict, context: Context) -> RecordDict:
    """Answer one stage."""
    stage: Any = sent[wire.STAGE]
    identity = identity_from(context.node_config)
    if wire.TERMS in stage:
        terms, secrets = wire.decode_terms(stage[wire.TERMS]), Secrets.fresh()
        if terms.run != str(context.run_id):
            raise ProtocolError(f"the terms are of run '{terms.run}', and this device is in run '{context.run_id}'.")
        check_terms(terms, context.node_config)
        client = Client(fingerprint(identity.public), terms, identity, secrets)
        _mark(terms, client.name, "start")
        actions = client.start()
    else:
        terms, secrets, client = _restored(context, identity)
        message = wire.decode(stage[wire.MESSAGE])
        if getattr(message, "terms", None) != terms.digest:
            raise ProtocolError("the message is not of the round that this device is in; it is not answered.")
        _mark(terms, client.name, type(message).__name__)
        actions = client.receive(SERVER, message)
        if any(isinstance(action, Contribute) for action in actions):
            actions = client.receive(WORLD, _contribution(sent, context, terms))
    if client.finished:  # no secret of a round outlives it
        context.state.pop(SECURE, None)
    else:
        context.state[SECURE] = ConfigRecord(
            {"terms": wire.encode(terms), "root": secrets.export(), "saved": msgspec.msgpack.encode(client.save())}
        )
    return RecordDict({wire.STAGE: ConfigRecord({wire.MESSAGE: wire.encode(_reply(actions))})})


def identity_from(node: Mapping[str, Any]) -> Identity:
    """Read the node's key."""
    if "key" not in node:
        raise ConfigError("secure sums need 'key' in the node's configuration: the file of its private key.")
    path = Path(str(node["key"])).expanduser()
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise DataError(
            f"the node's key {path} cannot be read: {error}. Make one with 'ssh-keygen -t ecdsa'."
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DataError(f"the node's key {path} must be an ECDSA key. Make one with 'ssh-keygen -t ecdsa -b 256'.")
    return Identity(key)


def check_terms(terms: Terms, node: Mapping[str, Any]) -> None:
    """Refuse terms that protect less than this device demands."""
    made = terms.plan
    if "roster" in node:
        unknown = set(terms.identities) - roster(Path(str(node["roster"])).expanduser())
        if unknown:
            raise ProtocolError(f"the terms name {len(unknown)} keys that are not in this device's roster.")
        if not made.quorum:
            raise ProtocolError(
                "a device with a roster demands a quorum, and this round's plan has none. Plan for fewer dropouts, or "
                "for at most 128 devices a round."
            )
    corrupt = math.ceil(_share(node) * made.clients - 1e-9)
    if made.corrupt < corrupt:
        raise ProtocolError(
            f"a plan for {made.clients} devices must suppose {corrupt} of them to be corrupt, and this one supposes "
            f"{made.corrupt}. Raise 'corrupt' of the run, or lower the node's."
        )
    least, left = max(int(node.get("least-honest", LEAST_HONEST)), LEAST_HONEST), made.honest_survivors
    if left < least:
        raise ProtocolError(f"a sum must be of {least} honest devices at least, and this round's plan is for {left}.")
    if not _known(made):
        raise ProtocolError("the plan of this round is not the one that follows from its numbers.")


def _share(node: Mapping[str, Any]) -> float:
    share = node.get("corrupt", CORRUPT)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise ConfigError(
            f"corrupt must be a share from 0 to below 1, got {share!r}. Correct the node's configuration."
        )
    return float(share)


def roster(path: Path) -> frozenset[bytes]:
    """Read the keys that may take part, as identities."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise DataError(f"the roster {path} cannot be read: {error.strerror}.") from error
    return frozenset(wire.identity_of(line) for line in lines)


def _known(given: Plan) -> bool:
    """Whether a plan is the one that follows from its numbers."""
    clients, corrupt, dropouts = given.clients, given.corrupt, given.dropouts
    if given.complete:
        return given == complete_plan(clients, corrupt=corrupt, dropouts=dropouts)
    return given == plan(clients, corrupt=corrupt / clients, dropout=dropouts / clients)


def _restored(context: Context, identity: Identity) -> tuple[Terms, Secrets, Client]:
    kept: Any = context.state.get(SECURE)
    if kept is None:
        raise ProtocolError("this device is in no secure round; it drops out.")
    terms, secrets = wire.decode_terms(kept["terms"]), Secrets(kept["root"])
    client = Client(fingerprint(identity.public), terms, identity, secrets)
    client.load(msgspec.msgpack.decode(kept["saved"]))
    return terms, secrets, client


def _contribution(sent: RecordDict, context: Context, terms: Terms) -> Masked:
    """Compute the device's vector, from what the terms say and nothing else; its integer norm is checked."""
    from posse.protocols.fed_contextual.models import leaves_of

    settings = DeviceSettings.of(dict(context.run_config))
    limit = check_order(sent, settings, terms)
    made = contribution(settings, sent, context)
    leaves = leaves_of(made.update)
    wire.check_update(leaves, leaves, limit, settings.rounded_to)
    return Masked(terms.round, wire.words_of(made).astype("<u4").tobytes())


def check_order(sent: RecordDict, settings: DeviceSettings, terms: Terms) -> float:
    """Refuse an order that is not the one of the terms, or has no norm; return the norm."""
    if wire.subject_of(sent, settings) != terms.subject:
        raise ProtocolError(
            "the model, the norm or the settings are not those of this round's terms. Both ends need the same run."
        )
    order: Any = sent[wire.ROUND]
    number, limit = int(order["round"]), float(order["limit"])
    if number != terms.round or not (math.isfinite(limit) and limit > 0):
        raise ProtocolError(
            f"an order of round {terms.round} must have its number and a norm above 0, got {number} and {limit:g}."
        )
    return limit


def _mark(terms: Terms, name: str, stage: str) -> None:
    """Note that a message of a round is being answered; refuse a second one."""
    folder = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "posse-answered"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if stage == "start":
        _prune(folder)
    mark = hashlib.sha256(terms.digest + f"{name} {stage}".encode()).hexdigest()
    try:
        os.close(os.open(folder / mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise ProtocolError(f"this device has answered '{stage}' of this round already.") from None


def _prune(folder: Path) -> None:
    old = time.time() - KEPT
    for mark in folder.iterdir():
        with suppress(FileNotFoundError):  # another device of this machine was faster
            if mark.stat().st_mtime < old:
                mark.unlink()


def _reply(actions: Sequence[Action]) -> roles.Message:
    ((_, _, message),) = (action for action in actions if isinstance(action, tuple))
    return message
