"""A policy that a user wrote: found by `module:name` or `file.py:name`, known to others by a digest
of its source.

A party imports what its own settings name and nothing that another party names. It sends the others
a digest of the source instead, which must equal theirs.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from posse.core.check import suggestion
from posse.core.errors import PolicyError, PosseError


def parameter(default: object, meaning: str) -> Any:
    """A field of a policy with a sentence on what it means, which help and documentation show."""
    return field(default=default, metadata={"meaning": meaning})


HORIZON = "is_horizon"
"""Key in the metadata of a field that `run_horizon` made."""


def run_horizon() -> Any:
    """A field of a policy that always has the number of steps of the run.

    >>> from posse.policies import Policy
    >>> @dataclass(frozen=True)
    ... class Moss(Policy):
    ...     horizon: float = run_horizon()
    >>> Moss().horizon
    10000.0
    """
    return field(default=10_000.0, metadata={"meaning": "number of steps", HORIZON: True})


@dataclass(frozen=True)
class Revision:
    """What identifies a policy that ships, in place of its source: its code may then be formatted
    and renamed.

    Raise `number` when the policy computes something else. Parties with two revisions refuse to run
    together.
    """

    number: int
    first: str
    """Digest at revision 1, which manifests and records have had since 0.1."""

    @property
    def digest(self) -> str:
        """SHA-256, as hex.

        >>> Revision(1, "ab").digest, Revision(2, "ab").digest[:8]
        ('ab', '7a1d9af3')
        """
        if self.number == 1:
            return self.first
        return hashlib.sha256(f"{self.first} revision {self.number}".encode()).hexdigest()


_STAMP = "__posse_stamp__"
"""Attribute of a module that was loaded from a file: which file it was."""


def is_own(value: object) -> bool:
    """Whether a word names something to import, rather than something registered.

    >>> is_own("mine.py:Mine"), is_own("ucb")
    (True, False)
    """
    return isinstance(value, str) and ":" in value


def load(where: str, example: str = "Class", suits: Any = None) -> object:
    """Import what `module:name` or `file.py:name` names; errors suggest the names for which
    `suits(value)` holds.
    """
    module_name, _, name = where.rpartition(":")
    if not module_name or not name:
        raise PolicyError(f"expected module:{example} or file.py:{example}, got '{where}'.")
    module = _import(module_name, example)
    if not hasattr(module, name):
        known = tuple(key for key, value in vars(module).items() if suits is None or suits(value))
        raise PolicyError(
            f"{module_name} has no "
            f"'{name}'.{suggestion(name, known) if known else ' It has no policy.'}"
        )
    return getattr(module, name)


def source_of(where: str) -> Path | None:
    """Return the file that `module:name` or `file.py:name` is imported from; None without one.

    The module is not imported, but the packages that it is in are.
    """
    module = where.rpartition(":")[0]
    if module.endswith(".py"):
        return Path(module)
    _look_here()
    with suppress(Exception):  # of a package of the user's, which whoever imports the module tells
        found = importlib.util.find_spec(module)
        return None if found is None or found.origin is None else Path(found.origin)
    return None


def place_of(thing: object) -> str | None:
    """Return `module:name` where a class or function can be imported by it; None if it was made in
    a function.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    home = sys.modules.get(str(module))
    if module in (None, "__main__") or getattr(home, name, None) is not thing:
        return None
    stamp = getattr(home, _STAMP, None)
    return f"{module if stamp is None else stamp[0]}:{name}"


def explain(error: Exception) -> str:
    """Give an error of a user's code in one line, with the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        return (
            f"{type(error).__name__}: {error.msg} ({Path(error.filename or '').name}, line "
            f"{error.lineno})"
        )
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{where}"


def _look_here() -> None:
    """An installed command does not look for modules in the folder where it is called; a user's
    module is there.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def _import(name: str, example: str) -> ModuleType:
    try:
        if name.endswith(".py"):
            return _from_file(Path(name).resolve(), name)
        _look_here()
        return importlib.import_module(name)
    except PosseError:
        raise
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise PolicyError(
                f"there is no module '{missing}'. Give module:{example} or file.py:{example}."
            ) from error
        # An import in the user's own file that fails is named with the file and the line.
        raise PolicyError(f"importing {name} failed: {explain(error)}.") from error


class _AsWritten(SourceFileLoader):
    """Compiles a file as it stands: bytecode kept from it is taken for new when it was edited
    within a second.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the source, never that of a kept file."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _from_file(path: Path, given: str) -> ModuleType:
    """Run a file as a module, once for its content; numba looks a function's module up by its
    name.
    """
    if not path.is_file():
        raise PolicyError(f"there is no file {given}. Check the path.")
    stamp = (str(path), path.stat().st_mtime_ns, path.stat().st_size)
    present = sys.modules.get(path.stem)
    if present is not None and getattr(present, _STAMP, None) == stamp:
        return present
    if (
        present is not None
        and not hasattr(present, _STAMP)
        and getattr(present, "__file__", None) != str(path)
    ):
        raise PolicyError(
            f"{given} is called like the module '{path.stem}', which is in use. Rename the file."
        )
    spec = importlib.util.spec_from_file_location(
        path.stem, path, loader=_AsWritten(path.stem, str(path))
    )
    if spec is None or spec.loader is None:
        raise PolicyError(f"{given} cannot be imported as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    setattr(module, _STAMP, stamp)
    return module


def policy_digest(kind: type, *sources: object) -> str:
    """Identify a policy: by its revision if it ships, by the digest of its source if it is
    custom.
    """
    revision = _revision(kind)
    if revision is not None:
        return revision.digest
    return source_digest(*sources)


def _revision(kind: type) -> Revision | None:
    """Return the revision of a policy that ships; a custom subclass of one does not inherit it."""
    revision = vars(kind).get("revision")
    return revision if isinstance(revision, Revision) else None


@lru_cache(maxsize=256)
def source_digest(*things: object) -> str:
    """SHA-256 of the source of classes and functions, as hex; of their code where there is no
    source.

    The functions and constants of their own modules that they read count too; what they import does
    not. Names of modules and files do not count: two parties may keep one policy in different
    places.

    >>> def score(t):
    ...     return t / 2
    >>> def other(t):
    ...     return t / 3
    >>> source_digest(score) == source_digest(score), source_digest(score) == source_digest(other)
    (True, False)
    """
    parts: dict[str, str] = {}
    seen: set[int] = set()
    for thing in things:
        _gather(thing, parts, seen)
    digest = hashlib.sha256()
    for name in sorted(parts):
        for text in (name, parts[name]):
            digest.update(len(text.encode()).to_bytes(8, "big") + text.encode())
    return digest.hexdigest()


def _gather(thing: object, parts: dict[str, str], seen: set[int]) -> None:
    """Add the source of a class or function, and of what it reads, to parts by name."""
    thing = _plain(thing)
    if id(thing) in seen:
        return
    seen.add(id(thing))
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    while name in parts:  # two lambdas have one name
        name += "'"
    if isinstance(thing, type) and (revision := _revision(thing)) is not None:
        parts[name] = revision.digest
        seen.update(
            id(_plain(value)) for value in vars(thing).values()
        )  # a subclass inherits these
    elif isinstance(thing, type):
        parts[name] = _source(thing) or ""
        for value in vars(thing).values():
            member = _plain(value)
            if isinstance(member, FunctionType) and not _generated(member):
                _gather(member, parts, seen)
    elif isinstance(thing, FunctionType):
        parts[name] = _source(thing) or _code(thing.__code__)
        for word, value in _reads(thing):
            if isinstance(_plain(value), FunctionType) and value.__module__ == thing.__module__:
                _gather(value, parts, seen)
            elif isinstance(value, np.ndarray):
                parts[f"{name} reads {word}"] = (
                    f"{value.dtype} {value.shape} {value.tobytes().hex()}"
                )
            elif isinstance(value, int | float | str | bytes | tuple):
                parts[f"{name} reads {word}"] = repr(value)
    else:  # an object that can be called
        parts[name] = ""
        _gather(type(thing), parts, seen)


def _plain(thing: object) -> object:
    """Unwrap what numba compiled, static methods and properties."""
    for wrapped in ("__func__", "fget", "py_func"):
        thing = getattr(thing, wrapped, None) or thing
    return thing


def _generated(member: FunctionType) -> bool:
    """Whether a dataclass wrote this method: the fields in the source of the class say the same."""
    return member.__code__.co_filename == "<string>" and member.__name__.startswith("__")


def _source(thing: Any) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        return None


def _code(code: CodeType) -> str:
    constants = [
        _code(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts
    ]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


def _reads(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Give the names that a function reads from its module and from the functions around it, with
    their values.
    """
    codes = [function.__code__]
    for code in codes:
        codes.extend(value for value in code.co_consts if isinstance(value, CodeType))
        yield from (
            (name, function.__globals__[name])
            for name in code.co_names
            if name in function.__globals__
        )
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents
