"""What roles refuse, and that a refusal leaves them as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from posse.core.errors import (
    ConfigError,
    DisagreementError,
    JournalError,
    PosseError,
    ProtocolError,
)
from posse.core.roles import Message, Role
from posse.privacy.sharing.fixed import FixedPoint
from posse.runtime.memory import MemoryRun
from posse.systems.mpc_contextual.coins import PartyCoins
from posse.systems.mpc_contextual.federation import SimulatedWorld, federation
from posse.systems.mpc_contextual.program import plan
from posse.systems.mpc_contextual.roles.messages import (
    Acted,
    Choice,
    Dealt,
    Earned,
    Hello,
    Opening,
    Payoff,
    Pulled,
    Reveal,
    Seed,
    Want,
)
from posse.systems.mpc_contextual.terms import Terms, largest_steps

TERMS = Terms("test", ("a", "b", "c"), (2, 1, 1), 4, 12, (1, 4), bits=20)


def features(terms: Terms = TERMS, seed: int = 1) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(terms.steps, terms.dimension))
    return FixedPoint(terms.bits, 1.0).encode(x / np.linalg.norm(x, axis=1, keepdims=True))


def run_of(terms: Terms = TERMS) -> MemoryRun:
    return MemoryRun(
        federation(terms, features(terms), 7),
        SimulatedWorld(lambda step, arm: (step + arm) % 2 << 24),
    )


def half_way(messages: int) -> MemoryRun:
    run = run_of()
    for _ in range(messages):
        run.deliver()
    return run


def refuse(
    role: Role, sender: str, message: Message, kind: type[PosseError] = ProtocolError
) -> None:
    before = role.save()
    with pytest.raises(kind):
        role.receive(sender, message)
    assert role.save() == before


DIGEST = TERMS.digest()

BAD: dict[str, tuple[str, str, Callable[[Any], Message]]] = {
    "a hello of the dealer": ("a", "dealer", lambda r: Hello(DIGEST, bytes(32))),
    "a second hello": ("a", "b", lambda r: Hello(DIGEST, bytes(32))),
    "a second seed": ("a", "dealer", lambda r: Seed(DIGEST, bytes(32), bytes(32))),
    "a seed of a peer": ("a", "b", lambda r: Seed(DIGEST, bytes(32), bytes(32))),
    "an opening out of turn": ("a", "b", lambda r: Opening(r.step + 3, 0, bytes(8))),
    "an opening of the wrong size": ("a", "b", lambda r: Opening(*r._following("b"), bytes(3))),
    "an opening of the puller": ("a", "puller", lambda r: Opening(r.step, 0, bytes(8))),
    "a choice of a party": ("a", "b", lambda r: Choice(r.step, bytes(32))),
    "a choice of the wrong size": (
        "a",
        "puller",
        lambda r: Choice(r._following("puller")[0], bytes(31)),
    ),
    "a payoff of the puller": ("a", "puller", lambda r: Payoff(r.step, bytes(8))),
    "a chunk again": ("a", "dealer", lambda r: Dealt(0, bytes(8))),
    "a chunk of another party": ("a", "dealer", lambda r: Dealt(1, bytes(8))),
    "a reveal to the dealer": ("dealer", "a", lambda r: Reveal(0, bytes(4))),
    "a want of the puller": ("dealer", "puller", lambda r: Want(9)),
    "a want too far": ("dealer", "a", lambda r: Want(10**15)),
    "a want again": ("dealer", "a", lambda r: Want(0)),
    "a reveal out of turn": ("puller", "a", lambda r: Reveal(9, bytes(4))),
    "a reveal of the wrong size": (
        "puller",
        "a",
        lambda r: Reveal(r._passes + len(r._shares["a"]), bytes(5)),
    ),
    "an act that was not asked for": ("puller", "world", lambda r: Acted(r.step + 1)),
    "a pull told by a party": ("payee", "a", lambda r: Pulled(r.pulled)),
    "a pull told twice": ("payee", "puller", lambda r: Pulled(0)),
    "a reward that was not asked for": ("payee", "world", lambda r: Earned(r.step + 1, 0)),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("messages", [150, 333])
def test_what_the_protocol_does_not_allow_is_refused_and_changes_nothing(
    case: str, messages: int
) -> None:
    run = half_way(messages)
    name, sender, make = BAD[case]
    refuse(run.roles[name], sender, make(run.roles[name]))
    run.finish()
    assert all(role.finished for role in run.roles.values())


@pytest.mark.parametrize("name", ["a", "puller", "payee"])
def test_other_terms_stop_a_role(name: str) -> None:
    role = run_of().roles[name]
    refuse(role, "dealer", Seed(bytes(32), bytes(32), bytes(32)), DisagreementError)


@pytest.mark.parametrize("name", ["a", "puller", "payee"])
def test_a_damaged_seed_is_refused(name: str) -> None:
    refuse(run_of().roles[name], "dealer", Seed(DIGEST, bytes(32), bytes(5)))


def test_shares_that_do_not_make_one_arm_stop_the_puller_and_change_nothing() -> None:
    puller = run_of().roles["puller"]
    puller.receive("dealer", Seed(DIGEST, b"", bytes(32)))
    puller.receive("a", Reveal(0, bytes(4)))
    puller.receive("b", Reveal(0, bytes(4)))
    refuse(puller, "c", Reveal(0, bytes(4)), DisagreementError)
    assert puller.receive("c", Reveal(0, b"\x00\x01\x00\x00"))


def test_a_party_with_other_features_does_not_take_up_a_run() -> None:
    saved = half_way(200).roles["a"].save()
    other = next(role for role in federation(TERMS, features(seed=2), 7) if role.name == "a")
    with pytest.raises(JournalError, match="'a' began this run with other features"):
        other.load(saved)


def test_pads_are_random_and_cancel() -> None:
    coins = PartyCoins(TERMS, bytes(range(32)))
    pads = [coins.pad(party, 3, 500) for party in range(3)]
    assert (pads[0] ^ pads[1] ^ pads[2] == 0).all()
    for pad in pads:
        assert abs(pad.mean() - 0.5) < 5 * 0.5 / np.sqrt(
            pad.size
        )  # chance of a false alarm below 1e-6
    assert (coins.pad(0, 5, 1) == pads[0][2]).all()
    assert not (coins.pad(0, 6, 1) == pads[0][2]).all()


def test_what_is_revealed_makes_one_arm() -> None:
    """That it is padded: `tests/leakage/test_mpc_views.py`, dealer and puller."""
    run = MemoryRun(
        federation(TERMS, features(), 7), SimulatedWorld(lambda step, arm: 0), transcript=100_000
    )
    run.finish()
    assert run.transcript is not None
    shares = {
        (e.sender, e.message.step): e.message.data
        for e in run.transcript
        if isinstance(e.message, Reveal)
    }
    total = [
        np.bitwise_xor.reduce([np.frombuffer(shares[p, t], np.uint8) for p in TERMS.parties])
        for t in range(TERMS.steps)
    ]
    assert (np.sum(total, axis=1) == 1).all()


@pytest.mark.parametrize("bits", [12, 20, 26])
def test_runs_too_long_for_their_bits_are_refused(bits: int) -> None:
    most = largest_steps(bits)
    Terms("r", ("a", "b"), (1, 1), 2, most, (1, 2), bits=bits)
    with pytest.raises(ConfigError, match="Take fewer steps"):
        Terms("r", ("a", "b"), (1, 1), 2, most + 1, (1, 2), bits=bits)
    with pytest.raises(ConfigError, match="bits must be in"):
        Terms("r", ("a", "b"), (1, 1), 2, 2, (1, 2), bits=27)
    places = [
        Terms("r", ("a", "b"), (1, 1), arms, 2, (1, 2)).tie_bits for arms in (2, 3, 4, 5, 8, 9)
    ]
    assert places == [1, 2, 2, 3, 3, 4]  # every arm has a place of its own


@pytest.mark.parametrize("arms", [2, 128, 129, 257])
def test_every_arm_has_a_bit_of_the_pads(arms: int) -> None:
    coins = PartyCoins(Terms("r", ("a", "b"), (1, 1), arms, 2, (0, 1)), bytes(32))
    assert coins.pad(0, 0, 2).shape == (2, arms)


@pytest.mark.parametrize(
    "parties", [("a",), ("a", "dealer"), ("a", "puller"), ("a", "payee"), ("a", "a")]
)
def test_parties_that_cannot_be(parties: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        Terms("r", parties, tuple(1 for _ in parties), 2, 2, (1, 2))


def test_a_plan_is_a_function_of_the_terms() -> None:
    assert plan(TERMS) == plan(TERMS)
