"""Agreement on terms: parties that were started with different terms stop before the first step.

Terms are public: a mapping from names, such as policy, level and horizon, to plain values. When a
connection begins, each party sends its own terms (`terms_as_texts`) and compares them with the
peer's terms. Only fields that both parties have are compared, so a party may leave out fields that
do not concern it. The role of a party begins when no peer has different terms. Until the first
message of the protocol, the journal of a party holds no terms. So parties can start again with
corrected files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from posse.core.errors import DisagreementError

Texts: TypeAlias = Mapping[str, str]
"""Terms as texts: one short text per field, by the name of the field."""

MAX_LENGTH = 100
"""Longest text of a value, in characters. Of a longer text, only its start and its digest are sent,
compared and stored.
"""
_MAX_NAMED = 3
"""Number of differing fields that an error names; the error only counts further ones."""


def terms_as_texts(terms: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return terms as they are sent, compared and stored: one short text per field.

    Args:
        terms: Plain values and tables of them. In the result, a field of a table is named by its
            path, such as `policy.name`.
        prefix: Path of the table `terms`, with a dot at its end; empty for the outermost table.

    >>> terms_as_texts({"policy": {"name": "ucb", "coefficient": 1.5}, "owners": ("ada", "bob")})
    {'policy.name': '"ucb"', 'policy.coefficient': '1.5', 'owners': '["ada", "bob"]'}
    """
    texts: dict[str, str] = {}
    for name, value in terms.items():
        if isinstance(value, Mapping):
            texts |= terms_as_texts(value, f"{prefix}{name}.")
            continue
        text = json.dumps(value)
        if len(text) > MAX_LENGTH:
            digest = hashlib.sha256(text.encode()).hexdigest()
            text = f"{text[: MAX_LENGTH // 2]}... (digest {digest[:16]})"
        texts[prefix + name] = text
    return texts


def describe_difference(first: Texts, second: Texts, places: tuple[str, str]) -> str:
    """Describe the fields that differ between two parties' terms, with both values.

    Args:
        first: Terms of one party.
        second: Terms of the other party.
        places: The words to write after a value of `first` and after a value of `second`, such as
            ("here", "there").

    Returns:
        The description; empty if no field differs.

    >>> describe_difference({"rounds": "100", "rule": "pool"}, {"rounds": "200"}, ("here", "there"))
    'rounds is 100 here and 200 there; rule is pool here and absent there'
    """
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    # Only the first fields are named. So fields with short values come first: they read best.
    names.sort(key=lambda name: len(first.get(name, "")))
    parts = []
    for name in names[:_MAX_NAMED]:
        first_text = _printable_start(first.get(name, "absent"))
        second_text = _printable_start(second.get(name, "absent"))
        parts.append(f"{name} is {first_text} {places[0]} and {second_text} {places[1]}")
    if len(names) > _MAX_NAMED:
        parts.append(f"and {len(names) - _MAX_NAMED} more")
    return "; ".join(parts)


def check_terms(party: str, mine: Texts, peer: str, theirs: Texts) -> None:
    """Check that two parties agree on the fields that both of them have.

    Args:
        party: Name of the party that checks.
        mine: Terms of this party.
        peer: Name of the other party.
        theirs: Terms of the other party.

    Raises:
        DisagreementError: A field differs. Both parties get the same message.

    >>> check_terms("bob", {"rounds": "200"}, "ada", {"rounds": "100"})
    Traceback (most recent call last):
    ...
    posse.core.errors.DisagreementError: [P530] the files of 'ada' and 'bob' differ: rounds is 100
    at 'ada' and 200 at
    'bob'. Correct the file that is wrong, and start all parties again.
    """
    shared = mine.keys() & theirs.keys()
    terms = {party: _select_fields(mine, shared), peer: _select_fields(theirs, shared)}
    # With sorted names, both parties write the same message.
    first, second = sorted(terms)
    text = describe_difference(terms[first], terms[second], (f"at '{first}'", f"at '{second}'"))
    if text:
        raise DisagreementError(
            f"the files of '{first}' and '{second}' differ: {text}. "
            "Correct the file that is wrong, and start all parties again.",
            rule="core.terms.differ",
        )


def check_terms_digest(mine: bytes, peer: str, theirs: bytes) -> None:
    """Check that a peer has the same terms, by comparing digests of the terms.

    Args:
        mine: Digest of this party's terms.
        peer: Name of the peer.
        theirs: Digest of the peer's terms, from the peer's message.

    Raises:
        DisagreementError: The digests differ.
    """
    if mine != theirs:
        raise DisagreementError(
            f"the terms of '{peer}' differ from those here (digest {theirs.hex()[:12]}, here "
            f"{mine.hex()[:12]}). Compare the two files of terms, correct the wrong one, and start "
            "all parties again.",
            rule="core.terms.other-digest",
        )


def _select_fields(terms: Texts, names: Collection[str]) -> Texts:
    """Return the fields of `terms` with these names, in the order of `terms`."""
    return {name: text for name, text in terms.items() if name in names}


def _printable_start(text: str) -> str:
    """Return the start of a text, with spaces instead of line ends and control characters.

    A peer may have sent the text. A terminal would obey the control characters in it.
    """
    start = text[:MAX_LENGTH]
    return "".join(letter if letter.isprintable() else " " for letter in start)
