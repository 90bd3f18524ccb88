"""Levels of protection that mean the same in every system, and how each is told."""

from __future__ import annotations

PLAIN = "plain"
"""No protection: what is exchanged is exchanged in the clear."""

ALONE = "alone"
"""No federation: nothing leaves a party, so there is nothing to protect and nothing to gain."""

PLACEBO = "placebo"
"""A control: messages of pure noise, which carry nothing and should help nobody."""

_TOLD = {PLAIN: "no protection", ALONE: "nothing is shared", PLACEBO: "a control, pure noise"}


def remark(protection: str) -> str:
    """Say what a protection (`RunRecord.protection`) is when its name alone could mislead; else nothing.

    >>> remark("plain, twin of paper"), remark("alone"), remark("tight")
    ('no protection', 'nothing is shared', '')
    """
    return _TOLD.get(protection.partition(",")[0], "")


def told(protection: str) -> str:
    """Write a protection with its remark.

    >>> told("alone"), told("standard")
    ('alone: nothing is shared', 'standard')
    """
    return f"{protection}: {remark(protection)}" if remark(protection) else protection


def warns(protection: str) -> bool:
    """Tell whether a protection is less than its reader may think: plain, or with a part switched off.

    >>> warns("plain"), warns("paper, mask off"), warns("alone"), warns("placebo")
    (True, True, False, False)
    """
    return protection.partition(",")[0] == PLAIN or protection.endswith(" off")
