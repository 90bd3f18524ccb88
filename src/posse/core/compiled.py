"""Compilation of the numeric functions: one source, three ways to call it.

`@elementary` compiles a scalar function; its `.py_func` is the same source in plain Python. `specialise` makes a kernel
for one policy. Machine code is kept on disk under a key that holds the digest of every source file the numbers depend
on: numba by itself looks at one file only, and would answer from an old cache when a function called from it changed.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

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


class _Files:
    """Machine code on disk, one file a compiled function and signature, each written whole.

    numba's own index numbers the files of a function: two processes that compile at the same time can give two
    signatures the same number, and then one of them loads the other's code.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / f"posse-{source_digest()[:16]}"
        self._name = name

    def _path(self, key: object) -> Path:
        return self._folder / hashlib.sha256(f"{self._name} {key!r} {source_digest()}".encode()).hexdigest()

    def load(self, key: object) -> object:
        """Return what was saved under a key, or None."""
        try:
            return pickle.loads(self._path(key).read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def save(self, key: object, data: object) -> None:
        """Save under a key; a disk that cannot be written costs compiling again, nothing else."""
        path = self._path(key)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            whole = path.with_name(f"{path.name}.{os.getpid()}")
            whole.write_bytes(dumps(data))
            whole.replace(path)
        except OSError:
            return


def _keep(dispatcher: Any, name: str) -> None:
    """Keep the machine code of a compiled function on disk, where there is a place for it."""
    try:
        kept = FunctionCache(dispatcher.py_func)
    except RuntimeError:  # no folder can be written: compile every time
        return
    kept._cache_file = _Files(Path(kept.cache_path), name)  # type: ignore[assignment]
    dispatcher._cache = kept


def elementary(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a scalar function made of + - * / and sqrt; no fast-math, so that every path gives the same bits."""
    return _compiled(function)


def loops(function: Callable[..., R]) -> Callable[..., R]:
    """Compile loops over arrays under the rules of `elementary`, to run outside the interpreter's lock.

    A division by zero gives infinity or NaN as in numpy, and no error: a test before every division would keep the
    compiler from working on several numbers at once. Guard divisors.
    """
    return _compiled(function, error_model="numpy", nogil=True)


def _compiled(function: Callable[..., R], **options: Any) -> Callable[..., R]:
    compiled = numba.njit(**options)(function)
    _keep(compiled, f"{function.__module__}.{function.__qualname__}")
    return cast("Callable[..., R]", compiled)


def specialise(
    template: Callable[..., Any],
    functions: dict[str, Callable[..., Any]],
    *,
    name: str,
    keep: bool,
    parallel: bool = False,
) -> Callable[..., Any]:
    """Compile `template` with the global names in `functions` bound to these compiled functions.

    `name` identifies `functions`. It becomes part of the function's own name, for compiled code is linked by name: two
    kernels of one name in a process could otherwise call each other's functions. `keep` the machine code on disk only
    if `name` and the sources of the package tell all there is to know: not for functions that a user wrote.
    """
    names = {**template.__globals__, **functions}
    bound = FunctionType(template.__code__, names, template.__name__, template.__defaults__, template.__closure__)
    bound.__qualname__ = bound.__name__ = re.sub(r"\W", "_", f"{template.__name__}__{name}")
    bound.__module__ = template.__module__
    compiled = numba.njit(parallel=parallel)(bound)
    if keep:
        _keep(compiled, f"{template.__module__}.{bound.__name__}")
    return cast("Callable[..., Any]", compiled)


def compile_user(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function a user wrote, unless it is compiled already."""
    return function if hasattr(function, "py_func") else cast("Callable[..., Any]", numba.njit(function))
