"""Compilation of numeric functions: a function gives the same bits interpreted and compiled.

`@compiled_scalar` compiles a scalar function; `.py_func` of the compiled function is its source, in
plain Python. `compile_template` makes a kernel for one policy. Machine code is kept on disk
(`posse.core.machine_code`).

numba takes most of a second to import and to start, and seconds to compile a kernel. A short run
takes less time than that. So numba is imported only when a function is first compiled. *Short*
functions are interpreted at first: their calls take little time even in plain Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial, update_wrapper
from itertools import pairwise
from time import perf_counter
from types import FunctionType
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from posse.core.interrupts import defer_interrupt

R = TypeVar("R")
Function: TypeAlias = Callable[..., Any]

PATIENCE = 0.3
"""Seconds that a process spends on interpreting short functions before it compiles them."""
SHORT_ARRAY = 4096
"""Most items of a short array. A call with a longer array is compiled at once."""


class _InterpretingBudget:
    """The time that this process may spend on interpreting short functions: `PATIENCE` seconds.

    After this time, or as soon as one function was compiled, every function is compiled at its next
    call.
    """

    seconds_spent = 0.0
    used_up = False


class Compiled(partial[R]):
    """A function that numba compiles at its first call, or later if the function is short.

    A short function is interpreted until this process has spent `PATIENCE` seconds on interpreting.

    The class is a `functools.partial` without arguments. A partial object calls its function from
    C, which takes ten nanoseconds; a method `__call__` would take longer.
    """

    def __new__(cls, function: Callable[..., R], **options: Any) -> Self:
        """Make the partial object without the options: `partial` would pass them at every call."""
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
            function: The source.
            keep: Whether to keep the machine code on disk.
            short: Whether to interpret the function at first. The source must then give the same
                bits in plain Python as compiled.
            options: Options of `numba.njit`.
        """
        self.py_func = function
        """The source. numba gives this name to the source of a function."""
        self.seconds_interpreted = 0.0
        """Seconds that this process has spent on interpreting this function."""
        self.short = short
        """Whether the function is interpreted at first."""
        self._keep = keep
        self._options = options
        update_wrapper(self, function)
        self._forward_calls_to(self._interpret_or_compile)

    def _forward_calls_to(self, function: Function) -> None:
        """From now on, calls of this object call `function`."""
        # Only `__setstate__` can change the function of a partial object. Its argument has the
        # function, fixed arguments, fixed keywords, and the attributes of the partial object.
        self.__setstate__((function, (), {}, self.__dict__))  # type: ignore[attr-defined]

    def _interpret_or_compile(self, *args: Any, **keywords: Any) -> Any:
        """Call the function: in plain Python if it is short and `PATIENCE` is not spent yet.

        Otherwise, or if an argument is a long array, the function is compiled.
        """
        # Only arrays have a `size`.
        has_long_array = any(getattr(argument, "size", 0) > SHORT_ARRAY for argument in args)
        if has_long_array or not self.short or _InterpretingBudget.used_up:
            return self.dispatcher(*args, **keywords)
        return self.interpret(*args, **keywords)

    def interpret(self, *args: Any, **keywords: Any) -> Any:
        """Call the source in plain Python, and return what compiled code would return.

        If the function is short, the time of the call counts towards `PATIENCE`.
        """
        started = perf_counter()
        try:
            # Compiled code gives infinity or NaN without a warning.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                result = self.python_function(*args, **keywords)
        finally:
            self._count_interpreting_time(perf_counter() - started)
        if isinstance(result, tuple):
            return tuple(map(_python_number, result))
        return _python_number(result)

    def _count_interpreting_time(self, seconds: float) -> None:
        """Count the seconds of one interpreted call; the budget counts those of short functions."""
        self.seconds_interpreted += seconds
        if self.short:
            _InterpretingBudget.seconds_spent += seconds
            if _InterpretingBudget.seconds_spent > PATIENCE:
                _InterpretingBudget.used_up = True

    @cached_property
    def python_function(self) -> Function:
        """The source, changed to call the sources of short functions instead of compiled code.

        So no interpreted call contains a compiled call, even if another thread starts to compile
        meanwhile. Such a mixture would be wrong: compiled code returns an unsigned 64-bit word as a
        Python integer, and the next compiled function would read this integer as a signed word.
        """
        names = dict(self.py_func.__globals__)
        for name in self.py_func.__code__.co_names:
            function = names.get(name)
            if isinstance(function, Compiled) and function.short:
                names[name] = function.python_function
        return _with_globals(self.py_func, names)

    @property
    def is_compiled(self) -> bool:
        """Whether this process has compiled the function or loaded its machine code."""
        # A cached property is in __dict__ once it was computed.
        return "dispatcher" in self.__dict__

    @cached_property
    def dispatcher(self) -> Any:
        """numba's object that compiles the function for each combination of argument types.

        When a dispatcher is made, this process stops interpreting (`stop_interpreting`).
        """
        import numba

        from posse.core.machine_code import open_cache

        dispatcher = numba.njit(**self._options)(self.py_func)
        cache = open_cache(self.py_func) if self._keep else None
        if cache is not None:
            dispatcher._cache = cache  # numba has no public way to set a cache of another kind
        _InterpretingBudget.used_up = True
        self._forward_calls_to(dispatcher)
        return dispatcher

    @property
    def _numba_type_(self) -> Any:
        """The numba type of this object. numba reads it when it compiles a caller."""
        import numba

        return numba.typeof(self.dispatcher)

    @property
    def targetoptions(self) -> Any:
        """Options of the dispatcher. One option tells numba whether to inline the function."""
        return self.dispatcher.targetoptions

    def __reduce__(self) -> str:
        """Pickle only the name, as pickle does for a plain function.

        Unpickling finds this object by its name.
        """
        return self.py_func.__qualname__


def _with_globals(function: Function, names: dict[str, Any]) -> FunctionType:
    """Return a copy of a function that finds its globals in `names`."""
    bound = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    bound.__kwdefaults__ = function.__kwdefaults__
    bound.__module__ = function.__module__
    return bound


def _python_number(value: Any) -> Any:
    """Convert a number of numpy to a Python number, as compiled code does.

    Any other value is returned unchanged.
    """
    return value.item() if isinstance(value, np.generic) else value


# Decorators ---------------------------------------------------------------------------------------


def compiled_scalar(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a scalar function whose only operations are + - * / and sqrt.

    The function may call other such functions; `posse.core.exact` has log and exp. It is compiled
    without fast-math, so compiled and interpreted calls give the same bits.
    """
    return _compiled(function, short=True)


elementary = compiled_scalar
"""The name of version 0.1, which modules of users may import."""


def compiled_loops(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a function that loops over arrays, with the operations of `compiled_scalar`.

    The compiled function releases the GIL. A division by zero gives infinity or NaN, as in numpy,
    and raises no error: a test before every division would keep the compiler from vectorising. So
    check divisors before the loop.
    """
    return _compiled(function, short=False, error_model="numpy", nogil=True)


def compiled_short_loops(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a function that loops over arrays. Use it only if the array sizes determine the work.

    Then calls with short arrays are fast in plain Python, too. They are interpreted until this
    process compiles a first function, or has spent `PATIENCE` seconds on interpreting.
    """
    return _compiled(function, short=True, error_model="numpy", nogil=True)


def inlined(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a scalar function into the code of its callers."""
    # Its machine code is not kept on disk, because the machine code of each caller contains it.
    return Compiled(function, keep=False, short=True, options={"inline": "always"})


def _compiled(function: Callable[..., R], *, short: bool, **options: Any) -> Callable[..., R]:
    """Wrap a function, so that it is compiled.

    For a function of Posse, the machine code is kept on disk, and `short` lets the first calls run
    in plain Python. For a function of another package neither is done: in plain Python, it may
    give other bits than compiled.
    """
    in_package = function.__module__.startswith("posse.")
    return Compiled(function, keep=in_package, short=short and in_package, options=options)


def compile_template(
    template: Function,
    functions: Mapping[str, Function],
    *,
    name: str,
    keep: bool,
    short: bool = False,
) -> Compiled[Any]:
    """Compile a template: a function that calls other functions by names without a definition.

    The result is called a kernel. A kernel releases the GIL, so that it can run in threads.

    Args:
        template: The source. It calls the names in `functions` as if they were globals.
        functions: The compiled function for each of these names.
        name: Identifies `functions`. It becomes a part of the kernel's name, because compiled code
            is linked by name: two kernels of the same name could call each other's functions.
        keep: Whether to keep the machine code on disk; False for functions that a user wrote.
        short: Whether to interpret the kernel at first. Has no effect if `keep` is False, because
            functions that a user wrote may give other bits in plain Python.
    """
    bound = _with_globals(template, {**template.__globals__, **functions})
    bound.__name__ = re.sub(r"\W", "_", f"{template.__name__}__{name}")
    bound.__qualname__ = bound.__name__
    return Compiled(bound, keep=keep, short=keep and short, options={"nogil": True})


def compile_user_function(function: Function) -> Function:
    """Compile a function that a user wrote. A compiled function is returned unchanged."""
    # Compiled functions, of numba or of this module, have their source in `py_func`.
    if hasattr(function, "py_func"):
        return function
    return Compiled(function, keep=False, short=False, options={})


def stop_interpreting() -> None:
    """From now on, compile every function at its next call. Call this before timing anything."""
    _InterpretingBudget.used_up = True


def advance_in_threads(advance: Callable[[slice], None], runs: int) -> None:
    """Advance several runs at once, in several threads.

    Args:
        advance: Advances the runs whose numbers are in a slice; each thread calls it once. It must
            release the GIL.
        runs: Number of runs.

    Ctrl-C is deferred until all threads are done, so that all runs are at the same step.
    """
    import numba

    threads = min(runs, numba.get_num_threads())
    if threads == 1:
        # Starting a thread would take longer than a short call.
        with defer_interrupt():
            advance(slice(0, runs))
        return
    # Each thread gets the runs from one bound to the next.
    bounds = [thread * runs // threads for thread in range(threads + 1)]
    with defer_interrupt(), ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(advance, slice(first, end)) for first, end in pairwise(bounds)]
        for job in jobs:
            # Wait for the thread, and raise its error if there is one.
            job.result()
