"""Validators that take their name from the keyword: `check.positive(epsilon=epsilon)`.

Every validator takes exactly one keyword, and the error message names this keyword. Numbers must be
finite.

The error has the rule `room.keyword.problem`. The room (`posse.core.errors`) is the room of the
module that calls the validator: `check.positive(tau=0.0)` in `posse/policies` breaks the rule
`policies.tau.not-positive`.
"""

from __future__ import annotations

import difflib
import importlib
import json
import math
import shlex
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import unquote, urlparse

from posse.core.errors import ConfigError, DataError, MissingExtraError, room_of

T = TypeVar("T")
DISTRIBUTION = "posse-bandits"
"""Name of Posse in the package index."""


def positive(**named_value: float) -> None:
    """Raise an error unless the value is a finite number above 0.

    >>> positive(tau=0.0)
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] tau must be a finite number above 0, got 0.0.
    """
    name, value = _only_number(named_value)
    if not (value > 0 and math.isfinite(value)):
        raise _error("not-positive", name, f"must be a finite number above 0, got {value}")


def at_least(minimum: float, /, **named_value: float) -> None:
    """Raise an error unless the value is a finite number of at least `minimum`."""
    name, value = _only_number(named_value)
    if not (value >= minimum and math.isfinite(value)):
        raise _error("too-small", name, f"must be at least {minimum}, got {value}")


def between(low: float, high: float, /, *, open_low: bool = False, **named_value: float) -> None:
    """Raise an error unless the value is in [low, high], or in (low, high] with `open_low`."""
    name, value = _only_number(named_value)
    above_low = value > low if open_low else value >= low
    if not (above_low and value <= high):
        bracket = "(" if open_low else "["
        raise _error("out-of-range", name, f"must be in {bracket}{low}, {high}], got {value}")


def one_of(choices: tuple[str, ...], /, **named_value: str) -> None:
    """Raise an error unless the word is one of the choices; the error suggests the nearest one."""
    name, word = _only_item(named_value)
    if word not in choices:
        raise ConfigError(
            f"unknown {name} '{word}'.{suggestion(word, choices)}",
            rule=f"{_callers_room()}.{name}.unknown",
        )


def ensure(holds: object, text: str, /, *, rule: str, field: str | None = None) -> None:
    """Raise a `DataError` with a text and a rule unless a condition holds.

    >>> ensure(2 > 1, "two must be above one.", rule="core.two.too-small")
    """
    if not holds:
        raise DataError(text, rule=rule, field=field)


def _only_item(named_value: dict[str, T]) -> tuple[str, T]:
    """Return the only keyword and its value."""
    (item,) = named_value.items()
    return item


def _only_number(named_value: dict[str, float]) -> tuple[str, float]:
    """Return the only keyword and its number; raise an error if the number is NaN."""
    name, value = _only_item(named_value)
    if isinstance(value, float) and math.isnan(value):
        raise _error("not-a-number", name, "must be a number, got NaN")
    return name, value


def _error(problem: str, name: str, text: str) -> ConfigError:
    """Return the error for a value; `problem` is the last part of the error's rule."""
    return ConfigError(f"{name} {text}.", rule=f"{_callers_room()}.{name}.{problem}")


def _callers_room() -> str:
    """Return the room of the module that called a validator: a folder of posse, or a system.

    The name of that module is read from the call stack, so that no caller needs to pass it.
    """
    frame: Any = sys._getframe()
    # The functions of this module called each other; the first frame outside is the caller's.
    while frame.f_globals["__name__"] == __name__:
        frame = frame.f_back
    return room_of(frame.f_globals["__name__"])


def suggestion(word: str, choices: tuple[str, ...]) -> str:
    """Return text for the end of an error about an unknown word: the choices that are known.

    The text asks about the nearest choice, and then lists all choices. It begins with a space.

    >>> suggestion("ucbb", ("ucb", "thompson"))
    " Did you mean 'ucb'? Known: thompson, ucb."
    """
    return f"{did_you_mean(word, choices)} Known: {', '.join(sorted(choices))}."


def did_you_mean(word: str, choices: tuple[str, ...]) -> str:
    """Return a question about the choice nearest to a word; empty if no choice is similar.

    The question begins with a space, because it follows another sentence.

    >>> did_you_mean("ucbb", ("ucb", "thompson"))
    " Did you mean 'ucb'?"
    """
    nearest = difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.5)
    return f" Did you mean '{nearest[0]}'?" if nearest else ""


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that is listed a second time; None if all names differ.

    >>> first_repeated(("a", "b", "a"))
    'a'
    """
    earlier: set[str] = set()
    for name in names:
        if name in earlier:
            return name
        earlier.add(name)
    return None


# Optional dependencies ----------------------------------------------------------------------------


def require(module: str, *, extra: str) -> ModuleType:
    """Import a module of an optional dependency.

    Raises:
        MissingExtraError: The module cannot be imported; the message has the command that installs
            the dependency.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{package} is needed here and not installed. Install it with: "
            f"{install_command(extra)}",
            rule="core.extra.not-installed",
            field=extra,
        ) from error


def install_command(extra: str) -> str:
    """Return the command that installs an extra, which is a set of optional dependencies.

    The command installs from the place that this Posse was installed from: a checkout, a local
    folder or wheel, or the package index.
    """
    # In a checkout, this file is src/posse/core/check.py.
    checkout = Path(__file__).resolve().parents[3]
    if _is_checkout(checkout):
        return f"pip install -e {shlex.quote(f'{checkout}[{extra}]')}"
    # pip records the origin of a distribution that is not from the package index (PEP 610).
    try:
        origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = urlparse(str(origin.get("url", "")))
    source = Path(unquote(url.path))
    if url.scheme == "file" and source.exists():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{source}[{extra}]')}"
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def _is_checkout(folder: Path) -> bool:
    """Return whether a folder is the root of a source tree of Posse."""
    project = folder / "pyproject.toml"
    return project.is_file() and f'name = "{DISTRIBUTION}"' in project.read_text(encoding="utf-8")
