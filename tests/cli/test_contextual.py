"""`posse run mpc-contextual`: what a user sees, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posse.cli import systems
from posse.cli.app import CLOSED
from posse.cli.flags import INTERRUPTED, help_of
from posse.results import Store
from posse.systems.mpc_contextual.settings import MpcContextual
from tests.kit.commands import SECONDS, Call, help_text, one_line
from tests.kit.pages import Page
from tests.kit.records import example_contextual_record

RUN = ("run", "mpc-contextual")
SMALL = ("--rows", "60", "--components", "6")
CLINIC = "row,age,dose\nann,0.3,0.4\nbob,0.1,0.2\n"
LAB = "row,iron\nann,0.5\nbob,0.2\n"
PAYS = "row,wait,treat\nann,0,1\nbob,0.9,0.3\n"


@pytest.fixture
def files() -> tuple[str, ...]:
    """Three files of a user's own, and the flags that name them."""
    for name, text in (("clinic", CLINIC), ("lab", LAB), ("pays", PAYS)):
        Path(f"{name}.csv").write_text(text)
    return (
        "--problem",
        "own",
        "--features",
        "clinic=clinic.csv,lab=lab.csv",
        "--rewards",
        "pays.csv",
    )


def test_says_what_was_earned_what_it_cost_who_learns_what_and_both_figures(posse: Call) -> None:
    outcome = posse(*RUN, *SMALL, "--latency", "20", "--report", "run.html", "--full")
    assert outcome.code == 0
    out = " ".join(outcome.out.split())
    for wanted in (
        "2 parties · 10 arms · 60 steps",
        "earned a step",
        "regret",
        "fixed-point twin",
        "float twin",
        "CPU time",
        "Identical: shared and its plain twin",
        "The float twin earned",
        "rounds 11",
        "bytes that a party sends",
        "CPU time of each party",
        "CPU time of the dealer",
        "estimated time at 20 ms one way and 100 Mbit/s",
        "the same for all 60 steps",
        "The puller learns the arm of every step and the payee the reward of every step",
        "ε = 4.511 at δ = 0 for the scores of one round",
        "(unit score;",
        "at δ = 1e-05 for one row",
        "(unit context;",
        "promises nothing alone",
        "not covered",
        "later rounds: a context moves",
        "What is not protected",
        "Puller and payee together",
        "posse runs show",
    ):
        assert wanted in out, wanted
    page = Page(Path("run.html").read_text())
    for wanted in (
        "ε = 4.511 at δ = 0",
        "at δ = 1e-05",
        "party → puller",
        "the best arm of every context",
    ):
        assert wanted in page.text, wanted
    assert [row.level for row in Store().list()] == ["shared", "plain", "plain"]


def test_no_epsilon_stands_alone(posse: Call) -> None:
    out = posse(*RUN, *SMALL, "--no-save").out
    told = [part for part in " ".join(out.split()).split("ε = ")[1:] if part[0].isdigit()]
    assert len(told) == 2
    assert all(" at δ = " in part[:20] for part in told)


def test_one_json_document(posse: Call, home: Path) -> None:
    found = json.loads(posse(*RUN, *SMALL, "--json", "--no-save", "--runs", "2").out)
    assert found["identical"] is True
    assert found["remarks"][0]["more_a_step_than_floats"] == pytest.approx(0, abs=0.1)
    shared, fixed, floats = found["records"]
    assert [one["summary"]["path"] for one in (shared, fixed, floats)] == [
        "parties",
        "fixed",
        "float",
    ]
    assert shared["pulls"] == fixed["pulls"]
    assert [entry["unit"] for entry in shared["privacy"]] == ["score", "context"]
    assert set(shared["role_seconds"]) == {"party", "puller", "payee", "dealer"}
    assert fixed["privacy"] == floats["privacy"] == []
    assert not home.exists()


def test_without_the_twins_and_a_twin_alone(posse: Call) -> None:
    alone = json.loads(posse(*RUN, *SMALL, "--json", "--no-save", "--no-plain-too").out)
    assert (len(alone["records"]), alone["identical"]) == (1, None)
    assert alone["remarks"][0]["more_a_step_than_floats"] is None
    twin = posse(*RUN, *SMALL, "--path", "float", "--no-save")
    assert "no protection" in twin.out
    assert "Identical" not in twin.out
    assert "ε" not in twin.out


def test_bounds_of_everything_without_a_run(posse: Call, home: Path) -> None:
    out = posse("check", "ranges").out
    assert "rewards are in [0, 1]" in out
    for wanted in (
        "scores",
        "reciprocal",
        "weights",
        "bits of 62",
        "sqrt(steps) / 2 + 1",
        "Closest to the limit",
    ):
        assert wanted in out, wanted
    found = json.loads(posse("check", "ranges", "--bits", "20", "--json").out)
    assert found["fraction_bits"] == 20
    assert all(one["log2"] < found["limit_log2"] == 62 for one in found["ranges"])
    assert not home.exists()


def test_a_stored_run_is_shown_compared_exported_and_reported(posse: Call) -> None:
    posse(*RUN, *SMALL, "--label", "first")
    shown = " ".join(posse("runs", "show", "last", "--full").out.split())
    for wanted in (
        "label first",
        "CPU time of each party",
        "ε = 4.511 at δ = 0",
        "at δ = 1e-05",
        "party → puller",
    ):
        assert wanted in shown, wanted
    listed = posse("runs", "list", COLUMNS="200").out
    assert "plain, float twin of shared" in listed
    assert "digits" in listed
    ids = [row.id for row in Store().list()]
    assert "plain, fixed-point twin of shared" in posse("compare", *ids, COLUMNS="200").out
    posse("runs", "export", "last", "--out", "run.csv")
    assert len(Path("run.csv").read_text().splitlines()) == 61
    assert "results.parties.none" in one_line(
        posse("runs", "export", "last", "--parties", "--out", "p.csv")
    )
    posse("runs", "report", "last", "--out", "r.html")
    assert "Privacy spent" in Path("r.html").read_text()


def test_features_of_ones_own(posse: Call, files: tuple[str, ...]) -> None:
    out = " ".join(posse(*RUN, *files, "--steps", "20", "--no-save").out.split())
    assert "own · 2 parties · 2 arms · 20 steps" in out
    assert "identical" in out


def test_batches_share_rounds(posse: Call) -> None:
    flags = (
        "--policy",
        "linucb",
        "--width",
        "0.5",
        "--batch",
        "4",
        "--path",
        "parties",
        "--no-plain-too",
        "--no-save",
    )
    out = " ".join(posse(*RUN, *SMALL, *flags, "--full").out.split())
    assert "linucb · digits · 2 parties · 10 arms · 60 steps" in out
    assert "steps that share rounds and a model 4" in out
    assert "rounds 11 " not in out


def test_no_exploration_must_be_said_aloud(posse: Call) -> None:
    words = (*RUN, *SMALL, "--epsilon", "0", "--without-guarantee", "--no-save")
    assert "This is no promise at all." in posse(*words).out
    out = posse(*words, "--full").out
    assert "no finite ε at δ = 0" in out
    assert "This is no promise at all." in " ".join(out.split())
    assert "The arm has no differential privacy" in out


@pytest.mark.parametrize("columns", [60, 100])
def test_it_fits_the_terminal(posse: Call, columns: int) -> None:
    for words in ((*RUN, *SMALL, "--no-save"), ("ranges", *SMALL)):
        out = posse(*words, COLUMNS=str(columns)).out
        assert max(len(line) for line in out.splitlines()) <= columns


@pytest.mark.parametrize("name", list(MpcContextual.model_fields))
def test_every_setting_is_a_flag_with_help(name: str) -> None:
    assert help_of(MpcContextual, name)
    assert f"--{name.replace('_', '-')}" in help_text(*RUN)


def test_exploration_is_listed_as_choosing_and_privacy_as_protection() -> None:
    for name in ("without_guarantee", "delta", "limit"):
        assert MpcContextual.heading(name) == "Who may learn what"
    assert MpcContextual.heading("epsilon") == "How to choose"
    assert MpcContextual.heading("parties") == "What is learnt"
    assert MpcContextual.heading("width") == "How to choose"


FLAGS = [
    (("--parties", "1"), "at least 2 parties"),
    (("--epsilon", "0"), "--without-guarantee"),
    (("--epsilon", "0.1234567"), "denominator of at most 4096"),
    (("--epsilon", "1.5"), "epsilon must be in [0, 1]"),
    (("--epsilon", "often"), "a number in [0, 1] such as 0.1 or 1/3"),
    (("--without-guarantee",), "belongs to epsilon 0"),
    (("--bits", "40"), "bits must be in [12, 26]"),
    (("--steps", "100000000"), "got 100,000,000"),
    (("--steps", "0"), "horizon must be at least 1"),
    (
        ("--problem", "letters"),
        "unknown data 'letters'. Did you mean 'clusters'? Known: clusters, digits, mnist",
    ),
    (("--problem", "mnist"), "POSSE_DATA"),
    (("--problem", "own"), "got no features"),
    (("--features", "clinic"), "pairs like clinic=clinic.csv"),
    (("--columns", "3,4"), "add up to 20 features"),
    (("--limit", "10"), "[P600]"),
    (("--delta", "1"), "delta must be above 0 and below 1"),
    (("--latency", "-1"), "latency must be at least 0"),
    (("--path", "sideways"), "path must be 'parties', 'fixed' or 'float'"),
    (("--arms", "5"), "arms applies to clusters"),
    (("--policy", "softmax"), "policy must be 'epsilon-greedy', 'linucb' or 'thompson'"),
    (("--width", "2"), "width belongs to linucb and thompson"),
    (("--batch", "99"), "batch must be in [1, 32]"),
    (("--steps", "50", "--batch", "4"), "steps must be a multiple of the batch"),
    (("--epsilom", "1"), "--epsilon"),
]


@pytest.mark.parametrize(("flags", "what"), FLAGS, ids=[" ".join(flags) for flags, _ in FLAGS])
def test_mistakes_are_one_line(posse: Call, home: Path, flags: tuple[str, ...], what: str) -> None:
    assert what in one_line(posse(*RUN, *flags))
    assert not home.exists()


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        (
            "lab",
            "row,iron\nann,0.5\nbob,nan\n",
            "lab.csv, row 3, column 'iron': 'nan' is not a finite number",
        ),
        ("lab", "row,iron\nbob,0.5\nann,0.2\n", "files do not match"),
        ("lab", "row,iron\nann,0.5\n", "ends after 1 rows"),
        ("clinic", "row,age,dose\nann,0.9,0.9\nbob,0,0\n", "a norm of at most the bound"),
        ("pays", "row,wait,treat\nann,0,1\nbob,1.2,0\n", "must be in [0, 1], got 1.2"),
    ],
)
def test_files_that_do_not_fit(
    posse: Call, files: tuple[str, ...], file: str, text: str, what: str
) -> None:
    Path(f"{file}.csv").write_text(text)
    assert what in one_line(posse(*RUN, *files))


@pytest.mark.parametrize(
    ("module", "extra"), [("dp_accounting", "dp"), ("sklearn.datasets", "data")]
)
def test_a_missing_extra_names_its_command(
    posse: Call, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    # None in sys.modules is how Python remembers that a module is not to be found.
    monkeypatch.setitem(sys.modules, module, None)
    flags = (
        ("--components", "7") if extra == "data" else SMALL
    )  # digits of 7 components are in no cache
    assert f"[{extra}]'" in one_line(posse(*RUN, *flags))


def test_what_was_finished_is_kept_when_a_twin_is_interrupted(
    posse: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = systems.go

    def interrupted(settings: MpcContextual, *others: Any) -> object:
        if settings.path == "parties":
            return whole(settings, *others)
        from posse.results.record import Interrupted

        raise Interrupted(example_contextual_record(path="fixed"))

    monkeypatch.setattr(systems, "go", interrupted)
    outcome = posse(*RUN, *SMALL)
    assert outcome.code == INTERRUPTED
    assert {row.level for row in Store().list()} == {"shared", "plain"}
    assert "what was finished before is saved" in outcome.err


def test_ctrl_c_keeps_what_was_done(process: Callable[..., subprocess.Popen[str]]) -> None:
    started = process(
        *RUN,
        "--steps",
        "100000",
    )
    assert started.stderr is not None
    while " %" not in (line := started.stderr.readline()):
        assert line, "ended before it was interrupted"
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=SECONDS)
    assert (started.returncode, out) == (INTERRUPTED, "")
    record = Store().get("last")
    assert f"saved as {record.id}" in err
    assert "Traceback" not in err
    assert record.status == "interrupted"
    assert 0 < record.steps_done < 100_000
    assert [entry["releases"] for entry in record.privacy] == [record.steps_done] * 2


def test_a_closed_pipe_loses_no_run(process: Callable[..., subprocess.Popen[str]]) -> None:
    started = process(*RUN, *SMALL)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    assert "Traceback" not in started.stderr.read()
    assert started.wait(SECONDS) == CLOSED
    started.stderr.close()
    assert len(Store()) == 3
