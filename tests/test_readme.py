"""The README: every block runs as it is printed, with the output that is printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import hatchling
import pytest

from posse.version import __version__
from tests.kit.federations import free_port

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = TEXT.splitlines()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FIRST_SCREEN = 24
RECORD = re.compile(r"\b\w{9}-\w{4}\b")
SAME_IN_EVERY_RUN = ("400", "211", "284")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A terminal of 80 columns with `posse` on its path and an empty store."""
    commands = tmp_path / "commands"
    commands.mkdir()
    posse = commands / "posse"
    posse.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m posse "$@"\n', encoding="utf-8")
    posse.chmod(0o700)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    home = str(tmp_path / "home")
    return {**os.environ, "PATH": path, "POSSE_HOME": home, "COLUMNS": "80"}


def shell(script: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a block as a reader does, and return what it prints."""
    done = subprocess.run(
        ["sh", "-euc", script],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def masked(text: str) -> list[str]:
    """Lines without ids and numbers that differ from run to run, and without the spaces of a
    table.
    """
    lines = []
    for line in text.splitlines():
        words = RECORD.sub("ID", line).split()
        shown = [
            word if word.strip(".,") in SAME_IN_EVERY_RUN else re.sub(r"\d+", "N", word)
            for word in words
        ]
        lines.append(re.sub("─+", "─", " ".join(shown)))
    return lines


def check_totals(text: str) -> None:
    """The shops' own coupons add up to what the customer knows and the first line says."""
    (first,) = re.findall(r"^(\d+) of 400 coupons were used", text)
    (customer,) = re.findall(r"^customer +the total: (\d+) used of 400 ", text, re.MULTILINE)
    shops = re.findall(r"its own coupons: (\d+) used of (\d+)", text)
    assert len(shops) == 4
    assert sum(int(used) for used, _ in shops) == int(customer) == int(first)
    assert sum(int(sent) for _, sent in shops) == 400


def test_every_block_has_its_test() -> None:
    assert [language for language, _ in BLOCKS] == ["console", "sh", "python", "text", "sh"]


def test_the_example_prints_what_the_first_screen_shows(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """A deployment has no seed: totals and ids differ from run to run."""
    command, _, printed = BLOCKS[0][1].partition("\n")
    assert command.startswith("$ ")
    real = shell(command.removeprefix("$ "), tmp_path, environment)
    assert masked(real) == masked(printed)
    check_totals(real)
    check_totals(printed)


def test_the_commands_that_install_work_in_a_checkout(tmp_path: Path) -> None:
    """Without the package index: dependencies are not installed, and build tools are borrowed."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    offline = ("NO_DEPS", "NO_INDEX", "NO_BUILD_ISOLATION", "IGNORE_INSTALLED")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONHOME"}
    environment |= {f"PIP_{name}": "1" for name in offline}
    environment["PIP_NO_BUILD_ISOLATION"] = "0"  # pip reads "no" twice as yes
    environment["PYTHONPATH"] = str(Path(hatchling.__file__).parents[1])
    shell(BLOCKS[1][1], checkout, environment)
    (installed,) = (checkout / "env").glob("lib/python*/site-packages/posse/version.py")
    assert __version__ in installed.read_text(encoding="utf-8")
    assert (checkout / "env" / "bin" / "posse").is_file()
    assert (installed.parent / "examples" / "coupons" / "federation.toml").is_file()


def test_the_python_example_prints_what_is_shown(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    code, printed = BLOCKS[2][1], BLOCKS[3][1]
    assert len(code.splitlines()) == 8
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    assert shell(f'"{sys.executable}" example.py', tmp_path, environment) == printed
    assert "<html" in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_commands_for_data_of_your_own_run(tmp_path: Path, environment: dict[str, str]) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    file = tmp_path / "examples" / "shops.toml"
    listen = f'listen = "127.0.0.1:{free_port()}"\n'
    file.write_text(listen + file.read_text(encoding="utf-8"), encoding="utf-8")
    printed = shell(BLOCKS[4][1], tmp_path, environment)
    assert "of 400 pulls" in printed
    assert "40 clients" in printed
    assert "embedded:movielens" in printed


def test_the_first_screen_says_what_it_is_for_shows_it_and_says_what_is_not_protected() -> None:
    screen = "\n".join(LINES[:FIRST_SCREEN])
    assert "Find out together what works best, without showing each other your data." in screen
    assert BLOCKS[0][1] in screen
    limits = screen.partition("**Not protected:**")[2]
    for limit in ("best rate", "one shop", "two of the three servers", "audited"):
        assert limit in limits
    assert LINES[FIRST_SCREEN] == ""


def test_it_has_at_most_120_lines_of_100_columns() -> None:
    assert len(LINES) <= 120
    assert [line for line in LINES if len(line) > 100] == []


def test_the_count_of_claims_is_that_of_the_page_of_claims() -> None:
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    counts = re.search(
        r"^(\d+) claims: (\d+) hold, (\d+) do not hold, (\d+) open\.$", page, re.MULTILINE
    )
    assert counts is not None
    said = "Of {} claims of the papers {} hold, {} do not, {} are open".format(*counts.groups())
    assert said in TEXT


def test_every_extra_has_a_purpose_except_those_of_developers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    section = TEXT.partition("## Install")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section.partition("| extra |")[2]))
    special = {"dask", "onnx", "torch", "models", "flower-simulation", "notebook"}
    tools = {"docs", "release", "dev"}
    assert named == set(project["optional-dependencies"]) - special - tools
