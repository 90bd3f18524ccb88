"""`posse evaluate`, `posse predict` and `record.policy.decide`: what a log and a learnt model
say.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import posse as package
from posse.core.errors import ConfigError, DataError
from posse.policies.contextual.explorations import EpsilonGreedy, draw
from posse.policies.decisions import Learnt
from posse.problems.populations.prepared import load, save
from posse.results.logs import evaluate_logs, read_logs, section_of
from posse.systems.mpc_contextual.program import Layout
from posse.systems.mpc_contextual.roles.outside import write_share
from posse.systems.mpc_contextual.terms import Terms
from tests.kit.commands import Call
from tests.kit.rules import Broken, check_broken, rules

ARMS = ("blue", "green", "red")
TRUE = np.array([[0.9, 0.1], [0.2, 0.7], [0.4, 0.4]])
"""Chance of a reward of each arm, where the first feature is 1, and where it is 0."""


def write_log(path: Path, rows: int = 4000, seed: int = 3) -> None:
    """Log decisions that follow a rough model with much exploration."""
    rng = np.random.default_rng(seed)
    kind, noise = rng.integers(0, 2, rows), rng.normal(size=rows)
    scores = np.array([[0.5, 0.4], [0.3, 0.3], [0.4, 0.5]]).T[kind]
    chosen, chance = draw(EpsilonGreedy(0.6).probabilities(scores), rng.random(rows))
    paid = (rng.random(rows) < TRUE[chosen, kind]).astype(int)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("client", "first", "noise", "arm", "reward", "probability"))
        writer.writerows(
            (
                f"phone-{i % 80}",
                1 - kind[i],
                f"{noise[i]:.4f}",
                ARMS[chosen[i]],
                paid[i],
                f"{chance[i]:.6f}",
            )
            for i in range(rows)
        )


def test_estimates_hold_the_truth_and_find_the_policy_that_uses_the_context(
    posse: Call, tmp_path: Path
) -> None:
    write_log(tmp_path / "logs.csv")
    done = posse("evaluate", "logs.csv", "--figure", "intervals.svg", "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert found["features"] == ["first", "noise"]
    by_name = {one["policy"]: one for one in found["policies"]}
    truth = {f"always {name}": TRUE[at].mean() for at, name in enumerate(ARMS)}
    truth |= {"any arm": TRUE.mean(), "best by context": TRUE.max(axis=0).mean()}
    assert set(by_name) == set(truth)
    for name, value in truth.items():
        for how in ("ips", "snips", "dr"):
            made = by_name[name][how]
            assert abs(made["value"] - value) < 5 * made["error"]  # fails once in a million logs
    assert found["policies"][0]["policy"] == "best by context"
    assert by_name["best by context"]["dr"]["error"] < by_name["best by context"]["ips"]["error"]
    assert 0 < by_name["any arm"]["snips"]["effective"] < 4000
    best = by_name["best by context"]["snips"]
    assert found["best"]["policy"] == "best by context"
    assert found["best"]["level"] == pytest.approx(0.99)  # one of five
    assert found["best"]["low"] < best["low"] < best["high"] < found["best"]["high"]
    assert (tmp_path / "intervals.svg").read_text().count("<svg") == 1
    shown = posse("evaluate", "logs.csv", COLUMNS="140")
    assert "best by context" in shown.out
    assert "4,000 decisions of 80 clients" in shown.out
    answer = shown.out.splitlines()[0]
    assert answer.startswith("best by context ")
    assert "more than the log's policy" in answer
    low, high = found["best"]["more_than_log_low"], found["best"]["more_than_log_high"]
    assert 0 < low < found["best"]["more_than_log"] < high


def test_no_policy_is_called_better_than_the_log_by_chance() -> None:
    rng = np.random.default_rng(4)
    rows = [
        {"arm": int(arm), "reward": float(paid), "probability": 0.5}
        for arm, paid in zip(rng.integers(0, 2, 400), rng.random(400) < 0.5, strict=True)
    ]
    assert "not clearly more" in evaluate_logs(rows).headline


def test_a_policy_without_support_is_named_and_the_others_are_estimated() -> None:
    rows = [{"arm": i % 2, "reward": i % 3 == 0, "probability": 0.5} for i in range(400)]
    rows += [{"arm": 2, "reward": 1, "probability": 0.5}]
    logged, found = evaluate_logs(rows)
    assert logged.arms == ("0", "1", "2")
    refused = {one.policy: one.refused for one in found if one.refused}
    assert set(refused) == {"always 2", "any arm"}
    assert all("must support" in why for why in refused.values())
    assert all(one.refused for one in found[-2:])


def test_few_effective_rows_have_no_interval_and_no_best() -> None:
    rows = [{"arm": i % 2, "reward": i % 3 == 0, "probability": 0.5} for i in range(24)]
    evaluation = evaluate_logs(rows)
    section = section_of(*evaluation)
    assert not any("[" in cell for row in section.rows for cell in row)
    assert not any("The best of" in note for note in section.notes)
    assert np.isinf(section.data["best"]["high"])
    assert "too few rows" in evaluation.headline


RULES = {
    "results.arm.wrong-count": Broken(
        "P200", "arm", lambda _: read_logs([{"arm": "a", "reward": 1, "probability": 0.5}] * 3)
    ),
    "results.model.other-arms": Broken(
        "P200",
        "model",
        lambda _: evaluate_logs(
            [{"arm": i % 2, "reward": 1, "probability": 0.5} for i in range(9)],
            Learnt(("a", "b", "c"), best=0),
        ),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_mistake_breaks_its_rule(rule: str, tmp_path: Path) -> None:
    check_broken(rule, RULES[rule], tmp_path)


def test_every_rule_of_logs_is_broken() -> None:
    assert rules("results/logs.py") == set(RULES)


MISTAKES = {
    "arm,reward\na,1\n": "probability",
    "arm,reward,probability\na,1,0.5\nb,0,0\n": "above 0 and at most 1, got 0",
    "arm,reward,probability\na,1,0.5\nb,much,0.5\n": "'much' is not a number",
    "arm,reward,probability\na,1,0.5\na,0,0.5\n": "2 to 200 different arms, got 1",
    "arm,reward,probability,age\na,1,0.5,old\nb,0,0.5,9\n": "'old' is not a number",
    "": "empty",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_bad_log_is_one_line_and_exit_2(posse: Call, tmp_path: Path, text: str) -> None:
    (tmp_path / "logs.csv").write_text(text)
    done = posse("evaluate", "logs.csv")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert MISTAKES[text] in done.err


def test_places_are_checked_before_a_log_is_read(posse: Call) -> None:
    for command in (
        ("evaluate", "none.csv", "--figure", "no/where.svg"),
        ("predict", "m.npz", "r.csv", "-o", "no/x"),
    ):
        done = posse(*command)
        assert done.code == 2
        assert "does not exist" in done.err
    assert "must end in" in posse("evaluate", "none.csv", "--figure", "log.doc").err
    assert "none.csv" in posse("evaluate", "none.csv").err


def test_what_devices_learnt_decides_in_python_and_on_the_command_line(
    posse: Call, tmp_path: Path
) -> None:
    done = posse(
        "run",
        "fed-contextual",
        "--data",
        "digits",
        "--clients",
        "12",
        "--cohort",
        "6",
        "--rounds",
        "12",
        "--deploy-every",
        "3",
        "--model-out",
        "model.npz",
    )
    assert done.code == 0
    record = package.Store().get("last")
    population = package.FedContextual(data="digits", clients=12).population()
    images = np.asarray(population.inputs).reshape(population.samples, -1)[:60]
    chosen = [record.policy.decide(image) for image in images]
    assert chosen[0].probability == 1
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([f"pixel {at}" for at in range(images.shape[1])])
        writer.writerows(images.tolist())
    for model in ("model.npz", record.id):
        made = posse("predict", model, "rows.csv", "--json")
        assert [one["name"] for one in json.loads(made.out)] == [one.name for one in chosen]
    assert posse("predict", "model.npz", "rows.csv", "--out", "decisions.csv").code == 0
    assert (tmp_path / "decisions.csv").read_text().splitlines()[0] == "row,arm,name,predicted"
    (tmp_path / "few.csv").write_text("a,b\n1,2\n")
    few = posse("predict", "model.npz", "few.csv")
    assert few.code == 2
    assert "has 2 columns, and the model takes 64 numbers" in few.err
    with pytest.raises(ConfigError, match="64 finite numbers"):
        record.policy.decide([1, 2])
    with pytest.raises(ConfigError, match="needs a context"):
        record.policy.decide()


def test_rows_are_read_by_the_names_that_a_model_learnt(posse: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    lines = ["client,town,age,seen,label"]
    for at in range(120):
        town = ("Bern", "Chur", "Genf")[rng.integers(3)]
        lines.append(
            f"c{at % 6},{town},{rng.random():.2f},2024-05-01,{'treat' if town == 'Bern' else 'wait'}"
        )
    (tmp_path / "visits.csv").write_text("\n".join(lines))
    done = posse(
        "run",
        "fed-contextual",
        "--data",
        "visits.csv",
        "--cohort",
        "6",
        "--rounds",
        "12",
        "--model-out",
        "model.npz",
    )
    assert done.code == 0, done.err
    record = package.Store().get("last")
    assert record.policy.learnt is not None
    assert record.policy.learnt.features == ("town=Bern", "town=Chur", "town=Genf", "age")
    wanted = record.policy.learnt.scores(
        [[1, 0, 0, 0.5], [0, 1, 0, 0.5], [0, 0, 1, 0.5], [1, 0, 0, 0.5]]
    ).max(axis=1)
    assert len(set(wanted.tolist())) == 3
    tables = {
        "words": "age;town\n0,5;Bern\n0,5;Chur\n0,5;Genf\n0,5;Bern\n",
        "coded": "age;town=Genf;town=Chur;town=Bern\n0,5;0;0;1\n0,5;0;1;0\n0,5;1;0;0\n0,5;0;0;1\n",
        "dated": "seen;town;age\n1.5.2024;Bern;0,5\n1.5.2024;Chur;0,5\n1.5.2024;Genf;0,5\n1.5.2024;Bern;0,5\n",
    }
    for name, text in tables.items():
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-16")
        for model in ("model.npz", record.id):
            made = posse("predict", model, f"{name}.csv", "--decimal", ",", "--json")
            assert made.code == 0, made.err
            assert [one["predicted"] for one in json.loads(made.out)] == pytest.approx(wanted), name
    for text, said in (
        ("town,age\nBern,0.5\nBasel,0.5\n", "row 3, column 'town': the model never learnt 'Basel'"),
        ("town,age,dose\nBern,0.5,1\n", "the model has no feature 'dose'"),
        ("town\nBern\n", "the feature 'age' of the model must come from one column, got 0"),
        ("a,b,c,d\n1,0,0,0.5\n", "the model has no feature 'a', 'b', 'c', 'd'"),
        ("town,age\nn/a,0.5\n", "'n/a' is missing"),
        (
            "client,town,age,dose,size\n1,Bern,0.5,1,2\n",
            "the model has no feature 'dose', 'size'",
        ),
    ):
        (tmp_path / "rows.csv").write_text(text)
        done = posse("predict", "model.npz", "rows.csv")
        assert done.code == 2
        assert said in " ".join(done.err.split())
    (tmp_path / "rows.csv").write_text("client,town,age,label\n7,Bern,0.5,tea\n")
    whole = posse("predict", "model.npz", "rows.csv", "--json")
    assert [one["predicted"] for one in json.loads(whole.out)] == pytest.approx(wanted[:1])
    assert "columns that are no features were left out (client, label)" in whole.err
    assert "decimal must be" in posse("predict", "model.npz", "words.csv", "--decimal", "x").err
    log = [
        f"{('wait', 'treat')[at % 2]};{int(at % 3 == 0)};0,5;0,5;{('Bern', 'Chur')[at % 2]}"
        for at in range(60)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["arm;reward;probability;age;town", *log]))
    found = posse("evaluate", "log.csv", "--model", "model.npz", "--decimal", ",", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["features"] == ["town=Bern", "town=Chur", "town=Genf", "age"]


def test_a_simulated_samba_run_tells_the_arm_it_came_to(posse: Call) -> None:
    assert posse("run", "samba", "--path", "plain", "--owners", "3", "--budget", "900").code == 0
    record = package.Store().get("last")
    made = record.policy.decide()
    assert made.arm == int(record.pulls.sum(axis=0).argmax())
    assert made.name == record.arm_names[made.arm]
    with pytest.raises(ConfigError, match="takes no context"):
        record.policy.decide([1])


def test_no_model_is_said_in_one_line(posse: Call, tmp_path: Path) -> None:
    (tmp_path / "model.npz").write_text("no model")
    np.savez(tmp_path / "other.npz", leaf0=np.zeros(3), leaf1=np.zeros(3))
    for place, said in (
        ("model.npz", "cannot be read"),
        ("other.npz", "no linear model"),
        ("none.npz", "no such file"),
    ):
        done = posse("predict", place, "rows.csv")
        assert done.code == 2
        assert said in done.err
    (tmp_path / "empty").mkdir()
    assert "rule: cli.model.not-a-model;" in posse("predict", "empty", "rows.csv").err
    with pytest.raises(DataError):
        read_logs(tmp_path / "none.csv")


def test_shares_that_are_brought_together_decide(posse: Call, tmp_path: Path) -> None:
    terms = Terms("run-1", ("a", "b"), (2, 2), 3, 200, (1, 10), bits=20)
    model = Layout(terms.dimension).start(terms.arms, terms.bits)
    weights = np.array([[0.5, -0.25, 0, 0.125], [-0.5, 0.75, 0.25, 0], [0.25, 0.25, -0.5, 1]])
    model[:, -4:] += np.round(weights * 2**terms.bits).astype(np.int64).view(np.uint64)
    mask = np.random.default_rng(1).integers(0, 2**63, model.shape, np.uint64)
    for party, share in zip(terms.parties, (model - mask, mask), strict=True):
        for folder in ("shares", "named"):
            (tmp_path / folder / party).mkdir(parents=True)
        columns = ("age", "dose") if party == "a" else ("age", "town=Bern")
        write_share(tmp_path / "shares" / party, terms, party, 100, share.tobytes())
        write_share(tmp_path / "named" / party, terms, party, 100, share.tobytes(), columns=columns)
    rows = np.random.default_rng(2).normal(size=(50, 4))
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="f1,f2,f3,f4", comments="")
    made = posse("predict", "shares", "rows.csv", "--json")
    assert made.code == 0, made.err
    assert [one["arm"] for one in json.loads(made.out)] == (rows @ weights.T).argmax(
        axis=1
    ).tolist()
    # Parties that read tables: by their names in any order, and by party where two have one of a
    # name.
    table = np.column_stack([rows[:, 3], rows[:, 0], rows[:, 1], rows[:, 2]])
    np.savetxt(
        tmp_path / "named.csv",
        table,
        delimiter=",",
        header="town=Bern,a:age,dose,b:age",
        comments="",
    )
    named = posse("predict", "named", "named.csv", "--json")
    assert [one["arm"] for one in json.loads(named.out)] == [
        one["arm"] for one in json.loads(made.out)
    ]
    assert (
        "the model has no feature 'f1', 'f2', 'f3', 'f4'"
        in posse("predict", "named", "rows.csv").err
    )
    (tmp_path / "shares" / "b" / "model-100.share").unlink()
    alone = posse("predict", "shares", "rows.csv")
    assert alone.code == 2
    assert alone.err.count("\n") == 1


def test_bad_rows_are_dropped_where_that_is_asked_for_and_told(posse: Call, tmp_path: Path) -> None:
    write_log(tmp_path / "logs.csv", rows=400)
    lines = (tmp_path / "logs.csv").read_text().splitlines()
    bad = {
        3: "phone-1,1,0.5,red,1,0",
        5: "phone-1,1,n/a,red,1,0.5",
        7: "phone-1,1,0.5,red,1",
        9: "phone-1,1,2,red,1,1.5",
    }
    for at, line in bad.items():
        lines.insert(at - 1, line)
    (tmp_path / "bad.csv").write_text("\n".join(lines))
    refused = posse("evaluate", "bad.csv")
    assert refused.code == 2
    assert "4 of 404 rows are bad" in refused.err
    found = json.loads(posse("evaluate", "bad.csv", "--skip-bad", "--json").out)
    clean = json.loads(posse("evaluate", "logs.csv", "--json").out)
    assert found.pop("dropped")
    assert not clean.pop("dropped")
    assert found == clean
    shown = " ".join(posse("evaluate", "bad.csv", "--skip-bad", COLUMNS="200").out.split())
    assert (
        "4 of 404 rows were dropped as bad. Row 3, column 'probability': must be above 0" in shown
    )


def test_predictions_tell_rows_by_their_line_where_some_are_dropped(
    posse: Call, tmp_path: Path
) -> None:
    weights = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
    np.savez(
        tmp_path / "model.npz",
        leaf0=np.zeros(2),
        leaf1=weights.T.astype(np.float32),
        arms=["tea", "coffee"],
        features=["town=Bern", "town=Chur", "age"],
    )
    (tmp_path / "rows.csv").write_text("town,age\nBern,0.5\nBasel,0.5\nChur,old\nChur,0.25\n")
    refused = posse("predict", "model.npz", "rows.csv")
    assert (refused.code, refused.out) == (2, "")
    (tmp_path / "own.csv").write_text("Ort,age\nBern,0.5\n")
    mapped = posse("predict", "model.npz", "own.csv", "--columns", "town=Ort", "--json")
    assert [one["name"] for one in json.loads(mapped.out)] == ["tea"], mapped.err
    made = posse("predict", "model.npz", "rows.csv", "--skip-bad")
    assert made.out == "row,line,arm,name,predicted\n1,2,0,tea,1.25\n2,5,1,coffee,1.125\n"
    assert "Row 4, column 'age': 'old' is not a number" in made.err
    assert "Row 3, column 'town': the model never learnt 'Basel'" in made.err
    document = json.loads(posse("predict", "model.npz", "rows.csv", "--skip-bad", "--json").out)
    assert [one["line"] for one in document["decisions"]] == [2, 5]
    assert len(document["dropped"]) == 1


def test_a_prepared_population_keeps_the_names_of_its_features(posse: Call, tmp_path: Path) -> None:
    lines = [
        f"c{at % 4},{('Bern', 'Chur')[at % 2]},{at % 5},{('a', 'b')[at % 2]}" for at in range(60)
    ]
    (tmp_path / "visits.csv").write_text("\n".join(["client,town,age,label", *lines]))
    population = package.FedContextual(data="visits.csv").population()
    for place in ("folder", "visits.npz"):
        save(population, place)
        assert load(place).features == population.features == ("town=Bern", "town=Chur", "age")
    done = posse(
        "run",
        "fed-contextual",
        "--data",
        "visits.npz",
        "--cohort",
        "4",
        "--rounds",
        "3",
        "--model-out",
        "m.npz",
    )
    assert done.code == 0, done.err
    (tmp_path / "rows.csv").write_text("age,town\n1,Bern\n2,Chur\n")
    assert posse("predict", "m.npz", "rows.csv").code == 0


def test_a_table_of_other_columns_than_the_model_takes_is_refused_for_that(
    posse: Call, tmp_path: Path
) -> None:
    np.savez(
        tmp_path / "model.npz",
        leaf0=np.zeros(2),
        leaf1=np.zeros((3, 2), np.float32),
        arms=["tea", "coffee"],
    )
    (tmp_path / "rows.csv").write_text("client,arm\n1,none\n2,none\n")
    assert (
        "rows.csv has 2 columns, and the model takes 3 numbers"
        in posse("predict", "model.npz", "rows.csv").err
    )
