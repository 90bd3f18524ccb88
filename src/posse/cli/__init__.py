"""The command line: `posse` on a terminal, in a script and in a pipe."""

from __future__ import annotations


def main() -> None:
    """Run the command line and leave with its exit code."""
    import sys

    # A letter that the terminal cannot show becomes a question mark, not a traceback.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    # Imported here so that importing the package does nothing and stays fast.
    from posse.cli.app import command
    from posse.core.interrupts import never_lost

    never_lost()
    command()()
