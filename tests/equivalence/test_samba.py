"""Secure == plain, arm by arm and sum, bit for bit.

The small form runs on every change; `make test-long` runs 50 seeds. Steps 0 to 5 are compared
everywhere, the decrypted total of steps 6 and 7 on a dozen cells.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from posse.policies import POLICIES as REGISTERED
from posse.policies import UCB, EpsilonGreedy, Policy, Pursuit, Softmax, Thompson
from posse.privacy.crypto.paillier import PrivateKey, generate_key
from posse.problems import Arms, BernoulliArms, BetaArms, EmpiricalArms
from posse.problems.datasets.published import embedded_arms
from posse.runtime.memory import MemoryRun
from posse.systems.samba.federation import SimulatedWorld, federation
from posse.systems.samba.levels import Switches
from posse.systems.samba.twin import simulate
from tests.kit.policies import Fading, Mixed

CHANGED: dict[str, dict[str, float]] = {
    "epsilon-greedy": {"epsilon": 0.2},
    "softmax": {"tau": 0.05},
    "pursuit": {"beta": 0.05},
}
"""Parameters other than the defaults."""
POLICIES: tuple[Policy, ...] = tuple(
    kind(**CHANGED.get(name, {})) for name, kind in REGISTERED.items()
)
LEVELS = ("strict", "paper")
DATA = ("movielens", "jester")


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return generate_key(2048)


def pulled(
    arms: Arms, policy: Policy, budget: int, seed: int, level: str, key: PrivateKey
) -> SimulatedWorld:
    """Run steps 0 to 5 of a federation, without the Paillier encryption that every owner makes
    after them.
    """
    world = SimulatedWorld(arms, seed, budget, keep_arms=True)
    switches = Switches(paillier=level != "paper")
    run = MemoryRun(
        federation(arms, policy, budget, seed=seed, level=level, switches=switches, key=key), world
    )
    for note in run:
        if note.kind == "step" and note.step == budget:
            break
    while world.reached < budget:
        assert run.deliver() is not None
    return world


def compare(
    arms: Arms, policy: Policy, budget: int, seeds: range, level: str, key: PrivateKey
) -> None:
    twin = simulate(arms, policy, budget, list(seeds), level=level, keep_arms=True)
    assert twin.arms is not None
    for row, seed in enumerate(seeds):
        world = pulled(arms, policy, budget, seed, level, key)
        assert world.arms == twin.arms[row].tolist()
        np.testing.assert_array_equal(world.units, twin.units[row])
        np.testing.assert_array_equal(world.pulls, twin.pulls[row])
        assert list(world.curve) == twin.reward[row].tolist()
        assert world.regret == twin.regret[row].tolist()


@pytest.mark.parametrize("owners", [2, 10, 100])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_arms_and_rewards(policy: Policy, level: str, owners: int, key: PrivateKey) -> None:
    for data in DATA if owners < 100 else DATA[:1]:
        compare(
            embedded_arms(data, owners),
            policy,
            owners + 60,
            range(2 if owners < 100 else 1),
            level,
            key,
        )


@pytest.mark.long
@pytest.mark.parametrize("owners", [2, 10, 100])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_arms_and_rewards_of_fifty_seeds(
    policy: Policy, level: str, data: str, owners: int, key: PrivateKey
) -> None:
    compare(embedded_arms(data, owners), policy, owners + 1000, range(100, 150), level, key)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_decrypted_total(policy: Policy, level: str, key: PrivateKey) -> None:
    arms = embedded_arms("movielens", 5)
    world = SimulatedWorld(arms, 11, 65)
    run = MemoryRun(federation(arms, policy, 65, seed=11, level=level, key=key), world)
    totals = [note.value for note in run if note.kind == "total"]
    assert totals == [simulate(arms, policy, 65, [11], level=level).total[0]]
    assert totals == [world.curve[-1]]


@pytest.mark.long
@pytest.mark.parametrize("owners", [2, 10, 100])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_decrypted_total_of_many_owners(
    policy: Policy, level: str, owners: int, key: PrivateKey
) -> None:
    arms, budget = embedded_arms("jester", owners), owners + 200
    run = MemoryRun(
        federation(arms, policy, budget, seed=21, level=level, key=key),
        SimulatedWorld(arms, 21, budget),
    )
    totals = [note.value for note in run if note.kind == "total"]
    assert totals == [simulate(arms, policy, budget, [21], level=level).total[0]]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mean", [0.0, 1.0])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_runs_made_of_ties(policy: Policy, mean: float, level: str, key: PrivateKey) -> None:
    """Arms that never or always pay: all means are equal at every step."""
    compare(BernoulliArms([mean] * 9), policy, 120, range(2), level, key)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_rewards_between_zero_and_one(policy: Policy, level: str, key: PrivateKey) -> None:
    compare(BetaArms([0.2, 0.5, 0.7], concentration=3), policy, 80, range(2), level, key)
    compare(EmpiricalArms([[0.1, 0.25], [0.5], [0.9, 0.3, 0.2]]), policy, 80, range(2), level, key)


def test_more_than_256_owners(key: PrivateKey) -> None:
    """Scores leave nine bits for ties; and the search of the largest takes several questions a
    pass.
    """
    compare(BernoulliArms(np.linspace(0.1, 0.9, 300)), UCB(), 306, range(1), "strict", key)


@pytest.mark.parametrize(
    "policy", [UCB(), EpsilonGreedy(0.3), Softmax(0.05), Pursuit()], ids=lambda one: one.name
)
def test_all_sixteen_switches_of_level_paper_give_one_total(
    policy: Policy, key: PrivateKey
) -> None:
    """A protection that is off changes what is seen, and neither an arm nor the total: the paper's
    Theorem 2.
    """
    arms, found = embedded_arms("jester", 6), set()
    for off in product((True, False), repeat=4):
        switches = Switches(*off)
        roles = federation(arms, policy, 60, seed=3, level="paper", switches=switches, key=key)
        world = SimulatedWorld(arms, 3, 60, keep_arms=True)
        (total,) = [note.value for note in MemoryRun(roles, world) if note.kind == "total"]
        twin = simulate(
            arms, policy, 60, [3], level="paper", permute=switches.permutation, mask=switches.mask
        )
        assert total == twin.total[0]
        found.add((total, tuple(world.arms or ())))
    assert len(found) == 1


@pytest.mark.parametrize(
    "policy", [EpsilonGreedy(0.3), Fading(0.9), Mixed(0.05)], ids=lambda one: one.name
)
def test_exploring_as_described_pulls_what_the_shortcut_pulls(
    policy: Policy, key: PrivateKey
) -> None:
    """All owners send one number, or none: the same arms and total, with and without mask and
    permutation.
    """
    arms, found = embedded_arms("jester", 6), set()
    for shortcut, kept in product((True, False), repeat=2):
        switches = Switches(paillier=False, permutation=kept, mask=kept, shortcut=shortcut)
        world = SimulatedWorld(arms, 3, 60, keep_arms=True)
        run = MemoryRun(
            federation(arms, policy, 60, seed=3, level="paper", switches=switches, key=key), world
        )
        (total,) = [note.value for note in run if note.kind == "total"]
        assert (run.moved.get("Explore", 0) > 5) is shortcut
        assert run.moved["Score"] == 6 * (54 - run.moved.get("Explore", 0))
        found.add((total, tuple(world.arms or ())))
    twin = simulate(arms, policy, 60, [3], level="paper", keep_arms=True)
    assert twin.arms is not None
    assert found == {(twin.total[0], tuple(twin.arms[0].tolist()))}


@pytest.mark.parametrize("level", LEVELS)
def test_an_epsilon_that_falls_by_ones_own_function(level: str, key: PrivateKey) -> None:
    compare(embedded_arms("movielens", 5), Fading(0.9), 120, range(2), level, key)
    twin = simulate(BernoulliArms([0.0, 1.0]), Fading(0.9), 4000, range(8), level=level)
    explored = (
        twin.pulls[:, 0].sum() / 8
    )  # half of the exploring steps pull the arm that never pays
    expected = sum(0.9 / (1 + t / 20) for t in range(3, 4001)) / 2
    assert abs(explored - expected) < 6 * (expected / 8) ** 0.5 + 1


@pytest.mark.parametrize("level", LEVELS)
def test_secrets_do_not_change_results(level: str, key: PrivateKey) -> None:
    """Two runs of one world with other keys, masks, nonces, permutations and pads pull the same
    arms.
    """
    arms = embedded_arms("movielens", 10)
    worlds = [pulled(arms, Thompson(), 120, 5, level, key) for _ in range(2)]
    assert worlds[0].arms == worlds[1].arms
    other = pulled(arms, Thompson(), 120, 6, level, key)
    assert other.arms != worlds[0].arms  # another world does
