"""Flags are the fields of the settings: none written twice, none missing, each with help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from posse.cli.flags import Config, help_of, settings_command, settings_of
from posse.problems.arms.settings import ProblemSettings
from posse.problems.markets.settings import MarketSettings
from posse.systems.modules import commands_of
from posse.systems.samba.settings import Samba
from posse.systems.samba.system import SYSTEM
from tests.kit.commands import SMALL, Call, help_text


@pytest.mark.parametrize(
    "name", [name for name in Samba.model_fields if name not in commands_of(SYSTEM).without_flag]
)
def test_every_setting_is_a_flag_with_help(name: str) -> None:
    assert help_of(Samba, name)
    assert f"--{name.replace('_', '-')}" in help_text("run", "samba")


def test_other_commands_take_their_settings(posse: Call) -> None:
    shown = posse("problems", "show", "--help", "--all", COLUMNS="200").out
    for name in ProblemSettings.model_fields:
        assert f"--{name.replace('_', '-')} " in shown


def test_flags_win_over_the_file_and_the_file_over_defaults(posse: Call) -> None:
    Path("run.toml").write_text(
        'owners = 4\nbudget = 80\nlevel = "paper"\nmask = false\npaillier_bits = 2048\n'
    )
    outcome = posse(
        "run", "samba", "--config", "run.toml", "--budget", "70", "--mask", "--json", "--no-save"
    )
    config = json.loads(outcome.out)["records"][0]["config"]
    assert (config["owners"], config["horizon"], config["level"], config["mask"]) == (
        4,
        70,
        "paper",
        True,
    )
    assert config["seed"] == Samba().seed


def test_file_flags_and_python_give_the_same_run(posse: Call) -> None:
    Path("run.toml").write_text('owners = 3\nbudget = 60\nreward = "beta"\nseed = 9\nruns = 2\n')
    flags = ("--owners", "3", "--budget", "60", "--reward", "beta", "--seed", "9", "--runs", "2")
    by_file = json.loads(posse("run", "--plain", "--config", "run.toml", "--json").out)["records"][
        0
    ]
    by_flags = json.loads(posse("run", "--plain", *flags, "--json").out)["records"][0]
    expected = Samba(owners=3, budget=60, reward="beta", seed=9, runs=2)
    assert by_file["total"] == by_flags["total"]
    assert by_file["config"] == by_flags["config"]
    assert by_file["config"]["runs"] == expected.runs


def test_lists_are_given_by_commas_or_by_repeating(posse: Call) -> None:
    for flags in (("--means", "0.1,0.5,0.9"), ("--means", "0.1", "--means", "0.5,0.9")):
        outcome = posse(
            "run", "--plain", *flags, "--budget", "30", "--runs", "2", "--no-save", "--json"
        )
        assert json.loads(outcome.out)["records"][0]["problem"]["means"] == [0.1, 0.5, 0.9]
    Path("data.csv").write_text('item,rating\n"Matrix, The",5\nHeat,1\nAlien,4\nHeat,5\n')
    items = ("--items", "Matrix, The", "--items", "Heat")
    outcome = posse("problems", "show", "data.csv", "--threshold", "3", *items, "--json")
    assert json.loads(outcome.out)["names"] == ["Matrix, The", "Heat"]


def test_simulate_makes_fifty_runs_unless_told(posse: Call) -> None:
    runs = json.loads(posse("run", "--plain", *SMALL, "--no-save", "--json").out)["records"][0][
        "runs"
    ]
    assert runs == 50


def test_help_shows_the_default_of_the_command(posse: Call) -> None:
    shown = {
        name: " ".join(posse(*name, "--help", "--all", COLUMNS="200").out.split())
        for name in (("sweep", "samba"), ("compare", "samba"))
    }
    for text in shown.values():
        assert "seed + 1, ... (default: 50)" in text
    shown_of_run = " ".join(posse("run", "samba", "--help", "--all", COLUMNS="200").out.split())
    assert "seed + 1, ... (default: 1)" in shown_of_run
    assert "50 runs unless --runs is given" in shown_of_run


def test_a_record_holds_what_was_used(posse: Call) -> None:
    Path("data.csv").write_text("item,rating\na,5\nb,1\na,4\nb,5\n")
    flags = (
        "--data",
        "data.csv",
        "--threshold",
        "3",
        "--budget",
        "30",
        "--runs",
        "2",
        "--policy",
        "ucb",
        "--no-save",
        "--json",
    )
    config = json.loads(posse("run", "--plain", *flags).out)["records"][0]["config"]
    assert (config["owners"], config["threshold"], config["minimum"]) == (2, 3.0, 1)
    assert not {"epsilon", "tau", "beta"} & config.keys()
    assert config["policy"]["name"] == "ucb"
    default = json.loads(
        posse("run", "--plain", "--budget", "30", "--runs", "2", "--no-save", "--json").out
    )
    assert default["records"][0]["config"]["owners"] == 10
    assert default["records"][0]["config"]["policy"]["name"] == "thompson"


def test_fewer_owners_than_means_in_a_file_are_the_largest(posse: Call) -> None:
    Path("means.csv").write_text("name,mean\na,0.2\nb,0.9\nc,0.5\n")
    shown = json.loads(posse("problems", "show", "means.csv", "--owners", "2", "--json").out)
    assert shown["names"] == ["b", "c"]
    assert json.loads(posse("problems", "show", "means.csv", "--json").out)["names"] == [
        "a",
        "b",
        "c",
    ]


def test_parts_of_data_have_flags_and_old_words_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[MarketSettings] = []
    app = typer.Typer(add_completion=False)

    @app.command(cls=settings_command(lambda: MarketSettings))
    def make(context: typer.Context, config: Config = None) -> None:
        seen.append(settings_of(MarketSettings, context, config))

    Path("o.csv").write_text("agent,supplier,cost,capacity\nnorth,oak,2,4\n")
    Path("q.csv").write_text("supplier,quality\noak,0.9\n")
    Path("run.toml").write_text('[data]\noffers = "o.csv"\nqualities = "gone.csv"\n')
    runner = CliRunner()
    assert runner.invoke(app, ["--instance", "normal", "--sd", "0.2"]).exit_code == 0
    assert runner.invoke(app, ["--data", "normal", "--sd", "0.2"]).exit_code == 0
    assert runner.invoke(app, ["--offers", "o.csv", "--qualities", "q.csv"]).exit_code == 0
    assert runner.invoke(app, ["--config", "run.toml", "--qualities", "q.csv"]).exit_code == 0
    assert seen[0] == seen[1] == MarketSettings(data="normal", sd=0.2)
    assert seen[2] == seen[3] == MarketSettings(data={"offers": "o.csv", "qualities": "q.csv"})
    shown = runner.invoke(app, ["--help", "--all"]).output
    assert "--offers" in shown
    assert "supplier,quality" in shown
