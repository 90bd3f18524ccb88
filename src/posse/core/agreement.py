"""Agreement on terms: parties that were started for different things stop before the first step.

Terms are public, and have names: a mapping of plain values, such as policy, level and horizon. A
party sends its own terms when a connection begins (`written`) and compares those of its peer. Only
fields that both have count, so a party can leave out what is not its business. A role begins when
all its peers have the same terms. Nothing is journalled before the first message, so parties whose
files are corrected start again; from then on the journal holds the terms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from posse.core.errors import DisagreementError

LONGEST = 100
"""Characters of a value; of a longer one its beginning and a digest are compared."""
_MAX_NAMED = 3
"""Fields that a message names; it counts the others."""


def written(terms: Mapping[str, Any], within: str = "") -> dict[str, str]:
    """Write terms as they are sent, compared and stored: one short text per field.

    Args:
        terms: Plain values; a field of an inner table is named by its path.
        within: Path of these terms, with a dot at its end.

    >>> written({"policy": {"name": "ucb", "coefficient": 1.5}, "owners": ("ada", "bob")})
    {'policy.name': '"ucb"', 'policy.coefficient': '1.5', 'owners': '["ada", "bob"]'}
    """
    texts: dict[str, str] = {}
    for name, value in terms.items():
        if isinstance(value, Mapping):
            texts |= written(value, f"{within}{name}.")
            continue
        text = json.dumps(value)
        if len(text) > LONGEST:
            digest = hashlib.sha256(text.encode()).hexdigest()
            text = f"{text[: LONGEST // 2]}... (digest {digest[:16]})"
        texts[within + name] = text
    return texts


def difference(one: Mapping[str, str], other: Mapping[str, str], where: tuple[str, str]) -> str:
    """Name the fields that differ, with both values; short values come first.

    >>> difference({"rounds": "100", "rule": "pool"}, {"rounds": "200"}, ("here", "there"))
    'rounds is 100 here and 200 there; rule is pool here and absent there'
    """
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    names.sort(key=lambda name: len(one.get(name, "")))
    parts = []
    for name in names[:_MAX_NAMED]:
        first = _printable(one.get(name, "absent"))
        second = _printable(other.get(name, "absent"))
        parts.append(f"{name} is {first} {where[0]} and {second} {where[1]}")
    if len(names) > _MAX_NAMED:
        parts.append(f"and {len(names) - _MAX_NAMED} more")
    return "; ".join(parts)


def check_terms(party: str, mine: Mapping[str, str], peer: str, theirs: Mapping[str, str]) -> None:
    """Check that two parties agree on the terms that both have; both get the same message.

    Raises:
        DisagreementError: A term differs.

    >>> check_terms("bob", {"rounds": "200"}, "ada", {"rounds": "100"})
    Traceback (most recent call last):
    ...
    posse.core.errors.DisagreementError: [P530] the files of 'ada' and 'bob' differ: rounds is 100
    at 'ada' and 200 at
    'bob'. Correct the file that is wrong, and start all parties again.
    """
    terms = {party: _common(mine, theirs), peer: _common(theirs, mine)}
    first, second = sorted(terms)
    text = difference(terms[first], terms[second], (f"at '{first}'", f"at '{second}'"))
    if text:
        raise DisagreementError(
            f"the files of '{first}' and '{second}' differ: {text}. "
            "Correct the file that is wrong, and start all parties again.",
            rule="core.terms.differ",
        )


def check_digest(mine: bytes, peer: str, theirs: bytes) -> None:
    """Check that a peer's message is for the same terms.

    Raises:
        DisagreementError: It is for other terms. Nothing of the message is used.
    """
    if mine != theirs:
        raise DisagreementError(
            f"'{peer}' plays by other terms ({theirs.hex()[:12]}, here {mine.hex()[:12]}). "
            "Correct the file that is wrong, and start all parties again.",
            rule="core.terms.other-digest",
        )


def _common(terms: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in terms.items() if name in others}


def _printable(text: str) -> str:
    """Return one line of a value that a peer may have written, safe for a terminal."""
    start = text[: LONGEST + 1]
    return "".join(letter if letter.isprintable() else " " for letter in start)
