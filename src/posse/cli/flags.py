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
from typer.core import TyperCommand

from posse.cli.help import Command
from posse.core.interrupts import defer_interrupt, enforce_interrupts
from posse.core.settings import Settings, read_toml

if TYPE_CHECKING:
    from click import Context, Parameter

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
Label = Annotated[str | None, typer.Option(help="Your name for the run.", metavar="TEXT")]
Full = Annotated[bool, typer.Option("--full", help="Print all details, not the answer alone.")]
NONE_GIVEN: list[str] = []
"""Default of an option that may be repeated. It is never changed."""
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
    it.

    Args:
        load: Imports and returns the model.
        skip: Fields without a flag.
        positional: Fields that are arguments. `--NAME VALUE` is accepted too.
        defaults: Those of the command where they differ from the model's; help shows them.
    """

    class SettingsCommand(Command):
        _flags: tuple[str, ...] | None = None

        def get_params(self, ctx: Context) -> list[Parameter]:
            if self._flags is None:
                # What is imported may compile, and a compiler loses a Ctrl-C.
                with enforce_interrupts(), defer_interrupt():
                    model = load()
                    fields = [name for name in model.model_fields if name not in skip]
                    parts = (*model.part_help, *model.absent)
                    self._flags = (*fields, *parts)
                    self.params.extend(_options(model, fields, parts, positional, defaults))
            return super().get_params(ctx)

        def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
            args = join_files(args)
            for flag in map(_flag, positional):
                args = [arg.removeprefix(f"{flag}=") for arg in args if arg != flag]
            return super().parse_args(ctx, args)

        def invoke(self, ctx: Context) -> object:
            model = load()
            values = {}
            for name in self._flags or ():
                value = ctx.params.pop(name, None)
                if value not in (None, (), []):
                    values[name] = _value(model, name, value)
            ctx.meta[_META] = values
            return super().invoke(ctx)

    return SettingsCommand


def join_files(args: Sequence[str]) -> list[str]:
    """Join several files after --data, as a shell expands a pattern, to one value.

    >>> join_files(["--data", "a.csv", "b.csv", "--seed", "1"])
    ['--data', 'a.csv\\nb.csv', '--seed', '1']
    """
    joined: list[str] = []
    flag = ""
    for word in args:
        if word.startswith("-"):
            flag = word
        elif flag == "--data" and joined[-1] != flag:
            joined[-1] += f"\n{word}"
            continue
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
    words = {*values, *({} if file is None else read_toml(file))}
    fields = {model.aliases.get(word, word) for word in words}
    own_defaults = {name: defaults[name] for name in defaults if name not in fields}
    return model.make({**own_defaults, **values}, file=file)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _options(
    model: type[Settings],
    fields: Sequence[str],
    parts: Sequence[str],
    positional: Sequence[str],
    defaults: Mapping[str, object],
) -> list[Parameter]:
    """Let typer make the options, from a function with one parameter per setting."""

    def stand_in(**_: object) -> None: ...

    parameters = [_parameter(model, name, name in positional, defaults) for name in fields]
    parameters += [_part_parameter(model, name) for name in parts]
    stand_in.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    stand_in.__annotations__ = {each.name: each.annotation for each in parameters}
    scratch = typer.Typer(add_completion=False)
    scratch.command()(stand_in)
    options: list[Any] = typer.main.get_command(scratch).params
    for option in options:
        if option.name in positional:  # some versions of click drop the help of an argument
            text = _help_with_default(model, option.name, defaults)
            option.help = f"{text} (or {_flag(option.name)} TEXT)"
    return options


def _keyword(name: str, default: object, annotation: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _part_parameter(model: type[Settings], name: str) -> inspect.Parameter:
    """Make the parameter of a part of a setting, or of a name that the settings refuse."""
    panel = None
    if name in model.part_help:
        panel = model.heading(model.aliases[name].partition(".")[0])
    option = typer.Option(
        None,
        _flag(name),
        help=model.part_help.get(name),
        metavar="PATH",
        hidden=name in model.absent,
        rich_help_panel=panel,
    )
    return _keyword(name, option, str | None)


def _parameter(
    model: type[Settings], name: str, positional: bool, defaults: Mapping[str, object]
) -> inspect.Parameter:
    """Make the parameter of a setting: an option or an argument."""
    kind, metavar = _shape(model.model_fields[name].annotation)
    if positional:
        argument = typer.Argument(None, metavar=f"[{name.upper()}]", show_default=False)
        return _keyword(name, argument, str | None)
    flags = [_flag(name)]
    flags += [_flag(alias) for alias, field_name in model.aliases.items() if field_name == name]
    annotation: object = str | None
    if kind is bool:
        flags = [f"{flag}/--no-{flag[2:]}" for flag in flags]
        annotation = bool | None
    elif kind is list:
        annotation = list[str] | None
    option = typer.Option(
        None,
        *flags,
        help=_help_with_default(model, name, defaults),
        metavar=metavar or None,
        show_default=False,
        rich_help_panel=model.heading(name),
    )
    return _keyword(name, option, annotation)


def _help_with_default(model: type[Settings], name: str, defaults: Mapping[str, object]) -> str:
    """Return the help of a setting, with its default."""
    field = model.model_fields[name]
    default = defaults.get(name, field.default)
    if default in (None, "") or field.is_required():
        return help_of(model, name)
    if isinstance(default, bool):
        default = "on" if default else "off"
    return f"{help_of(model, name)} (default: {default})"


def help_of(model: type[Settings], name: str) -> str:
    """Return the help of one setting: the docstring below its field."""
    return " ".join((model.model_fields[name].description or "").split())


def _shape(annotation: Any) -> tuple[Any, str]:
    """Return the type that typer parses, and the word that help shows for it."""
    origin = typing.get_origin(annotation)
    arguments = [each for each in typing.get_args(annotation) if each is not types.NoneType]
    if origin in (typing.Union, types.UnionType):
        (kind,) = arguments
        return _shape(kind)
    if origin is tuple:
        return list, _shape(arguments[0])[1]
    if origin is Literal:
        return str, "|".join(map(str, arguments))
    if annotation is bool:
        return bool, ""
    return str, _METAVARS.get(annotation, "TEXT")


def _value(model: type[Settings], name: str, value: Any) -> Any:
    """Split a list of numbers at its commas; names may hold commas and stay whole."""
    if isinstance(value, str) and "\n" in value:
        return value.split("\n")  # several files after --data
    is_list_of_numbers = isinstance(value, list | tuple) and (
        _shape(model.model_fields[name].annotation)[1] != "TEXT"
    )
    return ",".join(value).split(",") if is_list_of_numbers else value
