"""A policy is a value: a registered name, an object, `module:Class`, or a table of one of these and
parameters.

Wherever a policy is given (Python, flags, a TOML file, a party's file) the same values work. Its
parameters are the fields of its class; settings, flags and help are made from them. Two registries
are built of this: policies that score arms (`arms.registry`) and exploration of contextual bandits
(`contextual.registry`).
"""

from __future__ import annotations

import tomllib
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from inspect import isfunction
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from pydantic import (
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    field_serializer,
    model_validator,
)

from posse.core.check import suggestion
from posse.core.errors import ConfigError, PolicyError, PosseError
from posse.core.settings import Settings
from posse.policies import own


class Described(Protocol):
    """What a registry holds: frozen dataclasses with a name that describe themselves."""

    name: ClassVar[str]

    def describe(self) -> dict[str, Any]:
        """Name, parameters and a digest of the source."""
        ...


T = TypeVar("T", bound=Described)


class Registry(Generic[T]):
    """Policies of one kind, by name, and what makes one of a value."""

    def __init__(
        self,
        base: type[T],
        kinds: Iterable[type[T]],
        rule: str,
        example: str = "Class",
        adopt: Callable[[object], type[T] | None] = lambda _: None,
    ) -> None:
        """`rule` says what a user's own must be; `adopt` makes a class of what is none, such as a
        function, or None.
        """
        self.kinds: dict[str, type[T]] = {kind.name: kind for kind in kinds}
        self.base, self._rule, self._example, self._adopt = base, rule, example, adopt

    def make(self, value: object, parameters: Mapping[str, object] | None = None) -> T:
        """Make a policy of a value and further parameters.

        A table has `name` (registered, or to be imported) and parameters beside it, or under
        `parameters`; with `digest`, as a record keeps it, the source must still be the recorded
        one.
        """
        named, beside, digest = self.parts(value)
        for twice in sorted(beside.keys() & (parameters or {}).keys()):
            raise ConfigError(f"{twice} is given beside the policy and in it. Give it once.")
        made = self._build(self._kind(named), {**beside, **(parameters or {})})
        if digest is not None and (actual := made.describe()["digest"]) != digest:
            raise ConfigError(
                f"policy '{_name(type(made))}' is not the one that was recorded: its source has "
                "digest "
                f"{actual[:12]}..., expected {str(digest)[:12]}.... Use that source, or leave "
                "digest out."
            )
        return made

    def with_horizon(self, made: T, horizon: int) -> T:
        """Return a policy that knows the number of steps of the run, if it declares that and the
        number is known (not 0).
        """
        return self._build(
            made,
            {
                each.name: horizon
                for each in fields(made)  # type: ignore[arg-type]
                if horizon and own.HORIZON in each.metadata
            },
        )

    def described(self, made: T) -> dict[str, object]:
        """What a record keeps: name, parameters, digest, and for a user's own where it can be
        imported from, if so.
        """
        kind = type(made)
        place = (
            None if kind in self.kinds.values() else own.place_of(getattr(kind, "function", kind))
        )
        return made.describe() | ({} if place is None else {"class": place})

    def parameters_of(self, value: object) -> tuple[str, ...]:
        """Names of the parameters that a policy has."""
        kind = self._kind(self.parts(value)[0])
        return tuple(each.name for each in fields(kind))  # type: ignore[arg-type]

    def registered(self, value: object) -> tuple[str, dict[str, object]] | None:
        """Return the name of a registered policy and the parameters that differ from defaults; None
        for others.
        """
        named, beside, _ = self.parts(value)
        kind: Any = named if isinstance(named, type) else type(named)
        kind = self.kinds.get(named) if isinstance(named, str) else kind
        if kind is None or kind not in self.kinds.values():
            return None
        made = self.make(value)
        every = fields(made)  # type: ignore[arg-type]
        values = {each.name: getattr(made, each.name) for each in every}
        return kind.name, {
            each.name: values[each.name]
            for each in every
            if each.name in beside or values[each.name] != each.default
        }

    def parts(self, value: object) -> tuple[object, dict[str, object], str | None]:
        """Take a value apart: what names the class, parameters beside it, and the digest it must
        have.
        """
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = _inline(value)
        if not isinstance(value, Mapping):
            return value, {}, None
        table = dict(value)
        name, place, nested, digest = (
            table.pop(key, None) for key in ("name", "class", "parameters", "digest")
        )
        if (place or name) is None:
            example = next(reversed(self.kinds))
            raise ConfigError(
                f"a table of a policy needs its name, such as {{name = '{example}'}}, got none."
            )
        named, beside, _ = self.parts(place or name)
        return named, {**beside, **(nested or {}), **table}, digest

    def settings_fields(self) -> dict[str, Any]:
        """One optional setting for each parameter that some registered policy has, described by
        those that have it.
        """
        types: dict[str, Any] = {}
        meanings: dict[str, list[str]] = {}
        for kind in self.kinds.values():
            for each in fields(kind):  # type: ignore[arg-type]
                hint = _hints(kind)[each.name]
                types[each.name] = types.get(each.name, hint) | hint
                default = "" if each.default is None else f", default {each.default}"
                meanings.setdefault(each.name, []).append(
                    f"{each.metadata['meaning']} ({kind.name}{default})"
                )
        help_of = {name: "; ".join(said) for name, said in meanings.items()}
        return {
            name: (
                hint | None,
                Field(default=None, description=f"{help_of[name][:1].upper()}{help_of[name][1:]}."),
            )
            for name, hint in types.items()
        }

    def _kind(self, named: Any) -> type[T] | T:
        """Find the class; what a user's module holds may be an instance."""
        if isinstance(named, str) and named in self.kinds:
            return self.kinds[named]
        if isinstance(named, str) and not own.is_own(named):
            hint = f"Your own is module:{self._example} or file.py:{self._example}."
            raise ConfigError(
                f"unknown policy '{named}'.{suggestion(named, tuple(self.kinds))} {hint}"
            )
        thing = named
        if isinstance(named, str):
            thing = own.load(named, self._example, self._suits)
        found = self._accepted(thing)
        if found is None:
            what = (
                f"{named} must be"
                if isinstance(named, str)
                else f"a policy is a name, module:{self._example}, a table or"
            )
            raise PolicyError(f"{what} {self._rule}, got {type(thing).__name__}.")
        _check_fields(found if isinstance(found, type) else type(found))
        return found

    def _accepted(self, value: Any) -> type[T] | T | None:
        if isinstance(value, self.base) or (
            isinstance(value, type) and issubclass(value, self.base)
        ):
            return value
        return self._adopt(value) if callable(value) else None

    def _suits(self, value: Any) -> bool:
        """Whether a name of a user's module is worth suggesting."""
        if isinstance(value, type):
            return issubclass(value, self.base) and value is not self.base
        return isinstance(value, self.base) or (self._example == "function" and isfunction(value))

    def _build(self, kind: type[T] | T, given: Mapping[str, object]) -> T:
        """Build a policy of a class, or change the parameters of one."""
        of = kind if isinstance(kind, type) else type(kind)
        values = _converted(of, given, self.kinds)
        try:
            if not isinstance(kind, type):
                return replace(kind, **values) if values else kind  # type: ignore[type-var]
            return kind(**values)
        except PosseError:
            raise
        except Exception as error:
            explained = own.explain(error)
            raise PolicyError(
                f"{of.__name__}() failed: {explained}. Give every parameter a default."
            ) from error


def _check_fields(kind: type) -> None:
    """Raise if a class has annotated attributes that are no fields, because it is no dataclass.

    Its functions would read 0 in place of these parameters.
    """
    names = {each.name for each in fields(kind)}
    for name, hint in vars(kind).get("__annotations__", {}).items():
        if name not in names and "ClassVar" not in str(hint):
            raise PolicyError(
                f"'{name}' is not a parameter of {kind.__name__}, because the class is not a "
                "dataclass. Add @dataclass(frozen=True) to it."
            )


class Choice(Settings):
    """A policy, checked when the settings are made; a subclass names its registry and has `policy`
    and parameters.

    A registered policy is kept by its name and parameters, however it was given; a user's own as it
    was given.
    """

    registry: ClassVar[Registry[Any]]
    horizon_setting: ClassVar[str] = "horizon"
    """Name of the setting with the number of steps of the run."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, values: object) -> object:
        """Write a registered policy as its name and those of its parameters that are not
        defaults.
        """
        if not isinstance(values, dict) or values.get("policy") is None:
            return values
        found = cls.registry.registered(values["policy"])
        if found is None:
            return values
        name, stated = found
        for twice in sorted(name for name in stated if values.get(name) is not None):
            raise ConfigError(f"{twice} is given beside the policy and in it. Give it once.")
        return {**values, "policy": name, **stated}

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        self._made()
        return self

    @field_serializer("policy", when_used="json", check_fields=False)
    def _policy_as_json(self, value: Any) -> Any:
        registered = isinstance(value, str) and value in self.registry.kinds
        return value if registered else self.registry.described(self._made())

    def _made(self) -> Any:
        def make() -> object:
            names = self.registry.settings_fields()
            given = {
                name: value for name in names if (value := getattr(self, name, None)) is not None
            }
            made = self.registry.make(getattr(self, "policy"), given)  # noqa: B009
            return self.registry.with_horizon(made, getattr(self, self.horizon_setting, 0))

        return self.cached("policy", make)

    def but(self, **changes: object) -> Self:
        """Return these settings with changes; parameters that another policy lacks, or states
        itself, are left out.
        """
        if "policy" not in changes:
            return super().but(**changes)
        named, stated, _ = self.registry.parts(changes["policy"])
        states = stated or isinstance(named, self.registry.base)
        known = () if states else self.registry.parameters_of(changes["policy"])
        names = set(self.registry.settings_fields()) & self.model_fields_set
        return super().but(**{**{name: None for name in names if name not in known}, **changes})


C = TypeVar("C", bound=Choice)


def with_parameters(kind: type[C]) -> type[C]:
    """Add to settings that choose a policy one setting for each parameter that a policy of their
    registry has.
    """
    made: type[C] = create_model(
        kind.__name__,
        __base__=kind,
        __module__=kind.__module__,
        __doc__=kind.__doc__,
        **kind.registry.settings_fields(),
    )
    made.panel = kind.panel
    return made


def _inline(text: str) -> dict[str, object]:
    """Read a table as a flag gives it: {name = "mine.py:Mine", width = 0.3}."""
    try:
        table: dict[str, object] = tomllib.loads(f"policy = {text.strip()}")["policy"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"a policy in braces is a table like {{name = 'softmax', tau = 0.1}}: {error}."
        ) from None
    return table


def _owners(parameter: str, kinds: Mapping[str, type[Any]]) -> str:
    """Name the registered policies that have a parameter; empty if none has it."""
    have = [
        name for name, kind in kinds.items() if parameter in {each.name for each in fields(kind)}
    ]
    return f" It belongs to {' and '.join(have)}: give policy too." if have else ""


def _converted(
    kind: type[Any], given: Mapping[str, object], kinds: Mapping[str, type[Any]]
) -> dict[str, object]:
    """Refuse parameters that a policy does not have, and read the others as the types of its
    fields; `kinds` are the registered policies, for errors.
    """
    name, known, hints = _name(kind), tuple(each.name for each in fields(kind)), _hints(kind)
    values = {}
    for key, value in given.items():
        if key not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ConfigError(
                f"policy '{name}' has no parameter '{key}'; {takes}.{_owners(key, kinds)}"
            )
        try:
            values[key] = TypeAdapter(hints[key]).validate_python(value) if key in hints else value
        except ValidationError as error:
            problem = str(error.errors(include_url=False)[0]["msg"]).removeprefix(
                "Input should be "
            )
            raise ConfigError(
                f"{key} of policy '{name}' must be {problem}, got {value!r}."
            ) from None
    return values


def _name(kind: type[Any]) -> str:
    return str(kind.name or kind.__name__)


def _hints(kind: type[object]) -> dict[str, Any]:
    """Types of the fields; none where a user's annotations cannot be resolved."""
    try:
        return typing.get_type_hints(kind)
    except (NameError, TypeError):
        return {}
