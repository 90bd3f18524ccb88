"""Views of level `strict` carry nothing: under a programmed dealer, permutations included, they are
the same byte for byte while scores, arms and rewards of the others differ; and each row of the
table of who together learns what.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from posse.core.fixed import REWARD_ONE
from posse.core.random import REWARD, uniform
from posse.policies import UCB, EpsilonGreedy, Policy, Pursuit, Thompson
from posse.privacy.sharing import shuffle
from posse.privacy.sharing.shuffle import First, Second
from posse.systems.samba.kernels import tossed
from posse.systems.samba.strict import controller as strict_controller
from posse.systems.samba.strict import lane as strict_lane
from posse.systems.samba.strict.comp import Comp
from tests.kit.strict_game import Game, Played, Programme, World

POLICIES: dict[str, Policy] = {
    "ucb": UCB(),
    "thompson": Thompson(),
    "pursuit": Pursuit(0.05),
    "epsilon-greedy": EpsilonGreedy(0.4),
}
GREEDY = EpsilonGreedy(0.0)


@pytest.fixture(autouse=True)
def chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks, so that a run has several."""
    monkeypatch.setattr(shuffle, "_CHUNK", 1 << 10)
    for module in (shuffle, strict_controller):
        monkeypatch.setattr(module, "PAIRS", 64)


def bernoulli(seed: int) -> World:
    """All arms alike: what is chosen follows from rewards."""
    return lambda owner, number: (
        REWARD_ONE * int(uniform(np.uint64(seed), REWARD, owner, number, 0) < 0.5)
    )


def graded(seed: int) -> World:
    """Rewards spread over [0, 1], those of every second owner higher: no two worlds share a
    score.
    """

    def pay(owner: int, number: int) -> int:
        drawn = uniform(np.uint64(seed), REWARD, owner, number, 0)
        return int((0.7 * drawn + 0.3 * (owner % 2 == seed % 2)) * REWARD_ONE)

    return pay


def two_pay(lead: int) -> World:
    """The first two owners earn one half and more, `lead` most, the others nothing: a greedy policy
    takes no other.
    """

    def pay(owner: int, number: int) -> int:
        drawn = uniform(np.uint64(lead), REWARD, owner, number, 0)
        return (
            int((0.75 if owner == lead else 0.5) * REWARD_ONE + drawn * REWARD_ONE / 4)
            if owner < 2
            else 0
        )

    return pay


def pair(
    game: Game, worlds: tuple[World, World], server: str, honest: range
) -> tuple[Played, Played]:
    """Run in one world, then in another with streams that make up for it.

    Checks that they differ in everything that is not to be seen, for the owners that are honest.
    """
    first = game.play(worlds[0])
    other = game.play(worlds[1])
    made = Programme(first, other.numbers())
    streams = made.for_controller() if server == "controller" else made.for_comp()
    if server == "controller":
        made.sums(other, [first.names[i] for i in honest])
        streams = made.streams
    second = game.play(worlds[1], streams)
    assert (second.arms, second.rewards, second.total) == (other.arms, other.rewards, other.total)
    assert first.arms != second.arms
    assert first.rewards != second.rewards
    scores = first.numbers() != other.numbers()
    assert scores[:, list(honest)].any(axis=0).sum() >= 2
    assert not scores[:, [i for i in range(scores.shape[1]) if i not in honest]].any()
    return first, second


@pytest.mark.parametrize("server", ["controller", "comp"])
@pytest.mark.parametrize(("owners", "budget"), [(2, 60), (5, 25), (10, 30), (40, 52)])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_server_sees_the_same_bytes_whatever_the_scores(
    policy: str, owners: int, budget: int, server: str
) -> None:
    game = Game(POLICIES[policy], owners, budget)
    first, second = pair(game, (graded(1), graded(2)), server, range(owners))
    assert first.view(server) == second.view(server)


@pytest.mark.parametrize("server", ["controller", "comp", "dealer"])
def test_nor_whichever_steps_explore_and_ties_win(server: str) -> None:
    """The owners toss other coins, and draw other tie orders and scores of their own."""
    game = Game(EpsilonGreedy(0.4), 5, 25, seed=5)
    first, make = game.play(graded(1)), game.make

    def roles_with_other_draws() -> list[Any]:
        roles: list[Any] = make()
        for owner in roles[-5:]:
            owner._world_seed = 6
        return roles

    game.make = roles_with_other_draws
    other = game.play(graded(1))
    made = Programme(first, other.numbers())
    streams: dict[bytes, bytes] = {}
    if server == "controller":
        made.for_controller()
        made.sums(other, first.names)
        streams = made.streams
    elif server == "comp":
        streams = made.for_comp()
    second = game.play(graded(1), streams)
    explored = [[tossed(np.uint64(seed), step, 0.4) for step in range(5, 25)] for seed in (5, 6)]
    assert explored[0] != explored[1]
    assert second.arms == other.arms != first.arms
    assert first.view(server) == second.view(server)


@pytest.mark.parametrize("server", ["controller", "comp"])
@pytest.mark.parametrize("owners", [3, 6, 20])
def test_nor_with_all_owners_but_two(server: str, owners: int) -> None:
    game = Game(GREEDY, owners, owners + 15)
    first, second = pair(game, (two_pay(0), two_pay(1)), server, range(2))
    coalition = (server, *first.names[2:])
    assert first.view(*coalition) == second.view(*coalition)
    assert {0, 1} <= set(first.arms[owners:]) | set(second.arms[owners:]) <= {0, 1}


@pytest.mark.parametrize("server", ["controller", "comp"])
def test_a_server_and_the_customer_see_the_sum_alone(server: str) -> None:
    """Two worlds with the same total: controller and customer, or comp and customer, cannot tell
    them.
    """
    game = Game(UCB(), 4, 24)
    totals: dict[float, int] = {}
    for seed in range(100):
        found = game.play(bernoulli(seed))
        if found.total in totals and game.play(bernoulli(totals[found.total])).arms != found.arms:
            break
        totals[found.total] = seed
    worlds = bernoulli(totals[found.total]), bernoulli(seed)
    first, second = pair(game, worlds, server, range(4))
    assert first.total == second.total
    assert first.view(server, "customer") == second.view(server, "customer")


def test_the_dealer_sees_the_number_of_comparisons_and_nothing_else() -> None:
    game = Game(UCB(), 6, 30)
    first, second = game.play(bernoulli(1)), game.play(bernoulli(2))
    assert first.arms != second.arms
    assert first.view("dealer") == second.view("dealer")


@pytest.mark.parametrize("policy", POLICIES)
def test_nor_where_that_number_depends_on_an_order(policy: str) -> None:
    """The dealer knows both permutations, and not in which order the controller takes places."""
    game = Game(POLICIES[policy], 40, 60)
    first, other = game.play(graded(1)), game.play(graded(2))
    second = game.play(graded(2), Programme(first, other.numbers()).for_dealer())
    assert second.arms == other.arms != first.arms
    assert first.view("dealer") == second.view("dealer") != other.view("dealer")


@pytest.mark.parametrize("owners", [3, 20])
def test_nor_the_dealer_with_all_owners_but_two(owners: int) -> None:
    game = Game(GREEDY, owners, owners + 15)
    first, other = game.play(two_pay(0)), game.play(two_pay(1))
    second = game.play(
        two_pay(1), Programme(first, other.numbers()).for_dealer() if owners > 16 else None
    )
    coalition = ("dealer", *first.names[2:])
    assert second.arms == other.arms != first.arms
    assert first.view(*coalition) == second.view(*coalition)


def test_an_owner_and_the_customer_see_what_is_left_of_the_total() -> None:
    """Worlds in which the owner's own arm and the total are the same: all else may differ."""
    game, found = Game(GREEDY, 4, 20), dict[float, Played]()
    for seed in range(200):
        world = bernoulli(seed)
        played = game.play(lambda owner, number, pay=world: 0 if owner == 3 else pay(owner, number))  # type: ignore[misc]
        before = found.setdefault(played.total, played)
        if played.arms.count(3) == before.arms.count(3) == 1 and played.arms != before.arms:
            break
    assert before.total == played.total
    coalition = ("customer", "owner-4")
    assert before.rewards != played.rewards
    assert before.view(*coalition) == played.view(*coalition)


@pytest.mark.parametrize("owner", [0, 3])
def test_an_owner_sees_its_own_bits_and_nothing_else(owner: int) -> None:
    """Its view is a function of when it was chosen: in two worlds in which that is the same, the
    bytes are the same.
    """
    game = Game(GREEDY, 5, 25)
    first, second = game.play(two_pay(0)), game.play(two_pay(1))
    name = first.names[owner]
    same = first.view(name) == second.view(name)
    assert same == (owner > 1)
    assert first.arms != second.arms


# Who together with whom learns everything ---------------------------------------------------------


@pytest.fixture(scope="module")
def played() -> Played:
    return Game(UCB(), 5, 25).play(bernoulli(1))


def winners(numbers: NDArray[np.int64]) -> list[int]:
    return [int(row.argmax()) for row in numbers]


def test_controller_and_comp_learn_everything(played: Played) -> None:
    """Frames and pads are the two shares of every score."""
    numbers = np.array(
        [
            (one.frames + played.pads(played.start + n)[0]).view(np.int64)
            for n, one in enumerate(played.passes())
        ]
    )
    assert winners(numbers) == played.arms[5:]


def test_controller_and_dealer_learn_everything(played: Played) -> None:
    """The dealer knows comp's permutation and words: b - A gives comp's share."""
    comp, width, found = played.dealer._shuffle._other, shuffle._second_words(5), []
    for n, one in enumerate(played.passes()):
        words = shuffle.words_at(comp.tape, n * width, width)
        share = np.frombuffer(one.ahead.share, "<u8") + words[5:10]
        found.append((one.frames + share).view(np.int64))
    assert winners(np.array(found)) == played.arms[5:]


def test_comp_and_dealer_learn_everything(played: Played) -> None:
    """The dealer knows the controller's permutation and words: p(x) - B - A' gives x."""
    server, comp, width, found = (
        played.dealer._shuffle._one,
        played.comp._second,
        shuffle._second_words(5),
        [],
    )
    for n, one in enumerate(played.passes()):
        mine = shuffle.words_at(server.tape, n * 15, 15)
        words = shuffle.words_at(comp.tape, n * width, width)
        shuffled = np.frombuffer(one.shuffled.masked, "<u8") + words[10:15] + mine[5:10]
        row = np.empty(5, np.int64)
        row[shuffle.order(mine[:5])] = shuffled.view(np.int64)
        found.append(row)
    assert winners(np.array(found)) == played.arms[5:]


# Planted faults -----------------------------------------------------------------------------------


def unpadded_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comp says in the clear where the largest was before its shuffle."""
    returns = shuffle._returns
    monkeypatch.setattr(
        shuffle, "_returns", lambda words, count: returns(words, count) & np.uint8(254)
    )


def unpadded_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply to an owner has no pad."""
    begin = Comp._begin

    def begun(self: Any) -> Any:
        pads = self._pads
        self._pads = lambda index: np.stack([pads(index)[0], np.zeros_like(pads(index)[1])])
        try:
            return begin(self)
        finally:
            self._pads = pads

    def hidden(self: Any, index: int, numbers: Any) -> None:
        hide(self, index, numbers)
        self._no, self._yes = (bytes(8),) * len(self._no), (b"\1" + bytes(7),) * len(self._no)

    hide = strict_lane.StrictLane._hide
    monkeypatch.setattr(Comp, "_begin", begun)
    monkeypatch.setattr(strict_lane.StrictLane, "_hide", hidden)


def reused_pad(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass has the pads of the first."""

    def pads(self: Any, index: int) -> Any:
        return np.stack([each.rows(self._start, 1)[0] for each in self._pads_of]).T

    class Same:
        def __init__(self, rows: Any, start: int) -> None:
            self._rows, self._start = rows, start

        def rows(self, index: int, count: int) -> Any:
            return np.repeat(self._rows.rows(self._start, 1), count, axis=0)

    make = strict_lane.pads

    monkeypatch.setattr(Comp, "_pads", pads)
    monkeypatch.setattr(strict_lane, "pads", lambda stream: Same(make(stream), 6))


def skipped_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's numbers go to comp without A'."""
    begin = First.begin

    def begun(self: Any, number: int, share: Any, ahead: bytes) -> bytes:
        masked = np.frombuffer(begin(self, number, share, ahead), "<u8")
        k = self.count
        return (masked + shuffle.words_at(self.tape, number * 3 * k, 3 * k)[k : 2 * k]).tobytes()

    shuffled = Second.shuffle

    def unmasked(self: Any, masked: bytes) -> None:
        shuffled(self, masked)
        k, first = self.count, unmasked.tape  # type: ignore[attr-defined]
        mask = shuffle.words_at(first, self.number * 3 * k, 3 * k)[k : 2 * k]
        self._z = self._z - mask[shuffle.order(self._words[:k])]

    init = First.__init__

    def made(self: Any, count: int, seed: bytes, own: bytes) -> None:
        init(self, count, seed, own)
        unmasked.tape = self.tape  # type: ignore[attr-defined]

    monkeypatch.setattr(First, "__init__", made)
    monkeypatch.setattr(First, "begin", begun)
    monkeypatch.setattr(Second, "shuffle", unmasked)


def permutation_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comp's permutation of the first pass serves in all."""
    words_at, width = shuffle.words_at, shuffle._second_words(5)
    tapes: list[bytes] = []
    init = Second.__init__

    def made(self: Any, count: int, seed: bytes, own: bytes) -> None:
        init(self, count, seed, own)
        tapes.append(self.tape)

    def same(key: bytes, at: int, count: int) -> Any:
        found = words_at(key, at, count)
        if key in tapes and count % width == 0:
            found = found.copy().reshape(-1, width)
            found[:, :5] = words_at(key, 0, 5)
            return found.ravel()
        return found

    monkeypatch.setattr(Second, "__init__", made)
    monkeypatch.setattr(shuffle, "words_at", same)


@pytest.mark.parametrize(
    ("fault", "server"),
    [
        (unpadded_bit, "controller"),
        (unpadded_reply, "controller"),
        (reused_pad, "controller"),
        (skipped_mask, "comp"),
        (permutation_twice, "controller"),
    ],
)
def test_a_planted_fault_is_noticed(
    fault: Any, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the run is right as before, and the two views differ, or the second run goes
    wrong.
    """
    fault(monkeypatch)
    game = Game(UCB(), 5, 25)
    first = game.play(bernoulli(1))
    other = game.play(bernoulli(2))
    assert first.total == sum(first.rewards) / REWARD_ONE
    assert winners(first.numbers()) == first.arms[5:] or fault is reused_pad
    made = Programme(first, other.numbers())
    streams = made.for_controller() if server == "controller" else made.for_comp()
    try:
        second = game.play(bernoulli(2), streams)
    except Exception:
        return
    assert first.view(server) != second.view(server) or second.arms != other.arms
