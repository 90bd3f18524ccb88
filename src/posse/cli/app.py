"""The commands, put together; what goes wrong becomes one line and an exit code.

| exit code | means |
|---|---|
| 0 | done |
| 1 | a check ran and did not pass |
| 2 | the user's mistake, or the machine's: one line on stderr says what to do |
| 3 | start the party again when the other is there: a peer has not confirmed its last messages, or the run stalled |
| 130 | interrupted by Ctrl-C |
| 141 | whoever read the output closed it |

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
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from posse.cli import actions, audit, catalogue, demo, logs, runs, studio, systems
from posse.cli.flags import INTERRUPTED, help_when_alone
from posse.cli.operators import ca, federation, living, operations
from posse.cli.screen import complain, remark
from posse.core.check import did_you_mean
from posse.core.errors import ConfigError, PosseError
from posse.core.interrupts import end_on_interrupt
from posse.version import __version__

if TYPE_CHECKING:
    from posse.systems.base import AnySystem

FRAMED = 70
"""Columns from which on help is set in frames."""

ORDER = (
    "demo",
    "studio",
    "run",
    "simulate",
    "compare",
    "sweep",
    "audit",
    "runs",
    "evaluate",
    "predict",
    "export",
    "policies",
    "problems",
    "ca",
    "enrol",
    "found",
    "serve",
    "submit",
    "queue",
    "expel",
    "leave",
    "renew",
    "up",
    "party",
    "status",
    "pause",
    "resume",
    "stop",
    "end",
    "change",
    "doctor",
    "backup",
    "restore",
    "units",
)

WORK = frozenset(
    (
        "demo",
        "run",
        "simulate",
        "compare",
        "sweep",
        "audit",
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

REMOVED = {
    "reproduce": "Published figures are computed in a checkout of Posse: python -m reproduction list.",
    "devices rollback": "Use 'posse devices deploy --version N', which also holds back newer versions.",
}
"""Commands that 0.1 had, and what to use instead."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Root(TyperGroup):
    """A group of commands that never ends in a traceback for a user's mistake."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order a newcomer needs them."""
        known = [*super().list_commands(ctx), *actions.words()]
        return sorted(known, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Give a command; those of systems are made when they are called."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in actions.words():
            return own
        return actions.listed(cmd_name) if self._listing else actions.command(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; for a list of commands no system is imported."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run, tell what went wrong, and leave."""
        sys.exit(
            self._guarded(list(sys.argv[1:] if args is None else args), prog_name or "posse", extra)
        )

    def _guarded(self, args: list[str], name: str, extra: dict[str, Any]) -> int:
        try:
            with end_on_interrupt() if args and args[0] in WORK else nullcontext():
                code = self._told(args, name, extra)
            # Flushed here, where a closed pipe or a full disk can still be told.
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

    def _told(self, args: list[str], name: str, extra: dict[str, Any]) -> int:
        try:
            names = ["-h", "--help"]  # inherited by every command below
            with self.make_context(
                name, args, terminal_width=_narrow(), help_option_names=names, **extra
            ) as context:
                self.invoke(context)
        except typer.Exit as leave:
            return int(leave.exit_code)
        except PosseError as error:
            if "--json" in args and error.exit_code == PosseError.exit_code:
                print(json.dumps({"error": error.as_dict()}))
            complain(f"{error} (rule: {error.rule})" if error.rule else str(error))
            return error.exit_code
        except (KeyboardInterrupt, typer.Abort):
            remark("interrupted; nothing was saved.")
            return INTERRUPTED
        except UsageError as error:
            complain(_usage(error))
            return int(getattr(error, "exit_code", PosseError.exit_code))
        return 0


def _narrow() -> int | None:
    """Width of help on a narrow terminal, which would otherwise be at least 50 columns."""
    columns = shutil.get_terminal_size().columns
    return columns - 1 if columns < 60 else None


def _usage(error: Exception) -> str:
    """Say what is wrong with the command line, and where help is."""
    text = str(getattr(error, "format_message", error.__str__)()).rstrip()
    context = getattr(error, "ctx", None)
    if getattr(error, "option_name", "") == "--brief":
        text = "--brief was removed: commands print the answer alone, and all of it with --full."
        return str(ConfigError(text))
    unknown = re.fullmatch(r"No such command '([^']*)'\.", text)
    if unknown and context is not None:
        words = f"{context.command_path} {unknown[1]}".partition(" ")[2]
        if words in REMOVED:
            return str(ConfigError(f"'posse {words}' was removed. {REMOVED[words]}"))
        # typer does not know the commands that are made when they are called
        text += did_you_mean(unknown[1], tuple(context.command.list_commands(context)))
    # Some versions of typer suggest, and click does so again, in brackets or without.
    text = re.sub(r"\(?((?:Did you mean|Possible)[^?)]*\??).*", r"\1", text)
    where = f" Try '{context.command_path} --help'." if context is not None else ""
    return f"{text}{'' if text.endswith(('.', '?', ')')) else '.'}{where}"


def _discard_output() -> None:
    """Send what is left in the buffers nowhere, or Python complains about it while it exits."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # not a file at all, as in a test
        return


# Locals in a traceback could print keys; markup in help texts would eat brackets.
app = typer.Typer(
    name="posse",
    cls=Root,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Bandits across organisations that will not show each other their data.",
    epilog="Start with: posse demo",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"posse {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    help_when_alone(context)


def _of_systems(name: str, make: Callable[[AnySystem], Any], summary: str, **more: Any) -> None:
    """Add a group with a command for every system."""
    group = typer.Typer(
        cls=systems.system_group(make, **more),
        help=summary,
        callback=help_when_alone,
        invoke_without_command=True,
    )
    app.add_typer(group, name=name)


app.command("demo")(demo.demo)
app.command("studio")(studio.studio)
_of_systems("run", systems.run_command, "Run a protected protocol.", first=False)
_of_systems("simulate", systems.simulate_command, "Simulate plain bandits, many runs at once.")
_of_systems(
    "compare",
    systems.compare_command,
    "Compare stored runs (ids), or policies on the same worlds (--policy A --policy B).",
    other=systems.stored_command,
)
_of_systems("sweep", systems.sweep_command, "Run a grid of settings.")
_of_systems(
    "audit",
    audit.settings_audit,
    "Attack a stored run (id), a recorded view (file), or settings.",
    other=audit.stored_audit,
    takes=audit.STORED_FLAGS,
)
app.add_typer(runs.app, name="runs")
app.command("evaluate")(logs.evaluate)
app.command("predict")(logs.predict)
app.command("policies")(catalogue.policies)
app.command("problems")(catalogue.problems)
app.add_typer(ca.app, name="ca")
app.command("enrol")(ca.enrol)
for operation in ("found", "serve", "submit", "queue", "expel", "leave", "renew"):
    app.command(operation)(getattr(living, operation))
for operation in ("up", "party", "status", "pause", "resume", "stop", "end", "change", "doctor"):
    app.command(operation)(getattr(federation, operation))
for operation in ("backup", "restore", "units"):
    app.command(operation)(getattr(operations, operation))


def command() -> Any:
    """Make the command that runs everything; help in frames needs a terminal wide enough for
    them.
    """
    app.rich_markup_mode = "rich" if shutil.get_terminal_size().columns >= FRAMED else None
    return typer.main.get_command(app)
