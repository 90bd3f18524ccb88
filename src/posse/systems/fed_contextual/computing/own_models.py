"""Custom models: what `module:function` returns, as a `Model`.

The function takes the shape of one context and the number of arms, and returns one of

| value | meaning |
|---|---|
| a pair (init, apply), or a `Model` | parameters from a key, and scores from parameters and contexts |
| a torch.nn module | its parameters as it was made; forward and backward are PyTorch's |

Contexts come as 32-bit floats, bytes of images as fractions of 255; in a fleet their shape is
(features,). `examples/flax_model.py` and `examples/equinox_model.py` show the pair of a module of
flax and of equinox. A torch.nn module is tried on three contexts, with a step down the loss; every
parameter must move its scores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posse.core.errors import ConfigError, PosseError
from posse.policies.own import explain, load
from posse.systems.fed_contextual.computing.models import Contexts, Model, Number, Tree, as_floats

_struct: Callable[..., Any] = jax.ShapeDtypeStruct


@lru_cache(maxsize=8)
def named(where: str, shape: tuple[int, ...], arms: int) -> Model:
    """Return the model that `module:function` makes for contexts of a shape; one object for the
    same three.
    """
    build = load(where, "function", callable)
    if not callable(build):
        raise ConfigError(
            f"{where} must be a function of (shape, arms) that returns a model, got {build!r}."
        )
    try:
        made = build(shape, arms)
    except PosseError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{where} failed for shape {shape} and {arms} arms: {explain(error)}."
        ) from error
    return adapted(made, shape, arms)


def adapted(given: Any, shape: tuple[int, ...], arms: int) -> Model:
    """Make a model of what a user gave, and check that it scores every arm."""
    made = _made(given, shape, arms)
    some = _struct((3, *shape), jnp.float32)
    try:
        params = jax.eval_shape(made.init, jax.random.key(0))
        scores = jax.eval_shape(made.scores, params, some)
    except PosseError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the model fails on contexts of shape (3, {_shown(shape)}): {explain(error)}."
        ) from error
    _check_scores(scores, arms)
    kinds = {str(leaf.dtype) for leaf in jax.tree.leaves(params)}
    if kinds != {"float32"}:
        raise ConfigError(
            f"parameters must be float32, got {', '.join(sorted(kinds)) or 'none'}. Convert them."
        )
    return made


def _made(given: Any, shape: tuple[int, ...], arms: int) -> Model:
    if isinstance(given, Model):
        return given
    if isinstance(given, tuple) and len(given) == 2 and all(callable(one) for one in given):
        init, apply = given
        return Model(init, lambda params, contexts: apply(params, _numbers(contexts, shape)))
    torch = sys.modules.get("torch.nn")
    if torch is not None and isinstance(given, torch.Module):
        return _torch(given, shape, arms)
    raise ConfigError(
        "a model must be a pair of functions (init, apply) or a module of PyTorch, got "
        f"{type(given).__name__}. Give both functions: examples/flax_model.py and "
        "examples/equinox_model.py show those of other libraries."
    )


def _numbers(contexts: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return contexts as the model was made for: floats of a shape."""
    return as_floats(contexts).reshape(contexts.shape[0], *shape)


def _torch(module: Any, shape: tuple[int, ...], arms: int) -> Model:
    """Take a torch.nn module: JAX calls it for scores and for every step, and clips, rounds and
    adds as ever.
    """
    import torch

    if any(isinstance(one, torch.nn.modules.batchnorm._BatchNorm) for one in module.modules()):
        raise ConfigError(
            "a model must not keep statistics of batches (BatchNorm): they would leave a "
            "device without clipping. Use GroupNorm or LayerNorm."
        )
    if any(True for _ in module.buffers()):
        raise ConfigError(
            "a model of PyTorch must have parameters alone, got buffers. Make them constants."
        )
    module.eval()  # no dropout: devices and server must mean the same function
    own = dict(module.named_parameters())
    names, like = tuple(own), [_struct(tuple(one.shape), np.float32) for one in own.values()]
    first = [one.detach().numpy().astype(np.float32) for one in own.values()]

    def scored(values: Any, x: Any) -> Any:
        given = {name: torch.tensor(np.array(one)) for name, one in zip(names, values, strict=True)}
        return torch.func.functional_call(module, given, (torch.tensor(np.array(x)),)), given

    def forward(values: Any, x: Any) -> Any:
        with torch.no_grad():
            return scored(values, x)[0].numpy().astype(np.float32)

    def down(loss: Callable[..., Any]) -> Callable[..., Any]:
        def step(values: Any, x: Any, *rest: Any) -> Any:
            *batch, rate = (torch.tensor(np.array(one)) for one in rest)
            given = {
                name: torch.tensor(np.array(v), requires_grad=True)
                for name, v in zip(names, values, strict=True)
            }
            found = loss(
                torch.func.functional_call(module, given, (torch.tensor(np.array(x)),)), *batch
            )
            slopes = torch.autograd.grad(found, list(given.values()), allow_unused=True)
            unused = [name for name, slope in zip(names, slopes, strict=True) if slope is None]
            if unused:
                raise ConfigError(
                    "every parameter of a model must affect its scores, and these do not: "
                    f"{', '.join(unused)}. Remove them."
                )
            return [
                (v.detach() - rate * s).numpy() for v, s in zip(given.values(), slopes, strict=True)
            ]

        return step

    one_arm = down(
        lambda f, arms, r, w: (w * (f.gather(1, arms.long()[:, None])[:, 0] - r) ** 2).sum()
    )
    all_arms = down(lambda f, r, w: (w * (f - r) ** 2).sum())
    _tried(forward, all_arms, first, shape, arms)

    def call(function: Any, shapes: Any, *values: Any) -> Any:
        return jax.pure_callback(function, shapes, *values, vmap_method="sequential")

    def scores(params: Tree, contexts: Contexts) -> jax.Array:
        x = _numbers(contexts, shape)
        given: jax.Array = call(forward, _struct((x.shape[0], arms), np.float32), params, x)
        return given

    def descend(
        p: Tree,
        x: Contexts,
        chosen: jax.Array,
        rewards: jax.Array,
        weights: jax.Array,
        rate: Number,
    ) -> Tree:
        return call(
            one_arm, like, p, _numbers(x, shape), chosen, rewards, weights, jnp.float32(rate)
        )

    def descend_all(
        p: Tree, x: Contexts, rewards: jax.Array, weights: jax.Array, rate: Number
    ) -> Tree:
        return call(all_arms, like, p, _numbers(x, shape), rewards, weights, jnp.float32(rate))

    return Model(lambda key: list(map(jnp.asarray, first)), scores, descend, descend_all)


def _tried(forward: Any, step: Any, params: list[Any], shape: tuple[int, ...], arms: int) -> None:
    """Score three contexts and take a step: JAX supposes the shapes of what PyTorch gives, and does
    not see them.
    """
    some, each, nothing = (np.zeros(size, np.float32) for size in ((3, *shape), (3, arms), ()))
    try:
        found = forward(params, some)
        if found.shape == each.shape:
            step(params, some, each, each, nothing)
    except PosseError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the model fails on contexts of shape (3, {_shown(shape)}): {explain(error)}."
        ) from error
    _check_scores(found, arms)


def _check_scores(scores: Any, arms: int) -> None:
    got = getattr(scores, "shape", scores)
    if got != (3, arms):
        raise ConfigError(
            f"a model must give scores of shape (3, {arms}), contexts x arms, got {got}. Correct "
            "it."
        )


def _shown(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))
