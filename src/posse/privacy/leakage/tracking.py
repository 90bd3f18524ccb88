"""Following arms through scores that come in a fresh order, scale and shift every time.

One arm changes a step. Its K - 1 neighbours keep their scores, so rows of scores are compared after
the scale and shift that fit best, in order of size, which no permutation hides. `follow` keeps the
sum and the pulls of every arm, and finds for each row the reward that explains it. What
neighbouring rows alone show is in `linking`. About .1 ms a row.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, no-any-return"
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from posse.core.compiled import compiled_scalar
from posse.privacy.leakage.scores import Floats, Ints

MEAN, BOUND, POWER = 0, 1, 2
"""Shapes of a score: the mean; mean + sqrt(c ln t / n); exp((mean - 1) / tau)."""
EXACT = 1e-15
"""Share of the variance of a row that may be left unexplained by the right sums and pulls."""
TIES = 1e-12
"""Misfit of equal scores to a row that may be of ties: taken where nothing fits exactly."""
BEAM = 64
"""Explanations that are kept until a later row tells them apart."""
PATIENCE = 40
"""Rows without an explanation after which it gives up."""
MOST = 60_000
"""Explanations of a row that are tried at most."""


@compiled_scalar
def _score(shape, parameter, t, total, pulls):
    mean = total / pulls
    if shape == BOUND:
        return mean + math.sqrt(parameter * math.log(t) / pulls)
    if shape == POWER:
        return math.exp((mean - 1.0) / parameter)
    return mean


@compiled_scalar
def misfit_of(expected, row, origin):
    """Share of the variance of a row that no scale (and shift, unless `origin`) of what is expected
    explains.

    Both are sorted. A constant expectation says nothing about a row of ties, and is a weak
    explanation.
    """
    k = row.shape[0]
    p, v = 0.0, 0.0
    if not origin:
        for i in range(k):
            p += expected[i]
            v += row[i]
        p, v = p / k, v / k
    pp, pv, vv = 0.0, 0.0, 0.0
    for i in range(k):
        pp += (expected[i] - p) ** 2
        pv += (expected[i] - p) * (row[i] - v)
        vv += (row[i] - v) ** 2
    if pp <= 1e-24 * k:
        return TIES if _tied(row, origin) else 1.0
    if vv <= 0.0 or pv <= 0.0:
        return 1.0
    left = 0.0
    a = pv / pp
    for i in range(k):
        left += (row[i] - v - a * (expected[i] - p)) ** 2
    return left / vv


@compiled_scalar
def _tied(row, origin):
    """Whether a sorted row may be of equal scores: equal as it is, or without a gap that stands
    out.
    """
    k = row.shape[0]
    if origin:
        return row[k - 1] - row[0] <= 1e-12 * abs(row[k - 1])
    widest, whole = 0.0, row[k - 1] - row[0]
    for i in range(1, k):
        widest = max(widest, row[i] - row[i - 1])
    return whole <= 0.0 or widest < 0.999 * whole or k == 2


@compiled_scalar
def sorted_row(values):
    """Sort by insertion: rows are short, and this compiles in no time."""
    out = values.copy()
    for i in range(1, out.shape[0]):
        one, j = out[i], i
        while j > 0 and out[j - 1] > one:
            out[j] = out[j - 1]
            j -= 1
        out[j] = one
    return out


@compiled_scalar
def _add(totals, pulls, arm, extra):
    """Give an arm whose mean is 0 or 1 more pulls with rewards like its mean, or take them away."""
    if totals[arm] > 0.0:
        totals[arm] += extra
    pulls[arm] += extra


@compiled_scalar
def _try(
    totals,
    pulls,
    arms,
    gains,
    who,
    extra,
    other,
    also,
    count,
    t,
    shape,
    parameter,
    row,
    origin,
    scores,
):
    """Misfit of a row if these arms were pulled with these gains, and two of them more often than
    was seen.
    """
    k = totals.shape[0]
    _add(totals, pulls, arms[who], extra)
    _add(totals, pulls, arms[other], also)
    for i in range(count):
        totals[arms[i]] += gains[i]
        pulls[arms[i]] += 1
    for i in range(k):
        scores[i] = _score(shape, parameter, t, totals[i], pulls[i])
    ordered = sorted_row(scores)
    found = misfit_of(ordered, row, origin)
    for i in range(count):
        totals[arms[i]] -= gains[i]
        pulls[arms[i]] -= 1
    _add(totals, pulls, arms[who], -extra)
    _add(totals, pulls, arms[other], -also)
    return found


@compiled_scalar
def _leaves(totals, pulls, arm, gain, shape):
    """Whether a pull takes an arm's mean away from 0 or 1; from then on its pulls show."""
    return shape != BOUND and totals[arm] == (1.0 - gain) * pulls[arm]


@compiled_scalar
def _explain(
    totals,
    pulls,
    lost,
    known,
    unknown,
    t,
    shape,
    parameter,
    row,
    origin,
    out_arms,
    out_gains,
    out_extra,
):
    """List the pulls that explain a row exactly: one of the arms in `known` (if any), then
    `unknown` of any arms.

    Where nothing does so exactly, what makes all scores equal explains a row of ties.
    """
    k, candidates = totals.shape[0], known.shape[0]
    offset = 1 if candidates > 0 else 0
    count, found, tied = unknown + offset, 0, False
    arms, gains, code, scores = (
        np.zeros(8, np.int64),
        np.zeros(8),
        np.zeros(8, np.int64),
        np.zeros(k),
    )
    for head in range(max(1, 2 * candidates)):
        for i in range(unknown):
            code[i] = 0
        while True:
            if candidates > 0:
                arms[0], gains[0] = known[head // 2], float(head % 2)
            for i in range(unknown):
                arms[offset + i], gains[offset + i] = code[i] // 2, float(code[i] % 2)
            # An arm whose mean leaves 0 or 1 may have pulls that could not be placed before.
            for who in range(count):
                most_extra = lost if _leaves(totals, pulls, arms[who], gains[who], shape) else 0
                for extra in range(0 if who == 0 else 1, most_extra + 1):
                    for other in range(who, count):
                        most_also = 0
                        apart = other > who and arms[other] != arms[who] and extra > 0
                        if apart and _leaves(totals, pulls, arms[other], gains[other], shape):
                            most_also = lost - extra
                        for also in range(0 if other == who else 1, most_also + 1):
                            misfit = _try(
                                totals,
                                pulls,
                                arms,
                                gains,
                                who,
                                extra,
                                other,
                                also,
                                count,
                                t,
                                shape,
                                parameter,
                                row,
                                origin,
                                scores,
                            )
                            if misfit == TIES and (found == 0 or tied):
                                tied = True
                            elif misfit < EXACT:
                                if tied:
                                    found, tied = 0, False
                            else:
                                continue
                            if found < out_arms.shape[0]:
                                for i in range(count):
                                    out_arms[found, i], out_gains[found, i] = arms[i], gains[i]
                                out_extra[found, 0], out_extra[found, 1] = who, extra
                                out_extra[found, 2], out_extra[found, 3] = other, also
                                found += 1
            # The next multiset of unknown pulls: codes that do not decrease.
            i = unknown - 1
            while i >= 0 and code[i] == 2 * k - 1:
                i -= 1
            if i < 0:
                break
            code[i] += 1
            for j in range(i + 1, unknown):
                code[j] = code[i]
    return found


@compiled_scalar
def _commit(totals, pulls, lost, arms, gains, extra, count, shape):
    """Make these pulls; returns the pulls of arms with mean 0 or 1 that cannot be placed."""
    k = totals.shape[0]
    _add(totals, pulls, arms[extra[0]], extra[1])
    _add(totals, pulls, arms[extra[2]], extra[3])
    lost -= extra[1] + extra[3]
    for i in range(count):
        arm, gain = arms[i], gains[i]
        stays = (
            shape != BOUND and totals[arm] == gain * pulls[arm]
        )  # a mean that stays at 0, or at 1
        for j in range(count):
            stays = stays and not (arms[j] == arm and gains[j] != gain)
        alike = 0
        if stays:
            for j in range(k):
                alike += totals[j] == 0.0 or totals[j] == pulls[j]
        if alike > 1:
            lost += 1
        else:
            totals[arm] += gain
            pulls[arm] += 1
    return lost


@dataclass(frozen=True)
class _State:
    """Sums and pulls that explain the rows so far, and how they came about."""

    totals: Floats
    pulls: Ints
    lost: int
    cost: int
    path: Any = None
    """(the path before, row, arm, reward)."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for states that nothing can tell apart."""
        return (self.lost, *sorted(zip(self.totals.tolist(), self.pulls.tolist(), strict=True)))


@dataclass(frozen=True)
class Followed:
    """What following a run gives."""

    total: float
    pulls: Ints
    """Of every arm, the smallest first: nobody is named."""
    rewards: Floats
    """Of the pull that follows each row; NaN where it is not known."""
    explores: Floats
    """1 for rows that no score explains."""
    explained: float
    """Share of rows that it explains."""


def follow(
    values: Floats,
    chosen: Ints,
    steps: Ints,
    *,
    shape: int,
    parameter: float,
    origin: bool,
    tells: bool = True,
) -> Followed:
    """Follow all arms from the first row on, for rewards of 0 and 1; `tells`: the place selected is
    the one pulled.

    All explanations of a row are kept, up to `BEAM`, until a later one tells them apart. The last
    reward, which no row shows, counts one half.
    """
    rows, k = values.shape
    made = (np.zeros((BEAM, 8), np.int64), np.zeros((BEAM, 8)), np.zeros((BEAM, 4), np.int64))
    beam, last, explained, explores = _first(values[0], origin), 0, 1, np.zeros(rows)
    nobody = np.zeros(0, np.int64)
    for at in range(1, rows):
        if np.isnan(values[at, 0]):
            explores[at] = 1.0
            continue
        row, unknown = np.sort(values[at]), int(steps[at] - steps[last]) - tells
        place = int((values[last] < values[last, chosen[last]]).sum())
        grown: dict[tuple[object, ...], _State] = {}
        for state in beam:
            known = _selected(state, shape, parameter, int(steps[last]), place) if tells else nobody
            if (
                unknown > 7
                or math.comb(2 * k + unknown - 1, unknown) * max(1, 2 * len(known)) > MOST
            ):
                continue
            found = _explain(
                state.totals,
                state.pulls,
                state.lost,
                known,
                unknown,
                int(steps[at]),
                shape,
                parameter,
                row,
                origin,
                *made,
            )
            for i in range(found):
                arms, gains, extra = (one[i] for one in made)
                totals, pulls, count = state.totals.copy(), state.pulls.copy(), unknown + tells
                lost = int(_commit(totals, pulls, state.lost, arms, gains, extra, count, shape))
                path = (state.path, last, float(gains[0])) if tells or count == 1 else state.path
                new = _State(
                    totals, pulls, lost, state.cost + int(extra[1] + extra[3]) + found - 1, path
                )
                old = grown.get(new.key)
                if old is None or new.cost < old.cost:
                    grown[new.key] = new
        if grown:
            beam = sorted(grown.values(), key=lambda one: one.cost)[:BEAM]
            # Equal scores explain any row of ties, and do not count.
            means = beam[0].totals / beam[0].pulls
            last, explained = at, explained + int(np.ptp(means) > 0 or shape == BOUND)
        else:
            explores[at] = 1.0
            if at - last > PATIENCE:
                explores[at:] = 1.0
                break
    return _ended(
        beam[0], values, chosen, steps, last, explained, explores, shape, parameter, tells
    )


def _first(values: Floats, origin: bool) -> list[_State]:
    """Sums after one pull of each arm: two levels of scores are 0 and 1, and one level is
    either.
    """
    first = np.sort(values)
    k, gaps, whole = len(first), np.diff(first), first[-1] - first[0]
    two = whole > (1e-12 * abs(first[-1]) if origin else 0.0) and gaps.max() > 0.999 * whole
    ones, cut = np.ones(k, np.int64), int(gaps.argmax()) + 1
    if two:
        return [_State((np.arange(k) >= cut).astype(np.float64), ones, 0, 0)]
    return [_State(np.full(k, float(base)), ones, 0, 0) for base in (0, 1)]


def _selected(state: _State, shape: int, parameter: float, t: int, place: int) -> Ints:
    """Arms whose score was that of a place in the sorted row; the first of those that nothing tells
    apart.
    """
    scores = np.array(
        [_score(shape, parameter, t, a, b) for a, b in zip(state.totals, state.pulls, strict=True)]
    )
    mine = np.sort(scores)[place]
    alike = np.flatnonzero(np.abs(scores - mine) <= 1e-12 * (1.0 + abs(mine)))
    kinds = {(state.totals[arm], state.pulls[arm]): arm for arm in alike.tolist()}
    return np.array(list(kinds.values()), np.int64)


def _ended(
    state: _State,
    values: Floats,
    chosen: Ints,
    steps: Ints,
    last: int,
    explained: int,
    explores: Floats,
    shape: int,
    parameter: float,
    tells: bool,
) -> Followed:
    rows = len(values)
    rewards, totals, pulls = np.full(rows, np.nan), state.totals.copy(), state.pulls.copy()
    path = state.path
    while path is not None:
        path, at, gain = path
        rewards[at] = gain
    if tells and last == rows - 1:  # the last pull has an arm, and no row shows its reward
        place = int((values[last] < values[last, chosen[last]]).sum())
        arm = _selected(state, shape, parameter, int(steps[last]), place)[0]
        pulls[arm] += 1
        totals[arm] += 0.5
    extremes = np.flatnonzero((totals == 0) | (totals == pulls))
    whole, lost = float(totals.sum()), state.lost
    if lost and len(extremes):
        whole += lost * float((totals[extremes] > 0).mean())
        pulls[extremes[0]] += lost
    missing = max(0, int(steps[-1]) - int(pulls.sum()))
    whole += 0.5 * missing if missing < 4 else missing * whole / max(1, int(pulls.sum()))
    return Followed(whole, np.sort(pulls), rewards, explores, explained / max(1, rows))
