"""Compilation of the numeric functions: one source, three ways to call it.

`@elementary` compiles a scalar function; its `.py_func` is the same source in plain Python.
`specialise` makes a kernel for one policy. Machine code is kept on disk under a key that holds the
digest of every source file the function depends on: numba by itself looks at one file only, and
would answer from an old cache when a function called from it changed.

numba takes most of a second to import and to begin, more than a party of a short run computes in
all. So nothing is imported before a function is called, and short functions are interpreted first:
same source, same bits.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, cached_property, partial, update_wrapper
from pathlib import Path
from time import perf_counter, sleep
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from posse.core.interrupts import held

if TYPE_CHECKING:
    from collections.abc import Mapping

R = TypeVar("R")

PATIENCE = 0.3
"""Seconds that a process spends on interpreting short functions before it compiles them."""
TURN = 120.0
"""Seconds to wait for another process that compiles the same function; then both do."""
SHORT = 4096
"""Numbers of an array up to which a function on it is short."""

_IMPORT = re.compile(
    r"^\s*(?:from\s+(posse[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+(posse[\w.]*))",
    re.MULTILINE,
)


def source_digest(*modules: str) -> str:
    """Digest of the sources that numbers compiled in these modules depend on: theirs, and all that
    they import.
    """
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
    candidates = (
        (place.with_suffix(".py"), place / "__init__.py") if first == package.name and rest else ()
    )
    return tuple(path for path in candidates if path.is_file())


class _Files:
    """Machine code on disk, one file a compiled function and signature, each written whole.

    numba's own index numbers the files of a function: two processes that compile at the same time
    can give two signatures the same number, and then one of them loads the other's code.
    """

    def __init__(self, folder: Path, name: str, modules: tuple[str, ...]) -> None:
        self._folder = folder / "posse-compiled"
        self._name, self._modules = name, modules

    @cached_property
    def _digest(self) -> str:
        return source_digest(*self._modules)

    def _path(self, key: object) -> Path:
        return (
            self._folder
            / hashlib.sha256(f"{self._name} {key!r} {self._digest}".encode()).hexdigest()
        )

    def load(self, key: object) -> object:
        """Return what was saved under a key, or None; waits for another process that compiles it
        now.
        """
        path = self._path(key)
        found = _read(path)
        if found is None and _take_turn(path):
            found = _read(path)
            if found is not None:
                _end_turn(path)
        return found

    def save(self, key: object, data: object) -> None:
        """Save under a key; a disk that cannot be written costs compiling again, nothing else."""
        from numba.core.serialize import dumps

        path = self._path(key)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            whole = path.with_name(f"{path.name}.{os.getpid()}")
            whole.write_bytes(dumps(data))
            whole.replace(path)
        except OSError:
            return
        finally:
            _end_turn(path)


def _read(path: Path) -> object:
    try:
        return pickle.loads(path.read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        return None


@cache
def _turns(folder: Path) -> int:
    """Open the file on whose bytes processes lock what they compile: a byte each, held until the
    code is saved.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / "turns", os.O_RDWR | os.O_CREAT, 0o600)


def _lock(path: Path, how: int) -> None:
    import fcntl

    fcntl.lockf(_turns(path.parent), how, 1, int(path.name[:12], 16))


def _take_turn(path: Path) -> bool:
    """Wait until nobody else compiles this; False where that cannot be known, or takes too long."""
    try:
        import fcntl

        _turns(path.parent)
        for _ in range(int(TURN / 0.05)):
            with suppress(BlockingIOError, PermissionError):
                _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            sleep(0.05)
    except (ImportError, OSError):
        return False
    return False


def _end_turn(path: Path) -> None:
    with suppress(ImportError, OSError):
        import fcntl

        _lock(path, fcntl.LOCK_UN)


def _keep(dispatcher: Any, name: str, *modules: str) -> None:
    """Keep the machine code of a compiled function on disk, where there is a place for it.

    Not where one of its modules lies outside the package: what that one imports is not known here.
    """
    from numba.core.caching import FunctionCache

    if not all(_files(module) for module in modules):
        return
    try:
        kept = FunctionCache(dispatcher.py_func)
    except RuntimeError:  # no folder can be written: compile every time
        return
    kept._cache_file = _Files(Path(kept.cache_path), name, modules)  # type: ignore[assignment]
    dispatcher._cache = kept


class _Clock:
    """What this process has spent on interpreting, and whether it compiles now."""

    compiles = False
    spent = 0.0


class Compiled(partial[R]):
    """A function that numba compiles at its first call, or once interpreting short ones has cost
    `PATIENCE` seconds.

    A partial object calls what it holds from C, so that the indirection costs ten nanoseconds.
    """

    py_func: Callable[..., R]
    _modules: tuple[str, ...]
    _short: bool
    _options: Mapping[str, Any]

    def __new__(
        cls,
        function: Callable[..., R],
        modules: tuple[str, ...],
        short: bool,
        options: Mapping[str, Any],
    ) -> Self:
        """Wrap a function; `modules` are those that its machine code depends on, none where it is
        not kept.
        """
        made = super().__new__(cls, function)
        made.py_func, made._modules, made._short, made._options = function, modules, short, options
        update_wrapper(made, function)
        made._hold(made._first)
        return made

    def _hold(self, function: Callable[..., Any]) -> None:
        self.__setstate__((function, (), {}, self.__dict__))  # type: ignore[attr-defined]

    def _first(self, *args: Any, **named: Any) -> Any:
        """Interpret while that is cheaper, else compile."""
        if (
            not self._short
            or _Clock.compiles
            or any(getattr(each, "size", 0) > SHORT for each in args)
        ):
            return self.dispatcher(*args, **named)
        began = perf_counter()
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                result = self.interpreted(*args, **named)
        finally:
            _Clock.spent += perf_counter() - began
            _Clock.compiles = _Clock.compiles or _Clock.spent > PATIENCE
        return tuple(map(_plain, result)) if isinstance(result, tuple) else _plain(result)

    @cached_property
    def interpreted(self) -> Callable[..., Any]:
        """The same source, bound to the source of the short functions that it calls.

        So a call stays in the interpreter to its end, also where another thread begins to compile
        meanwhile: compiled code returns numbers of Python, and given them back it takes words of 64
        bits for signed ones.
        """
        names = self.py_func.__globals__
        called = {name: names[name] for name in self.py_func.__code__.co_names if name in names}
        own = {
            name: one.interpreted
            for name, one in called.items()
            if isinstance(one, Compiled) and one._short
        }
        made = FunctionType(
            self.py_func.__code__,
            {**names, **own},
            self.py_func.__name__,
            self.py_func.__defaults__,
            self.py_func.__closure__,
        )
        made.__kwdefaults__ = self.py_func.__kwdefaults__
        return made

    @cached_property
    def dispatcher(self) -> Any:
        """The function as numba has it; from here on, what this process calls is compiled."""
        import numba

        made = numba.njit(**self._options)(self.py_func)
        if self._modules:
            _keep(made, f"{self.py_func.__module__}.{self.py_func.__qualname__}", *self._modules)
        _Clock.compiles = True
        self._hold(made)
        return made

    @property
    def _numba_type_(self) -> Any:
        """What compiled code that calls this function sees."""
        import numba

        return numba.typeof(self.dispatcher)

    @property
    def targetoptions(self) -> Any:
        """Where numba looks whether to inline."""
        return self.dispatcher.targetoptions

    def __reduce__(self) -> str:
        return self.py_func.__qualname__


def _plain(value: Any) -> Any:
    """Return what compiled code would: numbers of Python."""
    return value.item() if isinstance(value, np.generic) else value


def elementary(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a scalar function made of + - * / and sqrt; no fast-math, so that every path gives
    the same bits.
    """
    return _compiled(function, True)


def loops(function: Callable[..., R]) -> Callable[..., R]:
    """Compile loops over arrays under the rules of `elementary`, to run outside the interpreter's
    lock.

    A division by zero gives infinity or NaN as in numpy, and no error: a test before every division
    would keep the compiler from working on several numbers at once. Guard divisors.
    """
    return _compiled(function, False, error_model="numpy", nogil=True)


def short_loops(function: Callable[..., R]) -> Callable[..., R]:
    """Compile loops whose work grows with their arrays alone, so that short ones can be interpreted
    first.
    """
    return _compiled(function, True, error_model="numpy", nogil=True)


def inlined(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a scalar function into those that call it."""
    return Compiled(function, (), True, {"inline": "always"})


def _compiled(function: Callable[..., R], short: bool, **options: Any) -> Callable[..., R]:
    ours = function.__module__.startswith(
        "posse."
    )  # what others wrote may differ between Python and numba
    return Compiled(function, (function.__module__,), short and ours, options)


def specialise(
    template: Callable[..., Any],
    functions: dict[str, Callable[..., Any]],
    *,
    name: str,
    keep: bool,
    short: bool = False,
) -> Callable[..., Any]:
    """Compile `template` with the global names in `functions` bound to these compiled functions, to
    run in threads.

    `name` identifies `functions`. It becomes part of the function's own name, for compiled code is
    linked by name: two kernels of one name in a process could otherwise call each other's
    functions. `keep` the machine code on disk only if `name` and the sources of the package tell
    all there is to know: not for functions that a user wrote. Only what is kept is interpreted
    first where it is `short`.
    """
    names = {**template.__globals__, **functions}
    bound = FunctionType(
        template.__code__, names, template.__name__, template.__defaults__, template.__closure__
    )
    bound.__qualname__ = bound.__name__ = re.sub(r"\W", "_", f"{template.__name__}__{name}")
    bound.__module__ = template.__module__
    used = (getattr(function, "py_func", function).__module__ for function in functions.values())
    return Compiled(
        bound, (template.__module__, *used) if keep else (), keep and short, {"nogil": True}
    )


def compile_user(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function a user wrote, unless it is compiled already."""
    return function if hasattr(function, "py_func") else Compiled(function, (), False, {})


def side_by_side(play: Callable[[slice], None], runs: int) -> None:
    """Call a function that computes outside the interpreter's lock with slices of the runs, one in
    every thread.

    Ctrl-C waits for all of them, so that no run is left behind the others.
    """
    import numba

    parts = min(runs, numba.get_num_threads())
    if parts == 1:  # a thread for one slice would take longer than a short slice itself
        with held():
            play(slice(0, runs))
        return
    cuts = [slice(part * runs // parts, (part + 1) * runs // parts) for part in range(parts)]
    with held(), ThreadPoolExecutor(parts) as pool:
        for played in [pool.submit(play, cut) for cut in cuts]:
            played.result()
