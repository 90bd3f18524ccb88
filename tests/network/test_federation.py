"""A federation over mutual TLS gives the result of the plain bandit, although every secret is the
system's own.
"""

from __future__ import annotations

import pytest

from posse.systems import registry
from posse.systems.samba.settings import Samba
from tests.kit.federations import run


@pytest.mark.parametrize("policy", ["ucb", "thompson", "pursuit", "epsilon-greedy"])
def test_the_same_world_gives_the_same_arms_and_sum(tmp_path, policy):
    total, owners = run(tmp_path, policy=policy, budget=60)
    plain = registry.run(Samba(policy=policy, owners=3, budget=60, seed=7, level="paper").plain())
    assert plain.total == (total,)
    assert plain.pulls.tolist() == [[pulls for pulls, _ in owners]]
    assert sum(reward for _, reward in owners) == total


def test_level_paper_too(tmp_path):
    total, owners = run(tmp_path, level="paper", policy="ucb", budget=50)
    plain = registry.run(Samba(policy="ucb", owners=3, budget=50, seed=7, level="paper").plain())
    assert plain.total == (total,)
    assert plain.pulls.tolist() == [[pulls for pulls, _ in owners]]


def test_a_real_deployment_has_no_seed(tmp_path):
    sources = [
        {"name": f"clinic-{i}", "source": {"kind": "bernoulli", "mean": mean}}
        for i, mean in enumerate((0, 0.5, 1))
    ]
    total, owners = run(tmp_path, world=None, owner=sources, budget=80)
    assert sum(pulls for pulls, _ in owners) == 80
    assert total == sum(reward for _, reward in owners)
    assert owners[0][1] == 0
    assert owners[2][0] == owners[2][1] > 40  # the arm that always pays is found
