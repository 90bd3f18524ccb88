"""One colour per role, everywhere: figures, studio and documentation.

Every colour has a contrast of at least 3:1 on white and on the dark page, so one figure serves both.
"""

from __future__ import annotations

ROLES = {
    "owner": "#2f7fd6",
    "controller": "#d9662b",
    "comp": "#8b5fd0",
    "customer": "#1f9d6b",
    "agent": "#b07d12",
    "party": "#3b8ea5",
    "puller": "#c2477f",
    "payee": "#6b8e23",
    "dealer": "#7a7f8c",
    "device": "#5568d8",
    "server": "#d14b4b",
}
"""Colours of the kinds of role."""

SERIES = ("#2f7fd6", "#d9662b", "#1f9d6b", "#8b5fd0", "#c2477f", "#b07d12", "#3b8ea5", "#d14b4b")
"""Colours of curves, in order; a legend names them."""

DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
"""Line styles that go with them, so that curves are told apart without colour and where they overlap."""

INK = "#727a88"
"""Text and axes: readable on white and on the dark page. A report replaces it by the colour of its own text."""

LIGHT_PAGE, DARK_PAGE = "#ffffff", "#10151f"
"""Backgrounds against which the colours were chosen."""


def role_colour(role: str) -> str:
    """Return the colour of a kind of role; numbered roles ("owner-3") have that of their kind.

    >>> role_colour("owner-3") == role_colour("owner"), role_colour("stranger") == INK
    (True, True)
    """
    return ROLES.get(role.rstrip("0123456789").rstrip("-_ "), INK)
