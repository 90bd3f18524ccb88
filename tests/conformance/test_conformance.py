"""Parties that were written from the specification alone, in runs with the package's parties."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from posse.policies import UCB, EpsilonGreedy, Policy, Pursuit, Softmax, Thompson
from tests.conformance.adapter import Adapted
from tests.specification.vectors import CASES, FOLDER, Case, Run

KINDS = ("owner-1", "owner-2", "controller", "comp", "dealer", "customer")


def links(messages: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the messages of each link, in order."""
    by_link: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        by_link.setdefault(f"{message['from']} -> {message['to']}", []).append(message)
    return by_link


def played(case: Case, *adapted: str) -> dict[str, list[dict[str, Any]]]:
    run = Run(case)
    run.play({name: lambda name=name: Adapted(run, name) for name in adapted})  # type: ignore[misc]
    messages = [run.described(*send) for send in run.sends]
    return links(json.loads(json.dumps(messages)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("party", KINDS)
def test_a_role_sends_the_messages_of_the_vectors(name: str, party: str) -> None:
    stored = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert played(CASES[name], party) == links(stored["messages"])


@pytest.mark.parametrize("name", CASES)
def test_the_customer_accepts_the_total(name: str) -> None:
    stored = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    run = Run(CASES[name])
    customer = Adapted(run, "customer")
    run.play({"customer": lambda: customer})
    assert customer.role.total == stored["total_units"]


@pytest.mark.parametrize("number", range(50))
def test_all_roles_together_equal_the_package_on_random_settings(number: int) -> None:
    draws = np.random.default_rng(number)
    policies: list[Policy] = [UCB(), Thompson(), EpsilonGreedy(0.3), Softmax(0.2), Pursuit()]
    owners = int(draws.integers(2, 40))
    case = Case(
        policies[int(draws.integers(len(policies)))],
        owners,
        owners + int(draws.integers(1, 6)),
        slot=float(draws.integers(2)),
        slow=((f"owner-{int(draws.integers(owners)) + 1}", 0),),
    )
    run = Run(case)
    everyone = run.names
    assert played(case, *everyone) == played(case)
