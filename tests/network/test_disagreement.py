"""Parties whose files differ all stop with one line; corrected, they go on, and the run ends as the
one in memory.

The same tests run for every system that deploys; what is a system's own is the table below.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import posse
from posse.core.errors import DisagreementError, JournalError, UnconfirmedError
from posse.core.roles import Note
from posse.runtime.network.party import Party
from posse.systems import registry
from posse.systems.parties import deploy_by_name, deployed_systems
from tests.kit import market, mpc
from tests.kit.federations import free_port, laid_out, run_all, until
from tests.kit.parties import all_stop, edit, ends_of, opened
from tests.systems.toy.system import LISTENER, TELLER, Toy

SECONDS = 240
BOUND = (
    r"agreed to other terms in this run than its file has now: .* is .* when it agreed and .* in "
    r"its file now.*Put its "
    r"file back; .* begin a new run"
)
REMEDY = "Correct the file that is wrong, and start all parties again."


@pytest.fixture(autouse=True)
def _toy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, "tests.systems.toy.system")


@dataclass(frozen=True)
class Federation:
    """A federation in a folder, the settings that a test changes, and what its run must come to."""

    lay_out: Callable[[Path], list[Path]]
    right: str
    wrong: str
    """A line of every party's file, and what it says in the file of the odd one."""
    line: str
    """How the difference is said, without who has which value."""
    roles: tuple[str, ...]
    """One party of every role."""
    holds: str
    """A party without which the run does not end, other than the first of these roles."""
    ended: Callable[[list[Path], dict[str, Party], list[Note], str], None]
    """Checks an ended run against the one in memory, given the line that all files have."""


def toy(folder: Path) -> list[Path]:
    values = {
        "protocol": "toy",
        "run": "trial-1",
        "listen": f"127.0.0.1:{free_port()}",
        "horizon": 30,
        "seed": 9,
    }
    return deploy_by_name("toy").layout(values, folder).lay_out(folder)


def toy_ended(paths: list[Path], parties: dict[str, Party], notes: list[Note], line: str) -> None:
    expected = posse.run(Toy(horizon=int(line.removeprefix("horizon = ")), seed=9))
    assert (parties[LISTENER].engine.role.total,) == expected.total  # type: ignore[attr-defined]


def samba_ended(paths: list[Path], parties: dict[str, Party], notes: list[Note], line: str) -> None:
    (total,) = {note.value for note in notes if note.kind == "total"}
    level = "strict" if "dealer" in parties else "paper"
    assert posse.run(
        posse.Samba(policy=line.split('"')[1], owners=3, budget=40, seed=7, level=level)
    ).total == (total,)


def market_ended(
    paths: list[Path], parties: dict[str, Party], notes: list[Note], line: str
) -> None:
    market.check(list(parties.values()), *market.twin(rounds=int(line.removeprefix("horizon = "))))


def mpc_ended(paths: list[Path], parties: dict[str, Party], notes: list[Note], line: str) -> None:
    outcome = mpc.found(paths)
    assert outcome == mpc.twin(paths)
    assert len(outcome.arms) == int(line.removeprefix("steps = "))


FEDERATIONS = {
    "samba": Federation(
        lambda folder: laid_out(folder, budget=40),
        'policy = "ucb"',
        'policy = "thompson"',
        'policy.name is {"thompson"|"ucb"}',
        ("clinic-2", "controller", "comp", "customer"),
        "controller",
        samba_ended,
    ),
    "samba, strict": Federation(
        lambda folder: laid_out(folder, budget=40, level="strict", sync=True),
        'policy = "ucb"',
        'policy = "thompson"',
        'policy.name is {"thompson"|"ucb"}',
        ("dealer", "clinic-2"),
        "controller",
        samba_ended,
    ),
    "mpc-contextual": Federation(
        mpc.laid_out,
        "steps = 30",
        "steps = 20",
        "steps is {20|30}",
        ("clinic-2", "puller", "payee", "dealer"),
        "puller",
        mpc_ended,
    ),
    "dp-combinatorial": Federation(
        market.laid_out,
        "horizon = 120",
        "horizon = 60",
        "horizon is {60|120}",
        ("agent-3",),
        "agent-1",
        market_ended,
    ),
    "toy": Federation(
        toy,
        "horizon = 30",
        "horizon = 20",
        "horizon is {20|30}",
        (LISTENER, TELLER),
        TELLER,
        toy_ended,
    ),
}


@pytest.fixture(params=FEDERATIONS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_system_that_deploys_is_here() -> None:
    assert {name.partition(",")[0] for name in FEDERATIONS} == {
        system.name for system in deployed_systems()
    }


def one_line(ends: dict[str, Any], odd: str) -> str:
    """Check that all stopped over terms, each with a line that names the odd one; return one of
    them.
    """
    for name, end in ends.items():
        assert isinstance(end, DisagreementError), (name, end)
        assert "\n" not in str(end)
        assert f"'{odd}' and " in str(end) or f" and '{odd}' differ" in str(end)
        assert str(end).endswith(REMEDY)
    return str(ends[odd])


def hold_once(held: Party, parties: dict[str, Party], wanted: Callable[[], bool]) -> None:
    """Pause a party in the moment in which something is so, before anything more can come: once,
    and not by a clock.
    """
    waiting = [True]

    def watched(record: Callable[..., None]) -> Callable[..., None]:
        def recorded(*given: Any) -> None:
            record(*given)
            if waiting and wanted():
                waiting.clear()
                held.pause(True)

        return recorded

    for party in parties.values():
        party.engine._record = watched(party.engine._record)  # type: ignore[method-assign]


def says(federation: Federation, odd: str, text: str) -> bool:
    """Whether a line has the field with the value of the odd one and that of the others, in either
    order.
    """
    field, _, values = federation.line.partition("{")
    wrong, right = values.rstrip("}").split("|")
    at = text.partition(field)[2].split("; ")[0].split(". ")[0]
    return f"{wrong} at '{odd}'" in at and f"{right} at '" in at


def goes_on(federation: Federation, paths: list[Path], line: str) -> None:
    """Start all parties in the same folders; they must come to the right end."""
    notes: list[Note] = []

    async def go() -> dict[str, Party]:
        parties = {path.stem: opened(path, notes) for path in paths}
        await run_all(list(parties.values()), SECONDS)
        return parties

    parties = asyncio.run(go())
    for party in parties.values():
        party.engine.close()
    federation.ended(paths, parties, notes, line)


ROLES = [(name, odd) for name, each in FEDERATIONS.items() for odd in each.roles]


@pytest.mark.parametrize(("name", "odd"), ROLES)
def test_all_stop_with_one_line_and_go_on_once_the_file_is_corrected(
    tmp_path: Path, name: str, odd: str
) -> None:
    federation = FEDERATIONS[name]
    paths = federation.lay_out(tmp_path)
    edit(tmp_path / f"{odd}.toml", federation.right, federation.wrong)
    assert says(federation, odd, one_line(asyncio.run(all_stop(paths)), odd))
    edit(tmp_path / f"{odd}.toml", federation.wrong, federation.right)
    goes_on(federation, paths, federation.right)


def test_nothing_of_the_terms_is_kept_so_the_others_may_follow_the_odd_one(
    tmp_path: Path, name: str
) -> None:
    """All stop twice, and then everybody but the odd one is corrected."""
    federation = FEDERATIONS[name]
    paths, odd = federation.lay_out(tmp_path), federation.roles[0]
    edit(tmp_path / f"{odd}.toml", federation.right, federation.wrong)
    for _ in range(2):
        one_line(asyncio.run(all_stop(paths)), odd)
    for path in paths:
        if path.stem != odd:
            edit(path, federation.right, federation.wrong)
    goes_on(federation, paths, federation.wrong)


def test_a_party_that_comes_late_stops_too(tmp_path: Path, name: str) -> None:
    """Those that have found out stay until the last one knows."""
    federation = FEDERATIONS[name]
    paths = federation.lay_out(tmp_path)
    odd = "customer" if name.startswith("samba") else federation.roles[0]
    edit(tmp_path / f"{odd}.toml", federation.right, federation.wrong)
    late = next(path for path in reversed(paths) if path.stem not in (odd, "controller"))

    async def go() -> dict[str, Any]:
        parties = {path.stem: opened(path) for path in paths if path != late}
        early = asyncio.create_task(ends_of(parties))
        if len(parties) > 1:
            await until(lambda: all(party._disagreement for party in parties.values()))
        return await ends_of({late.stem: opened(late)}) | await early

    one_line(asyncio.run(go()), odd)


def test_who_has_journalled_something_is_refused_with_another_file_and_goes_on_with_its_own(
    tmp_path: Path, name: str
) -> None:
    """The others do not stop: they wait for the file to be put back."""
    federation, notes = FEDERATIONS[name], list[Note]()
    paths, odd = federation.lay_out(tmp_path), federation.roles[0]
    file = tmp_path / f"{odd}.toml"

    async def go() -> dict[str, Party]:
        parties = {path.stem: opened(path, notes) for path in paths}
        # So that the run is not over before the disk has what came in.
        hold_once(parties[federation.holds], parties, lambda: parties[odd].engine.bound)
        running = {party: asyncio.create_task(each.run()) for party, each in parties.items()}
        await until(lambda: parties[odd].engine.bound and parties[odd].engine.durable)
        parties[odd].stop()
        await running[odd]
        parties[federation.holds].pause(False)
        parties[odd].engine.close()
        edit(file, federation.right, federation.wrong)
        with pytest.raises(JournalError, match=BOUND):
            opened(file)
        edit(file, federation.wrong, federation.right)
        parties[odd] = opened(file, notes)
        running[odd] = asyncio.create_task(parties[odd].run())
        await asyncio.wait_for(asyncio.gather(*running.values()), SECONDS)
        return parties

    parties = asyncio.run(go())
    for party in parties.values():
        party.engine.close()
    federation.ended(paths, parties, notes, federation.right)


def test_who_lost_its_journal_and_has_another_file_stops_alone(tmp_path: Path, name: str) -> None:
    """A run that has begun goes on with what it began with."""
    federation = FEDERATIONS[name]
    paths, odd = federation.lay_out(tmp_path), TELLER if name == "toy" else federation.roles[0]

    async def go() -> None:
        parties = {path.stem: opened(path) for path in paths}
        hold_once(
            parties[federation.holds],
            parties,
            lambda: all(party.engine.bound for party in parties.values()),
        )
        running = {party: asyncio.create_task(each.run()) for party, each in parties.items()}
        await until(lambda: all(party.engine.bound for party in parties.values()))
        others = [task for party, task in running.items() if party != odd]
        parties[odd].stop()
        await running[odd]
        parties[odd].engine.close()
        for kept in (tmp_path / odd / "journal").glob("*.log"):
            kept.unlink()
        edit(tmp_path / f"{odd}.toml", federation.right, federation.wrong)
        back = opened(tmp_path / f"{odd}.toml")
        with pytest.raises(DisagreementError, match="differ"):
            await asyncio.wait_for(back.run(), SECONDS)
        assert not all(task.done() for task in others)  # a dealer's part may be over
        assert not any(task.exception() for task in others if task.done())
        for party in parties.values():
            party.stop()
        for task in others:
            with suppress(
                UnconfirmedError
            ):  # a dealer has dealt everything, and the odd one did not take it
                await task

    asyncio.run(go())


@pytest.mark.parametrize(
    ("who", "old", "wrong", "says"),
    [
        (
            "clinic-2",
            'policy = "ucb"',
            'policy = "ucb"\ncoefficient = 1.5',
            "policy.parameters.coefficient is 1.5 at",
        ),
        ("controller", 'level = "paper"', 'level = "strict"', "level is "),
        ("customer", '"clinic-2", "clinic-3"', '"clinic-3", "clinic-2"', "owners is"),
        ("comp", "seed = 7", "seed = 8", "seed is 8 at 'comp' and 7 at 'controller'"),
    ],
)
def test_other_things_that_files_of_samba_must_have_in_common(
    tmp_path: Path, who: str, old: str, wrong: str, says: str
) -> None:
    paths = laid_out(tmp_path, budget=40)
    edit(tmp_path / f"{who}.toml", old, wrong)
    assert says in one_line(asyncio.run(all_stop(paths)), who)


def test_the_budget_of_a_run_that_has_begun_stays(tmp_path: Path) -> None:
    """Only the customer's file has it."""
    paths = laid_out(tmp_path, budget=40)
    asyncio.run(ends_of({path.stem: opened(path) for path in paths}))
    edit(tmp_path / "customer.toml", "budget = 40", "budget = 50")
    with pytest.raises(JournalError, match=r"budget is 40 when it agreed and 50 in its file now"):
        opened(tmp_path / "customer.toml")
