"""Compilation of the numeric functions: one source, interpreted or compiled with the same bits.

`@elementary` compiles a scalar function; its `.py_func` is the same source in plain Python.
`compile_template` makes a kernel for one policy. Machine code is kept on disk (`machine_code`).

numba takes most of a second to import and to start, and seconds to compile a kernel. A short run
takes less than that in all. So numba is imported when a function is first compiled, and *short*
functions, whose calls take little time in plain Python too, are interpreted at first.
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
"""Number of items up to which an array is short; a call with a longer one is compiled at once."""


class _InterpretingBudget:
    """How long this process interprets short functions: `PATIENCE` seconds in all.

    Once it is used up, or something was compiled, every function is compiled at its next call.
    """

    seconds_spent = 0.0
    used_up = False


class Compiled(partial[R]):
    """A function that numba compiles when it is called.

    A short function is interpreted at first, until this process has spent `PATIENCE` seconds on
    interpreting.

    The class is a `functools.partial` without arguments, because that calls its function from C. So
    this layer costs ten nanoseconds per call; a class with a method `__call__` would cost more.
    """

    def __new__(cls, function: Callable[..., R], **options: Any) -> Self:
        """Make the partial object without the options, which `partial` would pass at every call."""
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
            function: The source. If it is `short`, it must give the same bits in plain Python.
            keep: Whether to keep the machine code on disk.
            short: Whether to interpret the function at first.
            options: Options of `numba.njit`.
        """
        self.py_func = function
        """The source. numba uses the same name for it."""
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
        # This is the only way to change the function of a partial object. The items are the
        # function, its arguments, its keywords, and the attributes of the partial object.
        self.__setstate__((function, (), {}, self.__dict__))  # type: ignore[attr-defined]

    def _interpret_or_compile(self, *args: Any, **keywords: Any) -> Any:
        """Call a short function in plain Python while the time for that lasts; else compile it.

        A call with a long array is always compiled.
        """
        long_array = any(getattr(argument, "size", 0) > SHORT_ARRAY for argument in args)
        if long_array or not self.short or _InterpretingBudget.used_up:
            return self.dispatcher(*args, **keywords)
        return self.interpret(*args, **keywords)

    def interpret(self, *args: Any, **keywords: Any) -> Any:
        """Call the source in plain Python, and return what compiled code would return.

        If the function is short, the time of the call counts towards `PATIENCE`.
        """
        started = perf_counter()
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                result = self.python_function(*args, **keywords)
        finally:
            self._count_interpreting_time(perf_counter() - started)
        if isinstance(result, tuple):
            return tuple(map(_python_number, result))
        return _python_number(result)

    def _count_interpreting_time(self, seconds: float) -> None:
        """Count seconds of interpreting; those of short functions use up the budget."""
        self.seconds_interpreted += seconds
        if self.short:
            _InterpretingBudget.seconds_spent += seconds
            _InterpretingBudget.used_up |= _InterpretingBudget.seconds_spent > PATIENCE

    @cached_property
    def python_function(self) -> Function:
        """The source, which calls the sources of short functions instead of their compiled code.

        So a call is interpreted to its end, even if another thread starts to compile meanwhile. A
        mixture would be wrong: compiled code returns Python integers, and would read an unsigned
        64-bit word that it gets back as a signed one.
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
        """numba's object for the function, which compiles it for each combination of types.

        From its first use on, this process interprets nothing.
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
        """The type that numba gives this function in the compiled code of its callers."""
        import numba

        return numba.typeof(self.dispatcher)

    @property
    def targetoptions(self) -> Any:
        """Options of the dispatcher; numba reads from them whether to inline the function."""
        return self.dispatcher.targetoptions

    def __reduce__(self) -> str:
        """Pickle the name alone, as for a plain function: loading it gives this object again."""
        return self.py_func.__qualname__


def _with_globals(function: Function, names: dict[str, Any]) -> FunctionType:
    """Return a function with the same code, and with `names` as its globals."""
    bound = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    bound.__kwdefaults__ = function.__kwdefaults__
    bound.__module__ = function.__module__
    return bound


def _python_number(value: Any) -> Any:
    """Return a number of numpy as a Python number, as compiled code does; else the value itself."""
    return value.item() if isinstance(value, np.generic) else value


# Decorators ---------------------------------------------------------------------------------------


def elementary(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a scalar function whose only operations are + - * / and sqrt.

    Functions such as log come from `posse.core.exact`, which uses only these operations too. The
    function is compiled without fast-math, so compiled and interpreted calls give the same bits.
    """
    return _compiled(function, short=True)


def compiled_loops(function: Callable[..., R]) -> Callable[..., R]:
    """Compile loops over arrays under the rules of `elementary`. They release the GIL.

    A division by zero gives infinity or NaN, as in numpy, and no error: a test before every
    division would keep the compiler from vectorising. So check divisors before the loop.
    """
    return _compiled(function, short=False, error_model="numpy", nogil=True)


def compiled_short_loops(function: Callable[..., R]) -> Callable[..., R]:
    """Compile loops whose work depends only on the size of their arrays.

    Calls with short arrays are interpreted at first: short arrays mean little work here.
    """
    return _compiled(function, short=True, error_model="numpy", nogil=True)


def inlined(function: Callable[..., R]) -> Callable[..., R]:
    """Compile a scalar function into the code of its callers."""
    # Not kept on disk: its machine code is part of that of its callers.
    return Compiled(function, keep=False, short=True, options={"inline": "always"})


def _compiled(function: Callable[..., R], *, short: bool, **options: Any) -> Callable[..., R]:
    # Code of other packages may give other bits in Python than in numba, so it is not interpreted.
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
    """Compile a function whose source leaves some of the functions that it calls open.

    The result is called a kernel. It releases the GIL, so that it can run in threads.

    Args:
        template: The function. It calls the names in `functions` like globals.
        functions: Compiled functions, by these names.
        name: Identifies `functions`. It becomes part of the kernel's name, because compiled code is
            linked by name: two kernels of the same name could call each other's functions.
        keep: Whether to keep the machine code on disk; False for functions that a user wrote.
        short: Whether to interpret the kernel at first. Has no effect if `keep` is False.
    """
    bound = _with_globals(template, {**template.__globals__, **functions})
    bound.__name__ = re.sub(r"\W", "_", f"{template.__name__}__{name}")
    bound.__qualname__ = bound.__name__
    return Compiled(bound, keep=keep, short=keep and short, options={"nogil": True})


def compile_user_function(function: Function) -> Function:
    """Compile a function that a user wrote; one that is compiled already is returned as it is."""
    if hasattr(function, "py_func"):
        return function
    return Compiled(function, keep=False, short=False, options={})


def stop_interpreting() -> None:
    """From now on, compile every function at its next call. Call this before timing anything."""
    _InterpretingBudget.used_up = True


def advance_in_threads(advance: Callable[[slice], None], runs: int) -> None:
    """Advance several runs at once: call `advance` in several threads.

    Each thread gets a slice of the numbers of the runs. `advance` must release the GIL. Ctrl-C is
    deferred until all threads are done, so that all runs are at the same step.
    """
    import numba

    threads = min(runs, numba.get_num_threads())
    if threads == 1:  # starting a thread would take longer than a short call
        with defer_interrupt():
            advance(slice(0, runs))
        return
    bounds = [thread * runs // threads for thread in range(threads + 1)]
    with defer_interrupt(), ThreadPoolExecutor(threads) as pool:
        for job in [pool.submit(advance, slice(*ends)) for ends in pairwise(bounds)]:
            job.result()
