"""Every refusal of `systems` has its rule, and users can break each of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import posse
from posse.core.roles import View
from posse.results.record import Record
from posse.results.store import default_path
from posse.runtime.journal import framed, split
from posse.runtime.network.deployment import Deployment, Known
from posse.runtime.network.engine import Engine
from posse.runtime.network.recording import VIEW, RecordingEngine
from posse.runtime.place import Place, open_place
from posse.systems import audit, parties, registry
from posse.systems.live import Bandit
from posse.systems.modules import attacks_of, scene_of
from posse.systems.registry import system
from posse.systems.runs import Run
from tests.kit.federations import laid_out
from tests.kit.parties import opened
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


def settings() -> posse.Samba:
    return posse.Samba(means=(0.2, 0.8), horizon=4)


def read_broken_view(change: Callable[[list[bytes]], bytes]) -> Callable[[Path], View]:
    """Record the start of a party's view, change its records, and read it."""

    def mistake(folder: Path) -> View:
        (path,) = (path for path in laid_out(folder) if path.stem == "comp")
        path.write_text(path.read_text() + "\n[record]\nview = true\n")
        engine = opened(path).engine
        assert isinstance(engine, RecordingEngine)
        for number in (1, 2, 3):
            engine.view.saw("controller", "comp", number, b"\x00")
        engine.view.write(state=True)
        engine.close()
        view = folder / "comp" / "journal" / VIEW
        records, _ = split(view.read_bytes())
        view.write_bytes(change(records))
        return audit.read_view(view)

    return mistake


def join(records: list[bytes]) -> bytes:
    return b"".join(map(framed, records))


def of_other_system(records: list[bytes]) -> bytes:
    header = records[0].replace(b"\xa5samba", b"\xaefed-contextual")
    return join([header, *records[1:]])


def attack_view(public: dict[str, str], like: Any = None) -> None:
    posse.audit(View((), [], {}, public), like=like)


def bandit(**options: Any) -> Bandit:
    return posse.live(settings().plain(), arms=("red", "blue"), **options)


def decide_three_times(**options: Any) -> None:
    made = bandit(**options)
    for _ in range(3):
        made.decide()


def decide_after_the_end() -> None:
    made = bandit()
    made.finish()
    made.decide()


def reward(value: Any) -> None:
    made = bandit()
    made.reward(made.decide().id, value)


def load_broken(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], Bandit]:
    """Save a bandit, change its file, and load it."""

    def mistake(folder: Path) -> Bandit:
        path = folder / "bandit"
        bandit().save(path)
        state = json.loads(path.read_text())
        change(state)
        path.write_text(json.dumps(state))
        return bandit().load(path)

    return mistake


def run_without_result(folder: Path) -> None:
    """Run a federation whose parties end without a result."""

    def accept(place: Place, deployment: Deployment) -> Deployment:
        return replace(deployment, known=lambda: Known("over", failure="there is no total"))

    async def run_all() -> None:
        places = [open_place(path) for path in laid_out(folder, budget=4)]
        await asyncio.gather(*(parties.run_and_record(place, accept, print) for place in places))

    asyncio.run(run_all())


def start_older_copy(folder: Path) -> None:
    """Start a party with a journal that has fewer messages than its store noted."""
    path = laid_out(folder)[0]
    place = open_place(path)
    engine: Engine = opened(path).engine
    engine.begin()
    engine.sync()
    engine.close()
    identity = parties._record_identity(place.journal / parties.RECORD)
    mark = {"journal": engine.journal_id, "durable": dict.fromkeys(engine.links, 9)}
    parties._write_journal_mark(default_path().parent / "marks" / f"{identity['id']}.json", mark)
    asyncio.run(parties.run_and_record(place, lambda _, deployment: deployment, print))


def update_without_inputs(folder: Path) -> None:
    path = laid_out(folder)[0]
    engine = opened(path).engine
    engine.begin()
    engine.sync()
    engine.close()
    parties.reread_inputs(path)


def read_broken_result(folder: Path) -> None:
    (folder / parties.RESULT).write_text("{")
    parties.read_result(folder)


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
    # Audits
    "systems.what.wrong-type": Broken("P100", "what", lambda _: posse.audit("samba")),  # type: ignore[arg-type]
    "systems.what.plain-run": Broken("P100", "what", lambda _: posse.audit(settings().plain())),
    "systems.record.of-deployment": Broken(
        "P100",
        "record",
        lambda _: posse.audit(
            Record(kind="samba", level="strict", config={}, problem={}, party="comp")
        ),
    ),
    "systems.like.not-a-view": Broken(
        "P100", "like", lambda _: posse.audit(settings(), like=settings())
    ),
    "systems.like.other-system": Broken(
        "P100", "like", lambda _: attack_view({"system": "mpc-contextual"}, settings())
    ),
    "systems.adversary.no-such-role": Broken(
        "P100",
        "adversary",
        lambda _: audit.view_of(market(), attacks_of(system("samba")).attacks[0]),
    ),
    "systems.view.no-system": Broken("P100", "view", lambda _: attack_view({})),
    "systems.view.cut-off": Broken(
        "P200", "view", read_broken_view(lambda records: join(records)[:-1])
    ),
    "systems.view.messages-missing": Broken(
        "P200", "view", read_broken_view(lambda records: join([records[0], *records[2:]]))
    ),
    "systems.view.no-state": Broken(
        "P200", "view", read_broken_view(lambda records: join(records[:-1]))
    ),
    "systems.view.not-supported": Broken("P200", "view", read_broken_view(of_other_system)),
    "systems.view.unknown-message": Broken("P200", "view", read_broken_view(join)),
    # Live bandits
    "systems.settings.wrong-type": Broken("P100", "settings", lambda _: posse.live("samba")),  # type: ignore[arg-type]
    "systems.arms.not-names": Broken(
        "P100", "arms", lambda _: posse.live(settings().plain(), arms=("red", "red"))
    ),
    "systems.runs.more-than-one": Broken("P100", "runs", lambda _: posse.live(posse.Samba(runs=2))),
    "systems.rewards.batch-must-wait": Broken("P100", "rewards", lambda _: bandit().decide_many(2)),
    "systems.rewards.pending": Broken("P100", "rewards", lambda _: decide_three_times()),
    "systems.horizon.reached": Broken(
        "P100", "horizon", lambda _: decide_three_times(horizon=2, rewards="fold")
    ),
    "systems.bandit.finished": Broken("P100", "bandit", lambda _: decide_after_the_end()),
    "systems.contexts.not-a-batch": Broken("P100", "contexts", lambda _: bandit().decide_many(-1)),
    "systems.id.unknown": Broken("P100", "id", lambda _: bandit().reward(0, 1)),
    "systems.reward.not-finite": Broken("P100", "reward", lambda _: reward("1")),
    "systems.saved.unreadable": Broken("P200", "saved", lambda folder: bandit().load(folder)),
    "systems.saved.not-a-bandit": Broken("P200", "saved", load_broken(dict.clear)),
    "systems.saved.damaged": Broken("P200", "saved", load_broken(lambda state: state.pop("made"))),
    "systems.saved.other-settings": Broken(
        "P100", "policy", load_broken(lambda state: state["settings"].update(policy="pursuit"))
    ),
    # Parties
    "systems.protocol.no-parties": Broken(
        "P100", "protocol", lambda _: parties.deploy_by_name("fed-contextual")
    ),
    "systems.protocol.no-invitations": Broken(
        "P100", "protocol", lambda _: parties.make_invitation("toy", {})
    ),
    "systems.party.not-started": Broken(
        "P100", "party", lambda folder: parties.reread_inputs(laid_out(folder)[0])
    ),
    "systems.party.nothing-changes": Broken("P100", "party", update_without_inputs),
    "systems.run.no-result": Broken("P500", "run", run_without_result),
    "systems.journal.older-copy": Broken("P800", "journal", start_older_copy),
    "systems.result.unreadable": Broken("P200", "result", read_broken_result),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_mistake_breaks_its_rule(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("POSSE_SYSTEMS", "tests.systems.toy.system")
    check_broken(rule, BROKEN[rule], tmp_path)


def test_every_rule_of_systems_is_broken_by_a_user() -> None:
    assert rules("systems/*.py") == set(BROKEN)
