"""`posse up` and `posse party` with the contextual bandit, and with a market; mistakes are one
line.
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from posse.results.store import Store
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.registry import run
from tests.kit.commands import SECONDS, Call, Start, last_line, one_line, stopped
from tests.kit.federations import free_port
from tests.kit.mpc import addresses, found, laid_out, twin, write_world

WORLD = """
protocol = "mpc-contextual"
run = "trial-1"
steps = {steps}
epsilon = "1/5"
checkpoint_every = 10

[addresses]
{addresses}

[world]
problem = "own"
rewards = "pays.csv"
seed = 9
[world.features]
clinic-1 = "clinic-1.csv"
clinic-2 = "clinic-2.csv"
"""
OWN = """
protocol = "mpc-contextual"
run = "trial-1"
steps = {steps}
arms = 3
epsilon = 0.25

[addresses]
{addresses}

[[party]]
name = "clinic-1"
features = "clinic-1.csv"

[[party]]
name = "clinic-2"
features = "clinic-2.csv"
bound = 0.707

[puller.source]
kind = "csv"
file = "pulled.csv"

[payee.source]
kind = "python"
function = "outcomes:reward"
"""


def listening() -> str:
    return "\n".join(
        f'{name} = "{text}"' for name, text in addresses(["clinic-1", "clinic-2"]).items()
    )


def written(folder: Path, text: str, steps: int = 20) -> Path:
    write_world(folder)
    (folder / "outcomes.py").write_text(
        "def reward(run, number):\n    return 0.5 if number % 2 else 0.25\n"
    )
    file = folder / "fed.toml"
    file.write_text(text.format(steps=steps, addresses=listening()))
    return file


def test_a_simulated_world_ends_as_the_run_in_memory(
    tmp_path: Path, posse: Call, process: Start
) -> None:
    file = written(tmp_path, WORLD)
    with stopped(process("up", str(file), "--json")) as running:
        out, err = running.communicate(timeout=SECONDS)
        assert running.returncode == 0, err
    assert re.search(
        r"\(2\.565, 0\) of the scores of one step, \(.+\) of one context over all 20 steps", err
    )
    told = json.loads(out)
    paths = sorted((tmp_path / "fed").glob("*.toml"), key=lambda path: path.stem)
    outcome = found(paths)
    assert outcome == twin(paths)
    assert (told["total"], told["pulls"]) == (sum(outcome.rewards) / 2**24, 20)
    records = {row.party: Store().get(row.id) for row in Store().list()}
    assert set(records) == {"clinic-1", "clinic-2", "puller", "payee", "dealer"}
    assert len({record.run_id for record in records.values()}) == 1
    assert {record.steps_done for record in records.values()} == {20}
    assert {name for name, record in records.items() if record.total} == {"payee"}
    assert records["payee"].total == (told["total"],)
    assert {name for name, record in records.items() if record.arms} == {"puller"}
    assert records["puller"].pulls.sum() == 20
    assert not any(record.seeds or record.regret is not None for record in records.values())
    assert bool(records["puller"].privacy) == (find_spec("dp_accounting") is not None)
    over = posse("up", str(file), COLUMNS="400")
    assert over.code == 0
    assert "payee/journal/result.json" in over.out
    finished = posse("party", "status", str(tmp_path / "fed" / "clinic-1.toml"))
    assert finished.code == 0
    assert "the payee has the total" in finished.out.replace("\n", " ")
    file.write_text(file.read_text().replace("steps = 20", "steps = 30"))
    assert "steps is 20 when it began and 30 in the file now" in one_line(posse("up", str(file)))


@pytest.mark.usefixtures("fresh")
def test_files_and_systems_of_their_own_no_guarantee_and_a_source_that_fails(
    tmp_path: Path, posse: Call, process: Start
) -> None:
    """That there is no guarantee must be said, and is shown; so is a source that fails until it is
    mended.
    """
    file = written(tmp_path, OWN.replace("epsilon = 0.25", "epsilon = 0\nwithout_guarantee = true"))
    ready = tmp_path / "ready"
    (tmp_path / "outcomes.py").write_text(
        "import pathlib\n\ndef reward(run, number):\n    if not "
        f"pathlib.Path({str(ready)!r}).exists():\n"
        "        raise OSError('the clinic is closed')\n    return 0.5 if number % 2 else 0.25\n"
    )
    with stopped(process("up", str(file))) as running:
        assert running.stderr is not None
        before = said = ""
        while "in a row" not in said:
            said = running.stderr.readline()
            assert said, before
            before += said
        assert re.match(
            r"the source of 'payee' has failed \d+ times in a row: .*the clinic is closed", said
        )
        assert "Fix what [source] in " in said
        shown = posse("party", "status", str(tmp_path / "fed" / "payee.toml"))
        assert "its source fails" in " ".join(shown.out.split())
        assert "the clinic is closed" in " ".join(shown.out.split())
        ready.touch()
        out, err = running.communicate(timeout=SECONDS)
        assert running.returncode == 0, err
    assert "no privacy guarantee" in before + err
    assert "of 20 pulls" in out
    result = json.loads((tmp_path / "fed" / "payee" / "journal" / "result.json").read_text())
    assert (result["total"], result["pulls"]) == (7.5, 20)
    lines = (tmp_path / "pulled.csv").read_text().splitlines()
    kept = (tmp_path / "fed" / "puller" / "journal" / "arms.csv").read_text().splitlines()
    assert [line.partition(",")[2] for line in lines] == kept
    assert len(lines) == 21
    assert (tmp_path / "fed" / "clinic-2" / "journal" / "model-20.share").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '[[party]]\nname = "clinic-2"\nfeatures = "clinic-2.csv"\nbound = 0.707\n',
            "",
            "at least 2 parties, got 1",
        ),
        ('name = "clinic-2"', 'name = "dealer"', "the dealer must not be one of the parties"),
        ('name = "clinic-2"', 'name = "puller"', "the puller must not be one of the parties"),
        ('name = "clinic-2"', 'name = "clinic-1"', "every party needs a name of its own"),
        ('name = "clinic-2"', 'name = "authority"', "cannot be called 'authority'"),
        ('name = "clinic-2"', 'name = "Clinic 2"', "name must be 1 to 63 of a-z"),
        (
            "epsilon = 0.25",
            "epsilon = 0",
            "epsilon must be above 0 for differential privacy of the arm",
        ),
        ("epsilon = 0.25", "epsilon = 1.5", "epsilon must be in [0, 1]"),
        ("bound = 0.707", "bound = 0.5", "must have a norm of at most the bound 0.5"),
        ("bound = 0.707", "bound = 0.9", "must add up to at most 1"),
        ("steps = 20", "steps = 61", "has 60 rows for 61 steps"),
        ("steps = 20", "steps = 0", "at least 2 arms and 1 step"),
        ("arms = 3", "arms = 1", "at least 2 arms and 1 step, got 1"),
        ("arms = 3", "bits = 30\narms = 3", "bits must be in [12, 26]"),
        ("arms = 3", "give_up = -1\narms = 3", "give_up must be a finite number above 0"),
        ('[puller.source]\nkind = "csv"\nfile = "pulled.csv"', "", "the puller has no source"),
        ('kind = "csv"', 'kind = "sql"', "source of the puller: kind must be"),
        ("[[party]]", "[[partei]]", "unknown setting 'partei'"),
        ("arms = 3", 'rows = "x"\narms = 3', "has rows from its parties"),
        ("[addresses]", '[addresses]\nnobody = "127.0.0.1:1"', "addresses names 'nobody'"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    tmp_path: Path, posse: Call, old: str, new: str, said: str
) -> None:
    file = written(tmp_path, OWN)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    assert said in one_line(posse("up", str(file)))
    assert not (tmp_path / "fed").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]],
            "clinic-2.csv have the digest",
        ),
        (lambda lines: [*lines[:5], "p4,nan,0.1", *lines[6:]], "'nan' is not a finite number"),
        (
            lambda lines: [*lines[:5], "p4,3.0,0.1", *lines[6:]],
            "must have a norm of at most the bound",
        ),
        (lambda lines: [*lines[:5], "p4,,0.1", *lines[6:]], "clinic-2.csv, row 6"),
        (lambda lines: lines[:1], "clinic-2.csv"),
    ],
    ids=["rows that do not align", "nan", "outside its bound", "empty cell", "no rows"],
)
def test_bad_features_are_one_line_and_nothing_is_written(
    tmp_path: Path, posse: Call, change, said: str
) -> None:
    file = written(tmp_path, OWN)
    own = tmp_path / "clinic-2.csv"
    own.write_text("\n".join(change(own.read_text().splitlines())) + "\n")
    assert said in one_line(posse("up", str(file)))
    assert not (tmp_path / "fed").exists()


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "clinic-1",
            'parties = ["clinic-1", "clinic-2"]',
            'parties = ["clinic-1"]',
            "at least 2 parties, got 1",
        ),
        (
            "dealer",
            'parties = ["clinic-1", "clinic-2"]',
            'parties = ["clinic-1", "dealer"]',
            "the dealer must not be",
        ),
        (
            "dealer",
            "epsilon = 0.25",
            "epsilon = 0",
            "epsilon must be above 0 for differential privacy of the arm",
        ),
        (
            "clinic-2",
            'parties = ["clinic-1", "clinic-2"]',
            'parties = ["clinic-1", "x"]',
            "'clinic-2' is not among",
        ),
        ("clinic-2", 'rows = "', 'rows = "0', "clinic-2.csv have the digest"),
        ("clinic-2", "columns = [2, 2]", "columns = [2, 3]", "has 2 features, the terms say 3"),
        ("clinic-2", "features = ", "# ", "a party needs features"),
        (
            "clinic-2",
            "bounds = [0.7071067811865476, 0.707]",
            "bounds = [0.7, 0.2]",
            "norm of at most the bound 0.2",
        ),
        ("puller", "[source]", "[other]", "unknown setting 'other'"),
        ("payee", 'kind = "python"', 'kind = "csv"', "needs file"),
        ("puller", 'kind = "csv"', 'kind = "bernoulli"', "kind must be"),
    ],
)
def test_a_mistake_in_a_party_is_one_line(
    tmp_path: Path, posse: Call, name: str, old: str, new: str, said: str
) -> None:
    path = own_party(tmp_path, name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    told = posse("party", str(path))
    assert told.code == 2
    assert last_line(told.err).startswith("error: ")
    assert said in last_line(told.err)
    assert "Traceback" not in told.err


def own_party(folder: Path, name: str) -> Path:
    from posse.systems.parties import read_federation

    layout = read_federation(written(folder, OWN))
    (folder / "fed").mkdir()
    return next(path for path in layout.lay_out(folder / "fed") if path.stem == name)


def test_a_party_alone_gives_up_and_names_whom_it_misses(tmp_path: Path, posse: Call) -> None:
    path = next(path for path in laid_out(tmp_path, give_up=0.5) if path.stem == "clinic-2")
    told = posse("party", str(path))
    assert told.code == 2
    assert "'clinic-1' has been missing for 0.5 s (cannot reach 127.0.0.1:" in last_line(told.err)
    assert "and then 'clinic-2': the run continues where it stopped. (see" in last_line(told.err)


def test_parties_that_disagree_stop_and_say_so(tmp_path: Path, process: Start) -> None:
    """The first words between them tell."""
    paths = {path.stem: path for path in laid_out(tmp_path)}
    other = paths["clinic-2"]
    other.write_text(other.read_text().replace("steps = 30", "steps = 31"))
    with (
        stopped(process("party", str(paths["clinic-1"]))) as one,
        stopped(process("party", str(other))) as two,
    ):
        for running in (one, two):
            _, err = running.communicate(timeout=SECONDS)
            assert running.returncode == 2
            assert "[P530]" in last_line(err)
            assert (
                "the files of 'clinic-1' and 'clinic-2' differ: steps is 30 at 'clinic-1' and 31 at"
                in last_line(err)
            )


@pytest.mark.usefixtures("fresh")
def test_a_market_goes_up_too(tmp_path: Path, posse: Call, process: Start) -> None:
    agents = "".join(
        f'[[agent]]\nname = "agent-{i}"\nlisten = "127.0.0.1:{free_port()}"\n' for i in (1, 2)
    )
    head = (
        'protocol = "dp-combinatorial"\nrun = "m1"\nagents = 2\nproducers = 8\nrounds = 40\nstart '
        "= 10\n"
    )
    file = tmp_path / "fed.toml"
    file.write_text(head + agents)
    with stopped(process("up", str(file), "--json")) as running:
        out, err = running.communicate(timeout=SECONDS)
        assert running.returncode == 0, err
    assert json.loads(out)["parties"] == ["agent-1", "agent-2"]
    records = [Store().get(row.id) for row in Store().list()]
    assert {record.party for record in records} == {"agent-1", "agent-2"}
    whole = run(DpCombinatorial(agents=2, producers=8, rounds=40, start=10))
    for record in records:
        j = whole.parties.index(record.party)
        assert record.total[0] == pytest.approx(whole.party_total[0, j])
        assert (record.status, record.steps_done, record.arms) == ("finished", 40, 8)
        assert [entry["party"] for entry in record.privacy] == [record.party] * len(record.privacy)
        assert record.privacy
    assert sum(record.pulls for record in records).tolist() == whole.pulls.tolist()
    assert "the parts of all 2 parties are over" in posse("up", str(file)).out
    file.write_text(head.replace("rounds = 40", "rounds = 50") + agents)
    assert "horizon is 40 when it began" in one_line(posse("up", str(file)))
    file.write_text(head + agents.replace("agent-2", "agent-7"))
    assert "the simulated market has agents agent-1, agent-2" in one_line(
        posse("up", str(file), "--folder", "other")
    )
