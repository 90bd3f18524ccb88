"""A party with the hub of the toy roles, which tests feed by hand, without sockets."""

from __future__ import annotations

import asyncio

import msgspec

from posse.runtime.journal import Journal
from posse.runtime.network.connection import Connection, Wiring
from posse.runtime.network.engine import Engine
from posse.runtime.network.party import Party
from posse.runtime.network.wire import (
    WIRE_VERSION,
    Hello,
    pack,
)
from posse.version import PROTOCOL_VERSION
from tests.kit.toy_roles import WORDS, Hub


def hub_of(folder, steps=1, **how):
    return Engine(Hub(["a"], steps), Journal(folder), ["a"], WORDS, run="r", **how)


def encoded(message):
    return msgspec.msgpack.encode(message)


def party_of(folder, **how):
    wiring = Wiring("toy", {"a": "leaf"})
    return Party(hub_of(folder), wiring, lambda certificate: ("leaf", "a"), **how)


def greeted(party, received=0):
    connection, transport = Connection(party), Nowhere()
    connection.connection_made(transport)
    connection.data_received(
        pack(Hello(WIRE_VERSION, "0", "toy", PROTOCOL_VERSION, "r", "a", received, 0))
    )
    return connection, transport


class Nowhere(asyncio.Transport):
    """A transport without another end."""

    def __init__(self):
        super().__init__()
        self.closed = False
        self.told = bytearray()

    def write(self, data):
        self.told += data

    def abort(self):
        self.close()

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def get_extra_info(self, name, default=None):
        return default
