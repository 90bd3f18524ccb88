"""Sums are bit exact whoever is lost at whatever stage, up to the declared number; with one more
there is no sum.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.aggregation.terms import Plan, Stage, complete_plan, plan
from tests.privacy.aggregation.rounds import LENGTH, cohort, plain_sum, simulate, vectors

STAGES = list(Stage)[:-1]


def _expected(terms, lost: dict[str, Stage]) -> tuple[str, ...]:
    return tuple(name for name in terms.clients if lost.get(name, Stage.OVER) > Stage.MASKED)


def _check(n: int, planned: Plan, lost: dict[int, Stage], seed: int = 0) -> None:
    here = cohort(n)
    terms = here.terms(planned, LENGTH)
    given_vectors = vectors(terms.clients, seed)
    named = {terms.clients[at]: stage for at, stage in lost.items()}
    total, survivors = simulate(here, terms, given_vectors, named)
    assert survivors == _expected(terms, named)
    assert (total == plain_sum(given_vectors, survivors)).all()


def _losses(n: int, count: int):
    for who in combinations(range(n), count):
        for stages in product(STAGES, repeat=count):
            yield dict(zip(who, stages, strict=True))


@pytest.mark.parametrize(
    ("n", "dropouts"), [(2, 0), (3, 1), (4, 1), (4, 2), (5, 1), (5, 2), (6, 1)]
)
def test_every_loss_up_to_the_maximum(n, dropouts):
    planned = complete_plan(n, corrupt=0, dropouts=dropouts)
    for count in range(dropouts + 1):
        for lost in _losses(n, count):
            _check(n, planned, lost)


@pytest.mark.long
@pytest.mark.parametrize(("n", "dropouts"), [(5, 3), (6, 2), (6, 3)])
def test_every_loss_of_more(n, dropouts):
    planned = complete_plan(n, corrupt=0, dropouts=dropouts)
    for count in range(dropouts + 1):
        for lost in _losses(n, count):
            _check(n, planned, lost)


@pytest.mark.parametrize(("n", "dropouts"), [(3, 0), (3, 1), (4, 1)])
def test_one_loss_more_fails_closed(n, dropouts):
    here = cohort(n)
    for lost in _losses(n, dropouts + 1):
        terms = here.terms(complete_plan(n, corrupt=0, dropouts=dropouts), LENGTH)
        named = {terms.clients[at]: stage for at, stage in lost.items()}
        with pytest.raises(
            ProtocolError, match=rf"needs {n - dropouts} of {n} clients, got .* \(missing: c0"
        ) as failed:
            simulate(here, terms, vectors(terms.clients), named)
        assert "run the round again" in str(failed.value)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_larger_rounds(data):
    n = data.draw(st.integers(7, 14))
    dropouts = data.draw(st.integers(0, (n - 2) // 2))
    corrupt = data.draw(st.integers(0, n - dropouts - 2))
    who = data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=dropouts + 1))
    lost = {at: data.draw(st.sampled_from(STAGES)) for at in who}
    planned = complete_plan(n, corrupt=corrupt, dropouts=dropouts)
    if len(lost) <= dropouts:
        _check(n, planned, lost, seed=n)
    else:
        with pytest.raises(ProtocolError, match="clients, got"):
            _check(n, planned, lost, seed=n)


@pytest.mark.parametrize(
    "n", [200, pytest.param(250, marks=pytest.mark.long), pytest.param(300, marks=pytest.mark.long)]
)
def test_sparse_rounds_with_the_declared_dropouts(n):
    """They fail with the printed probability, below 2^-20 here."""
    planned = plan(n, corrupt=0.1, dropout=0.1)
    assert not planned.complete
    assert planned.fail <= -20
    generator = np.random.default_rng(n)
    who = generator.choice(n, planned.dropouts, replace=False).tolist()
    _check(n, planned, {at: STAGES[int(generator.integers(5))] for at in who}, seed=n)


def test_a_sparse_round_in_which_a_client_lost_its_neighbours_fails_closed():
    planned = Plan(12, 1, 4, 4, 3, 0, -1.0, -1.0)
    here = cohort(12)
    terms = here.terms(planned, LENGTH)
    victim = terms.clients[0]
    gone = sorted(terms.neighbours(victim))[:3]
    for stage in STAGES:
        with pytest.raises(
            ProtocolError, match=r"the secrets of c0\d\d need 3 holders at stage \w+, 2 are left"
        ):
            simulate(here, terms, vectors(terms.clients), dict.fromkeys(gone, stage))


def test_a_plan_for_other_numbers_is_refused():
    with pytest.raises(ConfigError, match="expected 6 clients with an identity each"):
        cohort(5).terms(complete_plan(6, corrupt=0, dropouts=1), LENGTH)


def test_whoever_shared_and_is_gone_needs_holders_too():
    """Its masking key is wanted, so a stage does not close without enough holders of it."""
    here = cohort(12)
    terms = here.terms(Plan(12, 1, 4, 4, 3, 0, -1.0, -1.0), LENGTH)
    gone = dict.fromkeys(sorted(terms.neighbours("c000"))[:3], Stage.SURVIVORS)
    with pytest.raises(
        ProtocolError, match="the secrets of c000 need 3 holders at stage survivors, 1 are left"
    ):
        simulate(here, terms, vectors(terms.clients), {"c000": Stage.MASKED, **gone})
