"""Runs that start from the shares of an earlier one, and frozen runs that only decide."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError, DataError
from posse.core.fixed import REWARD_ONE
from posse.systems.modules import report_of, scene_of
from posse.systems.mpc_contextual.coins import Coins
from posse.systems.mpc_contextual.roles.outside import gathered, read_shares
from posse.systems.mpc_contextual.roles.party import Party
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.mpc_contextual.terms import largest_steps
from posse.systems.mpc_contextual.twins import floats
from posse.systems.mpc_contextual.twins.twin import coins_of
from posse.systems.registry import system_of

STEPS, SEED = 80, 5
FIRST: dict[str, Any] = {"steps": STEPS, "seed": SEED, "rows": 300, "components": 6}


@pytest.fixture(scope="module")
def shares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shares of a run of 80 steps."""
    folder = tmp_path_factory.mktemp("shares")
    posse.run(MpcContextual(**FIRST, keep_shares=folder))
    return folder


def finished(settings: MpcContextual) -> Any:
    run = posse.start(settings)
    run.finish()
    return run


def parties(run: Any) -> dict[str, Party]:
    return {name: role for name, role in run.memory.roles.items() if isinstance(role, Party)}


def test_shares_are_kept_and_are_the_model(shares: Path) -> None:
    run = finished(MpcContextual(**FIRST))
    assert {name: share.data for name, share in gathered(shares).items()} == {
        name: party.model.tobytes() for name, party in parties(run).items()
    }
    tags = {share.tag for share in gathered(shares).values()}
    assert len(tags) == 1 != len({share.data for share in gathered(shares).values()})
    assert tags == {party.tag(STEPS) for party in parties(run).values()}


@pytest.mark.parametrize("how", [{}, {"overlap": True}, {"batch": 5}, {"policy": "thompson"}])
def test_a_run_that_starts_from_shares_is_its_twin(
    shares: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    settings = MpcContextual(**FIRST, **how, start_from=shares, keep_shares=tmp_path / "after")
    private, fixed = posse.run(settings), finished(settings.plain())
    twin = fixed.record()
    assert private.total == twin.total
    np.testing.assert_array_equal(private.pulls, twin.pulls)
    np.testing.assert_array_equal(private.reward, twin.reward)
    assert settings.load().terms.before == STEPS
    after = gathered(tmp_path / "after")
    words = np.sum([share.words for share in after.values()], axis=0, dtype=np.uint64)
    np.testing.assert_array_equal(words.view(np.int64), fixed._twin.model)
    assert {share.start.partition(":")[0] for share in after.values()} == {str(2 * STEPS)}


def test_two_joined_runs_hold_the_model_of_one_that_is_as_long(
    shares: Path, tmp_path: Path
) -> None:
    """Coins and rounding are not carried; along the arms that were pulled, the model is the one of
    all steps.
    """
    second = MpcContextual(**FIRST, start_from=shares, keep_shares=tmp_path)
    setup, first = second.load(), MpcContextual(**FIRST).load()
    both = MpcContextual(**{**FIRST, "steps": 2 * STEPS}).load()
    rows = both.order(SEED)
    np.testing.assert_array_equal(rows, np.concatenate([first.order(SEED), setup.order(SEED)]))
    arms = np.concatenate(
        [
            finished(MpcContextual(**FIRST)).memory.roles["puller"].arms,
            finished(second).memory.roles["puller"].arms,
        ]
    )
    rewards = both.units(SEED, rows)[np.arange(len(rows)), arms] / REWARD_ONE
    ties = np.tile(np.arange(10), (len(rows), 1))
    whole = floats.replay(both.features(rows), arms, rewards, ties, lift=both.terms.lift)
    model = read_shares(tmp_path)
    np.testing.assert_allclose(model.weights, whole.weights, atol=2e-6)
    np.testing.assert_allclose(model.inverse, whole.inverses, atol=2e-6)


@pytest.mark.parametrize("how", [{}, {"overlap": False, "batch": 4}, {"exploration": "ucb"}])
def test_float_twins_joined_on_the_same_coins_are_one(how: dict[str, Any]) -> None:
    setup = MpcContextual(**{**FIRST, "steps": 2 * STEPS}).load()
    rows, coins = setup.order(SEED), coins_of(setup.terms, SEED)
    features, rewards = setup.features(rows), setup.units(SEED, rows) / REWARD_ONE

    def part(low: int, high: int, start: Any = None) -> Any:
        own = Coins(coins.explore[low:high], coins.arms[low:high], coins.ties[low:high])
        return floats.run(features[low:high], rewards[low:high], own, start=start, **how)

    whole, first = part(0, 2 * STEPS), part(0, STEPS)
    second = part(STEPS, 2 * STEPS, (first.weights, first.inverses))
    np.testing.assert_array_equal(whole.arms, np.concatenate([first.arms, second.arms]))
    np.testing.assert_array_equal(whole.weights, second.weights)
    np.testing.assert_array_equal(whole.inverses, second.inverses)


FROZEN = {
    "greedy": {},
    "linucb": {"policy": "linucb"},
    "thompson, in batches": {"policy": "thompson", "batch": 4},
    "in batches": {"batch": 4},
    "never explores": {"epsilon": 0, "without_guarantee": True},
}


@pytest.mark.parametrize("case", FROZEN)
def test_a_frozen_run_decides_as_its_twins_and_changes_no_weight(shares: Path, case: str) -> None:
    settings = MpcContextual(**FIRST, **FROZEN[case], start_from=shares, frozen=True)
    run, fixed, plain = (
        finished(settings.but(path=path)) for path in ("parties", "fixed", "float")
    )
    arms = run.memory.roles["puller"].arms
    np.testing.assert_array_equal(arms, fixed._twin.arms)
    assert (arms == plain._twin.arms).mean() > (0.97 if case == "greedy" else 0.9)
    assert run.record().total == fixed.record().total
    kept = gathered(shares)
    for name, party in parties(run).items():
        assert party.model.tobytes() == kept[name].data
    words = np.sum([share.words for share in kept.values()], axis=0, dtype=np.uint64)
    np.testing.assert_array_equal(fixed._twin.model, words.view(np.int64))
    model = read_shares(shares)
    np.testing.assert_array_equal(plain._twin.run.weights, model.weights)
    if case == "never explores":
        setup = settings.load()
        scores = setup.features(setup.order(SEED)) @ model.weights.T
        np.testing.assert_allclose(scores[np.arange(STEPS), arms], scores.max(axis=1), atol=1e-7)
        assert run._summary(STEPS, {})["rounds_a_step"] == 7


def test_a_frozen_run_longer_than_its_bits_allow_to_learn(shares: Path) -> None:
    """It learns nothing, so that nothing can break: only the steps before count."""
    steps = largest_steps(26) + 1
    setup = MpcContextual(**{**FIRST, "steps": steps}, start_from=shares, frozen=True).load()
    assert setup.terms.lessons == STEPS
    with pytest.raises(ConfigError, match="rounding can break the model"):
        MpcContextual(**{**FIRST, "steps": largest_steps(26) - STEPS + 1}, start_from=shares).load()


def test_steps_before_count_for_what_the_arms_give_away(shares: Path) -> None:
    settings = MpcContextual(**FIRST, start_from=shares)
    assert settings.ledger(settings.load().terms).guarantee().releases == 2 * STEPS
    limit = settings.ledger(settings.load().terms, 10).guarantee().epsilon
    with pytest.raises(posse.PosseError, match="the arm of round 160 cannot be opened"):
        settings.but(limit=limit).load()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"frozen": True}, "a frozen run needs a model to decide with"),
        ({"frozen": True, "overlap": True, "start_from": ""}, "overlap belongs to runs that learn"),
        ({"start_from": "", "bits": 20}, "was learnt with bits 26, and this run has 20"),
        (
            {"start_from": "", "components": 5},
            r"was learnt with features \(3, 3\), and this run has \(3, 2\)",
        ),
        ({"start_from": "", "parties": 3}, "was learnt with parties"),
        (
            {"start_from": "", "epsilon": "1/5"},
            r"epsilon must be at most 0\.1, that of the earlier model, got 0\.2",
        ),
        ({"start_from": "", "frozen": True, "newton": 3}, "newton belongs to runs that learn"),
        (
            {"keep_shares": "x", "path": "fixed"},
            "keep_shares needs parties that hold shares, got path 'fixed'",
        ),
        (
            {"keep_shares": "x", "path": "float"},
            "keep_shares needs parties that hold shares, got path 'float'",
        ),
        ({"keep_shares": "x", "runs": 2}, "keep_shares keeps the shares of one run, got 2 runs"),
        ({"start_from": "nowhere"}, "nowhere cannot be read: No such file"),
    ],
)
def test_what_does_not_fit_is_one_line(
    shares: Path, tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    if "start_from" in more:
        more = {
            **more,
            "start_from": tmp_path / more["start_from"] if more["start_from"] else shares,
        }
    with pytest.raises(posse.PosseError, match=says):
        MpcContextual(**{**FIRST, **more}).load()


def test_mixed_and_missing_shares_are_refused(shares: Path, tmp_path: Path) -> None:
    posse.run(MpcContextual(**{**FIRST, "seed": SEED + 1}, keep_shares=tmp_path / "other"))
    mixed = tmp_path / "mixed"
    shutil.copytree(shares, mixed)
    (own,) = (mixed / "party-2").iterdir()
    own.write_bytes(next((tmp_path / "other" / "party-2").iterdir()).read_bytes())
    with pytest.raises(DataError, match="is of another run than"):
        MpcContextual(**FIRST, start_from=mixed).load()
    own.unlink()
    with pytest.raises(DataError, match="the share of 'party-2' is missing"):
        MpcContextual(**FIRST, start_from=mixed).load()


def test_shares_of_two_runs_are_not_mixed_in_one_folder(shares: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    shutil.copytree(shares, mixed)
    shorter = MpcContextual(**{**FIRST, "steps": 10}, start_from=shares)
    with pytest.raises(
        ConfigError,
        match=r"has shares of another run, of 80 steps\. Give keep_shares another folder",
    ):
        posse.start(shorter.but(keep_shares=mixed))
    posse.run(shorter.but(keep_shares=tmp_path / "after"))
    for share in (tmp_path / "after").rglob("*.share"):
        shutil.copy(share, mixed / share.parent.name)
    with pytest.raises(
        DataError, match=r"shares of several runs in .+mixed. Give the folder of one"
    ):
        MpcContextual(**FIRST, start_from=mixed).load()
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot make the folder"):
        posse.start(MpcContextual(**FIRST, keep_shares=tmp_path / "file"))


def test_twins_beside_a_run_that_keeps_its_shares_keep_none(tmp_path: Path) -> None:
    settings = MpcContextual(**FIRST, keep_shares=tmp_path)
    system = system_of(settings)
    twins = [
        system.twin(settings),
        *report_of(system).comparisons(settings),
        *(one for _, one in scene_of(system).variants(settings)[1:]),
    ]
    assert {one.path for one in twins} == {"fixed", "float"}
    assert all(one.keep_shares is None for one in twins)
