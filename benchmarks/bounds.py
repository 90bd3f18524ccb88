"""Posse without extras, on the lowest and on the newest dependencies that it allows: `make
test-bounds`.

Each end is a new environment below build/bounds. In it the help of every command is printed, and
the demo and every command of README.md run. A command may lack an extra if its line names the
extra.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / "build" / "bounds"


def lowest_versions() -> list[str]:
    """Return every direct dependency at the version that its bound names; `numpy==2.0` is the
    release 2.0.0.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in project["dependencies"]:
        if not re.fullmatch(r"[\w-]+>=[\d.]+", requirement):
            sys.exit(
                f"a dependency must be written as name>=version, got '{requirement}'. Change "
                "pyproject.toml."
            )
    return [requirement.replace(">=", "==") for requirement in project["dependencies"]]


def install(folder: Path, pins: list[str]) -> Path:
    """Install this checkout and the pinned versions into a new environment; return its folder of
    programs.
    """
    venv.create(folder, clear=True, symlinks=True, with_pip=True)
    programs = folder / "bin"
    pip = [programs / "python", "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--no-compile", ROOT, *pins], folder)
    return programs


def run(command: list[str | Path], folder: Path) -> str:
    """Run a command that must succeed; return what it prints."""
    done = attempt(command, folder)
    if done.returncode != 0:
        sys.exit(
            f"{' '.join(map(str, command))} ended with "
            f"{done.returncode}.\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def attempt(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without the settings that this environment has for Python and for Posse."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "POSSE_"))
    }
    environment |= {"POSSE_HOME": str(folder / "home"), "COLUMNS": "80"}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=900,
        check=False,
    )


def readme_commands() -> Iterator[tuple[str, str]]:
    """Return every command of README.md with the rest of its line, where an extra is named."""
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        command = re.match(r"(?:\$ )?(posse .*?)(  #.*)?$", line)
        if command is not None:
            yield command[1], command[2] or ""


def check_readme(programs: Path, folder: Path) -> None:
    """Run the commands of README.md; each must succeed, or lack an extra that its line names."""
    for words, remark in readme_commands():
        done = attempt(command_in(programs, words), folder)
        extra = re.search(r"\[P400\].*\[(\w+)\]", done.stderr)
        if extra is not None and not re.search(rf"\b{extra[1]}\b", remark):
            sys.exit(
                f"'{words}' needs the extra {extra[1]}. Name the extra behind the command in "
                "README.md."
            )
        if extra is None and done.returncode != 0:
            sys.exit(f"{words} ended with {done.returncode}.\n{done.stdout}{done.stderr}")
        print(
            f"  {words}: {'done' if extra is None else f'needs the extra {extra[1]}'}", flush=True
        )


def command_in(programs: Path, words: str) -> list[str | Path]:
    """Return a command of an environment as a list."""
    name, *rest = words.split()
    return [programs / name, *rest]


def prepare(folder: Path) -> None:
    """Put the examples into a new folder; their federation listens on a port that is free now."""
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("shops"))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    federation = folder / "examples" / "shops.toml"
    text = federation.read_text(encoding="utf-8")
    federation.write_text(f'listen = "127.0.0.1:{port}"\n{text}', encoding="utf-8")


def command_paths(
    command: Any, context: Any = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Return the words of every command and every group, hidden ones too."""
    yield path
    if hasattr(command, "list_commands"):
        inner = type(command).context_class(
            command, parent=context, info_name=path[-1] if path else "posse"
        )
        for name in command.list_commands(inner):
            yield from command_paths(command.get_command(inner, name), inner, (*path, name))


def print_helps() -> None:
    """Print the help of every command of the Posse that is installed for this Python, and list
    those that fail.
    """
    from posse.cli.app import command

    root = command()
    paths = list(command_paths(root))
    failed = 0
    for path in paths:
        page = io.StringIO()
        result: object = None
        try:
            with redirect_stdout(page):
                root([*path, "--help", "--all"])
        except SystemExit as stop:
            result = stop.code
        except Exception as error:
            result = repr(error)
        if result != 0 or not page.getvalue().startswith("Usage: posse"):
            print(f"posse {' '.join(path)} --help: {result}", file=sys.stderr)
            failed += 1
    print(f"  help of {len(paths)} commands, {failed} failed")
    sys.exit(failed > 0)


def check_end(end: str, pins: list[str]) -> None:
    """Install one end of the bounds and run everything there."""
    folder = ENVIRONMENTS / end
    programs = install(folder, pins)
    python = programs / "python"
    versions = run(
        [python, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"], folder
    )
    print(f"{end}: {', '.join(versions.split())}", flush=True)
    print(
        run([python, "-I", "-W", "error::UserWarning", Path(__file__).resolve(), "helps"], folder),
        end="",
        flush=True,
    )
    work = folder / "work"
    work.mkdir()
    prepare(work)
    run([programs / "posse", "demo", "--horizon", "60"], work)
    print("  posse demo: done", flush=True)
    check_readme(programs, work)


def main() -> None:
    if sys.argv[1:] == ["helps"]:
        print_helps()
    else:
        check_end("lowest", lowest_versions())
        check_end("newest", [])


if __name__ == "__main__":
    main()
