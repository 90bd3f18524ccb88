"""A policy is a value: a name, an object, module:Class or a table, in Python, settings and TOML;
known by a digest.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import posse
from posse.core.errors import ConfigError, PolicyError, PosseError
from posse.policies import (
    POLICIES,
    UCB,
    EpsilonGreedy,
    Policy,
    Pursuit,
    Softmax,
    Thompson,
    described,
    parameters_of,
    policy,
)
from posse.policies.arms.checks import check
from posse.policies.arms.registry import PARAMETERS, PolicySettings
from posse.systems.samba.settings import Samba
from tests.kit.policies import Careless, Moss, Runner, SecondBest, Tuned
from tests.policies.counterexamples import ComparisonList

TUNED = "tests.kit.policies:Tuned"
MOSS = "tests.kit.policies:Moss"

FILE = """
from dataclasses import dataclass
from posse.core.compiled import elementary
from posse.policies import Policy

WEIGHT = 1.0

@elementary
def halved(total):
    return WEIGHT * total / 2

def half(t, turn, total, pulls, memory, key, parameters):
    return halved(total) / pulls + parameters[0]

@dataclass(frozen=True)
class Half(Policy):
    name = "half"
    score = staticmethod(half)
    width: float = 0.5

    def __post_init__(self):
        if self.width < 0:
            raise ValueError("width is negative")

    def parameters(self):
        return (self.width,)

READY = Half(0.25)
NUMBER = 3
"""


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A policy in a file of a user's own, in the folder where the command is called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "half_of_mine.py").write_text(FILE)
    yield "half_of_mine.py"
    for name in set(sys.modules) - before:
        if name.startswith("half_of_mine"):
            del sys.modules[name]


def test_every_way_to_give_a_registered_policy_is_the_same_settings() -> None:
    wanted = PolicySettings(policy="softmax", tau=0.05)
    for given in (
        Softmax(0.05),
        {"name": "softmax", "tau": 0.05},
        {"name": "softmax", "parameters": {"tau": 0.05}},
        '{name = "softmax", tau = 0.05}',
        described(Softmax(0.05)),
    ):
        settings = PolicySettings(policy=given)
        assert settings == wanted
        assert (settings.policy, settings.resolved()["tau"]) == ("softmax", 0.05)
        assert settings.make_policy() == policy(given) == Softmax(0.05)
    assert PolicySettings(policy=Softmax, tau=0.05) == wanted
    assert PolicySettings(policy=UCB()) == PolicySettings(policy="ucb")
    assert (
        PolicySettings(policy=Thompson()) == PolicySettings(policy="thompson") == PolicySettings()
    )


def test_an_own_policy_is_an_object_a_place_or_a_table() -> None:
    for given in (
        Tuned(0.7),
        {"name": TUNED, "width": 0.7},
        {"class": TUNED, "width": "0.7"},
        described(Tuned(0.7)),
    ):
        settings = PolicySettings(policy=given)
        assert settings.make_policy() == Tuned(0.7)
        stored = json.loads(json.dumps(settings.resolved()))["policy"]
        assert stored == {**Tuned(0.7).describe(), "class": TUNED}
        assert PolicySettings(policy=stored).make_policy() == Tuned(0.7)
        assert pickle.loads(pickle.dumps(settings)).make_policy() == Tuned(0.7)
    assert (
        PolicySettings(policy=TUNED).make_policy()
        == PolicySettings(policy=Tuned).make_policy()
        == Tuned()
    )
    assert parameters_of(TUNED) == ("width",)


def test_an_own_policy_in_a_file(half: str, tmp_path: Path) -> None:
    made = PolicySettings(policy=f"{half}:Half").make_policy()
    assert (made.describe()["name"], made.describe()["parameters"]) == ("half", {"width": 0.5})
    assert policy(f"{half}:Half") == made  # run once: the same class
    assert policy(f"{half}:READY").describe()["parameters"] == {"width": 0.25}
    assert policy({"name": f"{half}:READY", "width": 2}).describe()["parameters"] == {"width": 2.0}
    assert policy("half_of_mine:Half", {"width": 1}).parameters() == (1.0,)
    assert described(made)["class"] == f"{tmp_path / half}:Half"
    (tmp_path / "run.toml").write_text(f'[policy]\nname = "{half}:Half"\nwidth = 0.125\n')
    assert PolicySettings.make(file=tmp_path / "run.toml").make_policy().parameters() == (0.125,)
    (tmp_path / "named.toml").write_text(f'policy = "{half}:Half"\n')
    assert PolicySettings.make(file=tmp_path / "named.toml").make_policy() == made


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"policy": "sotfmax"}, "unknown policy 'sotfmax'. Did you mean 'softmax'"),
        ({"policy": ""}, "unknown policy ''"),
        ({"policy": "no_such_module:Mine"}, "there is no module 'no_such_module'"),
        ({"policy": "gone.py:Mine"}, "there is no file gone.py"),
        ({"policy": ":Mine"}, "expected module:Class or file.py:Class"),
        ({"policy": "half_of_mine.py:Hafl"}, "half_of_mine.py has no 'Hafl'. Did you mean 'Half'"),
        (
            {"policy": "half_of_mine.py:NUMBER"},
            "must be a subclass of posse.policies.Policy, got int",
        ),
        ({"policy": "json:JSONDecoder"}, "must be a subclass of posse.policies.Policy, got type"),
        ({"policy": "json:Gone"}, "json has no 'Gone'. It has no policy."),
        ({"policy": "json.py:Mine"}, "there is no file json.py"),
        (
            {"policy": 3},
            "a policy is a name, module:Class, a table or a subclass of .*Policy, got int",
        ),
        ({"policy": dict}, "a policy is a name"),
        ({"policy": {"tau": 0.1}}, "needs its name"),
        (
            {"policy": {"name": "softmax", "beta": 0.1}},
            "policy 'softmax' has no parameter 'beta'; it takes tau",
        ),
        (
            {"policy": {"name": "softmax", "tau": "warm"}},
            "tau of policy 'softmax' must be a valid number",
        ),
        ({"policy": {"name": "softmax", "tau": 21}}, r"tau must be in \(0, 20\], got 21"),
        (
            {"policy": {"name": "softmax", "tau": 0.1}, "tau": 0.2},
            "tau is given beside the policy and in it",
        ),
        ({"policy": Softmax(0.3), "tau": 0.2}, "tau is given beside the policy and in it"),
        (
            {"policy": {"name": "half_of_mine.py:Half", "tau": 1}},
            "policy 'half' has no parameter 'tau'; it takes width",
        ),
        (
            {"policy": {"name": "half_of_mine.py:Half", "width": -1}},
            r"Half\(\) failed: ValueError: width is negative",
        ),
        ({"policy": "half_of_mine.py:Half", "tau": 0.1}, "policy 'half' has no parameter 'tau'"),
        (
            {"policy": Tuned(), "coefficient": 2},
            "policy 'tuned' has no parameter 'coefficient'; it takes width",
        ),
        ({"policy": {"name": "softmax", "digest": "0" * 64}}, "is not the one that was recorded"),
        ({"policy": "{name = softmax}"}, "a policy in braces is a table like"),
        ({"policy": "softmax", "tau": "warm"}, "tau must be a valid number"),
        ({"policy": "thompson", "width": 0.1}, "unknown setting 'width'"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line_when_settings_are_made(
    half: str, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(PosseError, match=says) as caught:
        PolicySettings(**given)
    assert "\n" not in str(caught.value)


def test_a_file_is_not_taken_for_a_module_in_use(half: str, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(FILE)
    with pytest.raises(
        PolicyError, match=r"called like the module 'json', which is in use. Rename the file."
    ):
        policy("json.py:Half")
    assert sys.modules["json"] is json


def test_another_policy_leaves_parameters_behind() -> None:
    warm = PolicySettings(policy="softmax", tau=0.3)
    assert warm.but(policy="ucb") == PolicySettings(policy="ucb")
    assert warm.but(policy="softmax") == warm
    assert warm.but(policy=Softmax(0.2)) == PolicySettings(policy="softmax", tau=0.2)
    assert warm.but(tau=0.4) == PolicySettings(policy="softmax", tau=0.4)
    with pytest.raises(ConfigError, match="has no parameter 'tau'"):
        warm.but(policy="ucb", tau=0.4)


def test_flags_are_the_fields_of_registered_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(PARAMETERS) == {name for kind in POLICIES for name in parameters_of(kind)}
    assert set(PolicySettings.model_fields) == {"policy", *PARAMETERS}
    for name in PARAMETERS:
        assert PolicySettings.model_fields[name].description
    said = PolicySettings.model_fields["epsilon"].description
    assert said is not None
    assert said.startswith("Exploration rate")
    assert "no privacy epsilon" in said


# Digests ------------------------------------------------------------------------------------------


def digest(made: Policy) -> str:
    text = made.describe()["digest"]
    assert isinstance(text, str)
    assert len(bytes.fromhex(text)) == 32
    return text


def test_digests_tell_policies_apart_and_not_parameters() -> None:
    assert len({digest(policy(name)) for name in POLICIES}) == len(POLICIES)
    assert digest(Softmax(0.1)) == digest(Softmax(0.2))
    assert digest(Runner()) != digest(SecondBest())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total / 2", "total / 3"),  # a helper of the score
        ("WEIGHT = 1.0", "WEIGHT = 2.0"),  # a constant that the helper reads
        ("+ parameters[0]", "- parameters[0]"),  # the score
        ("width: float = 0.5", "width: float = 0.6"),  # a default
        ("return (self.width,)", "return (2 * self.width,)"),  # a method
    ],
)
def test_a_change_of_the_source_changes_the_digest(
    half: str, tmp_path: Path, old: str, new: str
) -> None:
    before = digest(policy(f"{half}:Half"))
    (tmp_path / "half_of_mine_too.py").write_text("# elsewhere, and further down\n\n" + FILE)
    assert digest(policy("half_of_mine_too.py:Half")) == before
    (tmp_path / half).write_text(FILE.replace(old, new))
    assert digest(policy(f"{half}:Half")) != before


def test_without_source_the_code_is_digested() -> None:
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(FILE, "nowhere.py", "exec"), made)
    other: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(FILE.replace("total / 2", "total / 3"), "nowhere.py", "exec"), other)
    again: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(FILE, "nowhere.py", "exec"), again)
    assert digest(made["Half"]()) == digest(again["Half"]()) != digest(other["Half"]())


def test_a_policy_made_in_a_function_is_described_without_a_place() -> None:
    @dataclass(frozen=True)
    class Local(Runner):
        name: ClassVar[str] = "local"

    settings = PolicySettings(policy=Local())
    assert settings.resolved()["policy"] == Local().describe()
    assert json.dumps(settings.resolved())


def test_the_check_suite_takes_the_same_values(half: str) -> None:
    for value in (
        "ucb",
        {"name": "pursuit", "beta": 0.5},
        EpsilonGreedy(0.3),
        Pursuit,
        f"{half}:Half",
        Tuned(0.7),
    ):
        assert check(value).passed
    with pytest.raises(ConfigError, match="unknown policy"):
        check("ubc")


def test_a_run_refuses_an_own_policy_that_fails_the_check_suite() -> None:
    with pytest.raises(
        PolicyError, match=r"cannot run in a federation. It violates arm score locality"
    ):
        Samba(policy=ComparisonList(), owners=3, horizon=50).load()
    assert Samba(policy=Tuned(0.7), owners=3, horizon=50).load().policy == Tuned(0.7)
    assert Samba(
        policy=Careless(3.0), owners=3, horizon=50
    ).load()  # it does not pickle, which this run does not need


@pytest.mark.parametrize("policy", [MOSS, Moss, Moss(5.0), {"name": MOSS, "horizon": 5}], ids=repr)
def test_a_policy_knows_the_horizon_of_its_run(policy: object) -> None:
    settings = Samba(policy=policy, owners=3, horizon=200, runs=2)
    assert settings.make_policy() == settings.load().policy == Moss(200.0)
    assert settings.but(horizon=300).make_policy() == Moss(300.0)
    record = posse.run(settings)
    assert record.config["policy"]["parameters"] == {"horizon": 200.0}
    assert record.total == posse.run(settings.plain()).total
