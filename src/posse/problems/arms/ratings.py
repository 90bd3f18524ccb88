"""Ratings that people gave to items, and arms of these items.

The mean of item i is the share of its ratings that lie strictly above a threshold:

    mu_i = (ratings of i above the threshold) / (ratings of i)

People who did not rate an item do not count.
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
from posse.problems.requirements import Floats, Ints, Requirement, check_all, check_entries

Reward = Literal["bernoulli", "rating"]
REWARDS: tuple[str, ...] = ("bernoulli", "rating")

ENOUGH = 10
"""Ratings from which the share above a threshold has a standard error of at most .16."""


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of items, with their scale.

    `items` are ids. `item` has the position in `items` for each rating, and `user` the number of
    the person who rated, if it is known. `names` are the names of the items, by default the ids;
    if several items have one name, their ids are added to it.

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
    item: Ints
    value: Floats
    scale: tuple[float, float]
    source: str
    user: Ints | None = None
    names: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        put = object.__setattr__  # the way a frozen dataclass normalises its own fields
        put(self, "items", tuple(self.items))
        put(self, "names", _names_with_ids(tuple(self.names) or self.items, self.items))
        put(self, "item", _read_only(self.item, np.dtype(np.int64)))
        put(self, "value", _read_only(self.value, np.dtype(np.float64)))
        if self.user is not None:
            put(self, "user", _read_only(self.user, np.dtype(np.int64)))
        check_all(self, _RATINGS)
        low, high = self.scale
        check_entries(
            (self.value >= low) & (self.value <= high),
            lambda place: ConfigError(
                f"ratings must be in [{low:g}, {high:g}], got {self.value[place]} at position "
                f"{place[0]}. Correct it, or widen scale.",
                rule="problems.rating.outside-scale",
            ),
        )

    def __len__(self) -> int:
        return len(self.value)

    @property
    def are_rewards(self) -> bool:
        """Whether all ratings are 0 or 1."""
        return self.scale == (0.0, 1.0) and bool(((self.value == 0) | (self.value == 1)).all())

    @property
    def counts(self) -> Ints:
        """Number of ratings of each item."""
        return np.bincount(self.item, minlength=len(self.items)).astype(np.int64)

    def usual_minimum(self, top: int | None = None) -> int:
        """Return the fewest ratings of an arm, if no `minimum` is set.

        It is half the median number of ratings of an item, and at most `ENOUGH`: an item with far
        fewer ratings than the others would look best by chance. It is lower if fewer than `top`
        items (2 by default) have so many ratings.
        """
        counts = np.sort(self.counts[self.counts > 0])[::-1]
        if len(counts) == 0:
            return 1
        usual = min(ENOUGH, max(1, int(np.median(counts)) // 2))
        number = min(top or 2, len(counts))
        return min(usual, int(counts[number - 1]))

    def means(self, threshold: float) -> Floats:
        """Return mu_i for every item: the share of its ratings strictly above `threshold`.

        It is NaN for an item without ratings.
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

        Args:
            threshold: A rating above it is a reward of 1.
            minimum: Fewest ratings of an item.
            top: Take only the items of largest mean, so many. Of equal means, the item with more
                ratings comes first, then the smaller id.
            items: Take only these items, by id or name, in this order.
            reward: "bernoulli" pays 1 with probability mu_i. "rating" draws one of the item's own
                ratings, scaled from `scale` to [0, 1].
        """
        check.one_of(REWARDS, reward=reward)
        means = self.means(threshold)
        _check_choice(minimum, top, items)
        which = "all items"
        chosen = self._rated(minimum)
        if items is not None:
            which = f"{len(items)} named items"
            chosen = self._named(items, minimum)
        elif top is not None:
            which = f"the {top} items of largest mean"
            chosen = self._best(top, minimum, means)
        names = [self.names[i] for i in chosen]
        plural = "s" if minimum > 1 else ""
        source = (
            f"{self.source}; ratings above {threshold:g}; "
            f"{which} among those with at least {minimum} rating{plural}"
        )
        if reward == "bernoulli":
            return BernoulliArms(means[chosen], names=names, source=source)
        return EmpiricalArms(self._samples(chosen), names=names, source=f"{source}; scaled ratings")

    def _rated(self, minimum: int) -> list[int]:
        """Return the positions of the items with at least so many ratings."""
        rated: list[int] = np.flatnonzero(self.counts >= minimum).tolist()
        return rated

    def _best(self, top: int, minimum: int, means: Floats) -> list[int]:
        """Return the positions of the items of largest mean."""
        rated = self._rated(minimum)
        if top > len(rated):
            every = len(self._rated(1))
            raise DataError(
                f"{top} arms wanted, but {self.source} has {len(rated)} items with at least "
                f"{minimum} ratings, and {every} items with any. Ask for at most {len(rated)}, or "
                "lower minimum.",
                rule="problems.owners.too-few-items",
            )
        counts = self.counts
        return sorted(rated, key=lambda i: (-means[i], -counts[i], _by_id(self.items[i])))[:top]

    def _named(self, items: Sequence[str], minimum: int) -> list[int]:
        # Ids win over names: a film can be called '300' where another film has that id.
        position = {word: i for words in (self.names, self.items) for i, word in enumerate(words)}
        for word in items:
            if word not in position:
                raise DataError(
                    f"no item '{word}' in {self.source}.{_suggestion(word, tuple(position))}",
                    rule="problems.items.unknown",
                )
        chosen = [position[word] for word in items]
        twice = check.first_repeated(self.items[place] for place in chosen)
        if twice is not None:
            raise ConfigError(
                f"items must be distinct, got '{twice}' twice. Name each arm once.",
                rule="problems.items.twice",
            )
        few = [place for place in chosen if self.counts[place] < minimum]
        if few:
            raise DataError(
                f"item '{self.items[few[0]]}' of {self.source} has {self.counts[few[0]]} ratings, "
                f"below minimum={minimum}. Lower minimum, or leave the item out.",
                rule="problems.items.below-minimum",
            )
        return chosen

    def _samples(self, chosen: Sequence[int]) -> list[Floats]:
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
            f"got {threshold}: beyond it every item has the same mean. Choose one inside.",
            rule="problems.threshold.outside-scale",
        )


_RATINGS: tuple[Requirement[Ratings], ...] = (
    Requirement(
        "problems.items.not-distinct",
        lambda ratings: len(set(ratings.items)) == len(ratings.items) == len(ratings.names),
        lambda ratings: (
            f"items must be distinct and have one name each, got {len(ratings.items)} items "
            f"({len(set(ratings.items))} distinct) and {len(ratings.names)} names."
        ),
    ),
    Requirement(
        "problems.ratings.lengths",
        lambda ratings: (
            len(ratings.item) == len(ratings.value)
            and (ratings.user is None or len(ratings.user) == len(ratings.value))
        ),
        lambda ratings: (
            "every rating needs an item, a value and (where users are known) a user, got "
            f"{len(ratings.item)} items and {len(ratings.value)} values."
        ),
    ),
    Requirement(
        "problems.item.out-of-range",
        lambda ratings: (
            ratings.item.min(initial=0) >= 0 and ratings.item.max(initial=-1) < len(ratings.items)
        ),
        lambda ratings: (
            f"item must be positions from 0 to {len(ratings.items) - 1}, got {ratings.item.min()} "
            f"to {ratings.item.max()}. Give one id in items for each."
        ),
    ),
    Requirement(
        "problems.scale.not-finite",
        lambda ratings: -np.inf < ratings.scale[0] < ratings.scale[1] < np.inf,
        lambda ratings: f"scale must be two finite numbers, the lower first, got {ratings.scale}.",
    ),
)


def _names_with_ids(names: tuple[str, ...], ids: tuple[str, ...]) -> tuple[str, ...]:
    """Add the id to each name that several items have: two films can share title and year."""
    counts = Counter(names)
    if len(counts) == len(names) or len(names) != len(ids):
        return names
    return tuple(
        f"{name} [{item}]" if counts[name] > 1 else name
        for name, item in zip(names, ids, strict=True)
    )


def _read_only(
    values: object, dtype: np.dtype[np.int64] | np.dtype[np.float64]
) -> NDArray[np.generic]:
    """Return a view that cannot be written to; the caller's own array can be."""
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
    check.at_least(1, top=1 if top is None else top)
    if isinstance(items, str):
        raise ConfigError(
            f"items must be a list of ids or names, got the single word '{items}'.",
            rule="problems.items.not-a-list",
        )


def _by_id(item: str) -> tuple[int, int, str]:
    # Numbered items sort as numbers: '9' before '10'.
    return (0, int(item), "") if item.isascii() and item.isdecimal() else (1, 0, item)


def _suggestion(word: str, names: Sequence[str], few: int = 12) -> str:
    """Suggest the nearest item; list all items only if they are few.

    >>> _suggestion("toy story", [f"film {n}" for n in range(50)] + ["Toy Story (1995)"])
    " Did you mean 'Toy Story (1995)'?"
    """
    if len(names) <= few:
        return check.suggestion(word, tuple(names))
    names_by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), names_by_lower, n=1, cutoff=0.5)
    if not close:
        return f" It has {len(names)} ids and names."
    return f" Did you mean '{names_by_lower[close[0]]}'?"
