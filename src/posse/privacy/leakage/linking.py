"""What rows of scores show without following a run from its beginning.

`pairs` finds the arm that was pulled after a row in the next one; `strangeness` says how little a
row looks like its neighbours; `late` finds sum and pulls of the leading arm from a stretch in the
middle of a run. Compiled; some 20 microseconds a row.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, no-any-return"
from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from posse.core.compiled import compiled_scalar
from posse.privacy.leakage.scores import Bools, Floats, Ints
from posse.privacy.leakage.tracking import EXACT, misfit_of, sorted_row

# Neighbouring rows --------------------------------------------------------------------------------


@compiled_scalar
def _without(row, place):
    """Sort all but one."""
    out = np.empty(row.shape[0] - 1)
    for i in range(out.shape[0]):
        out[i] = row[i if i < place else i + 1]
    return sorted_row(out)


@compiled_scalar
def _pairs(values, chosen, steps, most, origin, misfits, moved, linked):
    rows, k = values.shape
    for at in range(rows - 1):
        nxt = at + 1
        while nxt < rows and steps[nxt] - steps[at] <= most and np.isnan(values[nxt, 0]):
            nxt += 1
        if (
            nxt >= rows
            or steps[nxt] - steps[at] > most
            or np.isnan(values[at, 0])
            or chosen[at] < 0
        ):
            continue
        linked[at] = nxt
        old = _without(values[at], chosen[at])
        row = values[nxt]
        best, place = 1e300, 0
        for j in range(k):
            new = _without(row, j)
            misfit = misfit_of(old, new, origin)
            misfits[at, j] = misfit
            if misfit < best:
                best, place = misfit, j
        # How far the one that moved went, in units of the spread of the others.
        new = _without(row, place)
        n = k - 1
        p, v = old.mean(), new.mean()
        pp, pv = 0.0, 0.0
        for i in range(n):
            pp += (old[i] - p) ** 2
            pv += (old[i] - p) * (new[i] - v)
        if pp > 0.0 and pv > 0.0:
            moved[at] = ((row[place] - v) / (pv / pp) + p - values[at, chosen[at]]) / math.sqrt(
                pp / n
            )


@dataclass(frozen=True)
class Linked:
    """What two neighbouring rows show."""

    rows: Ints
    """Rows whose selected place is looked for in a later one."""
    later: Ints
    scores: Floats
    """(rows, places): how much each place of the later row looks like the arm that was pulled."""
    moved: Floats
    """How far its score went."""


def pairs(
    values: Floats, chosen: Ints, steps: Ints, *, origin: bool = False, most: int = 1
) -> Linked:
    """Look for the arm that was pulled after a row in the next one, at most `most` steps later."""
    rows, k = values.shape
    misfits, moved = np.full((rows, k), np.nan), np.full(rows, np.nan)
    linked = np.full(rows, -1)
    if k > 2 and rows > 1:
        _pairs(values, chosen, steps, most, origin, misfits, moved, linked)
    kept = np.flatnonzero(linked >= 0)
    return Linked(kept, linked[kept], -np.log(misfits[kept] + 1e-30), moved[kept])


NEAR, LOWEST, SAME = 3, 12, 1e-8
"""Rows on each side that a row is compared with, the lowest places that are, and the error of equal
ratios.
"""


def shares_a_ratio(rows: Floats) -> Bools:
    """Return which rows have the ratio of two gaps between places in common with a row near them;
    rows are sorted.

    Three arms that are not pulled between two rows keep this ratio, whatever scale and shift. A row
    of numbers that are drawn anew has it by chance only. So a row of scores is recognised, also
    where nine of ten rows are not seen.

    >>> drawn, means = np.array([0.1, 0.35, 0.38, 0.9]), np.array([0.2, 0.3, 0.6, 0.7])
    >>> shares_a_ratio(np.array([means, drawn, 5 * means + 1])).tolist()
    [True, False, True]
    """
    places = np.array(list(combinations(range(min(rows.shape[1], LOWEST)), 3)), np.int64).reshape(
        -1, 3
    )
    low, middle, high = (rows[:, place] for place in places.T)
    ratios = (middle - low) / np.where(high > low, high - low, np.inf)
    shared = np.zeros(len(rows), np.bool_)
    for apart in range(1, NEAR + 1 if len(places) else 1):
        for first, (one, other) in enumerate(zip(ratios[:-apart], ratios[apart:], strict=True)):
            if (np.abs(one[:, None] - other) < SAME).any():
                shared[[first, first + apart]] = True
    return shared


def strangeness(values: Floats, width: int = 25) -> Floats:
    """How far each row, in order of size and scaled to [0, 1], is from the median of the rows
    around it.

    A row that shares no ratio with a row near it is stranger than all that do. A row that no score
    made (NaN) is infinitely strange.
    """
    rows = np.sort(values, axis=1)
    span = rows[:, -1:] - rows[:, :1]
    shapes = (rows - rows[:, :1]) / np.where(span > 0, span, 1.0)
    out = np.full(len(rows), np.inf)
    known = np.flatnonzero(~np.isnan(values).any(axis=1))
    inside = shapes[known]
    alone = ~shares_a_ratio(inside) * shapes.shape[1]
    for at, row in enumerate(known.tolist()):
        near = inside[max(0, at - width) : at + width + 1]
        out[row] = np.abs(shapes[row] - np.median(near, axis=0)).sum() + alone[at]
    return out


# Late ---------------------------------------------------------------------------------------------


@compiled_scalar
def _late(ys, gains, counts, most):
    """The number of pulls before the first of some positions y = (A (s + gains) + B (n + counts)) /
    (n + counts).
    """
    size = ys.shape[0]
    best, found, sum_found = 1e300, 0, 0.0
    for n in range(1, most + 1):
        # Least squares for (A s, A, B) of columns 1 / (n + c), g / (n + c), 1.
        m = np.zeros((3, 4))
        for i in range(size):
            w = 1.0 / (n + counts[i])
            c0, c1 = w * n, gains[i] * w * n
            x = (c0, c1, 1.0)
            for a in range(3):
                for b in range(3):
                    m[a, b] += x[a] * x[b]
                m[a, 3] += x[a] * ys[i]
        for a in range(3):  # elimination
            p = a
            for b in range(a + 1, 3):
                if abs(m[b, a]) > abs(m[p, a]):
                    p = b
            for b in range(4):
                m[a, b], m[p, b] = m[p, b], m[a, b]
            if m[a, a] == 0.0:
                break
            for b in range(3):
                if b != a:
                    f = m[b, a] / m[a, a]
                    for c in range(4):
                        m[b, c] -= f * m[a, c]
        if m[0, 0] == 0.0 or m[1, 1] == 0.0 or m[2, 2] == 0.0:
            continue
        s0, s1, s2 = m[0, 3] / m[0, 0], m[1, 3] / m[1, 1], m[2, 3] / m[2, 2]
        left = 0.0
        for i in range(size):
            w = n / (n + counts[i])
            left += (ys[i] - s0 * w - s1 * gains[i] * w - s2) ** 2
        if left < best and s1 != 0.0:
            best, found, sum_found = left, n, s0 / s1
    return found, sum_found, best


@dataclass(frozen=True)
class Leader:
    """The sum and the pulls of the arm that leads, before some row."""

    row: int
    pulls: int
    total: float
    misfit: float


def late(values: Floats, chosen: Ints, steps: Ints) -> Leader | None:
    """Find the pulls and the sum of the leading arm from a stretch of rows of means in the middle
    of a run.

    Neighbours that keep their place among the others give every row the frame of the first one, in
    which the leader moves by (r - mean) / (n + 1) with every pull: up for a reward of 1, down for
    one of 0, and less the more pulls it has. None where no stretch is long enough.
    """
    stretches, start = [], 0
    while start < len(values) - 8:
        made = _stretch(values, chosen, start)
        stretches.append(made)
        start = max(made[0][-1] + 1, start + 8)
    longest = sorted((one for one in stretches if len(one[0]) >= 10), key=lambda one: -len(one[0]))[
        :4
    ]
    found = [one for one in (_leading(*stretch, steps) for stretch in longest) if one is not None]
    return min(found, key=lambda one: one.misfit) if found else None


def _leading(rows: list[int], places: list[float], gaps: list[int], steps: Ints) -> Leader | None:
    """Read rewards off the moves of the leader, and its pulls off their size."""
    moves = np.diff(places)
    alone = np.array([gap == 1 for gap in gaps[1:]])
    ups, downs = moves[alone & (moves > 0)], moves[alone & (moves < 0)]
    if not len(ups) or not len(downs):
        return None
    up, down = float(np.median(ups)), float(np.median(downs))
    options = np.array([up, down, 2 * up, up + down, 2 * down])
    gains, counts = [0.0], [0]
    for move, single in zip(moves.tolist(), alone.tolist(), strict=True):
        which = int(np.abs(options[: 2 if single else 5] - move).argmin())
        gains.append(gains[-1] + (1.0, 0.0, 2.0, 1.0, 0.0)[which])
        counts.append(counts[-1] + (1, 1, 2, 2, 2)[which])
    pulls, total, left = _late(
        np.array(places), np.array(gains), np.array(counts), int(steps[rows[0]])
    )
    return Leader(rows[0], int(pulls), float(round(total)), float(left) / (len(rows) - 4) / up**2)


def _stretch(values: Floats, chosen: Ints, start: int) -> tuple[list[int], list[float], list[int]]:
    """Rows from `start` on in the frame of the first: where the leader is, and rows since the one
    before.
    """
    frame = np.delete(values[start], chosen[start])
    frame.sort()
    spread = frame[-1] - frame[0]
    if not spread > 0:
        return [start], [0.0], [0]
    frame = (frame - frame[0]) / spread
    rows, gaps = [start], [0]
    places = [
        float(
            (values[start, chosen[start]] - np.delete(values[start], chosen[start]).min()) / spread
        )
    ]
    missed = 0
    for at in range(start + 1, len(values)):
        if np.isnan(values[at, 0]) or missed > 6:
            missed += 1
            if missed > 6:
                break
            continue
        fitted, a, b = _reframe(frame, _without(values[at], chosen[at]))
        if not fitted:
            missed += 1
            continue
        places.append(float((values[at, chosen[at]] - b) / a))
        rows.append(at)
        gaps.append(at - rows[-2])
        missed = 0
    return rows, places, gaps


@compiled_scalar
def _fit(x, y, skip_x, skip_y):
    """Fit y = a x + b without one of each (none: -1); returns a, b and the share of the variance
    that is left.
    """
    n, mx, my = 0, 0.0, 0.0
    size = x.shape[0]
    i, j = 0, 0
    while i < size and j < size:
        if i == skip_x:
            i += 1
        elif j == skip_y:
            j += 1
        else:
            mx, my, n = mx + x[i], my + y[j], n + 1
            i, j = i + 1, j + 1
    mx, my = mx / n, my / n
    xx, xy, yy, left = 0.0, 0.0, 0.0, 0.0
    for turn in range(2):
        a = xy / xx if turn == 1 and xx > 0.0 else 0.0
        i, j = 0, 0
        while i < size and j < size:
            if i == skip_x:
                i += 1
            elif j == skip_y:
                j += 1
            else:
                dx, dy = x[i] - mx, y[j] - my
                if turn == 0:
                    xx, xy, yy = xx + dx * dx, xy + dx * dy, yy + dy * dy
                else:
                    left += (dy - a * dx) ** 2
                i, j = i + 1, j + 1
    if xx <= 0.0 or yy <= 0.0 or xy <= 0.0:
        return 0.0, 0.0, 1.0
    return xy / xx, my - xy / xx * mx, left / yy


@compiled_scalar
def _reframe(frame, others):
    """Fit others = a frame + b but for at most one of each, and put the one that changed into the
    frame.
    """
    a, b, left = _fit(frame, others, -1, -1)
    if left < EXACT:
        return True, a, b
    size = frame.shape[0]
    best, best_a, best_b, out, into = 1.0, 0.0, 0.0, 0, 0
    if size >= 5:
        for i in range(size):
            for j in range(size):
                a, b, left = _fit(frame, others, i, j)
                if left < best:
                    best, best_a, best_b, out, into = left, a, b, i, j
    if best >= EXACT:
        return False, 0.0, 0.0
    frame[out] = (others[into] - best_b) / best_a
    frame[:] = sorted_row(frame)
    return True, best_a, best_b
