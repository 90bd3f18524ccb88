"""Help pages: at most 24 lines at 80 columns. `--help --all` prints every option.

The text of a command is its docstring: one sentence, then perhaps a paragraph for the whole page,
then `Examples:` with one command per line.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import typer
from typer.core import TyperCommand

from posse.systems.registry import names

if TYPE_CHECKING:
    from click import Command as ClickCommand
    from click import Context, HelpFormatter, Parameter

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
"""click writes a name that is wider than this on a line of its own."""

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
    name: str,
    about: str,
    examples: Iterable[str],
    cls: type[TyperCommand],
    function: Callable[..., None],
) -> TyperCommand:
    """Make one command of a function, with its text and examples."""
    scratch = typer.Typer(add_completion=False)
    scratch.command(name, cls=cls, help=text_of(about, examples))(function)
    return cast("TyperCommand", typer.main.get_command(scratch))


def take_all(context: Context, args: list[str]) -> list[str]:
    """Take `--all` out of arguments that ask for help, and note it for the page."""
    if ALL not in args or not set(HELP) & set(args):
        return args
    context.meta[_ALL_META] = True
    return [arg for arg in args if arg != ALL]


def summary(command: ClickCommand) -> str:
    """Return the first sentence of a command's text, without its full stop."""
    sentence = " ".join((command.help or "").partition("\n\n")[0].split())
    return sentence.partition(". ")[0].removesuffix(".")


@dataclass(frozen=True)
class Page:
    """What a help page consists of."""

    usage: str
    about: str
    panels: Mapping[str, Rows]
    """Commands, below the titles of their groups."""
    options: Mapping[str, Rows]
    """Arguments and options, below the titles of their groups."""
    left_out: str
    """Text about options that the page leaves out; empty if it lists all."""
    examples: tuple[str, ...]

    def write(self, path: str, formatter: HelpFormatter) -> None:
        """Write the page of the command `path`."""
        formatter.write_usage(path, self.usage)
        formatter.write_paragraph()
        formatter.write_text(self.about)
        for title, rows in (*self.panels.items(), *self.options.items()):
            formatter.write_paragraph()
            formatter.write_heading(title)
            formatter.indent()
            formatter.write_dl(rows)
            formatter.dedent()
        if self.left_out:
            formatter.write(f"  {self.left_out}\n")
        if self.examples:
            formatter.write_paragraph()
            formatter.write_heading("Examples")
            for example in self.examples:
                formatter.write(f"  {example}\n")


def write_page(
    context: Context,
    formatter: HelpFormatter,
    command: ClickCommand,
    panels: Mapping[str, Rows] = MappingProxyType({}),
    most_lines: int = LINES,
) -> None:
    """Write the help page of the context's command.

    Args:
        context: Context of the command that the page describes.
        formatter: Where to write.
        command: The command whose options the page lists; for a group, its default command.
        panels: Commands of a group, below the titles of their panels.
        most_lines: Lines of the page, unless all of it is asked for.
    """
    text, _, examples = (context.command.help or "").partition("Examples:\n")
    usage = " ".join(command.collect_usage_pieces(context))
    if command is not context.command:
        usage += " | COMMAND [ARGS]..."
    if _SYSTEM in examples:
        examples = examples.replace(_SYSTEM, names()[0])
    example_lines = tuple(line.strip() for line in examples.splitlines() if line.strip())
    if context.meta.get(_ALL_META):
        options = _by_panel(command, context)
        page = Page(usage, text, panels, options, "", example_lines)
        page.write(context.command_path, formatter)
        return
    parameters = sorted(command.get_params(context), key=_importance)
    rows = [row for row in _rows(command, parameters, context) if not row[0].startswith(HELP)]
    title = "Options"
    if not all(row[0].startswith("-") for row in rows):
        title = "Arguments and options"
    first = text.partition("\n\n")[0]
    for count in range(len(rows), -1, -1):
        more = len(rows) - count
        all_options = f"{more} more: {context.command_path} --help --all" if more and count else ""
        options = {title: _one_line_each(rows[:count], formatter.width)} if count else {}
        trial = context.make_formatter()
        page = Page(usage, first, panels, options, all_options, example_lines)
        page.write(context.command_path, trial)
        if trial.getvalue().count("\n") <= most_lines:
            break
    formatter.write(trial.getvalue())


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
    for sentence in (text, text.partition(" (default")[0]):
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
    required = int(not parameter.required)
    return (is_option + required, COMMON.index(name) if name in COMMON else len(COMMON))


def _rows(
    command: ClickCommand, parameters: Iterable[Parameter], context: Context
) -> list[tuple[str, str]]:
    rows = []
    for parameter in parameters:
        record = parameter.get_help_record(context)
        if record is None:
            continue
        name, text = record
        if parameter.param_type_name == "argument" and not getattr(parameter, "help", None):
            text = f"{_declared_help(command, parameter)} {text}".strip()
        # typer escapes brackets for rich, which does not write this page.
        rows.append((name, text.replace("\\[", "[")))
    return rows


def _declared_help(command: ClickCommand, argument: Parameter) -> str:
    """Return the help of an argument from its annotation: some versions of click drop it."""
    function = command.callback
    declared = None if function is None else inspect.signature(function, eval_str=True).parameters
    if declared is None or argument.name not in declared:
        return ""
    annotation = declared[argument.name].annotation
    return next((str(extra.help or "") for extra in getattr(annotation, "__metadata__", ())), "")


def _by_panel(command: ClickCommand, context: Context) -> dict[str, Rows]:
    """Return all arguments and options, below the headings of their settings."""
    panels: dict[str, list[Parameter]] = {}
    for parameter in command.get_params(context):
        title = "Options" if parameter.param_type_name == "option" else "Arguments"
        panels.setdefault(getattr(parameter, "rich_help_panel", None) or title, []).append(
            parameter
        )
    rows = {title: _rows(command, group, context) for title, group in panels.items()}
    return {title: group for title, group in rows.items() if group}
