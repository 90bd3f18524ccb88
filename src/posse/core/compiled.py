"""Compilation of the numeric functions: one source, interpreted or compiled with the same bits.

`@elementary` compiles a scalar function; its `.py_func` is the same source in plain Python.
`specialise` makes a kernel for one policy. Machine code is kept on disk (`machine_code`).

numba takes most of a second to import and to start, and seconds to compile a kernel: more than a
short run computes in all. So nothing is imported before a function is called, and short functions
are interpreted first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial, update_wrapper
from time import perf_counter
from types import FunctionType
from typing import Any, Self, TypeVar

import numpy as np

from posse.core.interrupts import defer_interrupt

R = TypeVar("R")

PATIENCE = 0.3
"""Seconds that a process spends on interpreting short functions before it compiles them."""
SHORT_ARRAY = 4096
"""Size of an array up to which a function on it is short."""


class _Interpreter:
    """What this process has spent on interpreting, and whether it compiles now."""

    seconds = 0.0
    stopped = False


class Compiled(partial[R]):
    """A function that numba compiles at its first call, or after `PATIENCE` if it is short.

    A partial object calls what it holds from C, so this layer costs ten nanoseconds a call.
    """

    py_func: Callable[..., R]
    seconds_interpreted: float
    """What this process has spent on interpreting this function."""
    short: bool
    """Whether it is interpreted first."""
    _keep: bool
    _options: Mapping[str, Any]

    def __new__(cls, function: Callable[..., R], **options: Any) -> Self:
        """Make a partial object of the function alone."""
        return super().__new__(cls, function)

    def __init__(
        self,
        function: Callable[..., R],
        *,
        keep: bool,
        short: bool,
        options: Mapping[str, Any],
    ) -> None:
        """Wrap a function.

        Args:
            function: Its source must give the same bits in Python if it is ever interpreted.
            keep: Whether to keep its machine code on disk.
            short: Whether to interpret it first.
            options: Options of `numba.njit`.
        """
        self.py_func = function
        self.seconds_interpreted = 0.0
        self.short = short
        self._keep = keep
        self._options = options
        update_wrapper(self, function)
        self._forward_to(self._call_first)

    def _forward_to(self, function: Callable[..., Any]) -> None:
        self.__setstate__((function, (), {}, self.__dict__))  # type: ignore[attr-defined]

    def _call_first(self, *args: Any, **options: Any) -> Any:
        """Interpret while that is cheaper, else compile."""
        long_array = any(getattr(argument, "size", 0) > SHORT_ARRAY for argument in args)
        if long_array or not self.short or _Interpreter.stopped:
            return self.dispatcher(*args, **options)
        return self.interpret(*args, **options)

    def interpret(self, *args: Any, **options: Any) -> Any:
        """Call the source in plain Python, and return what compiled code would."""
        started = perf_counter()
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                result = self.interpreted(*args, **options)
        finally:
            seconds = perf_counter() - started
            self.seconds_interpreted += seconds
            if self.short:
                _Interpreter.seconds += seconds
                _Interpreter.stopped |= _Interpreter.seconds > PATIENCE
        if isinstance(result, tuple):
            return tuple(map(_python_number, result))
        return _python_number(result)

    @cached_property
    def interpreted(self) -> Callable[..., Any]:
        """The source, bound to the sources of the short functions that it calls.

        So a call stays in the interpreter to its end, even if another thread starts to compile
        meanwhile: compiled code returns Python numbers, and would take a 64-bit word that is passed
        on as one for a signed integer.
        """
        names = dict(self.py_func.__globals__)
        for name in self.py_func.__code__.co_names:
            function = names.get(name)
            if isinstance(function, Compiled) and function.short:
                names[name] = function.interpreted
        return _bind(self.py_func, names)

    @property
    def is_compiled(self) -> bool:
        """Whether this process has compiled it or loaded its machine code."""
        return "dispatcher" in self.__dict__

    @cached_property
    def dispatcher(self) -> Any:
        """The function as numba has it; from here on, what this process calls is compiled."""
        import numba

        from posse.core.machine_code import cache_of

        dispatcher = numba.njit(**self._options)(self.py_func)
        cache = cache_of(self.py_func) if self._keep else None
        if cache is not None:
            dispatcher._cache = cache  # numba has no public way to set a cache of another kind
        _Interpreter.stopped = True
        self._forward_to(dispatcher)
        return dispatcher

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
        """Copy as a function does: the copy is the same object."""
        return self.py_func.__qualname__


def _bind(function: Callable[..., Any], names: dict[str, Any]) -> FunctionType:
    """Return the same source with other global names."""
    bound = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    bound.__kwdefaults__ = function.__kwdefaults__
    bound.__module__ = function.__module__
    return bound


def _python_number(value: Any) -> Any:
    """Return the Python number that compiled code would return."""
    return value.item() if isinstance(value, np.generic) else value


# Decorators ---------------------------------------------------------------------------------------


def elementary(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a scalar function made of + - * / and sqrt.

    Without fast-math, so that every path gives the same bits.
    """
    return _compile(function, short=True)


def loops(function: Callable[..., R]) -> Callable[..., R]:
    """Compile loops over arrays under the rules of `elementary`, without the interpreter's lock.

    A division by zero gives infinity or NaN as in numpy, and no error: a test before every division
    would keep the compiler from vectorising. Guard divisors.
    """
    return _compile(function, short=False, error_model="numpy", nogil=True)


def short_loops(function: Callable[..., R]) -> Callable[..., R]:
    """Compile loops whose work grows with their arrays alone, and interpret short ones first."""
    return _compile(function, short=True, error_model="numpy", nogil=True)


def inlined(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a scalar function into those that call it."""
    return Compiled(function, keep=False, short=True, options={"inline": "always"})


def _compile(function: Callable[..., R], *, short: bool, **options: Any) -> Callable[..., R]:
    # What others wrote may give other bits in Python than in numba, so it is never interpreted.
    in_package = function.__module__.startswith("posse.")
    return Compiled(function, keep=in_package, short=short and in_package, options=options)


def specialise(
    template: Callable[..., Any],
    functions: Mapping[str, Callable[..., Any]],
    *,
    name: str,
    keep: bool,
    short: bool = False,
) -> Compiled[Any]:
    """Compile a template for one set of functions, to run in threads.

    Args:
        template: A function that calls the names in `functions`.
        functions: Compiled functions by the global names that the template uses.
        name: Identifies `functions`. It becomes part of the function's own name, because compiled
            code is linked by name: two kernels of one name could call each other's functions.
        keep: Whether to keep the machine code on disk: not for functions that a user wrote.
        short: Whether to interpret it first, if it is kept.
    """
    bound = _bind(template, {**template.__globals__, **functions})
    bound.__name__ = re.sub(r"\W", "_", f"{template.__name__}__{name}")
    bound.__qualname__ = bound.__name__
    return Compiled(bound, keep=keep, short=keep and short, options={"nogil": True})


def compile_user(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that a user wrote, unless it is compiled already."""
    if hasattr(function, "py_func"):
        return function
    return Compiled(function, keep=False, short=False, options={})


def stop_interpreting() -> None:
    """Compile every function at its next call, before work whose time is measured."""
    _Interpreter.stopped = True


def side_by_side(play: Callable[[slice], None], runs: int) -> None:
    """Call a function with slices of the runs, one in every thread.

    The function must compute outside the interpreter's lock. Ctrl-C waits for all threads, so that
    all runs are at the same step.
    """
    import numba

    parts = min(runs, numba.get_num_threads())
    if parts == 1:  # a thread for one slice would take longer than a short slice itself
        with defer_interrupt():
            play(slice(0, runs))
        return
    slices = [slice(part * runs // parts, (part + 1) * runs // parts) for part in range(parts)]
    with defer_interrupt(), ThreadPoolExecutor(parts) as pool:
        for job in [pool.submit(play, part) for part in slices]:
            job.result()
