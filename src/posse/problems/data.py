"""`data`: one setting for the source of a problem, in Python, flags, TOML files and records.

It is a registered name ("digits", "uniform", "embedded:movielens"), the path of a file, a frame
(`posse.problems.tables.frames`), or a table of named parts, each a path or a frame:
`data={"features": {"clinic": "clinic.csv"}, "rewards": "pays.csv"}`. Settings check its form, and
that the files exist. The files are read when a problem is made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from encodings.aliases import aliases
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeGuard, cast

from pydantic import field_serializer, field_validator

from posse.core.check import suggestion
from posse.core.errors import ConfigError, DataError
from posse.core.settings import External, Settings
from posse.problems.tables.frames import Frame, as_frame
from posse.problems.tables.mapping import read_columns_setting, read_pairs
from posse.problems.tables.options import ReadOptions, check_encoding
from posse.problems.tables.table import Source

_CODECS = "|".join(
    re.escape(name).replace("_", "[-_ ]?") for name in {*aliases, *aliases.values(), "utf_8_sig"}
)
ENCODING = External(f"(?i:{_CODECS})?")
"""Marks the name of an encoding, because Python imports a module for a name that it does not
know.
"""


class DataSettings(Settings):
    """Settings whose `data` may be a name, a path, a frame or a table of parts."""

    parts: ClassVar[tuple[str, ...]] = ()
    """Names of the parts that a table of `data` may have."""
    tables: ClassVar[tuple[str, ...]] = ()
    """Parts that are tables themselves: a path or a frame for each name, such as a party's."""

    several_files: ClassVar[bool] = False
    """Whether `data` may be a list of files, one per owner."""

    own_words: ClassVar[str] = "a CSV file"
    """A user's own data in words, for the error that a name is not known."""

    encoding: Annotated[str, ENCODING] = ""
    """Encoding of your files where it is not UTF-8 (or UTF-16 with its mark), such as latin-1."""
    decimal: Literal[".", ","] = "."
    """Decimal mark of your files."""
    skip_bad: bool = False
    """Drop rows of your files that cannot be read, and list them in the record."""

    if TYPE_CHECKING:
        data: object

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        check_encoding(value)
        return value

    @property
    def column_names(self) -> Mapping[str, str]:
        """Names of columns in your tables, by the names that the problem has for them."""
        return {}

    def read_options(self) -> ReadOptions:
        """Return how tables are read; readers add to its notes."""
        return self.cached(
            "options",
            lambda: ReadOptions(
                encoding=self.encoding,
                decimal=self.decimal,
                skip_bad=self.skip_bad,
                columns=self.column_names,
            ),
        )

    def watch_reading(self, watch: Callable[[float], None]) -> None:
        """Call `watch` with the share of each table that has been read."""
        self._cache["options"] = replace(self.read_options(), watch=watch)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Sentences about rows that were left out while the data were read."""
        return tuple(self.read_options().notes)

    @classmethod
    def _resolve_aliases(cls, values: Mapping[str, object]) -> dict[str, object]:
        """Replace aliases; the word "own" has no effect if parts are given."""
        part_names = {name for name, field in cls.aliases.items() if "." in field}
        has_parts = any(values.get(name) is not None for name in part_names)
        words = {"data", *(name for name, field in cls.aliases.items() if field == "data")}
        if has_parts:
            values = {
                name: value for name, value in values.items() if name not in words or value != "own"
            }
        return super()._resolve_aliases(values)

    @field_validator("data", mode="before", check_fields=False)
    @classmethod
    def _read_data(cls, value: object) -> object:
        """Bring `data` into one form: text, files, a frame, or a dictionary of parts."""
        if isinstance(value, Mapping) and set(value) == {"frame", "digest"}:
            raise ConfigError(
                "data was a frame, and a record stores only its size and digest. Give the frame "
                "again.",
                rule="problems.data.frame-of-a-record",
            )
        if cls._is_table_of_parts(value):
            parts = cast("Mapping[str, object]", value)
            return {name: cls._part(name, part) for name, part in parts.items() if part is not None}
        if isinstance(value, str | os.PathLike):
            return os.fspath(value)
        if cls.several_files and _are_paths(value):
            return tuple(os.fspath(path) for path in value)
        frame = as_frame(value, "data")
        if frame is None:
            raise ConfigError(
                f"data must be {cls._forms()}, got {type(value).__name__}.",
                rule="problems.data.wrong-type",
            )
        return frame

    @classmethod
    def _forms(cls) -> str:
        """Return the forms that `data` may have, in words."""
        parts = f", or a table of {', '.join(cls.parts)}" if cls.parts else ""
        return f"a name, a file or a frame{parts}"

    @classmethod
    def _is_table_of_parts(cls, value: object) -> bool:
        """Return whether `data` is a table of parts, and not the columns of a frame."""
        if not isinstance(value, Mapping) or not cls.parts:
            return False
        return bool(set(cls.parts) & set(value)) or as_frame(value, "data") is None

    @classmethod
    def _part(cls, name: str, value: object) -> object:
        if name not in cls.parts:
            raise ConfigError(
                f"data has no part '{name}'.{suggestion(str(name), cls.parts)}",
                rule="problems.data.unknown-part",
            )
        if name not in cls.tables:
            return _source(f"data.{name}", value)
        if isinstance(value, str | list | tuple):
            value = read_pairs(value, name, "clinic=clinic.csv,lab=lab.csv")
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"data.{name} must be a table of files or frames by name, got "
                f"{type(value).__name__}.",
                rule="problems.data.not-a-table",
            )
        return {party: _source(f"data.{name}.{party}", each) for party, each in value.items()}

    @field_serializer("data", when_used="json", check_fields=False)
    def _data_as_json(self, value: object) -> object:
        return _as_json(value)

    def data_files(self) -> tuple[Path, ...]:
        """Return the files or folders of `data`, also of a data set that `data` names."""
        if isinstance(self.data, str | tuple):
            with suppress(DataError):  # the reader raises for a missing file
                return tuple(path for path in self._find_files() if path.exists())
            return ()
        return tuple(source for source in _sources(self.data) if isinstance(source, Path))

    def _find_files(self) -> Iterable[Path]:
        """Return the files of `data` if it is text: a path, or the name of a data set in files."""
        return ()

    @property
    def data_name(self) -> str:
        """Short name of `data`: its name, the name of its first file, or "frame"."""
        if isinstance(self.data, str):
            return self.data
        if isinstance(self.data, tuple):
            return f"{len(self.data)} files"
        first = next(_sources(self.data), None)
        return first.name if isinstance(first, Path) else "frame"

    def check_name(self, names: Mapping[str, object]) -> None:
        """Raise if `data` is text and none of the known names, or a frame alone."""
        if isinstance(self.data, str) and self.data not in names:
            raise ConfigError(
                f"unknown data '{self.data}'.{suggestion(self.data, tuple(names))} Your own are "
                f"{self.own_words}.",
                rule="problems.data.unknown-name",
            )
        if isinstance(self.data, Frame):
            raise ConfigError(
                f"a frame alone is not enough. Your own are {self.own_words}.",
                rule="problems.data.frame-alone",
            )

    def leave_out(self, names: tuple[str, ...], whose: str, of: str = "") -> None:
        """Raise if a setting has a value that would have no effect."""
        for name in names:
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ConfigError(
                    f"{name} applies to {whose}, got {value}{of}. Leave {name} out.",
                    rule=f"problems.{name}.no-effect",
                )

    def data_part(self, name: str) -> Any:
        """Return a part of `data`; None without it."""
        return self.data.get(name) if isinstance(self.data, dict) else None

    @property
    def missing_parts(self) -> list[str]:
        """Parts that `data` does not have."""
        return [name for name in self.parts if self.data_part(name) is None]

    def check_files(self) -> None:
        """Raise if a file that `data` names does not exist."""
        for path in self.data_files():
            if not path.is_file():
                raise DataError(
                    f"no file {path}. Check the path.", rule="problems.data.no-such-file"
                )


class TableSettings(DataSettings):
    """Settings of data whose columns may have other names."""

    columns: dict[str, str] | None = None
    """Names of the needed columns in your table, such as item=shop,rating=stars. A table
    with a column per arm: 'item=Blue|Green|Red', or 'item=*' for all columns of numbers.
    """

    @field_validator("columns", mode="before")
    @classmethod
    def _read_columns(cls, value: object) -> dict[str, str] | None:
        return read_columns_setting(value) or None

    @property
    def column_names(self) -> Mapping[str, str]:
        """Names of columns in your tables, by the names that the problem has for them."""
        return self.columns or {}

    def resolved(self) -> dict[str, Any]:
        """Return every setting with its value; `columns` only if it is given, as in 0.1."""
        values = super().resolved()
        if self.columns is None:
            del values["columns"]
        return values


def _are_paths(value: object) -> TypeGuard[Sequence[str | os.PathLike[str]]]:
    """Return whether a value is a list of paths, one or more."""
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(path, str | os.PathLike) for path in value)


def _source(name: str, value: object) -> Source:
    if isinstance(value, str | os.PathLike):
        return Path(value)
    frame = as_frame(value, name)
    if frame is None:
        raise ConfigError(
            f"{name} must be a file or a frame, got {type(value).__name__}.",
            rule="problems.data.not-a-source",
        )
    return frame


def _sources(value: object) -> Iterator[Source]:
    """Yield the files and frames in `data`."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _sources(part)
    elif isinstance(value, Path | Frame):
        yield value


def _as_json(value: object) -> object:
    """Return `data` as a record stores it."""
    if isinstance(value, Mapping):
        return {name: _as_json(part) for name, part in value.items()}
    if isinstance(value, Frame):
        return value.described()
    return str(value) if isinstance(value, Path) else value
