from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posse.systems.fed_contextual.computing import client
from posse.systems.fed_contextual.computing.client import Log, act
from posse.systems.fed_contextual.computing.models import (
    Model,
    _convolve,
    _winograd,
    bag_of_words,
    cnn,
    linear,
)
from posse.systems.fed_contextual.computing.tasks import greedy
from tests.systems.fed_contextual.toys import close

Convolution = Callable[[jax.Array, dict[str, jax.Array]], jax.Array]
WORDS, ARMS, WIDTH = 30, 5, 4
learn = jax.jit(client.learn, static_argnames=("model", "batch", "loss", "alone"))
study = jax.jit(client.study, static_argnames=("model", "pay_all", "batch", "alone"))


def bags(samples: int, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, WORDS, (samples, WIDTH)).astype(
        np.int32
    )  # a word may come twice in a text
    weights = rng.random((samples, WIDTH)).astype(np.float32) * (rng.random((samples, WIDTH)) < 0.8)
    return jnp.asarray(numbers), jnp.asarray(weights)


def drawn_params(seed: int = 0) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)
    return {
        "w": jnp.asarray(rng.normal(size=(WORDS, ARMS)), jnp.float32),
        "b": jnp.asarray(rng.normal(size=ARMS), jnp.float32),
    }


def test_sparse_step_is_the_step_down_the_dense_gradient() -> None:
    model, params, contexts = bag_of_words(WORDS, ARMS), drawn_params(), bags(16)
    rng = np.random.default_rng(1)
    arms, rewards = jnp.asarray(rng.integers(0, ARMS, 16)), jnp.asarray(rng.random(16), jnp.float32)
    weights = jnp.asarray(rng.random(16), jnp.float32)

    def loss(now: dict[str, jax.Array]) -> jax.Array:
        dense = jnp.zeros((16, WORDS)).at[jnp.arange(16)[:, None], contexts[0]].add(contexts[1])
        predicted = (dense @ now["w"] + now["b"])[jnp.arange(16), arms]
        return (weights * (predicted - rewards) ** 2).sum()

    expected = jax.tree.map(
        lambda leaf, slope: leaf - 0.3 * slope, params, jax.jit(jax.grad(loss))(params)
    )
    assert model.descend is not None
    close(jax.jit(model.descend)(params, contexts, arms, rewards, weights, 0.3), expected)


@pytest.mark.parametrize("loss", ["regression", "importance"])
def test_a_whole_epoch_is_alike_sparse_and_dense(loss: str) -> None:
    sparse = bag_of_words(WORDS, ARMS)
    dense = Model(sparse.init, sparse.scores)
    rng = np.random.default_rng(2)
    log = Log(
        bags(40),
        jnp.asarray(rng.integers(0, ARMS, 40)),
        jnp.asarray(rng.random(40), jnp.float32),
        jnp.asarray(rng.uniform(0.1, 1, 40), jnp.float32),
        jnp.asarray(np.arange(40) < 37, jnp.float32),
    )
    key = jax.random.key(5)
    one, other = (
        learn(model, drawn_params(), log, 0.2, key, loss=loss) for model in (sparse, dense)
    )
    close(one, other)
    assert np.abs(np.asarray(one["w"])).max() > 0.01


def test_a_supervised_epoch_is_alike_sparse_and_dense() -> None:
    sparse = bag_of_words(WORDS, ARMS)
    dense = Model(sparse.init, sparse.scores)
    labels = jnp.asarray(np.random.default_rng(4).integers(0, ARMS, 40))
    mask, key, seen = (
        (jnp.arange(40) < 33).astype(jnp.float32),
        jax.random.key(6),
        jnp.asarray([1, 1, 0, 1, 0]),
    )
    one, other = (
        study(
            model,
            drawn_params(),
            lambda y: jnp.eye(ARMS)[y],
            bags(40),
            labels,
            mask,
            0.4,
            key,
            seen=seen,
        )
        for model in (sparse, dense)
    )
    close(one, other)
    assert not np.asarray(one["w"])[:, [2, 4]].any()  # arms that were not seen do not move


def native(x: jax.Array, layer: dict[str, jax.Array]) -> jax.Array:
    """JAX's own convolution."""
    kernel = layer["w"].reshape(3, 3, x.shape[-1], -1)
    out = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return out + layer["b"]


@pytest.mark.parametrize("convolve", [_convolve, _winograd])
def test_convolutions_are_the_native_ones_and_so_are_their_gradients(convolve: Convolution) -> None:
    rng = np.random.default_rng(0)
    x, w, b, out = (
        rng.normal(size=shape).astype(np.float32)
        for shape in ((2, 8, 6, 3), (27, 4), (4,), (2, 6, 4, 4))
    )

    def both(how: Convolution) -> tuple[jax.Array, object]:
        def against(x: jax.Array, layer: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
            convolved = how(x, layer)
            return (convolved * out).sum(), convolved

        slopes, convolved = jax.jit(jax.grad(against, argnums=(0, 1), has_aux=True))(
            x, {"w": w, "b": b}
        )
        return convolved, slopes

    close(both(convolve), both(native), 1e-5)


def test_the_network_is_the_one_of_native_convolutions() -> None:
    model = cnn(7, side=10, hidden=6, channels=(4, 8))
    params = jax.tree.map(lambda leaf: leaf + 0.01, jax.jit(model.init)(jax.random.key(0)))
    images = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 10, 10)), jnp.uint8)

    def expected(params: dict[str, dict[str, jax.Array]]) -> jax.Array:
        x = images.astype(jnp.float32)[..., None] / 255
        for name in ("conv1", "conv2"):
            x = jax.nn.relu(native(x, params[name]))
        x = jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        ).reshape(len(x), -1)
        x = jax.nn.relu(x @ params["dense"]["w"] + params["dense"]["b"])
        return x @ params["out"]["w"] + params["out"]["b"]

    close(jax.jit(model.scores)(params, images), jax.jit(expected)(params), 1e-5)


def test_the_published_network_has_its_number_of_parameters() -> None:
    shapes = jax.eval_shape(cnn(62).init, jax.random.key(0))
    # 3x3x1x32 + 32, 3x3x32x64 + 64, 9216x128 + 128, 128x62 + 62
    assert sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes)) == 1_206_590


def test_images_that_do_not_halve_are_refused() -> None:
    with pytest.raises(ValueError, match="even and at least 6, got 9"):
        cnn(3, side=9)


def test_bytes_are_fractions_of_255() -> None:
    model = linear(4, 2)
    params = {"w": jnp.ones((4, 2)), "b": jnp.zeros(2)}
    assert model.scores(params, jnp.full((1, 2, 2), 255, jnp.uint8)).tolist() == [[4.0, 4.0]]
    assert model.scores(params, jnp.full((1, 4), 2.0)).tolist() == [[8.0, 8.0]]


def test_a_users_own_pair_of_functions_learns() -> None:
    own = Model(lambda key: jnp.zeros(2), lambda params, x: jnp.outer(x, params))
    contexts, labels = jnp.ones(64), jnp.ones(64, jnp.int32)
    mask = jnp.ones(64)

    def pay(y: jax.Array, arms: jax.Array) -> jax.Array:
        return (arms == y).astype(jnp.float32)

    @jax.jit
    def acted(params: jax.Array, key: jax.Array) -> Log:
        return act(own, params, lambda s: jnp.full_like(s, 0.5), pay, contexts, labels, mask, key)

    params = own.init(jax.random.key(0))
    for round_ in range(3):
        log = acted(params, jax.random.key(round_))
        params = params + learn(own, params, log, 0.3, jax.random.key(round_))
    assert np.allclose(params, [0, 1], atol=0.1)
    assert greedy(own.scores(params, contexts))[0].tolist() == [0, 1]
