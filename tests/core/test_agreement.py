"""Agreement on terms: both sides come to one line, only what both have counts, and a line stays a
line.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.core.agreement import (
    MAX_LENGTH,
    check_terms,
    check_terms_digest,
    describe_difference,
    terms_as_texts,
)
from posse.core.errors import DisagreementError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
TERMS = st.dictionaries(st.sampled_from("abcdef"), PLAIN, max_size=6)


@given(TERMS, TERMS)
def test_both_sides_come_to_the_same_line_or_agree(
    mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    sides = {"ada": terms_as_texts(mine), "bob": terms_as_texts(theirs)}
    lines = set()
    for party, peer in (("ada", "bob"), ("bob", "ada")):
        try:
            check_terms(party, sides[party], peer, sides[peer])
        except DisagreementError as error:
            lines.add(str(error))
    differ = [
        name
        for name in sides["ada"]
        if name in sides["bob"] and sides["ada"][name] != sides["bob"][name]
    ]
    assert len(lines) == bool(differ)
    for line in lines:
        assert line.isprintable()
        assert len(line) < 1000  # what a refusal carries
        assert f"{differ[0]} is" in line or "more" in line or len(differ) <= 3


@given(PLAIN, PLAIN)
def test_values_are_written_alike_where_they_are_alike(one: Any, other: Any) -> None:
    same = terms_as_texts({"x": one}) == terms_as_texts({"x": other})
    assert same == (repr(one) == repr(other))
    assert all(len(text) <= MAX_LENGTH for text in terms_as_texts({"x": one}).values())


def test_fields_and_both_values_are_named_and_digests_come_last() -> None:
    ada = {"policy": {"digest": "a" * 64, "name": "ucb"}, "rounds": 100, "own": 1}
    bob = {"policy": {"digest": "b" * 64, "name": "exp3"}, "rounds": 200, "other": 2}
    with pytest.raises(DisagreementError) as caught:
        check_terms("bob", terms_as_texts(bob), "ada", terms_as_texts(ada))
    text = caught.value.text
    for value in ("100", "200", '"ucb"', '"exp3"', "a" * 64, "b" * 64):
        assert value in text
    assert text.index("rounds is") < text.index("policy.name is") < text.index("policy.digest is")
    assert "own" not in text


def test_many_differences_are_counted() -> None:
    text = describe_difference(
        dict.fromkeys("abcde", "1"), dict.fromkeys("abcde", "2"), ("here", "there")
    )
    assert (
        text
        == "a is 1 here and 2 there; b is 1 here and 2 there; c is 1 here and 2 there; and 2 more"
    )


def test_long_values_are_compared_by_their_digest() -> None:
    names = [f"clinic-{i}" for i in range(500)]
    text = describe_difference(
        terms_as_texts({"owners": names}),
        terms_as_texts({"owners": [*names[:-1], "x"]}),
        ("here", "there"),
    )
    assert text.count("(digest ") == 2
    assert not describe_difference(
        terms_as_texts({"owners": names}),
        terms_as_texts({"owners": tuple(names)}),
        ("here", "there"),
    )


def test_what_a_peer_writes_reaches_no_terminal_as_it_is() -> None:
    text = describe_difference(
        {"level": "1"}, {"level": "\x1b[2J\n" + "x" * 10_000}, ("here", "there")
    )
    assert text.isprintable()
    assert len(text) < 200


def test_a_message_for_the_same_terms() -> None:
    check_terms_digest(b"12", "bob", b"12")
