"""Commands that single systems declare (`Commands`), by their path: `budget arms`, `devices up`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from posse.cli import flags
from posse.cli.flags import settings_command, settings_of
from posse.cli.help import make_command
from posse.cli.keep import Keeper
from posse.cli.progress import Doing
from posse.cli.screen import print_json, remark, saved, say, section
from posse.systems.registry import ACTIONS, BUILT_IN, systems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typer.core import TyperCommand

    from posse.core.settings import Settings
    from posse.results.record import Record
    from posse.results.section import Section
    from posse.systems.base import AnySystem
    from posse.systems.modules import Command


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


def below(word: str) -> dict[str, Command]:
    """Return the commands that systems declare below a word, by their own word."""
    return {
        declared.path[1]: declared
        for declared in _of_all_systems()
        if declared.path[0] == word and len(declared.path) > 1
    }


def at(word: str) -> Command | None:
    """Return the command that a system declares with this word alone; None if there is none."""
    return next((declared for declared in _of_all_systems() if declared.path == (word,)), None)


def _of_all_systems() -> list[Command]:
    return list(_declared(systems()))


def _declared(systems: Iterable[AnySystem]) -> Iterator[Command]:
    for system in systems:
        # Imported only where there is a system: a list of all commands imports none.
        from posse.systems.modules import commands_of

        yield from commands_of(system).commands


def command_of(declared: Command) -> TyperCommand:
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
    return make_command(declared.path[-1], declared.summary, declared.examples, cls, run)


def _carry_out(declared: Command, settings: Settings, json: bool) -> None:
    """Run a command and print what it yields as it comes; records are stored."""
    from posse.results.section import Section

    document: dict[str, object] = {"settings": settings.resolved()}
    records: list[Record] = []
    keeper = Keeper(save=True, late=True)
    for item in _items(declared, settings):
        if isinstance(item, str):
            remark(item)
        elif isinstance(item, Section):
            document.update(item.data or {})
            if not json:
                section(item)
        else:
            records.append(item)
    if json:
        if records:
            document["records"] = [record.document() for record in records]
        print_json(document)
    with keeper.kept(records):
        pass
    if records and not json and keeper.saves:
        say("")
        saved(records)


def _items(declared: Command, settings: Settings) -> Iterator[str | Section | Record]:
    """Yield what a command yields, with progress until each item is there."""
    items = iter(declared.run(settings))
    while True:
        with Doing(" ".join(declared.path)):
            try:
                item = next(items)
            except StopIteration:
                return
            except KeyboardInterrupt:
                if not declared.stopped:
                    raise
                remark(declared.stopped)
                raise typer.Exit(flags.INTERRUPTED) from None
        yield item
