"""`posse devices`: what it writes, and mistakes in one line."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from posse.cli.app import app
from posse.core import check


def posse(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["devices", *args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a package look as if it were not installed."""

    def hide(name: str) -> None:
        def find(module: str) -> object:
            if module.partition(".")[0] == name:
                raise ImportError(module)
            return object()

        monkeypatch.setattr(
            check, "importlib", type("Stub", (), {"import_module": staticmethod(find)})
        )

    return hide


def test_app_is_an_installable_project(tmp_path: Path) -> None:
    code, out, _ = posse(
        "app", str(tmp_path / "app"), "--rounds", "7", "--secure", "--publisher", "clinic"
    )
    assert code == 0
    assert "flwr run" in out
    made = tomllib.loads((tmp_path / "app/pyproject.toml").read_text())
    flower = made["tool"]["flwr"]["app"]
    assert (flower["publisher"], flower["fab-format-version"]) == ("clinic", 1)
    assert flower["config"]["rounds"] == 7
    assert flower["config"]["seed"] == -1, "a real fleet draws from the operating system"
    assert (tmp_path / "app" / made["project"]["license"]["file"]).exists()
    for part in flower["components"].values():
        module = part.partition(":")[0].replace(".", "/")
        assert (
            "from posse.systems.fed_contextual.flower"
            in (tmp_path / "app" / f"{module}.py").read_text()
        )


@pytest.mark.filterwarnings("ignore:GitWildMatch:DeprecationWarning")
def test_flower_builds_the_project(tmp_path: Path) -> None:
    pytest.importorskip(
        "flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'"
    )
    build = importlib.import_module("flwr.cli.build")
    assert posse("app", str(tmp_path / "app"))[0] == 0
    assert len(build.build_fab_from_disk(tmp_path / "app")) > 1000


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("up", "--nodes", "0"), "nodes must be at least 1, got 0"),
        (("up", "--nodes", "65"), "at most 64"),
        (("up", "--model", "cnnn"), "unknown model 'cnnn'. Did you mean 'cnn'"),
        (("up", "--cohort", "4"), "cohort must be at most nodes = 3, got 4"),
        (("up", "--secure", "--nodes", "2"), "cohort of at least 3"),
        (("up", "--data", "nowhere.npz"), "nowhere.npz"),
        (("simulate", "--nodes", "0"), "nodes must be at least 1, got 0"),
        (("up", "--config", "nowhere.toml"), "nowhere.toml"),
        (("up", "--limit", "3"), "limit goes with noise, got limit 3 and noise 0"),
        (("up", "--noise", "1", "--quantile", "0.5"), "got quantile 0.5 and noise 1"),
        (
            ("up", "--noise", "1", "--cohort", "1", "--devices", "2"),
            "devices must be at least nodes = 3, got 2",
        ),
        (
            ("up", "--noise", "1", "--delta", "0.4"),
            "delta must be below 1 / devices = 0.333, got 0.4",
        ),
    ],
)
def test_mistake_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: Any, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = posse(*args)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1
    assert words in err
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--start", "nowhere.npz"), "there is no first model"),
        (("--noise", "1", "--limit", "0.5"), "not even one round fits the limit (0.5, 1e-06)"),
    ],
)
def test_nothing_is_started_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: Any, words: str
) -> None:
    for module in ("flwr", "jax", "dp_accounting"):
        pytest.importorskip(
            module, reason=f"{module} is not installed: pip install 'posse-bandits[all]'"
        )
    test_mistake_is_one_line(tmp_path, monkeypatch, ("up", *args), words)


@pytest.mark.parametrize(("name", "command"), [("flwr", "up"), ("jax", "up"), ("ray", "simulate")])
def test_missing_extra_names_its_command(without: Any, name: str, command: str) -> None:
    without(name)
    code, _, err = posse(command)
    extra = {"flwr": "flower", "jax": "contextual", "ray": "flower-simulation"}[name]
    assert code == 2
    assert f"[{extra}]'" in err


def test_app_is_never_written_over_something(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    code, _, err = posse("app", str(tmp_path))
    assert code == 2
    assert "is not empty" in err


def test_help_lists_the_commands() -> None:
    code, out, _ = posse()
    assert code == 0
    assert all(word in out for word in ("up", "simulate", "app"))
