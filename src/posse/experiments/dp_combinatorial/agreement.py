"""The published numbers, and whether ours agree: whether a number lies in our interval."""

from __future__ import annotations

from dataclasses import dataclass

from posse.results.statistics import Interval

PUBLISHED = {
    "uniform": {"P-FCB, paper noise": 2.36, "alone": 3.33},
    "normal": {"P-FCB, paper noise": 3.35, "alone": 4.94},
}
"""Regret at round 100,000 over that of FCB (section 6.2, EXP1: 136 %, 233 %, 235 % and 394 % more); other results are
printed as pictures only."""


@dataclass(frozen=True)
class Comparison:
    """A published ratio beside ours."""

    distribution: str
    method: str
    published: float
    means: Interval
    """Ratio of means over instances: what the paper reports."""
    median: Interval
    """Median over instances of their ratios."""


def verdict(published: float, ours: Interval) -> str:
    """Say where a published number lies.

    >>> one = Interval(2.0, 1.5, 2.5, level=0.95, resamples=4000, over="instances")
    >>> verdict(2.4, one), verdict(2.6, one), verdict(1.4, one)
    ('inside', 'outside: published is larger', 'outside: published is smaller')
    """
    if not ours.known:
        return "no interval"
    if ours.low <= published <= ours.high:
        return "inside"
    return f"outside: published is {'larger' if published > ours.high else 'smaller'}"


def agreement(comparisons: tuple[Comparison, ...]) -> str:
    """Say in one sentence how many published numbers lie in our intervals, and which do not."""
    out = [one for one in comparisons if verdict(one.published, one.means) != "inside"]
    inside = len(comparisons) - len(out)
    sentence = (
        f"{inside} of {len(comparisons)} published ratios to FCB lie in our 95 % intervals (ratios of means, bootstrap "
        "over instances)"
    )
    if not out:
        return f"{sentence}."
    named = "; ".join(f"{one.distribution}, {one.method}: published {one.published}, ours {one.means}" for one in out)
    return f"{sentence}; we disagree on {named}."
