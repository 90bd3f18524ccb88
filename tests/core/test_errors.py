"""Errors: every class has its code, every refusal its rule, and users can break each of them."""

from __future__ import annotations

import math
import os
import pickle
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from pydantic import Field

from posse.core import agreement, check, files, fixed, settings, snapshots, statistics
from posse.core.errors import ConfigError, room_of
from posse.core.roles import forbid_reveal
from tests.kit.rules import CLASSES, Broken, check_broken, refusals, rules
from tests.kit.toy_roles import Leaf

CONVERTED = (
    "core/*.py",
    "policies/evaluation/*.py",
    "problems/**/*.py",
    "results/compare.py",
    "results/logs.py",
    "systems/runs.py",
)
"""Files in which every refusal names its rule; add those of a room when it is rewritten."""
RULE = re.compile(r"[a-z_]+(\.[a-z_]+)+\.[a-z]+(-[a-z]+)*")


# Rules in the source ------------------------------------------------------------------------------


def test_every_refusal_of_a_converted_room_names_its_rule() -> None:
    assert [refusal.where for refusal in refusals(*CONVERTED) if refusal.rule is None] == []


def test_two_refusals_never_share_a_rule() -> None:
    counts = Counter(refusal.rule for refusal in refusals(*CONVERTED) if refusal.rule)
    assert [rule for rule, count in counts.items() if count > 1] == []


def test_a_rule_is_room_field_rule() -> None:
    for refusal in refusals(*CONVERTED):
        if refusal.rule:
            assert RULE.fullmatch(refusal.rule), refusal
            assert refusal.rule.startswith(f"{refusal.room}."), refusal


# Rules that users break ---------------------------------------------------------------------------


class Example(settings.Settings):
    aliases: ClassVar[Mapping[str, str]] = {"budget": "horizon", "offers": "data.offers"}

    horizon: int = Field(ge=10, le=99)
    level: Literal["strict", "paper"] = "strict"
    tau: float = Field(0.1, gt=0, lt=1)
    data: dict[str, str] = Field(default_factory=dict)


def revealed(role: Leaf) -> object:
    forbid_reveal(role)
    return role.reveal()


class State(snapshots.Snapshot):
    count: snapshots.Count


SAVED = snapshots.pack(State(version=1, kind="owner", name="ada", run=b"7", count=3))


def unpack(**changes: object) -> object:
    return snapshots.unpack({**SAVED, **changes}, State, kind="owner", name="ada", run=b"7")


def write_text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def use_mode(path: Path, mode: int) -> Path:
    write_text(path, "secret").chmod(mode)
    return path


def foreign(path: Path) -> Path:
    """Return a file that belongs to another user."""
    write_text(path, "secret")
    os.chown(path, 12345, -1)
    return path


def own_nothing(path: Path) -> None:
    """Check a file as another user than its owner."""
    with pytest.MonkeyPatch.context() as patch:
        if os.geteuid() == 0:
            foreign(path)
        else:
            write_text(path, "secret")
            patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        files.check_private(path)


BROKEN: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "core.extra.not-installed": ("P400", "plot", lambda _: check.require("absent", extra="plot")),
    "core.terms.differ": (
        "P530",
        "terms",
        lambda _: agreement.check_terms("ada", {"rounds": "1"}, "bob", {"rounds": "2"}),
    ),
    "core.terms.other-digest": (
        "P530",
        "terms",
        lambda _: agreement.check_terms_digest(b"1", "bob", b"2"),
    ),
    "core.path.exists": (
        "P200",
        "path",
        lambda folder: files.write_whole(write_text(folder / "a", ""), b"", replace=False),
    ),
    "core.path.not-writable": (
        "P200",
        "path",
        lambda folder: files.write_whole(folder / "none" / "a", b""),
    ),
    "core.folder.not-writable": (
        "P200",
        "folder",
        lambda folder: files.make_private_folder(write_text(folder / "a", "") / "b"),
    ),
    "core.identity.not-readable": (
        "P700",
        "identity",
        lambda folder: files.read_credential(folder / "key.pem", "the key", "Make one."),
    ),
    "core.path.not-readable": ("P700", "path", lambda folder: files.check_private(folder / "none")),
    "core.permissions.used-by-others": (
        "P700",
        "permissions",
        lambda folder: files.check_private(use_mode(folder / "a", 0o644)),
    ),
    "core.permissions.written-by-others": (
        "P700",
        "permissions",
        lambda folder: files.check_only_owner_writes(use_mode(folder / "a", 0o666)),
    ),
    "core.owner.another-user": ("P700", "owner", lambda folder: own_nothing(folder / "a")),
    "core.reward_range.not-a-range": (
        "P100",
        "reward_range",
        lambda _: fixed.RewardRange.of((5, 5)),
    ),
    "core.values.empty": ("P200", "values", lambda _: statistics.band([])),
    "core.quantiles.out-of-range": (
        "P200",
        "quantiles",
        lambda _: statistics.band([1.0], quantiles=(0.9, 0.1)),
    ),
    "core.values.wrong-shape": ("P200", "values", lambda _: statistics.bootstrap([])),
    "core.values.not-finite": ("P200", "values", lambda _: statistics.bootstrap([math.nan])),
    "core.alone.other-shape": (
        "P200",
        "alone",
        lambda _: statistics.regret_ratio([[1.0, 2.0]], [[1.0]]),
    ),
    "core.alone.not-positive": (
        "P200",
        "alone",
        lambda _: statistics.regret_ratio([1.0, 2.0], [1.0, 0.0]),
    ),
    "core.snapshot.other-format": ("P800", "snapshot", lambda _: unpack(version=2)),
    "core.snapshot.other-party": ("P800", "snapshot", lambda _: unpack(name="bob")),
    "core.snapshot.other-run": ("P800", "snapshot", lambda _: unpack(run=b"8")),
    "core.snapshot.damaged": ("P800", "snapshot", lambda _: unpack(count=-1)),
    "core.file.missing": ("P200", "file", lambda folder: settings.read_toml(folder / "none.toml")),
    "core.file.is-a-folder": ("P200", "file", settings.read_toml),
    "core.file.not-readable": (
        "P200",
        "file",
        lambda folder: settings.read_toml(folder / ("a" * 300)),
    ),
    "core.file.not-toml": (
        "P100",
        "file",
        lambda folder: settings.read_toml(write_text(folder / "a.toml", "a = = 1")),
    ),
    "tests.tau.not-positive": ("P100", "tau", lambda _: check.positive(tau=-math.inf)),
    "tests.tau.not-a-number": ("P100", "tau", lambda _: check.positive(tau=math.nan)),
    "core.reveal.deployed": ("P500", "reveal", lambda _: revealed(Leaf("clinic-1"))),
    "tests.owners.too-small": ("P100", "owners", lambda _: check.at_least(2, owners=1.999)),
    "tests.beta.out-of-range": (
        "P100",
        "beta",
        lambda _: check.between(0, 1, open_low=True, beta=0),
    ),
    "tests.schedule.unknown": ("P100", "schedule", lambda _: check.one_of(("a",), schedule="b")),
    "tests.settings.unknown": ("P100", "horizn", lambda _: Example(horizon=10, horizn=2)),
    "tests.horizon.missing": ("P100", "horizon", lambda _: Example()),
    "tests.horizon.too-small": ("P100", "horizon", lambda _: Example(horizon=9)),
    "tests.horizon.too-large": ("P100", "horizon", lambda _: Example(budget=100)),
    "tests.horizon.invalid": ("P100", "horizon", lambda _: Example(horizon="many")),
    "tests.horizon.named-twice": ("P100", "horizon", lambda _: Example(horizon=10, budget=10)),
    "tests.data.named-twice": (
        "P100",
        "data",
        lambda _: Example(horizon=10, offers="a", data={"offers": "b"}),
    ),
    "tests.data.invalid": ("P100", "data.offers", lambda _: Example(horizon=10, offers=3)),
    "tests.level.unknown": ("P100", "level", lambda _: Example(horizon=10, level="none")),
    "tests.tau.not-finite": ("P100", "tau", lambda _: Example(horizon=10, tau=math.inf)),
}
"""Rules with their code, their field, and a user's mistake that breaks them."""


@pytest.mark.parametrize("rule", BROKEN)
def test_a_mistake_breaks_its_rule(rule: str, tmp_path: Path) -> None:
    check_broken(rule, Broken(*BROKEN[rule]), tmp_path)


def test_every_rule_of_core_is_broken_by_a_user() -> None:
    assert rules("core/*.py") <= set(BROKEN)


def test_values_inside_their_rules_are_taken() -> None:
    check.positive(tau=5e-324)
    check.at_least(2, owners=2)
    check.between(0, 1, epsilon=0)
    check.between(0, 1, open_low=True, beta=1)
    check.one_of(("inverse", "sqrt"), schedule="sqrt")
    assert check.require("math", extra="plot") is math


# Errors -------------------------------------------------------------------------------------------


def test_the_codes_of_all_classes() -> None:
    assert {name: error.code for name, error in CLASSES.items() if not name.startswith("_")} == {
        "PosseError": "P000",
        "ConfigError": "P100",
        "PolicyError": "P110",
        "DataError": "P200",
        "StoreError": "P300",
        "MissingExtraError": "P400",
        "ProtocolError": "P500",
        "EarlyError": "P500",
        "FrameError": "P510",
        "DisagreementError": "P530",
        "BudgetError": "P600",
        "CertificateError": "P700",
        "EnrolmentError": "P710",
        "JournalError": "P800",
        "LinkError": "P810",
        "UnconfirmedError": "P820",
        "StalledError": "P830",
    }
    waiting = {name for name, error in CLASSES.items() if error.exit_code == 3}
    assert waiting == {"UnconfirmedError", "StalledError"}


def test_an_error_survives_the_way_between_processes() -> None:
    error = ConfigError("too small.", rule="samba.horizon.too-small", field="horizon.first")
    again = pickle.loads(pickle.dumps(error))
    assert again.as_dict() == error.as_dict()
    assert str(again) == "[P100] too small."


def test_the_room_of_a_module() -> None:
    assert room_of("posse.systems.samba.strict.owner") == "samba"
    assert room_of("posse.systems.audit") == "systems"
    assert room_of("posse.core.check") == "core"
    assert room_of("custom") == "custom"
