"""What a client refuses: the rules that hold whatever the server does.

Each function raises `ProtocolError` with the rule, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from posse.core.errors import ProtocolError
from posse.privacy.aggregation.masks import PURPOSE_SURVIVORS
from posse.privacy.aggregation.messages import Named, Unmask
from posse.privacy.aggregation.terms import Terms
from posse.privacy.crypto.keys import verify


def check_names(me: str, names: Iterable[str], allowed: Collection[str]) -> None:
    """Refuse a list that names a client twice, or one that is not allowed in it."""
    listed = list(names)
    if len(set(listed)) != len(listed):
        raise ProtocolError(f"{me} got two things of one client where it takes one.")
    strangers = sorted(set(listed) - set(allowed))
    if strangers:
        raise ProtocolError(f"{me} got something of '{strangers[0]}', of whom it expects nothing here.")


def check_holders(me: str, terms: Terms, count: int) -> None:
    """Refuse to go on with fewer holders of shares than reconstruct a secret."""
    if count < terms.plan.threshold:
        raise ProtocolError(
            f"{me} needs {terms.plan.threshold} holders of its shares, itself among them, got {count}. "
            "Run the round again with more clients, or plan for more dropouts."
        )


def check_survivors(me: str, terms: Terms, held: Collection[str], names: tuple[str, ...]) -> None:
    """Refuse a set of survivors without me, below the minimum, or with a neighbour that never shared.

    A neighbour that never shared has no mask with me: to count it would leave its vector unmasked on my side.
    """
    if any(a >= b for a, b in pairwise(names)) or not set(names) <= terms.positions.keys():
        raise ProtocolError("the survivors must be clients of the round, each once and in alphabetical order.")
    if me not in names:
        raise ProtocolError(f"{me} was declared dropped and helps to unmask nothing.")
    if len(names) < terms.plan.survivors:
        raise ProtocolError(
            f"{me} helps with a sum of at least {terms.plan.survivors} survivors, got {len(names)}. "
            "Run the round again, or plan for more dropouts."
        )
    strangers = (terms.neighbours(me) & set(names)) - set(held)
    if strangers:
        raise ProtocolError(f"'{min(strangers)}' is said to survive and shared nothing with {me}.")


def kinds(held: Collection[str], survivors: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Whose self-mask shares, and whose mask-key shares, the holder of some shares may show."""
    alive = set(held) & set(survivors)
    return tuple(sorted(alive)), tuple(sorted(set(held) - alive))


def check_request(me: str, held: Collection[str], survivors: Collection[str], request: Unmask) -> None:
    """Refuse a request for both shares of a client, or for another set than the one signed."""
    both = set(request.self_masks) & set(request.mask_keys)
    if both:
        raise ProtocolError(f"both shares of '{min(both)}' were asked for; {me} gives one of each neighbour.")
    allowed = kinds(held, survivors)
    if (request.self_masks, request.mask_keys) != allowed:
        raise ProtocolError(
            f"{me} shows self-mask shares of the {len(allowed[0])} survivors it holds shares of and mask-key shares of "
            f"the {len(allowed[1])} others, and was asked for another choice. Ask for the set that was signed."
        )


def check_quorum(me: str, terms: Terms, survivors: tuple[str, ...], signatures: Named) -> None:
    """Refuse unless enough different survivors signed this very set, as the plan demands."""
    check_names(me, (name for name, _ in signatures), survivors)
    if len(signatures) < terms.plan.quorum:
        raise ProtocolError(
            f"{me} wants {terms.plan.quorum} signatures on the set of survivors, got {len(signatures)}. "
            "Wait for more clients to sign."
        )
    signed = terms.survivors_digest(survivors)
    for name, signature in signatures[: terms.plan.quorum]:
        verify(terms.identity(name), PURPOSE_SURVIVORS, signed, signature)
