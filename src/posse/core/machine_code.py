"""Machine code on disk, in a folder whose name is a digest of the source.

numba can store compiled functions itself, with two faults. It checks only the source file of a
function, so it returns old code after a change in another function that this one calls. And if two
processes save code for different argument types of one function at the same time, each may later
load the code of the other. Here the name of the folder is a digest of everything that the code
depends on, and a lock lets only one process at a time load or compile a function.

This module is imported when something is compiled, because importing numba takes a third of a
second.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache

_CONFIG: Any = numba.config
MAX_WAIT = 120.0
"""Seconds to wait for another process that compiles the same function; then both compile it."""
_POLL_SECONDS = 0.02


def open_cache(function: Callable[..., Any]) -> SourceCache | None:
    """Make the folder for a function's machine code, and return the function's cache.

    Returns None if no folder can be written: then the code is not stored.
    """
    digest = source_digest(function)
    for parent in _cache_folders():
        folder = parent / digest[:32]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return SourceCache(function, folder)
    return None


def _cache_folders() -> list[Path]:
    """Return the folders that may hold machine code; the first that can be written is used."""
    if _CONFIG.CACHE_DIR:  # the environment variable NUMBA_CACHE_DIR
        return [Path(_CONFIG.CACHE_DIR)]
    package = Path(__file__).resolve().parents[1]
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return [package / "__pycache__" / "compiled", user_cache / "posse"]


class SourceCache(FunctionCache):
    """numba's cache of one function, in the folder of one version of the sources.

    numba calls `load_overload` when it needs the code of a *signature*: a combination of argument
    types. If that returns None, numba compiles the code and calls `save_overload`. From the one
    call to the other this process keeps the function's lock, so that no other process compiles and
    saves the function meanwhile. Threads need no lock here: numba holds its own.

    If the disk is full, read-only or damaged, the function is compiled again; there is no error.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        with _use_cache_dir(folder):
            super().__init__(function)
        self._lock_path = Path(self.cache_path) / f"{function.__qualname__}.lock"
        self._lock: int | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the stored code of a signature; None if this process must compile the function.

        If it returns None, this process holds the lock of the function until `save_overload`.
        """
        self._take_lock()
        code = None
        with suppress(OSError):
            try:
                code = super().load_overload(sig, target_context)
            except (EOFError, pickle.UnpicklingError):  # a crash of the machine cut the file off
                self.flush()  # removes the code of all signatures
        if code is not None:
            self._release_lock()
        return code

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the code of a signature and release the lock; without the lock, save nothing."""
        # `load_overload` took the lock, unless it waited too long or the disk cannot be written.
        if self._lock is None:
            return
        try:
            with suppress(OSError):
                super().save_overload(sig, data)
        finally:
            self._release_lock()

    def _take_lock(self) -> None:
        """Take the lock of this function, or continue without it after `MAX_WAIT` seconds."""
        if self._lock is not None:
            return
        try:
            self._lock_path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return
        if _wait_for_lock(lock):
            self._lock = lock
        else:
            os.close(lock)

    def _release_lock(self) -> None:
        """Let other processes work on this function: closing the file releases its lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _wait_for_lock(descriptor: int) -> bool:
    """Lock an open file for this process; return False if that is impossible or takes too long."""
    deadline = monotonic() + MAX_WAIT
    while monotonic() < deadline:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX allows both for a lock that is taken
            sleep(_POLL_SECONDS)
        except OSError:
            return False
        else:
            return True
    return False


@contextmanager
def _use_cache_dir(folder: Path) -> Iterator[None]:
    """Inside the block, new caches of numba store their functions in this folder."""
    previous = _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _CONFIG.CACHE_DIR = previous


# What machine code depends on ---------------------------------------------------------------------


def source_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function's code, the functions it calls and the globals it uses.

    The code is read from memory, because an upgrade may have replaced the files after the import.
    """
    digest = hashlib.sha256()
    waiting = [function]
    done: set[int] = set()
    while waiting:
        current: Any = waiting.pop()
        # A compiled function has its source in `py_func`.
        current = getattr(current, "py_func", current)
        if id(current) in done:
            continue
        done.add(id(current))
        digest.update(repr(_describe_code(current.__code__)).encode())
        for name, value in _used_globals(current):
            digest.update(name.encode())
            if hasattr(value, "py_func") or isinstance(value, FunctionType):
                waiting.append(value)
            else:
                digest.update(repr(_describe(value)).encode())
    return digest.hexdigest()


def _used_globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each global that a function may use.

    If such a global is a module of posse, its attributes that the function may use are yielded too.
    Some of these may not be used. Then a change of them compiles the function again without need.
    """
    # co_names has the names of globals and of attributes, so each name is tried as both.
    names = function.__code__.co_names
    for name in names:
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        yield name, value
        if isinstance(value, ModuleType) and value.__name__.startswith("posse."):
            for attribute in names:
                if hasattr(value, attribute):
                    yield attribute, getattr(value, attribute)


def _describe_code(code: CodeType) -> tuple[object, ...]:
    """Return what differs between two functions that numba compiles to different code."""
    constants = [_describe(constant) for constant in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, constants


def _describe(value: object) -> object:
    """Return an object whose `repr` is the same in every process, and differs if `value` does."""
    if isinstance(value, CodeType):
        return _describe_code(value)
    if isinstance(value, tuple):
        return [_describe(each) for each in value]
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, type):
        return value.__name__, getattr(value, "_fields", ()), getattr(value, "__members__", ())
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return type(value).__name__, value
