"""What the roles say to each other, and what they ask of the world."""

from __future__ import annotations

from posse.core.roles import Ask, Message

AHEAD = 2
"""Chunks that a party may ask the dealer for ahead of the one it uses."""


class Hello(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Party to party, before the first step: the terms it plays by, and its part of the parties' common key."""

    terms: bytes
    part: bytes


class Seed(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Dealer to everyone else: the terms it deals for, the seed of a party's tapes, and of the masks of its inputs."""

    terms: bytes
    tapes: bytes
    inputs: bytes


class Want(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Party to dealer: deal chunks up to this one."""

    chunk: int


class Dealt(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Dealer to party: what makes its tapes of a chunk of steps fit those of the others."""

    chunk: int
    data: bytes


class Opening(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Party to party: its shares of what is opened in a round, and its own masked inputs."""

    step: int
    round: int
    data: bytes


class Reveal(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Party to puller: its share of the one-hot vector of the arm."""

    step: int
    data: bytes


class Choice(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Puller to parties: the one-hot vector under a mask."""

    step: int
    data: bytes


class Pulled(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Puller to payee: the arm of this step was pulled; it does not say which."""

    step: int


class Payoff(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Payee to parties: the reward under a mask."""

    step: int
    data: bytes


class Act(Ask, frozen=True, array_like=True, tag=True, gc=False):
    """Pull an arm for the context of a step; the world answers with `Acted`."""

    step: int
    arm: int


class Acted(Message, frozen=True, array_like=True, tag=True, gc=False):
    """The world's answer to an `Act`: it was done."""

    step: int


class Earn(Ask, frozen=True, array_like=True, tag=True, gc=False):
    """Ask what the pull of a step earned; the world answers with `Earned`."""

    step: int


class Earned(Message, frozen=True, array_like=True, tag=True, gc=False):
    """The world's answer to an `Earn`, in units of 2^-24."""

    step: int
    units: int
