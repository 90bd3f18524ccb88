"""A learnt model as an ONNX graph that also explores: for phones, pages and whatever runs ONNX.

Inputs are contexts as devices have them and a uniform number a context; outputs are the arm, the
probability with which it was chosen (what a log needs), scores and chances of all arms. Where
uniform numbers come from is the caller's part: they must be unpredictable and used once. The graph
is `model.scores`, the policy's formula and `draw`, written with ONNX operators; it acts, and does
not train. The package `onnx` alone is needed.

| model | inputs beside `u` (n,) |
|---|---|
| linear | `contexts` (n, features) |
| cnn | `contexts` (n, side, side), grey values 0 to 255 |
| bag | `words` (n, words of a text) and `weights` of the same shape, 0 in the padding |
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from pydantic import Field

from posse.core.check import require
from posse.core.errors import ConfigError, DataError, ProtocolError
from posse.core.files import write_whole
from posse.core.settings import Settings
from posse.policies.contextual.explorations import (
    EpsilonGreedy,
    Exploration,
    Falcon,
    Greedy,
    Softmax,
)
from posse.policies.contextual.registry import (
    PARAMETERS,
    ExplorationSettings,
    exploration,
    parameters_of,
)
from posse.policies.own import is_own
from posse.results.section import Section
from posse.version import __version__

Arrays = Sequence[NDArray[Any]]
Parts = Mapping[str, NDArray[Any]]
Inputs = dict[str, tuple[int, list[str | int]]]
"""Type and shape of a graph's inputs, by name."""
OPSET, IR = 17, 8
"""Versions of the operators and of the file: what runtimes of the last years read, those of
browsers too.
"""


class ExportSettings(ExplorationSettings, Settings):
    """Which model becomes a graph, with which policy: that of a deployed model, which says it, or
    the one given.
    """

    model: Path
    """Model (.npz): of --model-out, of a run on devices, or of a kept run."""
    out: Path = Path("model.onnx")
    """File to write."""
    kind: Literal["auto", "linear", "bag", "cnn"] = "auto"
    """What the model is; auto: as a deployed model says, else by its arrays (two of them are a
    linear model).
    """
    scale: Annotated[float, Field(ge=0)] = 0.0
    """What contexts are divided by; 0: as the file says, else 255 for a cnn and 1."""


def read_arrays(path: Path) -> Parts:
    """Read the arrays of a model's file, by name."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise DataError(
            f"the model {path} cannot be read ({why}). Take a file of --model-out."
        ) from None


class Read:
    """A model of a file: what it is, its arrays, and what is known of its contexts and arms."""

    shift: NDArray[np.float64] | None = None
    """What is taken off contexts before they are divided, by feature; none where nothing is."""
    scale: float | NDArray[np.float64]
    """What contexts are divided by, by feature where they are shifted."""

    def __init__(self, path: Path, kind: str = "auto", scale: float = 0.0) -> None:
        parts = read_arrays(path)
        named = [name for name in parts if name.startswith("leaf")]
        leaves = [parts[f"leaf{at}"] for at in range(len(named)) if f"leaf{at}" in parts]
        said, self.policy, divisor = _deployed(parts, leaves, path)
        if said and kind not in ("auto", said):
            raise ConfigError(f"kind is {kind}, and {path} holds a {said} model. Leave it out.")
        self.kind = _kind(leaves, said or kind, path)
        self.leaves = [np.ascontiguousarray(leaf, np.float32) for leaf in leaves]
        if not all(np.isfinite(leaf).all() for leaf in self.leaves):
            raise DataError(f"{path} must hold finite numbers. Take a model that converged.")
        check_constants(parts, path)
        if "shift" in parts:
            self._scale_features(parts, scale, path)
        else:
            usual = divisor or (255.0 if self.kind == "cnn" else 1.0)
            self.scale = scale or float(parts.get("scale", usual))
        self.rounds = int(parts.get("deployment", 0))
        self.names = arm_names(parts, len(self.leaves[-2]), path)

    def _scale_features(self, parts: Parts, given: float, path: Path) -> None:
        """Take what is taken off every feature and what it is divided by; raise where another scale
        is given, or the file is not whole.
        """
        if given:
            raise ConfigError(
                f"{path} says how each of its features is scaled, got scale {given:g}. Leave it "
                "out."
            )
        self.shift = np.asarray(parts["shift"], np.float64)
        self.scale = np.asarray(parts.get("scale", 0.0), np.float64)
        sizes = {self.scale.shape, self.shift.shape}
        if self.kind != "linear" or sizes != {self.shape} or not self.scale.all():
            raise DataError(
                f"{path} does not say how each of its features is scaled. Take a file of "
                "--model-out."
            )

    def scaled(self, contexts: NDArray[Any]) -> NDArray[np.float32]:
        """Bring contexts to what the model was trained on."""
        if self.shift is None:
            return np.asarray(contexts.astype(np.float32) / np.float32(self.scale))
        return np.asarray((contexts.astype(np.float64) - self.shift) / self.scale, np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one context; a bag has as many words as it likes."""
        if self.kind == "cnn":
            left = math.isqrt(len(self.leaves[5]) // self.leaves[3].shape[1])
            return (2 * left + 4,) * 2
        return (len(self.leaves[1]),)


def arm_names(parts: Parts, count: int, path: Path) -> tuple[str, ...]:
    """Return the names of a model's arms, or numbers where the file has none."""
    if "arms" not in parts:
        return tuple(f"arm {at + 1}" for at in range(count))
    names = tuple(map(str, parts["arms"]))
    if len(names) != count:
        raise DataError(
            f"{path} names {len(names)} arms and has {count}. Take a file of --model-out."
        )
    return names


def check_constants(parts: Parts, path: Path) -> None:
    """Refuse a deployed model of scaled contexts that lacks the constants to scale them by."""
    if "about" not in parts or "shift" in parts:
        return
    try:
        schema = json.loads(str(parts["about"])).get("schema", {})
    except (ValueError, AttributeError):
        return  # which other checks name
    if schema.get("scaling"):
        raise DataError(
            f"{path} takes contexts that devices scale by the constants {schema['scaling']}, and "
            "does not hold them. Take the file that a device wrote."
        )


def _deployed(parts: Parts, leaves: Arrays, path: Path) -> tuple[str, Exploration | None, float]:
    """Return what a deployed model says that it is, its policy, and its divisor; nothing for other
    files.
    """
    if "about" not in parts:
        return "", None, 0.0
    from posse.systems.fed_contextual.flower.deployment import parsed

    try:
        about = parsed(str(parts["about"]), list(leaves))
    except ProtocolError as error:
        raise DataError(
            f"the model {path} cannot be read ({error}) Take one that was deployed."
        ) from None
    kind, policy, explore = about.model, about.policy, about.explore
    if is_own(kind):
        raise DataError(
            f"{path} holds a model of your own, {kind}: arrays are read of built-in models alone "
            "(linear, bag of "
            "words, cnn). Compute its scores with that function."
        )
    if is_own(policy):
        raise DataError(f"{path} names the policy {policy}, which is not imported from there.")
    given = dict.fromkeys(parameters_of(policy)[-1:] if explore else (), explore)
    return kind, exploration(policy, given), about.divisor


def _kind(leaves: Arrays, asked: str, path: Path) -> str:
    """Say what a model is by its arrays; raise where no graph is known for it."""
    dims = [leaf.ndim for leaf in leaves]
    floats = all(leaf.dtype.kind == "f" for leaf in leaves)
    found = "linear" if dims == [1, 2] and len(leaves[0]) == leaves[1].shape[1] else ""
    if (
        dims == [1, 2] * 4
        and leaves[1].shape[0] == 9
        and leaves[3].shape[0] == 9 * leaves[1].shape[1]
    ):
        found = "cnn"
    if not floats or not found:
        raise DataError(
            f"{path} holds {len(leaves)} arrays that are no built-in model (linear, bag of words, "
            "cnn), and a graph is "
            "written for these alone. Export a model of your own with the tools of its library."
        )
    if asked == "auto" or asked == found or (asked, found) == ("bag", "linear"):
        return found if asked == "auto" else asked
    raise ConfigError(f"kind is {asked}, and {path} holds a {found} model. Leave it out.")


class _Graph:
    """Nodes and constants, put together one operator at a time."""

    def __init__(self) -> None:
        self.onnx = require("onnx", extra="onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: ArrayLike, dtype: DTypeLike = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def __call__(self, op: str, *inputs: str, name: str = "", **attributes: int | list[int]) -> str:
        name = name or f"n{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def last(self, op: str, values: str) -> str:
        """Reduce the last axis and keep it."""
        if op == "ReduceSum":
            return self(op, values, self.constant([-1], np.int64), keepdims=1)
        return self(op, values, axes=[-1], keepdims=1)


def _scores(g: _Graph, model: Read) -> tuple[str, Inputs]:
    """Write the model; returns the name of its scores, and the graph's inputs by name: type and
    shape.
    """
    kinds, leaves = g.onnx.TensorProto, model.leaves
    if model.kind == "bag":
        rows = g("Gather", g.constant(leaves[1]), "words", axis=0)
        weighted = g("Mul", rows, g("Unsqueeze", "weights", g.constant([-1], np.int64)))
        summed = g("ReduceSum", weighted, g.constant([1], np.int64), keepdims=0)
        return g("Add", summed, g.constant(leaves[0]), name="scores"), {
            "words": (kinds.INT64, ["n", "width"]),
            "weights": (kinds.FLOAT, ["n", "width"]),
        }
    x = "contexts" if model.shift is None else g("Sub", "contexts", g.constant(model.shift))
    x = g("Div", x, g.constant(model.scale))
    inputs: Inputs = {"contexts": (kinds.FLOAT, ["n", *model.shape])}
    if model.kind == "linear":
        return g(
            "Add", g("MatMul", x, g.constant(leaves[1])), g.constant(leaves[0]), name="scores"
        ), inputs
    x = g("Unsqueeze", x, g.constant([1], np.int64))
    for bias, weights in (leaves[0:2], leaves[2:4]):
        kernel = weights.reshape(3, 3, -1, len(bias)).transpose(3, 2, 0, 1)
        x = g("Relu", g("Conv", x, g.constant(kernel), g.constant(bias), kernel_shape=[3, 3]))
    x = g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g("Flatten", g("Transpose", x, perm=[0, 2, 3, 1]))
    x = g("Relu", g("Add", g("MatMul", x, g.constant(leaves[5])), g.constant(leaves[4])))
    return g(
        "Add", g("MatMul", x, g.constant(leaves[7])), g.constant(leaves[6]), name="scores"
    ), inputs


def _chances(g: _Graph, policy: Exploration, scores: str, arms: int) -> str:
    """Write the formula of a policy that ships; those of a user's own are refused."""
    values = policy.values(arms)
    largest = g.last("ReduceMax", scores)
    best = g(
        "Equal", g.constant(np.arange(arms), np.int64), g("ArgMax", scores, axis=-1, keepdims=1)
    )
    one, zero = g.constant(1.0), g.constant(0.0)
    match policy:
        case Greedy():
            return g("Where", best, one, zero, name="probabilities")
        case EpsilonGreedy():
            other = values[0] / arms
            likely = g.constant(1 - values[0] + other)
            return g("Where", best, likely, g.constant(other), name="probabilities")
        case Softmax():
            raised = g("Exp", g("Div", g("Sub", scores, largest), g.constant(values[0])))
            return g("Div", raised, g.last("ReduceSum", raised), name="probabilities")
        case Falcon():
            steep = g("Mul", g("Sub", largest, scores), g.constant(values[1]))
            others = g("Where", best, zero, g("Div", one, g("Add", steep, g.constant(values[0]))))
            others = g("Div", others, g("Max", one, g.last("ReduceSum", others)))
            rest = g("Max", zero, g("Sub", one, g.last("ReduceSum", others)))
            return g("Where", best, rest, others, name="probabilities")
    name = policy.name or type(policy).__name__
    raise ConfigError(
        f"only policies that ship with Posse can be exported, got {name}. Choose one of them."
    )


def graph_of(model: Read, policy: Exploration) -> Any:
    """Return the model as an ONNX graph that chooses, a `ModelProto`."""
    g = _Graph()
    onnx, arms = g.onnx, len(model.names)
    scores, inputs = _scores(g, model)
    chances = _chances(g, policy, scores, arms)
    reached = g("CumSum", chances, g.constant(1, np.int64))
    last = g("Gather", reached, g.constant([arms - 1], np.int64), axis=1)
    bound = g("Mul", g("Unsqueeze", "u", g.constant([1], np.int64)), last)
    counts = [
        g.last("ReduceSum", g("Cast", g(op, reached, limit), to=onnx.TensorProto.INT64))
        for op, limit in (("LessOrEqual", bound), ("Less", last))
    ]
    drawn = g("Min", *counts)
    g("Squeeze", drawn, g.constant([1], np.int64), name="arm")
    g(
        "Squeeze",
        g("GatherElements", chances, drawn, axis=1),
        g.constant([1], np.int64),
        name="probability",
    )
    kinds, info = onnx.TensorProto, onnx.helper.make_tensor_value_info
    outputs: Inputs = {
        "arm": (kinds.INT64, ["n"]),
        "probability": (kinds.FLOAT, ["n"]),
        "scores": (kinds.FLOAT, ["n", arms]),
        "probabilities": (kinds.FLOAT, ["n", arms]),
    }
    made = onnx.helper.make_graph(
        g.nodes,
        "posse",
        [info(name, *one) for name, one in (inputs | {"u": (kinds.FLOAT, ["n"])}).items()],
        [info(name, *one) for name, one in outputs.items()],
        g.constants,
    )
    whole = onnx.helper.make_model(
        made,
        producer_name="posse",
        producer_version=__version__,
        ir_version=IR,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
    )
    onnx.helper.set_model_props(whole, _about(model, policy))
    onnx.checker.check_model(whole, full_check=True)
    return whole


def _about(model: Read, policy: Exploration) -> Mapping[str, str]:
    values = zip(asdict(policy), policy.values(len(model.names)), strict=True)
    shown = " ".join([policy.name, *(f"{name}={value:g}" for name, value in values)])
    return {
        "arms": "\n".join(model.names),
        "policy": shown,
        "rounds": str(model.rounds),
        "kind": model.kind,
    }


def export(settings: ExportSettings) -> Iterator[Section]:
    """Write the graph, and say what it takes and gives."""
    model, policy = (
        Read(settings.model.expanduser(), settings.kind, settings.scale),
        settings.exploration(),
    )
    named = settings.model_fields_set & {"policy", *PARAMETERS}
    if model.policy is not None and policy != model.policy:
        if any(getattr(settings, name) is not None for name in named):
            raise ConfigError(
                f"{settings.model} was deployed for {model.policy}, got {policy}: devices log "
                "other chances. Leave the "
                "policy out."
            )
        policy = model.policy
    made = graph_of(model, policy).SerializeToString()
    write_whole(settings.out, made)
    inputs = (
        "words and weights"
        if model.kind == "bag"
        else f"contexts of {' x '.join(map(str, model.shape))} numbers"
    )
    divided = ", which it scales as the table was that it learnt from"
    if model.shift is None:
        divided = f", which it divides by {model.scale:g}" if model.scale != 1 else ""
    yield Section(
        f"{settings.out}: a {model.kind} model of {len(model.names)} arms that chooses by "
        f"{policy.name}",
        notes=(
            f"in: {inputs}{divided}, and u, a uniform number a context",
            "out: arm and probability, for the log; scores and probabilities of all arms",
            "it acts and does not learn: training needs Python (docs/devices.md)",
        ),
        data={"out": str(settings.out), "bytes": len(made), **_about(model, policy)},
    )
