"""Tokens and names: what is read back, what is a typo, what is refused."""

from __future__ import annotations

import pickle
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError, EnrolmentError
from posse.runtime.certificates import tokens
from posse.runtime.certificates.names import Peer, check_host, check_name, from_uri, split_address
from posse.runtime.certificates.tokens import Token
from tests.kit.certificates import RUN, START

PEER = Peer(RUN, "owner", "clinic-b")
TOKEN = Token.new(bytes(range(32)), PEER, START + timedelta(minutes=15), "ca.example.org:7710")


def test_a_token_is_read_back_with_line_breaks_in_it() -> None:
    text = TOKEN.text()
    assert text.startswith("posse1_")
    assert Token.read(text) == TOKEN
    broken = "\n".join(text[i : i + 40] for i in range(0, len(text), 40))
    assert Token.read(f"  {broken}\r\n") == TOKEN


def test_every_wrong_letter_is_told_as_a_typo() -> None:
    text = TOKEN.text()
    for i in range(len("posse1_"), len(text)):
        wrong = text[:i] + ("A" if text[i] != "A" else "B") + text[i + 1 :]
        with pytest.raises(EnrolmentError, match="the token has a typo") as caught:
            Token.read(wrong)
        assert caught.value.reason == "typo"


def test_a_token_cut_short_or_swapped_is_a_typo() -> None:
    text = TOKEN.text()
    for wrong in (
        text[:-1],
        text[:-5],
        text + "A",
        text[:30] + text[31:],
        text[:40] + text[41] + text[40] + text[42:],
    ):
        if wrong != text:
            with pytest.raises(EnrolmentError, match="Copy it again, whole"):
                Token.read(wrong)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "malformed"),
        ("hello", "malformed"),
        ("posse2_abc", "version"),
        ("posse1_", "typo"),
        ("posse1_" + "A" * 3000, "malformed"),
        ("posse1_é", "typo"),
    ],
)
def test_what_is_no_token(text: str, reason: str) -> None:
    with pytest.raises(EnrolmentError) as caught:
        Token.read(text)
    assert caught.value.reason == reason


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_with_a_right_checksum_are_a_token_or_an_error(body: bytes) -> None:
    text = tokens.PREFIX + tokens._encoded(tokens._checksum(body) + body)
    with pytest.raises(EnrolmentError):
        Token.read(text)


FIELDS = [b"i" * 16, b"s" * 32, b"f" * 32, RUN, "owner", "clinic-b", 1_900_000_000, ""]


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, b"short"),
        (1, b"short"),
        (2, b"short"),
        (3, "Other Run"),
        (4, ""),
        (5, "a/b"),
        (6, 10**17),
        (7, "nowhere"),
    ],
)
def test_fields_out_of_their_rule(index: int, value: object) -> None:
    def read(fields: list[object]) -> Token:
        body = msgspec.msgpack.encode(fields)
        return Token.read(tokens.PREFIX + tokens._encoded(tokens._checksum(body) + body))

    assert read(list(FIELDS)).peer == PEER
    with pytest.raises(EnrolmentError, match="does not decode"):
        read([*FIELDS[:index], value, *FIELDS[index + 1 :]])


def test_secrets_are_not_shown_and_do_not_pickle() -> None:
    shown = repr(TOKEN) + str(TOKEN)
    assert TOKEN.secret.hex() not in shown
    assert repr(TOKEN.secret) not in shown
    with pytest.raises(TypeError):
        pickle.dumps(TOKEN)


def test_keys_differ_by_purpose_and_are_not_the_secret() -> None:
    keys = {TOKEN.key("request"), TOKEN.key("answer"), TOKEN.key("refusal")}
    assert len(keys | {TOKEN.secret}) == 4


def test_it_expires_to_the_second() -> None:
    TOKEN.check_open(TOKEN.expires - timedelta(seconds=1))
    with pytest.raises(
        EnrolmentError, match=r"expired at 2030-05-01 12:15 UTC.*Ask the customer for a new one"
    ):
        TOKEN.check_open(TOKEN.expires)


@pytest.mark.parametrize(
    "name", ["", "-a", "A", "a" * 64, "a_b", "a/b", "a.b", "ä", "a\n", "a b", "٣"]
)
def test_names_that_could_be_read_in_two_ways(name: str) -> None:
    with pytest.raises(ConfigError, match="name must be"):
        check_name(name=name)
    for build in (
        lambda: Peer(name, "owner", "b"),
        lambda: Peer("r", name, "b"),
        lambda: Peer("r", "owner", name),
    ):
        with pytest.raises(ConfigError):
            build()
    assert from_uri(f"posse://trial-7/owner/{name}") is None
    assert from_uri(f"posse://{name}/owner/b") is None


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "posse://",
        "posse://r/o",
        "posse://r/o/n/x",
        "posse:///r/o/n",
        "http://r/o/n",
        "POSSE://r/o/n",
        "posse://r/o/n?x",
        "posse://r:1/o/n",
        "posse://u@r/o/n",
        "posse://r/o/n#f",
        "posse://r//n",
    ],
)
def test_other_uris_are_no_peer(uri: str) -> None:
    assert from_uri(uri) is None


@pytest.mark.parametrize(
    "host", ["", "*", "*.a.org", "a..b", "-a.org", "A.org", "1.2.3", "a_b", "a" * 64, "x y"]
)
def test_hosts_that_are_none(host: str) -> None:
    with pytest.raises(ConfigError, match="host must be"):
        check_host(host)


def test_hosts_and_addresses_in_their_plain_form() -> None:
    assert check_host("0:0::1") == "::1"
    assert check_host("clinic-b.example.org") == "clinic-b.example.org"
    assert split_address("127.0.0.1:80") == ("127.0.0.1", 80)
    for wrong in ("a", "a:", ":1", "a:0", "a:65536", "::1:80", "a:１", "a:-1", "[::1]"):
        with pytest.raises(ConfigError, match="address must be host:port"):
            split_address(wrong)
