"""One colour a method in every figure of this folder."""

from __future__ import annotations

from typing import Any

from posse.experiments.dp_combinatorial.methods import (
    ALONE,
    ALONE_HALF,
    CLEAR,
    FCB,
    FUSED,
    MATCHED,
    PAPER,
    PLACEBO,
    TIGHT,
    TIGHT_HALF,
    Method,
)
from posse.results.theme import DASHES, ROLES, SERIES

_BLUE, _ORANGE, _GREEN, _PURPLE, _PINK, _OCHRE, _TEAL, _RED = SERIES

COLOURS = {
    ALONE.name: _ORANGE,
    ALONE_HALF.name: _OCHRE,
    PAPER.name: _BLUE,
    TIGHT.name: _GREEN,
    MATCHED: _TEAL,
    FUSED.name: _GREEN,
    TIGHT_HALF.name: _OCHRE,
    CLEAR.name: _RED,
    PLACEBO.name: _PINK,
    FCB.name: _PURPLE,
}
HOMOGENEOUS = ROLES["payee"]
"""FCB among agents that are all alike."""

_LINES = {
    ALONE_HALF.name: DASHES[1], MATCHED: DASHES[3], FUSED.name: DASHES[2], CLEAR.name: DASHES[1],
    PLACEBO.name: DASHES[2], TIGHT_HALF.name: DASHES[3],
}  # fmt: skip
MARKERS = {
    ALONE.name: "o", ALONE_HALF.name: "p", PAPER.name: "s", TIGHT.name: "^", MATCHED: "v", FUSED.name: "<",
    CLEAR.name: "P", PLACEBO.name: "x", FCB.name: "D", TIGHT_HALF.name: ">",
}  # fmt: skip


def line(method: Method) -> dict[str, Any]:
    """Colour and dashes of a method's line."""
    return {"color": COLOURS[method.name], "linestyle": _LINES.get(method.name, "-"), "linewidth": 1.7}


def dots(method: Method) -> dict[str, Any]:
    """Colour and marker of a method's points."""
    return {"color": COLOURS[method.name], "marker": MARKERS[method.name], "markersize": 5}
