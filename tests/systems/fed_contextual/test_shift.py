"""What was known before deployment, for any data; and what a run lost to the best that could be
done.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posse.core.errors import DataError, PosseError
from posse.problems.populations.worlds import named_clients, read_rewards
from posse.results.record import Record
from posse.results.render import render_report
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.registry import run as run_fed
from posse.systems.registry import start
from tests.systems.fed_contextual.toys import ARMS, population

BASE: dict[str, Any] = {
    "scale": "none",
    "rounds": 1,
    "cohort": 12,
    "batch": 4,
    "pretraining": 60,
    "pretraining_client_rate": 0.2,
    "policy": "greedy",
    "pretraining_server_rate": 1.0,
    "scenario": "init-shift",
}


def table(path: Path, *rows: str) -> str:
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def turned(x: jax.Array, y: jax.Array, arms: jax.Array) -> jax.Array:
    """Before deployment the next arm paid."""
    return jnp.where(arms == (y + 1) % len(ARMS), 1.0, 0.0)


def right(x: jax.Array, y: jax.Array, arms: jax.Array) -> jax.Array:
    return jnp.where(arms == y, 1.0, 0.0)


def ran(own: dict[str, Any], **changes: Any) -> Record:
    return run_fed(FedContextual(**{**BASE, **changes}), population=population(), **own)


def curves_of(record: Record) -> dict[str, np.ndarray]:
    shown: Any = record.show["curves"]
    return {one["name"]: np.array(one["values"]) for one in shown}


def test_a_first_model_learns_what_paid_before(tmp_path: Path) -> None:
    """A table, a function and a function that settings name give the same first model, which is
    wrong after.
    """
    rows = "label,0,A,a", "0,0,1,0", "A,0,0,1", "a,1,0,0"
    file = table(tmp_path / "before.csv", *rows)
    (tmp_path / "mine.py").write_text(
        "import jax.numpy as jnp\ndef turned(x, y, arms):\n    return jnp.where(arms == (y + 1) % "
        "3, 1.0, 0.0)\n"
        "def some(name):\n    return name != 'client-1'\n"
    )
    by_table, by_function = ran({}, before=file), ran({"before": turned})
    named = ran({}, before=f"{tmp_path / 'mine.py'}:turned")
    assert by_table.total == by_function.total == named.total
    assert float(by_table.summary["average_reward"]) < 0.1
    assert float(ran({}, scenario="init").summary["average_reward"]) > 0.8
    # With rewards of one's own after deployment, a table or a function before it.
    assert (
        ran({"pay": right}, before=file).total
        == ran({"pay": right, "before": turned}).total
        == by_table.total
    )
    # The turned arm pays again: the first model is right.
    assert float(ran({"pay": turned, "before": turned}).summary["average_reward"]) > 0.8


def test_arms_without_a_column_are_not_seen(tmp_path: Path) -> None:
    found = read_rewards(
        Path(table(tmp_path / "two.csv", "label, a ,0", "A,0.25,0", "0,0,1", "a,1,-1")), ARMS
    )
    assert found.arms.tolist() == [True, False, True]
    assert found.rewards.table.tolist() == [[1, 0, 0], [0, 0, 0.25], [-1, 0, 1]]


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (("label,0,A,b", "0,1,0,0"), "has the arm 'b', which is not an arm of the data"),
        (("label,0,A,A", "0,1,0,0"), "column 'A' is there more than once"),
        (("label,0", "0,1", "A,0", "A,1"), "'A' is on row 3 too"),
        (("label,0", "0,1", "A,0"), "a row for every label, got none for a"),
        (("label,0", "0,1", "A,x", "a,0"), "row 3, column '0': 'x' is not a number"),
        (("label,0", "0,1", "A,nan", "a,0"), "a finite number"),
        (("label,0", "0,1", "A,0,0", "a,0"), "expected 2 columns as in the header, got 3"),
        ((), "is empty"),
        (("label,0", f"0,{'1' * 140_000}"), "row 2: cannot split into columns"),
    ],
)
def test_tables_that_do_not_fit(tmp_path: Path, rows: tuple[str, ...], what: str) -> None:
    with pytest.raises(DataError, match=what):
        read_rewards(Path(table(tmp_path / "bad.csv", *rows)), ARMS)


def test_who_the_first_clients_are(tmp_path: Path) -> None:
    assert named_clients(population(), "client-1, client-1[12]").tolist() == [0, 10, 11]
    file = table(tmp_path / "b.csv", "label,0,A,a", "0,1,0,0", "A,0,1,0", "a,0,0,1")
    one = start(
        FedContextual(**BASE, before=file, first="client-1*", seed=3), population=population()
    )
    world = one.setup.world  # type: ignore[attr-defined]
    assert (world.pretrained, world.initial(12, 3).tolist()) == (4, [0, 9, 10, 11])
    other = start(
        FedContextual(**BASE, before=file, pretrained=2),
        population=population(),
        first=lambda name: name[-1] in "24",
    )
    drawn = other.setup.world.initial(12, 0).tolist()  # type: ignore[attr-defined]
    assert len(drawn) == 2
    assert set(drawn) < {1, 3, 11}


@pytest.mark.parametrize(
    ("changes", "own", "what"),
    [
        (
            {"scenario": "init", "before": "x.csv"},
            {},
            "before applies to scenario init-shift, got x.csv for init",
        ),
        ({"scenario": "init"}, {"before": turned}, "before applies to scenario init-shift"),
        (
            {"scenario": "scratch", "first": "a*"},
            {},
            "first applies to scenarios with pre-training",
        ),
        ({"before": "nowhere.csv"}, {}, "no file nowhere.csv"),
        (
            {"first": "clinic-*"},
            {"before": turned},
            "no client has a name like 'clinic-.', and the first is client-1",
        ),
        (
            {"first": "client-1", "pretrained": 2},
            {"before": turned},
            "pre-trains on 2 clients, and there are 1",
        ),
        ({"before": "x.csv"}, {"before": turned}, "before is given twice"),
        ({}, {"before": lambda x, y, arms: x}, "before must give one reward a sample"),
        ({}, {"before": lambda x, y, arms: x.nope}, "before fails on .* samples: AttributeError"),
        (
            {},
            {"before": turned, "first": lambda name: name.nope},
            "first fails on the client 'client-1': Attr",
        ),
        ({}, {"pay": right}, "needs those before deployment too"),
        ({"before": "json:nothing"}, {}, "json has no 'nothing'"),
        (
            {"scenario": "scratch", "supervised": True, "drift": "labels"},
            {},
            "supervised needs rewards that stay",
        ),
    ],
)
def test_what_is_refused(changes: dict[str, Any], own: dict[str, Any], what: str) -> None:
    base = {name: value for name, value in BASE.items() if "pretraining" not in name}
    with pytest.raises(PosseError, match=what):
        run_fed(FedContextual(**{**base, **changes}), population=population(), **own)


def test_regret_and_how_sure_devices_were() -> None:
    """The best arm of every context pays 1; a supervised model earns what it earns alone, and
    regret is the rest.
    """
    settings = FedContextual(
        rounds=12,
        cohort=6,
        batch=4,
        deploy_every=3,
        supervised=True,
        runs=2,
        points=6,
        pretraining_client_rate=0.2,
        pretraining_server_rate=1.0,
    )
    record = run_fed(settings, population=population())
    summary, samples, curves = record.summary, record.pulls.sum(axis=1), curves_of(record)
    sure, regret, lost = curves.values()
    np.testing.assert_allclose(regret[:, -1], samples - np.array(record.total))
    assert (np.diff(regret, axis=1) >= 0).all()
    earned = float(summary["average_reward"])
    assert summary["average_regret"] == pytest.approx(1 - earned)
    assert float(summary["supervised_reward"]) > 0.8
    assert summary["regret_to_supervised"] == pytest.approx(
        float(summary["supervised_reward"]) - earned
    )
    assert sure.shape == lost.shape == (2, 6)
    assert sure[0, 0] == pytest.approx(
        1 / 3, abs=1e-5
    )  # nothing is deployed yet: all arms are alike
    assert sure[0, -1] > 0.4
    assert lost[:, -1].sum() / samples.sum() == pytest.approx(
        float(summary["regret_to_supervised"]), abs=1e-4
    )
    page = render_report(record)
    assert "Mean probability of the chosen arm." in page
    assert "Cumulative regret to a supervised model." in page


def test_regret_where_arms_pay_other_rewards() -> None:
    """Rewards of one's own are known for every arm in a simulation: the best of them counts."""

    def half(x: jax.Array, y: jax.Array, arms: jax.Array) -> jax.Array:
        return jnp.where(arms == 1, 0.5, 0.25)

    record = run_fed(FedContextual(rounds=3, cohort=6, batch=4), population=population(), pay=half)
    regret = curves_of(record)["cumulative regret to the best arm of every context"]
    assert regret[0, -1] == pytest.approx(
        0.25 * (record.pulls[0, 0] + record.pulls[0, 2]), abs=1e-5
    )
