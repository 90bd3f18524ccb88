"""What holds for every system: one shape of settings, runs and records, whatever the protocol."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError, PosseError
from posse.core.listing import Listing
from posse.core.roles import WORLD
from posse.policies import listing as policies
from posse.problems import listing as problems
from posse.results.record import ARRAYS, Record
from posse.results.store import Store
from posse.systems import registry
from posse.systems.base import AnySystem, RunSettings, level_or_none, not_protected
from posse.systems.runs import Run
from tests.systems.small_settings import SMALL

NAMES = (*registry.names(), "toy")


@pytest.fixture(autouse=True)
def _toy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the toy: all that holds for built-in systems must hold for it."""
    monkeypatch.setenv(registry.VARIABLE, "tests.systems.toy.system")


def test_the_old_package_name_works_with_a_warning() -> None:
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from posse.protocols.base import System\n"
        "    import posse.protocols.samba.settings as old\n"
        "import posse.systems.base, posse.systems.samba.settings as new\n"
        "assert System is posse.systems.base.System and old is new\n"
        "print([each.category.__name__ for each in caught])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['DeprecationWarning']\n"


def small(name: str, **changes: Any) -> RunSettings:
    system = registry.system(name)
    return system.Settings(**{**SMALL.get(name, system.about.demo.settings), **changes})


@pytest.fixture(params=NAMES)
def system(request: pytest.FixtureRequest) -> AnySystem:
    return registry.system(request.param)


def same(a: Record, b: Record) -> bool:
    """Whether two records hold the same results; times and bytes of random length may differ."""
    arrays = all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in ARRAYS
        if getattr(a, name) is not None
    )
    return arrays and a.total == b.total and a.status == b.status and a.privacy == b.privacy


def test_an_answer_to_what_was_not_asked_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"there is no open ask 99. Open: none"):
        posse.start(posse.Samba(owners=2, horizon=10, path="roles")).answer(99, 1.0)


def test_the_first_system_is_the_one_of_the_demo() -> None:
    assert NAMES[0] == "samba"
    assert set(NAMES) >= set(SMALL)


def test_a_number_that_no_run_could_have_is_refused_when_settings_are_made(
    system: AnySystem,
) -> None:
    for name in system.Settings.model_fields:
        for value in (-1, -0.5, float("nan")):
            try:
                made = small(system.name, **{name: value})
            except PosseError:
                continue
            made.load()  # which refuses nothing any more


@pytest.mark.parametrize(
    ("settings", "values", "told"),
    [
        (posse.Samba, {"horizon": -1}, "at least the number of owners, got -1 for 10 owners"),
        (posse.Samba, {"means": [0.5]}, "at least 2"),
        (posse.Samba, {"means": (1.5, 0.2), "horizon": 8}, "means must be in"),
        (
            posse.Samba,
            {"means": (0.5, 0.6), "price": (1, 2, 3), "horizon": 8},
            "got 3 for 2 owners",
        ),
        (posse.Samba, {"paillier_bits": 512}, "must have 2048 to 16384 bits"),
        (posse.Samba, {"paillier_bits": 2049}, "bits must be even"),
        (posse.MpcContextual, {"limit": -1.0}, "limit must be a finite number above 0"),
        (posse.DpCombinatorial, {"epsilon": -1}, "epsilon must be"),
        (posse.DpCombinatorial, {"delta": "abc"}, "delta must be a number, 1/n or 1/T"),
    ],
)
def test_what_needs_no_data_is_checked_when_settings_are_made(
    settings: Any, values: Any, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        settings(**values)


def test_what_has_no_effect_or_is_not_whole_yet_is_taken() -> None:
    assert posse.Samba(horizon=5).but(owners=3).load()
    assert posse.Samba(paillier_bits=1024, path="plain", means=(0.2, 0.8), horizon=9).load()
    assert posse.Samba(concentration=0.0).load()
    assert posse.DpCombinatorial(delta=0.01) == posse.DpCombinatorial(delta="0.01")
    assert posse.DpCombinatorial(delta=1e-5, agents=3).delta == "1e-05"


def test_it_declares_itself(system: AnySystem) -> None:
    about = system.about
    for text in (system.name, about.title, about.summary, about.reference, about.protects):
        assert text.strip()
    assert about.demo.story
    system.Settings(**about.demo.settings)
    assert system.levels
    assert system.roles
    assert len({role.colour for role in system.roles}) == len(system.roles)
    settings = small(system.name)
    settings_level = level_or_none(system, settings)
    assert settings_level is not None
    assert settings_level.learns(settings)
    assert not_protected(system, settings)
    if system.name in registry.BUILT_IN:
        assert about.policies
        assert about.problems
    if about.policies:
        json.dumps(_entries(policies.listing(about.policies)))
    if about.problems:
        json.dumps(_entries(problems.listing(about.problems, None)))


def _entries(listing: Listing | None) -> tuple[dict[str, Any], ...]:
    assert listing is not None
    assert listing.entries
    return listing.entries


def test_its_settings_have_one_vocabulary(system: AnySystem) -> None:
    fields = system.Settings.model_fields
    assert {"policy", "data", "horizon", "seed", "runs", "points"} <= set(fields)
    assert all(field.description for field in fields.values()), [
        n for n, f in fields.items() if not f.description
    ]
    words = [word for word, field in system.Settings.aliases.items() if field == "horizon"]
    assert words
    settings = small(system.name)
    assert (
        system.Settings(**{**SMALL.get(system.name, {}), "horizon": settings.horizon}) == settings
    )  # type: ignore[attr-defined]
    for word in words:
        renamed = {**SMALL[system.name]}
        renamed[word] = renamed.pop("horizon")
        assert system.Settings(**renamed) == settings
        with pytest.raises(ConfigError, match="both"):
            system.Settings(**renamed, horizon=3)
    assert settings.but(seed=5).seed == 5
    assert settings.digest() == small(system.name).digest() != settings.but(seed=5).digest()
    assert pickle.loads(pickle.dumps(settings)) == settings
    json.dumps(settings.resolved())


@pytest.mark.parametrize(
    "wrong", [{"runs": 0}, {"points": 1}, {"seed": -1}, {"horizon": -3}, {"no_such": 1}]
)
def test_wrong_values_are_refused_when_they_are_made(
    system: AnySystem, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as refused:
        small(system.name, **wrong)
    assert "\n" not in str(refused.value)


def test_its_twin_is_run_like_any_other(system: AnySystem) -> None:
    settings = small(system.name)
    plain = settings.plain()
    assert type(plain) is type(settings)
    assert plain.plain() == plain
    assert system.level_of(plain) != system.level_of(settings)
    record, twin = posse.run(settings), posse.run(plain)
    assert record.kind == twin.kind == system.name
    assert record.status == twin.status == "finished"
    assert record.config["horizon"] == settings.horizon  # type: ignore[attr-defined]
    assert record.show["title"] == system.about.title
    policy = record.config["policy"]
    assert isinstance(policy, dict)
    assert set(policy) <= {"name", "parameters", "digest", "class"}
    assert isinstance(policy["parameters"], dict)
    assert (
        small(system.name, policy=policy).load() is not None
    )  # it can be given again as it was kept
    if system.about.exact:
        assert twin.total == record.total
        assert np.array_equal(twin.pulls, record.pulls)


@pytest.mark.parametrize("plain", [False, True])
def test_a_run_goes_forward_and_back(system: AnySystem, plain: bool, tmp_path: Any) -> None:
    settings = small(system.name).plain() if plain else small(system.name)
    run = posse.start(settings)
    assert (run.time, run.done) == (0, False)
    run.step()
    assert 0 < run.time <= run.horizon
    while run.time < run.horizon // 2:
        run.step()
    middle = run.record()
    assert middle.status == "running"
    with Store(tmp_path / "runs.sqlite") as store:
        assert same(store.get(store.save(middle)), middle)
    saved, at = run.save(), run.time
    moved = _play(run)
    whole = run.record()
    assert whole.status == "finished"
    run.load(saved)
    assert run.time == at
    assert same(run.record(), middle)
    assert _play(run) == moved
    assert same(run.record(), whole)
    assert same(posse.run(settings), whole)


@pytest.mark.parametrize("plain", [False, True])
def test_saved_moments_of_several_runs_come_again_in_any_order(
    system: AnySystem, plain: bool
) -> None:
    settings = small(system.name, runs=2)
    settings = settings.plain() if plain else settings
    run = posse.start(settings)
    early = run.save()
    run.advance(max(1, run.horizon // 4))
    first = run.time, run.save(), run.record()
    run.advance(run.horizon // 2)
    second = run.time, run.save(), run.record()
    run.finish()
    whole, end = run.record(), run.save()
    for at, moment, then in (first, second, first, second):
        run.load(moment)
        assert run.time == at
        assert same(run.record(), then)
    run.finish()
    assert same(run.record(), whole)
    for moment in (early, end):
        run.load(moment)
        run.finish()
        assert same(run.record(), whole)


def _play(run: Run) -> list[tuple[str, str, str]]:
    """Run to the end, by messages where there are some, and return who sent what kind to whom."""
    moved = []
    while not run.done:
        try:
            delivery = run.deliver()
        except ConfigError:
            run.step()
            continue
        if delivery is not None:
            moved.append((delivery.sender, delivery.receiver, type(delivery.message).__name__))
    return moved


def test_parties_can_be_looked_at(system: AnySystem) -> None:
    run = posse.start(small(system.name))
    run.advance(max(1, run.horizon // 2))
    assert run.parties
    for party in run.parties:
        json.dumps(run.state(party), default=str)
        view = run.view(party)
        assert view.parties == (party,)
        assert all(party in (entry.sender, entry.receiver) for entry in view.entries)
        assert all(entry.size > 0 for entry in view.entries if entry.sender != WORLD)
    with pytest.raises(ConfigError, match="party"):
        run.state("nobody")
    with pytest.raises(ConfigError, match="party"):
        run.view("nobody")


def test_it_stops_where_it_is(system: AnySystem) -> None:
    """Ctrl-C keeps what was done, as a record."""
    settings = small(system.name)

    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        posse.run(settings, watch=stop)
    record = stopped.value.record  # type: ignore[attr-defined]
    assert record.status == "interrupted"
    assert record.kind == system.name
