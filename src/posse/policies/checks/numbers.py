"""The same numbers everywhere: pure functions that compile, pickle and stay finite."""

from __future__ import annotations

import math
import pickle

from posse.policies.checks.subject import LEARNT, LOCAL, Subject, call, line, same


def pure(subject: Subject) -> str | None:
    """Find a call that gives two results: the second time, or compiled."""
    broken = _uncompiled(subject)
    for name, arguments in subject.samples:
        first = call(subject.source[name], *arguments)
        if not same(first, call(subject.source[name], *arguments)):
            return f"{name} gives two results for the same arguments; draw from the owner's key instead."
        if name in broken or isinstance(first, str):  # what it raises is for the check of finite scores
            continue
        compiled = call(subject.compiled[name], *arguments)
        if not same(first, compiled):
            other = compiled if isinstance(compiled, str) else f"gives {compiled}"
            return f"{name} gives {first} in Python and {other} compiled; use floats and posse.core.exact."
    return None


def picklable(subject: Subject) -> str | None:
    """Find out whether another process would get the same policy."""
    try:
        copy = pickle.loads(pickle.dumps(subject.policy))
    except Exception as error:
        return f"the policy does not pickle ({line(error)}); define its class at the top of a module."
    if copy != subject.policy or copy.parameters() != subject.policy.parameters():
        return "the policy is another one after pickling; keep its parameters in the fields of a frozen dataclass."
    return None


def compiles(subject: Subject) -> str | None:
    """Find a function that numba does not take."""
    for name, why in _uncompiled(subject).items():
        return f"numba does not compile {name}: {why}."
    return None


def _uncompiled(subject: Subject) -> dict[str, str]:
    """Return the functions that numba refuses, and the first telling line of why."""
    out: dict[str, str] = {}
    for name, arguments in dict(subject.samples).items():  # one call of each function is enough to compile it
        try:
            subject.compiled[name](*arguments)
        except Exception as error:
            # Not all of numba's errors have one base. Any other error is the function's own: it compiles.
            if type(error).__module__.startswith("numba"):
                lines = [text.strip() for text in str(error).splitlines() if text.strip()]
                telling = [text for text in lines if not text.startswith("Failed in")]
                out[name] = (telling or lines or [type(error).__name__])[0].rstrip(".:")
    return out


def finite(subject: Subject) -> str | None:
    """Find a number out of its range: scores and memories finite, probabilities in [0, 1], ceilings kept."""
    parameters, passes = subject.policy.parameters(), subject.policy.passes()
    if not isinstance(parameters, tuple) or not parameters or not all(math.isfinite(value) for value in parameters):
        return f"parameters() must be a tuple of one or more finite numbers, got {parameters}."
    for turn, selection in enumerate(passes):
        if not (selection.scale > 0 and math.isfinite(selection.scale)):
            return f"the scale of pass {turn + 1} must be a finite number above 0, got {selection.scale}."
    if any(math.isnan(memory) for memory in subject.memories):
        return f"learn does not keep memory a finite number over {LEARNT} passes."
    for name, arguments in subject.samples:
        if name not in LOCAL:
            continue
        value = call(subject.source[name], *arguments)
        at = ", ".join(f"{word} = {given}" for word, given in zip(LOCAL[name], arguments, strict=True) if word != "key")
        if isinstance(value, str):
            return f"{name} {value} at {at}."
        if not math.isfinite(value):
            return f"{name} gives {value} at {at}; it must give a finite number."
        if name == "explore" and not 0.0 <= value <= 1.0:
            return f"explore gives {value} at {at}; a probability is in [0, 1]."
        if name == "score" and passes[arguments[1]].kind == "match" and value > passes[arguments[1]].ceiling:
            return f"score gives {value} at {at}, above the ceiling {passes[arguments[1]].ceiling} of its pass."
    return None
