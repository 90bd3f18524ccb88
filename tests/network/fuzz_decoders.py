"""Fuzz every decoder with atheris: python tests/network/fuzz_decoders.py [-runs=200000]
[-max_total_time=60] [CORPUS].

Not a test of the default run: atheris (`pip install atheris`) takes the process over. Whatever
comes in, a decoder gives a value or raises the one error it is documented to raise; anything else
ends the program with the input. What a decoder takes, it must write again as it was.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import atheris
import msgspec

from posse.core.errors import EnrolmentError, PosseError
from posse.core.roles import Reward
from posse.runtime import journal as journals
from posse.runtime.certificates import tokens as enrolling
from posse.runtime.certificates.names import Peer
from posse.runtime.certificates.tokens import Token
from posse.runtime.network.wire import (
    LARGEST_FRAME,
    AnyFrame,
    Data,
    Hello,
    Kept,
    Reader,
    Refused,
    WireError,
    pack,
)
from posse.systems.samba import messages as samba
from posse.systems.samba.deploy import VOCABULARY

# Not by import: numba would be given what atheris has rewritten.
split = atheris.instrument_func(journals.split)
for module, name in ((enrolling, name) for name in ("read_request", "_decode_answer", "_body")):
    setattr(module, name, atheris.instrument_func(getattr(module, name)))
Reader.feed = atheris.instrument_func(Reader.feed)  # type: ignore[method-assign]

MESSAGES = VOCABULARY.decoder()
TOKEN = Token.new(
    b"\x01" * 32, Peer("run-1", "owner", "clinic-1"), datetime.now(UTC) + timedelta(minutes=15)
)
REQUEST = enrolling.make_request(TOKEN, b"csr")


def frames(data: bytes) -> None:
    """The stream gives the same frames however it is cut, or is refused in the same place."""
    whole = _frames([data])
    half = len(data) // 2
    assert _frames([data[:half], data[half:]]) == whole
    found, _ = whole
    for frame in found:
        assert _frames([pack(frame)]) == ([frame], False)


def _frames(parts: list[bytes]) -> tuple[list[AnyFrame], bool]:
    """Give the frames of a stream, and whether it was refused behind them."""
    reader, found = Reader(LARGEST_FRAME), list[AnyFrame]()
    try:
        for part in parts:
            for frame in reader.feed(part):
                found.append(frame)  # not extend: what came before a bad frame counts
    except WireError:
        return found, True
    return found, False


def messages(data: bytes) -> None:
    """A message decodes to what encodes to something that decodes to it."""
    try:
        message = MESSAGES.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    assert MESSAGES.decode(msgspec.msgpack.encode(message)) == message


def journal(data: bytes) -> None:
    """Records are a prefix of the file, and all of it where it is whole."""
    records, whole = split(data)
    written = b"".join(
        journals._HEAD.pack(len(record), zlib.crc32(record)) + record for record in records
    )
    assert data.startswith(written)
    assert whole == (len(written) == len(data))


def enrolment(data: bytes) -> None:
    """Requests and answers; an answer without the token's seal is never granted."""
    with contextlib.suppress(EnrolmentError):
        enrolling.read_request(data)
    try:
        enrolling.read_answer(TOKEN, REQUEST, data)
    except EnrolmentError:
        return
    raise AssertionError("an answer was forged")


def tokens(data: bytes) -> None:
    """A token that reads writes itself as it was read."""
    text = data.decode("latin-1")
    try:
        token = Token.read(text)
    except PosseError:
        return
    assert Token.read(token.text()) == token


TARGETS = (frames, messages, journal, enrolment, tokens)


def one(data: bytes) -> None:
    """The first byte chooses the decoder."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def seeds() -> Iterator[bytes]:
    """Something whole for every decoder to begin with."""
    hello = Hello(1, "0.1.0", "samba", 1, "run-1", "clinic-1", 3, 3)
    yield b"\x00" + b"".join(
        pack(frame) for frame in (hello, Data(1, b"body"), Kept(3), Refused("no"))
    )
    for message in (
        samba.Score(4, b"frame"),
        samba.Choice(4, b"replies"),
        samba.Go(b"signature"),
        Reward(3, 7),
    ):
        yield b"\x01" + msgspec.msgpack.encode(message)
    yield b"\x02" + b"".join(
        journals._HEAD.pack(len(part), zlib.crc32(part)) + part for part in (b"one", b"", b"two")
    )
    yield b"\x03" + REQUEST
    yield b"\x03" + enrolling.sealed(
        enrolling.Answer(1, b"n" * 32, "1", b"c", b"a", b"r"), b"k" * 32
    )
    yield b"\x03" + enrolling.sealed(enrolling.Refusal(1, b"", "used"), None)
    yield b"\x04" + TOKEN.text().encode()


def main() -> None:
    """Give atheris the arguments of the command line; 200,000 runs where none are given."""
    arguments = sys.argv if len(sys.argv) > 1 else [*sys.argv, "-runs=200000"]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds()):
            (Path(folder) / f"{number}").write_bytes(seed)
            one(seed)
        atheris.Setup(
            [*arguments, "-max_len=4096", "-timeout=20", "-print_final_stats=1", folder], one
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
