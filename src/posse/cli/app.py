"""The commands, put together; what goes wrong becomes one line and an exit code.

| exit code | means |
|---|---|
| 0 | done |
| 1 | a check ran and did not pass |
| 2 | the user's mistake, or the machine's: one line on stderr gives a remedy |
| 3 | start the party again when the other is there: a peer has not confirmed its last messages, or the run stalled |
| 130 | interrupted by Ctrl-C |
| 141 | the reader of the output closed it |

Anything else is a bug: it keeps its traceback, which shows lines of code and never values of
variables.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from posse.cli.flags import INTERRUPTED
from posse.cli.groups import (
    Entry,
    Group,
    OpenGroup,
    SystemGroup,
    current_names,
    declared_command,
    summaries,
)
from posse.cli.help import HELP, WIDEST
from posse.cli.screen import complain, remark
from posse.core.check import did_you_mean
from posse.core.errors import PosseError, page_of
from posse.core.interrupts import enforce_interrupts
from posse.version import __version__

if TYPE_CHECKING:
    from click import Command as ClickCommand

PANELS = {
    "demo": "Try it",
    "studio": "Try it",
    "run": "Run",
    "compare": "Run",
    "sweep": "Run",
    "audit": "Run",
    "check": "Your data",
    "evaluate": "Your data",
    "predict": "Your data",
    "export": "Your data",
    "runs": "Results",
    "policies": "What there is",
    "problems": "What there is",
    "budget": "What there is",
    "up": "Between organisations",
    "federation": "Between organisations",
    "party": "Between organisations",
    "devices": "On devices",
}
"""All commands at the top level, in the order a newcomer needs them, with the titles of their
panels.
"""

COMMANDS = {
    "demo": Entry("See it work: no download, half a minute.", "demo:demo"),
    "studio": Entry("Open the studio in the browser: watch and compare runs.", "studio:studio"),
    "run": Entry(
        "Run a protected protocol, or its plain bandit with --plain.",
        examples=("posse run SYSTEM --owners 10", "posse run SYSTEM --plain --policy thompson"),
        commands={"_system": "systems:run_command"},
        kind=SystemGroup,
    ),
    "compare": Entry(
        "Compare stored runs (ids), or policies on the same worlds.",
        examples=(
            "posse compare last ID",
            "posse compare SYSTEM --policy ucb --policy thompson",
        ),
        commands={
            "_system": "systems:compare_command",
            "_stored": "systems:compare_stored_command",
        },
        default="_stored",
        kind=SystemGroup,
    ),
    "sweep": Entry(
        "Run a grid of settings.",
        examples=(
            "posse sweep SYSTEM --over policy=ucb,thompson",
            "posse sweep SYSTEM --over horizon=1000,10000 --out table.csv",
        ),
        commands={"_system": "systems:sweep_command"},
        default="_system",
        kind=SystemGroup,
    ),
    "audit": Entry(
        "Attack a stored run (id), a recorded view (file), or settings.",
        examples=("posse audit last", "posse audit SYSTEM --level paper"),
        commands={"_system": "audit:settings_audit", "_stored": "audit:stored_audit"},
        default="_stored",
        kind=SystemGroup,
    ),
    "check": Entry(
        "Check your own table, or the ranges of a protocol.",
        examples=("posse check ratings.csv", "posse check ranges --bits 20"),
        commands={"_own": "inputs:check"},
        default="_own",
        kind=OpenGroup,
    ),
    "evaluate": Entry(
        "Estimate from a log what other policies would have earned.",
        examples=("posse evaluate log.csv", "posse evaluate rates log.csv"),
        commands={"_own": "inputs:evaluate"},
        default="_own",
        kind=OpenGroup,
    ),
    "predict": Entry("Choose the arm of largest predicted reward for every row.", "inputs:predict"),
    "runs": Entry(
        "List, show, delete, export and report the runs on this machine.",
        examples=("posse runs list", "posse runs show last"),
        commands={
            "list": "runs:list_runs",
            "show": "runs:show",
            "delete": "runs:delete",
            "export": "runs:export",
            "report": "runs:report",
        },
    ),
    "policies": Entry("List the policies of every system, or check your own.", "inputs:policies"),
    "problems": Entry(
        "List the data that every system can learn from.",
        examples=("posse problems --data movielens", "posse problems show embedded:movielens"),
        commands={"_own": "inputs:problems"},
        default="_own",
        kind=OpenGroup,
    ),
    "up": Entry("Run a whole federation on this machine.", "operators.up:up"),
    "federation": Entry(
        "Create a federation, and propose runs to it.",
        examples=(
            "posse federation create hospitals",
            "posse federation submit run.toml --at hospitals/customer.toml",
        ),
        commands={
            "create": "operators.service:create",
            "submit": "operators.service:submit",
            "queue": "operators.service:queue",
            "expel": "operators.service:expel",
            "ca": Entry(
                "Certify the parties of a run: tokens, certificates, revocation.",
                examples=(
                    "posse federation ca init --run trial-7",
                    "posse federation ca token --role owner --name clinic-b",
                ),
                commands={
                    "init": "operators.ca:init",
                    "token": "operators.ca:token",
                    "sign": "operators.ca:sign",
                    "list": "operators.ca:list_all",
                    "revoke": "operators.ca:revoke",
                    "crl": "operators.ca:crl",
                    "serve": "operators.ca:serve",
                },
            ),
        },
    ),
    "party": Entry(
        "Take part in a run or a federation.",
        examples=("posse party enrol --token-file token", "posse party clinic-b.toml"),
        commands={
            "enrol": "operators.ca:enrol",
            "start": "operators.party:start",
            "serve": "operators.service:serve",
            "status": "operators.party:status",
            "pause": "operators.party:pause",
            "resume": "operators.party:resume",
            "stop": "operators.party:stop",
            "end": "operators.party:end",
            "update": "operators.party:update",
            "leave": "operators.service:leave",
            "renew": "operators.service:renew",
            "doctor": "operators.party:doctor",
            "backup": "operators.party:backup",
            "restore": "operators.party:restore",
            "unit": "operators.party:unit",
        },
        default="start",
    ),
}
"""All commands of Posse itself; systems add theirs (`posse.systems.modules.Commands`)."""

WORK = frozenset(
    (
        "demo",
        "run",
        "simulate",
        "compare",
        "sweep",
        "audit",
        "check",
        "runs",
        "evaluate",
        "predict",
        "policies",
        "problems",
    )
)
"""Commands that compute: whatever they are doing, Ctrl-C ends them soon. The others close what they
opened first.
"""

CLOSED = 141

# typer carries its own copy of click in some versions and uses the installed one in others.
UsageError: type[Exception] = typer.BadParameter.__mro__[2]

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Root(Group):
    """All commands. It never ends in a traceback for a user's mistake."""

    panels = PANELS
    most_lines = 45
    entries = COMMANDS

    def names(self) -> Collection[str]:
        """Return the commands in the order of their panels; those of other packages come last."""
        names = {*self.entries, *summaries()}
        return sorted(names, key=lambda name: [*PANELS, name].index(name))

    def make(self, name: str) -> ClickCommand:
        """Make a command of Posse, or one that systems declare."""
        return super().make(name) if name in self.entries else declared_command(name)

    def help_of(self, name: str) -> str:
        """Return the text of a command, without importing it."""
        return COMMANDS[name].about if name in COMMANDS else summaries()[name]

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run, print what went wrong, and exit."""
        arguments = list(sys.argv[1:] if args is None else args)
        sys.exit(self._guarded(arguments, prog_name or "posse", extra))

    def _guarded(self, args: list[str], name: str, extra: dict[str, Any]) -> int:
        try:
            with enforce_interrupts() if args and args[0] in WORK else nullcontext():
                code = self._run(args, name, extra)
            # Flushed here, where a closed pipe or a full disk can still be reported.
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            return CLOSED
        except OSError as error:
            if error.errno not in _FULL:
                raise
            _discard_output()
            complain(
                f"cannot write the output: {error.strerror}. Free some space, or write elsewhere."
            )
            return PosseError.exit_code
        return code

    def _run(self, args: list[str], name: str, extra: dict[str, Any]) -> int:
        try:
            args = current_names(args)
            # Inherited by every command below.
            settings: dict[str, Any] = {"help_option_names": [*HELP], "terminal_width": _narrow()}
            with self.make_context(
                name, args, max_content_width=WIDEST, **settings, **extra
            ) as context:
                self.invoke(context)
        except typer.Exit as leave:
            return int(leave.exit_code)
        except PosseError as error:
            if "--json" in args and error.exit_code == PosseError.exit_code:
                print(json.dumps({"error": error.as_dict()}))
            rule = f"rule: {error.rule}; " if error.rule else ""
            complain(f"{error} ({rule}see {page_of(error.code)})")
            return error.exit_code
        except (KeyboardInterrupt, typer.Abort):
            remark("interrupted; nothing was saved.")
            return INTERRUPTED
        except UsageError as error:
            complain(_usage(error))
            return int(getattr(error, "exit_code", PosseError.exit_code))
        return 0


def _narrow() -> int | None:
    """Return the width of help on a narrow terminal; None for the usual width."""
    columns = shutil.get_terminal_size().columns
    return columns - 1 if columns < 60 else None


def _usage(error: Exception) -> str:
    """Return what is wrong with the command line, and the command that prints help."""
    text = str(getattr(error, "format_message", error.__str__)()).rstrip()
    context = getattr(error, "ctx", None)
    unknown = re.fullmatch(r"No such command '([^']*)'\.", text)
    if unknown and context is not None:
        # typer does not know the commands that are made when they are called
        text += did_you_mean(unknown[1], tuple(context.command.list_commands(context)))
    # Some versions of typer suggest, and click does so again, in brackets or without.
    text = re.sub(r"\(?((?:Did you mean|Possible)[^?)]*\??).*", r"\1", text)
    where = f" Try '{context.command_path} --help'." if context is not None else ""
    return f"{text}{'' if text.endswith(('.', '?', ')')) else '.'}{where}"


def _discard_output() -> None:
    """Discard what is left in the buffers: Python would print an error about it at the exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # not a file at all, as in a test
        return


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"posse {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Bandits across organisations that will not show each other their data.

    Examples:
        posse demo
        posse run --help
    """


# Locals in a traceback could print keys.
app = typer.Typer(
    name="posse",
    cls=Root,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    callback=_root,
)


def command() -> ClickCommand:
    """Make the command that runs everything."""
    return typer.main.get_command(app)
