"""Reward models: a pair of functions, parameters from a key and scores of all arms from a batch of
contexts.

A user's own model is such a pair. `scores` must not depend on what else is in the batch.
Parameters, updates and an optimiser's moments are pytrees of arrays; the last part of this file
adds them, measures them, and writes models to files and reads them: arrays leaf0, leaf1, ... in the
order of `jax.tree.leaves`, and the rounds behind them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, ProtocolError
from posse.core.files import open_whole
from posse.problems.populations.population import Population, Scaling

Tree: TypeAlias = Any
"""A pytree of float arrays: parameters, an update, a moment. Neither jax nor numpy has a type for
it.
"""
Layer: TypeAlias = Mapping[str, jax.Array]
"""Weights `w` and bias `b`."""
Leaves: TypeAlias = list[NDArray[Any]]
"""The arrays of a tree, in jax's order."""
Array: TypeAlias = jax.Array | NDArray[np.generic]
Whole: TypeAlias = jax.Array | NDArray[np.int32] | int
Number: TypeAlias = jax.Array | float
Contexts: TypeAlias = Tree
"""An array (batch, ...), or a pytree of such."""
Labels: TypeAlias = Tree
"""What the rewards of samples depend on: an array (batch, ...), or a pytree of such."""
Descend = Callable[[Tree, Contexts, jax.Array, jax.Array, jax.Array, Number], Tree]
"""New parameters from parameters, contexts, arms, rewards, weights and a rate: one step down the
gradient of the sum of weight (predicted - reward)^2.
"""
DescendAll = Callable[[Tree, Contexts, jax.Array, jax.Array, Number], Tree]
"""The same where all arms' rewards are known: parameters, contexts, (batch, arms) rewards and
weights, a rate.
"""


class Model(NamedTuple):
    """A reward model."""

    init: Callable[[jax.Array], Tree]
    """Parameters from a key."""
    scores: Callable[[Tree, Contexts], jax.Array]
    """(batch, arms) predicted rewards from parameters and (batch, ...) contexts."""
    descend: Descend | None = None
    """A step of gradient descent where there is a cheaper way than through `scores`; the same
    numbers to rounding.
    """
    descend_all: DescendAll | None = None
    """The same for a supervised step."""


MODELS = ("auto", "cnn", "linear", "bag")


def model_of(
    population: Population,
    name: str = "auto",
    hidden: int = 128,
    channels: tuple[int, int] = (32, 64),
) -> Model:
    """Return the reward model of a population: of bags of words, of square images, or linear in
    flat features.
    """
    if name not in MODELS:
        raise ConfigError(f"model must be one of {', '.join(MODELS)}, got {name!r}. Choose one.")
    arms = len(population.arms)
    if not isinstance(population.inputs, np.ndarray):
        if name not in ("auto", "bag"):
            raise ConfigError(
                f"samples of {population.name} are bags of words, got model {name!r}. Use 'bag'."
            )
        return named_model("bag", len(population.vocabulary), arms)
    shape = population.inputs.shape[1:]
    square = len(shape) == 2 and shape[0] == shape[1] and population.inputs.dtype == np.uint8
    if name == "bag" or (name == "cnn" and not square):
        raise ConfigError(
            f"model {name!r} does not fit samples of shape {shape} in {population.name}. Use "
            "'linear'."
        )
    if name == "linear" or not square:
        return named_model("linear", int(np.prod(shape)), arms)
    return named_model("cnn", int(shape[0]), arms, hidden, channels)


@lru_cache(maxsize=32)
def named_model(
    kind: str, size: int, arms: int, hidden: int = 128, channels: tuple[int, int] = (32, 64)
) -> Model:
    """Return a model by its kind and size: features, words, or pixels of a side.

    The same model is the same object, since what is compiled depends on it.
    """
    if kind == "cnn":
        return cnn(arms, size, hidden, channels)
    return (bag_of_words if kind == "bag" else linear)(size, arms)


def linear(features: int, arms: int) -> Model:
    """A linear model of flat features: x W + b, from zeros. Bytes are taken as fractions of 255."""

    def init(key: jax.Array) -> Tree:
        return {"w": jnp.zeros((features, arms)), "b": jnp.zeros(arms)}

    def scores(params: Tree, contexts: jax.Array) -> jax.Array:
        flat = as_floats(contexts.reshape(contexts.shape[0], -1))
        return _apply(flat, params)

    return Model(init, scores)


def bag_of_words(words: int, arms: int) -> Model:
    """A linear model of bags of words: the weighted sum of W's rows of the words in a text, plus b,
    from zeros.

    Contexts are a pair: word numbers and weights, (batch, words of a text) each, of weight 0 in the
    padding. One arm's score touches one column of the rows of its words, so that a training step
    gathers and scatters these numbers alone (element-sparse), and a supervised one these rows.
    """

    def init(key: jax.Array) -> Tree:
        return {"w": jnp.zeros((words, arms)), "b": jnp.zeros(arms)}

    def scores(params: Layer, contexts: Contexts) -> jax.Array:
        numbers, share = contexts
        return jnp.einsum("nw,nwk->nk", share, params["w"][numbers]) + params["b"]

    def descend(
        params: Tree,
        contexts: Contexts,
        arms_: jax.Array,
        rewards: jax.Array,
        weights: jax.Array,
        rate: Number,
    ) -> Tree:
        numbers, share = contexts
        at = (numbers, arms_[:, None])
        predicted = (share * params["w"][at]).sum(axis=-1) + params["b"][arms_]
        slope = -2 * rate * weights * (predicted - rewards)
        return {
            "w": params["w"].at[at].add(slope[:, None] * share),
            "b": params["b"].at[arms_].add(slope),
        }

    def descend_all(
        params: Tree, contexts: Contexts, rewards: jax.Array, weights: jax.Array, rate: Number
    ) -> Tree:
        numbers, share = contexts
        slope = -2 * rate * weights * (scores(params, contexts) - rewards)
        moved = params["w"].at[numbers].add(share[..., None] * slope[:, None, :])
        return {"w": moved, "b": params["b"] + slope.sum(axis=0)}

    return Model(init, scores, descend, descend_all)


def cnn(
    arms: int, side: int = 28, hidden: int = 128, channels: tuple[int, int] = (32, 64)
) -> Model:
    """Two 3x3 convolutions, a 2x2 maximum, a hidden layer: the network of Reddi et al. (ICLR 2021)
    without dropout.

    Contexts are (batch, side, side) bytes. Convolutions are products of shifted slices (im2col),
    which stay matrix products under `vmap`; on a CPU the second one, where nearly all the work is,
    goes Winograd's way, which takes 4/9 of the multiplications and on a GPU more than twice the
    time.
    """
    if side < 6 or side % 2:
        raise ValueError(f"the side of an image must be even and at least 6, got {side}. Pad it.")
    one, two = channels
    left = (side - 4) // 2

    def init(key: jax.Array) -> Tree:
        keys = jax.random.split(key, 4)
        return {
            "conv1": _layer(keys[0], 9, one, 9 * one),
            "conv2": _layer(keys[1], 9 * one, two, 9 * two),
            "dense": _layer(keys[2], left * left * two, hidden),
            "out": _layer(keys[3], hidden, arms),
        }

    def scores(params: Tree, contexts: jax.Array) -> jax.Array:
        x = as_floats(contexts)[..., None]
        x = jax.nn.relu(_convolve(x, params["conv1"]))
        x = jax.nn.relu(
            jax.lax.platform_dependent(x, params["conv2"], cpu=_winograd, default=_convolve)
        )
        n, height, width, depth = x.shape
        x = x.reshape(n, height // 2, 2, width // 2, 2, depth).max(axis=(2, 4)).reshape(n, -1)
        x = jax.nn.relu(_apply(x, params["dense"]))
        return _apply(x, params["out"])

    return Model(init, scores)


def as_floats(contexts: jax.Array) -> jax.Array:
    """Return contexts as a model takes them: bytes are fractions of 255."""
    x = contexts.astype(jnp.float32)
    return x / 255.0 if contexts.dtype == jnp.uint8 else x


def _layer(key: jax.Array, inputs: int, outputs: int, reached: int | None = None) -> Layer:
    """Glorot's uniform weights and no bias, as Keras begins; `reached` outputs of an input, those
    of a dense layer.
    """
    limit = (6.0 / (inputs + (outputs if reached is None else reached))) ** 0.5
    return {
        "w": jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit),
        "b": jnp.zeros(outputs),
    }


def _apply(x: jax.Array, layer: Layer) -> jax.Array:
    return x @ layer["w"] + layer["b"]


def _convolve(x: jax.Array, layer: Layer) -> jax.Array:
    """A 3x3 convolution without padding: nine shifted slices side by side, and one product."""
    height, width = x.shape[1] - 2, x.shape[2] - 2
    patches = [x[:, i : i + height, j : j + width, :] for i in range(3) for j in range(3)]
    flat = jnp.concatenate(patches, axis=-1).reshape(-1, 9 * x.shape[-1])
    return _apply(flat, layer).reshape(x.shape[0], height, width, -1)


_TAPS = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))


def _winograd(x: jax.Array, layer: Layer) -> jax.Array:
    """A 3x3 convolution without padding of images with even sides: F(2x2, 3x3).

    Of every 4x4 tile d come the 2x2 outputs A^T ((G g G^T) * (B^T d B)) A: sixteen products over
    channels where there were thirty-six. Lavin, Gray: Fast algorithms for convolutional neural
    networks, CVPR 2016.
    """
    n, height, width, channels = x.shape
    high, wide = height // 2 - 1, width // 2 - 1
    taps = jnp.asarray(_TAPS)
    kernels = jnp.einsum("ia,jb,abco->ijco", taps, taps, layer["w"].reshape(3, 3, channels, -1))
    tiles = [[x[:, i : i + 2 * high : 2, j : j + 2 * wide : 2] for j in range(4)] for i in range(4)]
    columns = [_tile(*(row[j] for row in tiles)) for j in range(4)]
    inputs = [_tile(*(column[i] for column in columns)) for i in range(4)]
    products = [
        [inputs[i][j].reshape(-1, channels) @ kernels[i, j] for j in range(4)] for i in range(4)
    ]
    halves = [_outputs(*(row[j] for row in products)) for j in range(4)]
    pixels = [jnp.stack(_outputs(*(halves[j][i] for j in range(4))), axis=1) for i in range(2)]
    out = jnp.stack(pixels, axis=1).reshape(n, high, wide, 2, 2, -1).transpose(0, 1, 3, 2, 4, 5)
    return out.reshape(n, 2 * high, 2 * wide, -1) + layer["b"]


def _tile(
    a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """B^T of a column."""
    return a - c, b + c, c - b, b - d


def _outputs(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A^T of a column."""
    return a + b + c, b - c - d


# Trees --------------------------------------------------------------------------------------------


def add(one: Tree, other: Tree) -> Tree:
    """Add trees of one shape."""
    return jax.tree.map(jnp.add, one, other)


def subtract(one: Tree, other: Tree) -> Tree:
    """Subtract trees of one shape."""
    return jax.tree.map(jnp.subtract, one, other)


def scale(tree: Tree, factor: Number) -> Tree:
    """Multiply every number."""
    return jax.tree.map(lambda leaf: leaf * factor, tree)


def norm(tree: Tree) -> jax.Array:
    """Return the Euclidean norm of all numbers together."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def normals(tree: Tree, key: jax.Array) -> Tree:
    """Return standard normal numbers in the shape of a tree."""
    leaves, shape = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    words = (
        jax.random.bits(one, (3, *leaf.shape), jnp.uint32)
        for one, leaf in zip(keys, leaves, strict=True)
    )
    return jax.tree.unflatten(shape, [normal_of(*three) for three in words])


def normal_of(high: jax.Array, low: jax.Array, turn: jax.Array) -> jax.Array:
    """Turn three words of 32 bits into a standard normal number (Box and Muller), fine near 0 and
    far out.

    The first 64 bits are the share of normal pairs that lie further out, the last 32 the angle.
    JAX's own normal numbers come from 23 bits and end at 5.42; these end at 9.5.

    >>> [
    ...     round(float(normal_of(*jnp.array([high, 0, 1 << 31], jnp.uint32))), 3)
    ...     for high in (0, 1 << 31)
    ... ]
    [-9.493, -0.0]
    """
    share = (high & 0x7FFFFFFF).astype(jnp.float32) * 2.0**-32 + (
        low.astype(jnp.float32) + 0.5
    ) * 2.0**-64
    waited = jnp.where(high >> 31, -jnp.log1p(-share), -jnp.log(share))
    quarter = jax.lax.bitcast_convert_type(turn, jnp.int32).astype(jnp.float32) * (
        jnp.pi * 2.0**-32
    )
    return jnp.sqrt(2.0 * waited) * jnp.sin(quarter)


def shape_of(model: Model) -> Tree:
    """Return the shapes of a model's parameters, without making them."""
    return jax.eval_shape(model.init, jax.random.key(0))


def size_of(model: Model) -> int:
    """Count the numbers of a model, without making them."""
    return sum(int(leaf.size) for leaf in jax.tree.leaves(shape_of(model)))


def leaves_of(tree: Tree) -> Leaves:
    """Return the arrays of a tree."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def tree_of(leaves: Sequence[Array], like: Tree) -> Tree:
    """Return the tree of some arrays; raise if they are those of another model."""
    expected = [tuple(leaf.shape) for leaf in jax.tree.leaves(like)]
    shapes = [leaf.shape for leaf in leaves]
    if shapes != expected:
        raise ProtocolError(
            f"expected arrays of shapes {expected}, got {shapes}. Both ends need the same model."
        )
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


# Files --------------------------------------------------------------------------------------------

HEADER = "run.json"
"""Beside kept states: what they are of."""


def write_arrays(path: Path, *leaves: Array, **named: NDArray[np.generic]) -> None:
    """Write arrays to one .npz file, which appears whole or not at all."""
    with open_whole(path) as file:
        np.savez(file, *map(np.asarray, leaves), allow_pickle=False, **named)


def write_model(
    path: Path,
    params: Tree,
    rounds: int,
    arms: Sequence[str] = (),
    scale: float | Sequence[float] = 1.0,
    features: Sequence[str] = (),
    shift: Sequence[float] = (),
) -> None:
    """Write a model and its rounds; names of arms and features, and what contexts are divided by,
    if known.

    With `shift` contexts are scaled by feature: (x - shift) / scale.
    """
    leaves = {f"leaf{at}": leaf for at, leaf in enumerate(leaves_of(params))}
    known = {"arms": np.array(list(arms)), "scale": np.array(scale)} if arms else {}
    known |= {"features": np.array(list(features))} if features else {}
    known |= {"shift": np.array(list(shift))} if len(shift) else {}
    write_arrays(path, deployment=np.array(rounds), **leaves, **known)


def read_model(path: Path, count: int, scaling: str = "") -> Leaves:
    """Read the `count` arrays of a model: as `write_model` wrote them, or as they begin a kept
    state.

    `scaling` is the fingerprint of the constants by which devices scale contexts (`Scaling`); a
    model that learnt from contexts that were scaled otherwise is refused.
    """
    with np.load(path, allow_pickle=False) as found:
        model = [name for name in found.files if name.startswith("leaf")]
        beside = path.parent / HEADER
        header = (
            json.loads(beside.read_text(encoding="utf-8")) if not model and beside.is_file() else {}
        )
        learnt_from = ""
        if "shift" in found.files:
            learnt_from = Scaling.of(found["shift"], found["scale"]).fingerprint
        elif "scaling" in header.get("population", {}):
            learnt_from = Scaling(**header["population"]["scaling"]).fingerprint
        if learnt_from and learnt_from != scaling:
            raise ValueError(
                "it takes contexts that are scaled by feature: set scaling = "
                f'"{learnt_from}" of the run, and scaling in the configuration of every device'
            )
        names = (
            [f"leaf{at}" for at in range(len(model))]
            if model
            else [f"arr_{at}" for at in range(count)]
        )
        return [found[name] for name in names]
