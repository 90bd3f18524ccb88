"""A policy is a value: a registered name, an object, `module:Class`, or a table of one of these and parameters.

Wherever a policy is asked for (Python, flags, a TOML file, a party's file) the same values work. Its parameters are the
fields of its class; flags and help are made from them. A policy that ships is its own file and one entry of `POLICIES`.

>>> policy("softmax", {"tau": 0.05}) == policy({"name": "softmax", "tau": 0.05}) == Softmax(0.05)
True
"""

from __future__ import annotations

import tomllib
import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, TypeAdapter, ValidationError, create_model, field_serializer, model_validator

from posse.core.check import nearest
from posse.core.errors import ConfigError, PolicyError, PosseError
from posse.core.settings import Settings
from posse.policies import own
from posse.policies.arms.base import Policy
from posse.policies.arms.greedy import EpsilonDecreasing, EpsilonGreedy, Softmax
from posse.policies.arms.pursuit import Pursuit
from posse.policies.arms.thompson import Thompson
from posse.policies.arms.ucb import UCB

POLICIES: dict[str, type[Policy]] = {
    kind.name: kind for kind in (EpsilonGreedy, EpsilonDecreasing, UCB, Thompson, Softmax, Pursuit)
}
"""The policies that ship, by name."""

PolicyValue = str | Policy | type[Policy] | Mapping[str, Any]
"""Anything that `policy` takes."""


def policy(value: PolicyValue, parameters: Mapping[str, Any] | None = None) -> Policy:
    """Make a policy of a value and further parameters.

    A table has `name` (registered, or `module:Class`) and parameters beside it, or under `parameters`; with `digest`,
    as a record keeps it, the source must still be the recorded one.

    >>> policy("sotfmax")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] unknown policy 'sotfmax'. Did you mean 'softmax'? Known: ...
    >>> policy("ucb", {"tau": 1})
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] policy 'ucb' has no parameter 'tau'; it takes coefficient.
    """
    base, beside, digest = _parts(value)
    twice = sorted(beside.keys() & (parameters or {}).keys())
    if twice:
        raise ConfigError(f"{twice[0]} is given beside the policy and in it. Give it once.")
    given = {**beside, **(parameters or {})}
    made = _made(base if isinstance(base, Policy) else _kind(base), given)
    if digest is not None and (actual := made.describe()["digest"]) != digest:
        raise ConfigError(
            f"policy '{_name(type(made))}' is not the one that was recorded: its source has digest {actual[:12]}..., "
            f"expected {str(digest)[:12]}.... Use that source, or leave digest out."
        )
    return made


def described(made: Policy) -> dict[str, Any]:
    """What a record keeps of a policy: name, parameters, digest, and for a user's own its `module:Class`, if any.

    >>> described(Softmax(0.05))["parameters"]
    {'tau': 0.05}
    """
    place = None if type(made) in POLICIES.values() else own.place_of(type(made))
    return made.describe() | ({} if place is None else {"class": place})


def parameters_of(value: PolicyValue) -> tuple[str, ...]:
    """Names of the parameters that a policy has.

    >>> parameters_of("epsilon-decreasing")
    ('schedule', 'scale')
    """
    base, _, _ = _parts(value)
    return tuple(field.name for field in fields(base if isinstance(base, Policy) else _kind(base)))


def _parts(value: PolicyValue) -> tuple[str | Policy | type[Policy], dict[str, Any], str | None]:
    """Take a value apart: what names the class, parameters beside it, and the digest it must have."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _inline(value)
    if not isinstance(value, Mapping):
        if isinstance(value, str | Policy) or (isinstance(value, type) and issubclass(value, Policy)):
            return value, {}, None
        raise PolicyError(
            f"a policy is a name, a posse.policies.Policy, module:Class or a table, got {type(value).__name__}."
        )
    table = dict(value)
    name, place, nested, digest = (table.pop(key, None) for key in ("name", "class", "parameters", "digest"))
    if not isinstance(place or name, str | Policy | type):
        raise ConfigError("a table of a policy needs its name, such as {name = 'softmax', tau = 0.1}, got none.")
    base, beside, _ = _parts(place or name)
    return base, {**beside, **(nested or {}), **table}, digest


def _inline(text: str) -> dict[str, Any]:
    """Read a table as a flag gives it: {name = "mine.py:Mine", width = 0.3}."""
    try:
        table: dict[str, Any] = tomllib.loads(f"policy = {text.strip()}")["policy"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"a policy in braces is a table like {{name = 'softmax', tau = 0.1}}: {error}.") from None
    return table


def _kind(base: str | type[Policy]) -> type[Policy] | Policy:
    """Find the class; what a user's module holds may be an instance."""
    if isinstance(base, type):
        return base
    if base in POLICIES:
        return POLICIES[base]
    if not own.is_own(base):
        hint = "Your own is module:Class or file.py:Class."
        raise ConfigError(f"unknown policy '{base}'.{nearest(base, tuple(POLICIES))} {hint}")
    loaded = own.load(base, suits=lambda value: isinstance(value, type) and issubclass(value, Policy))
    if isinstance(loaded, Policy) or (isinstance(loaded, type) and issubclass(loaded, Policy)):
        return loaded
    raise PolicyError(f"{base} must be a subclass of posse.policies.Policy, got {type(loaded).__name__}.")


def _made(kind: type[Policy] | Policy, given: Mapping[str, Any]) -> Policy:
    """Build a policy of a class, or change the parameters of one."""
    of = kind if isinstance(kind, type) else type(kind)
    values = _converted(of, given)
    try:
        if isinstance(kind, Policy):
            return replace(kind, **values) if values else kind
        return kind(**values)
    except PosseError:
        raise
    except Exception as error:
        raise PolicyError(f"{of.__name__}() failed: {own.explain(error)}. Give every parameter a default.") from error


def _converted(kind: type[Policy], given: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse parameters that a policy does not have, and read the others as the types of its fields."""
    name, known, hints = _name(kind), tuple(field.name for field in fields(kind)), _hints(kind)
    values = {}
    for key, value in given.items():
        if key not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ConfigError(f"policy '{name}' has no parameter '{key}'; {takes}.")
        try:
            values[key] = TypeAdapter(hints[key]).validate_python(value) if key in hints else value
        except ValidationError as error:
            problem = str(error.errors(include_url=False)[0]["msg"]).removeprefix("Input should be ")
            raise ConfigError(f"{key} of policy '{name}' must be {problem}, got {value!r}.") from None
    return values


def _name(kind: type[Policy]) -> str:
    return kind.name or kind.__name__


def _hints(kind: type[Policy]) -> dict[str, Any]:
    """Types of the fields; none where a user's annotations cannot be resolved."""
    try:
        return typing.get_type_hints(kind)
    except (NameError, TypeError):
        return {}


def _parameter_fields() -> dict[str, Any]:
    """One optional setting for each parameter that some registered policy has, described by those that have it."""
    types: dict[str, Any] = {}
    meanings: dict[str, list[str]] = {}
    for kind in POLICIES.values():
        for field in fields(kind):
            hint = _hints(kind)[field.name]
            types[field.name] = types.get(field.name, hint) | hint
            meaning = field.metadata.get("meaning", "parameter")
            meanings.setdefault(field.name, []).append(f"{meaning} ({kind.name}, default {field.default})")
    return {
        name: (kind | None, Field(default=None, description=_sentence("; ".join(meanings[name]))))
        for name, kind in types.items()
    }


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


PARAMETERS = tuple(_parameter_fields())
"""Names of the parameters of all registered policies, each a setting and a flag."""


class PolicyChoice(Settings):
    """A policy, checked when the settings are made.

    A registered policy is kept by its name and parameters, however it was given; a user's own as it was given.
    """

    policy: Any = "ucb"
    """How to choose: a name (see 'posse policies'), module:Class or file.py:Class of your own, or a table of one of
    these with parameters, {name = "mine.py:Mine", width = 0.3}."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, values: Any) -> Any:
        """Write a registered policy as its name and those of its parameters that are not defaults."""
        if not isinstance(values, dict) or not isinstance(values.get("policy"), str | Policy | type | Mapping):
            return values
        base, beside, _ = _parts(values["policy"])
        kind = POLICIES.get(base) if isinstance(base, str) else base if isinstance(base, type) else type(base)
        if kind not in POLICIES.values():
            return values
        made = policy(values["policy"])
        stated = {
            field.name: getattr(made, field.name)
            for field in fields(made)
            if field.name in beside or getattr(made, field.name) != field.default
        }
        for twice in sorted(name for name in stated if values.get(name) is not None):
            raise ConfigError(f"{twice} is given beside the policy and in it. Give it once.")
        return {**values, "policy": made.name, **stated}

    @model_validator(mode="after")
    def _check_policy(self) -> PolicyChoice:
        self.make_policy()
        return self

    @field_serializer("policy", when_used="json")
    def _policy_as_json(self, value: Any) -> Any:
        return value if isinstance(value, str) and value in POLICIES else described(self.make_policy())

    def make_policy(self) -> Policy:
        """Build the policy.

        >>> PolicySettings(policy="pursuit", beta=0.05).make_policy()
        Pursuit(beta=0.05)
        """
        given = {name: value for name in PARAMETERS if (value := getattr(self, name, None)) is not None}
        return self.once("policy", lambda: policy(self.policy, given))

    def but(self, **changes: Any) -> Self:
        """Return these settings with changes; parameters that another policy lacks, or states itself, are left out."""
        if "policy" not in changes:
            return super().but(**changes)
        _, stated, _ = _parts(changes["policy"])
        known = () if stated or isinstance(changes["policy"], Policy) else parameters_of(changes["policy"])
        left = {name: None for name in PARAMETERS if name in self.model_fields_set and name not in known}
        return super().but(**{**left, **changes})


if TYPE_CHECKING:

    class PolicySettings(PolicyChoice):
        """A policy and its parameters."""

else:
    PolicySettings = create_model(
        "PolicySettings", __base__=PolicyChoice, __module__=__name__, **_parameter_fields(),
        __doc__="""A policy and its parameters: one setting for each that some registered policy has.

        A parameter that the policy does not have is an error, one left out has the policy's default.

        >>> PolicySettings(policy=Softmax(0.05)) == PolicySettings(policy="softmax", tau=0.05)
        True
        """,
    )  # fmt: skip
