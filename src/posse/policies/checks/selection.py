"""Oblivious selection: it sees scores in an unknown order behind an unknown increasing map, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from posse.policies.checks.locality import shared_state
from posse.policies.checks.subject import Function, Subject, call, choose_name


def oblivious(subject: Subject) -> str | None:
    """Find what a selection needs besides the order of the scores and its coin."""
    for turn, selection in enumerate(subject.policy.passes()):
        if selection.kind not in ("argmax", "match", "custom"):
            return f"pass {turn + 1} is of kind '{selection.kind}'; known are argmax, match and custom."
        if (selection.kind == "custom") != (selection.choose is not None):
            return f"pass {turn + 1} is of kind '{selection.kind}'; a custom selection, and no other, has a choose."
        if selection.choose is None:
            continue
        name = choose_name(turn)
        choose = subject.source[name]
        asked = tuple(inspect.signature(choose).parameters)
        if len(asked) != 2:
            extra = f"'{asked[2]}'" if len(asked) > 2 else "too little"
            return f"{name} asks for {extra}; a selection gets the scores in permuted order and a coin u, nothing else."
        if reason := shared_state(choose, name) or _dependence(choose, name):
            return reason
    return None


def _dependence(choose: Function, name: str) -> str | None:
    """Try a custom selection behind increasing maps first, for values can look like positions, then permuted."""
    rng = np.random.default_rng(7)
    for owners in (2, 3, 5, 8) * 12:
        scores = rng.permutation(4 * owners)[:owners] / (4.0 * owners)
        for u in (0.0, float(rng.random()), 1.0 - 2.0**-53):
            chosen = call(choose, scores.copy(), u)
            for given in (chosen, call(choose, np.zeros(owners), u)):
                if given not in range(owners):
                    return f"{name} gives {given} for {owners} scores and u = {u}; it must give a position."
            for what, mapped in _increasing(scores, rng):
                if call(choose, mapped, u) != chosen:
                    return f"{name} depends on values: it selects another arm when all scores are {what}."
            order = rng.permutation(owners)
            moved = call(choose, scores[order], u)
            if moved not in range(owners) or order[int(moved)] != chosen:
                return f"{name} depends on positions: it selects another arm when the arms are permuted."
    return None


def _increasing(scores: NDArray[np.float64], rng: np.random.Generator) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield the scores behind increasing maps, and what was done to them."""
    for factor in (1e-6, 0.3, 7.0, 1e6):
        yield f"multiplied by {factor:g}", scores * factor
    for shift in (-1000.0, -1.0, 1.0, 1000.0):
        yield f"shifted by {shift:g}", scores + shift
    ranks = np.argsort(np.argsort(scores))
    yield "replaced by their ranks", ranks.astype(float)
    yield "mapped by another increasing function", np.cumsum(rng.exponential(size=len(scores)))[ranks]
