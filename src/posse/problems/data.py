"""`data`: one word for where a problem comes from, in Python, flags, TOML files and records.

It is a registered name ("digits", "uniform", "embedded:movielens"), the path of a file, a frame
(`posse.problems.tables.frames`), or a table of named parts, each a path or a frame:
`data={"features": {"clinic": "clinic.csv"}, "rewards": "pays.csv"}`. Its form is checked when
settings are made, and files must be there; they are read when a problem is made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from encodings.aliases import aliases
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

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
    """What a user's own data are, for the error that a name is not known."""

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
        """What your tables call a column, by the name that the problem has for it."""
        return {}

    def read_options(self) -> ReadOptions:
        """Return how tables are read; readers add to its notes."""
        if "options" not in self._cache:
            self._cache["options"] = ReadOptions(
                encoding=self.encoding,
                decimal=self.decimal,
                skip_bad=self.skip_bad,
                columns=self.column_names,
            )
        options: ReadOptions = self._cache["options"]
        return options

    def watch_reading(self, watch: Callable[[float], None]) -> None:
        """Call `watch` with the share of each table that has been read."""
        self._cache["options"] = replace(self.read_options(), watch=watch)

    @property
    def dropped(self) -> tuple[str, ...]:
        """What was dropped while the data were read, one sentence per table."""
        return tuple(self.read_options().notes)

    @classmethod
    def _resolve_aliases(cls, values: Mapping[str, object]) -> dict[str, object]:
        """Replace aliases; the word "own" next to parts adds nothing."""
        parts_given = [
            name
            for name, word in cls.aliases.items()
            if "." in word and values.get(name) is not None
        ]
        words = {"data", *(name for name, word in cls.aliases.items() if word == "data")}
        return super()._resolve_aliases(
            {k: v for k, v in values.items() if not (parts_given and k in words and v == "own")}
        )

    @field_validator("data", mode="before", check_fields=False)
    @classmethod
    def _read_data(cls, value: Any) -> object:
        """Bring `data` into one form: text, files, a frame, or a dictionary of parts."""
        if isinstance(value, Mapping) and set(value) == {"frame", "digest"}:
            raise ConfigError(
                "data was a frame, of which a record keeps size and digest alone. Give the frame "
                "again.",
                rule="problems.data.frame-of-a-record",
            )
        if isinstance(value, Mapping) and cls.parts and not _looks_like_columns(value, cls.parts):
            return {name: cls._part(name, part) for name, part in value.items() if part is not None}
        if _is_path(value):
            return os.fspath(value)
        is_list = cls.several_files and isinstance(value, list | tuple)
        if is_list and value and all(map(_is_path, value)):
            return tuple(map(os.fspath, value))
        frame = as_frame(value, "data")
        if frame is not None:
            return frame
        forms = "a name, a file or a frame"
        if cls.parts:
            forms += f", or a table of {', '.join(cls.parts)}"
        raise ConfigError(
            f"data must be {forms}, got {type(value).__name__}.", rule="problems.data.wrong-type"
        )

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
    def _data_as_json(self, value: Any) -> Any:
        return _plain(value)

    def data_files(self) -> tuple[Path, ...]:
        """Files or folders that `data` names, or that a data set of this name is found in."""
        if isinstance(self.data, str | tuple):
            with suppress(DataError):  # the reader raises for a missing file
                return tuple(path for path in self._found() if os.path.exists(path))
            return ()
        return tuple(source for source in _sources(self.data) if isinstance(source, Path))

    def _found(self) -> Iterable[Path]:
        """Files of `data` where it is text: a path, or the name of a data set in files; other names
        have none.
        """
        return ()

    @property
    def data_name(self) -> str:
        """`data` in a word: its name, the name of its first file, or "frame"."""
        if isinstance(self.data, str):
            return self.data
        if isinstance(self.data, tuple):
            return f"{len(self.data)} files"
        first = next(_sources(self.data), None)
        return first.name if isinstance(first, Path) else "frame"

    def check_name(self, names: Mapping[str, object]) -> None:
        """Raise if `data` is text and none of the known names."""
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
        """Raise if a setting was given that has no effect."""
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

    def check_files(self) -> None:
        """Raise if a file that `data` names is not there."""
        for path in self.data_files():
            if not path.is_file():
                raise DataError(
                    f"no file {path}. Check the path.", rule="problems.data.no-such-file"
                )


class TableSettings(DataSettings):
    """Settings of data whose columns may have other names."""

    columns: dict[str, str] | None = None
    """What your table calls the columns that are needed, such as item=shop,rating=stars. A table
    with a column per arm: 'item=Blue|Green|Red', or 'item=*' for all columns of numbers.
    """

    @field_validator("columns", mode="before")
    @classmethod
    def _read_columns(cls, value: object) -> dict[str, str] | None:
        return read_columns_setting(value) or None

    @property
    def column_names(self) -> Mapping[str, str]:
        """What your tables call a column, by the name that the problem has for it."""
        return self.columns or {}

    def resolved(self) -> dict[str, Any]:
        """Return every setting with its value; `columns` only if it is given, as in 0.1."""
        values = super().resolved()
        if self.columns is None:
            del values["columns"]
        return values


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _looks_like_columns(value: Mapping[object, object], parts: tuple[str, ...]) -> bool:
    """Whether a dictionary holds the columns of a frame, and no part."""
    return not any(name in parts for name in value) and as_frame(value, "data") is not None


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
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _sources(part)
    elif isinstance(value, Path | Frame):
        yield value


def _plain(value: object) -> object:
    """Write `data` as a record keeps it."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, Frame):
        return value.described()
    return str(value) if isinstance(value, Path) else value
