"""Machine code on disk, in a folder whose name is a digest of the source.

numba stores compiled functions itself. But it checks only the source file of the function, so it
would return old code after a change in a function that this one calls. And when two processes save
signatures of the same function at the same time, one of them can load the other's code later. So
the name of the folder is a digest of everything that the code depends on, and one process at a time
works on a function.

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
    """Make the folder for a function's machine code, and return its cache.

    Returns None if no folder can be written: then nothing is kept.
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

    With a full, read-only or damaged disk the function is compiled again; there is no error. numba
    calls `load_overload` and, if that returns None, compiles and calls `save_overload`. It does
    both under its compiler lock.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        with _cache_dir(folder):
            super().__init__(function)
        self._lock_path = Path(self.cache_path) / f"{function.__qualname__}.lock"
        self._lock: int | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code of a signature; None if this process must compile it."""
        self._acquire()
        code = None
        try:
            code = super().load_overload(sig, target_context)
        except OSError:
            pass
        except (EOFError, pickle.UnpicklingError):  # a crash of the machine cut the file off
            with suppress(OSError):
                self.flush()
        if code is not None:
            self._release()
        return code

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the code of a signature, if this process holds the lock of the function."""
        # `load_overload` took the lock, unless it waited too long or the disk cannot be written.
        if self._lock is None:
            return
        try:
            super().save_overload(sig, data)
        except OSError:
            return
        finally:
            self._release()

    def _acquire(self) -> None:
        """Take the lock of this function, or continue without it after `MAX_WAIT` seconds."""
        if self._lock is not None:
            return
        try:
            self._lock_path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return
        if _lock_file(lock):
            self._lock = lock
        else:
            os.close(lock)

    def _release(self) -> None:
        """Let other processes work on this function: closing the file gives its lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock_file(lock: int) -> bool:
    """Lock a file for this process; return False if that is impossible or takes too long."""
    deadline = monotonic() + MAX_WAIT
    while monotonic() < deadline:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX allows both for a lock that is taken
            sleep(_POLL_SECONDS)
        except OSError:
            return False
        else:
            return True
    return False


@contextmanager
def _cache_dir(folder: Path) -> Iterator[None]:
    """Let numba use this folder for the functions that the block decorates, and for no others."""
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
    """Yield each global that a function may use, and each attribute of a posse module that it may.

    The result may have too many: then a change in them makes this process compile again.
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
    constants = [_describe(constant) for constant in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, constants


def _describe(value: object) -> object:
    """Return a text or plain value that is the same in every process, and differs if `value` does."""
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
