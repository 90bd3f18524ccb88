"""The examples of the README run, and the documents link to files that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from posse.cli.app import app
from posse.protocols.mpc_contextual.deploy import ContextualFederation
from posse.protocols.samba.deploy import FederationFile, SambaOptions
from posse.runtime.network.deployment import PartyFile
from posse.runtime.sources import SourceSettings

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/README.md")])


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_run(code: str, tmp_path: Path) -> None:
    """As a user runs them: a script of its own."""
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.name)
def test_example_programs_run(path: Path) -> None:
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_readme_has_examples() -> None:
    assert len(blocks("python")) == 6


def commands_of(text: str) -> list[list[str]]:
    """Commands in blocks of a shell, as a reader types them, without what the shell itself does."""
    found = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    lines = [re.split(r" [<>|&]", line.split("  #")[0])[0] for line in found if line.startswith("posse ")]
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize(("name", "count"), [("README.md", 16), ("docs/tutorial.md", 31)])
def test_commands_exist_and_take_their_flags(name: str, count: int) -> None:
    commands = commands_of((ROOT / name).read_text(encoding="utf-8"))
    assert len(commands) == count
    for words in commands:
        command, rest = get_command(app), words[1:]
        while rest and hasattr(command, "commands") and rest[0] in command.commands:
            command, rest = command.commands[rest[0]], rest[1:]
        command.make_context(words[0], list(rest), resilient_parsing=False)


def test_the_files_of_the_tutorial_are_read() -> None:
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    tables = [tomllib.loads(one) for one in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)]
    FederationFile.make(tables[0])
    ContextualFederation.make(tables[-1])
    files = re.findall(r"\.toml <<'END'\n(.*?)END\n", text, re.DOTALL)
    assert len(files) == 6
    for one in files:
        made = PartyFile.make(tomllib.loads(one))
        SambaOptions.make(made.options)
        if made.source is not None:
            SourceSettings.make(made.source)


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z-]+)", "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert link.startswith("http") or (path.parent / link).exists(), link
