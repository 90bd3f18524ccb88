"""What an attack is: an estimate from what an adversary saw, kept apart from how it is scored.

`estimate` is given what an adversary who holds some roles saw, and a seed, and nothing else: the
same answer twice. `score` compares estimates with the truth that only a simulation knows, and says
what an adversary who saw nothing scores against the same truth (`Score.baseline`, `Score.p`). Two
controls stand beside every score: `plant` puts a leak into what is seen, which a working attack
finds, and `shuffle` exchanges the truth for one that what is seen cannot tell, which no honest
attack finds. An attack that finds nothing says something only where it finds what was planted.

To add one: write `estimate` and `score`, name the sentences of the level that it stands behind, and
list it in `systems/<system>/attacks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from posse.core.errors import ConfigError, DataError
from posse.core.roles import View

Truth: TypeAlias = Mapping[str, Any]

FINDS, LITTLE, NOTHING, BLIND = "finds it out", "a little", "nothing found", "says nothing"
"""Verdicts; `BLIND`: nothing found by an attack that does not find its planted leak either."""
SIGNIFICANCE = 0.01
"""Probability, over all attacks of an audit together, that one without a leak seems to find one."""
PLANTINGS = 5
"""Planted leaks that the power is counted from."""
WIRE = "wire"
"""Stands for a role in `Attack.adversary`: one that holds none, and sees what travels."""


@dataclass(frozen=True)
class Score:
    """How good estimates are; a larger value is better for the adversary."""

    value: float
    interval: tuple[float, float] | None = None
    """Where the true value lies, at confidence .95; None for a value that is exact."""
    text: str = ""
    """What was counted, in a few words."""
    baseline: float = 0.0
    """What an adversary who saw nothing scores."""
    p: float | None = None
    """Probability that such an adversary scores as well; None where the interval decides."""

    def above(self, significance: float = SIGNIFICANCE) -> bool:
        """Return whether this is better than the baseline, with a probability of error of at most
        `significance`.
        """
        if self.p is not None:
            return self.p < significance
        return (self.value if self.interval is None else self.interval[0]) > self.baseline

    def __str__(self) -> str:
        edges = (
            "" if self.interval is None else f" [{self.interval[0]:.3g}, {self.interval[1]:.3g}]"
        )
        return f"{self.value:.3g}{edges}"


@dataclass(frozen=True)
class Evidence:
    """What an adversary saw of one run or game, and the truth to score its estimate by."""

    seen: Any
    """A `View` where the attack needs one view, else what its `stage` made."""
    truth: Truth


@dataclass(frozen=True)
class Attack:
    """An estimate by an adversary who holds one or several roles, and how good it is."""

    name: str
    title: str
    """What it seeks, as a row of a table says it: "the total reward"."""
    adversary: tuple[str, ...]
    """Kinds of role that the adversary holds, each once for a party; `WIRE` for one that only sees
    what travels.
    """
    claims: tuple[str, ...]
    """Beginnings of the sentences that it stands behind: promises it would break, weaknesses it
    shows.
    """
    estimate: Callable[[Any, int], Any]
    """Of what was seen and a seed; a pure function."""
    score: Callable[[Sequence[Any], Sequence[Truth]], Score]
    """Compares the estimates of several runs with their truths."""
    statistic: str = ""
    """What the score's value is."""
    plant: Callable[[Evidence, int], Evidence] | None = None
    """The positive control: plants a leak that the attack must find if it works at all."""
    planted: str = ""
    """What is planted, in a few words."""
    shuffle: Callable[[Sequence[Truth], int], Sequence[Truth]] | None = None
    """The negative control: truths that what was seen cannot tell."""
    finds: float = 0.9
    """The value from which on what it seeks is found out, not just a little of it."""
    needs: Literal["view", "twin", "runs", "network"] = "view"
    """One view of a run; plain runs of its own, made in seconds; games with many runs; a run over
    sockets.
    """
    stage: Callable[[Any, int], Iterable[Evidence]] | None = None
    """Makes the evidence of given settings and a seed, where one view is not enough."""
    seconds: Callable[[Any], float] = lambda settings: 1.0
    """About how long staging takes."""
    missing: Callable[[Any], str] = lambda settings: ""
    """Why it says nothing about a run with these settings; empty where it does."""
    tell: Callable[[Any], str] = str
    """An estimate in words, for those who have no truth to score it by."""
    of_view: Callable[[View, Any], object] | None = None
    """Where `stage` makes what `estimate` takes: makes it of the view that a party recorded, and of
    settings like those of its run, which may be None.
    """


@dataclass(frozen=True)
class Attempt:
    """What came of an attack."""

    attack: Attack
    score: Score
    planted: tuple[Score, ...] = ()
    shuffled: Score | None = None
    estimates: tuple[object, ...] = ()
    significance: float = SIGNIFICANCE

    @property
    def succeeded(self) -> bool:
        """Whether the adversary learnt something: it scores above one that saw nothing."""
        return self.score.above(self.significance)

    @property
    def power(self) -> float | None:
        """Share of planted leaks that it finds; None where none is planted."""
        return (
            sum(one.above(self.significance) for one in self.planted) / len(self.planted)
            if self.planted
            else None
        )

    @property
    def conclusive(self) -> bool:
        """Whether the outcome says something: a success, or a failure of an attack that finds what
        is planted.
        """
        return self.succeeded or (self.power or 0.0) > 0.5

    @property
    def honest(self) -> bool:
        """Whether it finds nothing in truths that it cannot know."""
        return self.shuffled is None or not self.shuffled.above(self.significance)

    @property
    def verdict(self) -> str:
        """One of `FINDS`, `LITTLE`, `NOTHING`, `BLIND`."""
        if self.succeeded and self.honest:
            return FINDS if self.score.value >= self.attack.finds else LITTLE
        return NOTHING if self.conclusive and self.honest else BLIND

    def sentence(self) -> str:
        """Say what came out, with everything it must stand with."""
        power = (
            "no planted leak" if self.power is None else f"finds {self.power:.0%} of planted leaks"
        )
        return (
            f"{self.attack.title}, by {' and '.join(self.attack.adversary)}: {self.verdict}. "
            f"{self.score}, without a "
            f"view {self.score.baseline:.3g}; {power}. Tests: {' '.join(self.attack.claims)}"
        )


def check_view(attack: Attack, view: View) -> None:
    """Refuse a view that is not this adversary's, or that lacks the beginning of the run.

    A view that holds the secrets of a role which the adversary does not hold says nothing about
    that adversary.
    """
    kinds = [view.secrets.get(party, {}).get("kind", attack.adversary[0]) for party in view.parties]
    for party, kind in zip(view.parties, kinds, strict=True):
        if kind not in attack.adversary:
            raise ConfigError(
                f"attack '{attack.name}' is by {' and '.join(attack.adversary)}, got a view of "
                f"{kind} '{party}'."
            )
    for kind in attack.adversary:
        if kind != WIRE and kind not in kinds:
            raise ConfigError(
                f"attack '{attack.name}' needs a view of {kind}, got one of "
                f"{', '.join(view.parties)}."
            )
    if view.forgotten:
        raise DataError(
            f"the view has lost its first {view.forgotten:,} messages, and attack '{attack.name}' "
            "begins at the first "
            "step. Start the run with a larger transcript."
        )


def attempt(
    attack: Attack,
    evidence: Sequence[Evidence],
    seed: int = 0,
    *,
    significance: float = SIGNIFICANCE,
    plantings: int = PLANTINGS,
) -> Attempt:
    """Attack what was seen of one run or several, and score the estimates, with both controls
    beside it.
    """
    truths = [one.truth for one in evidence]
    for one in evidence:
        if attack.needs == "view":
            check_view(attack, one.seen)
    estimates = tuple(attack.estimate(one.seen, seed) for one in evidence)
    planted = []
    if attack.plant is not None:
        for number in range(plantings):
            made = [attack.plant(one, seed + number) for one in evidence]
            try:
                guesses = [attack.estimate(one.seen, seed) for one in made]
            except DataError:  # a leak planted in so short a view does not show: it is missed
                planted.append(Score(0.0, p=1.0))
            else:
                planted.append(attack.score(guesses, [one.truth for one in made]))
    shuffled = (
        None if attack.shuffle is None else attack.score(estimates, attack.shuffle(truths, seed))
    )
    return Attempt(
        attack, attack.score(estimates, truths), tuple(planted), shuffled, estimates, significance
    )
