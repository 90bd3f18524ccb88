"""What imports cannot show: what is built on the systems knows the name of none."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from posse.cli.app import COMMANDS
from posse.systems import registry
from posse.systems.modules import commands_of

SOURCE = Path(__file__).parent.parent / "src" / "posse"
GENERIC = ("cli", "studio", "results", "runtime")


def names() -> list[str]:
    """Names of the systems, in both spellings."""
    folders = [
        path.name for path in (SOURCE / "systems").iterdir() if (path / "__init__.py").is_file()
    ]
    assert len(folders) >= 4
    return sorted(
        {spelling for name in (*folders, "samba") for spelling in (name, name.replace("_", "-"))}
    )


def mentions(folder: str) -> list[str]:
    """Return the lines of a folder that name a system."""
    pattern = re.compile(
        "|".join(rf"(?<![a-z]){re.escape(name)}(?![a-z])" for name in names()), re.IGNORECASE
    )
    return [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in sorted((SOURCE / folder).rglob("*"))
        if path.suffix in (".py", ".js", ".html", ".css", ".md", ".json", ".toml")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("folder", [folder for folder in GENERIC if (SOURCE / folder).is_dir()])
def test_no_system_is_named_where_everything_is_generic(folder: str) -> None:
    assert mentions(folder) == []


def imported_tests(path: Path) -> list[str]:
    """Return the test modules and tests that a module of the tests imports."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if re.match(r"tests\.(.*\.)?test_", name)]


def test_no_module_of_the_tests_imports_a_test_module() -> None:
    tests = Path(__file__).parent
    paths = sorted(tests.rglob("*.py"))
    assert Path(__file__) in paths
    assert [(path.name, name) for path in paths for name in imported_tests(path)] == []


HEAVY = {
    "numpy",
    "numba",
    "scipy",
    "jax",
    "matplotlib",
    "pydantic",
    "msgspec",
    "cryptography",
    "typer",
    "rich",
}


def loaded(code: str) -> tuple[set[str], float]:
    """Run code in a process of its own; give the modules it has loaded then, and its CPU
    seconds.
    """
    tail = "\nimport sys, time; print('\\n', *sys.modules, time.process_time())"
    done = subprocess.run(
        [sys.executable, "-c", code + tail], capture_output=True, text=True, timeout=300, check=True
    )
    *modules, seconds = done.stdout.splitlines()[-1].split()
    return set(modules), float(seconds)


def test_importing_posse_imports_nothing_else() -> None:
    modules, seconds = loaded("import posse")
    print(f"import posse: {seconds:.2f} s CPU")
    assert modules & HEAVY == set()
    assert {name for name in modules if name.startswith("posse")} == {"posse", "posse.version"}


def test_a_list_of_commands_imports_no_system_and_no_numbers() -> None:
    code = """
import sys
from posse.cli.app import command
sys.argv = ["posse", "--help"]
try:
    command()()
except SystemExit:
    pass
"""
    modules, seconds = loaded(code)
    print(f"posse --help: {seconds:.2f} s CPU")
    assert modules & HEAVY == {"pydantic", "typer"}
    rooms = {name.split(".")[1] for name in modules if name.startswith("posse.")}
    assert rooms == {"cli", "core", "systems", "version"}
    assert not [
        name
        for name in modules
        if name.startswith("posse.systems.") and name != "posse.systems.registry"
    ]


def test_commands_of_systems_are_listed_as_they_declare_them() -> None:
    declared = {
        action.path[0] for system in registry.systems() for action in commands_of(system).commands
    }
    of_others = {
        action.path[0]
        for each in registry.systems(skip=registry.BUILT_IN)
        for action in commands_of(each).commands
    }
    assert set(registry.ACTIONS) == declared - of_others - set(COMMANDS)
    for word, summary in registry.ACTIONS.items():
        assert word in declared
        own = [
            one.summary
            for system in registry.systems()
            for one in commands_of(system).commands
            if one.path == (word,)
        ]
        assert own in ([], [summary]), word
