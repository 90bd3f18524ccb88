"""Exact pays of a range that the user names: scaled to [0, 1] inside, in the user's own units
everywhere else.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError, DataError, PosseError
from posse.core.fixed import REWARD_ONE, RewardRange
from posse.runtime.place import open_place
from posse.runtime.sources import SourceSettings, units
from posse.systems.mpc_contextual.deploy import build
from posse.systems.mpc_contextual.live import read_model
from posse.systems.mpc_contextual.roles.outside import read_shares
from posse.systems.mpc_contextual.settings import ContextualOptions, MpcContextual
from tests.kit.mpc import ARMS, found, laid_out, opened, run, twin, write_world

LOW, HIGH = -5.0, 20.0


def exact(folder: Path, low: float = LOW, high: float = HIGH) -> dict[str, Any]:
    """A world of files whose arms pay exactly what the table says, in a range."""
    world = write_world(folder)
    rows = [line.split(",") for line in Path(world["rewards"]).read_text().splitlines()]
    # Multiples of 1 / 1000 of the range: the same units whatever the range is.
    paid = [
        [row[0], *(repr(low + (high - low) * float(cell)) for cell in row[1:])] for row in rows[1:]
    ]
    Path(world["rewards"]).write_text("\n".join(",".join(row) for row in [rows[0], *paid]) + "\n")
    return {**world, "reward_range": (low, high)}


def settings_of(world: dict[str, Any], **more: Any) -> MpcContextual:
    data = {"features": world["features"], "rewards": world["rewards"]}
    return MpcContextual(
        data=data, reward_range=world["reward_range"], seed=9, **{"steps": 60, **more}
    )


@pytest.mark.parametrize("how", [{}, {"batch": 4}, {"overlap": True}])
def test_private_run_and_twin_pay_the_same_in_units_of_the_user(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    settings = settings_of(exact(tmp_path), **how)
    private, fixed = posse.run(settings), posse.run(settings.plain())
    assert private.total == fixed.total
    np.testing.assert_array_equal(private.pulls, fixed.pulls)
    np.testing.assert_array_equal(private.reward, fixed.reward)
    np.testing.assert_array_equal(private.regret, fixed.regret)
    contexts = settings.load().contexts
    rows = settings.load().order(9)
    arms = posse.start(settings)
    arms.finish()
    paid = contexts.means[rows, arms.memory.roles["puller"].arms]  # type: ignore[attr-defined]
    assert private.total[0] == pytest.approx(paid.sum(), abs=60 * (HIGH - LOW) / REWARD_ONE)
    assert paid.min() < 0 < paid.max()
    assert private.reward[0, -1] == private.total[0]
    assert private.regret[0, -1] == pytest.approx((contexts.means[rows].max(axis=1) - paid).sum())
    assert private.config["reward_range"] == [LOW, HIGH]


def test_the_same_pays_in_another_range_are_the_same_inside(tmp_path: Path) -> None:
    made = {}
    for low, high in ((0.0, 1.0), (LOW, HIGH), (1000.0, 1001.0)):
        folder = tmp_path / f"{low:g}"
        folder.mkdir()
        setup = settings_of(exact(folder, low, high)).load()
        made[low] = setup.units(9, setup.order(9))
    np.testing.assert_array_equal(made[0.0], made[LOW])
    np.testing.assert_allclose(made[0.0], made[1000.0], atol=1)


@pytest.mark.parametrize("low", [0.0, -5.0])
def test_chances_stay_chances_without_a_range(tmp_path: Path, low: float) -> None:
    world = exact(tmp_path, low, low + 1)
    data = {"features": world["features"], "rewards": world["rewards"]}
    if low:
        with pytest.raises(
            DataError,
            match=r"60 of 60 rows are bad\. .*must be in \[0, 1\], got -4\.\d+;.* give exact pays",
        ):
            MpcContextual(data=data, steps=5).load()
        return
    setup = MpcContextual(data=data, steps=60).load()
    assert set(np.unique(setup.units(9, setup.order(9)))) == {0, REWARD_ONE}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            (1.0, 1.0),
            r"reward_range must be two finite numbers of up to 1e\+100, the lower one first, got "
            r"1,1\.",
        ),
        (
            (-8e307, 8e307),
            r"numbers of up to 1e\+100, the lower one first, got -8e\+307,8e\+307",
        ),
        ((0.0, float("inf")), "reward_range.1 must be a finite number, got inf"),
        ((0.0, float("nan")), "reward_range.1 must be a finite number, got nan"),
        ((-1e308, 1.7e308), "two finite numbers"),
        (
            (0.0, 10.0),
            r" more\. Correct it, or widen reward_range\. Or drop them with --skip-bad \(skip_bad "
            r"= true\)\.$",
        ),
        (
            (0.0, 10.0),
            r"pays.csv: 56 of 60 rows are bad\. Row \d+, column 'wait': must be in \[0, 10\], got "
            r"-?\d+",
        ),
    ],
)
def test_a_wrong_range_is_one_line(tmp_path: Path, given: tuple[float, float], says: str) -> None:
    world = {**exact(tmp_path), "reward_range": given}
    with pytest.raises(PosseError, match=says):
        settings_of(world).load()


def test_a_range_belongs_to_own_files() -> None:
    with pytest.raises(ConfigError, match=r"reward_range applies to your own files \(own\)"):
        MpcContextual(reward_range=(0, 5))


def test_a_world_outside_pays_in_the_range(tmp_path: Path) -> None:
    going = posse.start(settings_of(exact(tmp_path), steps=2), world="outside")
    paid = []
    while not going.done:
        going.advance(1)
        for number, ask in list(going.asks.items()):
            if type(ask).__name__ == "Earn":
                with pytest.raises(ConfigError, match=r"a reward must be in \[-5, 20\], got 21"):
                    going.answer(number, 21)
                paid.append(7.5)
                going.answer(number, 7.5)
            else:
                going.answer(number, None)
    assert going.record().total == (15.0,)


def test_a_deployed_payee_is_paid_in_the_range(tmp_path: Path) -> None:
    paths = laid_out(tmp_path, steps=30, world=None, **dict(parts(tmp_path)))
    run(paths)
    paid = [float(line) for line in (tmp_path / "paid.csv").read_text().split()[1:]]
    outcome = found(paths)
    np.testing.assert_array_equal(outcome.rewards, RewardRange(LOW, HIGH).units(paid))
    payee = opened(tmp_path / "payee.toml").engine
    payee.close()
    assert payee.role.total == pytest.approx(sum(paid), abs=30 * (HIGH - LOW) / REWARD_ONE)  # type: ignore[attr-defined]
    other = open_place(tmp_path / "payee.toml")
    options = ContextualOptions.make({**other.file.options, "reward_range": [LOW, HIGH + 1]})
    assert options.terms("trial-1").digest() != build(other).role.terms.digest()  # type: ignore[attr-defined]


def parts(folder: Path) -> list[tuple[str, Any]]:
    """Parties with files, a puller that writes arms, and a payee that reads what they earn from a
    file.
    """
    world = exact(folder)
    rng = np.random.default_rng(3)
    paid = [repr(float(one)) for one in rng.uniform(LOW, HIGH, 30)]
    (folder / "paid.csv").write_text("\n".join(["reward", *paid, ""]))
    members = [{"name": name, "features": path} for name, path in world["features"].items()]
    return [
        ("party", members),
        ("arms", len(ARMS)),
        ("reward_range", [LOW, HIGH]),
        ("puller", {"source": {"kind": "csv", "file": str(folder / "arms.csv")}}),
        ("payee", {"source": {"kind": "csv", "file": str(folder / "paid.csv")}}),
    ]


def test_what_is_outside_of_the_range_is_refused_where_it_comes_from(tmp_path: Path) -> None:
    within = RewardRange(LOW, HIGH)
    (tmp_path / "paid.csv").write_text("reward\n3\n20.5\n")
    source = SourceSettings(kind="csv", file=tmp_path / "paid.csv")
    with pytest.raises(
        DataError, match=r"row 3: a reward must be a number in \[-5, 20\], got '20.5'"
    ):
        source.source(1, tmp_path, within=within)

    async def paid(run: str, number: int) -> float:
        return 21.0

    with pytest.raises(DataError, match=r"a reward must be in \[-5, 20\], got 21.0 for step 4"):
        asyncio.run(units(paid, "trial", 4, "step", within))


def test_a_simulated_world_of_exact_pays_is_the_run_in_memory(tmp_path: Path) -> None:
    paths = laid_out(tmp_path, steps=20, world=exact(tmp_path))
    run(paths)
    outcome = found(paths)
    assert outcome == twin(paths)
    assert len({0, REWARD_ONE, *outcome.rewards}) > 4  # neither 0 nor 1


def test_a_model_predicts_rewards_in_units_of_the_user(tmp_path: Path) -> None:
    settings = settings_of(exact(tmp_path), keep_shares=tmp_path / "kept")
    posse.run(settings)
    learnt, model = read_model(tmp_path / "kept"), read_shares(tmp_path / "kept")
    assert learnt is not None
    rows = settings.load().contexts.features[:5]
    np.testing.assert_allclose(learnt.scores(rows), LOW + (HIGH - LOW) * (rows @ model.weights.T))
