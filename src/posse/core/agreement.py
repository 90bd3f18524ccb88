"""One agreement on terms: parties that were started for different things stop before the first
step, and say over what.

Terms are public, and said by name: a mapping of plain values, such as policy, level and horizon. A
party sends its own when a connection begins (`written`) and compares those of its peer; only fields
that both have count, so a party may be silent on what is not its business. A role begins when all
its peers have the same terms. Until something comes in nothing is journalled, so parties whose
files are corrected begin anew; from then on the journal holds the terms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from posse.core.errors import DisagreementError

LONGEST = 100
"""Characters of a value; of a longer one its beginning and a digest are compared."""
_NAMED = 3
"""Fields that a line names."""


def written(terms: Mapping[str, Any], within: str = "") -> dict[str, str]:
    """Write terms as they are sent, compared and kept: a short text a field, inner tables by their
    path.

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
            text = (
                f"{text[: LONGEST // 2]}... (digest "
                f"{hashlib.sha256(text.encode()).hexdigest()[:16]})"
            )
        texts[within + name] = text
    return texts


def difference(one: Mapping[str, str], other: Mapping[str, str], where: tuple[str, str]) -> str:
    """Name the fields that differ, with both values; empty where there are none. Short values come
    first.

    >>> difference({"rounds": "100", "rule": "pool"}, {"rounds": "200"}, ("here", "there"))
    'rounds is 100 here and 200 there; rule is pool here and absent there'
    """
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    names.sort(key=lambda name: len(one.get(name, "")))
    values = [[_line(side.get(name, "absent")) for side in (one, other)] for name in names[:_NAMED]]
    lines = [
        f"{name} is {a} {where[0]} and {b} {where[1]}"
        for name, (a, b) in zip(names, values, strict=False)
    ]
    return "; ".join([*lines, f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else lines)


def check_terms(party: str, mine: Mapping[str, str], peer: str, theirs: Mapping[str, str]) -> None:
    """Raise `DisagreementError` unless two parties agree on the terms that both have; both come to
    the same line.

    >>> check_terms("bob", {"rounds": "200"}, "ada", {"rounds": "100"})
    Traceback (most recent call last):
    ...
    posse.core.errors.DisagreementError: [P530] the files of 'ada' and 'bob' differ: rounds is 100
    at 'ada' and 200 at
    'bob'. Correct the file that is wrong, and start all parties again.
    """
    sides = {party: _common(mine, theirs), peer: _common(theirs, mine)}
    first, second = sorted(sides)
    if text := difference(sides[first], sides[second], (f"at '{first}'", f"at '{second}'")):
        raise DisagreementError(
            f"the files of '{first}' and '{second}' differ: {text}. Correct the file that is "
            "wrong, and start all "
            "parties again."
        )


def check_digest(mine: bytes, peer: str, theirs: bytes) -> None:
    """Raise `DisagreementError` unless a peer's message is for the same terms; nothing of it is
    taken then.
    """
    if mine != theirs:
        raise DisagreementError(
            f"'{peer}' plays by other terms ({theirs.hex()[:12]}, here {mine.hex()[:12]}). Correct "
            "the file that is "
            "wrong, and start all parties again."
        )


def _common(terms: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in terms.items() if name in others}


def _line(text: str) -> str:
    """Make one line of a value that a peer may have written, in which nothing but letters reaches a
    terminal.
    """
    return "".join(letter if letter.isprintable() else " " for letter in text[: LONGEST + 1])
