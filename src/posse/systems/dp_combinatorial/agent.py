"""An agent: buys every round, reports at a few rounds, and learns from the reports of the others.

Sans-IO: it asks the world to buy (`Buy`), which answers with what was good (`Delivered`); reports
go to every other agent. It learns from the reports of one number together, in the order of the
roster, when all are there, so the outcome does not depend on which arrives first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from posse.core.agreement import check_terms_digest
from posse.core.errors import ConfigError, DisagreementError, PosseError, ProtocolError
from posse.core.roles import OPERATOR, WORLD, Action, Message, Note, Send, SendMany
from posse.core.snapshots import VERSION as SNAPSHOT_VERSION
from posse.core.snapshots import Snapshot, damaged_snapshot, pack, unpack
from posse.policies.purchase.oracle import rate
from posse.privacy.crypto.keys import Secrets
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.noise import Noise, SecretNoise
from posse.privacy.dp.plans import Plan
from posse.systems.dp_combinatorial.learning import (
    choose,
    explore,
    learn,
    nothing_known,
    qualities,
    release,
    remember,
)
from posse.systems.dp_combinatorial.messages import Buy, Delivered, Hello, Offers, Report
from posse.systems.dp_combinatorial.terms import VERSION, Terms, check_plan

Floats = NDArray[np.float64]

LARGEST_COUNT = 2.0**53
"""No count is larger; a larger number would make sums that are not finite."""

Oracle = Callable[[Floats, Floats, Floats, float, float], Floats]
"""Units to buy at given qualities, costs, capacities, threshold and worth of a good unit."""


@dataclass(frozen=True)
class Buyer:
    """What one agent knows of its own business; nothing of it is sent."""

    cost: Floats
    capacity: Floats
    alpha: float
    """Threshold it buys for: alpha and a safety margin."""
    rho: float
    coefficient: float = 1.0
    """How optimistic it is: 1 as published."""
    oracle: Oracle | None = None
    """How it chooses; the greedy oracle where none is given."""


class AgentSaved(Snapshot, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent keeps of a run; arrays as the bytes of little-endian doubles."""

    knowledge: list[bytes]
    purchase: bytes
    offers: list[bytes]
    """Cost and capacity now, the largest capacity since the last report, and the units bought at
    earlier costs.
    """
    spent: float
    """What the units at earlier costs have cost."""
    next: Offers | None
    round: int
    greeted: list[str]
    sent: int
    learnt: int
    taken: int
    inbox: list[tuple[str, Report]]
    ledger: dict[str, Any] | None
    done: bool
    first: tuple[float, float] = (0.0, 0.0)
    """Noise of the first report and the units that it is about."""


@dataclass(frozen=True, eq=False)
class AgentSecrets:
    """What an agent holds and hides."""

    buyer: Buyer
    noise: Noise
    purchase: Floats
    """Units that it bought last, or is about to."""
    sent: int
    """Reports sent."""
    learnt: int
    """Reports of everyone else that were learnt from."""
    inbox: Mapping[int, Mapping[str, Report]]
    """Reports that came and were not learnt from, by number and sender."""


class Agent:
    """One agent's part of the protocol.

    Where no noise is given it comes from the agent's secrets, so that a report made again after a
    crash is the same report; `run` names the run, and no two runs with the same secrets may have
    one name. The ledger is part of what is saved: a restored agent is given a new one, and finds in
    it what was paid for up to the snapshot.

    Its operator may give it other costs and capacities (`Offers`), which hold from the next
    purchase on. A report pays for the largest capacity since the one before, and other offers draw
    from another stream of noise.
    """

    kind = "agent"

    def __init__(
        self,
        name: str,
        terms: Terms,
        buyer: Buyer,
        noise: Noise | None,
        ledger: Ledger[Plan] | None = None,
        *,
        secrets: Secrets | None = None,
        run: str = "",
    ) -> None:
        if ledger is not None:
            check_plan(ledger.mechanism, terms, buyer.capacity)
        elif any(terms.multipliers) and terms.method != "placebo":
            raise ConfigError(
                f"{name} sends reports with noise, and needs a ledger that counts their privacy. "
                "Pass one as ledger."
            )
        self.name = name
        self.ledger = ledger
        self._context, mark = msgspec.msgpack.encode((name, run, terms.digest)), b""
        self._secrets = None if noise is not None else secrets or Secrets.fresh()
        if self._secrets is not None:
            mark = self._secrets.key(b"dp-combinatorial mark", context=self._context)
        self._terms, self._buyer = terms, buyer
        self._noise: Noise = self._secret_noise() if noise is None else noise
        self._most, self._units_before, self._spent = (
            buyer.capacity.copy(),
            np.zeros(len(terms.producers)),
            0.0,
        )
        """Largest capacity since the last report; units bought at earlier costs, and what they
        cost.
        """
        self._next: Offers | None = None
        """Offers from the next purchase on."""
        self._run = hashlib.sha256(self._context + mark).digest()
        self._others = tuple(other for other in terms.agents if other != name)
        self.knowledge = nothing_known(len(terms.producers))
        """What it knows of each producer: its own units, and what it learnt from reports."""
        self._purchase, self._bounds, self._work = (
            np.zeros(len(terms.producers)) for _ in range(3)
        )
        self._round = 0
        self._greeted: set[str] = set()
        self._sent = 0
        """Reports sent."""
        self._learnt = 0
        """Reports of everyone else that were learnt from: as many as were sent, but while it
        waits.
        """
        self._inbox: dict[int, dict[str, Report]] = {}
        self.taken = 0
        """Entries of reports, one a producer, from which it learnt."""
        self.first = (0.0, 0.0)
        """Of its first report: noise (standard deviations, over producers) and the units that it is
        about.
        """
        self._done = False

    @property
    def qualities(self) -> Floats:
        """Share of good units of each producer, its own and those reported to it; NaN where it saw
        none.
        """
        return qualities(self.knowledge)

    def alone(self) -> float:
        """Estimate what it would have earned without the others, from what it knows itself.

        It buys for as many rounds, at its present offers, in a market whose qualities are those it
        learnt (0 where it saw none), and learns from its own units alone; every delivery is as good
        as its mean.
        """
        buyer, quality = self._buyer, np.nan_to_num(self.qualities)
        (good, units, nothing), out = np.zeros((3, len(quality))), np.zeros_like(quality)
        for number in range(1, self._round + 1):
            self._choose(number, good, units, nothing, nothing, out)
            remember(out, out * quality, units, good)
        return float(buyer.rho * good.sum() - (buyer.cost * units).sum())

    def start(self) -> Sequence[Action]:
        """Greet the others, or buy at once where there is nobody to hear from."""
        if self._terms.method == "alone":
            return self._buy()
        hello = Hello(VERSION, self._terms.digest)
        return (SendMany([(self.name, other, hello) for other in self._others]),)

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message; what the protocol does not allow is refused with the state as it
        was.
        """
        if sender == WORLD and isinstance(message, Delivered):
            return self._delivered(message)
        if sender == OPERATOR and isinstance(message, Offers):
            return self._change(message)
        if sender not in self._others or self._terms.method == "alone":
            raise ProtocolError(
                f"{self.name} does not know '{sender}'. Known: {', '.join(self._others)}."
            )
        if isinstance(message, Hello):
            return self._hello(sender, message)
        if isinstance(message, Report):
            return self._report(sender, message)
        raise ProtocolError(
            f"{self.name} got a {type(message).__name__} from {sender}, which is nothing agents "
            "send."
        )

    @property
    def brings(self) -> Offers:
        """Its own costs and capacities, which may change while the run goes on."""
        return self._next or Offers(
            tuple(self._buyer.cost.tolist()), tuple(self._buyer.capacity.tolist())
        )

    @property
    def needs(self) -> tuple[str, ...]:
        """Agents whose reports are still to come; when it has finished, those that may be waiting
        for its last one.
        """
        over = self._ready and self._learnt == self._terms.planned and not self._done
        return () if over or self._terms.method == "alone" else self._others

    @property
    def finished(self) -> bool:
        """Whether all rounds are bought, and all reports sent and learnt from."""
        return self._done

    def state(self) -> dict[str, object]:
        """What an operator standing at this agent may see: its own business."""
        waits = self._terms.method != "alone" and (not self._ready or self._sent > self._learnt)
        missing = [
            other for other in self._others if other not in self._inbox.get(self._learnt, {})
        ]
        if not self._ready:
            missing = [other for other in self._others if other not in self._greeted]
        return {
            "step": self._round,
            "horizon": self._terms.rounds,
            "unit": "round",
            "units": [int(x) for x in self.knowledge.units],
            "good": self.knowledge.good.tolist(),
            "reports": self._sent,
            "learnt": self.taken,
            "waiting for": missing if waits else [],
        }

    def reveal(self) -> AgentSecrets:
        """Return its offers, its noise, and what it bought, sent and received."""
        return AgentSecrets(
            self._buyer, self._noise, self._purchase, self._sent, self._learnt, self._inbox
        )

    def save(self) -> dict[str, Any]:
        """Return the whole state: what was bought, learnt, received and paid for."""
        inbox = [
            (sender, box[sender])
            for _, box in sorted(self._inbox.items())
            for sender in sorted(box)
        ]
        return pack(
            AgentSaved(
                version=SNAPSHOT_VERSION,
                kind=self.kind,
                name=self.name,
                run=self._run,
                knowledge=[_bytes(array) for array in self.knowledge],
                purchase=_bytes(self._purchase),
                offers=[_bytes(array) for array in self._offers],
                spent=self._spent,
                next=self._next,
                round=self._round,
                greeted=sorted(self._greeted),
                sent=self._sent,
                learnt=self._learnt,
                taken=self.taken,
                inbox=inbox,
                ledger=None if self.ledger is None else self.ledger.state(),
                done=self._done,
                first=self.first,
            )
        )

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what `save` returned; what it had paid for is not paid for again."""
        read = unpack(saved, AgentSaved, kind=self.kind, name=self.name, run=self._run)
        self._buyer = replace(
            self._buyer, cost=self._buyer.cost.copy(), capacity=self._buyer.capacity.copy()
        )
        arrays = [*self.knowledge, self._purchase, *self._offers]
        kept = [*read.knowledge, read.purchase, *read.offers]
        if len(kept) != len(arrays) or any(
            len(data) != array.nbytes for data, array in zip(kept, arrays, strict=True)
        ):
            raise damaged_snapshot(self.kind, self.name, "its arrays have another size.")
        if (
            not 0 <= read.learnt <= read.sent <= read.round <= self._terms.rounds
            or read.sent > read.learnt + 1
        ):
            raise damaged_snapshot(self.kind, self.name, "its counts contradict each other.")
        if not set(read.greeted) | {sender for sender, _ in read.inbox} <= set(self._others):
            raise damaged_snapshot(self.kind, self.name, "it names agents that the terms do not.")
        kept_by = None if read.ledger is None else (read.ledger.get("party"),)
        if kept_by != (None if self.ledger is None else (self.ledger.party,)):
            raise damaged_snapshot(
                self.kind, self.name, "it has another's ledger, or one where there should be none."
            )
        for data, array in zip(kept, arrays, strict=True):
            array[:] = np.frombuffer(data, "<f8")
        self._round, self._sent, self._learnt, self.taken = (
            read.round,
            read.sent,
            read.learnt,
            read.taken,
        )
        self._done, self._spent, self._next, self.first = (
            read.done,
            read.spent,
            read.next,
            read.first,
        )
        if self._secrets is not None:
            self._noise = self._secret_noise()
        self._greeted, self._inbox = set(read.greeted), {}
        try:
            for sender, report in read.inbox:
                self._check_numbers(sender, report)
                self._inbox.setdefault(report.number, {})[sender] = report
            if self.ledger is not None and read.ledger is not None:
                self.ledger = Ledger.restored(self.ledger.mechanism, read.ledger)
        except (PosseError, KeyError, TypeError) as error:
            raise damaged_snapshot(self.kind, self.name, error) from error

    @property
    def revenue(self) -> float:
        """What it has earned: rho for every good unit, less what all units cost it."""
        known, buyer = self.knowledge, self._buyer
        spent = (buyer.cost * (known.units - self._units_before)).sum() + self._spent
        return float(buyer.rho * known.good.sum() - spent)

    @property
    def _offers(self) -> list[Floats]:
        return [self._buyer.cost, self._buyer.capacity, self._most, self._units_before]

    def _secret_noise(self) -> SecretNoise:
        """Noise of these offers in this run: no other offers have it."""
        assert self._secrets is not None
        offers = hashlib.sha256(
            self._buyer.cost.tobytes() + self._buyer.capacity.tobytes()
        ).digest()
        return SecretNoise(
            self._secrets.key(b"dp-combinatorial noise", context=self._context + offers)
        )

    def _change(self, offers: Offers) -> Sequence[Action]:
        """Take other costs and capacities, for the next purchase; refused with everything as it
        was.
        """
        numbers = [np.array(each, np.float64) for each in (offers.cost, offers.capacity)]
        if any(each.shape != self._most.shape or not (each >= 0).all() for each in numbers):
            raise ProtocolError(
                f"offers must have {len(self._most)} costs and capacities from 0 on. Correct the "
                "list."
            )
        if self.ledger is not None:
            check_plan(self.ledger.mechanism, self._terms, np.maximum(self._most, numbers[1]))
        self._next = offers
        return ()

    def _renew(self, offers: Offers) -> None:
        """Go over to the next offers: what was bought so far keeps its cost, the next report pays
        for both.
        """
        units, buyer = self.knowledge.units, self._buyer
        cost, capacity = np.array(offers.cost, np.float64), np.array(offers.capacity, np.float64)
        self._spent += float((buyer.cost * (units - self._units_before)).sum())
        self._units_before[:] = units
        self._most = np.maximum(self._most, capacity) if self._round else capacity.copy()
        self._buyer, self._next = replace(buyer, cost=cost, capacity=capacity), None
        if self._secrets is not None:
            self._noise = self._secret_noise()

    @property
    def _ready(self) -> bool:
        return len(self._greeted) == len(self._others)

    def _hello(self, sender: str, hello: Hello) -> Sequence[Action]:
        if hello.version != VERSION:
            raise DisagreementError(
                f"{sender} speaks version {hello.version} of dp-combinatorial, {self.name} version "
                f"{VERSION}. "
                "Install the same version of Posse."
            )
        check_terms_digest(self._terms.digest, sender, hello.terms)
        if sender in self._greeted:
            raise ProtocolError(f"{sender} has greeted {self.name} already.")
        self._greeted.add(sender)
        return self._buy() if self._ready else ()

    def _buy(self) -> Sequence[Action]:
        """Choose the next round's purchase and ask the world for it; or end."""
        if self._round == self._terms.rounds:
            self._done = True
            return (Note(self.name, "done", self._round, self.taken),)
        if self._next is not None:
            self._renew(self._next)
        known = self.knowledge
        self._round += 1
        self._choose(
            self._round, known.good, known.units, known.told_good, known.told_units, self._purchase
        )
        return (Buy(self.name, self._round, tuple(map(int, self._purchase.tolist()))),)

    def _choose(
        self,
        t: int,
        good: Floats,
        units: Floats,
        told_good: Floats,
        told_units: Floats,
        out: Floats,
    ) -> None:
        """Write the purchase of round t into `out`, for what is known of each producer."""
        buyer = self._buyer
        if t <= self._terms.explore:
            explore(buyer.capacity, out)
            return
        choose(
            rate(t, buyer.coefficient),
            good,
            units,
            told_good,
            told_units,
            buyer.cost,
            buyer.capacity,
            buyer.alpha,
            buyer.rho,
            out,
            self._bounds,
            self._work,
        )
        if buyer.oracle is not None:
            out[:] = buyer.oracle(self._bounds, buyer.cost, buyer.capacity, buyer.alpha, buyer.rho)

    def _delivered(self, delivered: Delivered) -> Sequence[Action]:
        waits = self._round > 0 and not self._done and self._sent == self._learnt
        if delivered.round != self._round or not waits:
            raise ProtocolError(
                f"{self.name} is in round {self._round}, got a delivery of round {delivered.round}."
            )
        good = np.array(delivered.good, np.float64)
        if good.shape != self._purchase.shape or not ((good >= 0) & (good <= self._purchase)).all():
            raise ProtocolError(
                f"good units of round {self._round} must be one number per producer, each from 0 "
                f"to the units that {self.name} bought there ({int(self._purchase.sum())} in "
                "all). Correct the source."
            )
        number = self._terms.number_at(self._round)
        if number is not None and self.ledger is not None:
            # It refuses before anything has changed; reports of every round are all alike.
            self.ledger.spend(0 if self._terms.always else number)
        remember(self._purchase, good, self.knowledge.units, self.knowledge.good)
        if number is None:
            return (*self._noted(), *self._buy())
        report = self._make_report(number)
        sends: list[Send] = [(self.name, other, report) for other in self._others]
        return (*self._noted(), SendMany(sends), *self._learn_when_complete())

    def _noted(self) -> Sequence[Note]:
        """Let the first of the roster say that a round is over."""
        return (
            (Note(self.name, "round", self._round),) if self.name == self._terms.agents[0] else ()
        )

    def _make_report(self, number: int) -> Report:
        """Draw noise, and make the one report that goes to everyone."""
        known = self.knowledge
        sigma = self._terms.multiplier(number) * self._most
        noise = np.array([self._noise.pair(number, i, float(s)) for i, s in enumerate(sigma)]).T
        if self._terms.method == "placebo":
            known.sent_units[:], known.sent_good[:] = known.units, known.good
        if number == 0:
            self.first = float(sigma.sum()), float(known.units.sum())
        out = np.zeros((2, len(sigma)))
        release(known.units, known.good, known.sent_units, known.sent_good, noise, sigma, out)
        self._sent += 1
        self._most[:] = self._buyer.capacity
        said = tuple(sigma.tolist()) if self._terms.rule == "fuse" else ()
        return Report(number, tuple(out[0].tolist()), tuple(out[1].tolist()), said)

    def _report(self, sender: str, report: Report) -> Sequence[Action]:
        # A faster agent may be one report ahead, and no further: it needs ours to go on. It may
        # even report while others have not greeted us yet.
        last = min(self._learnt + 1, self._terms.planned - 1)
        if not (sender in self._greeted and self._learnt <= report.number <= last):
            raise ProtocolError(
                f"{self.name} expects report {self._learnt} of {sender}, got report "
                f"{report.number}."
            )
        box = self._inbox.get(report.number, {})
        if sender in box:
            raise ProtocolError(f"{self.name} has report {report.number} of {sender} already.")
        self._check_numbers(sender, report)
        self._inbox.setdefault(report.number, {})[sender] = report
        return self._learn_when_complete()

    def _check_numbers(self, sender: str, report: Report) -> None:
        count = len(self._terms.producers)
        wanted = (count, count, count if self._terms.rule == "fuse" else 0)
        given = (report.units, report.good, report.sigma)
        if tuple(map(len, given)) != wanted:
            raise ProtocolError(
                f"a report must have {count} numbers of units and of good units, got "
                f"{len(report.units)} and "
                f"{len(report.good)} from {sender}."
            )
        if not all(abs(x) <= LARGEST_COUNT for numbers in given for x in numbers) or any(
            s < 0 for s in report.sigma
        ):
            raise ProtocolError(
                f"a report may hold finite numbers up to 2^53 only, and {sender} sent another."
            )

    def _learn_when_complete(self) -> Sequence[Action]:
        """Learn from the reports of all others, in the order of the roster, and go on."""
        box = self._inbox.get(self._learnt, {})
        if self._sent == self._learnt or len(box) < len(self._others):
            return ()
        terms, known = self._terms, self.knowledge
        for other in self._others:
            report = box[other]
            pair, said = (
                np.array([report.units, report.good]),
                np.array(report.sigma or [0.0] * len(terms.producers)),
            )
            self.taken += learn(
                terms.learning_rule,
                self._round,
                terms.width,
                terms.weight,
                pair,
                said,
                known.good,
                known.units,
                known.told_good,
                known.told_units,
            )
        del self._inbox[self._learnt]
        self._learnt += 1
        return self._buy()


def _bytes(array: Floats) -> bytes:
    return array.astype("<f8").tobytes()
