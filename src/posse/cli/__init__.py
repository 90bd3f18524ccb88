"""The command line: `posse` on a terminal, in a script and in a pipe."""

from __future__ import annotations


def main() -> None:
    """Run the command line and leave with its exit code."""
    import os
    import sys

    # A letter that the terminal cannot show becomes a question mark, not a traceback.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    # Imported here so that importing the package does nothing and stays fast.
    from posse.cli.app import WORK, command
    from posse.cli.flags import INTERRUPTED
    from posse.core.interrupts import resend_lost_interrupts

    resend_lost_interrupts()
    try:
        command()()
    except SystemExit as stop:
        if stop.code == INTERRUPTED and sys.argv[1:2] and sys.argv[1] in WORK:
            sys.stdout.flush()
            os._exit(INTERRUPTED)  # Python would wait for work in threads, or crash
        raise
