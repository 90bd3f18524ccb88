"""Blocks: composed within, not across."""

from __future__ import annotations

import pytest

from posse.core.errors import ConfigError
from posse.privacy.dp import Spending, composed_epsilon, gaussian_event

EVENT, STRONGER = gaussian_event(2.0), gaussian_event(1.0)


def test_one_block_is_sequential() -> None:
    spent = Spending(0.01)
    for count in (1, 2, 3):
        assert spent.record("all", EVENT) == composed_epsilon([EVENT] * count, 0.01)
    assert spent.releases == 3


def test_blocks_are_parallel() -> None:
    spent = Spending(0.01)
    spent.record("a", EVENT)
    assert spent.record("b", STRONGER) == composed_epsilon([STRONGER], 0.01)
    assert spent.record("c", EVENT) == spent.epsilon == composed_epsilon([STRONGER], 0.01)


def test_a_quote_changes_nothing() -> None:
    spent = Spending(0.01)
    spent.record("a", EVENT)
    before = spent.epsilon
    assert spent.quote("a", STRONGER) > before
    assert (spent.epsilon, spent.releases) == (before, 1)
    assert spent.quote("a", STRONGER) == spent.record("a", STRONGER)


def test_a_bad_delta_is_refused() -> None:
    with pytest.raises(ConfigError, match="delta"):
        Spending(0)
