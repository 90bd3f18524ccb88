"""The command line: `posse` on a terminal, in a script and in a pipe."""

from __future__ import annotations


def main() -> None:
    """Run the command line and leave with its exit code."""
    # Imported here so that importing the package does nothing and stays fast.
    from posse.cli.app import command

    command()()
