"""Whether a policy can run in a federation: the properties it must have, tested before a run
starts.

Theorem 1 of the Samba paper asks for *arm score locality* and *oblivious arm selection*. That masks
change no choice, that functions are pure, finite and compile, and that a policy pickles is what
makes every path give the same arms. The checks find what shows on a few thousand calls; they
refuse, they do not prove. Cost: a second or two, most of it compiling.

>>> check("ucb").passed
True
"""

from __future__ import annotations

import dis
import inspect
import itertools
import math
import pickle
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import PolicyError
from posse.core.exact import gumbel
from posse.core.fixed import SCORE_BITS, clip_score, comparable_score, tie_bits
from posse.policies.arms.base import Policy, Selection
from posse.policies.arms.registry import PolicyValue, policy
from posse.policies.arms.subject import (
    LEARNT,
    LOCAL,
    Function,
    Subject,
    Value,
    call,
    choose_name,
    line,
    same,
    source,
)

__all__ = ["CHECKS", "CheckResult", "Report", "check", "refuse"]


@dataclass(frozen=True)
class CheckResult:
    """One property: whether the policy has it, and if not, why."""

    name: str
    passed: bool
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """What the checks found, in the order they ran."""

    policy: str
    results: tuple[CheckResult, ...]
    warnings: tuple[str, ...] = ()
    """What may differ between machines; the policy can run nevertheless."""

    @property
    def passed(self) -> bool:
        """Whether every property holds."""
        return all(result.passed for result in self.results)


def check(value: PolicyValue) -> Report:
    """Run every check on a policy: a name, an object, `module:Class` or a table.

    After a wrong signature no function can be called, and the other checks are left out.
    """
    subject = Subject(policy(value))
    results = []
    for name, test in CHECKS.items():
        try:
            reason = test(subject)
        except (
            Exception
        ) as error:  # raised by the user's own passes(), parameters() or start(): a finding
            reason = f"the policy raises {line(error)}."
        results.append(CheckResult(name, reason is None, reason or ""))
        if reason is not None and wrong_signature(subject):
            break
    return Report(subject.name, tuple(results), tuple(inexact(subject)))


def refuse(value: PolicyValue, *, but: tuple[str, ...] = ()) -> None:
    """Raise a `PolicyError` that names the first violated property `but` some, unless every check
    passes.
    """
    report = check(value)
    for result in report.results:
        if not result.passed and result.name not in but:
            raise PolicyError(
                f"policy '{report.policy}' cannot run in a federation. It violates {result.name}: "
                f"{result.reason}"
            )


EXACT = {
    "log": "log",
    "log1p": "log",
    "log2": "log",
    "log10": "log",
    "exp": "exp",
    "exp2": "exp",
    "expm1": "exp",
    "pow": "exp and log",
    "power": "exp and log",
    "float_power": "exp and log",
}
"""Functions of `posse.core.exact` that replace those of math and numpy."""
ROUNDED = re.compile(r"(a|arc)?(sin|cos|tan)(h|2)?|cbrt|dist|erfc?|l?gamma|hypot|logaddexp2?")
"""Functions without a counterpart in `posse.core.exact`."""


def inexact(subject: Subject) -> Iterator[str]:
    """Yield a warning for each function whose last bit depends on the machine and its libraries.

    All functions of the class are searched, and the user's functions that they call.
    """
    seen: set[CodeType] = set()
    functions = dict(subject.source)
    for kind in reversed(type(subject.policy).__mro__):
        if kind not in (Policy, object) and "revision" not in vars(kind):
            functions |= {name: source(getattr(kind, name)) for name in vars(kind)}
    for name, function in functions.items():
        for called in dict.fromkeys(_inexact_calls(function, seen)):
            remedy = EXACT.get(called.rpartition(".")[2], "+ - * /, math.sqrt, and log and exp")
            yield (
                f"{name} uses {called}, whose last bit differs between machines. Use {remedy} of "
                "posse.core.exact."
            )


def _inexact_calls(function: object, seen: set[CodeType]) -> Iterator[str]:
    """Yield the names of inexact functions that a function calls, itself or through others."""
    if not isinstance(function, FunctionType) or function.__code__ in seen:
        return
    seen.add(function.__code__)
    read = inspect.getclosurevars(function)
    names = {**read.builtins, **read.globals, **read.nonlocals}
    value: object = None
    for step in dis.get_instructions(function):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            value = getattr(value, step.argval, None)
        else:
            value = names.get(step.argval)
        if step.opname == "BINARY_OP" and step.argrepr.startswith("**"):
            yield "the power **"
        name = getattr(value, "__name__", "")
        if isinstance(value, BuiltinFunctionType | np.ufunc) and (
            name in EXACT or ROUNDED.fullmatch(name)
        ):
            yield f"{getattr(value, '__module__', None) or 'numpy'}.{name}".removeprefix(
                "builtins."
            )
        yield from _inexact_calls(source(value), seen)


PATIENCE = 1000
"""Calls after which a score that keeps changing counts as never settling."""


def local_scores(subject: Subject) -> str | None:
    """Find what makes an arm's score depend on another arm.

    Three tests: the signature takes nothing else; the source keeps nothing between calls; the score
    stays the same when other arms are scored in between.
    """
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
        arguments = tuple(inspect.signature(subject.source[name]).parameters)
        if arguments[:1] == ("self",):
            return f"{name} takes 'self'; make it a staticmethod {name}({wanted})."
        for parameter in arguments:
            if parameter not in local:
                return (
                    f"{name} asks for '{parameter}', which one owner does not have; it may take "
                    f"{wanted} only."
                )
        if arguments != local:
            return f"{name} must take ({wanted}) in this order, got ({', '.join(arguments)})."
    return None


def shared_state(function: object, name: str, seen: set[CodeType] | None = None) -> str | None:
    """Find what outlives a call: a name that is written, or a changeable object that is read, here
    or in helpers.
    """
    seen = set() if seen is None else seen
    if not isinstance(function, FunctionType) or function.__code__ in seen:
        return None
    seen.add(function.__code__)
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for step in dis.get_instructions(function):
        word = step.argval
        if step.opname in ("STORE_GLOBAL", "STORE_ATTR") or (
            step.opname == "STORE_DEREF" and word in free
        ):
            return (
                f"{name} writes '{word}', which all arms share; what an arm remembers belongs in "
                "memory."
            )
        if step.opname == "LOAD_GLOBAL":
            value = function.__globals__.get(word)
        elif step.opname.endswith("DEREF") and word in free:
            value = free[word].cell_contents
        else:
            continue
        if not _constant(value):
            kind = type(value).__name__
            return (
                f"{name} reads '{word}', a {kind} that can change between arms; use memory or "
                "parameters."
            )
        if reason := shared_state(source(value), name, seen):
            return reason
    return None


def _constant(value: object) -> bool:
    """Whether a global or closed-over value stays as it is; functions are looked into, modules are
    trusted.
    """
    if isinstance(value, tuple):
        return all(_constant(item) for item in value)
    if isinstance(value, np.ndarray):
        return not value.flags.writeable
    return (
        value is None
        or callable(value)
        or isinstance(value, int | float | str | bytes | np.generic | ModuleType)
    )


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
            return (
                "the score of an arm changes when other arms are scored in between: the arms share "
                "hidden state."
            )
    return None


def oblivious(subject: Subject) -> str | None:
    """Find what a selection needs besides the order of the scores and its coin.

    It sees scores in an unknown order behind an unknown increasing map, and nothing else.
    """
    for turn, selection in enumerate(subject.policy.passes()):
        if selection.kind not in ("argmax", "match", "custom"):
            return (
                f"pass {turn + 1} is of kind '{selection.kind}'; known are argmax, match and "
                "custom."
            )
        if (selection.kind == "custom") != (selection.choose is not None):
            return (
                f"pass {turn + 1} is of kind '{selection.kind}'; a custom selection, and no other, "
                "has a choose."
            )
        if selection.choose is None:
            continue
        name = choose_name(turn)
        choose = subject.source[name]
        arguments = tuple(inspect.signature(choose).parameters)
        if len(arguments) != 2:
            extra = f"'{arguments[2]}'" if len(arguments) > 2 else "too little"
            return (
                f"{name} asks for {extra}; a selection gets the scores in permuted order and a "
                "coin u, nothing else."
            )
        if reason := shared_state(choose, name) or _dependence(choose, name):
            return reason
    return None


def _dependence(choose: Function, name: str) -> str | None:
    """Try a custom selection behind increasing maps first, for values can look like positions, then
    permuted.
    """
    rng = np.random.default_rng(7)
    for owners in (2, 3, 5, 8) * 12:
        scores = rng.permutation(4 * owners)[:owners] / (4.0 * owners)
        for u in (0.0, float(rng.random()), 1.0 - 2.0**-53):
            chosen = call(choose, scores.copy(), u)
            for given in (chosen, call(choose, np.zeros(owners), u)):
                if given not in range(owners):
                    return (
                        f"{name} gives {given} for {owners} scores and u = {u}; it must give a "
                        "position."
                    )
            for what, mapped in _increasing(scores, rng):
                if call(choose, mapped, u) != chosen:
                    return (
                        f"{name} depends on values: it selects another arm when all scores are "
                        f"{what}."
                    )
            order = rng.permutation(owners)
            moved = call(choose, scores[order], u)
            if moved not in range(owners) or order[int(moved)] != chosen:
                return (
                    f"{name} depends on positions: it selects another arm when the arms are "
                    "permuted."
                )
    return None


def _increasing(
    scores: NDArray[np.float64], rng: np.random.Generator
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield the scores behind increasing maps, and what was done to them."""
    for factor in (1e-6, 0.3, 7.0, 1e6):
        yield f"multiplied by {factor:g}", scores * factor
    for shift in (-1000.0, -1.0, 1.0, 1000.0):
        yield f"shifted by {shift:g}", scores + shift
    ranks = np.argsort(np.argsort(scores))
    yield "replaced by their ranks", ranks.astype(float)
    yield (
        "mapped by another increasing function",
        np.cumsum(rng.exponential(size=len(scores)))[ranks],
    )


TRIALS = 40
ARMS = 5
SEPARATION = 2.0**-30
"""Scores of one step closer than this part of the largest are left out: no choice between them is
the right one.
"""


def masks_keep_choices(subject: Subject) -> str | None:
    """Find scores with which another arm is selected once they are integers, or behind a mask."""
    draws = random.Random(3)
    for turn, selection in enumerate(subject.policy.passes()):
        for _ in range(TRIALS):
            scores = _separated(subject, turn, selection, draws)
            if scores is not None and (reason := _changes(scores, turn, selection, draws)):
                return reason
    return None


def _separated(
    subject: Subject, turn: int, selection: Selection, draws: random.Random
) -> list[float] | None:
    """Draw the scores of five arms at one step; None when they are not finite or not well
    separated.
    """
    t = draws.randrange(10**4, 10**6)
    scores = []
    for _ in range(ARMS):
        pulls = draws.randrange(1, 2000)
        memory, key = draws.choice(subject.memories), np.uint64(draws.getrandbits(63))
        state = (t, turn, pulls * draws.random(), pulls, memory, key, subject.policy.parameters())
        value = call(subject.source["score"], *state)
        if isinstance(value, str) or not math.isfinite(value):
            return None
        scores.append(
            value + (selection.scale * gumbel(draws.random()) if selection.kind == "match" else 0.0)
        )
    ordered = sorted(scores)
    gap = min(high - low for low, high in itertools.pairwise(ordered))
    return scores if gap > SEPARATION * max(abs(ordered[0]), abs(ordered[-1])) else None


def _changes(
    scores: list[float], turn: int, selection: Selection, draws: random.Random
) -> str | None:
    u, bits = draws.random(), tie_bits(len(scores))
    places = draws.sample(range(1 << bits), len(scores))
    xs = [
        int(comparable_score(clip_score(value, bits), place, bits))
        for value, place in zip(scores, places, strict=True)
    ]
    chosen = _selected(selection, scores, u)
    if _selected(selection, _ranks(xs), u) != chosen:
        return (
            f"pass {turn + 1} selects another arm when scores such as {scores[0]:.6g} become "
            "integers; scores must be "
            f"below 2^{62 - SCORE_BITS - bits} in size and differ by more than 2^-{SCORE_BITS}."
        )
    # The masks of level `paper` are in (0, 1], the smallest 2^-53.
    for factor in (1.0, draws.uniform(0.01, 1.0), 2.0**-53):
        if _selected(selection, [factor * score for score in scores], u) != chosen:
            return (
                f"pass {turn + 1} selects another arm behind a mask of {factor:.3g} at level "
                "'paper'."
            )
    return None


def _ranks(values: Sequence[int]) -> list[float]:
    ordered = sorted(values)
    return [float(ordered.index(value)) for value in values]


def _selected(selection: Selection, scores: Sequence[float], u: float) -> Value:
    """Position a pass selects; matching is an argmax, its noise being in the scores."""
    if selection.choose is not None:
        return call(source(selection.choose), np.array(scores), u)
    return max(range(len(scores)), key=scores.__getitem__)


def pure(subject: Subject) -> str | None:
    """Find a call that gives two results: the second time, or compiled."""
    broken = _uncompiled(subject)
    for name, arguments in subject.samples:
        first = call(subject.source[name], *arguments)
        if not same(first, call(subject.source[name], *arguments)):
            return (
                f"{name} gives two results for the same arguments; draw from the owner's key "
                "instead."
            )
        if name in broken or isinstance(
            first, str
        ):  # what it raises is for the check of finite scores
            continue
        compiled = call(subject.compiled[name], *arguments)
        if not same(first, compiled):
            other = compiled if isinstance(compiled, str) else f"gives {compiled}"
            return (
                f"{name} gives {first} in Python and {other} compiled; use floats and "
                "posse.core.exact."
            )
    return None


def picklable(subject: Subject) -> str | None:
    """Find out whether another process would get the same policy."""
    try:
        copy = pickle.loads(pickle.dumps(subject.policy))
    except Exception as error:
        return (
            f"the policy does not pickle ({line(error)}); define its class at the top of a module."
        )
    if copy != subject.policy or copy.parameters() != subject.policy.parameters():
        return (
            "the policy is another one after pickling; keep its parameters in the fields of a "
            "frozen dataclass."
        )
    return None


def compiles(subject: Subject) -> str | None:
    """Find a function that numba does not take."""
    for name, why in _uncompiled(subject).items():
        return f"numba does not compile {name}: {why}."
    return None


_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;]*m")


def _uncompiled(subject: Subject) -> dict[str, str]:
    """Return the functions that numba refuses, and the first telling line of why."""
    out: dict[str, str] = {}
    for name, arguments in dict(
        subject.samples
    ).items():  # one call of each function is enough to compile it
        try:
            subject.compiled[name](*arguments)
        except Exception as error:
            # Not all of numba's errors have one base. Any other error is the function's own: it
            # compiles.
            if type(error).__module__.startswith("numba"):
                message = _TERMINAL_CODE.sub("", str(error))
                lines = [text.strip() for text in message.splitlines() if text.strip()]
                telling = [text for text in lines if not text.startswith("Failed in")]
                out[name] = (telling or lines or [type(error).__name__])[0].rstrip(".:")
    return out


def finite(subject: Subject) -> str | None:
    """Find a number out of its range: scores and memories finite, probabilities in [0, 1], ceilings
    kept.
    """
    parameters, passes = subject.policy.parameters(), subject.policy.passes()
    if (
        not isinstance(parameters, tuple)
        or not parameters
        or not all(math.isfinite(value) for value in parameters)
    ):
        return f"parameters() must be a tuple of one or more finite numbers, got {parameters}."
    for turn, selection in enumerate(passes):
        if not (selection.scale > 0 and math.isfinite(selection.scale)):
            return (
                f"the scale of pass {turn + 1} must be a finite number above 0, got "
                f"{selection.scale}."
            )
    if any(math.isnan(memory) for memory in subject.memories):
        return f"learn does not keep memory a finite number over {LEARNT} passes."
    ceilings = [
        selection.ceiling if selection.kind == "match" else math.inf for selection in passes
    ]
    for name, arguments in subject.samples:
        if name not in LOCAL:
            continue
        value = call(subject.source[name], *arguments)
        fault = _fault(name, value, ceilings[arguments[1]] if name == "score" else math.inf)
        if fault is not None:
            result = value if isinstance(value, str) else f"gives {value}"
            named = zip(LOCAL[name], arguments, strict=True)
            at = ", ".join(f"{word} = {given}" for word, given in named if word != "key")
            return f"{name} {result} at {at}{fault}"
    return None


def _fault(name: str, value: Value, ceiling: float) -> str | None:
    """Say what is wrong with the result of a function, as the end of a sentence."""
    if isinstance(value, str):
        return "."
    if not math.isfinite(value):
        return "; it must give a finite number."
    if name == "explore" and not 0.0 <= value <= 1.0:
        return "; a probability is in [0, 1]."
    if value > ceiling:
        return f", above the ceiling {ceiling} of its pass."
    return None


CHECKS: dict[str, Callable[[Subject], str | None]] = {
    "arm score locality": local_scores,
    "oblivious selection": oblivious,
    "masks do not change choices": masks_keep_choices,
    "purity": pure,
    "picklable": picklable,
    "compiles": compiles,
    "finite scores": finite,
}
"""The checks by the name of the property, in the order they run; each gives None, or one sentence
of why not.
"""
