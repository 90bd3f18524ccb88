"""Ratings that people gave to items, and the arms they make.

The mean of item i is the share of its ratings that lie strictly above a threshold:

    mu_i = (ratings of i above the threshold) / (ratings of i)

Only the ratings an item received count: people who did not rate it do not count.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.problems.arms.rewards import Arms, BernoulliArms, EmpiricalArms

Reward = Literal["bernoulli", "rating"]
REWARDS: tuple[str, ...] = ("bernoulli", "rating")

ENOUGH = 10
"""Ratings from which the share above a threshold has a standard error of at most .16."""


@dataclass(frozen=True, eq=False)
class Ratings:
    """One value per (item, rating), with the scale it was given on.

    `items` are ids, `item` the position in `items` that each rating is for, `user` the number of
    the person who gave it (where known), `names` what people call the items (the ids when left out;
    two of one name get their id added).

    >>> films = Ratings(
    ...     ("heat", "alien"),
    ...     [0, 0, 0, 1],
    ...     [4.0, 5.0, 3.0, 4.0],
    ...     scale=(0.5, 5.0),
    ...     source="three friends",
    ... )
    >>> films.counts.tolist(), films.means(3.0).round(2).tolist()
    ([3, 1], [0.67, 1.0])
    >>> films.arms(3.0, top=2).names
    ('alien', 'heat')
    """

    items: tuple[str, ...]
    item: NDArray[np.int64]
    value: NDArray[np.float64]
    scale: tuple[float, float]
    source: str
    user: NDArray[np.int64] | None = None
    names: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        put = object.__setattr__  # the way a frozen dataclass normalises its own fields
        put(self, "items", tuple(self.items))
        put(self, "names", _apart(tuple(self.names) or self.items, self.items))
        put(self, "item", _sealed(self.item, np.dtype(np.int64)))
        put(self, "value", _sealed(self.value, np.dtype(np.float64)))
        if self.user is not None:
            put(self, "user", _sealed(self.user, np.dtype(np.int64)))
        self._check_shape()
        self._check_values()

    def _check_shape(self) -> None:
        if len(set(self.items)) != len(self.items) or len(self.names) != len(self.items):
            raise ConfigError(
                f"items must be distinct and have one name each, got {len(self.items)} items "
                f"({len(set(self.items))} distinct) and {len(self.names)} names.",
                rule="problems.items.not-distinct",
            )
        users = len(self.item) if self.user is None else len(self.user)
        if not len(self.item) == len(self.value) == users:
            raise ConfigError(
                f"every rating needs an item, a value and (where users are known) a user, "
                f"got {len(self.item)} items, {len(self.value)} values and {users} users.",
                rule="problems.ratings.lengths",
            )
        if len(self.item) and not (self.item.min() >= 0 and self.item.max() < len(self.items)):
            raise ConfigError(
                f"item must be positions from 0 to {len(self.items) - 1}, "
                f"got {self.item.min()} to {self.item.max()}. Give one id in items for each.",
                rule="problems.item.out-of-range",
            )

    def _check_values(self) -> None:
        low, high = self.scale
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ConfigError(
                f"scale must be two finite numbers, the lower first, got ({low}, {high}).",
                rule="problems.scale.not-finite",
            )
        outside = np.flatnonzero(~((self.value >= low) & (self.value <= high)))
        if len(outside):
            raise ConfigError(
                f"ratings must be in [{low:g}, {high:g}], got {self.value[outside[0]]} at position "
                f"{outside[0]}. "
                "Correct it, or widen scale.",
                rule="problems.rating.outside-scale",
            )

    def __len__(self) -> int:
        return len(self.value)

    @property
    def are_rewards(self) -> bool:
        """Whether all ratings are 0 or 1."""
        return self.scale == (0.0, 1.0) and bool(((self.value == 0) | (self.value == 1)).all())

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many ratings each item received."""
        return np.bincount(self.item, minlength=len(self.items)).astype(np.int64)

    def usual_minimum(self, top: int | None = None) -> int:
        """Return the fewest ratings of an arm, if nobody gives `minimum`.

        Half the median number of ratings of an item, and at most `ENOUGH`: an item with far fewer
        ratings than the others would look best by chance. Lower if fewer than `top` items (2 if not
        given) have so many.
        """
        counts = np.sort(self.counts[self.counts > 0])[::-1]
        if len(counts) == 0:
            return 1
        usual = min(ENOUGH, max(1, int(np.median(counts)) // 2))
        wanted = min(top or 2, len(counts))
        return min(usual, int(counts[wanted - 1]))

    def means(self, threshold: float) -> NDArray[np.float64]:
        """Give mu_i for every item: the share of its ratings strictly above `threshold` (NaN for an
        unrated item).
        """
        self._check_threshold(threshold)
        above = np.bincount(self.item[self.value > threshold], minlength=len(self.items))
        counts = self.counts
        means = np.full(len(self.items), np.nan)
        np.divide(above, counts, out=means, where=counts > 0)
        return means

    def arms(
        self,
        threshold: float,
        minimum: int = 1,
        top: int | None = None,
        items: Sequence[str] | None = None,
        reward: Reward = "bernoulli",
    ) -> Arms:
        """Make one arm of each item that has at least `minimum` ratings.

        Which ones: `top=K` the K of largest mean (ties: more ratings first, then id), `items` those
        named (by id or by name) in that order, neither of the two: all of them.

        Their rewards: "bernoulli" pays 1 with probability mu_i; "rating" draws one of the item's
        own ratings, scaled from `scale` to [0, 1]. The items chosen are the same for both: `top`
        ranks by mu_i.
        """
        check.one_of(REWARDS, reward=reward)
        means = self.means(threshold)
        _check_choice(minimum, top, items)
        if items is not None:
            chosen = self._named(items, minimum)
            which = f"{len(items)} named items"
        elif top is not None:
            chosen = self._best(top, minimum, means)
            which = f"the {top} items of largest mean"
        else:
            chosen = self._rated(minimum)
            which = "all items"
        names = [self.names[i] for i in chosen]
        plural = "s" if minimum > 1 else ""
        source = (
            f"{self.source}; ratings above {threshold:g}; "
            f"{which} among those with at least {minimum} rating{plural}"
        )
        if reward == "bernoulli":
            return BernoulliArms([float(means[i]) for i in chosen], names=names, source=source)
        return EmpiricalArms(self._samples(chosen), names=names, source=f"{source}; scaled ratings")

    def _rated(self, minimum: int) -> list[int]:
        """Positions of the items with at least so many ratings."""
        return [int(i) for i in np.flatnonzero(self.counts >= minimum)]

    def _best(self, top: int, minimum: int, means: NDArray[np.float64]) -> list[int]:
        """Positions of so many items of largest mean."""
        counts, rated = self.counts, self._rated(minimum)
        if top > len(rated):
            raise DataError(
                self._too_few(top, len(rated), minimum), rule="problems.owners.too-few-items"
            )
        return sorted(rated, key=lambda i: (-means[i], -counts[i], _by_id(self.items[i])))[:top]

    def _too_few(self, number: int, eligible: int, minimum: int) -> str:
        rated = int((self.counts > 0).sum())
        have = (
            f"{number} arms wanted, but {self.source} has {eligible} items with at least {minimum} "
            "ratings."
        )
        if number > rated:
            return (
                f"{have} It has {rated} rated items in all: ask for at most {eligible}, or {rated} "
                "with minimum=1."
            )
        enough = int(np.sort(self.counts)[::-1][number - 1])
        return f"{have} Ask for at most {eligible}, or set minimum={enough} or lower."

    def _named(self, items: Sequence[str], minimum: int) -> list[int]:
        # Ids win over names: a film can be called '300' where another film has that id.
        position = {word: i for words in (self.names, self.items) for i, word in enumerate(words)}
        counts, chosen = self.counts, list[int]()
        for word in items:
            if word not in position:
                raise DataError(
                    f"no item '{word}' in {self.source}.{_suggestion(word, position)}",
                    rule="problems.items.unknown",
                )
            at = position[word]
            if at in chosen:
                raise ConfigError(
                    f"items must be distinct, got '{word}' twice. Name each arm once.",
                    rule="problems.items.twice",
                )
            if counts[at] < minimum:
                raise DataError(
                    f"item '{word}' of {self.source} has {counts[at]} ratings, below "
                    f"minimum={minimum}. "
                    + (
                        f"Set minimum={counts[at]} or lower, or leave it out."
                        if counts[at]
                        else "Leave it out."
                    ),
                    rule="problems.items.below-minimum",
                )
            chosen.append(at)
        return chosen

    def _samples(self, chosen: Sequence[int]) -> list[NDArray[np.float64]]:
        low, high = self.scale
        scaled = (self.value - low) / (high - low)
        # One stable sort by item instead of one pass over all ratings for each item.
        by_item = scaled[np.argsort(self.item, kind="stable")]
        ends = np.cumsum(self.counts)
        starts = ends - self.counts
        return [by_item[starts[i] : ends[i]] for i in chosen]

    def _check_threshold(self, threshold: float) -> None:
        low, high = self.scale
        if np.isfinite(threshold) and low <= threshold < high:
            return
        if len(self) == 0:
            raise DataError(f"{self.source} holds no ratings.", rule="problems.ratings.empty")
        raise ConfigError(
            f"threshold must be at least {low:g} and below {high:g} (the scale of {self.source}), "
            f"got {threshold}: "
            "beyond it every item has the same mean. Choose one inside.",
            rule="problems.threshold.outside-scale",
        )


def _apart(names: tuple[str, ...], ids: tuple[str, ...]) -> tuple[str, ...]:
    """Tell items of one name apart by their id: two films can share title and year, two arms no
    name.
    """
    if len(set(names)) == len(names) or len(names) != len(ids):
        return names
    often = Counter(names)
    return tuple(
        f"{name} [{item}]" if often[name] > 1 else name
        for name, item in zip(names, ids, strict=True)
    )


def _sealed(
    values: object, dtype: np.dtype[np.int64] | np.dtype[np.float64]
) -> NDArray[np.generic]:
    """A read-only view, so that a frozen value stays what it was; the caller's own array keeps its
    flags.
    """
    view: NDArray[np.generic] = np.asarray(values, dtype=dtype).view()
    view.flags.writeable = False
    return view


def _check_choice(minimum: int, top: int | None, items: Sequence[str] | None) -> None:
    if minimum < 1:
        raise ConfigError(
            f"minimum must be at least 1 rating, got {minimum}: an unrated item has no mean.",
            rule="problems.minimum.too-small",
        )
    if top is not None and items is not None:
        raise ConfigError(
            "top and items both choose items, got both. Give one.",
            rule="problems.items.and-top",
        )
    if top is not None:
        check.at_least(1, top=top)
    if isinstance(items, str):
        raise ConfigError(
            f"items must be a list of ids or names, got the single word '{items}'.",
            rule="problems.items.not-a-list",
        )


def _by_id(item: str) -> tuple[int, int, str]:
    # Numbered items sort as numbers: '9' before '10'.
    return (0, int(item), "") if item.isascii() and item.isdecimal() else (1, 0, item)


def _suggestion(word: str, names: Sequence[str] | dict[str, int], few: int = 12) -> str:
    """Suggest the nearest item; the full list only where it is short enough to read.

    >>> _suggestion("toy story", [f"film {n}" for n in range(50)] + ["Toy Story (1995)"])
    " Did you mean 'Toy Story (1995)'?"
    """
    if len(names) <= few:
        return check.suggestion(word, tuple(names))
    folded = {other.lower(): other for other in names}
    close = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.5)
    return (
        f" Did you mean '{folded[close[0]]}'?" if close else f" It has {len(names)} ids and names."
    )
