"""What a flag says about itself, taken from the settings it stands for.

A field is described by the docstring below it, a parameter of a policy by the policies that have it.
"""

from __future__ import annotations

import inspect

from posse.core.settings import Settings

_PANELS = {
    "ProblemSettings": "What is learnt", "ContextSettings": "What is learnt", "PolicySettings": "How to choose",
    "PolicyChoice": "How to choose", "MarketSettings": "The market", "PopulationSettings": "What is learnt",
}  # fmt: skip
_PROTECTION = (
    "level", "aes", "paillier", "permutation", "mask", "paillier_bits", "method", "noise", "epsilon", "delta", "unit",
    "start", "stop", "without_guarantee", "limit", "clip", "quantile", "levels", "sampling", "secure", "corrupt",
    "dropout",
)  # fmt: skip
_CHOICE = {
    "DeviceSettings": ("policy", "explore", "model", "features", "arms", "loss", "start"),
    "ContextualSettings": ("policy", "width", "batch"),
    "FedSettings": ("policy", "epsilon", "beta", "mu", "gamma", "model", "hidden", "channels", "loss", "evaluate"),
}


def help_of(model: type[Settings], name: str) -> str:
    """Give the help of one field; an empty string would be a gap that a test finds."""
    said = model.model_fields[name].description
    return " ".join((said or "").split())


def panel_of(model: type[Settings], name: str) -> str:
    """Give the heading under which a flag is listed: what it is about."""
    owner = next((cls for cls in reversed(model.__mro__) if name in inspect.get_annotations(cls)), model)
    if name in _CHOICE.get(owner.__name__, ()):
        return "How to choose"
    if name in _PROTECTION:
        return "Who may learn what"
    return _PANELS.get(owner.__name__, "The run")
