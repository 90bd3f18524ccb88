"""Levels of protection: what each does, and what it does not.

Every run and report prints its level and these sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

from posse.core import check
from posse.core.errors import ConfigError
from posse.policies.base import Policy

LEVELS = ("standard", "paper")


@dataclass(frozen=True)
class Switches:
    """The four protections of the paper; they can be switched off at level `paper` only, to see what each does."""

    aes: bool = True
    paillier: bool = True
    permutation: bool = True
    mask: bool = True

    @property
    def off(self) -> tuple[str, ...]:
        """Names of the protections that are off."""
        return tuple(name for name in ("aes", "paillier", "permutation", "mask") if not getattr(self, name))


def check_level(level: str, switches: Switches, policy: Policy) -> None:
    """Refuse switches anywhere but at level `paper`, and there what floats cannot hold."""
    check.one_of(LEVELS, level=level)
    if level != "paper" and switches.off:
        raise ConfigError(
            f"protections can be switched off at level 'paper' only, got {', '.join(switches.off)} off at '{level}'."
        )

    for selection in policy.passes():
        smallest = (selection.ceiling - selection.floor) / 700
        if level == "paper" and selection.kind == "match" and selection.scale < smallest:
            raise ConfigError(
                f"level 'paper' sends exp(score / scale), which floats hold for a scale of {smallest:.4f} or more, "
                f"got {selection.scale}. Use level 'standard'."
            )


PROTECTS = {
    "standard": (
        "The controller sees sealed frames of one size and reply tokens; it learns neither scores nor who was chosen.",
        "Comp sees scores behind a fresh scale, shift and dither, in an order it cannot link to owners by the message.",
        "An owner sees its own arm, and neither other scores nor the total.",
        "The customer learns the total and the number of pulls; with the controller still only the total.",
    ),
    "paper": (
        "The published protocol: the controller sees sealed scores, comp sees them multiplied by one number a pass.",
        "The customer learns the total.",
    ),
}

_SHARED_LEAKS = (
    "Comp sees all scores of a pass up to one unknown scale (and shift at 'standard'): since one arm changes a step, "
    "it can follow arms over time and estimate their sums and the total reward.",
    "Comp sees which steps explore from the shape of the scores, and with rewards from few values many ties.",
    "The controller with comp or with any one owner, and comp with any one owner, learn every score and who is pulled.",
    "Owners know the budget, the policy and its exploration schedule; an owner that taps the wire opens all scores.",
    "The total is not authenticated against the controller, which can replace it by another of the right pull count; "
    "and a customer that puts owners of its own into the roster can read the sums and scores of the others.",
    "Timing can name the pulled arm: the chosen owner answers later because it pulls.",
    "All parties are assumed to follow the protocol (honest but curious), and comp and controller not to collude.",
)

_LEAKS = {
    "standard": _SHARED_LEAKS,
    "paper": (
        *_SHARED_LEAKS,
        "At level 'paper' comp learns every exploring step of epsilon-greedy, for owners send nothing in it.",
        "At level 'paper' the controller draws the mask seed and knows the exploration coins.",
        "At level 'paper' the customer with the controller reads every owner's sum.",
    ),
}

_OFF = {
    "aes": "AES is OFF: the controller and everyone on the wire reads the masked scores and the pulled arm.",
    "paillier": "Paillier is OFF: the controller reads every owner's sum and the total.",
    "permutation": "The permutation is OFF: comp knows which owner sent which score and which arm is pulled.",
    "mask": "The mask is OFF: comp reads the true scores.",
}


def leaks(level: str, switches: Switches, owners: int) -> tuple[str, ...]:
    """What is not protected, one sentence each."""
    out = [*(_OFF[name] for name in switches.off), *_LEAKS[level]]
    if owners == 2:
        out.insert(0, "With two owners, each owner together with the customer learns the other's sum.")
    return tuple(out)
