"""Groups of commands: a default command, commands that systems add, and one for every system.

A command is imported when it is called.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from posse.cli import flags
from posse.cli.flags import settings_command, settings_of
from posse.cli.help import (
    HELP,
    LINES,
    Command,
    make_command,
    summary,
    take_all,
    text_of,
    write_page,
)
from posse.cli.keep import Keeper
from posse.cli.progress import Doing
from posse.cli.screen import print_json, remark, saved, say, section
from posse.core.errors import ConfigError
from posse.core.interrupts import defer_interrupt, enforce_interrupts
from posse.systems.registry import ACTIONS, BUILT_IN, names, system, systems

if TYPE_CHECKING:
    from click import Command as ClickCommand
    from click import Context, HelpFormatter

    from posse.core.settings import Settings
    from posse.results import Record
    from posse.results.section import Section
    from posse.systems.base import AnySystem
    from posse.systems.modules import Command as Declared


_TYPO = 0.75
"""Similarity from which on a word is a command with a typo, and not the id of a run or a file."""


class Group(TyperGroup):
    """Commands below one word. Alone it prints its help, or runs its default command."""

    entries: Mapping[str, Entry | str] = MappingProxyType({})
    default = ""
    panels: ClassVar[Mapping[str, str]] = {}
    """Title on the help page for each command that is not listed below `Commands`."""
    most_lines: ClassVar[int] = LINES
    """Lines of its help page."""

    def names(self) -> Collection[str]:
        """Return the names of all commands."""
        return self.entries.keys()

    def make(self, name: str) -> ClickCommand:
        """Make a command."""
        return build(name, self.entries[name])

    def help_of(self, name: str) -> str | None:
        """Return the text of a command."""
        return self.make(name).help

    def list_commands(self, ctx: Context) -> list[str]:
        """List the commands in the order in which they were added."""
        return [name for name in self.names() if not name.startswith("_")]

    def get_command(self, ctx: Context, cmd_name: str) -> ClickCommand | None:
        """Return a command; None if there is no such command."""
        return self.make(cmd_name) if cmd_name in self.names() else None

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse arguments; without any, help is meant, and nothing behind `--help` counts."""
        args = take_all(ctx, args or [HELP[0]])
        return super().parse_args(ctx, args[:1] if args[0] in HELP else args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, ClickCommand | None, list[str]]:
        """Return the command of a word; of a group with a default, that one if none is named."""
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, Group):
            default = command.default_command(ctx)
            if default is not None and not command.names_command(ctx, default, rest):
                return name, default, rest
        return name, command, rest

    def default_command(self, ctx: Context) -> ClickCommand | None:
        """Return the default command; None if there is none."""
        return self.get_command(ctx, self.default) if self.default else None

    def names_command(self, ctx: Context, default: ClickCommand, args: list[str]) -> bool:
        """Whether arguments name a command of this group, or could only be meant so."""
        word = args[0] if args else ""
        if word in HELP:
            return True
        if not word or word.startswith("-") or _is_file_name(word):
            return False
        takes_word = any(each.param_type_name == "argument" for each in default.get_params(ctx))
        names = self.list_commands(ctx)
        return not takes_word or bool(difflib.get_close_matches(word, names, cutoff=_TYPO))

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the help page."""
        commands = self.list_commands(ctx)
        width = max(map(len, commands))
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in commands:
            title = self.panels.get(name, "Commands")
            panels.setdefault(title, []).append((name.ljust(width), summary(self.help_of(name))))
        write_page(ctx, formatter, self.default_command(ctx) or self, panels, self.most_lines)


def _is_file_name(word: str) -> bool:
    """Whether a word is the name of a file rather than of a command."""
    return os.sep in word or bool(Path(word).suffix) or Path(word).exists()


class OpenGroup(Group):
    """A group to which systems add commands (`posse.systems.modules.Commands`)."""

    def names(self) -> Collection[str]:
        """Return the names of all commands; this imports all systems."""
        return [*self.entries, *filter(None, declared_below(self.name))]

    def make(self, name: str) -> ClickCommand:
        """Make a command of the group, or one that a system declares."""
        declared = declared_below(self.name).get(name)
        return super().make(name) if declared is None else command_of(declared)

    def default_command(self, ctx: Context) -> ClickCommand | None:
        """Return the group's own command, or the one that a system declares with this word."""
        declared = declared_below(self.name)
        return self.make("") if "" in declared else super().default_command(ctx)


def declared_command(word: str) -> ClickCommand:
    """Make the top-level command that systems declare: one command, or a group."""
    declared = declared_below(word)
    if [*declared] == [""]:
        return command_of(declared[""])
    first = [*declared.values()][:2]
    examples = [example for each in first for example in each.examples[:1]]
    if "" in declared:
        examples = [*declared[""].examples]
    return OpenGroup(name=word, help=text_of(summaries()[word], examples))


class SystemGroup(Group):
    """A group with a command for every system.

    `_system` makes the command of a system. `_stored` makes the default command, for arguments
    that name no system but runs in the store. With a default, the group without arguments is the
    command of the first system; else it prints its help.
    """

    def names(self) -> Collection[str]:
        """Return the names of all systems."""
        return names()

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of the systems that can be imported."""
        return [each.name for each in systems()]

    def make(self, name: str) -> ClickCommand:
        """Make the command of a system."""
        # What is imported may compile, and a compiler loses a Ctrl-C.
        with enforce_interrupts(), defer_interrupt():
            command: ClickCommand = load(str(self.entries["_system"]))(system(name))
            return command

    def default_command(self, ctx: Context) -> ClickCommand | None:
        """Return the command about runs in the store; None if there is none."""
        if "_stored" not in self.entries:
            return None
        command: ClickCommand = load(str(self.entries["_stored"]))()
        return command

    def names_command(self, ctx: Context, default: ClickCommand, args: list[str]) -> bool:
        """Whether arguments name a system, or are settings of the first one."""
        settings_of_first = not args or args[0].startswith("-")
        return settings_of_first or super().names_command(ctx, default, args)

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse arguments; without a name they belong to the first system."""
        without_name = args[0].startswith("-") if args else bool(self.default)
        if without_name and args[:1] not in ([flag] for flag in HELP):
            args = [names()[0], *args]
        return super().parse_args(ctx, args)


# A table of commands -----------------------------------------------------------------------------


class Entry(NamedTuple):
    """A command or a group; nothing of it is imported until it is called."""

    about: str
    target: str = ""
    """Function of a command: its module below `posse.cli`, and its name."""
    examples: tuple[str, ...] = ()
    commands: Mapping[str, Entry | str] = MappingProxyType({})
    """Commands of a group; a text is a target."""
    default: str = ""
    """Name of the command that takes arguments which name no command. One that begins with `_` is
    not listed.
    """
    kind: type[Group] = Group


def build(name: str, entry: Entry | str) -> ClickCommand:
    """Make a command or a group."""
    if isinstance(entry, str):
        return _command(name, entry)
    if entry.target:
        return _command(name, entry.target)
    group = entry.kind(name=name, help=text_of(entry.about, entry.examples))
    group.entries = entry.commands
    group.default = entry.default
    return group


@cache
def _command(name: str, target: str) -> ClickCommand:
    return make_command(name, Command, load(target))


def load(target: str) -> Any:
    """Import a function of the command line."""
    module, _, name = target.partition(":")
    return getattr(import_module(f"posse.cli.{module}"), name)


# Commands that single systems declare -------------------------------------------------------------


def summaries() -> dict[str, str]:
    """Return the first words of all declared commands, with what they are about.

    Built-in systems are not imported for it.
    """
    words = dict(ACTIONS)
    for declared in _declared(systems(skip=BUILT_IN)):
        word = declared.path[0]
        if len(declared.path) == 1 or word not in words:
            words[word] = declared.summary
    return words


def declared_below(word: str | None) -> dict[str, Declared]:
    """Return the commands that systems declare below a word, by their own word.

    The command of the word alone has the name "".
    """
    commands = [each for each in _declared(systems()) if each.path[0] == word]
    return {" ".join(each.path[1:]): each for each in commands}


def _declared(declaring: Iterable[AnySystem]) -> Iterator[Declared]:
    for each in declaring:
        # Imported only where there is a system: a list of all commands imports none.
        from posse.systems.modules import commands_of

        yield from commands_of(each).commands


def command_of(declared: Declared) -> TyperCommand:
    """Make the command that a system declares."""

    def run(context: typer.Context, config: flags.Config = None, json: flags.Json = False) -> None:
        settings = settings_of(declared.settings(), context, config, **dict(declared.defaults))
        _carry_out(declared, settings, json)

    cls = settings_command(
        declared.settings,
        skip=declared.skip,
        positional=declared.positional,
        **dict(declared.defaults),
    )
    text = text_of(declared.summary, declared.examples)
    return make_command(declared.path[-1], cls, run, text)


def _carry_out(declared: Declared, settings: Settings, json: bool) -> None:
    """Run a command and print what it yields as it comes; records are stored."""
    from posse.results.section import Section

    document: dict[str, object] = {"settings": settings.resolved()}
    records: list[Record] = []
    for item in _items(declared, settings):
        if isinstance(item, str):
            remark(item)
        elif not isinstance(item, Section):
            records.append(item)
        elif json:
            document |= item.data or {}
        else:
            section(item)
    if json:
        if records:
            document["records"] = [record.document() for record in records]
        print_json(document)
    if records:
        with Keeper(save=True).keep(records):
            pass
        if not json:
            say("")
            saved(records)


def _items(declared: Declared, settings: Settings) -> Iterator[str | Section | Record]:
    """Yield what a command yields, with progress until each item is there."""
    items = iter(declared.run(settings))
    while True:
        with Doing(" ".join(declared.path)):
            try:
                item = next(items, None)
            except KeyboardInterrupt:
                if not declared.stopped:
                    raise
                remark(declared.stopped)
                raise typer.Exit(flags.INTERRUPTED) from None
        if item is None:
            return
        yield item


# Old names ----------------------------------------------------------------------------------------

OLD = {
    "simulate": "run --plain",
    "arms": "problems show",
    "ranges": "check ranges",
    "rates": "evaluate rates",
    "found": "federation create",
    "ca": "federation ca",
    "submit": "federation submit",
    "queue": "federation queue",
    "expel": "federation expel",
    "enrol": "party enrol",
    "serve": "party serve",
    "status": "party status",
    "pause": "party pause",
    "resume": "party resume",
    "stop": "party stop",
    "end": "party end",
    "change": "party update",
    "leave": "party leave",
    "renew": "party renew",
    "doctor": "party doctor",
    "backup": "party backup",
    "restore": "party restore",
    "units": "party unit",
}
"""Commands of 0.1 and their names now. The old ones go with 0.3."""

REMOVED = {
    "reproduce": "Published figures are computed in a checkout of Posse: python -m reproduction list.",
    "devices rollback": "Use 'posse devices deploy --version N', which also holds back newer versions.",
}
"""Commands that 0.1 had, and what to use instead."""


def rename(args: Sequence[str]) -> list[str]:
    """Replace the old name at the beginning of arguments with the new one.

    >>> rename(["found", "hospitals"]), rename(["simulate", "NAME", "--runs", "5"])
    (['federation', 'create', 'hospitals'], ['run', 'NAME', '--runs', '5', '--plain'])
    """
    names, dashes, flag = OLD[args[0]].partition(" --")
    # A flag comes last: the name of a system is before it.
    return [*names.split(), *args[1:], *([dashes.strip() + flag] if flag else ())]


def current_names(args: list[str]) -> list[str]:
    """Return arguments with the name that a command has now; print it if it is another one.

    Raises:
        ConfigError: The command or its flag was removed.
    """
    if "--brief" in args:
        raise ConfigError(
            "--brief was removed: commands print the answer alone, and all of it with --full.",
            rule="cli.brief.removed",
        )
    for words in (" ".join(args[:1]), " ".join(args[:2])):
        if words in REMOVED:
            raise ConfigError(
                f"'posse {words}' was removed. {REMOVED[words]}", rule="cli.command.removed"
            )
    old = args[0] if args else ""
    # A system of another package may declare a command with such a name.
    if old not in OLD or old in summaries():
        return args
    remark(f"'posse {old}' is now 'posse {OLD[old]}'. The old name works until Posse 0.3.")
    return rename(args)
