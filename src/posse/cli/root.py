"""The outermost command: what goes wrong becomes one line and an exit code.

| exit code | means |
|---|---|
| 0 | done |
| 1 | a check or an experiment ran and did not pass |
| 2 | the user's mistake, or the machine's: one line on stderr says what to do |
| 130 | interrupted by Ctrl-C |
| 141 | whoever read the output closed it |

Anything else is a bug: it keeps its traceback, which shows lines of code and never values of variables.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from posse.cli.options import INTERRUPTED
from posse.cli.screen import complain, remark
from posse.core.errors import PosseError

ORDER = (
    "demo", "run", "simulate", "compare", "sweep", "runs", "policies", "problems", "reproduce", "ca", "enrol",
    "up", "party", "status", "pause", "resume", "stop", "end", "doctor",
)  # fmt: skip

CLOSED = 141

# typer carries its own copy of click in some versions and uses the installed one in others.
UsageError: type[Exception] = typer.BadParameter.__mro__[2]

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Root(TyperGroup):
    """A group of commands that never ends in a traceback for a user's mistake."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order a newcomer needs them."""
        from posse.cli import actions

        known = [*super().list_commands(ctx), *actions.words()]
        return sorted(known, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Give a command; those of systems are made when they are called."""
        from posse.cli import actions

        own = super().get_command(ctx, cmd_name)
        return own if own is not None or cmd_name not in actions.words() else actions.command(cmd_name)

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
        sys.exit(self._guarded(list(sys.argv[1:] if args is None else args), prog_name or "posse", extra))

    def _guarded(self, args: list[str], name: str, extra: dict[str, Any]) -> int:
        try:
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
            complain(f"cannot write the output: {error.strerror}. Free some space, or write elsewhere.")
            return PosseError.exit_code
        return code

    def _told(self, args: list[str], name: str, extra: dict[str, Any]) -> int:
        try:
            with self.make_context(name, args, terminal_width=_narrow(), **extra) as context:
                self.invoke(context)
        except typer.Exit as leave:
            return int(leave.exit_code)
        except PosseError as error:
            complain(str(error))
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
