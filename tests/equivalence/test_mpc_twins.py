"""The bandit on shares is its fixed-point twin, arm by arm and weight by weight; and close to the
float one.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from itertools import count, pairwise

import msgspec
import numpy as np
import pytest

from posse.core.fixed import REWARD_ONE
from posse.core.roles import WORLD, Action, Ask, Message, Role
from posse.runtime.memory import MemoryRun
from posse.systems.mpc_contextual.federation import SimulatedWorld, federation
from posse.systems.mpc_contextual.program import plan
from posse.systems.mpc_contextual.roles.messages import Act
from posse.systems.mpc_contextual.roles.party import Party
from posse.systems.mpc_contextual.roles.puller_and_payee import Payee, Puller
from posse.systems.mpc_contextual.settings import MpcContextual, Setup
from posse.systems.mpc_contextual.terms import WIDTH_BITS, Terms
from posse.systems.mpc_contextual.twins import floats
from posse.systems.mpc_contextual.twins.twin import FixedRun, FixedTwin, coins_of, run_fixed

SEED = 5

CASES = {
    "as published": {},
    "five parties": {"parties": 5, "steps": 40},
    "uneven split": {"columns": (1, 19), "steps": 60},
    "few bits": {"bits": 14},
    "no newton step": {"newton": 0, "steps": 40},
    "four newton steps": {"newton": 4, "steps": 40},
    "always explores": {"epsilon": 1, "steps": 60},
    "never explores": {"epsilon": 0, "without_guarantee": True},
    "a third explores": {"epsilon": "1/3", "steps": 60},
    "many coins": {"epsilon": 0.013, "steps": 60},
    "eleven arms": {"problem": "clusters", "arms": 11, "steps": 40},
    "twelve arms": {"problem": "clusters", "arms": 12, "steps": 40},
    "a tournament": {"problem": "clusters", "arms": 57, "steps": 12, "components": 4},
    "linucb": {"policy": "linucb", "width": 0.7},
    "thompson": {"policy": "thompson", "width": 0.3, "parties": 3, "steps": 60},
    "overlap": {"overlap": True},
    "overlap, few bits, 5 parties": {"overlap": True, "bits": 12, "parties": 5, "steps": 60},
    "overlap of one step": {"overlap": True, "steps": 1},
    "overlap and linucb": {"overlap": True, "policy": "linucb", "width": 0.7, "steps": 100},
    "overlap and thompson": {
        "overlap": True,
        "policy": "thompson",
        "width": 0.3,
        "parties": 3,
        "steps": 60,
    },
    "overlap and tournament": {
        "overlap": True,
        "problem": "clusters",
        "arms": 45,
        "steps": 12,
        "components": 3,
    },
    "batch of 2": {"batch": 2, "steps": 80},
    "batch of 8": {"batch": 8, "steps": 160},
    "batch of 5, thompson, 3 parties": {
        "batch": 5,
        "steps": 60,
        "policy": "thompson",
        "parties": 3,
    },
    "batch and tournament": {
        "batch": 3,
        "problem": "clusters",
        "arms": 45,
        "steps": 12,
        "components": 3,
    },
}


def settings_of(**given: object) -> MpcContextual:
    return MpcContextual(**{"steps": 150, "seed": SEED, **given})


def twin_of(setup: Setup, seed: int = SEED) -> FixedRun:
    rows, terms = setup.order(seed), setup.terms
    units = setup.units(seed, rows)
    return run_fixed(terms, plan(terms), setup.encoded(rows), units, coins_of(terms, seed), seed)


def roles_of(setup: Setup, seed: int = SEED) -> list[Role]:
    return federation(setup.terms, setup.encoded(setup.order(seed)), seed)


def world_of(setup: Setup, seed: int = SEED) -> SimulatedWorld:
    units = setup.units(seed, setup.order(seed))
    return SimulatedWorld(lambda step, arm: int(units[step, arm]))


def check_same(run: MemoryRun, terms: Terms, twin: FixedRun) -> None:
    puller, payee = run.roles["puller"], run.roles["payee"]
    assert isinstance(puller, Puller)
    assert isinstance(payee, Payee)
    np.testing.assert_array_equal(puller.arms, twin.arms)
    np.testing.assert_array_equal(payee.rewards, twin.rewards)
    shares = [role.model for role in run.roles.values() if isinstance(role, Party)]
    assert len(shares) == len(terms.parties)
    np.testing.assert_array_equal(
        np.sum(shares, axis=0, dtype=np.uint64).view(np.int64), twin.model
    )
    assert all(role.finished for role in run.roles.values())


@pytest.mark.parametrize("case", CASES)
def test_private_run_is_the_fixed_point_twin(case: str) -> None:
    setup = settings_of(**CASES[case]).load()
    run = MemoryRun(roles_of(setup), world_of(setup))
    run.finish()
    check_same(run, setup.terms, twin_of(setup))


@pytest.mark.parametrize("overlap", [False, True])
def test_where_bits_do_not_allow_it_scores_are_truncated_before_they_are_compared(
    overlap: bool,
) -> None:
    """The first steps of a run that is too long for its bits, and of one that is not: the same, but
    for rounds.
    """
    revealed = {}
    for steps in (15_000, 16_000):
        setup = settings_of(steps=steps, overlap=overlap).load()
        terms, rows = setup.terms, setup.order(SEED)
        assert terms.early == (steps == 15_000)
        rounds = plan(terms).rounds
        revealed[steps] = [number for number, one in enumerate(rounds, 1) if one.reveals]
        twin = FixedTwin(
            terms,
            plan(terms),
            setup.encoded(rows),
            setup.units(SEED, rows),
            coins_of(terms, SEED),
            SEED,
        )
        twin.advance(30)
        run = MemoryRun(roles_of(setup), world_of(setup))
        payee, puller = run.roles["payee"], run.roles["puller"]
        while payee.step < 30:  # type: ignore[attr-defined]
            assert run.deliver() is not None
        np.testing.assert_array_equal(puller.arms[:30], twin.arms[:30])  # type: ignore[attr-defined]
        np.testing.assert_array_equal(payee.rewards[:30], twin.outcome.rewards)  # type: ignore[attr-defined]
    assert revealed == {15_000: [6], 16_000: [7]}


@pytest.mark.parametrize(
    ("how", "hops"),
    [
        ({}, 11),
        ({"overlap": True}, 7),
        ({"policy": "linucb"}, 12),
        ({"policy": "linucb", "overlap": True}, 8),
    ],
)
def test_so_many_messages_follow_one_another_a_step(how: dict[str, object], hops: int) -> None:
    """Every message arrives one unit of time later, and nothing else takes time: from one arm to
    the next.
    """
    setup = settings_of(steps=12, components=4, **how).load()
    roles, world = {role.name: role for role in roles_of(setup)}, world_of(setup)
    moving: list[tuple[int, int, str, str, Message]] = []
    pulled: list[int] = []

    def send(now: int, name: str, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Act):
                pulled.append(now)
            if isinstance(action, Ask):
                heapq.heappush(moving, (now, next(order), WORLD, name, world(action)))
            elif isinstance(action, tuple):
                heapq.heappush(moving, (now + 1, next(order), *action))

    order = count()
    for role in roles.values():
        send(0, role.name, role.start())
    while moving:
        now, _, sender, to, message = heapq.heappop(moving)
        send(now, to, roles[to].receive(sender, message))
    assert {b - a for a, b in pairwise(pulled[3:])} == {hops}


def test_overlap_decides_without_the_reward_just_before_and_with_all_others() -> None:
    """Another reward of step t changes no arm up to t + 1; learnt from it is at t + 2."""
    setup = settings_of(steps=60, overlap=True, epsilon=0, without_guarantee=True).load()
    terms, rows = setup.terms, setup.order(SEED)
    units, coins = setup.units(SEED, rows), coins_of(terms, SEED)
    first = run_fixed(terms, plan(terms), setup.encoded(rows), units, coins, SEED)
    changed = []
    for t in range(0, 50, 5):
        other = units.copy()
        other[t] = REWARD_ONE - other[t]
        again = run_fixed(terms, plan(terms), setup.encoded(rows), other, coins, SEED)
        differs = np.flatnonzero(again.arms != first.arms)
        assert not len(differs) or differs[0] >= t + 2
        changed.append(len(differs) and differs[0] == t + 2)
    assert any(changed)


@pytest.mark.parametrize("bits", [20, 26])
def test_with_overlap_the_float_twin_is_as_near(bits: int) -> None:
    setup = settings_of(steps=1000, bits=bits, overlap=True).load()
    twin = twin_of(setup)
    free = floats.run(
        setup.features(setup.order(SEED)),
        setup.units(SEED, setup.order(SEED)) / REWARD_ONE,
        coins_of(setup.terms, SEED),
        lift=setup.terms.lift,
        overlap=True,
    )
    along = replay(setup, twin)
    weights = twin.model[:, -setup.terms.dimension :] / 2.0**bits
    assert np.abs(weights - along.weights).max() < {20: 2e-4, 26: 1e-5}[bits]
    assert (along.greedy != twin.greedy).mean() < 0.005
    assert abs(free.rewards.mean() - twin.rewards.mean() / REWARD_ONE) < 0.02


def test_other_secrets_give_other_shares_and_coins() -> None:
    setup = settings_of(steps=100).load()
    assert (twin_of(setup, 1).arms != twin_of(setup, 2).arms).any()


@pytest.mark.parametrize("how", [{"batch": 1}, {"batch": 4}, {"overlap": True}])
def test_a_role_saved_at_any_message_goes_on_as_if_it_never_stopped(how: dict[str, object]) -> None:
    setup = settings_of(steps=24, components=6, **how).load()
    twin, draw = twin_of(setup), random.Random(3)
    run = MemoryRun(roles_of(setup), world_of(setup))
    restored = 0
    while run.deliver() is not None:
        if draw.random() < 0.15:
            name = draw.choice(list(run.roles))
            saved = msgspec.msgpack.decode(msgspec.msgpack.encode(run.roles[name].save()))
            fresh = next(role for role in roles_of(setup) if role.name == name)
            fresh.load(saved)
            assert fresh.save() == run.roles[name].save()
            run.roles[name] = fresh
            restored += 1
    assert restored > 30
    check_same(run, setup.terms, twin)


def replay(setup: Setup, twin: FixedRun, seed: int = SEED) -> floats.Run:
    terms = setup.terms
    return floats.replay(
        setup.features(setup.order(seed)),
        twin.arms,
        twin.rewards / REWARD_ONE,
        coins_of(terms, seed).ties,
        batch=terms.batch,
        exploration="greedy",
        width=terms.width / 2**WIDTH_BITS,
        lift=terms.lift,
        overlap=terms.overlap,
    )


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize(("bits", "error"), [(20, 2e-4), (26, 4e-6)])
def test_the_float_twin_differs_only_where_scores_are_closer_than_the_fixed_point_error(
    bits: int, error: float, batch: int
) -> None:
    setup = settings_of(steps=1792, bits=bits, batch=batch).load()
    twin = twin_of(setup)
    followed = replay(setup, twin)
    weights = twin.model[:, -setup.terms.dimension :] / 2.0**bits
    assert np.abs(weights - followed.weights).max() < error
    differs = followed.greedy != twin.greedy
    assert differs.mean() < 0.001
    assert (followed.margins[differs] < 10 * error).all()


def test_the_intermediates_stay_within_their_ranges_and_come_near_them() -> None:
    twin = twin_of(settings_of(steps=1000).load())
    assert twin.largest["variance"] > 0.99
    assert twin.largest["inverse"] > 0.99
    assert twin.largest["scores"] > 0.5


def test_contexts_above_norm_1_are_caught_by_the_ranges() -> None:
    setup = settings_of(steps=200).load()
    terms, rows = setup.terms, setup.order(SEED)
    with pytest.raises(Exception, match="must stay within"):
        run_fixed(
            terms,
            plan(terms),
            setup.encoded(rows) * np.uint64(3),
            setup.units(SEED, rows),
            coins_of(terms, SEED),
            SEED,
        )


def test_a_batch_learns_what_single_steps_would_along_the_same_arms() -> None:
    """Woodbury is Sherman and Morrison many times: replayed in floats one by one, the weights
    agree.
    """
    setup = settings_of(steps=400, batch=8).load()
    twin = twin_of(setup)
    alone = floats.replay(
        setup.features(setup.order(SEED)),
        twin.arms,
        twin.rewards / REWARD_ONE,
        coins_of(setup.terms, SEED).ties,
    )
    weights = twin.model[:, -setup.terms.dimension :] / 2.0**setup.terms.bits
    assert np.abs(weights - alone.weights).max() < 1e-6


def test_exploration_coins_have_their_rate_and_all_arms_alike() -> None:
    setup = settings_of(steps=1797, epsilon="1/7").load()
    terms = setup.terms
    coins = coins_of(msgspec.structs.replace(terms, steps=50_000), SEED)
    spread = 4 * np.sqrt(50_000 * (1 / 7) * (6 / 7))  # chance of a false alarm below 1e-4
    assert abs(coins.explore.sum() - 50_000 / 7) < spread
    drawn = np.bincount(coins.arms[coins.explore], minlength=terms.arms)
    assert abs(drawn - drawn.mean()).max() < 5 * np.sqrt(drawn.mean())
    assert (np.sort(coins.ties, axis=1) == np.arange(terms.arms)).all()
    first = np.bincount(coins.ties[:, 0], minlength=terms.arms)
    assert abs(first - first.mean()).max() < 5 * np.sqrt(first.mean())


@pytest.mark.long
@pytest.mark.parametrize("bits", [20, 26])
def test_sixty_thousand_rows_of_mnist(bits: int, data_dir: object) -> None:
    settings = settings_of(problem="mnist", data_dir=data_dir, bits=bits, steps=60_000)
    setup = settings.load()
    twin = twin_of(setup)
    run = MemoryRun(roles_of(setup), world_of(setup))
    run.finish()
    check_same(run, setup.terms, twin)
    followed = replay(setup, twin)
    differs = followed.greedy != twin.greedy
    error = np.abs(twin.model[:, -20:] / 2.0**bits - followed.weights).max()
    free = floats.run(
        setup.features(setup.order(SEED)),
        setup.units(SEED, setup.order(SEED)) / REWARD_ONE,
        coins_of(setup.terms, SEED),
    )
    gap = abs(free.rewards.mean() - twin.rewards.mean() / REWARD_ONE)
    print(
        f"\n{bits} bits: differs in {differs.mean():.4%}, weights by {error:.1e}, average reward "
        f"by {gap:.5f}"
    )
    assert differs.mean() < 0.001
    assert (followed.margins[differs] < 10 * error).all()
    assert gap < 0.002


def test_the_dealer_deals_each_chunk_once_and_waits_to_be_asked() -> None:
    setup = settings_of(steps=60).load()
    run = MemoryRun(roles_of(setup), world_of(setup), transcript=100_000)
    run.finish()
    assert run.transcript is not None
    chunks = [
        entry.message.chunk for entry in run.transcript if type(entry.message).__name__ == "Dealt"
    ]
    assert sorted(chunks) == list(range(len(chunks)))
    asked = {
        name: [
            entry.message.chunk
            for entry in run.transcript.view(name)
            if type(entry.message).__name__ == "Want"
        ]
        for name in setup.terms.parties
    }
    assert all(b > a for wanted in asked.values() for a, b in pairwise(wanted))
