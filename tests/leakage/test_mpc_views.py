"""Views of `mpc_contextual` carry nothing: they are the same for other data, byte for byte, under a
programmed dealer.

Statistical tests run on fixed seeds, so that their verdicts do not change from run to run; level
and power are said for seeds drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from posse.core.fixed import REWARD_ONE
from posse.core.roles import WORLD, Action, Message
from posse.privacy.crypto import streams as secret_streams
from posse.privacy.crypto.keys import Secrets, hkdf
from posse.privacy.sharing import dealing as sharing_dealing
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.session import Session
from posse.privacy.sharing.values import Masked, Shared
from posse.runtime.memory import MemoryRun
from posse.systems.mpc_contextual.coins import common_key, part_of, together
from posse.systems.mpc_contextual.federation import SimulatedWorld, federation
from posse.systems.mpc_contextual.program import plan
from posse.systems.mpc_contextual.roles.dealer import DealerKeys, DealerRole
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
from posse.systems.mpc_contextual.roles.party import Party
from posse.systems.mpc_contextual.roles.puller_and_payee import Payee, Puller
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, Terms
from posse.systems.mpc_contextual.twins.twin import seeded
from tests.leakage.mpc_game import (
    SEED,
    Data,
    Floats,
    Played,
    block_of,
    check_plain,
    coins_from,
    dealer_keys,
    decoded,
    drawn,
    terms_of,
    turns_of,
)
from tests.leakage.mpc_meter import Meter, check_once
from tests.leakage.programmed_dealer import Programme, programme, programmed_streams

LEVEL = 1e-6
"""Of every statistical test, over all it looks at."""
M = TypeVar("M", bound=Message)
OTHER_COINS = b"other coins of the dealer, 32 by"


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the dealer send its corrections to another party at every step."""
    monkeypatch.setattr(sharing_dealing, "_CHUNK", 1)


# The same view with other data --------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A run, and one on other data whose honest roles have the streams that make up for it."""

    honest: str
    coalition: tuple[str, ...]
    first: Played
    second: Played
    made: Programme

    @property
    def views(self) -> list[list[tuple[int, str, str, bytes]]]:
        """What the coalition received in both."""
        return [played.view(self.coalition) for played in (self.first, self.second)]


def pair(terms: Terms, honest: str, outside: tuple[str, ...] = ()) -> Pair:
    """Run twice: other features of the honest party, other coins, and other rewards; the rest as it
    was.

    With the puller in the coalition the coins stay, and with the payee the rewards: what it may
    know is the same.
    """
    one, other = drawn(terms, 1), drawn(terms, 2)
    if PAYEE in outside:
        one = Data(one.contexts, np.broadcast_to(one.rewards[:, :1], one.rewards.shape))
    contexts = one.contexts.copy()
    contexts[:, block_of(terms, honest)] = other.contexts[:, block_of(terms, honest)]
    data = Data(contexts, one.rewards if PAYEE in outside else other.rewards)
    coins = dealer_keys(terms).coins if PULLER in outside else OTHER_COINS
    first = Played(terms, one)
    made = programme(first, honest, data, coins, outside)
    with programmed_streams(made.streams) as read:
        second = Played(terms, data, coins=coins)
    assert read == set(made.streams)
    coalition = tuple(party for party in terms.parties if party != honest) + outside
    return Pair(honest, coalition, first, second, made)


def check_correct(found: Pair) -> None:
    """Check that both runs came to what they should."""
    check_plain(found.first)
    check_plain(found.second)
    assert found.second.arms == found.made.arms
    np.testing.assert_array_equal(found.second.model, found.made.model)


def every_party(*sizes: tuple[int, int, int]) -> list[tuple[int, int, int, str]]:
    return [(*size, f"party-{number}") for size in sizes for number in range(1, size[0] + 1)]


# Ten arms look up tables of ten bits; 42 are compared in groups.
@pytest.mark.parametrize(
    ("parties", "arms", "steps", "honest"),
    every_party((2, 3, 6), (2, 5, 4), (3, 3, 6), (3, 5, 6), (4, 4, 4), (2, 10, 4), (3, 42, 4)),
)
@pytest.mark.usefixtures("turns")
def test_all_parties_but_one_see_the_same_bytes_whatever_its_features(
    parties: int, arms: int, steps: int, honest: str
) -> None:
    check_same_view(pair(terms_of(parties, arms, steps), honest))


@pytest.mark.parametrize(
    ("batch", "bonus"), [(3, ""), (1, "ucb"), (1, "thompson"), (3, "thompson")]
)
@pytest.mark.parametrize(("parties", "arms", "steps", "honest"), every_party((2, 3, 6), (3, 5, 9)))
@pytest.mark.usefixtures("turns")
def test_nor_with_batches_and_bonuses(
    parties: int, arms: int, steps: int, honest: str, batch: int, bonus: str
) -> None:
    check_same_view(pair(terms_of(parties, arms, steps, batch=batch, bonus=bonus), honest))


@pytest.mark.parametrize("bonus", ["", "ucb"])
@pytest.mark.parametrize(("parties", "arms", "steps", "honest"), every_party((2, 3, 6), (3, 5, 9)))
@pytest.mark.usefixtures("turns")
def test_nor_with_overlap(parties: int, arms: int, steps: int, honest: str, bonus: str) -> None:
    check_same_view(pair(terms_of(parties, arms, steps, overlap=True, bonus=bonus), honest))


def check_same_view(found: Pair) -> None:
    """Check that the coalition cannot tell two runs, although they differ in everything that it is
    not to know.
    """
    first, second = found.views
    assert first == second
    check_correct(found)
    assert found.first.arms != found.second.arms
    assert found.first.rewards != found.second.rewards
    assert np.abs(decoded(found.first) - decoded(found.second)).max() > 0.1
    for party in found.coalition:  # and so they end with the same shares, of another model
        np.testing.assert_array_equal(found.first.shares[party], found.second.shares[party])
    kinds = {type(message) for party in found.coalition for _, message in found.first.heard(party)}
    assert kinds == {Hello, Seed, Dealt, Opening, Choice, Payoff}


@pytest.mark.parametrize("outside", [(PULLER,), (PAYEE,), (PULLER, PAYEE)], ids="+".join)
@pytest.mark.parametrize(("parties", "arms", "steps", "honest"), every_party((2, 3, 4), (3, 5, 6)))
@pytest.mark.usefixtures("turns")
def test_with_puller_or_payee_they_see_arms_or_rewards_and_nothing_else(
    outside: tuple[str, ...], parties: int, arms: int, steps: int, honest: str
) -> None:
    """All steps explore where the puller joins, so that other features have the same arms."""
    found = pair(
        terms_of(parties, arms, steps, explore=(1, 1) if PULLER in outside else (1, 4)),
        honest,
        outside,
    )
    first, second = found.views
    assert first == second
    check_correct(found)
    assert (found.first.arms == found.second.arms) == (PULLER in outside)
    assert (found.first.rewards == found.second.rewards) == (PAYEE in outside)
    assert np.abs(decoded(found.first) - decoded(found.second)).max() > 0.1


@pytest.mark.parametrize(
    ("parties", "how"),
    [(2, {}), (3, {}), (2, {"batch": 3}), (2, {"overlap": True}), (2, {"bonus": "thompson"})],
)
def test_dealer_and_puller_see_the_arms_and_nothing_else(
    parties: int, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run with other features and rewards, and coins read elsewhere, that pulls the same arms.

    The dealer knows the tables that shares of the arm come from, so the parties' pads alone hide
    how the arms ranked.
    """
    terms = terms_of(parties, 3, 3, explore=(1, 2), **how)
    first = Played(terms, drawn(terms, 1))
    for number in range(400):
        parts = {party: hkdf(party.encode(), b"part %d" % number) for party in terms.parties}
        other = Played(terms, drawn(terms, 2 + number), parts=parts)
        if other.arms == first.arms and (other.coins.explore != first.coins.explore).any():
            break
    else:
        pytest.fail("no run with coins read elsewhere pulls the same arms")
    assert first.view([DEALER, PULLER]) != other.view([DEALER, PULLER])

    streams = pads_that_reveal(first, other, common_key(terms, parts))
    expand, read = secret_streams.keystream, set()

    def keystream(key: bytes, counter: int, length: int) -> bytes:
        if key not in streams:
            return expand(key, counter, length)
        read.add(key)
        return streams[key][16 * counter : 16 * counter + length]

    monkeypatch.setattr(secret_streams, "keystream", keystream)
    second = Played(terms, other.data, parts=parts)
    assert read == set(streams)
    assert first.view([DEALER, PULLER]) == second.view([DEALER, PULLER])
    np.testing.assert_array_equal(second.model, other.model)
    assert np.abs(decoded(first) - decoded(second)).max() > 0.01


def pads_that_reveal(first: Played, other: Played, key: bytes) -> dict[bytes, bytes]:
    """Return streams of pads for a run like `other`, with which its parties reveal the shares of
    `first`.
    """
    terms, made = first.terms, {}
    for number, party in enumerate(
        terms.parties[:-1]
    ):  # the last party's pads follow from the others'
        change = np.bitwise_xor(*(revealed(run, party) for run in (first, other)))
        stream = hkdf(key, b"posse mpc pad %d" % number)
        pads = (
            np.frombuffer(secret_streams.keystream(stream, 0, 16 * 64), np.uint8)
            .reshape(64, 16)
            .copy()
        )
        pads[: terms.steps] ^= np.packbits(np.pad(change, ((0, 0), (0, 128 - terms.arms))), axis=1)
        made[stream] = pads.tobytes()
    return made


def revealed(run: Played, party: str) -> NDArray[np.uint8]:
    """Return a party's shares of the arms, as the puller gets them: (steps, arms)."""
    said = b"".join(
        message.data
        for who, message in run.heard(PULLER)
        if who == party and isinstance(message, Reveal)
    )
    return np.frombuffer(said, np.uint8).reshape(run.terms.steps, run.terms.arms)


@pytest.mark.usefixtures("turns")
def test_dealers_corrections_follow_from_the_programme() -> None:
    """At the honest party's turns it is sent, by the dealer's own computation, what was solved
    for.
    """
    terms = terms_of(3, 5, 6)
    found = pair(terms, "party-2")
    sizes, key = plan(terms).sizes, dealer_keys(terms).tapes[found.honest]
    sent = [message for _, message in found.second.heard("party-2") if isinstance(message, Dealt)]
    assert [message.chunk for message in sent] == [1, 4]
    for message in sent:
        stream = np.frombuffer(
            found.made.streams[key, message.chunk << sharing_dealing._PASS], np.uint8
        )
        solved = sizes.cut(stream)
        dealt = np.frombuffer(message.data, np.uint8)
        sent_tracks = sizes.cut(np.concatenate([np.zeros(sizes.free_bytes, np.uint8), dealt]))
        for name in ("wide", "narrow", "table"):
            np.testing.assert_array_equal(sent_tracks[name], solved[name])


@pytest.mark.parametrize("leaking", ["mask", "truncate"])
@pytest.mark.usefixtures("turns")
def test_one_number_opened_without_mask_is_noticed(
    leaking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: everything is right and programmed as before, but one number a step has no mask."""
    if leaking == "mask":  # 1 / (1 + x.k) of the arm: the only mask of a single number, in round 9
        monkeypatch.setattr(Session, "mask", _mask_but_single_numbers)
        where = 8
    else:  # one of the directions P x, in round 2: at the first step a feature of the honest party
        monkeypatch.setattr(Session, "_mask", _mask_but_one_direction)
        where = 1
    found = pair(terms_of(3, 5, 6), "party-2")
    check_correct(found)
    assert found.first.arms != found.second.arms
    first, second = found.views
    assert [entry[:3] for entry in first] == [entry[:3] for entry in second]
    at, sender, _, _ = next(one for one, other in zip(first, second, strict=True) if one != other)
    message = next(entry.message for entry in found.first if entry.number == at)
    assert sender == found.honest
    assert isinstance(message, Opening)
    assert (message.step, message.round) == (0, where)


def _mask_but_single_numbers(s: Session, x: Shared) -> Masked:
    mask = s.tape.mask(x.shape)
    masked = Masked(s, None, np.zeros_like(mask) if x.shape == (1, 1) else mask)
    if s.opens:
        s.open(x.share - masked.mask, masked.opened)
    return masked


_drawn_mask = Session._mask


def _mask_but_one_direction(s: Session, shape: tuple[int, ...]) -> Words:
    mask = _drawn_mask(s, shape)
    if shape == (1, 5, 7):
        mask = mask.copy()
        mask[..., 0, 0, 2] = 0
    return mask


# Nothing twice ------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 256 << 10])
@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("how", [{"batch": 1}, {"batch": 3}, {"overlap": True}], ids=str)
@pytest.mark.parametrize("bonus", ["", "thompson"])
def test_everything_dealt_is_used_once(
    parties: int, chunk: int, how: dict[str, Any], bonus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing_dealing, "_CHUNK", chunk)
    terms = terms_of(parties, 5, 9, bonus=bonus, **how)
    meter = Meter(monkeypatch)
    Played(terms, drawn(terms, 1))
    check_once(meter, terms, plan(terms), dealer_keys(terms))


@pytest.mark.parametrize("place", [0, 4])
def test_streams_that_overlap_are_noticed(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: counters of two steps lie too close."""
    monkeypatch.setattr(sharing_dealing, "_PASS", place)
    terms = terms_of(2, 3, 3)
    meter = Meter(monkeypatch)
    Played(terms, drawn(terms, 1))
    with pytest.raises(AssertionError, match="streams overlap"):
        check_once(meter, terms, plan(terms), dealer_keys(terms))


# Who hears what -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_runs() -> list[Played]:
    """Three parties and three arms, 200 steps, on two seeds."""
    terms = terms_of(3, 3, 200, each=1)
    return [Played(terms, drawn(terms, seed), seed) for seed in (1, 2)]


def test_every_role_hears_what_is_meant_for_it_and_nothing_else(long_runs: list[Played]) -> None:
    heard: dict[tuple[str, ...], set[type]] = {}
    for sender, to, message in (
        (entry.sender, entry.receiver, entry.message) for entry in long_runs[0]
    ):
        names = tuple("party" if name.startswith("party") else name for name in (sender, to))
        heard.setdefault(names, set()).add(type(message))
    assert heard == {
        ("party", "party"): {Hello, Opening},
        (DEALER, "party"): {Seed, Dealt},
        (DEALER, PULLER): {Seed},
        (DEALER, PAYEE): {Seed},
        ("party", DEALER): {Want},
        ("party", PULLER): {Reveal},
        (PULLER, "party"): {Choice},
        (PULLER, PAYEE): {Pulled},
        (PAYEE, "party"): {Payoff},
        (WORLD, PULLER): {Acted},
        (WORLD, PAYEE): {Earned},
    }


def test_seeds_are_their_owners_alone(long_runs: list[Played]) -> None:
    seeds = [entry.message for entry in long_runs[0] if isinstance(entry.message, Seed)]
    assert len(seeds) == 5
    assert len({seed.inputs for seed in seeds} | {seed.tapes for seed in seeds}) == 5 + 3 + 1
    assert all(
        seed.tapes == b"" for name in (PULLER, PAYEE) for seed in _of(long_runs[0], name, Seed)
    )


def test_one_root_of_secrets_has_no_key_for_two_terms() -> None:
    """Masks of two runs of one dealer, and coins of two runs of one party, have nothing in
    common.
    """
    secrets = Secrets.fresh()
    keys: list[set[bytes]] = []
    for terms in (terms_of(2, 3, 3), terms_of(2, 3, 4)):
        dealt = DealerKeys(terms, secrets)
        keys.append(
            {*dealt.tapes.values(), *dealt.inputs.values(), dealt.coins, part_of(secrets, terms)}
        )
    assert [len(each) for each in keys] == [2 + 4 + 1 + 1] * 2
    assert not keys[0] & keys[1]


@pytest.mark.parametrize("turned", [True, False])
def test_what_coins_come_to_is_independent_of_what_the_dealer_drew(turned: bool) -> None:
    """Whether a step explores, which arm if so, and which arm wins ties or has the largest normal
    number.

    Control: without the parties' turns each follows from the dealer's draw. The twin, which pulls
    the same arms as the roles, puts both parts together in the same way.
    """
    terms = terms_of(2, 5, 4000, explore=(1, 4), bonus="thompson")
    dealt = coins_from(terms, dealer_keys(terms).coins)
    coins = together(dealt, turns_of(terms) if turned else np.zeros((4000, 4), np.int64))
    assert coins.normals is not None
    explored, its_arm = (
        coins.explore,
        np.take_along_axis(dealt.arms, dealt.explore.argmax(axis=1)[:, None], axis=1),
    )
    told = [
        (dealt.explore.argmax(axis=1), explored.astype(np.int64)),
        (its_arm[explored, 0], coins.arms[explored]),
        (dealt.ties.argmax(axis=1), coins.ties.argmax(axis=1)),
        (dealt.normals.argmax(axis=1), coins.normals.argmax(axis=1)),
    ]
    for known, hidden in told:
        table = np.zeros((known.max() + 1, hidden.max() + 1))
        np.add.at(table, (known, hidden), 1)
        assert (stats.chi2_contingency(table).pvalue > LEVEL) == turned


@pytest.mark.parametrize("changed", ["party-1", "party-2", "party-3", DEALER])
def test_where_coins_are_read_depends_on_every_partys_root_and_not_on_the_dealers(
    changed: str,
) -> None:
    """So the dealer knows neither which steps explore, nor how arms and ties are turned, nor the
    pads of the arm.
    """
    terms, keys = terms_of(3, 5, 6), list[tuple[bytes, bytes]]()
    for root in (seeded(SEED, changed), seeded(SEED + 1, changed)):
        roles: dict[str, Any] = {
            role.name: role for role in federation(terms, drawn(terms, 1).words(terms), SEED)
        }
        if changed == DEALER:
            roles[DEALER] = DealerRole(terms, plan(terms), root)
        else:
            features = roles[changed]._features
            roles[changed] = Party(changed, terms, plan(terms), features, root)
        MemoryRun(roles.values(), SimulatedWorld(drawn(terms, 1).pay)).finish()
        party = roles["party-2"]._coins
        keys.append((party._words._key, b"".join(pads._key for pads in party._pads)))
    assert (keys[0][0] == keys[1][0], keys[0][1] == keys[1][1]) == ((changed == DEALER),) * 2


def test_dealer_puller_and_payee_learn_nothing_beside_their_part() -> None:
    """With other contexts and rewards, what they hear beside arm and reward is the same, bytes and
    order.
    """
    terms = terms_of(3, 5, 6)
    one, other = (Played(terms, drawn(terms, seed)) for seed in (1, 2))
    assert one.arms != other.arms
    assert one.rewards != other.rewards
    assert one.view([DEALER]) == other.view([DEALER])
    for name, known in ((PULLER, Reveal), (PAYEE, Earned)):
        views = [
            [
                (at, who, None if isinstance(message, known) else message)
                for at, who, to, message, *_ in run
                if to == name
            ]
            for run in (one, other)
        ]
        assert views[0] == views[1]
    assert Pulled.__struct_fields__ == ("step",)
    assert msgspec.msgpack.encode(Pulled(3)) == msgspec.msgpack.encode(("Pulled", 3))
    assert [message.step for message in _of(one, PAYEE, Pulled)] == list(range(terms.steps))


def test_masked_arms_and_rewards_never_repeat(long_runs: list[Played]) -> None:
    """The same arm or reward comes in hundreds of steps, and in no two as the same words."""
    kinds: list[tuple[type[Choice | Payoff], int]] = [(Choice, 24), (Payoff, 8)]
    for kind, size in kinds:
        said = [[message.data for message in _of(run, "party-1", kind)] for run in long_runs]
        for party in ("party-2", "party-3"):
            assert said == [
                [message.data for message in _of(run, party, kind)] for run in long_runs
            ]
        words = np.frombuffer(b"".join(said[0] + said[1]), np.uint64)
        assert len(words) == 2 * 200 * size // 8
        assert len(np.unique(words)) == len(words)


def _of(run: Played, member: str, kind: type[M]) -> list[M]:
    return [message for _, message in run.heard(member) if isinstance(message, kind)]


@pytest.mark.parametrize(
    "some", [some for size in (1, 2) for some in combinations(range(1, 4), size)]
)
def test_shares_of_the_arm_are_uniform_without_one(
    some: tuple[int, ...], long_runs: list[Played]
) -> None:
    """Patterns of three bits over 400 steps, alone and beside the arm: chi-square with 7 and 14
    degrees of freedom.

    A bit of frequency 0.72 is found with 99 %; all shares together, the control, are one-hot.
    """
    arms = np.concatenate([run.arms for run in long_runs])
    table = np.zeros((3, 8))
    np.add.at(table, (arms, _patterns(long_runs, some)), 1)
    assert stats.chisquare(table.sum(axis=0)).pvalue > LEVEL
    assert table.sum(axis=1).min() > 40
    assert stats.chi2_contingency(table).pvalue > LEVEL
    np.testing.assert_array_equal(_patterns(long_runs, (1, 2, 3)), 1 << arms)


def _patterns(runs: Sequence[Played], some: Sequence[int]) -> NDArray[np.int64]:
    """Return the XOR of some parties' shares of the one-hot vector, as a number a step."""
    found = []
    for run in runs:
        shares = dict.fromkeys(run.terms.parties, b"")
        for sender, message in run.heard(PULLER):
            if isinstance(message, Reveal):
                shares[sender] += message.data
        bits = [
            np.frombuffer(shares[f"party-{number}"], np.uint8).reshape(-1, 3) for number in some
        ]
        found.append(np.bitwise_xor.reduce(bits) @ np.array([1, 2, 4]))
    return np.concatenate(found)


# Masked inputs ------------------------------------------------------------------------------------

SEEDS, STEPS = 500, 16


def test_masked_arm_does_not_depend_on_the_arm() -> None:
    assert not _differ(_choices(0, 0), _choices(1, SEEDS))
    assert not _differ(_choices(0, 0)[:, 0:1], _choices(2, SEEDS)[:, 2:3])


def test_masked_reward_does_not_depend_on_the_reward() -> None:
    assert not _differ(_payoffs(0, 0), _payoffs(REWARD_ONE, SEEDS))


def test_a_mask_that_leans_is_noticed() -> None:
    """Control: no mask; one bit of one word with frequency 0.57 (of 100 such masks at least 95 are
    found).
    """
    arms = np.zeros((2, SEEDS * STEPS, 3), np.uint64)
    arms[0, :, 0] = arms[1, :, 1] = 1
    assert _differ(arms[0], arms[1])
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(100):
        one, other = rng.integers(0, 2**64, (2, SEEDS * STEPS, 3), np.uint64)
        other[:, 1] |= (rng.random(len(other)) < 0.14).astype(np.uint64) << np.uint64(40)
        found += _differ(one, other)
    assert found >= 95


def _choices(arm: int, first: int) -> Words:
    """Return what the puller sends for an arm, over many seeds and steps."""
    terms = terms_of(2, 3, STEPS)
    hot = np.eye(3, dtype=np.uint8)[arm].tobytes()
    rows = []
    for seed in range(first, first + SEEDS):
        puller = Puller(terms)
        puller.receive(DEALER, Seed(terms.digest(), b"", dealer_keys(terms, seed).inputs[PULLER]))
        for step in range(STEPS):
            puller.receive("party-1", Reveal(step, bytes(3)))
            puller.receive("party-2", Reveal(step, hot))
            rows.append(_sent(puller.receive(WORLD, Acted(step)), Choice).data)
        assert puller.arms.tolist() == [arm] * STEPS
    return np.frombuffer(b"".join(rows), np.uint64).reshape(-1, 3)


def _payoffs(units: int, first: int) -> Words:
    """Return what the payee sends for a reward, over many seeds and steps."""
    terms = terms_of(2, 3, STEPS)
    rows = []
    for seed in range(first, first + SEEDS):
        payee = Payee(terms)
        payee.receive(DEALER, Seed(terms.digest(), b"", dealer_keys(terms, seed).inputs[PAYEE]))
        for step in range(STEPS):
            payee.receive(PULLER, Pulled(step))
            rows.append(_sent(payee.receive(WORLD, Earned(step, units)), Payoff).data)
        assert payee.rewards.tolist() == [units] * STEPS
    return np.frombuffer(b"".join(rows), np.uint64).reshape(-1, 1)


def _sent(actions: Sequence[Action], kind: type[M]) -> M:
    """Return what is sent to the first party."""
    return next(one[2] for one in actions if isinstance(one, tuple) and isinstance(one[2], kind))


def _differ(one: Words, other: Words) -> bool:
    """Say whether any bit has another frequency in two samples: two proportions a bit, level shared
    among all bits.

    With 8,000 a side and 192 bits a bit that moves by 0.07 is found with 99 %.
    """
    p, q = _bits(one).mean(axis=0), _bits(other).mean(axis=0)
    middle = (p + q) / 2
    error = np.sqrt(np.maximum(middle * (1 - middle), 1e-12) * (1 / len(one) + 1 / len(other)))
    return bool(2 * stats.norm.sf(np.abs(p - q) / error).min() * p.size < LEVEL)


def _bits(words: Words) -> NDArray[np.uint8]:
    """Return words as bits, a row a sample."""
    return np.unpackbits(
        np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1), axis=-1
    )


# Shares of the model ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models() -> dict[str, Words]:
    """Every party's shares of the model after a run of six steps, over twenty seeds, and the model
    itself.
    """
    terms = terms_of(3, 5, 6)
    runs = [Played(terms, drawn(terms, seed), seed) for seed in range(20)]
    shares = {
        name: np.concatenate([run.shares[name].ravel() for run in runs]) for name in terms.parties
    }
    return {**shares, "model": np.concatenate([run.model.ravel() for run in runs])}


@pytest.mark.parametrize(
    "some", [some for size in (1, 2) for some in combinations(range(1, 4), size)]
)
def test_shares_of_the_model_are_uniform_without_one(
    some: tuple[int, ...], models: dict[str, Words]
) -> None:
    """2,700 words: how often each of 64 bits is 1, in the sum of some shares and in its XOR with
    the model.

    Chi-square with 64 degrees of freedom; a bit of frequency 0.62, or one that agrees with the
    model's so often, is found with 99 %. Each party's words are also all different, and the XOR of
    two parties' as uniform.
    """
    words = np.sum([models[f"party-{number}"] for number in some], axis=0, dtype=np.uint64)
    assert words.shape == (2700,)
    assert _unfair(words) > LEVEL
    assert _unfair(words ^ models["model"]) > LEVEL
    assert len(np.unique(words)) == 2700
    if len(some) == 2:
        assert _unfair(models[f"party-{some[0]}"] ^ models[f"party-{some[1]}"]) > LEVEL


def test_the_model_itself_is_not_uniform(models: dict[str, Words]) -> None:
    """Control: the sum of all shares; and shares of which one bit leans to 0.62."""
    total: Words = np.sum(
        [models[f"party-{number}"] for number in (1, 2, 3)], axis=0, dtype=np.uint64
    )
    np.testing.assert_array_equal(total, models["model"])
    assert _unfair(total) < LEVEL
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(100):
        words: Words = rng.integers(0, 2**64, 2700, np.uint64)
        words |= (rng.random(2700) < 0.24).astype(np.uint64) << np.uint64(17)
        found += _unfair(words) < LEVEL
    assert found >= 95


def _unfair(words: Words) -> float:
    """Return the p-value of fair and independent bits."""
    ones = _bits(words).sum(axis=0)
    chi: Floats = (ones - len(words) / 2) ** 2 / (len(words) / 4)
    return float(stats.chi2.sf(chi.sum(), 64))


def test_seed_of_the_runs_is_the_one_that_is_programmed() -> None:
    """The programme is for the very streams of the run: with another seed they are not read."""
    terms = terms_of(2, 3, 2)
    first = Played(terms, drawn(terms, 1))
    made = programme(first, "party-1", drawn(terms, 1), dealer_keys(terms).coins)
    assert made.arms == first.arms
    np.testing.assert_array_equal(made.model, first.model)
    with programmed_streams(made.streams) as read:
        Played(terms, drawn(terms, 1), SEED + 1)
    assert not read
