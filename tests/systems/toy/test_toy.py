"""A system is one folder: it runs from Python and the command line, makes records and reports, and
runs over TLS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import posse
from posse.core.errors import ConfigError
from posse.systems import registry
from tests.kit.federations import free_port
from tests.systems.toy.system import LISTENER, Toy

ROOT = Path(__file__).resolve().parents[3]
MODULE = "tests.systems.toy.system"


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(registry.VARIABLE, MODULE)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    )


def command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "posse", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs_from_python(tmp_path: Path) -> None:
    settings = Toy(budget=30, runs=2, seed=5)
    record, plain = posse.run(settings), posse.run(settings.plain())
    assert record.total == plain.total
    assert record.level == "open"
    page = posse.report([record, plain], tmp_path / "toy.html")
    assert "toy arms" in Path(page).read_text()
    run = posse.start(settings)
    run.finish()
    made = posse.audit(run)
    assert made["add-up"].value == 1.0
    assert made["add-up"].verdict == "finds it out"
    assert "finds it out" in made._repr_html_()
    assert posse.audit(record)["add-up"].counted == "2 of 2 runs"


def test_a_broken_package_breaks_no_other_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(registry.VARIABLE)
    monkeypatch.setattr(
        registry,
        "_modules_of_installed_systems",
        lambda _: {"broken": "nowhere.system", "other": MODULE},
    )
    assert [one.name for one in registry.systems()] == list(registry.BUILT_IN)
    with pytest.raises(ConfigError, match=r"no module 'nowhere\.system' with a system"):
        registry.system("broken")
    with pytest.raises(ConfigError, match="the entry point 'other' offers a system called 'toy'"):
        registry.system("other")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("import nowhere_at_all", "No module named"),
        ("raise RuntimeError('no GPU')", "no GPU"),
        ("x = (", "SyntaxError"),
        ("import os\nos.nothing", "has no attribute"),
        ("", "has no SYSTEM"),
    ],
)
def test_an_installed_package_that_fails_is_told_where_it_is_named(
    tmp_path: Path, body: str, why: str
) -> None:
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n"
    )
    (tmp_path / "broken-1.0.dist-info" / "entry_points.txt").write_text(
        "[posse.systems]\nbroken = broken_system\n"
    )
    (tmp_path / "broken_system.py").write_text(body)
    beside = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))),
    }
    for words, code in ((("--help",), 0), (("run", "--help"), 0), (("run", "broken"), 2)):
        done = subprocess.run(
            [sys.executable, "-m", "posse", *words],
            capture_output=True,
            text=True,
            check=False,
            env=beside,
        )
        assert done.returncode == code, (words, done.stderr)
        assert "Traceback" not in done.stderr
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_it_runs_from_the_command_line() -> None:
    told = json.loads(command("run", "toy", "--budget", "25", "--json"))
    assert told["identical"] is True
    assert "The listener learns every reward" in command(
        "runs", "show", told["records"][0]["id"], "--full"
    )
    assert "hello" in command("greet", "Ada")
    assert json.loads(command("greet", "--json"))["to"] == "world"
    assert "toy" in command("run", "--help")
    audit = json.loads(command("audit", told["records"][0]["id"], "--json"))
    assert [row["verdict"] for row in audit["rows"]] == ["finds it out"]
    assert "finds it out" in command("runs", "show", told["records"][0]["id"])
    assert "finds it out" in command("audit", "toy", "--budget", "25")


def test_it_runs_as_two_processes(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    file.write_text(
        f'protocol = "toy"\nrun = "trial-1"\nlisten = "127.0.0.1:{free_port()}"\nhorizon = '
        "30\nseed = 9\n"
    )
    told = json.loads(command("up", str(file), "--json"))
    assert (told["total"],) == posse.run(Toy(horizon=30, seed=9)).total
    assert told["pulls"] == 30


def test_a_module_without_a_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, "tests.systems.toy")
    with pytest.raises(ConfigError, match="has no SYSTEM"):
        registry.names()
    monkeypatch.setenv(registry.VARIABLE, "tests.no_such_module")
    with pytest.raises(ConfigError, match="no module 'tests"):
        registry.names()


def test_its_parties_are_two_roles() -> None:
    run = posse.start(Toy(horizon=3))
    assert run.parties == ("teller", LISTENER)
    first = run.deliver()
    assert first is not None
    assert (first.sender, first.receiver, first.time) == (
        "teller",
        LISTENER,
        2,
    )  # the next pull is answered already
