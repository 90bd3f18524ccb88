"""Compilation of the numeric functions: one source, three ways to call it.

`@elementary` compiles a scalar function; its `.py_func` is the same source in plain Python. `specialise` makes a kernel
for one policy. Machine code is kept on disk under a key that holds the digest of every source file the function depends
on: numba by itself looks at one file only, and would answer from an old cache when a function called from it changed.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from posse.core.interrupts import held

R = TypeVar("R")


_IMPORT = re.compile(r"^\s*(?:from\s+(posse[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+(posse[\w.]*))", re.MULTILINE)


def source_digest(*modules: str) -> str:
    """Digest of the sources that numbers compiled in these modules depend on: theirs, and all that they import."""
    digest = hashlib.sha256()
    for path in sorted(_sources(frozenset(modules))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _sources(modules: frozenset[str]) -> frozenset[Path]:
    """Files of the package that these modules consist of and import, directly or not."""
    found: dict[Path, None] = {}
    waiting = [path for module in modules for path in _files(module)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = None
            waiting.extend(_imported(path))
    return frozenset(found)


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    named: list[str] = []
    for source, names, module in _IMPORT.findall(path.read_text(encoding="utf-8")):
        named.append(source or module)
        named.extend(f"{source}.{name}" for name in re.findall(r"\w+", names) if source)
    return tuple(file for name in named for file in _files(name))


def _files(module: str) -> tuple[Path, ...]:
    """The source of a module of this package, or nothing where the name is not one."""
    package = Path(__file__).resolve().parents[1]
    first, *rest = module.split(".")
    place = package.joinpath(*rest)
    candidates = (place.with_suffix(".py"), place / "__init__.py") if first == package.name and rest else ()
    return tuple(path for path in candidates if path.is_file())


class _Files:
    """Machine code on disk, one file a compiled function and signature, each written whole.

    numba's own index numbers the files of a function: two processes that compile at the same time can give two
    signatures the same number, and then one of them loads the other's code.
    """

    def __init__(self, folder: Path, name: str, modules: tuple[str, ...]) -> None:
        self._folder = folder / "posse-compiled"
        self._name, self._modules = name, modules

    @cached_property
    def _digest(self) -> str:
        return source_digest(*self._modules)

    def _path(self, key: object) -> Path:
        return self._folder / hashlib.sha256(f"{self._name} {key!r} {self._digest}".encode()).hexdigest()

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


def _keep(dispatcher: Any, name: str, *modules: str) -> None:
    """Keep the machine code of a compiled function on disk, where there is a place for it.

    Not where one of its modules lies outside the package: what that one imports is not known here.
    """
    if not all(_files(module) for module in modules):
        return
    try:
        kept = FunctionCache(dispatcher.py_func)
    except RuntimeError:  # no folder can be written: compile every time
        return
    kept._cache_file = _Files(Path(kept.cache_path), name, modules)  # type: ignore[assignment]
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
    _keep(compiled, f"{function.__module__}.{function.__qualname__}", function.__module__)
    return cast("Callable[..., R]", compiled)


def specialise(
    template: Callable[..., Any],
    functions: dict[str, Callable[..., Any]],
    *,
    name: str,
    keep: bool,
) -> Callable[..., Any]:
    """Compile `template` with the global names in `functions` bound to these compiled functions, to run in threads.

    `name` identifies `functions`. It becomes part of the function's own name, for compiled code is linked by name: two
    kernels of one name in a process could otherwise call each other's functions. `keep` the machine code on disk only
    if `name` and the sources of the package tell all there is to know: not for functions that a user wrote.
    """
    names = {**template.__globals__, **functions}
    bound = FunctionType(template.__code__, names, template.__name__, template.__defaults__, template.__closure__)
    bound.__qualname__ = bound.__name__ = re.sub(r"\W", "_", f"{template.__name__}__{name}")
    bound.__module__ = template.__module__
    compiled = numba.njit(nogil=True)(bound)
    if keep:
        used = (getattr(function, "py_func", function).__module__ for function in functions.values())
        _keep(compiled, f"{template.__module__}.{bound.__name__}", template.__module__, *used)
    return cast("Callable[..., Any]", compiled)


def compile_user(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function a user wrote, unless it is compiled already."""
    return function if hasattr(function, "py_func") else cast("Callable[..., Any]", numba.njit(function))


def side_by_side(play: Callable[[slice], None], runs: int) -> None:
    """Call a function that computes outside the interpreter's lock with slices of the runs, one in every thread.

    Ctrl-C waits for all of them, so that no run is left behind the others.
    """
    parts = min(runs, numba.get_num_threads())
    cuts = [slice(part * runs // parts, (part + 1) * runs // parts) for part in range(parts)]
    with held(), ThreadPoolExecutor(parts) as pool:
        for played in [pool.submit(play, cut) for cut in cuts]:
            played.result()
