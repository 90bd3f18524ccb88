"""Validators that take their name from the keyword, as in `check.positive(epsilon=epsilon)`;
optional dependencies.
"""

from __future__ import annotations

import importlib
import math
from types import ModuleType

from posse.core.errors import ConfigError, MissingExtraError

DISTRIBUTION = "posse-bandits"


def _single(values: dict[str, float]) -> tuple[str, float]:
    ((name, value),) = values.items()
    if isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{name} must be a number, got NaN.")
    return name, value


def positive(**values: float) -> None:
    """Refuse zero, negative numbers, NaN and infinity.

    >>> positive(tau=0.0)
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] tau must be a finite number above 0, got 0.0.
    """
    name, value = _single(values)
    if not (value > 0 and math.isfinite(value)):
        raise ConfigError(f"{name} must be a finite number above 0, got {value}.")


def at_least(minimum: float, /, **values: float) -> None:
    """Refuse a value below `minimum`."""
    name, value = _single(values)
    if not (value >= minimum and math.isfinite(value)):
        raise ConfigError(f"{name} must be at least {minimum}, got {value}.")


def between(low: float, high: float, /, *, open_low: bool = False, **values: float) -> None:
    """Refuse a value outside [low, high], or outside (low, high] with `open_low`."""
    name, value = _single(values)
    if not (low <= value <= high) or (open_low and value == low):
        raise ConfigError(
            f"{name} must be in {'(' if open_low else '['}{low}, {high}], got {value}."
        )


def one_of(choices: tuple[str, ...], /, **values: str) -> None:
    """Refuse a word that is not among the choices, and suggest the nearest one."""
    ((name, value),) = values.items()
    if value not in choices:
        raise ConfigError(f"unknown {name} '{value}'.{nearest(value, choices)}")


def nearest(word: str, choices: tuple[str, ...]) -> str:
    """Suggest what a mistyped word may have meant.

    >>> nearest("ucbb", ("ucb", "thompson"))
    " Did you mean 'ucb'? Known: thompson, ucb."
    """
    import difflib

    close = difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.5)
    meant = f" Did you mean '{close[0]}'?" if close else ""
    return f"{meant} Known: {', '.join(sorted(choices))}."


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional module, or say which command installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{package} is needed here and not installed. Install it with: {installing(extra)}"
        ) from error


def installing(extra: str) -> str:
    """Return the command that installs an extra of this Posse: of its checkout, its wheel, or by
    its name.

    pip notes where a distribution came from that was not found by its name (PEP 610).
    """
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import unquote, urlparse

    checkout, editable = Path(__file__).resolve().parents[3], "-e "
    project = checkout / "pyproject.toml"
    if not project.is_file() or f'name = "{DISTRIBUTION}"' not in project.read_text(
        encoding="utf-8"
    ):
        try:
            origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        except (PackageNotFoundError, ValueError):
            origin = {}
        url = urlparse(str(origin.get("url", "")))
        checkout = Path(unquote(url.path)) if url.scheme == "file" else Path("/nowhere")
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    if checkout.exists():
        return f"pip install {editable}{shlex.quote(f'{checkout}[{extra}]')}"
    return f"pip install '{DISTRIBUTION}[{extra}]'"
