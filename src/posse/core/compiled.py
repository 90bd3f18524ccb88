"""Compilation of the numeric functions: one source, three ways to call it.

`@elementary` compiles a scalar function; its `.py_func` is the same source in plain Python. `specialise` makes a kernel
for one policy and keeps its machine code on disk, under a key that holds the digest of every source file the numbers
depend on, so that changed mathematics is never answered from an old cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def elementary(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a scalar function made of + - * / and sqrt; no fast-math, so that every path gives the same bits."""
    return cast("Callable[P, R]", numba.njit(inline="never")(function))


def specialise(
    template: Callable[..., Any], functions: dict[str, Callable[..., Any]], *, tag: str | None, parallel: bool = False
) -> Callable[..., Any]:
    """Compile `template` with the global names in `functions` bound to these compiled functions.

    With a `tag` the machine code is kept on disk. numba's cache key holds the strings a function closes over but not
    the functions it calls; so the template must be a closure over `tag`, which has to identify `functions` and contain
    `source_digest()`. Without a tag nothing is kept: right for functions that a user wrote.
    """
    if tag is not None and tag not in {cell.cell_contents for cell in template.__closure__ or ()}:
        raise TypeError(f"{template.__name__} must close over its tag, or its cache could go stale")
    names = {**template.__globals__, **functions}
    bound = FunctionType(template.__code__, names, template.__name__, template.__defaults__, template.__closure__)
    bound.__qualname__ = template.__qualname__
    bound.__module__ = template.__module__
    return cast("Callable[..., Any]", numba.njit(cache=tag is not None, parallel=parallel)(bound))


@cache
def source_digest() -> str:
    """Digest of the sources that compiled numbers depend on: the whole package, which is small."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for name in ("core", "policies", "problems", "privacy", "protocols"):
        for path in sorted((package / name).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def compile_user(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function a user wrote, unless it is compiled already."""
    return function if hasattr(function, "py_func") else cast("Callable[..., Any]", numba.njit(function))
