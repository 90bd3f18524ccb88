"""Commands with help pages: at most 24 lines at 80 columns; `--help --all` prints every option.

A command is a function. Its signature has the types of the options, and its docstring the texts:
one sentence, perhaps a paragraph for the long page, the options, and examples.

    def sign(file: Path, *, out: Path, ca: Path = HERE) -> None:
        '''Answer a request that came as a file.

        Options:
            file (FILE): What 'posse party enrol --request' wrote.
            out (-o FILE): Where to write the answer.
            ca (FOLDER): Folder of the authority.

        Examples:
            posse federation ca sign clinic-b.request --out clinic-b.answer
        '''

A parameter before `*` is an argument, and a parameter after it is an option. Shared options are
annotated instead (`posse.cli.flags`), and the docstring does not mention them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import shorten
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer
from typer.core import TyperCommand

from posse.systems.registry import names

if TYPE_CHECKING:
    from click import Command as ClickCommand
    from click import Context, HelpFormatter, Parameter

F = TypeVar("F", bound=Callable[..., None])

LINES = 24
"""Lines of a page without `--all`."""
HELP = ("--help", "-h")
ALL = "--all"
_ALL_META = "posse.help.all"
WIDEST = 120
"""Largest width of a help page."""

COMMON = (
    "data",
    "file",
    "means",
    "columns",
    "owners",
    "rows",
    "parties",
    "agents",
    "producers",
    "clients",
    "policy",
    "level",
    "epsilon",
    "noise",
    "horizon",
    "runs",
    "seed",
    "over",
    "attack",
    "plain",
    "config",
    "report",
    "full",
    "json",
)
"""Options that a short page lists before others, by the names of their parameters."""

_SYSTEM = "SYSTEM"
"""In an example, the name of the first system."""
_OTHER_NAMES = re.compile(r"(?<=\w\w), --[\w-]+|/--no-[\w-]+| / --no-[\w-]+")
_FIRST_COLUMN = 30
"""click writes a name that is wider than this on a separate line."""

_SECTION = "Options:\n"
_CONTINUED = re.compile(r"\n {5,}")
_OPTION = re.compile(
    r"^ {4}(?P<name>\w+)(?: \((?P<short>-\w)? ?(?P<metavar>[^)]*)\))?: (?P<help>.+)$", re.MULTILINE
)

Rows = Sequence[tuple[str, str]]


class Command(TyperCommand):
    """A command with a short help page."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse arguments; those that ask for help may ask for all of it."""
        return super().parse_args(ctx, take_all(ctx, args))

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the help page."""
        write_page(ctx, formatter, self)


def text_of(about: str, examples: Iterable[str] = ()) -> str:
    """Return the text of a command with examples, as a docstring has them."""
    return "\n".join([about, "", "Examples:", *(f"    {example}" for example in examples)])


def make_command(
    name: str, cls: type[TyperCommand], function: Callable[..., None], text: str | None = None
) -> TyperCommand:
    """Make a command from a function; its text is the docstring if not given."""
    scratch = typer.Typer(add_completion=False)
    scratch.command(name, cls=cls, help=text)(with_options(function))
    return cast("TyperCommand", typer.main.get_command(scratch))


def take_all(context: Context, args: list[str]) -> list[str]:
    """Take `--all` out of arguments that ask for help, and note it for the page."""
    if ALL not in args or not set(HELP) & set(args):
        return args
    context.meta[_ALL_META] = True
    return [arg for arg in args if arg != ALL]


def summary(text: str | None) -> str:
    """Return the first sentence of a command's text, without its full stop."""
    sentence = " ".join((text or "").partition("\n\n")[0].split())
    return sentence.partition(". ")[0].removesuffix(".")


def write_page(
    context: Context,
    formatter: HelpFormatter,
    command: ClickCommand,
    commands: Mapping[str, Rows] = MappingProxyType({}),
    most_lines: int = LINES,
) -> None:
    """Write the help page of the context's command.

    Args:
        context: Context of the command that the page describes.
        formatter: Where to write.
        command: The command whose options the page lists; for a group, its default command.
        commands: Commands of a group, below the titles of their panels.
        most_lines: Lines of the page, unless all of it is asked for.
    """
    text = (context.command.help or "").partition("Examples:\n")[0].partition(_SECTION)[0]
    if context.meta.get(_ALL_META):
        _write(formatter, context, command, text, {**commands, **_by_panel(command, context)})
        return
    parameters = sorted(command.get_params(context), key=_importance)
    rows = [row for row in _rows(command, parameters, context) if not row[0].startswith(HELP)]
    # Arguments come first.
    title = "Options" if rows and rows[0][0].startswith("-") else "Arguments and options"
    for count in range(len(rows), -1, -1):
        parts = {**commands}
        left_out = ""
        if count:
            parts[title] = _one_line_each(rows[:count], formatter.width)
            left_out = f"  {len(rows) - count} more: {context.command_path} --help --all\n"
        if count == len(rows):
            left_out = ""
        trial = context.make_formatter()
        _write(trial, context, command, text.partition("\n\n")[0], parts, left_out)
        if trial.getvalue().count("\n") <= most_lines:
            break
    formatter.write(trial.getvalue())


def _write(
    formatter: HelpFormatter,
    context: Context,
    command: ClickCommand,
    text: str,
    parts: Mapping[str, Rows],
    left_out: str = "",
) -> None:
    """Write a page.

    Args:
        formatter: Where to write.
        context: Context of the command that the page describes.
        command: The command that the options belong to.
        text: What the command does.
        parts: Commands and options, below their headings.
        left_out: A line about options that the page leaves out.
    """
    usage = " ".join(command.collect_usage_pieces(context))
    if command is not context.command:
        usage += " | COMMAND [ARGS]..."
    formatter.write_usage(context.command_path, usage)
    formatter.write_paragraph()
    formatter.write_text(text.rstrip())
    for title, rows in parts.items():
        formatter.write_paragraph()
        formatter.write_heading(title)
        formatter.indent()
        formatter.write_dl(rows)
        formatter.dedent()
    formatter.write(left_out)
    formatter.write_paragraph()
    formatter.write_heading("Examples")
    examples = (context.command.help or "").partition("Examples:\n")[2]
    if _SYSTEM in examples:  # the registry is asked only where it is needed
        examples = examples.replace(_SYSTEM, names()[0])
    formatter.write("".join(f"  {line.strip()}\n" for line in examples.strip().splitlines()))


def _one_line_each(rows: Rows, width: int) -> Rows:
    """Shorten names and texts, so that each row is one line."""
    names = [_OTHER_NAMES.sub("", name) for name, _ in rows]
    left = width - min(max(map(len, names)), _FIRST_COLUMN) - 4  # two spaces before each column
    texts = [_beginning(text, max(left, 20)) for _, text in rows]
    return list(zip(names, texts, strict=True))


def _beginning(text: str, most: int) -> str:
    """Return as many parts of a sentence as fit.

    >>> _beginning("Level of protection: strict, or 'paper' as published.", 30)
    'Level of protection.'
    """
    for sentence in (text, re.split(r" \((?:default|or --)", text)[0]):
        if len(sentence) <= most:
            return sentence
    end = max(sentence.rfind(mark, 0, most) for mark in (". ", "; ", ": ", " ("))
    if end <= 0:
        return shorten(sentence, most, placeholder=" ...")
    return f"{sentence[:end].rstrip(' .,')}."


def _importance(parameter: Parameter) -> tuple[int, int]:
    """Return the place of a parameter on a short page: arguments, common options, the others."""
    name = parameter.name or ""
    is_option = int(parameter.param_type_name == "option")
    optional = int(not parameter.required)
    return is_option + optional, [*COMMON, name].index(name)


def _rows(
    command: ClickCommand, parameters: Iterable[Parameter], context: Context
) -> list[tuple[str, str]]:
    texts = option_texts(getattr(command.callback, "__doc__", ""))
    rows = []
    for parameter in parameters:
        record = parameter.get_help_record(context)
        if record is None:
            continue
        name, text = record
        declared = texts.get(parameter.name or "")
        if declared is not None and declared["help"] not in text:
            # Some versions of click drop the help of an argument.
            text = f"{declared['help']} {text}".strip()
        # typer escapes brackets for rich, which does not write this page.
        rows.append((name, text.replace("\\[", "[")))
    return rows


def _by_panel(command: ClickCommand, context: Context) -> dict[str, Rows]:
    """Return all arguments and options, below the headings of their settings."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        title = "Options" if parameter.param_type_name == "option" else "Arguments"
        panel = getattr(parameter, "rich_help_panel", None) or title
        panels.setdefault(panel, []).extend(_rows(command, [parameter], context))
    return {title: rows for title, rows in panels.items() if rows}


# Options ------------------------------------------------------------------------------------------


def option_texts(docstring: str | None) -> dict[str, re.Match[str]]:
    """Return the lines of the section `Options:` of a docstring, by the names of parameters.

    >>> line = option_texts("Sign.\\n\\nOptions:\\n    out (-o FILE): The answer.\\n")["out"]
    >>> line["short"], line["metavar"], line["help"]
    ('-o', 'FILE', 'The answer.')
    """
    section = inspect.cleandoc(docstring or "").partition(_SECTION)[2].partition("\n\n")[0]
    lines = _OPTION.finditer(_CONTINUED.sub(" ", section))
    return {line["name"]: line for line in lines}


def with_options(function: F) -> F:
    """Annotate the parameters of a function with their texts, so that typer makes the options."""
    texts = option_texts(function.__doc__)
    annotations: dict[str, Any] = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    for name, text in texts.items():
        option = _declaration(signature.parameters[name], text)
        annotations[name] = Annotated[annotations[name], option]
    parameters = [
        parameter.replace(annotation=annotations[name])
        for name, parameter in signature.parameters.items()
    ]
    function.__annotations__ = annotations
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


def _declaration(parameter: inspect.Parameter, text: re.Match[str]) -> Any:
    metavar = text["metavar"] or None
    if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
        return typer.Argument(help=text["help"], metavar=metavar)
    # The name is written out: typer would add `--no-NAME` to an option without a value.
    names = [f"--{parameter.name.replace('_', '-')}", text["short"]]
    return typer.Option(*filter(None, names), help=text["help"], metavar=metavar)
