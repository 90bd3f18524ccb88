"""Contexts that arrive, and runs without a last step: killed in the middle, ended by a source or an
operator.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posse.core.errors import ConfigError, DataError, DisagreementError, ProtocolError
from posse.core.roles import Ask, Message
from posse.privacy.sharing.fixed import FixedPoint
from posse.runtime.memory import MemoryRun
from posse.runtime.place import PartyFile
from posse.runtime.sources import FeatureSettings, GrowingFile
from posse.systems.mpc_contextual.roles.messages import End, Look, Over, Seen
from posse.systems.mpc_contextual.roles.outside import gathered
from posse.systems.mpc_contextual.settings import ContextualOptions
from posse.systems.mpc_contextual.terms import PAYEE, PULLER, Terms, largest_steps
from posse.systems.mpc_contextual.twins import floats
from tests.kit import mpc
from tests.kit.mpc import ARMS, Arriving, Outcome, arriving_roles, found, opened, write_world
from tests.network.mpc_seam import FAULTS, Seam

NAMES = ("clinic-1", "clinic-2")


def known(outcome: Outcome, world: Any, steps: int) -> None:
    """Check a run's model against floats that follow its arms."""
    contexts = world.contexts()
    rows = contexts.order(world.seed, 42)[:steps]
    assert len(outcome.arms) == len(outcome.rewards) == steps
    paid = [
        contexts.reward(world.seed, int(row), arm)
        for row, arm in zip(rows, outcome.arms, strict=True)
    ]
    assert outcome.rewards == paid
    ties = np.tile(np.arange(len(ARMS)), (steps, 1))
    replayed = floats.replay(
        contexts.features[rows], np.array(outcome.arms), np.array(paid) / 2**24, ties, lift=2.0**-28
    )
    size = contexts.features.shape[1]
    weights = FixedPoint(26, 1.0).decode(outcome.model.reshape(len(ARMS), -1)[:, -size:])
    np.testing.assert_allclose(weights, replayed.weights, atol=1e-6)


@pytest.mark.parametrize("how", [{}, {"overlap": True}, {"batch": 3}])
def test_contexts_that_arrive_and_end_are_learnt_from_to_the_last(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    *_, world, make, terms = arriving_roles(tmp_path, 12, **how)
    for ends in NAMES:
        roles = {name: each() for name, each in make.items()}
        MemoryRun(
            list(roles.values()), Arriving(world, terms, 12 if "batch" not in how else 13, ends)
        ).finish()
        known(Outcome(roles), world, 12)


@pytest.mark.parametrize("how", [{}, {"overlap": True}])
@pytest.mark.parametrize("faults", ["everything", "kills"])
def test_whatever_happens_an_ended_run_is_the_one_in_memory(
    tmp_path: Path, how: dict[str, Any], faults: str
) -> None:
    *_, world, make, terms = arriving_roles(tmp_path, 6, **how)
    roles = {name: each() for name, each in make.items()}
    MemoryRun(list(roles.values()), Arriving(world, terms, 6)).finish()
    expected = Outcome(roles)
    network = Seam(make, terms, world, 3)
    network.world = network._world = Arriving(world, terms, 6)
    network.run(FAULTS[faults])
    assert network.outcome == expected
    assert sum(network.deaths.values()) > 0


class OneAhead(Seam):
    """The last party's contexts stop coming before a step; when another has begun its pass, that
    one's operator ends.

    A question that was open when the run ended is answered after it.
    """

    def __init__(self, make: Any, terms: Terms, world: Any, seed: int, last: int) -> None:
        super().__init__(make, terms, world, seed)
        self.world = self._world = Arriving(world, terms, 42)
        self._late, self._last, self.asked = terms.parties[-1], last, False

    def answer(self, name: str) -> None:
        engine = self.engines[name]
        (ask,) = engine.asks.values()
        if (
            isinstance(ask, Look)
            and name == self._late
            and ask.step >= self._last
            and not engine.role.finished
        ):
            return
        super().answer(name)

    def step(self, faults: dict[str, float]) -> bool:
        first = self.engines[NAMES[0]]
        if not self.asked and first.role._seen > self._last:
            self.asked = True
            first.instruct(End())
            self._commit(NAMES[0])
        return super().step(faults)


@pytest.mark.parametrize(
    "how", [{}, {"overlap": True}, {"batch": 3}, {"parties": 3}, {"parties": 3, "overlap": True}]
)
def test_an_operator_ends_a_run_in_which_its_party_is_a_row_ahead(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    *_, world, make, terms = arriving_roles(tmp_path, 6, **how)
    roles = {name: each() for name, each in make.items()}
    MemoryRun(list(roles.values()), Arriving(world, terms, 6)).finish()
    expected = Outcome(roles)
    known(expected, world, 6)
    for faults, seed in (
        ("none", 0),
        ("kills", 1),
        ("power", 2),
        ("everything", 22),
        ("everything", 27),
    ):
        network = OneAhead(make, terms, world, seed, 6 + how.get("batch", 1) - 1)
        network.run(FAULTS.get(faults, {}), 30_000)
        assert network.asked
        assert network.outcome == expected


def test_an_end_is_on_the_disk_before_the_word_of_it_leaves(tmp_path: Path) -> None:
    """Another party's operator asked for it, by a message; a party that forgot it after a loss of
    power could begin the pass that it has called off.
    """
    *_, world, make, terms = arriving_roles(tmp_path, 6)
    roles = {name: each() for name, each in make.items()}
    MemoryRun(list(roles.values()), Arriving(world, terms, 6)).finish()
    for seed in range(6):
        network = OneAhead(make, terms, world, seed, 6)
        while all(network.engines[name].role.end is None for name in NAMES):
            network.step({})
        who = next(name for name in NAMES if network.engines[name].role.end is not None)
        network._commit(who)
        network.kill(who, power=True)
        assert network.engines[who].role.end == 6
        network.run({}, 30_000)
        assert network.outcome == Outcome(roles)


def test_an_operator_ends_a_run_whose_pass_all_have_begun_after_it(tmp_path: Path) -> None:
    *_, world, make, terms = arriving_roles(tmp_path, 6)
    network = Seam(make, terms, world, 2)
    network.world = network._world = Arriving(world, terms, 42)
    first, second = (network.engines[name] for name in NAMES)
    while not (
        first.role._session is not None
        and second.role._session is not None
        and first.role.step == 5
    ):
        network.step({})
    first.instruct(End())
    network.run({})
    known(network.outcome, world, 6)


def test_a_context_is_on_the_disk_before_anything_that_hides_it_leaves(tmp_path: Path) -> None:
    """Without `sync` too: after a loss of power its mask may hide nothing else, whatever is said
    meanwhile.
    """
    *_, world, make, terms = arriving_roles(tmp_path, 6, overlap=True)
    for seed in range(12):
        network = Seam(make, terms, world, seed, sync_answers=False, snapshot_bytes=1 << 30)
        network.world = network._world = Arriving(world, terms, 42)
        role: Any = network.engines[NAMES[0]].role
        while not (role.step == 3 and role._session is not None):
            network.step({})
        network.kill(NAMES[0], power=True)
        again: Any = network.engines[NAMES[0]].role
        assert again is not role
        assert again._seen == role._seen


def test_rows_that_differ_and_ends_that_cannot_be_are_refused(tmp_path: Path) -> None:
    *_, world, make, terms = arriving_roles(tmp_path, 6)

    class Apart(Arriving):
        def __call__(self, ask: Ask) -> Message:
            seen = super().__call__(ask)
            other = (
                isinstance(seen, Seen)
                and isinstance(ask, Look)
                and ask.party == NAMES[1]
                and ask.step == 4
            )
            return Seen(4, "somebody else", seen.data) if other and isinstance(seen, Seen) else seen

    with pytest.raises(
        DisagreementError, match=r"has another row in step 5 than 'clinic-\d'. Contexts must arrive"
    ):
        MemoryRun([each() for each in make.values()], Apart(world, terms, 6)).finish()
    puller = make[PULLER]()
    with pytest.raises(ProtocolError, match="ends the run before pass 44, which cannot be"):
        puller.receive(NAMES[0], Over(43))
    with pytest.raises(ProtocolError, match="which cannot be"):
        puller.receive(PAYEE, Over(3))
    puller.receive(NAMES[0], Over(3))
    with pytest.raises(ProtocolError, match="which cannot be"):
        puller.receive(NAMES[1], Over(4))
    assert make[PAYEE]().horizon == 42


# Over TLS -----------------------------------------------------------------------------------------


def arriving(folder: Path, **more: Any) -> dict[str, Any]:
    """What the file of a federation says whose contexts arrive: files of features that are still
    empty.
    """
    world = write_world(folder, rows=200)
    for name in NAMES:
        (folder / f"{name}.csv").rename(folder / f"{name}.all")
    lines = (folder / "pays.csv").read_text().splitlines()[1:]
    (folder / "paid.csv").write_text(
        "\n".join(["reward", *(line.split(",")[2] for line in lines), ""])
    )
    members = [
        {"name": name, "columns": 2, "source": {"kind": "csv", "file": str(folder / f"{name}.csv")}}
        for name in NAMES
    ]
    assert set(world["features"]) == set(NAMES)
    return {
        "world": None,
        "party": members,
        "arms": len(ARMS),
        "arriving": True,
        "steps": None,
        "puller": {"source": {"kind": "csv", "file": str(folder / "arms.csv")}},
        "payee": {"source": {"kind": "csv", "file": str(folder / "paid.csv")}},
        **more,
    }


def grow(folder: Path, rows: int, *, name: str = "", end: bool = False) -> None:
    """Let so many rows be there, whole lines and half of the next one."""
    for each in [name] if name else NAMES:
        lines = (folder / f"{each}.all").read_text().splitlines(keepends=True)
        text = "".join(lines[: rows + 1])
        (folder / f"{each}.csv").write_text(text + ("end\n" if end else lines[rows + 1][:7]))


def pulled(folder: Path) -> int:
    path = folder / "arms.csv"
    return len(path.read_text().splitlines()) - 1 if path.exists() else 0


class Federation(mpc.MpcTorment):
    """As processes; progress is what the puller has written."""

    def pulled(self) -> int:
        return 2 * max(0, pulled(self.folder))

    def wait_for(self, steps: int) -> None:
        deadline = time.monotonic() + 200
        while pulled(self.folder) < steps:
            assert time.monotonic() < deadline, {name: self.log(name)[-300:] for name in self.paths}
            self._tick()


def test_processes_learn_from_files_that_grow_are_killed_and_end_with_them(
    tmp_path: Path,
) -> None:
    with Federation(tmp_path, 4, **arriving(tmp_path)) as federation:
        grow(tmp_path, 12)
        federation.wait_for(12)
        for name in (NAMES[0], PULLER):
            federation.running[name].handle.kill()
            federation.running[name].handle.wait()
            federation.start(name)
        grow(tmp_path, 25)
        federation.wait_for(25)
        assert pulled(tmp_path) == 25  # nothing is decided for a context that is not there
        grow(tmp_path, 30, name=NAMES[0], end=True)
        grow(tmp_path, 33, name=NAMES[1])
        federation.wait()
    federation.check_logs()
    outcome = federation.outcome()
    paid = [float(line) for line in (tmp_path / "paid.csv").read_text().split()[1:31]]
    assert len(outcome.arms) == 30
    assert outcome.rewards == [round(one * 2**24) for one in paid]
    assert {share.step for share in gathered(tmp_path).values()} == {30}
    result = json.loads((tmp_path / PAYEE / "journal" / "result.json").read_text())
    assert result["pulls"] == 30


@pytest.mark.parametrize("ahead", [0, 20])
def test_an_operator_ends_a_run_without_a_last_step(tmp_path: Path, ahead: int) -> None:
    given = arriving(tmp_path)
    paths = mpc.laid_out(tmp_path, **given)
    grow(tmp_path, 9)
    grow(tmp_path, 9 + ahead, name=NAMES[1])
    terms = ContextualOptions.make(opened_options(paths[0])).terms("trial-1")
    assert terms.steps == largest_steps(26)

    async def go() -> None:
        parties = {path.stem: opened(path) for path in paths}
        running = [asyncio.create_task(party.run()) for party in parties.values()]
        role = parties[NAMES[1]].engine.role
        while pulled(tmp_path) < 9 or (ahead and role.state()["step"] != 9):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3 if ahead else 0)  # it has begun the next pass by now
        parties[NAMES[1]].instruct(End())
        await asyncio.wait_for(asyncio.gather(*running), 60)
        for party in parties.values():
            party.engine.close()

    asyncio.run(go())
    assert len(found(paths).arms) == 9


def opened_options(path: Path) -> dict[str, Any]:
    return PartyFile.make(file=path).options


# Sources ------------------------------------------------------------------------------------------


def test_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "clinic.csv"

    async def go() -> None:
        source = GrowingFile(path)
        asked = asyncio.create_task(source(0))
        await asyncio.sleep(0)
        path.write_text("row,age,dose\nann,0.1,")
        await asyncio.sleep(0)
        path.write_text("row,age,dose\nann,0.1,0.2\nbob,0.3,x\n")
        assert await asked == ("ann", (0.1, 0.2))
        assert await source(0) == ("ann", (0.1, 0.2))
        with pytest.raises(
            DataError, match=r"context 2: expected row, age, dose, got 'bob,0.3,x'. Correct it"
        ):
            await source(1)
        path.write_text("row,age,dose\nann,0.1,0.2\nbob,0.3,0.4\nend\n")
        assert await source(1) == ("bob", (0.3, 0.4))
        assert await source(2) is None
        assert await GrowingFile(path)(1) == ("bob", (0.3, 0.4))
        path.write_text("age,dose\n1,2\n")
        other = GrowingFile(path)
        with pytest.raises(DataError, match="must begin with a header"):
            await other(0)
        path.write_text("row,age\nann,0.123456789\n")
        assert await asyncio.wait_for(other(0), 60) == ("ann", (0.123456789,))
        path.write_text("row,age\nann,0.1\nend\n")
        assert await asyncio.wait_for(other(1), 60) is None

    asyncio.run(go())


def test_a_function_and_what_it_may_give(tmp_path: Path) -> None:
    (tmp_path / "arriving_rows.py").write_text(
        "def rows(run, step):\n"
        "    return [(0.1, 0.2), ('ann', [0.3, 0.4]), 'words', None, '12', {'1': 2}][step]\n"
    )
    source = FeatureSettings(kind="python", function="arriving_rows:rows").features(
        "trial", tmp_path
    )
    assert asyncio.run(source(0)) == ("", (0.1, 0.2))
    assert asyncio.run(source(1)) == ("ann", (0.3, 0.4))
    with pytest.raises(
        DataError,
        match="arriving_rows:rows must give the features of a context as numbers, got words",
    ):
        asyncio.run(source(2))
    assert asyncio.run(source(3)) is None
    for step in (4, 5):
        with pytest.raises(DataError, match="must give the features of a context as numbers"):
            asyncio.run(source(step))
    with pytest.raises(ConfigError, match="a source of kind 'http' needs url"):
        FeatureSettings(kind="http").features("trial", tmp_path)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"features": "x.csv"}, r"from a source with a number of columns, not from a file"),
        ({"columns": None}, "Give source and columns"),
        ({"source": {"kind": "csv"}}, ""),
    ],
)
def test_a_file_of_a_federation_that_is_wrong(
    tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    given = arriving(tmp_path)
    given["party"][0] = {**given["party"][0], **more}
    if says:
        with pytest.raises(ConfigError, match=says):
            mpc.laid_out(tmp_path, **given)
        return
    (first, *_) = mpc.laid_out(tmp_path, **given)
    with pytest.raises(ConfigError, match="needs file"):
        opened(first)


def test_the_limit_of_an_open_ended_run_is_its_last_step() -> None:
    options = ContextualOptions(
        parties=NAMES, columns=(2, 2), arms=3, arriving=True, epsilon="1/2", limit=50
    )
    terms = options.terms("trial")
    assert 1 < terms.steps < 1000
    options.ledger(terms)
