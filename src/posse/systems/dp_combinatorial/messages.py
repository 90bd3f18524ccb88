"""What agents say to each other, and what they ask of the world."""

from __future__ import annotations

from posse.core.roles import Ask, Message


class Hello(Message, frozen=True, array_like=True, tag="Hello", gc=False):
    """Before the first round: the digest of the terms by which the sender plays."""

    version: int
    terms: bytes


class Report(Message, frozen=True, array_like=True, tag="Report", gc=False):
    """What the sender bought since its last report, and how much of it was good, with noise; one
    number a producer.

    The same report goes to everyone: noise drawn anew for each receiver would be a release each.
    """

    number: int
    units: tuple[float, ...]
    good: tuple[float, ...]
    sigma: tuple[float, ...] = ()
    """Standard deviation of the noise, where reports are fused by their variance; else it is
    nobody's business.
    """


class Buy(Ask, frozen=True, array_like=True, tag="Buy", gc=False):
    """Buy these units, one number a producer, in a round (from 1); the world answers with
    `Delivered`.
    """

    round: int
    units: tuple[int, ...]


class Delivered(Message, frozen=True, array_like=True, tag="Delivered", gc=False):
    """The world's answer to a `Buy`: how many units of each producer were good."""

    round: int
    good: tuple[float, ...]


class Offers(Message, frozen=True, array_like=True, tag="Offers", gc=False):
    """An agent's own costs and capacities, one number a producer: from its operator, and for nobody
    else.
    """

    cost: tuple[float, ...]
    capacity: tuple[float, ...]
