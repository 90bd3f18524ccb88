"""Commands of single systems (`Commands`), by their path: `budget arms`, `devices up`, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from posse.cli import flags
from posse.cli.flags import flags_given, settings_command, settings_group, settings_of
from posse.cli.keep import Keeper
from posse.cli.progress import Doing
from posse.cli.screen import print_json, remark, saved, say, section
from posse.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from posse.systems.base import AnySystem
    from posse.systems.modules import Command


def words() -> dict[str, str]:
    """First words of all actions with what they are about; built-in systems are not imported for
    it.
    """
    from posse.systems.registry import ACTIONS, BUILT_IN, systems

    summaries = dict(ACTIONS)
    for action in _actions_of(systems(skip=BUILT_IN)):
        word = action.path[0]
        if len(action.path) == 1 or word not in summaries:
            summaries[word] = action.summary
    return summaries


def listed(word: str) -> TyperCommand:
    """Stand for a command in a list of commands: its name and what it is about."""
    return TyperCommand(word, help=words()[word])


def command(word: str) -> Any:
    """Make the command of a first word: one action, or a group of them."""
    below = [action for action in _actions() if action.path[0] == word]
    if len(below) == 1 and len(below[0].path) == 1:
        return _single(below[0])
    return _group(word, below)


def _actions() -> Sequence[Command]:
    from posse.systems.registry import systems

    return list(_actions_of(systems()))


def _actions_of(some: Iterator[AnySystem]) -> Iterator[Command]:
    for system in some:
        from posse.systems.modules import commands_of

        yield from commands_of(system).commands


def _single(action: Command) -> TyperCommand:
    scratch = typer.Typer(add_completion=False, rich_markup_mode=None)
    cls = settings_command(
        action.settings, skip=action.skip, positional=action.positional, **dict(action.defaults)
    )
    scratch.command(action.path[-1], cls=cls, help=action.summary)(_running(action))
    made: TyperCommand = typer.main.get_command(scratch)  # type: ignore[assignment]
    return made


def _group(word: str, below: Sequence[Command]) -> TyperGroup:
    """Make a group; an action whose path is the word itself runs when no other is named."""
    own = next((action for action in below if len(action.path) == 1), None)
    cls = TyperGroup if own is None else settings_group(own.settings)
    scratch = typer.Typer(name=word, add_completion=False, rich_markup_mode=None, cls=cls)
    scratch.callback(invoke_without_command=True, help=own.summary if own else "")(_callback(own))
    made: TyperGroup = typer.main.get_command(scratch)  # type: ignore[assignment]
    for action in below:
        if len(action.path) == 2:
            made.add_command(_single(action), action.path[1])
    return made


def _callback(own: Command | None) -> Any:
    if own is None:
        return flags.help_when_alone
    run = _running(own)

    def group(
        context: typer.Context, config: flags.Config = None, json: flags.Json = False
    ) -> None:
        word = context.invoked_subcommand
        if word is None:
            run(context, config, json)
        elif flags_given(context) or config is not None or json:
            raise ConfigError(
                f"flags before '{word}' belong to another command. Put those of '{word}' behind it."
            )

    return group


def _running(action: Command) -> Any:
    def run(context: typer.Context, config: flags.Config = None, json: flags.Json = False) -> None:
        settings = settings_of(action.settings(), context, config, **dict(action.defaults))
        _carry_out(action, settings, json)

    return run


def _carry_out(action: Command, settings: Any, json: bool) -> None:
    """Run an action and show what it gives as it comes; records are kept."""
    from posse.results.section import Section

    document: dict[str, Any] = {"settings": settings.resolved()}
    records = []
    keeper = Keeper(save=True, late=True)
    given = iter(action.run(settings))
    while True:
        with Doing(" ".join(action.path)):
            try:
                one = next(given)
            except StopIteration:
                break
            except KeyboardInterrupt:
                if action.stopped:
                    remark(action.stopped)
                    raise typer.Exit(flags.INTERRUPTED) from None
                raise
        if isinstance(one, str):
            remark(one)
        elif isinstance(one, Section):
            document.update(one.data or {})
            if not json:
                section(one)
        else:
            records.append(one)
    if json:
        print_json(
            {
                **document,
                **({"records": [record.document() for record in records]} if records else {}),
            }
        )
    with keeper.kept(records):
        pass
    if records and not json and keeper.saves:
        say("")
        saved(records)
