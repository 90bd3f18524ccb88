"""Pictures and explanations of every system: what holds whatever the protocol."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from posse.runtime.memory import Delivery
from posse.systems import registry
from posse.systems.base import AnySystem
from posse.systems.modules import scene_of
from posse.systems.runs import RolesRun, Run
from posse.systems.scenes import PROTECTIONS, format_number
from tests.systems.small_settings import SMALL

NAMES = tuple(SMALL)


@pytest.fixture(autouse=True)
def _toy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the toy: all that holds for built-in systems must hold for it."""
    monkeypatch.setenv(registry.VARIABLE, "tests.systems.toy.system")


def begun(name: str, **changes: Any) -> Run:
    system = registry.system(name)
    return system.start(system.Settings(**{**SMALL[name], **changes}), transcript=100_000)


@pytest.fixture(params=NAMES)
def system(request: pytest.FixtureRequest) -> AnySystem:
    return registry.system(request.param)


def check_scene(run: Run) -> dict[str, Any]:
    scene = scene_of(run.system).draw(run)
    assert scene is not None
    kinds = {role.kind for role in run.system.roles}
    assert scene["parties"]
    names = [party["name"] for party in scene["parties"]]
    assert len(set(names)) == len(names)
    for party in scene["parties"]:
        assert {"name", "kind", "label", "text"} <= set(party)
        assert party["kind"] in kinds
        assert "bar" not in party or all(0 <= value <= 1 for value in party["bar"].values())
    for link in scene["links"]:
        assert len(link) == 2
        assert set(link) <= kinds
    assert set(scene["now"]["chosen"]) <= set(names)
    assert {"name", "value", "text"} <= set(scene["figures"][0])
    assert all(isinstance(value, float | int) for value in scene["curves"].values())
    json.dumps(scene, allow_nan=False)
    return dict(scene)


def test_a_picture_at_every_moment(system: AnySystem) -> None:
    run = begun(system.name)
    check_scene(run)
    while not run.done:
        run.advance(max(1, run.horizon // 4))
        check_scene(run)
    if isinstance(run, RolesRun):
        assert set(run.parties) <= {party["name"] for party in check_scene(run)["parties"]}


def test_a_picture_of_the_plain_twin(system: AnySystem) -> None:
    settings = system.twin(system.Settings(**SMALL[system.name]))
    run = system.start(settings)
    check_scene(run)
    run.finish()
    check_scene(run)


def deliveries(run: Run) -> Iterator[Delivery]:
    """Every message of a run with its explanation; without roles, those that views hold after each
    step.
    """
    if isinstance(run, RolesRun):
        while (delivery := run.deliver()) is not None:
            yield delivery
    while not run.done:
        run.advance(1)
        for entry in run.view(*run.parties).entries:
            sent = Delivery(entry.sender, entry.receiver, entry.message, (), entry.time)
            yield sent._replace(explanation=scene_of(run.system).explain(run, sent))


def test_every_message_is_explained_to_the_byte(system: AnySystem) -> None:
    run = begun(system.name)
    code = scene_of(system).pseudocode(run.settings)
    ran: dict[str, set[int]] = {kind: set() for kind in code}
    for delivery in deliveries(run):
        found = delivery.explanation
        assert found is not None
        assert sum(part["length"] for part in found["parts"]) == len(
            msgspec.msgpack.encode(delivery.message)
        )
        for part in found["parts"]:
            assert part["protection"] in PROTECTIONS
            assert set(part["opens"]) <= {role.kind for role in system.roles}
        assert "{" + delivery.sender + "}" in found["says"]
        assert "{" + delivery.receiver + "}" in found["says"]
        assert found["lines"]
        for kind, numbers in found["lines"].items():
            assert all(1 <= number <= len(code[kind]) for number in numbers)
            ran[kind] |= set(numbers)
        json.dumps(found, allow_nan=False)
    assert run.done
    for kind, numbers in ran.items():
        assert numbers, f"no line of {kind} ever ran"


def test_code_and_sources_are_of_its_roles(system: AnySystem) -> None:
    settings = system.Settings(**SMALL[system.name])
    kinds = {role.kind for role in system.roles}
    code, sources = scene_of(system).pseudocode(settings), scene_of(system).sources(settings)
    assert code
    assert set(code) <= kinds
    assert set(sources) <= kinds
    for source in sources.values():
        module, _, name = source.partition(":")
        assert hasattr(importlib.import_module(module), name)


def test_every_role_is_told_apart_by_what_it_knows(system: AnySystem) -> None:
    settings = system.Settings(**SMALL[system.name])
    said = {
        role.kind: json.dumps(dict(scene_of(system).knowledge(settings, role.kind)))
        for role in system.roles
        if role.party
    }
    assert len(set(said.values())) == len(said)
    for role in system.roles:
        if role.party:
            assert scene_of(system).knowledge(settings, role.kind)["knows"]


def test_scenarios_can_be_started(system: AnySystem) -> None:
    assert len(scene_of(system).scenarios) >= 2
    assert len({scenario.name for scenario in scene_of(system).scenarios}) == len(
        scene_of(system).scenarios
    )
    for scenario in scene_of(system).scenarios:
        settings = system.Settings(**scenario.settings)
        json.dumps(scenario.settings)
        assert scenario.about.endswith(".")
        assert system.level_of(settings)


def test_variants_begin_with_what_is_set(system: AnySystem) -> None:
    settings = system.Settings(**SMALL[system.name])
    found = scene_of(system).variants(settings)
    assert found[0] == ("as set", settings)
    assert len(found) >= 2
    assert len({name for name, _ in found}) == len(found)


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.3, 0, "0.3"),
        (0.6, 0, "1"),
        (0.04, 1, "0.04"),
        (0.0449, 1, "0.04"),
        (-0.00001234, 2, "-1.2e-05"),
        (0.0, 2, "0"),
        (-0.0, 0, "0"),
    ],
)
def test_a_number_that_is_not_0_is_not_shown_as_0(value: float, decimals: int, text: str) -> None:
    assert format_number(value, decimals) == text
