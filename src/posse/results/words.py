"""Numbers and nouns as text, the same in every table, figure and report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, wraps
from math import floor, isfinite, log10

from posse.core import check
from posse.core.check import ensure
from posse.results.values import JSON, as_table

UNKNOWN = "–"


def _or_unknown(write: Callable[[float], str]) -> Callable[[float | None], str]:
    """Make a function write a dash for a value that is not known."""

    @wraps(write)
    def text(value: float | None) -> str:
        return UNKNOWN if value is None else write(value)

    return text


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
    places = _places(error, 9.95)
    return f"{value:,.{places}f} ± {error:,.{places}f}"


def _places(size: float, limit: float) -> int:
    """Return after how many places `size` reaches the limit; 6 at most, and 0 for a size of 0."""
    places = 0
    while places < 6 and 0 < size * 10**places < limit:
        places += 1
    return places


@_or_unknown
def seconds(value: float) -> str:
    """Write a time in the unit that fits it.

    >>> seconds(0.02), seconds(4.123), seconds(195.0), seconds(7260.0)
    ('20 ms', '4.1 s', '3 min 15 s', '2 h 1 min')
    """
    if value < 0.9995:
        if 0 < value < 1e-3:
            return f"{value * 1e6:.3g} µs"
        return f"{value * 1e3:.3g} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    total = round(value)
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


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


@_or_unknown
def ratio(value: float) -> str:
    """Write how many times as much.

    >>> ratio(205.31), ratio(1.5), ratio(1 / 205), ratio(None)
    ('205×', '1.5×', '1/205', '–')
    """
    if 0 < value < 0.1:
        return f"1/{number(float(f'{1 / value:.3g}'))}"
    return f"{number(float(f'{value:.3g}'))}×"


@_or_unknown
def percent(value: float) -> str:
    """Write a relative gain.

    >>> percent(0.2874), percent(-0.031), percent(0.00018), percent(8.9), percent(None)
    ('+29 %', '-3.1 %', '+0.018 %', '+890 %', '–')
    """
    sign = "-" if value < 0 else "+"
    return f"{sign}{number(float(f'{100 * abs(value):.2g}'))} %"


@_or_unknown
def fraction(value: float) -> str:
    """Write a ratio that lies around 1, to two places.

    >>> fraction(0.654), fraction(1.25), fraction(None)
    ('0.65', '1.25', '–')
    """
    return f"{value:.2f}"


def rounded_up(value: JSON) -> str:
    """Write an epsilon or a delta with four digits. It is never shown as better than it is.

    >>> rounded_up(0.211012), rounded_up(1e-5), rounded_up(0.9999999), rounded_up(0.1459)
    ('0.2111', '1e-05', '1', '0.1459')
    >>> rounded_up(245132.7), rounded_up(None)
    ('245,200', 'not stated')
    """
    if value is None:
        return "not stated"
    if not isinstance(value, int | float):
        return words_of(value)
    if value <= 0 or not isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.3e}")
    if rounded < value:
        rounded += 10.0 ** (floor(log10(value)) - 3)
    if 1e4 <= rounded < 1e15:
        return f"{rounded:,.0f}"
    return f"{rounded:.4g}"


def listed(names: Sequence[str]) -> str:
    """Write names one after the other.

    >>> listed(["aes", "paillier", "mask"]), listed(["aes"]), listed([])
    ('aes, paillier and mask', 'aes', '')
    """
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


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
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return f"{noun}es"
    return f"{noun}s"


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
    """A system's nouns in the singular; `money` is the user's currency, or empty.

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
        """Caption of a figure of the regret."""
        best = "the best arm"
        if self.arm != "arm":
            best = f"choosing best from the first {self.step}"
        return f"Cumulative pseudo-regret: what {best} would have added on average."

    @property
    def pulled(self) -> str:
        """What the figure of pulls shows."""
        if (self.pull, self.arm) == ("pull", "arm"):
            return "How often each arm was pulled"
        return f"{plural(self.pull).capitalize()} of each {self.arm}"

    def priced(self, amount: str) -> str:
        """Append the currency to an amount.

        >>> Vocabulary(money="EUR").priced("812.4 ± 3.1"), Vocabulary().priced("812")
        ('812.4 ± 3.1 EUR', '812')
        """
        if not self.money or amount == UNKNOWN:
            return amount
        return f"{amount} {self.money}"


_NAMES = tuple(field.name for field in fields(Vocabulary))


def vocabulary(words: JSON) -> Vocabulary:
    """Read the nouns of a problem, such as {"step": "round"}; the others keep their defaults.

    >>> vocabulary({"step": "round"}).step, vocabulary(None) == Vocabulary()
    ('round', True)
    >>> vocabulary({"arms": "producers"})
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] unknown word 'arms'. Did you mean 'arm'? Known: arm,
    money, party, pull,
    reward, step.
    """
    ensure(
        words is None or isinstance(words, Mapping),
        f"words must be a table such as {{'step': 'round'}}, got {words!r}.",
        rule="results.words.not-a-table",
    )
    # A value that is not a text is not a noun either.
    return _vocabulary(tuple((name, _text(word)) for name, word in as_table(words).items()))


def _text(word: JSON) -> str:
    return word.strip() if isinstance(word, str) else "\0"


@cache
def _vocabulary(words: tuple[tuple[str, str], ...]) -> Vocabulary:
    for name, word in words:
        check.one_of(_NAMES, word=name)
        ensure(
            word.isprintable() and (word or name == "money"),
            f"words.{name} must be a noun in the singular, got {word!r}. Leave it out for the "
            "default.",
            rule="results.words.not-a-noun",
            field=f"words.{name}",
        )
    return Vocabulary(**dict(words))


def common(vocabularies: Iterable[Vocabulary]) -> Vocabulary:
    """Return the nouns that all of them share, and the defaults for the others.

    >>> common([Vocabulary(step="round", money="EUR"), Vocabulary(step="round", money="USD")])
    Vocabulary(step='round', arm='arm', pull='pull', reward='reward', party='party', money='')
    """
    kinds = set(vocabularies)
    shared: dict[str, str] = {}
    for name in _NAMES:
        nouns = {getattr(kind, name) for kind in kinds}
        if len(nouns) == 1:
            shared[name] = nouns.pop()
    return Vocabulary(**shared)
