"""Draws of a deployment come from AES-CTR, those of a simulation from the world seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from posse.core.random import COIN, MASK, SELECT, TIE, derive_key, uniform, word_to_uniform, words64
from posse.policies import EpsilonGreedy, Thompson
from posse.privacy.crypto.keys import hkdf
from posse.privacy.crypto.paillier import generate_key
from posse.privacy.crypto.streams import keystream
from posse.problems import BernoulliArms
from posse.runtime.memory import MemoryRun
from posse.systems.samba.federation import SimulatedWorld, federation
from posse.systems.samba.kernels import select_argmax
from posse.systems.samba.roles.draws import CommonDraws, Draws, OwnSeeds

KEY = generate_key(2048)
SECRET = bytes(range(32))


def stream(secret: bytes, info: bytes, width: int, index: int) -> list[int]:
    """One row of an AES-256-CTR stream, by definition."""
    raw = keystream(hkdf(secret, info), 0, 8 * width * (index + 1))
    return np.frombuffer(raw, "<u8")[width * index :].tolist()


def owners(policy: Any, level: str = "strict") -> list[Any]:
    """Owners of a run without a world seed, after it."""
    arms = BernoulliArms([0.3, 0.6, 0.5])
    roles = federation(arms, policy, 30, seed=None, level=level, key=KEY)
    assert list(MemoryRun(roles, SimulatedWorld(arms, 1, 30)))
    return [role for role in roles if role.kind == "owner"]


def test_a_deployed_owner_draws_its_coins_ties_and_own_numbers_from_aes() -> None:
    for owner in owners(Thompson()):
        s_own, lane = owner._keys[1], owner._lane
        own = owner._secrets.key(b"samba own draws", context=owner._context())
        for index in (4, 17, 300):
            assert lane._coins.rows(index, 1)[0].tolist() == stream(
                s_own, b"posse coins and ties", 3, index
            )
            assert lane._seeds.rows(index, 1).tolist() == stream(own, b"posse own draws", 1, index)


def test_no_key_of_64_bits_serves_two_passes_of_a_deployment() -> None:
    """Philox under one 64-bit key was searched at scale: a key found from some passes named the
    slots of all.
    """
    one, two, _ = owners(EpsilonGreedy(0.5))
    keys = [int(key) for owner in (one, two) for key in owner._lane._seeds.rows(0, 256)]
    assert len(set(keys)) == 512
    assert one._lane._coins.rows(0, 256).tolist() == two._lane._coins.rows(0, 256).tolist()
    assert len(np.unique(one._lane._coins.rows(0, 256))) == 3 * 256


def test_masks_and_coins_of_level_paper_are_from_aes_too() -> None:
    for owner in owners(EpsilonGreedy(0.5), "paper"):
        keys = owner._masks
        assert owner._coins.at(5) == word_to_uniform(
            np.uint64(stream(keys.coins, b"posse draws %d" % COIN, 1, 5)[0])
        )
        assert owner._lane._masks.at(9) == word_to_uniform(
            np.uint64(stream(keys.masks, b"posse draws %d" % MASK, 1, 9)[0])
        )


@pytest.mark.parametrize("passes", [1, 2])
def test_a_simulation_draws_at_addresses_of_the_world_seed(passes: int) -> None:
    rows = CommonDraws(11, SECRET, passes).rows(7, 5)
    for j, (coin, first, second) in enumerate(rows.tolist()):
        assert word_to_uniform(np.uint64(coin)) == uniform(11, COIN, 0, (7 + j) // passes, 0)
        assert (first, second) == words64(11, TIE, 0, 7 + j, 0)
    assert OwnSeeds(derive_key(11, 2), SECRET).rows(3, 4).tolist() == [derive_key(11, 2)] * 4
    assert Draws(SELECT, 11, SECRET).at(9) == uniform(11, SELECT, 0, 9, 0)
    assert Draws(SELECT, None, SECRET).at(9) != uniform(11, SELECT, 0, 9, 0)


def test_a_step_explores_in_its_last_pass() -> None:
    owner = owners(EpsilonGreedy(1.0), "paper")[0]
    assert owner._policy.explores
    found = []
    for owner._passes in (1, 2):
        for owner._index in range(4, 8):
            found.append(owner._explores())
    assert found == [True, True, True, True, False, True, False, True]


def test_comp_picks_among_equals_only() -> None:
    assert [
        select_argmax(np.array([0.3, 0.7, 0.2, 0.7, 0.1]), u) for u in (0.0, 0.49, 0.51, 0.99)
    ] == [1, 1, 3, 3]
