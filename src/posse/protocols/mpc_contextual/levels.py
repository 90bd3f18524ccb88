"""What is protected and what is not, in sentences that every record and report prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posse.protocols.mpc_contextual.terms import Terms

SHARED = "shared"
"""The level of a run on shares."""


def learns(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What each role learns in a run of this configuration, one sentence each.

    >>> learns({})[0]
    'A party learns nothing but its own features and the public terms.'
    """
    return (
        "A party learns nothing but its own features and the public terms.",
        "The puller learns the arm of every step, the payee the reward of every step, and neither anything else.",
        "The dealer sees no data; it learns neither when the bandit explores nor which arm it explores.",
    )


def leaks(terms: Terms) -> tuple[str, ...]:
    """What is not protected, one sentence each."""
    out = [
        "All of it holds for roles that follow the protocol: one that sends wrong shares can falsify what is learnt.",
        "The dealer together with any one party can read everything.",
        "Parties may pool what they saw, all but one of them, and learn nothing of the last one's features; with the "
        "puller among them they hold every arm, which tells about all features through what was learnt.",
        "Puller and payee together hold every arm with its reward.",
        "Who takes part, how many features each holds, arms, steps and when each step happens are public; a reward "
        "that takes longer for some arms tells something of the arm by its delay.",
        "Every party bounds the norm of its own features; nobody can check the norm of all of them together.",
        "The model is held in shares; whoever brings all shares together can read it, and it carries no noise.",
    ]
    if terms.explore[0] == 0:
        out.insert(0, "The arm has no differential privacy: there is no exploration.")
    return tuple(out)
