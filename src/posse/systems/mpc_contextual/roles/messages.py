"""What the roles say to each other, and what they ask of the world."""

from __future__ import annotations

from typing import ClassVar

from posse.core.errors import ProtocolError
from posse.core.roles import Ask, Message
from posse.systems.mpc_contextual.terms import Terms

AHEAD = 2
"""Chunks that a party may ask the dealer for ahead of the one it uses."""


class Ending:
    """How far a run goes, for a role: to the last step of the terms, or to the pass that a party
    has named.
    """

    terms: Terms
    end: int | None = None
    """The pass before which the run ends, where a party has said so."""

    @property
    def choices(self) -> int:
        """Passes in which arms are chosen."""
        return self.terms.choices if self.end is None else self.end

    @property
    def passes(self) -> int:
        """Passes in all."""
        return self.choices + self.terms.lag

    @property
    def horizon(self) -> int:
        """Steps in all."""
        return self.choices * self.terms.batch

    def ends(self, sender: str, over: Over, least: int, most: int) -> None:
        """Take a party's word for the last pass, which lies between two numbers; all parties name
        the same.
        """
        known = over.step == self.end or (
            self.end is None and least <= over.step <= min(most, self.terms.choices)
        )
        if sender not in self.terms.parties or not known:
            raise ProtocolError(
                f"'{sender}' ends the run before pass {over.step + 1}, which cannot be."
            )
        self.end = over.step


class Hello(Message, frozen=True, array_like=True, tag="Hello", gc=False):
    """Party to party, before the first step: the terms it plays by, and its part of the parties'
    common key.
    """

    terms: bytes
    part: bytes


class Seed(Message, frozen=True, array_like=True, tag="Seed", gc=False):
    """Dealer to everyone else: the terms it deals for, the seed of a party's tapes, and of the
    masks of its inputs.
    """

    terms: bytes
    tapes: bytes
    inputs: bytes


class Want(Message, frozen=True, array_like=True, tag="Want", gc=False):
    """Party to dealer: deal chunks up to this one."""

    chunk: int


class Dealt(Message, frozen=True, array_like=True, tag="Dealt", gc=False):
    """Dealer to party: what makes its tapes of a chunk of steps fit those of the others."""

    chunk: int
    data: bytes


class Opening(Message, frozen=True, array_like=True, tag="Opening", gc=False):
    """Party to party: its shares of what is opened in a round, and its own masked inputs."""

    step: int
    round: int
    data: bytes


class Reveal(Message, frozen=True, array_like=True, tag="Reveal", gc=False):
    """Party to puller: its share of the one-hot vector of the arm."""

    step: int
    data: bytes


class Choice(Message, frozen=True, array_like=True, tag="Choice", gc=False):
    """Puller to parties: the one-hot vector under a mask."""

    step: int
    data: bytes


class Pulled(Message, frozen=True, array_like=True, tag="Pulled", gc=False):
    """Puller to payee: the arm of this step was pulled; it does not say which."""

    step: int


class Payoff(Message, frozen=True, array_like=True, tag="Payoff", gc=False):
    """Payee to parties: the reward under a mask."""

    step: int
    data: bytes


class Over(Message, frozen=True, array_like=True, tag="Over", gc=False):
    """Party to everyone: no arm is chosen from this pass on; its contexts have ended, or its
    operator ends the run.
    """

    step: int


class Rows(Message, frozen=True, array_like=True, tag="Rows", gc=False):
    """Party to party: a keyed digest of the identifiers of the rows of a pass, where contexts
    arrive.
    """

    step: int
    digest: bytes


class End(Message, frozen=True, array_like=True, tag="End", gc=False):
    """Operator to party, and party to party where it waits for another's context: take no more
    contexts.
    """


class Look(Ask, frozen=True, array_like=True, tag="Look", gc=False):
    """Ask for a party's own features of a step; the world answers with `Seen`."""

    awaits: ClassVar[str] = "a context"
    step: int


class Seen(Message, frozen=True, array_like=True, tag="Seen", gc=False):
    """The world's answer to a `Look`: row and features in fixed point, or that no context comes any
    more.
    """

    step: int
    row: str
    data: bytes
    over: bool = False


class Act(Ask, frozen=True, array_like=True, tag="Act", gc=False):
    """Pull an arm for the context of a step; the world answers with `Acted`."""

    step: int
    arm: int


class Acted(Message, frozen=True, array_like=True, tag="Acted", gc=False):
    """The world's answer to an `Act`: it was done."""

    step: int


class Earn(Ask, frozen=True, array_like=True, tag="Earn", gc=False):
    """Ask what the pull of a step earned; the world answers with `Earned`."""

    step: int


class Earned(Message, frozen=True, array_like=True, tag="Earned", gc=False):
    """The world's answer to an `Earn`, in units of 2^-24."""

    step: int
    units: int
