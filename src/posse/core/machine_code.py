"""Machine code on disk, in a folder whose name is a digest of the source.

numba's own store of compiled functions has two faults. numba checks only the source file of a
function, so it loads old code after a change in a function of another file that the function calls.
And if two processes save code of one function for different argument types at the same time, each
process may later load the code of the other process. Here the name of the folder is a digest of
everything that the code depends on, and a lock lets only one process at a time load or compile a
function.

This module is imported only when a function is compiled, because importing numba takes a third of a
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
"""Seconds to wait for another process that compiles a function; then this process compiles it too.
"""
_POLL_SECONDS = 0.02
"""Seconds between two tries to take a lock."""


def open_cache(function: Callable[..., Any]) -> SourceCache | None:
    """Make the folder for a function's machine code, and return the function's cache.

    Returns None if no folder can be written. The caller then does not store the code.
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
    """Return the folders that may hold machine code. The caller uses the first writable one."""
    if _CONFIG.CACHE_DIR:  # the environment variable NUMBA_CACHE_DIR
        return [Path(_CONFIG.CACHE_DIR)]
    package = Path(__file__).resolve().parents[1]
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return [package / "__pycache__" / "compiled", user_cache / "posse"]


class SourceCache(FunctionCache):
    """numba's cache of one function, in the folder of one version of the sources.

    numba calls `load_overload` when it needs the code of a *signature*: a combination of argument
    types. If `load_overload` returns None, numba compiles the code and calls `save_overload`.
    Between these two calls this process holds the function's lock, so that no other process
    compiles and saves the function meanwhile. Threads need no lock here, because numba has a lock
    for them.

    If the disk is full, read-only or damaged, the function is compiled again, without an error.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        with _use_cache_dir(folder):
            super().__init__(function)
        self._lock_path = Path(self.cache_path) / f"{function.__qualname__}.lock"
        self._lock: int | None = None
        """Descriptor of the locked file; None without the lock."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the stored code of a signature.

        Returns None if this process must compile the function. Then this process usually holds the
        function's lock until `save_overload`.
        """
        self._take_lock()
        code = None
        with suppress(OSError):
            try:
                code = super().load_overload(sig, target_context)
            except (EOFError, pickle.UnpicklingError):
                # The machine crashed while it wrote the file. Remove the code of all signatures.
                self.flush()
        if code is not None:
            self._release_lock()
        return code

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the code of a signature, and release the lock. Without the lock, save nothing."""
        # There is no lock if `load_overload` waited too long, or if the disk cannot be written.
        if self._lock is None:
            return
        try:
            with suppress(OSError):
                super().save_overload(sig, data)
        finally:
            self._release_lock()

    def _take_lock(self) -> None:
        """Take the lock of this function, or continue without it after `MAX_WAIT` seconds."""
        # If a compilation failed, `save_overload` was not called, and the lock is still taken.
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
        """Let other processes load or compile this function."""
        if self._lock is not None:
            os.close(self._lock)  # releases the lock of the file
            self._lock = None


def _wait_for_lock(descriptor: int) -> bool:
    """Lock an open file for this process, waiting for other processes at most `MAX_WAIT` seconds.

    Returns whether the file is locked. False also means that the file system has no locks.
    """
    deadline = monotonic() + MAX_WAIT
    while monotonic() < deadline:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            # Another process has the lock: POSIX allows either error for this.
            sleep(_POLL_SECONDS)
        except OSError:
            return False
        else:
            return True
    return False


@contextmanager
def _use_cache_dir(folder: Path) -> Iterator[None]:
    """Inside the block, every new cache of numba stores its functions in this folder."""
    previous = _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _CONFIG.CACHE_DIR = previous


# What machine code depends on ---------------------------------------------------------------------


def source_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function's code, of the functions it calls, and of the globals it uses.

    The code is read from memory, because an upgrade of Posse may have replaced the files after the
    import.
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

    If the global is a module of posse, the attributes of the module that the function may use are
    yielded too. The function may in fact not use all of them: if an unused one changes, the
    function is compiled again without need.
    """
    # `co_names` does not tell which names are globals and which are attributes: try both.
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
    """Return the parts of a function's code that decide what numba compiles it to."""
    constants = [_describe(constant) for constant in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, constants


def _describe(value: object) -> object:
    """Return an object whose `repr` identifies `value`, and is the same in every process."""
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
