"""Roles reveal their secrets to a simulation, as a type of their own, and to nobody once deployed."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ProtocolError
from posse.core.roles import Role
from posse.systems import registry
from posse.systems.parties import deploy_by_name
from posse.systems.samba.settings import Samba
from tests.kit.federations import free_port
from tests.kit.parties import LAY_OUT, close, opened
from tests.systems.small_settings import SMALL
from tests.systems.toy.system import Toy

PACKAGE = Path(posse.__file__).parent
DEPLOYS = (PACKAGE / "runtime", PACKAGE / "systems" / "fed_contextual" / "flower")
"""What hosts roles of a deployment."""
SIMULATED = {
    "samba paper": lambda: Samba(**{**SMALL["samba"], "level": "paper"}),
    "samba strict": lambda: Samba(**{**SMALL["samba"], "level": "strict"}),
    "mpc-contextual": lambda: _small("mpc-contextual"),
    "dp-combinatorial": lambda: _small("dp-combinatorial", path="agents"),
    "toy": Toy,
}


@pytest.fixture(autouse=True)
def _toy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, "tests.systems.toy.system")


def _small(name: str, **changes: Any) -> Any:
    return registry.system(name).Settings(**{**SMALL[name], **changes})


def _toy(folder: Path) -> list[Path]:
    values = {"protocol": "toy", "run": "r", "listen": f"127.0.0.1:{free_port()}", "horizon": 3}
    return deploy_by_name("toy").layout({**values, "seed": 9}, folder).lay_out(folder)


def _types(roles: Iterable[Role]) -> dict[str, type]:
    """The type that each role reveals, which must be frozen; reading it changes no role."""
    types = {}
    for role in roles:
        before = role.save()
        secrets: Any = role.reveal()
        assert is_dataclass(secrets)
        assert type(secrets).__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert [getattr(secrets, field.name) for field in fields(secrets)]
        assert role.save() == before, role.name
        types[role.name] = type(secrets)
    return types


@pytest.mark.parametrize("name", SIMULATED)
def test_every_role_of_a_simulation_reveals_one_type_at_any_moment(name: str) -> None:
    run: Any = posse.start(SIMULATED[name](), transcript=1 << 20)
    at_first = _types(run.memory.roles.values())
    assert len(at_first) > 1
    for number in range(120):
        if number % 10 == 0:
            assert _types(run.memory.roles.values()) == at_first
        run.deliver(explain=False)
    run.finish()
    assert _types(run.memory.roles.values()) == at_first


def test_samba_reveals_what_hides_a_score() -> None:
    run: Any = posse.start(SIMULATED["samba strict"](), transcript=1 << 20)
    while run.memory.upcoming is None or type(run.memory.upcoming[2]).__name__ != "Score":
        run.deliver(explain=False)
    owner, _, score = run.memory.upcoming
    lane = run.memory.roles[owner].reveal().lane
    word = np.frombuffer(score.frame, "<u8") + lane.pads.rows(score.index, 1)[0, 0]
    assert int(word.view(np.int64)[0]) == lane.number
    comp = run.memory.roles["comp"].reveal()
    number = list(run.kinds).index(owner) - list(run.kinds).index("owner-1")
    assert (comp.pads[number].rows(score.index, 1) == lane.pads.rows(score.index, 1)).all()


@pytest.mark.parametrize("name", [*LAY_OUT, "toy"])
def test_no_role_of_a_deployed_party_reveals_anything(name: str, tmp_path: Path) -> None:
    for path in {**LAY_OUT, "toy": _toy}[name](tmp_path):
        party = opened(path)
        with pytest.raises(ProtocolError, match="in a deployed party, which reveals") as error:
            party.engine.role.reveal()
        assert error.value.rule == "core.reveal.deployed"
        close(party)


def test_nothing_that_deploys_a_role_asks_it_to_reveal() -> None:
    paths = [path for folder in DEPLOYS for path in folder.rglob("*.py")]
    paths += PACKAGE.glob("systems/*/deploy.py")
    assert len(paths) > 40
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Attribute) and node.attr == "reveal"), path
