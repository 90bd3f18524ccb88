"""`posse run fed-contextual` and `posse budget sampled`: what a user sees, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posse.cli import systems
from posse.cli.flags import INTERRUPTED, help_of
from posse.cli.keep import Keeper
from posse.results import Store
from posse.results.record import Progress, Record
from posse.results.words import count
from posse.systems import registry
from posse.systems.fed_contextual.settings import FedContextual
from tests.kit.commands import SECONDS, Call, one_line
from tests.kit.pages import Page
from tests.kit.records import example_record

RUN = ("run", "fed-contextual")
SMALL = ("--clients", "20", "--rounds", "6", "--cohort", "5", "--deploy-every", "2")
NOISY = (*SMALL, "--noise", "1", "--delta", "0.001")


def test_says_what_was_earned_who_learns_what_and_every_figure_whole(posse: Call) -> None:
    words = ("--limit", "3", "--report", "run.html", "--evaluate", "greedy", "--full")
    outcome = posse(*RUN, *NOISY, *words, COLUMNS="120")
    assert outcome.code == 0, outcome.err
    out = " ".join(outcome.out.split())
    for wanted in (
        "softmax · digits · 20 devices · 10 arms",
        "average reward",
        "mean probability of the chosen arm",
        "rounds a second",
        "clip norm at the end",
        "model would earn",
        "The server learns every device's clipped",
        "Protection: noise",
        "(unit client;",
        "Poisson, rate 0.25",
        "PLD",
        "RDP",
        "not covered",
        "What is not protected",
        "The server adds the noise",
        "posse runs show",
    ):
        assert wanted in out, wanted
    told = [part for part in out.split("ε = ")[1:] if part[0].isdigit()]
    assert len(told) == 4  # two figures, with the answer and in the details
    assert all(" at δ = " in part[:20] for part in told)
    assert "stopped early: privacy budget (3, 0.001) spent after" in outcome.err
    page = Page(Path("run.html").read_text())
    for wanted in ("at δ = 0.001", "The server adds the noise", "reward per round"):
        assert wanted in page.text or wanted in page.text.lower(), wanted
    assert [row.level for row in Store().list()] == ["noise"]
    shown = " ".join(posse("runs", "show", "last", COLUMNS="120").out.split())
    for wanted in ("at δ = 0.001", "20 devices · 10 arms"):
        assert wanted in shown, wanted


def test_one_json_document_with_the_plain_run_beside_it(posse: Call, home: Path) -> None:
    found = json.loads(posse(*RUN, *NOISY, "--json", "--no-save", "--plain-too").out)
    noisy, plain = found["records"]
    assert (noisy["level"], plain["level"]) == ("noise", "plain")
    assert "stopped" not in noisy["show"]
    assert noisy["steps"] == plain["steps"] == [1, 2, 3, 4, 5, 6]
    assert noisy["summary"]["samples"] == plain["summary"]["samples"]  # the same cohorts
    assert [entry["unit"] for entry in noisy["privacy"]] == ["client", "client"]
    assert plain["privacy"] == []
    assert not home.exists()


def test_the_model_goes_to_a_file_and_decisions_to_the_page(posse: Call) -> None:
    words = ("--model-out", "model.npz", "--plain-too", "--no-save", "--report", "r.html")
    outcome = posse(*RUN, *NOISY, *words, "--full")
    assert outcome.code == 0, outcome.err
    assert "absl" not in outcome.err
    assert "Excluding this order" not in outcome.err
    assert "Decisions" in outcome.out
    with np.load("model.npz") as found:
        shapes = {"deployment": (), "leaf0": (10,), "leaf1": (64, 10), "arms": (10,), "scale": ()}
        assert {name: found[name].shape for name in found.files} == shapes
    assert "Decisions of each arm" in Page(Path("r.html").read_text()).text


def test_a_run_shown_again_has_the_rows_of_the_command(posse: Call) -> None:
    flags = (*RUN, *SMALL, "--runs", "2", "--deploy-every", "6", "--evaluate", "greedy")
    outcome = posse(*flags, "--full", COLUMNS="120")
    assert (
        "warning: no device acted with what was learnt in 6 rounds: deploy_every is 6"
        in outcome.err
    )
    shown = posse("runs", "show", "last", "--full", COLUMNS="120").out
    for wanted in (
        "reward per decision",
        "average reward, smallest to largest run",
        "last tenth of the rounds",
        "best fixed arm (",
        "even split 0.1",
        "clip norm",
        "share of updates within the clip",
        "rounds a second",
        "not over the split",
        "greedy with the deployed model would earn",
        "± a standard error; from 3,594 decisions",
        "effective sample size",
    ):
        assert wanted in " ".join(outcome.out.split()), wanted
        assert wanted in " ".join(shown.split()), wanted
    assert "pseudo-regret" not in shown
    assert "Warning: no device acted" in shown
    assert [row.arms for row in Store().list()] == [10]


class StandIn:
    """A run that reports two groups of seeds."""

    time, horizon = 0, 1

    def record(self, status: str | None = None) -> Record:
        return example_record()

    def finish(self, watch: Callable[[Progress], None]) -> None:
        for progress in (Progress(0, 3, 0.3, 2), Progress(2, 3, 0.9)):
            watch(progress)


def test_runs_side_by_side_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(systems.Doing, "at", lambda self, fraction, what="": told.append(what))
    monkeypatch.setattr(registry, "start", lambda *given, **options: StandIn())
    systems.go(FedContextual(clients=20, cohort=5, runs=3), Keeper(save=False))
    assert ["runs 1 to 2 of 3" in told[0], "run 3 of 3" in told[1]] == [True, True]


def test_a_kept_run_goes_on_by_the_same_command(posse: Call) -> None:
    flags = (*RUN, *SMALL, "--keep", "kept", "--no-save")
    first, again = (json.loads(posse(*flags, "--json").out)["records"][0] for _ in range(2))
    assert first["reward"] == again["reward"]
    assert "holds a run with cohort 5, got 4" in one_line(posse(*flags, "--cohort", "4"))


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--clip", "auto", "--quantile", "0"), "Leave one of them out"),
        (("--noise", "1", "--centralised"), "unweighted mean"),
        (("--policy", "greedy", "--evaluate", "softmax"), "Explore, or leave it out"),
        (("--device", "gpu"), "Use --device cpu"),
        (("--policy", "softmx"), "unknown policy 'softmx'"),
        (("--rounds", "many"), "horizon must be a valid integer"),
        (("--report", "nowhere/r.html"), "does not exist"),
        (("--hidden", "0"), "hidden must be at least 1"),
        (("--channels", "16"), "channels"),
        (("--channels", "16,many"), "channels"),
        (
            ("--scenario", "init", "--pretraining-client-rate", "-1"),
            "pretraining_client_rate must be",
        ),
        (("--pretraining-server-rate", "0.1"), "applies to scenarios with pre-training"),
        (("--pretraining-optimiser", "rms"), "pretraining_optimiser must be"),
        (("--model-out", "model.txt"), "ends in .npz"),
        (("--keep", "/proc/nowhere"), "a run cannot be kept in /proc/nowhere"),
        (("--delay", "3"), "No such option"),
        (("--delta", "0"), "below 1 / devices"),
        (("--drift", "values", "--drift-every", "0"), "drift_every must be at least 1"),
        (("--pretrained", "10"), "applies to scenarios with pre-training"),
        (("--policy", "sofmax"), "Did you mean 'softmax'?"),
        (("--model-out", "nowhere/model.npz"), "in a folder that exists"),
        (("--model-out", "model.npz", "--runs", "2"), "of a single run"),
    ],
)
def test_mistakes_are_one_line(posse: Call, flags: tuple[str, ...], what: str) -> None:
    assert what in one_line(posse(*RUN, *SMALL, *flags))


@pytest.mark.parametrize("name", list(FedContextual.model_fields))
def test_every_flag_says_what_it_is(name: str) -> None:
    assert help_of(FedContextual, name)
    assert FedContextual.heading(name)


def interrupted(
    process: Callable[..., subprocess.Popen[str]], wait: Path, *flags: str
) -> tuple[int, str, str]:
    """Start a long run, send Ctrl-C once a file is there, and give the exit code and what was
    said.
    """
    # A handler in the parent is the default in the child; a function run between fork and exec
    # would not suit jax.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        started = process(*RUN, *SMALL[:2], "--rounds", "1000000", "--keep", "kept", *flags)
    finally:
        signal.signal(signal.SIGINT, before)
    while not wait.exists():
        assert started.poll() is None, "ended before it was interrupted"
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    try:
        out, err = started.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        started.kill()
        raise AssertionError(f"not ended by Ctrl-C: {started.communicate()}") from None
    return started.returncode, out, err


def test_ctrl_c_while_compiling_ends_in_one_line(
    process: Callable[..., subprocess.Popen[str]],
) -> None:
    """The header of a kept run is written just before compiling begins."""
    code, out, err = interrupted(process, Path("kept/run.json"), "--no-save")
    assert (code, out) == (INTERRUPTED, "")
    assert "Traceback" not in err
    assert "interrupted" in err.splitlines()[-1]


def test_ctrl_c_without_the_store_says_where_the_run_is_kept_and_gives_json(
    process: Callable[..., subprocess.Popen[str]],
) -> None:
    code, out, err = interrupted(process, Path("kept/seed-0.npz"), "--no-save", "--json")
    (record,) = json.loads(out)["records"]
    assert (code, record["status"]) == (INTERRUPTED, "interrupted")
    rounds = count(record["summary"]["rounds_done"], "round")
    assert f"interrupted; kept {rounds} in kept; the same command goes on." in err
    assert "nothing was saved" not in err


def test_ctrl_c_keeps_what_was_done(process: Callable[..., subprocess.Popen[str]]) -> None:
    code, out, err = interrupted(process, Path("kept/seed-0.npz"))
    assert (code, out) == (INTERRUPTED, "")
    record = Store().get("last")
    assert f"saved as {record.id}" in err
    assert "the same command goes on" in err
    assert "Traceback" not in err
    assert record.status == "interrupted"
    assert 0 < record.steps_done < 1_000_000


def test_figures_of_sampled_rounds(posse: Call) -> None:
    flags = (
        "--clients",
        "342477",
        "--cohort",
        "64",
        "--noise",
        "0.7",
        "--rounds",
        "1600",
        "--delta",
        "1e-6",
    )
    found = json.loads(posse("budget", "sampled", *flags, "--json").out)["figures"]
    rdp, pld, fixed = (one["epsilon"] for one in found)
    assert rdp == pytest.approx(1.491, abs=2e-3)
    assert pld == pytest.approx(0.193, abs=2e-3)
    assert fixed > rdp
    assert ["Poisson" in one["sampling"] for one in found] == [True, True, False]
    out = " ".join(posse("budget", "sampled", *flags, COLUMNS="140").out.split())
    for wanted in (
        "(1.492, 1e-06)",
        "Poisson",
        "without replacement",
        "add or remove",
        "replace",
        "Not covered",
    ):
        assert wanted in out, wanted


def test_noise_for_an_epsilon(posse: Call) -> None:
    flags = (
        "--clients",
        "1000",
        "--cohort",
        "10",
        "--rounds",
        "50",
        "--delta",
        "1e-5",
        "--epsilon",
        "2",
    )
    found = json.loads(posse("budget", "sampled", *flags, "--sampling", "poisson", "--json").out)[
        "figures"
    ]
    assert all(1.9 < one["epsilon"] <= 2 for one in found)
    assert found[0]["noise"] > found[1]["noise"] > 0.3


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--noise", "1", "--epsilon", "1"), "not both"),
        (("--clients", "10", "--cohort", "11", "--delta", "0.01"), "cohort must be in [1, 10]"),
        (("--delta", "0.1"), "delta must be below 1 / clients"),
        (("--rounds", "0"), "rounds must be at least 1"),
        (("--noise", "-1"), "noise must be in"),
    ],
)
def test_mistakes_of_sampled_rounds(posse: Call, flags: tuple[str, ...], what: str) -> None:
    assert what in one_line(posse("budget", "sampled", *flags))


def test_a_model_that_was_written_is_named(posse: Call) -> None:
    words = "run fed-contextual --rounds 2 --clients 12 --cohort 3 --model-out m.npz"
    for more in ((), ("--no-save",)):
        done = posse(*words.split(), *more)
        assert done.code == 0, done.err
        assert done.err.count("wrote the model to m.npz") == 1
    assert "wrote" not in posse("runs", "show", "last").err
