"""Every refusal of `systems` has its rule, and users can break each of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import posse
from posse.systems import registry
from posse.systems.modules import scene_of
from posse.systems.runs import Run
from tests.kit.rules import Broken, check_broken, rules


@cache
def twin() -> Run:
    """A run without roles."""
    return posse.start(posse.Samba(path="plain", means=(0.2, 0.8), horizon=4))


@cache
def market() -> Run:
    """A run of roles that stores no messages."""
    settings = posse.DpCombinatorial(agents=3, producers=12, horizon=300)
    return posse.start(settings, transcript=0)


def with_module(name: str, text: str | None) -> Callable[[Path], object]:
    """Return a mistake: an author's module is named by POSSE_SYSTEMS, then a system is looked up."""

    def mistake(folder: Path) -> object:
        if text is not None:
            (folder / f"{name}.py").write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(folder)
            patch.setenv(registry.VARIABLE, name)
            return registry.system(name)

    return mistake


def with_entry_point(folder: Path) -> object:
    """An installed package names its system "other", and the system is called "samba"."""
    (folder / "installed.py").write_text("from posse.systems.samba.system import SYSTEM\n")
    package = folder / "installed-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[posse.systems]\nother = installed:SYSTEM\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return registry.system("other")


def with_wrong_scene(folder: Path) -> object:
    """A system has a module `scene` without an object SCENE."""
    package = folder / "without_scene"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "scene.py").write_text("scene = 1\n")
    (package / "system.py").write_text(
        "from posse.systems.samba.system import SambaSystem\n"
        "class Outside(SambaSystem): name = 'outside'\n"
        "SYSTEM = Outside()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return scene_of(import_module("without_scene.system").SYSTEM)


BROKEN: dict[str, Broken] = {
    # Systems
    "systems.system.unknown": Broken("P100", "system", lambda _: registry.system("sambo")),
    "systems.settings.not-settings": Broken("P100", "settings", lambda _: posse.run(posse.Samba)),
    "systems.module.missing": Broken("P100", "module", with_module("missing", None)),
    "systems.module.import-fails": Broken(
        "P100", "module", with_module("broken", "import posse.x")
    ),
    "systems.module.no-system": Broken("P100", "module", with_module("bare", "")),
    "systems.module.no-object": Broken("P100", "module", with_wrong_scene),
    "systems.entry-point.other-name": Broken("P100", "entry-point", with_entry_point),
    "systems.seed.out-of-range": Broken("P100", "seed", lambda _: posse.Samba(seed=-1)),
    "systems.policy.not-shipped": Broken(
        "P100", "policy", lambda _: posse.DpCombinatorial(policy="mine.py:Mine")
    ),
    "systems.live.not-served": Broken(
        "P100", "live", lambda _: posse.live(posse.DpCombinatorial())
    ),
    # Runs
    "systems.deliver.no-messages": Broken("P100", "deliver", lambda _: twin().deliver()),
    "systems.world.simulated": Broken("P100", "world", lambda _: twin().answer(1, 0.5)),
    "systems.state.no-parties": Broken("P100", "state", lambda _: twin().state("comp")),
    "systems.view.no-parties": Broken("P100", "view", lambda _: twin().view("comp")),
    "systems.tap.no-messages": Broken("P100", "tap", lambda _: twin().tap()),
    "systems.number.not-open": Broken("P100", "number", lambda _: market().answer(7, 0.5)),
    "systems.transcript.missing": Broken("P100", "transcript", lambda _: market().tap()),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_mistake_breaks_its_rule(rule: str, tmp_path: Path) -> None:
    check_broken(rule, BROKEN[rule], tmp_path)


def test_every_rule_of_systems_is_broken_by_a_user() -> None:
    assert rules("systems/*.py") == set(BROKEN)
