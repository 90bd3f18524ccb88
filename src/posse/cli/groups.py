"""Groups of commands: a default command, commands that systems add, and one for every system."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from typer.core import TyperCommand, TyperGroup

from posse.cli import actions
from posse.cli.help import HELP, LINES, Command, summary, take_all, text_of, write_page
from posse.core.errors import ConfigError
from posse.core.interrupts import defer_interrupt, enforce_interrupts
from posse.systems.registry import names, system, systems

if TYPE_CHECKING:
    from click import Command as ClickCommand
    from click import Context, HelpFormatter

    from posse.systems.base import AnySystem


_TYPO = 0.75
"""Similarity from which on a word is a command with a typo, and not the id of a run or a file."""


class Group(TyperGroup):
    """Commands below one word. Alone it prints its help, or runs its default command."""

    default: ClassVar[str] = ""
    """Name of the command that takes arguments which name no command. One that begins with `_` is
    not listed.
    """
    panels: ClassVar[Mapping[str, str]] = {}
    """Title on the help page for each command that is not listed below `Commands`."""
    most_lines: ClassVar[int] = LINES
    """Lines of its help page."""

    def list_commands(self, ctx: Context) -> list[str]:
        """List the commands in the order in which they were added."""
        return [name for name in super().list_commands(ctx) if not name.startswith("_")]

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse arguments; without any, help is meant, and nothing behind `--help` counts."""
        args = take_all(ctx, args or [HELP[0]])
        return super().parse_args(ctx, args[:1] if args[0] in HELP else args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, ClickCommand | None, list[str]]:
        """Find the command of a word; of a group with a default, this one if no other is named."""
        name, command, rest = super().resolve_command(ctx, args)
        if not isinstance(command, Group):
            return name, command, rest
        default = command.default_command(ctx)
        if default is None or command.names_command(ctx, default, rest):
            return name, command, rest
        command.refuse_flags_before_a_command(ctx, default, rest)
        return name, default, rest

    def default_command(self, ctx: Context) -> ClickCommand | None:
        """Return the default command; None if there is none."""
        return self.get_command(ctx, self.default) if self.default else None

    def names_command(self, ctx: Context, default: ClickCommand, args: list[str]) -> bool:
        """Whether arguments name a command of this group, or could only be meant so."""
        word = args[0] if args else ""
        if word in HELP:
            return True
        if not word or word.startswith("-") or _like_a_file(word):
            return False
        names = self.list_commands(ctx)
        takes_word = any(each.param_type_name == "argument" for each in default.get_params(ctx))
        if word in names or not takes_word:
            return True
        return bool(difflib.get_close_matches(word, names, n=1, cutoff=_TYPO))

    def refuse_flags_before_a_command(
        self, ctx: Context, default: ClickCommand, args: list[str]
    ) -> None:
        """Raise an error if a command is named behind flags of the default command."""
        with_value = {
            flag
            for each in default.get_params(ctx)
            if not getattr(each, "is_flag", False)
            for flag in each.opts
        }
        for before, word in pairwise(args):
            if word.startswith("-") or before in with_value or _like_a_file(word):
                continue
            if word in self.list_commands(ctx):
                raise ConfigError(
                    f"flags before '{word}' belong to another command. Put those of '{word}' "
                    "behind it.",
                    rule="cli.flags.before-command",
                )

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the help page."""
        names = self.list_commands(ctx)
        widest = max(len(name) for name in names)
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in names:
            command = self.get_command(ctx, name)
            if command is not None:
                row = (name.ljust(widest), summary(command))
                panels.setdefault(self.panels.get(name, "Commands"), []).append(row)
        write_page(ctx, formatter, self.default_command(ctx) or self, panels, self.most_lines)


def _like_a_file(word: str) -> bool:
    """Whether a word is the name of a file rather than of a command."""
    return os.sep in word or bool(Path(word).suffix) or Path(word).exists()


def group_with_default(name: str) -> type[SystemCommandGroup]:
    """Return a class of groups whose default command has this name."""

    class DefaultGroup(SystemCommandGroup):
        default = name

    return DefaultGroup


class SystemCommandGroup(Group):
    """A group to which systems add commands (`posse.systems.modules.Commands`)."""

    def list_commands(self, ctx: Context) -> list[str]:
        """List the commands; this imports all systems."""
        return [*super().list_commands(ctx), *actions.below(self.name or "")]

    def get_command(self, ctx: Context, cmd_name: str) -> ClickCommand | None:
        """Return a command; those of systems are made when they are called."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        declared = actions.below(self.name or "").get(cmd_name)
        return None if declared is None else actions.command_of(declared)

    def default_command(self, ctx: Context) -> ClickCommand | None:
        """Return the default command, which a system may declare."""
        if self.default:
            return super().default_command(ctx)
        declared = actions.at(self.name or "")
        return None if declared is None else actions.command_of(declared)


def top_level_command(word: str) -> ClickCommand:
    """Make the top-level command that systems declare: one command, or a group."""
    declared, below = actions.at(word), actions.below(word)
    if declared is None:
        examples = [example for each in below.values() for example in each.examples[:1]][:2]
    elif below:
        examples = [*declared.examples]
    else:
        return actions.command_of(declared)
    return SystemCommandGroup(name=word, help=text_of(actions.summaries()[word], examples))


class StoredCommand(Command):
    """A command about runs in the store; the settings of a system are not among its options."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse arguments; name the first option that only a system has."""
        own = {flag for parameter in self.get_params(ctx) for flag in parameter.opts}
        for arg in args:
            if arg.startswith("-") and arg.partition("=")[0] not in own:
                raise ConfigError(
                    f"ids of stored runs take no settings, got both, ids and {arg}.",
                    rule="cli.ids.with-settings",
                )
        return super().parse_args(ctx, args)


def group_of_systems(
    make: Callable[[AnySystem], TyperCommand],
    stored: Callable[[], TyperCommand] | None = None,
    *,
    alone: bool = True,
) -> type[Group]:
    """Return a class of groups with a command for every system.

    Args:
        make: Makes the command of a system.
        stored: Makes the command for arguments that are no system: runs in the store.
        alone: Whether the group without arguments is the command of the first system; else it
            prints its help.
    """

    class SystemGroup(Group):
        def list_commands(self, ctx: Context) -> list[str]:
            return [each.name for each in systems()]

        def get_command(self, ctx: Context, cmd_name: str) -> ClickCommand | None:
            if cmd_name not in names():
                return None
            # What is imported may compile, and a compiler loses a Ctrl-C.
            with enforce_interrupts(), defer_interrupt():
                return make(system(cmd_name))

        def default_command(self, ctx: Context) -> ClickCommand | None:
            return None if stored is None else stored()

        def names_command(self, ctx: Context, default: ClickCommand, args: list[str]) -> bool:
            if not args or args[0].startswith("-"):  # settings of the first system
                return True
            return super().names_command(ctx, default, args)

        def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
            without_name = args[0].startswith("-") if args else alone
            if without_name and args[:1] not in ([flag] for flag in HELP):
                args = [names()[0], *args]
            return super().parse_args(ctx, args)

    return SystemGroup
