"""The words of a system: what it calls a step, an arm, a pull, a reward and a party."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from posse.core import check
from posse.core.errors import DataError
from posse.results.values import JSON
from posse.results.words import plural


@dataclass(frozen=True)
class Vocabulary:
    """Nouns in the singular, as tables, figures and reports say them; `money` is the user's currency, or nothing.

    >>> market = Vocabulary(step="round", arm="producer", pull="unit", reward="revenue", party="agent", money="EUR")
    >>> market.cumulative, market.regret, market.pulled
    ('cumulative revenue (EUR)', 'pseudo-regret (EUR)', 'Units of each producer')
    >>> Vocabulary().cumulative, Vocabulary().pulled
    ('cumulative reward (sum of rewards)', 'How often each arm was pulled')
    """

    step: str = "step"
    arm: str = "arm"
    pull: str = "pull"
    reward: str = "reward"
    party: str = "owner"
    money: str = ""

    @property
    def earned(self) -> str:
        """Head of a column of rewards, with the currency."""
        return f"{self.reward} ({self.money})" if self.money else self.reward

    @property
    def cumulative(self) -> str:
        """Label of an axis of cumulative rewards, with its unit."""
        return f"cumulative {self.reward} ({self.money or f'sum of {plural(self.reward)}'})"

    @property
    def regret(self) -> str:
        """Name of the regret, with the currency."""
        return f"pseudo-regret ({self.money})" if self.money else "pseudo-regret"

    @property
    def regret_told(self) -> str:
        """What the regret is, in a sentence."""
        best = "the best arm" if self.arm == "arm" else f"choosing best from the first {self.step}"
        return f"Cumulative pseudo-regret: what {best} would have added on average."

    @property
    def pulled(self) -> str:
        """What the figure of pulls shows."""
        if (self.pull, self.arm) == ("pull", "arm"):
            return "How often each arm was pulled"
        return f"{plural(self.pull).capitalize()} of each {self.arm}"

    def priced(self, amount: str) -> str:
        """Put the currency behind an amount that was already written.

        >>> Vocabulary(money="EUR").priced("812.4 ± 3.1"), Vocabulary().priced("812")
        ('812.4 ± 3.1 EUR', '812')
        """
        return f"{amount} {self.money}" if self.money and any(c.isdigit() for c in amount) else amount


_NAMES = tuple(field.name for field in fields(Vocabulary))


def vocabulary(given: JSON) -> Vocabulary:
    """Read the words of a problem, such as {"step": "round"}; what it does not name keeps its default.

    >>> vocabulary({"step": "round"}).step, vocabulary(None) == Vocabulary()
    ('round', True)
    >>> vocabulary({"arms": "producers"})
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] unknown word 'arms'. Did you mean 'arm'? Known: arm, money, party, pull,
    reward, step.
    """
    if given is None:
        return Vocabulary()
    if not isinstance(given, dict):
        raise DataError(f"words must be a table such as {{'step': 'round'}}, got {given!r}.")
    chosen: dict[str, str] = {}
    for name, word in given.items():
        check.one_of(_NAMES, word=name)
        if not isinstance(word, str) or not (word.strip() or name == "money"):
            raise DataError(f"words.{name} must be a noun in the singular, got {word!r}. Leave it out for the default.")
        chosen[name] = word.strip()
    return Vocabulary(**chosen)


def common(given: Iterable[Vocabulary]) -> Vocabulary:
    """Keep the words that all of them share, for one table or figure of several systems; the others are the defaults.

    >>> common([Vocabulary(step="round", money="EUR"), Vocabulary(step="round", money="USD")])
    Vocabulary(step='round', arm='arm', pull='pull', reward='reward', party='owner', money='')
    """
    kinds = set(given)
    shared = {name: {getattr(kind, name) for kind in kinds} for name in _NAMES}
    return Vocabulary(**{name: found.pop() for name, found in shared.items() if len(found) == 1})
