from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posse.systems.fed_contextual.computing import rounds, tasks
from posse.systems.fed_contextual.computing.models import subtract
from posse.systems.fed_contextual.computing.rounds import (
    Cohort,
    _lanes,
    bandit_round,
    gather,
    supervised_round,
)
from posse.systems.fed_contextual.computing.server import Clipping, Measured, State, begin
from posse.systems.fed_contextual.computing.tasks import Rates, Task
from tests.systems.fed_contextual.toys import (
    RATES,
    TASK,
    close,
    differs,
    gathered,
    population,
    questions,
    same,
)

EIGHT = [3, 1, 7, 0, 11, 5, 2, 9]
bandit = jax.jit(bandit_round, static_argnames="task")
supervised = jax.jit(supervised_round, static_argnames="task")


def round_of(
    cohort: Cohort,
    task: Task = TASK,
    rates: Rates = RATES,
    seed: int = 1,
    state: State | None = None,
) -> tuple[State, Measured]:
    return bandit(task, rates, begin(task, 0) if state is None else state, cohort, jnp.uint32(seed))


@pytest.fixture(scope="module")
def reference() -> tuple[State, Measured]:
    state, seen = round_of(gathered(EIGHT))
    assert 0 < float(seen.within) < 1  # some were clipped and some not
    return state, seen


def alike(one: tuple[State, Measured], other: tuple[State, Measured]) -> None:
    close(one[0].params, other[0].params)
    close(one[1], other[1])


def test_the_order_of_a_cohort_does_not_matter(reference: tuple[State, Measured]) -> None:
    alike(round_of(gathered(EIGHT[::-1])), reference)


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_lanes_do_not_matter(lanes: int, reference: tuple[State, Measured]) -> None:
    alike(round_of(gathered(EIGHT), TASK._replace(lanes=lanes)), reference)


def test_lanes_that_do_not_divide_a_cohort_are_fewer() -> None:
    assert [_lanes(TASK._replace(lanes=lanes), gathered(EIGHT)) for lanes in (1, 3, 7, 8, 64)] == [
        1,
        2,
        4,
        8,
        8,
    ]


def test_padding_of_samples_does_not_matter(reference: tuple[State, Measured]) -> None:
    alike(round_of(gathered(EIGHT, pad=32)), reference)


def test_padding_of_clients_does_not_matter(reference: tuple[State, Measured]) -> None:
    padded = gathered([*EIGHT, 0, 0, 4, 0], present=[1] * 8 + [0] * 4)
    alike(round_of(padded), reference)


@pytest.mark.parametrize("world", [population(), questions()], ids=lambda world: world.name)
def test_cohorts_are_the_same_from_the_device_and_from_the_host(world: object) -> None:
    assert isinstance(world, type(population()))
    cap = 6  # some clients have more: they keep a random set
    assert world.largest > cap
    numbers, present = np.array([4, 0, 9, 2], np.int32), np.ones(4, np.float32)
    from_host = rounds.host(world, 8, cap)
    assert callable(from_host)
    one = from_host(numbers, present, 0)
    other = gather(rounds.resident(world, cap), jnp.asarray(numbers), jnp.asarray(present), 8)
    real = np.asarray(one.mask) > 0
    same(one.mask, other.mask)
    for a, b in zip(
        jax.tree.leaves((one.contexts, one.labels)),
        jax.tree.leaves((other.contexts, other.labels)),
        strict=True,
    ):
        assert np.array_equal(np.asarray(a)[real], np.asarray(b)[real])


def test_a_round_is_the_same_from_the_device_and_from_the_host(
    reference: tuple[State, Measured],
) -> None:
    cohort = gather(rounds.resident(population(), 256), jnp.asarray(EIGHT), jnp.ones(8), 12)
    alike(round_of(cohort), reference)


def test_a_round_is_a_pure_function(reference: tuple[State, Measured]) -> None:
    same(round_of(gathered(EIGHT)), reference)
    assert differs(round_of(gathered(EIGHT), seed=2)[0].params, reference[0].params)
    later = begin(TASK, 0)._replace(round=jnp.int32(1))
    assert differs(round_of(gathered(EIGHT), state=later)[0].params, reference[0].params)


def test_updates_add_up_client_by_client() -> None:
    summed = RATES._replace(divisor=1.0)
    state = begin(TASK, 0)

    def moved(numbers: list[int]) -> dict[str, jax.Array]:
        # a cohort of one size, so that one program does
        cohort = gathered(
            numbers + [0] * (8 - len(numbers)),
            present=[1] * len(numbers) + [0] * (8 - len(numbers)),
        )
        change: dict[str, jax.Array] = subtract(
            round_of(cohort, rates=summed)[0].params, state.params
        )
        return change

    both, one, other = moved([3, 7]), moved([3]), moved([7])
    close(both, jax.tree.map(jnp.add, one, other))
    for change in (one, other):
        assert (
            np.sqrt(
                sum(float((np.asarray(leaf, np.float64) ** 2).sum()) for leaf in change.values())
            )
            <= 0.05
        )


def test_the_mean_is_of_those_present_or_by_a_fixed_divisor() -> None:
    cohort = gathered(EIGHT, present=[1, 1, 0, 0, 0, 0, 0, 0])
    start = begin(TASK, 0).params
    by_two = subtract(round_of(cohort)[0].params, start)
    by_eight = subtract(round_of(cohort, rates=RATES._replace(divisor=8.0))[0].params, start)
    close(by_two, jax.tree.map(lambda leaf: 4 * leaf, by_eight))


def test_what_is_measured_is_what_happened(reference: tuple[State, Measured]) -> None:
    seen = reference[1]
    sizes = population().sizes(EIGHT)
    assert float(seen.samples) == sizes.sum()
    assert float(seen.clients) == 8
    assert 0 <= float(seen.reward) <= sizes.sum()
    # the first model gives every arm the same chance
    assert float(seen.probability) == pytest.approx(sizes.sum() / 3)


@pytest.mark.parametrize("lanes", [1, 4])
def test_pulls_are_those_of_the_logs(lanes: int) -> None:
    """A greedy policy and a model that scores one arm highest: which one, and how often, is
    known.
    """
    task = TASK._replace(policy=tasks.greedy, lanes=lanes)
    rates = RATES._replace(explore=())
    params = {"w": jnp.zeros((5, 3)).at[0].set(jnp.array([0.0, 1.0, -1.0])), "b": jnp.zeros(3)}
    cohort = gathered(EIGHT, present=[1] * 7 + [0])
    _, seen = round_of(cohort, task, rates, state=begin(task, 0, params))
    real = (np.asarray(cohort.mask) > 0)[:7]
    first = np.asarray(cohort.contexts)[:7, :, 0][real]
    best = np.argmax(np.stack([0 * first, first, -first]), axis=0)
    assert seen.pulls is not None
    assert np.asarray(seen.pulls).tolist() == np.bincount(best, minlength=3).tolist()


def test_supervised_rounds_pull_nothing() -> None:
    assert supervised(TASK, RATES, begin(TASK, 0), gathered(EIGHT), jnp.uint32(0))[1].pulls is None


def test_noise_is_a_function_of_seed_and_round_and_scales_with_the_norm() -> None:
    loud = RATES._replace(noise=0.5, divisor=8.0)
    quiet = RATES._replace(noise=0.0, divisor=8.0)
    cohort, state = gathered(EIGHT), begin(TASK, 0)

    def added(round_: int, limit: float = 0.05) -> dict[str, jax.Array]:
        at = state._replace(round=jnp.int32(round_), limit=jnp.float32(limit))
        noisy, plain = (
            round_of(cohort, rates=rates, state=at)[0].params for rates in (loud, quiet)
        )
        drawn: dict[str, jax.Array] = subtract(noisy, plain)
        return drawn

    first = added(0)
    close(added(0), first)
    assert differs(added(1), first)
    close(added(0, 0.1), jax.tree.map(lambda leaf: 2 * leaf, first), 1e-5)
    # 18 numbers of deviation .5 x .05 / 8; their mean square is within a factor 3 but once in 10^4
    size = np.concatenate([np.asarray(leaf).ravel() for leaf in first.values()])
    assert 1 / 3 < (size**2).mean() / (0.5 * 0.05 / 8) ** 2 < 3


def test_whole_numbers_change_a_round_by_rounding_only(reference: tuple[State, Measured]) -> None:
    task = TASK._replace(levels=1 << 16)
    one = round_of(gathered(EIGHT), task)
    close(one[0].params, reference[0].params, 0.05 / (1 << 16))
    assert differs(one[0].params, reference[0].params)
    # whole numbers add up exactly: neither order nor lanes change a bit
    same(round_of(gathered(EIGHT[::-1]), task)[0].params, one[0].params)
    with pytest.raises(ValueError, match=r"below 2\^31, got 8 clients"):
        round_of(gathered(EIGHT), TASK._replace(levels=1 << 28))


def test_a_model_that_does_not_learn_is_left_as_it_is() -> None:
    state, seen = round_of(gathered(EIGHT), TASK._replace(learns=False))
    same(state.params, begin(TASK, 0).params)
    assert float(seen.samples) > 0


def test_a_centralised_round_learns_from_all_samples_as_one_client() -> None:
    task = TASK._replace(centralised=True, clipping=Clipping(1e6))
    state, seen = round_of(gathered(EIGHT, present=[1] * 7 + [0]), task)
    assert float(seen.clients) == 1
    assert float(seen.samples) == population().sizes(EIGHT[:7]).sum()
    assert differs(state.params, begin(task, 0).params)


def test_supervised_rounds_need_the_rewards_of_all_arms() -> None:
    state = begin(TASK, 0)
    for _ in range(60):
        state, seen = supervised(
            TASK._replace(clipping=Clipping(1e3)), RATES, state, gathered(EIGHT), jnp.uint32(0)
        )
    cohort = gathered(EIGHT)
    guesses = np.asarray(TASK.model.scores(state.params, cohort.contexts.reshape(-1, 5))).argmax(
        axis=1
    )
    real = np.asarray(cohort.mask).ravel() > 0
    assert (guesses == np.asarray(cohort.labels).ravel())[real].mean() > 0.9
    assert float(seen.reward) == 0
    with pytest.raises(ValueError, match="no pay_all"):
        supervised_round(TASK._replace(pay_all=None), RATES, state, cohort, 0)


def test_seeds_give_first_parameters_of_their_own() -> None:
    drawing = TASK._replace(model=TASK.model._replace(init=partial(jax.random.normal, shape=(3,))))
    same(begin(drawing, 1).params, begin(drawing, 1).params)
    same(begin(drawing, 1).params, begin(drawing, jnp.uint32(1)).params)
    assert differs(begin(drawing, 1).params, begin(drawing, 2).params)
    given = begin(drawing, 1, jnp.ones(3))
    same(given.params, jnp.ones(3))
    same(given.deployed, jnp.ones(3))
