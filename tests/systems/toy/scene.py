"""Pictures of the toy, and an explanation of its message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posse.core.fixed import from_units
from posse.runtime.memory import Delivery
from posse.systems.modules import Scenario, Scene
from posse.systems.scenes import Code, Part, format_number, line_numbers, line_texts, message_parts
from tests.systems.toy.system import LISTENER, TELLER, Tell, Toy, ToyRun, ToyTwin

KINDS = (TELLER, LISTENER)
CODE: Code = {
    TELLER: [("pull", "for each pull: pull the next arm"), ("tell", "  tell the listener")],
    LISTENER: [("add", "add the reward to the total")],
}
SOURCES = {
    TELLER: "tests.systems.toy.system:Teller",
    LISTENER: "tests.systems.toy.system:Listener",
}


def draw(run: ToyRun | ToyTwin) -> dict[str, Any]:
    """Return both parties, and what the current seed earned."""
    world = run.worlds[-1]
    total = from_units(sum(world.rewards))
    figure = f"earned {format_number(total)} in {world.reached} pulls"
    return {
        "parties": [{"name": kind, "kind": kind, "label": kind, "text": ""} for kind in KINDS],
        "links": [[TELLER, LISTENER]],
        "now": {"chosen": []},
        "figures": [{"name": "reward", "value": total, "text": figure}],
        "curves": {"reward": total},
    }


def explain(run: ToyRun, delivery: Delivery) -> dict[str, Any]:
    """Explain a message: its sentence, its bytes, and the lines of code that ran."""
    message = delivery.message
    assert isinstance(message, Tell)
    reward = format_number(from_units(message.units))
    return {
        "step": f"pull {message.step}",
        "says": f"{{teller}} tells {{listener}} that pull {message.step} paid {reward}.",
        "clear": [["reward", reward]],
        "chosen": None,
        "parts": message_parts(message, _describe, KINDS),
        "lines": line_numbers(CODE, {TELLER: ["pull", "tell"], LISTENER: ["add"]}),
    }


def _describe(message: str, field: str, value: Any) -> Sequence[Part]:
    return [Part(field, "clear", 0, KINDS)]


SCENE: Scene[Toy, Any] = Scene(
    places={TELLER: (0.25, 0.5), LISTENER: (0.75, 0.5)},
    scenarios=(
        Scenario("Two coins", "The second coin pays more often than the first.", {"horizon": 20}),
        Scenario("Three coins", "The listener learns each reward.", {"data": "three-coins"}),
    ),
    draw=draw,
    explain=explain,
    pseudocode=lambda settings: line_texts(CODE),
    sources=lambda settings: SOURCES,
)
