"""Numbers and nouns as people read them, the same in a table, a figure and a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from posse.core import check
from posse.core.errors import DataError
from posse.core.statistics import format_interval
from posse.results.values import JSON

UNKNOWN = "–"


def number(value: float | None, digits: int = 5) -> str:
    """Write a number with thousands separated and at most `digits` significant digits.

    >>> number(812.41379), number(1234567), number(0.000123), number(None)
    ('812.41', '1,234,567', '0.000123', '–')
    """
    if value is None:
        return UNKNOWN
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}"


def plus_minus(value: float | None, error: float | None) -> str:
    """Write a value and its standard error to the same place after the point.

    >>> plus_minus(812.41379, 3.1492), plus_minus(5.0, None), plus_minus(5.0, 0.0)
    ('812.4 ± 3.1', '5', '5 ± 0')
    """
    if value is None or error is None:
        return number(value)
    places = 0
    while places < 6 and 0 < error * 10**places < 9.95:
        places += 1
    return f"{value:,.{places}f} ± {error:,.{places}f}"


def seconds(value: float | None) -> str:
    """Write a time in the unit that fits it.

    >>> seconds(0.02), seconds(4.123), seconds(195.0), seconds(7260.0)
    ('20 ms', '4.1 s', '3 min 15 s', '2 h 1 min')
    """
    if value is None:
        return UNKNOWN
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms" if value >= 1e-3 or value == 0 else f"{value * 1e6:.3g} µs"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    return (
        f"{whole // 60} min {whole % 60} s"
        if whole < 3600
        else f"{whole // 3600} h {whole % 3600 // 60} min"
    )


def size(count: int) -> str:
    """Write a number of bytes in powers of 1000, as networks and disks are sold.

    >>> size(0), size(812), size(487200), size(3_400_000_000)
    ('0 B', '812 B', '487 kB', '3.4 GB')
    """
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} TB"


def ratio(value: float | None) -> str:
    """Write how many times as much.

    >>> ratio(205.31), ratio(1.5), ratio(1 / 205), ratio(None)
    ('205×', '1.5×', '1/205', '–')
    """
    if value is not None and 0 < value < 0.1:
        return f"1/{number(float(f'{1 / value:.3g}'))}"
    return UNKNOWN if value is None else f"{number(float(f'{value:.3g}'))}×"


def fraction(value: float | None) -> str:
    """Write a ratio that lies around 1, to two places.

    >>> fraction(0.654), fraction(1.25), fraction(None)
    ('0.65', '1.25', '–')
    """
    return UNKNOWN if value is None else f"{value:.2f}"


def listed(names: Sequence[str]) -> str:
    """Write names one after the other.

    >>> listed(["aes", "paillier", "mask"]), listed(["aes"]), listed([])
    ('aes, paillier and mask', 'aes', '')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def count(n: int, noun: str) -> str:
    """Write a count with its noun.

    >>> count(1, "run"), count(1200, "step")
    ('1 run', '1,200 steps')
    """
    return f"{n:,} {noun if n == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Write the plural of an English noun that has a regular one.

    >>> plural("round"), plural("company"), plural("day"), plural("purchase"), plural("box")
    ('rounds', 'companies', 'days', 'purchases', 'boxes')
    """
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "z", "ch", "sh")) else f"{noun}s"


def interval(estimate: float, low: float, high: float) -> str:
    """Write an estimate and its interval to the first place that matters; without an interval the
    estimate alone.

    >>> nan = float("nan")
    >>> (
    ...     interval(0.6934, 0.6128, 0.7811),
    ...     interval(1234.5, 1100.0, 1320.0),
    ...     interval(0.6934, nan, nan),
    ... )
    ('0.69 [0.61, 0.78]', '1,234 [1,100, 1,320]', '0.6934')
    """
    return format_interval(estimate, low, high)


def words_of(value: JSON) -> str:
    """Write a plain value on one line.

    >>> words_of([0.5, True, {"a": 1}])
    '0.5, yes, {a: 1}'
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {words_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(words_of(item) for item in value)
    return str(value)


@dataclass(frozen=True)
class Vocabulary:
    """Nouns in the singular, as tables, figures and reports say them; `money` is the user's
    currency, or nothing.

    >>> market = Vocabulary(
    ...     step="round", arm="producer", pull="unit", reward="revenue", party="agent", money="EUR"
    ... )
    >>> market.cumulative, market.regret, market.pulled
    ('cumulative revenue (EUR)', 'pseudo-regret (EUR)', 'Units of each producer')
    >>> Vocabulary().cumulative, Vocabulary().pulled
    ('cumulative reward (sum of rewards)', 'How often each arm was pulled')
    """

    step: str = "step"
    arm: str = "arm"
    pull: str = "pull"
    reward: str = "reward"
    party: str = "party"
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
    def regret_caption(self) -> str:
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
        return (
            f"{amount} {self.money}" if self.money and any(c.isdigit() for c in amount) else amount
        )


_NAMES = tuple(field.name for field in fields(Vocabulary))


def vocabulary(words: JSON) -> Vocabulary:
    """Read the words of a problem, such as {"step": "round"}; what it does not name keeps its
    default.

    >>> vocabulary({"step": "round"}).step, vocabulary(None) == Vocabulary()
    ('round', True)
    >>> vocabulary({"arms": "producers"})
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] unknown word 'arms'. Did you mean 'arm'? Known: arm,
    money, party, pull,
    reward, step.
    """
    if words is None:
        return Vocabulary()
    if not isinstance(words, Mapping):
        raise DataError(f"words must be a table such as {{'step': 'round'}}, got {words!r}.")
    chosen: dict[str, str] = {}
    for name, word in words.items():
        check.one_of(_NAMES, word=name)
        if not isinstance(word, str) or not (word.strip() or name == "money"):
            raise DataError(
                f"words.{name} must be a noun in the singular, got {word!r}. Leave it out for the "
                "default."
            )
        chosen[name] = word.strip()
    return Vocabulary(**chosen)


def common(vocabularies: Iterable[Vocabulary]) -> Vocabulary:
    """Keep the words that all of them share, for one table or figure of several systems; the others
    are the defaults.

    >>> common([Vocabulary(step="round", money="EUR"), Vocabulary(step="round", money="USD")])
    Vocabulary(step='round', arm='arm', pull='pull', reward='reward', party='party', money='')
    """
    kinds = set(vocabularies)
    shared = {name: {getattr(kind, name) for kind in kinds} for name in _NAMES}
    return Vocabulary(**{name: nouns.pop() for name, nouns in shared.items() if len(nouns) == 1})
