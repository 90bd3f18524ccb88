"""Compilation of the numeric functions: one source, three ways to call it.

`@elementary` compiles a scalar function; its `.py_func` is the same source in plain Python. `specialise` makes a kernel
for one policy. Machine code is kept on disk under a key that holds the digest of every source file the numbers depend
on: numba by itself looks at one file only, and would answer from an old cache when a function called from it changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache

R = TypeVar("R")


@cache
def source_digest() -> str:
    """Digest of the sources that compiled numbers depend on."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for name in ("core", "policies", "problems", "privacy", "protocols"):
        for path in sorted((package / name).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


class _DigestCache(FunctionCache):
    """numba's cache on disk, with more in its key."""

    def __init__(self, function: Callable[..., Any], key: str) -> None:
        super().__init__(function)
        self._posse_key = key

    def _index_key(self, sig: object, codegen: object) -> tuple[object, ...]:
        return (*super()._index_key(sig, codegen), self._posse_key)


def _keep(dispatcher: Any, name: str) -> None:
    """Keep the machine code of a compiled function on disk, where there is a place for it."""
    try:
        dispatcher._cache = _DigestCache(dispatcher.py_func, f"{name} {source_digest()}")
    except RuntimeError:  # no folder can be written: compile every time
        return


def elementary(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a scalar function made of + - * / and sqrt; no fast-math, so that every path gives the same bits."""
    compiled = numba.njit(function)
    _keep(compiled, function.__qualname__)
    return cast("Callable[..., R]", compiled)


def specialise(
    template: Callable[..., Any], functions: dict[str, Callable[..., Any]], *, name: str | None, parallel: bool = False
) -> Callable[..., Any]:
    """Compile `template` with the global names in `functions` bound to these compiled functions.

    `name` identifies `functions` in the cache; without it nothing is kept, which is right for a user's own functions.
    """
    names = {**template.__globals__, **functions}
    bound = FunctionType(template.__code__, names, template.__name__, template.__defaults__, template.__closure__)
    bound.__qualname__ = template.__qualname__
    bound.__module__ = template.__module__
    compiled = numba.njit(parallel=parallel)(bound)
    if name is not None:
        _keep(compiled, name)
    return cast("Callable[..., Any]", compiled)


def compile_user(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function a user wrote, unless it is compiled already."""
    return function if hasattr(function, "py_func") else cast("Callable[..., Any]", numba.njit(function))
