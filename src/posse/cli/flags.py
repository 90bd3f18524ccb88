"""Flags that several commands share, and settings as flags: one for every field of a model, written
nowhere else.

A flag that is not given is not passed on, so that what a file says, or the model's default, holds.
Values go to the model as text: one place decides what is a number, for a flag, a TOML file and
Python.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from posse.cli.help import Command
from posse.core.errors import ConfigError
from posse.core.interrupts import defer_interrupt, enforce_interrupts
from posse.core.settings import Settings, read_toml

if TYPE_CHECKING:
    from click import Context, Parameter
    from typer.core import TyperCommand

S = TypeVar("S", bound=Settings)

Config = Annotated[
    Path | None, typer.Option(help="TOML file with settings; flags win over it.", metavar="FILE")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Report = Annotated[Path | None, typer.Option(help="Write an HTML report here.", metavar="FILE")]
Figure = Annotated[
    Path | None, typer.Option(help="Write a figure here (.svg, .png or .pdf).", metavar="FILE")
]
NoSave = Annotated[bool, typer.Option("--no-save", help="Do not keep the run in the store.")]
Label = Annotated[str | None, typer.Option(help="A name of yours for the run.", metavar="TEXT")]
Full = Annotated[bool, typer.Option("--full", help="Print all details, not the answer alone.")]
Ids = Annotated[
    list[str], typer.Argument(help="Ids, beginnings of ids, or 'last'.", metavar="ID...")
]
One = Annotated[str, typer.Argument(help="An id, the beginning of one, or 'last'.", metavar="ID")]

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

_META = "posse.settings"
_METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}


def settings_command(
    load: Callable[[], type[Settings]],
    *,
    skip: Sequence[str] = (),
    positional: Sequence[str] = (),
    **defaults: object,
) -> type[TyperCommand]:
    """Make a command class with a flag for every field of the model that `load` imports.

    The model is imported when flags are first looked at: `posse --help` lists the command without
    it. `defaults` are those of the command where they differ from the model's; help shows them.
    """

    class SettingsCommand(Command):
        _flags: tuple[str, ...] | None = None

        def get_params(self, ctx: Context) -> list[Parameter]:
            if self._flags is None:
                # What is imported may compile, and a compiler loses a Ctrl-C.
                with enforce_interrupts(), defer_interrupt():
                    model = load()
                    names = (*model.model_fields, *model.part_help)
                    self._flags = tuple(name for name in names if name not in skip)
                    self.params.extend(_options(model, self._flags, positional, defaults))
            return super().get_params(ctx)

        def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
            return super().parse_args(ctx, args if positional else join_files(args))

        def invoke(self, ctx: Context) -> object:
            model = load()
            names = (*(self._flags or ()), *model.absent)
            values = {name: ctx.params.pop(name, None) for name in names}
            for name in positional:
                by_name = ctx.params.pop(f"{name}_by_name", None)
                if by_name is None:
                    continue
                if values[name] is not None:
                    raise ConfigError(
                        f"{name} is given twice, got '{values[name]}' and --{name} '{by_name}'. Give "
                        "one.",
                        rule="cli.argument.given-twice",
                        field=name,
                    )
                values[name] = by_name
            ctx.meta[_META] = {
                name: _value(model, name, value) for name, value in values.items() if _given(value)
            }
            return super().invoke(ctx)

    return SettingsCommand


def join_files(args: Sequence[str]) -> list[str]:
    """Join several files after --data, as a shell expands a pattern, to one value.

    >>> join_files(["--data", "a.csv", "b.csv", "--seed", "1"])
    ['--data', 'a.csv\\nb.csv', '--seed', '1']
    """
    joined: list[str] = []
    several = False
    for word in args:
        if several and not word.startswith("-") and joined[-1] != "--data":
            joined[-1] += f"\n{word}"
            continue
        if word.startswith("-"):
            several = word == "--data"
        joined.append(word)
    return joined


def flags_given(context: typer.Context) -> dict[str, Any]:
    """Return the settings given on the command line."""
    return dict(context.meta.get(_META, {}))


def settings_of(
    model: type[S], context: typer.Context, file: Path | None = None, **defaults: object
) -> S:
    """Build the settings: flags win over the file, the file over `defaults`, these over the model's
    own defaults.
    """
    values = flags_given(context)
    words = [*values]
    if file is not None:
        words += read_toml(file)
    fields = {model.aliases.get(word, word) for word in words}
    own_defaults = {name: defaults[name] for name in defaults if name not in fields}
    return model.make({**own_defaults, **values}, file=file)


def _options(
    model: type[Settings],
    names: Sequence[str],
    positional: Sequence[str],
    defaults: Mapping[str, object],
) -> list[Any]:
    """Let typer make the options, from a function with one parameter a field."""

    def stand_in(**_: object) -> None: ...

    parameters = [_parameter(model, name, name in positional, defaults) for name in names]
    parameters.extend(_by_name(name) for name in positional)
    parameters.extend(_absent(name) for name in model.absent)
    stand_in.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    stand_in.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    scratch = typer.Typer(add_completion=False)
    scratch.command()(stand_in)
    options = typer.main.get_command(scratch).params
    for option in options:
        # A positional one has no help yet: click's own constructor drops what typer passes.
        if option.name in positional:
            option.help = _help_with_default(model, option.name, defaults)
    return options


def _keyword(name: str, default: object, annotation: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _by_name(name: str) -> inspect.Parameter:
    """Take a positional argument by its name too, as other commands do."""
    flag = f"--{name.replace('_', '-')}"
    option = typer.Option(
        None, flag, help=f"The same as [{name.upper()}].", metavar="TEXT", show_default=False
    )
    return _keyword(f"{name}_by_name", option, str | None)


def _absent(name: str) -> inspect.Parameter:
    """Take the flag of a name that is not a setting: the settings refuse it, with a remedy."""
    option = typer.Option(None, f"--{name.replace('_', '-')}", hidden=True)
    return _keyword(name, option, str | None)


def _help_with_default(model: type[Settings], name: str, defaults: Mapping[str, object]) -> str:
    """Return the help of a setting, with its default."""
    field = model.model_fields[name]
    default = defaults.get(name, field.default)
    if default in (None, "") or field.is_required():
        return help_of(model, name)
    return f"{help_of(model, name)} (default: {_as_text(default)})"


def _parameter(
    model: type[Settings], name: str, positional: bool, defaults: Mapping[str, object]
) -> inspect.Parameter:
    if name in model.part_help:
        owner = model.aliases[name].partition(".")[0]
        option = typer.Option(
            None,
            f"--{name}",
            help=model.part_help[name],
            metavar="PATH",
            rich_help_panel=model.heading(owner),
        )
        return _keyword(name, option, str | None)
    field = model.model_fields[name]
    kind, metavar = _shape(field.annotation)
    if positional:
        argument = typer.Argument(None, metavar=name.upper(), show_default=False)
        return _keyword(name, argument, kind | None)
    words = (name, *(alias for alias, field_name in model.aliases.items() if field_name == name))
    flags = [f"--{word.replace('_', '-')}" for word in words]
    if kind is bool:
        flags = [f"{flag}/--no-{flag[2:]}" for flag in flags]
    option = typer.Option(
        None,
        *flags,
        help=_help_with_default(model, name, defaults),
        metavar=None if kind is bool else metavar,
        show_default=False,
        rich_help_panel=model.heading(name),
    )
    return _keyword(name, option, kind | None)


def help_of(model: type[Settings], name: str) -> str:
    """Return the help of one setting: the docstring below its field."""
    return " ".join((model.model_fields[name].description or "").split())


def _shape(annotation: Any) -> tuple[Any, str]:
    """Return the type that typer parses, and the word that help shows for it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        (kind,) = (argument for argument in arguments if argument is not types.NoneType)
        return _shape(kind)
    if origin is tuple:
        return list[str], _shape(arguments[0])[1]
    if origin is Literal:
        return str, "|".join(str(argument) for argument in arguments)
    if annotation is bool:
        return bool, ""
    return str, _METAVARS.get(annotation, "TEXT")


def _as_text(default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return str(default)


def _given(value: object) -> bool:
    return value is not None and value not in ((), [])


def _value(model: type[Settings], name: str, value: Any) -> Any:
    """Split a list of numbers at its commas; names may hold commas and stay whole."""
    if isinstance(value, str) and "\n" in value:
        return value.split("\n")  # several files after --data
    if isinstance(value, list | tuple):
        numbers = _shape(model.model_fields[name].annotation)[1] != "TEXT"
        return [part for item in value for part in (item.split(",") if numbers else [item])]
    return value
