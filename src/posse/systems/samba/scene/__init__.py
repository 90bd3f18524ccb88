"""Samba in the studio: a picture of each moment, every message explained, the code that ran, and
the paper's worked examples.
"""

from __future__ import annotations

from posse.systems.modules import Picture, Scene
from posse.systems.samba.federation import SambaRun
from posse.systems.samba.scene import picture
from posse.systems.samba.scene.code import code, sources
from posse.systems.samba.scene.explain import explain
from posse.systems.samba.scene.scenarios import SCENARIOS
from posse.systems.samba.scene.sees import sees
from posse.systems.samba.settings import Samba
from posse.systems.samba.twin import SambaTwinRun
from posse.systems.scenes import line_texts


def _pseudocode(settings: Samba) -> dict[str, list[str]]:
    return line_texts(code(settings.load().policy, settings.level, settings.switches))


def _visibility(settings: Samba) -> Picture | None:
    """Return figure 7 of the paper for these settings, measured on a small run."""
    return None if settings.path == "plain" else sees(settings)


SCENE: Scene[Samba, SambaRun | SambaTwinRun] = Scene(
    places={
        "owner": (0.15, 0.5),
        "controller": (0.5, 0.3),
        "comp": (0.5, 0.75),
        "dealer": (0.62, 0.1),
        "customer": (0.85, 0.5),
    },
    scenarios=SCENARIOS,
    draw=picture.scene,
    explain=explain,
    pseudocode=_pseudocode,
    sources=lambda settings: sources(settings.level),
    knowledge=picture.knowledge,
    visibility=_visibility,
    preview=picture.preview,
    variants=picture.variants,
)
