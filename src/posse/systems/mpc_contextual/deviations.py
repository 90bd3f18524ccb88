"""Roles of mpc-contextual that do not follow the protocol, and what comes of it.

| attack | by | does | seeks |
|---|---|---|---|
| `wrong-shares` | party | opens another value to one of the others | a model that is wrong, and nobody notices |
| `two-arms` | party | exchanges two arms in its share of the arm | whether the arm is one of them: else the run stops |
| `loaded-coins` | dealer | deals one coin at all places of a table | which steps explore |
| `other-arm` | puller | says always that the first arm was pulled | that the best arm is not pulled |
| `other-reward` | payee | returns 1 - reward | the same |
| `replayed` | any role | sends what was sent before, the dealer's triples too | that it counts twice |

All are games on short runs with real roles; what comes out is compared with coins of the adversary,
or with the same run in which it follows the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import PosseError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import Action, Message, Role
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.privacy.leakage.scores import area_of, hits, shuffled
from posse.systems.mpc_contextual.coins import DealerCoins, Dealt
from posse.systems.mpc_contextual.federation import ContextualRun
from posse.systems.mpc_contextual.program import input_masks
from posse.systems.mpc_contextual.roles.dealer import DealerRole
from posse.systems.mpc_contextual.roles.messages import Choice, Earned, Opening, Reveal
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER
from posse.systems.mpc_contextual.twins.twin import seeded
from posse.systems.registry import system_of

Ints = NDArray[np.int64]
Deviate = Callable[[ContextualRun], None]
Change = Callable[[str, Message], Iterable[tuple[str, Message]]]
"""Of receiver and message: what is sent instead."""
GAMES = 20
STEPS, LONG = 24, 240
"""Steps of a game in which one message counts, and of one in which something is learnt, at most."""
FOLLOW = "All of it holds for roles that follow"


def _started(settings: MpcContextual, seed: int, most: int = STEPS) -> ContextualRun:
    batch, steps = settings.load().terms.batch, settings.load().terms.steps
    made = settings.but(horizon=max(min(most, steps) // batch, 1) * batch, runs=1)
    return ContextualRun(
        system_of(settings), made, seeds=[settings.seed + seed], transcript=1 << 20
    )


def tamper(role: Role, change: Change) -> None:
    """Let a role send something else than it would."""
    receive = role.receive

    def tampered(sender: str, message: Message) -> list[Action]:
        out: list[Action] = []
        for action in receive(sender, message):
            if isinstance(action, tuple):
                out += [(action[0], *sent) for sent in change(action[1], action[2])]
            else:
                out.append(action)
        return out

    role.receive = tampered  # type: ignore[method-assign]


def _ended(run: ContextualRun) -> bool:
    """Whether a run comes to its end; a role that notices something stops it."""
    with suppress(PosseError):
        run.finish()
    return run.done


# A party ------------------------------------------------------------------------------------------


def stage_shares(settings: MpcContextual, seed: int) -> Iterator[Evidence]:
    """Open another value to the first party in one step, or not; does the run end, with another
    model?
    """
    for number in range(GAMES):
        models, ended, coin = [], True, bool(number % 2)
        for deviates in (coin, False):
            run = _started(settings, seed + number)
            terms = run.settings.load().terms
            if deviates:
                at, last = 7 * number % terms.passes, len(run.plan.rounds) - 1
                change = _opens_otherwise(terms.parties[0], at, last)
                tamper(run.memory.roles[terms.parties[-1]], change)
            ended = _ended(run) and ended
            models.append(run.model())
        yield Evidence(ended and bool((models[0] != models[1]).any()), {"coin": coin})


def _opens_otherwise(receiver: str, at: int, last: int) -> Change:
    """Add to all words that are opened to a receiver in the last round of a step: what is learnt
    there.
    """

    def other(to: str, message: Message) -> list[tuple[str, Message]]:
        if isinstance(message, Opening) and (to, message.step, message.round) == (
            receiver,
            at,
            last,
        ):
            words = np.frombuffer(message.data, "<u8", len(message.data) // 8) + np.uint64(1 << 24)
            message = Opening(at, last, words.tobytes() + message.data[words.nbytes :])
        return [(to, message)]

    return other


def _score_coins(found: Sequence[bool], truths: Sequence[Truth]) -> Score:
    coins = [truth["coin"] for truth in truths]
    right = sum(one == coin for one, coin in zip(found, coins, strict=True))
    return hits(right, len(coins), max(np.mean(coins), 1 - np.mean(coins)), "games")


def _other_coins(truths: Sequence[Truth], seed: int) -> list[Truth]:
    rng = np.random.default_rng((seed, 31))
    return [{**truth, "coin": bool(rng.integers(2))} for truth in truths]


def _as_wanted(evidence: Evidence, seed: int) -> Evidence:
    return replace(evidence, seen=evidence.truth["coin"])


def stage_two(settings: MpcContextual, seed: int) -> Iterator[Evidence]:
    """Exchange two arms in a share of the arm, and look whether the puller goes on; half of the
    pairs hold the arm.
    """
    for number in range(GAMES):
        rng, honest = np.random.default_rng((seed, number, 32)), _started(settings, seed + number)
        honest.finish()
        terms = honest.settings.load().terms
        at = int(rng.integers(terms.choices))
        arm, others = int(honest.truth()["arms"][at * terms.batch]), rng.permutation(terms.arms)
        pair = [one for one in others.tolist() if one != arm][:2]
        if number % 2:
            pair[0] = arm

        def exchanged(
            to: str, message: Message, at: int = at, pair: list[int] = pair
        ) -> list[tuple[str, Message]]:
            if isinstance(message, Reveal) and message.step == at:
                bits = bytearray(message.data)
                for one in pair:
                    bits[one] ^= 1
                message = Reveal(at, bytes(bits))
            return [(to, message)]

        run = _started(settings, seed + number)
        tamper(run.memory.roles[terms.parties[-1]], exchanged)
        yield Evidence(_ended(run), {"coin": arm in pair})


# The dealer ---------------------------------------------------------------------------------------


class LoadedCoins(DealerCoins):
    """Coins of which all at one step are alike, so that the dealer knows which one is read."""

    def at(self, first: int, count: int) -> Dealt:
        """Draw tables, and write the first coin of each to all its places."""
        made = super().at(first, count)
        return replace(made, explore=np.repeat(made.explore[:, :1], made.explore.shape[1], axis=1))


def stage_loaded(settings: MpcContextual, seed: int) -> Iterator[Evidence]:
    """Deal loaded coins; the truth is what the parties read at their places."""
    run = _started(settings, seed, LONG)
    terms = run.settings.load().terms
    dealer = DealerRole(terms, run.plan, seeded(run.seeds[0], DEALER), coins=LoadedCoins)
    run.memory.roles[DEALER] = dealer
    if not _ended(run):
        raise PosseError("the parties noticed the dealer's coins.")
    tables = dealer.reveal().coins.at(0, terms.steps)
    party_coins = run.parties_on_shares[0].reveal().coins
    assert party_coins is not None
    places = party_coins.at(0, terms.steps)[:, 0]
    yield Evidence(
        tables.explore[:, 0].astype(np.float64),
        {"explored": tables.explore[np.arange(len(places)), places]},
    )


# Puller and payee ---------------------------------------------------------------------------------


def _arms(settings: MpcContextual, seed: int, deviate: Deviate) -> tuple[Ints, Ints]:
    """Arms that the parties chose in the second half, and the best ones there."""
    run = _started(settings, seed, LONG)
    deviate(run)
    run.finish()
    half = run.horizon // 2
    return run.puller.arms[half:], run.truth()["means"][half:].argmax(axis=1)


def _worse(settings: MpcContextual, seed: int, deviate: Deviate) -> Iterator[Evidence]:
    """Play runs with a role that deviates, and without."""
    for number in range(2):
        (worse, best), (honest, _) = (
            _arms(settings, seed + number, how) for how in (deviate, lambda run: None)
        )
        yield Evidence((worse, honest), {"best": best})


def same_arm(run: ContextualRun) -> None:
    """Let the puller say in every step that the first arm was pulled."""
    puller, terms = run.puller, run.settings.load().terms
    hot = np.tile(np.arange(terms.arms) == 0, terms.batch).astype(np.uint64)

    def same(to: str, message: Message) -> list[tuple[str, Message]]:
        seed = puller.reveal().seed
        if isinstance(message, Choice) and message.step >= terms.lag and seed is not None:
            mask = input_masks(seed.inputs, message.step, hot.size)
            message = Choice(message.step, (hot - mask).tobytes())
        return [(to, message)]

    tamper(puller, same)


def other_reward(run: ContextualRun) -> None:
    """Let the payee return 1 - reward in every step."""
    payee = run.payee
    receive = payee.receive
    payee.receive = lambda sender, message: receive(  # type: ignore[method-assign]
        sender,
        Earned(message.step, REWARD_ONE - message.units)
        if isinstance(message, Earned)
        else message,
    )


def _score_worse(found: Sequence[tuple[Ints, Ints]], truths: Sequence[Truth]) -> Score:
    with_, without = (
        np.concatenate([one[at] != truth["best"] for one, truth in zip(found, truths, strict=True)])
        for at in range(2)
    )
    return hits(int(with_.sum()), len(with_), float(without.mean()), "steps without the best arm")


def _always_worse(evidence: Evidence, seed: int) -> Evidence:
    return replace(evidence, seen=(evidence.truth["best"] + 1, evidence.truth["best"]))


# Messages again -----------------------------------------------------------------------------------


def stage_replayed(settings: MpcContextual, seed: int) -> Iterator[Evidence]:
    """In the middle of a run give a role everything that it was sent before once more, or
    nothing.
    """
    for number in range(GAMES):
        run = _started(settings, seed + number)
        run.advance(max(1, run.horizon // 2))
        name = list(run.memory.roles)[number // 2 % len(run.memory.roles)]
        role, coin = run.memory.roles[name], bool(number % 2)
        kept, counted = role.save(), False
        before = [one for one in run.view(name).entries if one.receiver == name]
        for entry in before if coin else ():
            with suppress(PosseError):
                role.receive(entry.sender, entry.message)
                counted = True
        yield Evidence(counted or role.save() != kept, {"coin": coin})


def _no_arms(settings: MpcContextual) -> str:
    return "" if settings.load().terms.arms > 3 else "two of so few arms say nothing."


def _coins(
    name: str,
    title: str,
    stage: Callable[[MpcContextual, int], Iterator[Evidence]],
    planted: str,
    missing: Callable[[MpcContextual], str] = lambda settings: "",
) -> Attack:
    return Attack(
        name,
        title,
        ("party",),
        (TWO if name == "two-arms" else FOLLOW,),
        lambda seen, seed: seen,
        _score_coins,
        "share of games",
        _as_wanted,
        planted,
        _other_coins,
        needs="runs",
        stage=stage,
        seconds=lambda settings: 15.0,
        missing=missing,
        tell=lambda found: "yes" if found else "no",
    )


def _worst(name: str, title: str, by: str, deviate: Deviate) -> Attack:
    return Attack(
        name,
        title,
        (by,),
        (FOLLOW,),
        lambda seen, seed: seen,
        _score_worse,
        "share of steps",
        _always_worse,
        "runs without the best arm",
        shuffled("best", 35),
        finds=0.8,
        needs="runs",
        stage=lambda settings, seed: _worse(settings, seed, deviate),
        seconds=lambda settings: 10.0,
        tell=lambda found: f"{len(found[0]):,} steps",
    )


TWO, LOADED = "A party that exchanges two arms", "A dealer that deals one coin"
DEVIATIONS = (
    _coins(
        "wrong-shares",
        "to falsify the model, by opening another value to one party",
        stage_shares,
        "games that end with another model",
    ),
    _coins(
        "two-arms",
        "whether the arm is one of two, by exchanging them in a share",
        stage_two,
        "runs that stop otherwise",
        _no_arms,
    ),
    _coins(
        "replayed",
        "to let a message or a triple count twice, by sending it again",
        stage_replayed,
        "roles that take it again",
    ),
    Attack(
        "loaded-coins",
        "which steps explore, by dealing one coin at all places",
        (DEALER,),
        (LOADED,),
        lambda seen, seed: seen,
        area_of("explored", "steps explored"),
        "AUC",
        lambda evidence, seed: replace(
            evidence, seen=evidence.truth["explored"].astype(np.float64)
        ),
        "coins that are known",
        shuffled("explored", 33),
        needs="runs",
        stage=stage_loaded,
        seconds=lambda settings: 5.0,
        missing=lambda settings: (
            "" if settings.load().terms.explore[0] else "nothing explores in this run."
        ),
        tell=lambda found: f"{int((found > 0).sum()):,} steps explore",
    ),
    _worst(
        "other-arm",
        "that the best arm is not pulled, by saying that another one was",
        PULLER,
        same_arm,
    ),
    _worst(
        "other-reward", "that the best arm is not pulled, by paying 1 - reward", PAYEE, other_reward
    ),
)
