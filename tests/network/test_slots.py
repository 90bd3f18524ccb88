"""Slots over mutual TLS on loopback, with slow sources: when owners' answers arrive does not say
who pulls.

What is measured by a clock is in the long form: a machine that is busy with other things delays
everyone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from posse.core.errors import ConfigError, DisagreementError
from posse.core.roles import Pull
from posse.runtime.network.deployment import make_party
from posse.runtime.network.party import Party
from posse.runtime.network.wire import Data
from posse.runtime.place import open_place
from posse.systems import registry
from posse.systems.samba.deploy import build
from posse.systems.samba.layout import layout
from posse.systems.samba.messages import Score
from posse.systems.samba.settings import Samba
from posse.systems.samba.strict import clock
from posse.systems.samba.strict.clock import Clock
from posse.systems.samba.strict.messages import Tick, Tock
from tests.kit.federations import QUICK, laid_out, opened, run_all

OWNERS, BUDGET, SLOT, PULL = 4, 130, 0.03, 0.012


class Arrivals:
    """When the frames of the first slot of every pass reached the controller, by owner."""

    def __init__(self, party: Party, owners: Sequence[str]) -> None:
        self.owners, self.passes, self._now, self._last = tuple(owners), [], {}, -1
        self._decode, self._frame = party.engine.decoder.decode, party.frame
        party.frame = self.frame  # type: ignore[method-assign]

    def frame(self, connection: Any, frame: Any) -> None:
        message = self._decode(frame.body) if isinstance(frame, Data) else None
        if (
            connection.peer in self.owners
            and isinstance(message, Score)
            and message.index > self._last
        ):
            self._now[connection.peer] = asyncio.get_running_loop().time()
            if len(self._now) == len(self.owners):
                self.passes.append([self._now[name] for name in self.owners])
                self._now, self._last = {}, message.index
        self._frame(connection, frame)


def slowed(party: Party, pulled: list[int], number: int, seconds: float) -> None:
    """Let the rewards of an owner take a while."""
    clock = party.source
    source = clock.pull if isinstance(clock, Clock) else clock

    async def later(ask: Pull) -> Any:
        pulled.append(number)
        await asyncio.sleep(seconds)
        return await source(ask)  # type: ignore[misc]

    if isinstance(clock, Clock):
        clock.pull = later  # type: ignore[assignment]
    else:
        party.source = later  # type: ignore[assignment]


def watched(
    folder: Any, slot: float, **values: Any
) -> tuple[np.ndarray, list[int], dict[str, Any]]:
    """Run a federation with slow sources; return the arrivals after each pull but the first of all,
    who pulled, and what each party knows at the end.
    """
    given = {"budget": BUDGET, "slowest_pull": PULL if slot else None, **values}
    world = {"seed": 7, "means": [0.5] * OWNERS}
    paths = laid_out(folder, OWNERS, level="strict", sync=True, world=world, slot=slot, **given)
    pulled: list[int] = []

    async def go() -> tuple[Arrivals, dict[str, Any]]:
        made = {path.stem: make_party(open_place(path), build, timing=QUICK) for path in paths}
        owners = [name for name in made if name.startswith("clinic")]
        arrivals = Arrivals(made["controller"][0], owners)
        for number, name in enumerate(owners):
            slowed(made[name][0], pulled, number, PULL)
        await run_all([party for party, _ in made.values()])
        return arrivals, {name: deployment.report() for name, (_, deployment) in made.items()}

    arrivals, known = asyncio.run(go())
    return np.array(arrivals.passes[1:]), pulled[OWNERS:], known


def named(times: np.ndarray, pulled: Sequence[int]) -> tuple[int, float]:
    """Guess in every pass the owner that is latest, for it; return the hits, and how likely pulls
    and others are that far apart by chance (Mann-Whitney).
    """
    late = times - times.min(axis=1, keepdims=True)
    late -= np.median(late, axis=0)
    chosen = np.zeros(late.shape, bool)
    chosen[np.arange(len(late)), pulled[: len(late)]] = True
    hits = int((late.argmax(axis=1) == np.array(pulled[: len(late)])).sum())
    return hits, float(stats.mannwhitneyu(late[chosen], late[~chosen]).pvalue)


@pytest.mark.long
def test_without_slots_arrivals_name_the_arm(tmp_path):
    times, pulled, known = watched(tmp_path, 0.0)
    hits, by_chance = named(times, pulled)
    print(f"\nno slots: the arm was named in {hits} of {len(times)} steps")
    assert hits > 0.8 * len(times)
    assert by_chance < 1e-12
    assert "Timing can name the pulled arm" in known["customer"].leaks[-1]


@pytest.mark.long
def test_with_slots_arrivals_are_independent_of_who_pulls(tmp_path):
    times, pulled, known = watched(tmp_path, SLOT)
    hits, by_chance = named(times, pulled)
    overruns = known["controller"].facts["overruns"]
    print(
        f"\nslots: the arm was named in {hits} of {len(times)} steps, p {by_chance:.3f}, "
        f"{overruns} overruns"
    )
    commonest = np.bincount(pulled).max() / len(pulled)
    assert stats.binom.sf(hits - 1, len(times), commonest) > 1e-3
    assert by_chance > 1e-3
    plain = registry.run(Samba(policy="ucb", means=(0.5,) * OWNERS, budget=BUDGET, seed=7).plain())
    assert (known["customer"].total,) == plain.total
    assert np.diff(times.min(axis=1)).min() >= SLOT  # nothing opens before a full slot


@pytest.mark.long
def test_overruns_are_counted_and_listed(tmp_path):
    """Owners that declare less than their pulls take: the run is right, and says what it showed."""
    _, _, known = watched(tmp_path, 0.01, budget=12, slowest_pull=0.01)
    overruns = known["controller"].facts["overruns"]
    assert overruns == known["comp"].facts["overruns"] >= 12 - OWNERS
    assert f"{overruns} slots of this run were overrun" in known["controller"].leaks[-1]
    assert (
        sum(known[f"clinic-{number}"].facts["overruns"] for number in range(1, OWNERS + 1))
        >= overruns
    )
    assert "slot of 0.01 s" in known["customer"].leaks[-1]
    plain = registry.run(Samba(policy="ucb", means=(0.5,) * OWNERS, budget=12, seed=7).plain())
    assert (known["customer"].total,) == plain.total


def test_a_reward_is_never_handed_over_while_a_slot_ends_or_between_two(monkeypatch):
    """It waits for the next slot: writing it to the disk would delay this owner's answer."""
    monkeypatch.setattr(clock, "DISK", 0.95)

    async def go() -> None:
        paid: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def pull(ask: Any) -> Any:
            return await paid

        clock = Clock(pull)
        reward = asyncio.create_task(clock(Pull("a", 0)))  # type: ignore[arg-type]
        for number in range(2):
            tick = asyncio.create_task(clock(Tick("a", number, 1.0)))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            assert clock._inside.is_set()
            while clock._inside.is_set():
                await asyncio.sleep(0.001)
            if number == 0:
                paid.set_result("paid")
                assert not tick.done()
                assert await tick == Tock(0)
                await asyncio.sleep(0.02)
                assert not reward.done()
        assert await reward == "paid"
        tick.cancel()

    asyncio.run(go())


# Settings -----------------------------------------------------------------------------------------

SOURCE = {"kind": "bernoulli", "mean": 0.5}


def federation(**values: Any) -> dict[str, Any]:
    owners = [
        {"name": "a", "source": SOURCE},
        {"name": "b", "source": SOURCE, **values.pop("b", {})},
    ]
    return {
        "run": "trial-1",
        "level": "strict",
        "budget": 60,
        "policy": "ucb",
        "owner": owners,
        **values,
    }


def test_a_slot_lasts_a_tenth_of_a_second_and_none_in_a_simulated_world(tmp_path):
    for number, (values, slot) in enumerate(
        [({}, 0.1), ({"slot": 0.25}, 0.25), ({"slot": 0}, 0.0)]
    ):
        paths = layout(federation(**values), tmp_path).lay_out(tmp_path / str(number))
        for path in paths:
            assert build(open_place(path)).terms["slot"] == slot
    for path in laid_out(tmp_path / "world", level="strict", sync=True):
        assert build(open_place(path)).terms["slot"] == 0.0


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"b": {"slowest_pull": 0.4}}, "slot = 0.4"),
        ({"slowest_pull": 2.0}, "slot = 2"),
        ({"slot": 0.05}, "slot = 0.1"),
        ({"slot": 0, "b": {"slowest_pull": 0.2}}, "slot = 0.2"),
        ({"slot": -1}, "slot must be at least 0"),
        ({"level": "paper", "slot": 0.1}, "level 'strict'"),
        ({"level": "paper", "b": {"slowest_pull": 0.1}}, "level 'strict'"),
    ],
)
def test_a_slot_that_is_too_short_is_refused(tmp_path, values, line):
    with pytest.raises(ConfigError, match=line):
        layout(federation(**values), tmp_path)


def test_an_owner_refuses_a_slot_that_is_shorter_than_its_own(tmp_path):
    paths = {path.stem: path for path in layout(federation(), tmp_path).lay_out(tmp_path)}
    owner = paths["b"]
    owner.write_text(owner.read_text().replace("[options]\n", "[options]\nslowest_pull = 0.3\n"))
    with pytest.raises(ConfigError, match=r"slot = 0\.3 or more in the files of all"):
        build(open_place(owner))


def test_parties_with_other_slots_disagree(tmp_path):
    paths = {path.stem: path for path in laid_out(tmp_path, level="strict", sync=True, slot=0.1)}
    text = paths["comp"].read_text()
    paths["comp"].write_text(text.replace("slot = 0.1", "slot = 0.2"))

    async def go() -> None:
        parties = [opened(path) for path in paths.values()]
        found = await asyncio.gather(*(party.run() for party in parties), return_exceptions=True)
        for party in parties:
            party.engine.close()
        assert {type(each) for each in found} == {DisagreementError}
        assert all("slot is" in str(each) for each in found)

    asyncio.run(go())
