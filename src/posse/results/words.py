"""Numbers as people read them, the same in a table, a figure and a report."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

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
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


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
    """Write an estimate and its interval to the first place that matters; without an interval the estimate alone.

    >>> nan = float("nan")
    >>> interval(0.6934, 0.6128, 0.7811), interval(1234.5, 1100.0, 1320.0), interval(0.6934, nan, nan)
    ('0.69 [0.61, 0.78]', '1,234 [1,100, 1,320]', '0.6934')
    """
    if not (isfinite(low) and isfinite(high)):
        return number(estimate, 4)
    places = 0
    while places < 6 and 0 < (high - low) / 2 * 10**places < 3:
        places += 1
    return f"{estimate:,.{places}f} [{low:,.{places}f}, {high:,.{places}f}]"
