"""A policy under test: its functions as source and compiled, and states that its arms can be in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from posse.core.compiled import compile_user_function
from posse.policies.arms.base import Policy, no_memory

LOCAL = {
    "score": ("t", "turn", "total", "pulls", "memory", "key", "parameters"),
    "learn": ("turn", "chosen", "memory", "parameters"),
    "explore": ("t", "owners", "parameters"),
}
"""What each function may take: the arm's own variables, and what all owners know."""

LAST_STEP = (1 << 29) - 1
OWNERS = (2, 10, 4096)
LEARNT = 5000

Function = Callable[..., Any]
Value = float | str
"""Result of a call: a number, or what it raised."""


class Subject:
    """What the checks ask of a policy, worked out once."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.name = policy.name or type(policy).__name__

    @cached_property
    def given(self) -> dict[str, Function]:
        """The policy's functions as it gives them; `choose` of each custom pass under its own
        name.
        """
        out: dict[str, Function] = {}
        for name in LOCAL:
            function = getattr(type(self.policy), name, None)
            if function is not None:
                out[name] = function
        for turn, selection in enumerate(self.policy.passes()):
            if selection.choose is not None:
                out[choose_name(turn)] = selection.choose
        return out

    @cached_property
    def source(self) -> dict[str, Function]:
        """The functions in plain Python: numba would freeze hidden state at its first value."""
        return {name: source(function) for name, function in self.given.items()}

    @cached_property
    def compiled(self) -> dict[str, Function]:
        """The functions behind numba, which compiles at the first call."""
        made = {name: compile_user_function(function) for name, function in self.given.items()}
        return {name: getattr(function, "dispatcher", function) for name, function in made.items()}

    @cached_property
    def memories(self) -> list[float]:
        """What `learn` leads to: chosen always, never and every other pass; NaN alone if it does
        not stay finite.
        """
        found: dict[float, None] = {}
        steps = 0 if self.given["learn"] is no_memory else LEARNT
        for owners in OWNERS:
            for pattern in ((True,), (False,), (True, False)):
                for memory in self._learnt(float(self.policy.start(owners)), pattern, steps):
                    found[memory] = None
        return [math.nan] if any(not math.isfinite(memory) for memory in found) else list(found)

    def _learnt(self, memory: float, pattern: tuple[bool, ...], steps: int) -> Iterator[float]:
        """The memory at the start, after 1 pass, after 10, and at the end or where it ceases to be
        finite.
        """
        learn, parameters, passes = (
            self.source["learn"],
            self.policy.parameters(),
            len(self.policy.passes()),
        )
        yield memory
        for step in range(steps):
            value = call(learn, step % passes, pattern[step % len(pattern)], memory, parameters)
            memory = math.nan if isinstance(value, str) else value
            if step in (0, 9, steps - 1) or not math.isfinite(memory):
                yield memory
            if not math.isfinite(memory):
                return

    @cached_property
    def states(self) -> list[tuple[object, ...]]:
        """Arguments of `score`: early and late, poor and rich arms, in every pass, with the
        memories found.
        """
        parameters = self.policy.parameters()
        out: list[tuple[object, ...]] = []
        for turn in range(len(self.policy.passes())):
            for pulls in (1, 2, 7, 100, 10**6):
                for t in (max(3, pulls + 1), LAST_STEP):
                    for total in (0.0, pulls / 2, float(pulls)):
                        for memory in self.memories[:12]:
                            out.append(
                                (t, turn, total, pulls, memory, np.uint64(len(out)), parameters)
                            )
        return out

    @cached_property
    def samples(self) -> list[tuple[str, tuple[Any, ...]]]:
        """A few hundred calls: the name of a function and its arguments."""
        parameters = self.policy.parameters()
        out: list[tuple[str, tuple[object, ...]]] = [("score", state) for state in self.states]
        for turn in range(len(self.policy.passes())):
            for memory in self.memories[:12]:
                out.extend(
                    ("learn", (turn, chosen, memory, parameters)) for chosen in (True, False)
                )
        for t in (3, 10, 1000, LAST_STEP):
            out.extend(("explore", (t, owners, parameters)) for owners in OWNERS)
        rng = np.random.default_rng(1)
        for name in self.given:
            if name not in LOCAL:
                out.extend(
                    (name, (rng.permutation(6).astype(float), u))
                    for u in (0.0, 0.5, 1.0 - 2.0**-53)
                )
        return out


def choose_name(turn: int) -> str:
    """How reasons call the selection of a pass."""
    return f"choose of pass {turn + 1}"


def source(function: object) -> Any:
    """Return the Python source of a compiled function, or what is no compiled function as it is."""
    return getattr(function, "py_func", function)


def call(function: Function, *arguments: Any) -> Value:
    """Call a user's function; what it raises is a value too, so that checks can compare it and none
    is cut short.
    """
    try:
        return float(function(*arguments))
    except Exception as error:
        return f"raises {line(error)}"


def same(first: Value, second: Value) -> bool:
    """Whether two results are equal bit for bit; NaN equals NaN."""
    return repr(first) == repr(second)


def line(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
