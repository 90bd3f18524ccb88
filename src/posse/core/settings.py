"""Configuration: one pydantic model, whether it comes from a TOML file, from flags or from Python.

Values given by flags win over the file. Unknown keys are errors, with the nearest known one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from posse.core.check import nearest
from posse.core.errors import ConfigError, DataError


class Settings(BaseModel):
    """Base of every configuration: frozen, strict about unknown keys, errors in one line."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    def __init__(self, **values: Any) -> None:
        """Build from keywords; a mistake is one `ConfigError` of one line."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_explain(error, tuple(type(self).model_fields))) from None

    @classmethod
    def make(cls, values: Mapping[str, Any] | None = None, *, file: Path | str | None = None) -> Self:
        """Build from a TOML file and values that win over it; a mistake is one `ConfigError`."""
        return cls(**{**(read_toml(file) if file is not None else {}), **(values or {})})

    def resolved(self) -> dict[str, Any]:
        """Every setting with its value, as a record keeps it."""
        return self.model_dump(mode="json")


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a TOML file, or say what is wrong with it and where."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"there is no configuration file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the configuration file {path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from error


def _explain(error: ValidationError, known: tuple[str, ...]) -> str:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "configuration"
    if first["type"] == "extra_forbidden":
        return f"unknown setting '{name}'.{nearest(name, known)}"
    if first["type"] == "missing":
        return f"{name} is needed and was not given."
    if first["type"] == "literal_error":
        meant = nearest(str(first["input"]), tuple(re.findall(r"'([^']*)'", str(first["msg"])))).partition(" Known")[0]
    else:
        meant = ""
    problem = str(first["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{name} must be {problem}, got {first['input']!r}.{meant}"
