"""Arm score locality: the score of an arm is a function of that arm's own variables.

Three tests: the signature asks for nothing else; the source keeps nothing between calls; the score stays the same when
other arms are scored in between.
"""

from __future__ import annotations

import dis
import inspect
from types import CodeType, FunctionType, ModuleType

import numpy as np

from posse.policies.checks.subject import LOCAL, Subject, call, same, source

PATIENCE = 1000


def local_scores(subject: Subject) -> str | None:
    """Find what makes an arm's score depend on another arm."""
    if reason := wrong_signature(subject):
        return reason
    for name in LOCAL:
        if reason := shared_state(subject.source[name], name):
            return reason
    return _changed_by_others(subject)


def wrong_signature(subject: Subject) -> str | None:
    """Find the first argument that one owner does not have."""
    for name, local in LOCAL.items():
        wanted = ", ".join(local)
        if name not in subject.source:
            return f"there is no {name}; give the policy a function {name}({wanted})."
        asked = tuple(inspect.signature(subject.source[name]).parameters)
        if asked[:1] == ("self",):
            return f"{name} takes 'self'; make it a staticmethod {name}({wanted})."
        for parameter in asked:
            if parameter not in local:
                return f"{name} asks for '{parameter}', which one owner does not have; it may take {wanted} only."
        if asked != local:
            return f"{name} must take ({wanted}) in this order, got ({', '.join(asked)})."
    return None


def shared_state(function: object, name: str, seen: set[CodeType] | None = None) -> str | None:
    """Find what outlives a call: a name that is written, or a changeable object that is read, here or in helpers."""
    seen = set() if seen is None else seen
    if not isinstance(function, FunctionType) or function.__code__ in seen:
        return None
    seen.add(function.__code__)
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for step in dis.get_instructions(function):
        word = step.argval
        if step.opname in ("STORE_GLOBAL", "STORE_ATTR") or (step.opname == "STORE_DEREF" and word in free):
            return f"{name} writes '{word}', which all arms share; what an arm remembers belongs in memory."
        if step.opname == "LOAD_GLOBAL":
            value = function.__globals__.get(word)
        elif step.opname.endswith("DEREF") and word in free:
            value = free[word].cell_contents
        else:
            continue
        if not _constant(value):
            kind = type(value).__name__
            return f"{name} reads '{word}', a {kind} that can change between arms; use memory or parameters."
        if reason := shared_state(source(value), name, seen):
            return reason
    return None


def _constant(value: object) -> bool:
    """Whether a global or closed-over value stays as it is; functions are looked into, modules are trusted."""
    if isinstance(value, tuple):
        return all(_constant(item) for item in value)
    if isinstance(value, np.ndarray):
        return not value.flags.writeable
    return value is None or callable(value) or isinstance(value, int | float | str | bytes | np.generic | ModuleType)


def _changed_by_others(subject: Subject) -> str | None:
    """Call for one arm until its score settles, then for other arms, then for the first again."""
    score, learn, states = subject.source["score"], subject.source["learn"], subject.states
    for first in states[:: max(1, len(states) // 8)]:
        before = call(score, *first)
        for _ in range(PATIENCE):
            again = call(score, *first)
            settled, before = same(before, again), again
            if settled:
                break
        else:
            continue  # it never settles: that is for the check of purity
        for other in states[:: max(1, len(states) // 30)]:
            call(score, *other)
            call(learn, other[1], True, other[4], other[6])
        if not same(before, call(score, *first)):
            return "the score of an arm changes when other arms are scored in between: the arms share hidden state."
    return None
