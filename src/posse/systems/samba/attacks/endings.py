"""Games about time and the end of a run: a ready bit that comp flips, an early end, a total that is
refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from posse.core.errors import ProtocolError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import OPERATOR, Message, Pull
from posse.privacy.crypto.paillier import Ciphertext, PublicKey
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.privacy.leakage.scores import area, hits
from posse.runtime.memory import MemoryRun
from posse.systems.samba.attacks.many import GAMES, drawn
from posse.systems.samba.attacks.network import CONTROLLER, has_slots
from posse.systems.samba.attacks.reading import Floats, short_key
from posse.systems.samba.levels import Switches
from posse.systems.samba.messages import End, Reply, Total
from posse.systems.samba.strict import sums
from posse.systems.samba.strict.messages import Opened, Shares, Tick, Tock

if TYPE_CHECKING:
    from posse.systems.samba.settings import Samba

ENDED = "the game ended before its question was answered."


class Clocked:
    """A short run whose rewards and slots (at `strict`) come when the game says so."""

    def __init__(
        self, settings: Samba, seed: int, late: Callable[[Pull], int] = lambda pull: 0
    ) -> None:
        from posse.systems.samba.federation import SimulatedWorld, prepare

        setup, strict = settings.load(), settings.level == "strict"
        budget = min(settings.horizon, 4 * len(setup.arms) + 10)
        make = prepare(
            setup.arms,
            setup.policy,
            budget,
            seed=seed,
            level=settings.level,
            switches=Switches(),
            key=None if strict else short_key(),
            slot=0.1 if strict else 0.0,
        )
        self.run = MemoryRun(make(), None)
        self.roles: dict[str, Any] = dict(self.run.roles)
        self.owners = [name for name, role in self.roles.items() if role.kind == "owner"]
        self._world, self._late, self._left = (
            SimulatedWorld(setup.arms, seed, budget),
            late,
            dict[int, int](),
        )

    def listen(self) -> Counter[str]:
        """Move messages until everybody waits; count what the controller receives, by its
        sender.
        """
        heard: Counter[str] = Counter()
        while (moved := self.run.deliver()) is not None:
            heard[moved.sender] += moved.receiver == "controller"
        return heard

    def tick(self) -> None:
        """Hand out the rewards that are there, then end the slot."""
        asks = dict(self.run.asks)
        if not asks:
            raise ProtocolError(ENDED)
        for number, ask in asks.items():
            if isinstance(ask, Pull):
                left = self._left[number] if number in self._left else self._late(ask)
                self._left[number] = left - 1
                if left <= 0:
                    self.run.answer(number, self._world(ask))
        for number, ask in asks.items():
            if isinstance(ask, Tick):
                self.run.answer(number, Tock(ask.number))

    def until(self, *wanted: type[Message]) -> tuple[str, str, Any]:
        """Go on until a message of a kind is about to arrive; it is taken out of the queue."""
        while True:
            for at, action in enumerate(self.run.pending):
                if isinstance(action, tuple) and isinstance(action[2], wanted):
                    self.run.take(at)
                    return action
            if self.run.deliver() is None:
                self.tick()

    def pulling(self) -> list[str]:
        """Owners that make a pull which a pass decided."""
        return [ask.party for ask in self.run.asks.values() if isinstance(ask, Pull) and ask.number]


# A comp that says that all are ready --------------------------------------------------------------


def stage_ready(settings: Samba, seed: int) -> Iterator[Evidence]:
    """One pull overruns its slot, and comp says that all owners are ready; who refuses to go on is
    seen.
    """
    for number in range(GAMES):
        steps = count()

        def late(pull: Pull, steps: Iterator[int] = steps, at: int = number % 8) -> int:
            return 2 if pull.number and next(steps) == at else 0

        game = Clocked(settings, seed + number, late)
        sender, receiver, message = game.until(Opened)
        while message.pads:
            game.run.put(game.roles[receiver].receive(sender, message))
            sender, receiver, message = game.until(Opened)
        (pulling,), comp = game.pulling(), game.roles["comp"]
        comp.gate.open = True
        slot_pads = comp.reveal().slot_pads
        pads = b"".join(each.rows(message.slot, 1)[0, :1].tobytes() for each in slot_pads)
        game.run.put(game.roles["controller"].receive("comp", Opened(message.slot, pads)))
        refuses = []
        for _ in game.owners:
            sender, name, reply = game.until(Reply)
            try:
                game.roles[name].receive(sender, reply)
            except ProtocolError:
                refuses.append(game.owners.index(name))
        yield Evidence(refuses, {"arm": game.owners.index(pulling), "owners": len(game.owners)})


def refuser(seen: Sequence[int], seed: int) -> int:
    """The owner that refuses to go on; the first of all where nobody does."""
    return seen[0] if seen else 0


def score_named(guesses: Sequence[int], truths: Sequence[Truth]) -> Score:
    """Games in which the owner is the one that pulls; without having seen one names the one that
    pulls most often.
    """
    right = sum(guess == truth["arm"] for guess, truth in zip(guesses, truths, strict=True))
    most = max(Counter(truth["arm"] for truth in truths).values())
    return hits(right, len(truths), most / len(truths), "games")


def other_arms(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Owners drawn at random."""
    rng = np.random.default_rng((seed, 131))
    return [{**truth, "arm": int(rng.integers(truth["owners"]))} for truth in truths]


# An early end -------------------------------------------------------------------------------------


def stage_early(settings: Samba, seed: int) -> Iterator[Evidence]:
    """A customer ends the run while one owner pulls, within its slot; the controller counts what it
    receives.
    """
    for number in range(GAMES):
        game = Clocked(settings, seed + number)
        game.listen()
        steps = 0
        while True:
            steps += bool(game.pulling())
            if steps > number % 8:
                break
            game.tick()
            game.listen()
        (pulling,), customer = game.pulling(), game.roles["customer"]
        game.run.put(customer.receive(OPERATOR, End(customer.manifest.owners)))
        rows = []
        for _ in range(2):  # before the reward or the end of the slot, and after
            heard = game.listen()
            rows.append([heard[name] for name in game.owners])
            if not game.run.asks:
                break
            game.tick()
        yield Evidence(rows, {"arm": game.owners.index(pulling), "owners": len(game.owners)})


def lateness(seen: Sequence[Sequence[int]], seed: int) -> Floats:
    """How late each owner is: what it sent counts the more, the earlier it came."""
    return np.asarray(-np.cumsum(np.array(seen, np.float64), axis=0).sum(axis=0))


def score_late(guesses: Sequence[Floats], truths: Sequence[Truth]) -> Score:
    """AUC of owners that pulled when the end came."""
    labels = [np.arange(truth["owners"]) == truth["arm"] for truth in truths]
    return area(np.concatenate(guesses), np.concatenate(labels), "owners in games")


def plant_late(evidence: Evidence, seed: int) -> Evidence:
    """Let all owners but the one that pulls answer before the slot ends."""
    early = [int(owner != evidence.truth["arm"]) for owner in range(evidence.truth["owners"])]
    return Evidence([early, *evidence.seen], evidence.truth)


def _no_early_end(settings: Samba) -> str:
    return "a run as published has no early end." if settings.level == "paper" else ""


# A total that is refused --------------------------------------------------------------------------


def stage_refused(settings: Samba, seed: int) -> Iterator[Evidence]:
    """A controller alters the total, and sees all that is said afterwards.

    At `paper` it adds half of the largest total, so that a refusal would say whether the total is
    above the other half. At `strict` each change is refused, and half of the games are without one.
    """
    rng, owners = np.random.default_rng((seed, 137)), len(settings.load().arms)
    size = msgspec.msgpack.Encoder().encode
    for number in range(GAMES):
        means = np.clip(drawn(rng, 1, owners)[0] / 4 + 0.75 * (number % 2), 0.0, 1.0)
        made = settings.but(
            means=tuple(means.round(4).tolist()), owners=None, data="embedded:movielens"
        )
        game = Clocked(made, seed + number)
        sender, _, message = game.until(Total, Shares)
        customer = game.roles["customer"]
        half = customer.manifest.terms.budget * REWARD_ONE // 2
        if isinstance(message, Shares):
            share, tag = sums.decode(message.controller)
            message = Shares(sums.encode((share + half * (number % 2), tag)), message.comp)
        else:
            key = PublicKey(int.from_bytes(customer.manifest.terms.paillier_n, "big"))
            message = Total((Ciphertext.from_bytes(message.ciphertext, key) + half).to_bytes())
        game.run.put(customer.receive(sender, message))
        seen = []
        while (moved := game.run.deliver()) is not None:
            seen.append(len(size(moved.message)))
        yield Evidence((len(game.roles), seen), {"refused": bool(customer.refused)})


def said(seen: tuple[int, Sequence[int]], seed: int) -> float:
    """How far from one word to each party the end is, and then its bytes; sizes of signatures
    differ by chance.
    """
    parties, sizes = seen
    return abs(len(sizes) - (parties - 1)) + 1e-6 * sum(sizes)


def score_refused(guesses: Sequence[float], truths: Sequence[Truth]) -> Score:
    """AUC of totals that were refused."""
    return area(guesses, [truth["refused"] for truth in truths], "totals")


def plant_word(evidence: Evidence, seed: int) -> Evidence:
    """Let the customer say one word more where it refuses."""
    parties, sizes = evidence.seen
    return Evidence((parties, [*sizes, 1] if evidence.truth["refused"] else sizes), evidence.truth)


def other_refusals(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Refusals of other games."""
    order = np.random.default_rng((seed, 139)).permutation(len(truths))
    return [truths[i] for i in order]


TIME = ("Timing can name the pulled arm", "A pull that takes longer than the slot")
ATTACKS = (
    Attack(
        "flipped-ready",
        "who pulls, by saying that all owners are ready",
        ("comp",),
        ("A comp that does not follow the protocol can say that all owners are ready",),
        refuser,
        score_named,
        "right",
        lambda evidence, seed: Evidence([evidence.truth["arm"]], evidence.truth),
        "games that say it",
        other_arms,
        needs="runs",
        stage=stage_ready,
        seconds=lambda settings: 10.0,
        missing=has_slots,
        tell=lambda one: f"owner {one + 1} pulls",
    ),
    Attack(
        "early-end",
        "who pulls when the run is ended early, from who answers first",
        ("controller", "customer"),
        TIME,
        lateness,
        score_late,
        "AUC",
        plant_late,
        "owners that answer before the slot ends",
        other_arms,
        needs="runs",
        stage=stage_early,
        seconds=lambda settings: 10.0,
        missing=_no_early_end,
        tell=lambda one: (
            f"owners {', '.join(str(i + 1) for i in np.flatnonzero(one == one.max()))} are last"
        ),
    ),
    Attack(
        "refused-total",
        "whether the customer refuses a total that was altered",
        ("controller",),
        CONTROLLER,
        said,
        score_refused,
        "AUC",
        plant_word,
        "one word more at a refusal",
        other_refusals,
        needs="runs",
        stage=stage_refused,
        seconds=lambda settings: 10.0,
        tell=lambda one: f"{one:.0f} messages more or less than at an honest end",
    ),
)
