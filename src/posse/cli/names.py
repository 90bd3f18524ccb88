"""Names of commands that changed: old ones work for one version, removed ones name a replacement."""

from __future__ import annotations

from collections.abc import Sequence

from posse.cli.groups import summaries
from posse.cli.screen import remark
from posse.core.errors import ConfigError

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
