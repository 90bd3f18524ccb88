"""The consent's limits cannot be passed by any sequence of proposals, kills and repetitions."""

from __future__ import annotations

import contextlib
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from posse.core.errors import BudgetError, ConfigError, JournalError
from posse.runtime.federation.consent import Consent, Demand, Ledger

CONSENT = Consent(
    systems=("samba", "market"),
    levels=("strict",),
    policies=("ucb", "p-fcb"),
    budget=50,
    budget_in_all=120,
    epsilon=1.0,
    epsilon_in_all=2.5,
    delta_in_all=0.02,
    runs=6,
)
demands = st.builds(
    Demand,
    st.sampled_from(["samba", "market", "other"]),
    st.sampled_from(["strict", "strict", "paper"]),
    st.sampled_from(["ucb", "p-fcb", "own"]),
    st.integers(0, 70),
    st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.5, math.inf]),
    st.sampled_from([0.0, 0.005, 0.01]),
)


class Proposals(RuleBasedStateMachine):
    """Proposes, starts, drops, repeats and kills in any order; `took` is what the member really
    took part in.
    """

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.ledger = Ledger(Path(self._folder.name))
        self.proposed: dict[str, Demand] = {}
        self.took: dict[str, int] = {}

    def teardown(self) -> None:
        self._folder.cleanup()

    @rule(demand=demands, proposer=st.sampled_from(["customer", "stranger"]))
    def propose(self, demand: Demand, proposer: str) -> None:
        digest = f"{len(self.proposed):032x}"
        self.proposed[digest] = demand
        self._reserve(digest, proposer)

    @rule(number=st.integers(0, 20), proposer=st.sampled_from(["customer", "stranger"]))
    def propose_again(self, number: int, proposer: str) -> None:
        if self.proposed:
            self._reserve(f"{number % len(self.proposed):032x}", proposer)

    def _reserve(self, digest: str, proposer: str) -> None:
        with contextlib.suppress(BudgetError):
            self.ledger.reserve(digest, self.proposed[digest], CONSENT, proposer, "customer")

    @rule(number=st.integers(0, 20))
    def start(self, number: int) -> None:
        if self.proposed:
            digest = f"{number % len(self.proposed):032x}"
            try:
                self.ledger.start(digest)
                self.took[digest] = 1
            except BudgetError:
                assert digest not in self.took

    @rule(number=st.integers(0, 20))
    def drop(self, number: int) -> None:
        self.ledger.release(f"{number:032x}")

    @rule()
    def kill(self) -> None:
        self.ledger = Ledger(Path(self._folder.name))

    @invariant()
    def within(self) -> None:
        took = [self.proposed[digest] for digest in self.took]
        assert len(took) <= 6
        assert sum(one.decisions for one in took) <= 120
        assert math.fsum(one.epsilon for one in took) <= 2.5
        assert math.fsum(one.delta for one in took) <= 0.02
        for one in took:
            assert (one.level, one.decisions <= 50, one.epsilon <= 1.0) == ("strict", True, True)
            assert one.system in ("samba", "market")
            assert one.policy in ("ucb", "p-fcb")


TestProposals = Proposals.TestCase
TestProposals.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


FITS = Demand("samba", "strict", "ucb", 10, 0.1, 0.01, 0.5)
LIMITS: dict[str, tuple[object, int]] = {
    "customers": (("bank",), 0),
    "systems": (("market",), 0),
    "levels": (("paper",), 0),
    "policies": (("thompson",), 0),
    "budget": (9, 0),
    "budget_in_all": (29, 2),
    "epsilon": (0.09, 0),
    "epsilon_in_all": (0.25, 2),
    "delta_in_all": (0.025, 2),
    "price": (0.6, 0),
    "runs": (2, 2),
}
"""Of every limit: a value, and how many runs like that fit within it."""


@pytest.mark.parametrize("name", Consent.model_fields)
def test_every_limit_alone_refuses_the_run_that_passes_it(name: str, tmp_path: Path) -> None:
    """Also where the member was restarted in between; without the limit the same runs are all
    taken.
    """
    value, fitting = LIMITS[name]
    limited = Consent.make({name: value})
    for number in range(fitting):
        Ledger(tmp_path).reserve(str(number), FITS, limited, "customer", "customer")
    with pytest.raises(BudgetError):
        Ledger(tmp_path).reserve("more", FITS, limited, "customer", "customer")
    assert Ledger(tmp_path).spent.runs == fitting
    Ledger(tmp_path).reserve("more", FITS, Consent(), "customer", "customer")
    spent = Ledger(tmp_path).spent
    assert (spent.runs, spent.decisions) == (fitting + 1, 10 * (fitting + 1))
    assert (spent.epsilon, spent.delta) == pytest.approx(
        (0.1 * (fitting + 1), 0.01 * (fitting + 1))
    )


def test_one_run_more_fits_exactly(tmp_path: Path) -> None:
    ledger, consent = Ledger(tmp_path), Consent(budget_in_all=100)
    ledger.reserve("a", Demand("s", "l", "p", 60), consent, "customer", "customer")
    with pytest.raises(BudgetError, match="decisions would be 101; budget_in_all is 100"):
        ledger.reserve("b", Demand("s", "l", "p", 41), consent, "customer", "customer")
    ledger.reserve("b", Demand("s", "l", "p", 40), consent, "customer", "customer")
    ledger.release("a")
    ledger.start("b")
    ledger.release("b")
    assert ledger.spent.decisions == Ledger(tmp_path).spent.decisions == 40


def test_a_run_that_started_is_not_started_again_on_the_same_entry(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.reserve("a", Demand("s", "l", "p", 60), Consent(), "customer", "customer")
    ledger.start("a")
    with pytest.raises(BudgetError, match="started here before"):
        Ledger(tmp_path).reserve("a", Demand("s", "l", "p", 60), Consent(), "customer", "customer")


def test_a_run_without_differential_privacy_is_beyond_any_epsilon(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="proves no differential privacy; epsilon_in_all is 5"):
        Ledger(tmp_path).reserve(
            "a", Demand("s", "l", "p", 1), Consent(epsilon_in_all=5), "customer", "customer"
        )


def test_who_may_propose(tmp_path: Path) -> None:
    demand = Demand("s", "l", "p", 1)
    Consent(customers=("bank",)).check(demand, "bank", "customer")
    with pytest.raises(BudgetError, match="customers allows bank, got 'customer'"):
        Consent(customers=("bank",)).check(demand, "customer", "customer")


def test_a_damaged_ledger_stops_the_member_and_is_not_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text('{"runs": {"a"')
    with pytest.raises(JournalError, match="restore it from a copy"):
        Ledger(tmp_path)


def test_a_ledger_restored_twice_still_waits_for_the_founder(tmp_path: Path) -> None:
    older = {"runs": {}, "started": []}
    Ledger(tmp_path).adopt(older, newest=False)
    Ledger(tmp_path).adopt(older, newest=True)
    assert Ledger(tmp_path).restored
    Ledger(tmp_path).recall({"a": Demand("s", "l", "p", 5)}, whole=False)
    assert Ledger(tmp_path).restored
    Ledger(tmp_path).recall({})
    assert not Ledger(tmp_path).restored
    assert Ledger(tmp_path).spent.decisions == 5


def test_a_limit_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="budget must be at least 0"):
        Consent.make({"budget": -1})


def test_a_decision_is_paid_no_less_than_the_consent_asks_for() -> None:
    asks, demand = Consent(price=0.05), Demand("samba", "strict", "ucb", 10, price=0.05)
    asks.check(demand, "customer", "customer")
    for less in (
        Demand("samba", "strict", "ucb", 10, price=0.04),
        Demand("samba", "strict", "ucb", 10),
    ):
        with pytest.raises(BudgetError, match=r"a decision; price is 0\.05"):
            asks.check(less, "customer", "customer")
    with pytest.raises(ConfigError, match="price"):
        Consent(price=-1)
