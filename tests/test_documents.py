"""Examples in the documents run, and the documents link to files that exist.

`test_readme.py` tests the README.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from posse.cli.app import app
from posse.core.settings import Settings
from posse.runtime.federation.place import ServiceFile
from posse.runtime.federation.talk import Proposal
from posse.runtime.place import PartyFile
from posse.runtime.sources import SourceSettings
from posse.systems import registry
from posse.systems.dp_combinatorial.deploy import MarketFederation
from posse.systems.mpc_contextual.layout import ContextualFederation
from posse.systems.parties import make_invitation
from posse.systems.samba.deploy import SambaOptions
from posse.systems.samba.layout import FederationFile
from tests import forks

ROOT = Path(__file__).resolve().parents[1]
READMES = sorted(ROOT.glob("src/posse/systems/*/README.md"))
SYSTEMS = sorted(ROOT.glob("docs/systems/*.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *SYSTEMS, *READMES])
PAGES = [
    ROOT / "docs/concepts.md",
    *(ROOT / f"docs/systems/{name}.md" for name in ("samba", "dp-combinatorial", "mpc-contextual")),
]


def blocks(path: Path, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def run_script(code: str, folder: Path) -> None:
    """As a user runs it: a script of its own, in a folder of its own."""
    script = folder / "example.py"
    script.write_text(code, encoding="utf-8")
    command = [sys.executable, str(script)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr


def test_the_live_bandit_of_the_guide_runs(tmp_path: Path) -> None:
    (code,) = (code for code in blocks(ROOT / "docs/guide.md") if "posse.live" in code)
    run_script(code, tmp_path)
    assert (tmp_path / "bandit.json").is_file()


def test_the_sweep_of_the_guide_runs(tmp_path: Path) -> None:
    (code,) = (code for code in blocks(ROOT / "docs/guide.md") if "posse.sweep" in code)
    run_script(f"{code}    assert len(made.records) == 5\n", tmp_path)
    assert (tmp_path / "sweep.svg").is_file()


def test_the_examples_of_concepts_and_systems_run(tmp_path: Path) -> None:
    """All in one process, one behind the other: starting one takes longer than most of them."""
    codes = [code for path in PAGES for code in blocks(path)]
    assert all(blocks(path) for path in PAGES)
    run_script("\n".join(f"exec({code!r}, {{}})" for code in codes), tmp_path)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.name)
def test_example_programs_run(path: Path) -> None:
    library = path.stem.removesuffix("_model")
    if path.stem.endswith("_model"):
        pytest.importorskip(library, reason=f"{library} is not installed: make test-models")
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def commands_of(text: str) -> list[list[str]]:
    """Commands in blocks of a shell, as a reader types them, without what the shell itself does."""
    found = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    lines = [
        re.split(r" [<>|&]", line.split("  #")[0])[0] for line in found if line.startswith("posse ")
    ]
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("README.md", 3),
        ("docs/quickstart.md", 12),
        ("docs/concepts.md", 1),
        ("docs/policies.md", 2),
        ("docs/tutorial.md", 34),
        ("docs/organisations.md", 20),
        ("docs/guide.md", 3),
        ("docs/operations.md", 10),
        ("docs/systems/fed-contextual.md", 14),
    ],
)
def test_commands_exist_and_take_their_flags(name: str, count: int) -> None:
    commands = commands_of((ROOT / name).read_text(encoding="utf-8"))
    assert len(commands) == count
    for words in commands:
        command, rest = get_command(app), words[1:]
        while hasattr(command, "get_command"):
            if not rest:  # a group that prints its help, or runs its default command
                break
            if rest[0].startswith("-"):  # without a name the first system is meant
                rest = [registry.names()[0], *rest]
            below = command.get_command(typer.Context(command), rest[0])
            if below is None:
                break
            command, rest = below, rest[1:]
        if rest or not hasattr(command, "get_command"):
            command.make_context(words[0], list(rest), resilient_parsing=False)


def test_the_files_of_the_tutorial_are_read() -> None:
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    tables = [tomllib.loads(one) for one in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)]
    FederationFile.make(tables[0])
    ContextualFederation.make(tables[-1])
    files = re.findall(r"\.toml <<'END'\n(.*?)END\n", text, re.DOTALL)
    assert len(files) == 7
    for one in files:
        made = PartyFile.make(tomllib.loads(one))
        SambaOptions.make(made.options)
        if made.source is not None:
            SourceSettings.make(made.source)


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("samba", FederationFile),
        ("mpc-contextual", ContextualFederation),
        ("dp-combinatorial", MarketFederation),
    ],
)
def test_the_file_of_each_page_on_deploying_is_read(page: str, kind: type[Settings]) -> None:
    tables = blocks(ROOT / f"docs/deploy-{page}.md", "toml")
    assert tables
    for table in tables:
        assert kind.make(tomllib.loads(table)).protocol == page  # type: ignore[attr-defined]


def test_pages_on_deploying_have_one_outline() -> None:
    heads = {
        path.name: re.findall(r"^## (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        for path in ROOT.glob("docs/deploy-*.md")
    }
    assert len(heads) == 4
    for name, found in heads.items():
        found[2] = found[2].replace("Commands", "A file")
        assert found == heads["deploy-samba.md"], name


def test_the_files_of_a_federation_that_lives_are_read() -> None:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    chapter = text.partition("## Standing federation\n")[2].partition("\n## ")[0]
    service, run = (
        tomllib.loads(one) for one in re.findall(r"```toml\n(.*?)```", chapter, re.DOTALL)
    )
    made = ServiceFile.make(service)
    assert made.consent is not None
    SourceSettings.make(made.source)
    proposal = Proposal.make("hospitals", run)
    demand = make_invitation(proposal.system, proposal.values).demand()
    made.consent.check(demand, made.founder, made.founder)
    for words in commands_of(chapter):
        below = get_command(app).get_command(typer.Context(get_command(app)), words[1])
        while hasattr(below, "get_command"):
            below, words = below.get_command(typer.Context(below), words[2]), words[1:]
        below.make_context(words[0], list(words[2:]), resilient_parsing=False)


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    found = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert {"demo", "test", "docs", "release", "notebooks"} <= found
    for target in found:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert link.startswith("http") or (path.parent / link).exists(), link


def lines_of(script: Path) -> list[str]:
    return [
        line
        for line in script.read_text(encoding="utf-8").splitlines()
        if line.startswith("posse ")
    ]


STARTS = sorted(ROOT.glob("examples/start_*.sh"))


@pytest.mark.parametrize("script", STARTS, ids=lambda path: path.stem)
def test_the_first_five_minutes_of_each_reader_run_as_written(script: Path, tmp_path: Path) -> None:
    """The commands of a script are those of the quick start."""
    page = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
    assert "\n".join(lines_of(script)) + "\n```" in page
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    here = f"{forks.command(tmp_path)}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": here,
        "POSSE_HOME": str(tmp_path / "home"),
        "COLUMNS": "80",
    }
    done = subprocess.run(
        ["sh", f"examples/{script.name}"],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    wanted = {
        "start_retailer": "total reward",
        "start_researcher": "may run in a federation",
        "start_platform": "total reward",
        "start_ml": "best by",
    }
    assert wanted[script.stem] in done.stdout
    for made in re.findall(r"--(?:report|figure|model-out) (\S+)", " ".join(lines_of(script))):
        assert (tmp_path / made).stat().st_size > 1000, made


def test_the_table_of_the_quick_start_is_simulated(tmp_path: Path) -> None:
    """One table, in one place: it is made of the four shops' files."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (block,) = (
        block for block in blocks(ROOT / "docs/quickstart.md", "sh") if "ratings.csv" in block
    )
    path = f"{forks.command(tmp_path)}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-euc", block],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "POSSE_HOME": str(tmp_path / "home"), "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    assert "harbour" in done.stdout
    assert "protect" in done.stdout.lower()


def test_there_is_a_start_for_each_reader() -> None:
    assert [path.stem for path in STARTS] == [
        "start_ml",
        "start_platform",
        "start_researcher",
        "start_retailer",
    ]


def test_pages_of_the_systems_have_one_outline() -> None:
    outline = [
        "Roles",
        "Messages",
        "Guarantee",
        "What leaks",
        "Threat model",
        "Where it departs from the paper, and why",
        "Costs",
    ]
    assert {path.stem for path in SYSTEMS} == set(registry.BUILT_IN)
    for path in SYSTEMS:
        heads = re.findall(r"^## (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert [head for head in heads if head in outline] == outline, path.name


def test_the_policies_of_the_page_are_those_of_the_example_that_runs() -> None:
    program = (ROOT / "examples/policies.py").read_text(encoding="utf-8")
    parts = blocks(ROOT / "docs/policies.md")
    assert len(parts) == 4
    for part in parts:
        assert part in program


def test_pages_of_the_systems_begin_with_a_diagram() -> None:
    for path in SYSTEMS:
        begin = path.read_text(encoding="utf-8").partition("\n\n")[2]
        assert re.match(r"!\[[^\]]+\]\([^)]+\.svg\)\n", begin), path.name


def test_readmes_of_the_systems_have_one_outline_and_name_tests_that_exist() -> None:
    assert len(READMES) == len(registry.BUILT_IN)
    for path in READMES:
        text = path.read_text(encoding="utf-8")
        heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
        step = heads.pop(2)
        assert step.endswith(", file by file"), path.parent.name
        assert heads == [
            "Departures from the paper",
            "Files in reading order",
            "What must stay equal",
            "Tests",
        ], path.parent.name
        tests = re.findall(r" (tests/\S+)", text.partition("## Tests")[2])
        assert tests
        assert all((ROOT / each).exists() for each in tests), path.parent.name


def test_every_file_of_a_system_is_in_its_reading_order() -> None:
    for path in READMES:
        _, _, walk = path.read_text(encoding="utf-8").partition("## Files in reading order")
        named = set(re.findall(r"`([\w/]+\.py)`", walk.partition("\n## ")[0]))
        files = {each.relative_to(path.parent).as_posix() for each in path.parent.rglob("*.py")}
        assert named == {name for name in files if not name.endswith("__init__.py")}, (
            path.parent.name
        )


def test_every_table_of_figures_has_its_date_and_its_command() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    tables = re.split(r"\n\n(?=\|)", text)
    assert len(tables) > 6
    for before in tables[:-1]:
        said = before.rstrip().splitlines()[-1]
        assert re.fullmatch(r"\*Measured \d{4}-\d\d-\d\d with `make bench[\w-]*`.*\*", said), said
