"""What an attack is: an estimate from a view, kept apart from how it is scored.

`estimate` is given what an adversary who holds some roles saw, and nothing else; `score` compares the estimate with
the truth that only a simulation knows. Two figures stand beside every score: the `baseline`, what an adversary without
a view scores against the same truth, and the `control`, what the attack scores on a view with a leak planted in it. An
attack that finds nothing says something only where it finds its control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from posse.core.errors import ConfigError
from posse.core.roles import View


@dataclass(frozen=True)
class Score:
    """How good an estimate is; a larger value is better for the adversary."""

    value: float
    interval: tuple[float, float] | None = None
    """Where the true value lies, with the confidence that `text` names; None for a value that is exact."""
    text: str = ""
    """What was counted, in one sentence."""

    def above(self, other: Score) -> bool:
        """Return whether this is better than another score's value, also at the lower end of its interval."""
        return (self.value if self.interval is None else self.interval[0]) > other.value

    def __str__(self) -> str:
        edges = "" if self.interval is None else f" [{self.interval[0]:.3g}, {self.interval[1]:.3g}]"
        return f"{self.value:.3g}{edges}"


@dataclass(frozen=True)
class Attack:
    """An estimate by an adversary who holds one or several roles, and how good it is."""

    name: str
    title: str
    adversary: tuple[str, ...]
    """Kinds of role that the adversary holds."""
    claim: str
    """The sentence it tests: a promise that it would break, or what is not protected and it shows."""
    estimate: Callable[[View], Any]
    score: Callable[[Any, Mapping[str, Any]], Score | float]
    """Compares an estimate with the truth."""
    baseline: Callable[[Mapping[str, Any]], Score | float]
    """What an adversary without a view scores against the same truth."""
    control: Callable[[View, Mapping[str, Any]], View] | None = None
    """Plants a leak in a view: what the attack must find if it works at all."""


@dataclass(frozen=True)
class Attempt:
    """What came of an attack on one view."""

    attack: Attack
    score: Score
    baseline: Score
    control: Score | None

    @property
    def succeeded(self) -> bool:
        """Whether the adversary learnt something: it scores above one without a view."""
        return self.score.above(self.baseline)

    @property
    def conclusive(self) -> bool:
        """Whether the outcome says something: a success, or a failure of an attack that finds its control."""
        return self.succeeded or (self.control is not None and self.control.above(self.baseline))

    def sentence(self) -> str:
        """Say what came out, with everything it must stand with."""
        verdict = "succeeds" if self.succeeded else "fails" if self.conclusive else "fails, and says nothing"
        control = "none" if self.control is None else f"{self.control}"
        return (
            f"{self.attack.title}, by {' and '.join(self.attack.adversary)}: {verdict}. Score {self.score}, without a "
            f"view {self.baseline}, with a planted leak {control}. Tests: {self.attack.claim}"
        )


def attempt(attack: Attack, view: View, truth: Mapping[str, Any]) -> Attempt:
    """Attack a view, score the estimate by the truth, and score baseline and control beside it.

    The estimate sees the view alone. A view that holds the secrets of a role which the adversary does not hold is
    refused: what it would find says nothing about that adversary.
    """
    for party in view.parties:
        kind = view.secrets.get(party, {}).get("kind", attack.adversary[0])
        if kind not in attack.adversary:
            raise ConfigError(
                f"attack '{attack.name}' is by {' and '.join(attack.adversary)}, got a view of {kind} '{party}'."
            )
    planted = None
    if attack.control is not None:
        planted = _score(attack.score(attack.estimate(attack.control(view, truth)), truth))
    score = _score(attack.score(attack.estimate(view), truth))
    return Attempt(attack, score, _score(attack.baseline(truth)), planted)


def _score(given: Score | float) -> Score:
    return given if isinstance(given, Score) else Score(float(given))
