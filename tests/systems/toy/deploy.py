"""Teller and listener as two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posse.core.roles import Ask, Message, Pull, Reward
from posse.core.settings import Settings
from posse.runtime.local import Layout, enrol_all, write_party
from posse.runtime.network.deployment import Deployment
from posse.runtime.network.engine import Vocabulary
from posse.runtime.place import Place
from posse.systems.modules import Deploy
from tests.systems.toy.system import LISTENER, TELLER, Listener, Tell, Teller, Toy, World

VOCABULARY = Vocabulary((Tell, Reward), (Pull,))


def build(place: Place) -> Deployment:
    """Make a party from its file."""
    options = place.file.options
    settings = Toy(**options)
    if place.identity.role == LISTENER:
        listener = Listener(settings.horizon)
        return Deployment(listener, VOCABULARY, {TELLER: TELLER}, terms=options)
    world = World(settings.load(), settings.seed)

    async def source(ask: Ask) -> Message:
        return world(ask)

    teller = Teller(settings.horizon)
    return Deployment(teller, VOCABULARY, {LISTENER: LISTENER}, source, terms=options)


class ToyFederation(Settings):
    """A federation's file."""

    protocol: str
    run: str
    listen: str
    horizon: int = 20
    data: str = "two-coins"
    seed: int = 1


def layout(values: dict[str, Any], here: Path) -> Layout:
    """Read a federation's file."""
    federation = ToyFederation.make(values)
    options = federation.model_dump(mode="json", include={"horizon", "data", "seed"})

    def lay_out(folder: Path) -> list[Path]:
        enrol_all(folder, federation.run, {TELLER: TELLER, LISTENER: LISTENER})
        reach: dict[str, dict[str, Any]] = {
            LISTENER: {"listen": federation.listen},
            TELLER: {"connect": {LISTENER: federation.listen}},
        }
        files = []
        for name, address in reach.items():
            party = {"protocol": "toy", "identity": name, "journal": f"{name}/journal"}
            file = folder / f"{name}.toml"
            files.append(write_party(file, {**party, "options": options, **address}))
        return files

    return Layout(
        settings=federation,
        lay_out=lay_out,
        steps=federation.horizon,
        lead=LISTENER,
        shown=(LISTENER,),
        role_of=lambda name: name,
        total_at=LISTENER,
        may_change=("listen",),
    )


DEPLOY = Deploy(build, layout)
