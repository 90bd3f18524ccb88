"""Reward models: a pair of functions, parameters from a key and scores of all arms from a batch of contexts.

A user's own model is such a pair. `scores` must not depend on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from posse.protocols.fed_contextual.trees import Number, Tree

Contexts: TypeAlias = Any
"""An array (batch, ...), or a pytree of such."""
Descend = Callable[[Tree, Contexts, jax.Array, jax.Array, jax.Array, Number], Tree]
"""New parameters from parameters, contexts, arms, rewards, weights and a rate: one step down the gradient of the sum of
weight (predicted - reward)^2."""
DescendAll = Callable[[Tree, Contexts, jax.Array, jax.Array, Number], Tree]
"""The same where all arms' rewards are known: parameters, contexts, (batch, arms) rewards and weights, a rate."""


class Model(NamedTuple):
    """A reward model."""

    init: Callable[[jax.Array], Tree]
    """Parameters from a key."""
    scores: Callable[[Tree, Contexts], jax.Array]
    """(batch, arms) predicted rewards from parameters and (batch, ...) contexts."""
    descend: Descend | None = None
    """A step of gradient descent where there is a cheaper way than through `scores`; the same numbers to rounding."""
    descend_all: DescendAll | None = None
    """The same for a supervised step."""


def linear(features: int, arms: int) -> Model:
    """A linear model of flat features: x W + b, from zeros. Bytes are taken as fractions of 255."""

    def init(key: jax.Array) -> Tree:
        return {"w": jnp.zeros((features, arms)), "b": jnp.zeros(arms)}

    def scores(params: Tree, contexts: jax.Array) -> jax.Array:
        flat = _floats(contexts.reshape(contexts.shape[0], -1))
        return _apply(flat, params)

    return Model(init, scores)


def bag_of_words(words: int, arms: int) -> Model:
    """A linear model of bags of words: the weighted sum of W's rows of the words in a text, plus b, from zeros.

    Contexts are a pair: word numbers and weights, (batch, words of a text) each, of weight 0 in the padding. One arm's
    score touches one column of the rows of its words, so that a training step gathers and scatters these numbers alone
    (element-sparse), and a supervised one these rows.
    """

    def init(key: jax.Array) -> Tree:
        return {"w": jnp.zeros((words, arms)), "b": jnp.zeros(arms)}

    def scores(params: Tree, contexts: Contexts) -> jax.Array:
        numbers, share = contexts
        scored: jax.Array = jnp.einsum("nw,nwk->nk", share, params["w"][numbers]) + params["b"]
        return scored

    def descend(
        params: Tree, contexts: Contexts, arms_: jax.Array, rewards: jax.Array, weights: jax.Array, rate: Number
    ) -> Tree:
        numbers, share = contexts
        at = (numbers, arms_[:, None])
        predicted = (share * params["w"][at]).sum(axis=-1) + params["b"][arms_]
        slope = -2 * rate * weights * (predicted - rewards)
        return {"w": params["w"].at[at].add(slope[:, None] * share), "b": params["b"].at[arms_].add(slope)}

    def descend_all(params: Tree, contexts: Contexts, rewards: jax.Array, weights: jax.Array, rate: Number) -> Tree:
        numbers, share = contexts
        slope = -2 * rate * weights * (scores(params, contexts) - rewards)
        moved = params["w"].at[numbers].add(share[..., None] * slope[:, None, :])
        return {"w": moved, "b": params["b"] + slope.sum(axis=0)}

    return Model(init, scores, descend, descend_all)


def cnn(arms: int, side: int = 28, hidden: int = 128, channels: tuple[int, int] = (32, 64)) -> Model:
    """Two 3x3 convolutions, a 2x2 maximum, a hidden layer: the network of Reddi et al. (ICLR 2021) without dropout.

    Contexts are (batch, side, side) bytes. Convolutions are products of shifted slices (im2col), which stay matrix
    products under `vmap`; on a CPU the second one, where nearly all the work is, goes Winograd's way, which takes 4/9
    of the multiplications and on a GPU more than twice the time.
    """
    if side < 6 or side % 2:
        raise ValueError(f"the side of an image must be even and at least 6, got {side}. Pad it.")
    one, two = channels
    left = (side - 4) // 2

    def init(key: jax.Array) -> Tree:
        keys = jax.random.split(key, 4)
        return {
            "conv1": _layer(keys[0], 9, one, 9 * one), "conv2": _layer(keys[1], 9 * one, two, 9 * two),
            "dense": _layer(keys[2], left * left * two, hidden), "out": _layer(keys[3], hidden, arms),
        }  # fmt: skip

    def scores(params: Tree, contexts: jax.Array) -> jax.Array:
        x = _floats(contexts)[..., None]
        x = jax.nn.relu(_convolve(x, params["conv1"]))
        x = jax.nn.relu(jax.lax.platform_dependent(x, params["conv2"], cpu=_winograd, default=_convolve))
        n, height, width, depth = x.shape
        x = x.reshape(n, height // 2, 2, width // 2, 2, depth).max(axis=(2, 4)).reshape(n, -1)
        x = jax.nn.relu(_apply(x, params["dense"]))
        return _apply(x, params["out"])

    return Model(init, scores)


def _floats(contexts: jax.Array) -> jax.Array:
    x = contexts.astype(jnp.float32)
    return x / 255.0 if contexts.dtype == jnp.uint8 else x


def _layer(key: jax.Array, inputs: int, outputs: int, reached: int | None = None) -> Tree:
    """Glorot's uniform weights and no bias, as Keras begins; `reached` outputs of an input, those of a dense layer."""
    limit = (6.0 / (inputs + (outputs if reached is None else reached))) ** 0.5
    return {"w": jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit), "b": jnp.zeros(outputs)}


def _apply(x: jax.Array, layer: Tree) -> jax.Array:
    applied: jax.Array = x @ layer["w"] + layer["b"]
    return applied


def _convolve(x: jax.Array, layer: Tree) -> jax.Array:
    """A 3x3 convolution without padding: nine shifted slices side by side, and one product."""
    height, width = x.shape[1] - 2, x.shape[2] - 2
    patches = [x[:, i : i + height, j : j + width, :] for i in range(3) for j in range(3)]
    flat = jnp.concatenate(patches, axis=-1).reshape(-1, 9 * x.shape[-1])
    return _apply(flat, layer).reshape(x.shape[0], height, width, -1)


_TAPS = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))


def _winograd(x: jax.Array, layer: Tree) -> jax.Array:
    """A 3x3 convolution without padding of images with even sides: F(2x2, 3x3).

    Of every 4x4 tile d come the 2x2 outputs A^T ((G g G^T) * (B^T d B)) A: sixteen products over channels where there
    were thirty-six. Lavin, Gray: Fast algorithms for convolutional neural networks, CVPR 2016.
    """
    n, height, width, channels = x.shape
    high, wide = height // 2 - 1, width // 2 - 1
    taps = jnp.asarray(_TAPS)
    kernels = jnp.einsum("ia,jb,abco->ijco", taps, taps, layer["w"].reshape(3, 3, channels, -1))
    tiles = [[x[:, i : i + 2 * high : 2, j : j + 2 * wide : 2] for j in range(4)] for i in range(4)]
    columns = [_tile(*(row[j] for row in tiles)) for j in range(4)]
    inputs = [_tile(*(column[i] for column in columns)) for i in range(4)]
    products = [[inputs[i][j].reshape(-1, channels) @ kernels[i, j] for j in range(4)] for i in range(4)]
    halves = [_outputs(*(row[j] for row in products)) for j in range(4)]
    pixels = [jnp.stack(_outputs(*(halves[j][i] for j in range(4))), axis=1) for i in range(2)]
    out = jnp.stack(pixels, axis=1).reshape(n, high, wide, 2, 2, -1).transpose(0, 1, 3, 2, 4, 5)
    convolved: jax.Array = out.reshape(n, 2 * high, 2 * wide, -1) + layer["b"]
    return convolved


def _tile(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """B^T of a column."""
    return a - c, b + c, c - b, b - d


def _outputs(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A^T of a column."""
    return a + b + c, b - c - d
