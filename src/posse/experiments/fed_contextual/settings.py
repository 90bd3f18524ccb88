"""The eight settings of figures 1 and 2."""

from __future__ import annotations

from typing import NamedTuple

KINDS = ("images", "tags")


class Setting(NamedTuple):
    """A population of images or tags, what is known before, and whether models are deployed often."""

    kind: str
    scenario: str
    often: bool = False


SETTINGS = {
    "fig1a": Setting("images", "scratch"),
    "fig1b": Setting("images", "init"),
    "fig1c": Setting("images", "init-shift"),
    "fig1d": Setting("images", "init-shift", often=True),
    "fig2a": Setting("tags", "scratch"),
    "fig2b": Setting("tags", "init"),
    "fig2c": Setting("tags", "init-shift"),
    "fig2d": Setting("tags", "init-shift", often=True),
}
"""By figure."""
