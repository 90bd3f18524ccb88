"""Tables of who learns what in Samba: who draws and knows each secret of level `strict`, what the
wire carries there, what comp sees at level `paper`; and no secret serves two runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import posse
from posse.core.roles import WORLD, Pull, Role
from posse.policies import UCB, EpsilonGreedy
from posse.privacy.crypto import streams
from posse.privacy.crypto.keys import RunKey, Secrets, hkdf
from posse.privacy.crypto.pairwise import present_digest
from posse.privacy.sharing import shuffle
from posse.problems import BernoulliArms
from posse.runtime.memory import MemoryRun
from posse.systems.samba.attacks.reading import Passes, read, short_key
from posse.systems.samba.federation import SimulatedWorld, prepare
from posse.systems.samba.levels import Switches
from posse.systems.samba.messages import Batch, Score
from posse.systems.samba.strict import sums
from posse.systems.samba.strict.messages import Tock
from tests.kit.samba import secrets_of

ARMS, BUDGET = BernoulliArms(np.linspace(0.3, 0.7, 3)), 9
OWNERS = {"owner-1", "owner-2", "owner-3"}


def played(roles: list[Role], budget: int = BUDGET) -> MemoryRun:
    """Run to the end; a slot ends at once."""
    world = SimulatedWorld(ARMS, 1, budget)
    run = MemoryRun(
        roles,
        lambda ask: world(ask) if isinstance(ask, Pull) else Tock(ask.number),
        transcript=10**6,
    )
    run.finish()
    assert all(role.finished for role in roles)
    return run


def strict() -> Callable[[], list[Any]]:
    """Prepare a run of level `strict` as deployed: nothing follows from a world seed."""
    return prepare(ARMS, EpsilonGreedy(0.3), BUDGET, seed=None, level="strict")  # type: ignore[arg-type]


# One root in two runs -----------------------------------------------------------------------------


def expanded(roles: list[Role], patch: pytest.MonkeyPatch) -> set[bytes]:
    """Run to the end, and return the keys of all streams that were expanded."""
    used: set[bytes] = set()
    expand = streams.keystream

    def keystream(key: bytes, counter: int, length: int) -> bytes:
        used.add(key)
        return expand(key, counter, length)

    with patch.context() as patched:
        for module in (streams, shuffle, sums):
            patched.setattr(module, "keystream", keystream)
        played(roles)
    return used


@pytest.mark.parametrize("level", ["strict", "paper"])
def test_two_manifests_have_no_stream_in_common(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parties have the roots of an earlier run, and the customer's run key alone makes it
    another manifest.

    A pad, a mask or a permutation that served both runs would hide two numbers.
    """
    monkeypatch.setattr(
        shuffle, "ALL_PAIRS", 2
    )  # so that the controller takes places in an order of its own
    key = None if level == "strict" else short_key()
    slot = 0.1 if level == "strict" else 0.0
    make = prepare(ARMS, EpsilonGreedy(0.3), BUDGET, seed=None, level=level, slot=slot, key=key)  # type: ignore[arg-type]
    first, restored = (expanded(make(), monkeypatch) for _ in range(2))
    roles: list[Any] = make()
    roles[0]._run_key = RunKey()
    second = expanded(roles, monkeypatch)
    assert first == restored
    assert min(len(first), len(second)) > 5
    assert not first & second


# Who draws and who knows what ---------------------------------------------------------------------

SECRETS: dict[str, tuple[str, set[str]]] = {
    "stream key": ("owner-2", {"owner-2", "comp"}),
    "s_own": ("owner-1", OWNERS),
    "tag key": ("owner-1", {*OWNERS, "customer"}),
    "seed of controller": ("dealer", {"dealer", "controller"}),
    "seed of comp": ("dealer", {"dealer", "comp"}),
    "labels": ("comp", {"comp"}),
    "order": ("controller", {"controller"}),
}
"""Secrets of level `strict`: who draws them, and who knows them."""


def keys_of(roles: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the secrets of a run, as those who know them hold them."""
    tag, own = roles["owner-2"]._keys
    return {
        "stream key": hkdf(roles["comp"]._streams[1], b"posse strict pads"),
        "s_own": own,
        "tag key": tag,
        "seed of controller": roles["controller"]._first.tape,
        "seed of comp": roles["comp"]._second.tape,
        "labels": roles["comp"]._second._own,
        "order": roles["controller"]._first._own,
    }


def test_each_secret_of_level_strict_is_known_to_those_in_the_table_and_to_nobody_else() -> None:
    roles = played(strict()()).roles
    held = {name: secrets_of(role) for name, role in roles.items()}
    for secret, key in keys_of(roles).items():
        assert {name for name in held if any(key in one for one in held[name])} == SECRETS[secret][
            1
        ], secret


@pytest.mark.parametrize(
    "drawn_by", ["customer", "controller", "comp", "dealer", "owner-1", "owner-2", "owner-3"]
)
def test_each_secret_of_level_strict_depends_on_the_root_of_the_party_that_draws_it_alone(
    drawn_by: str,
) -> None:
    """One party has another root, and the manifest is the same: what the dealer draws nobody else's
    secrets follow.
    """
    make = strict()
    before = keys_of(played(make()).roles)
    roles = make()
    next(role for role in roles if role.name == drawn_by)._secrets = Secrets.fresh()
    after = keys_of(played(roles).roles)
    changed = {secret for secret in before if before[secret] != after[secret]}
    assert changed == {secret for secret, (drawer, _) in SECRETS.items() if drawer == drawn_by}


# The wire -----------------------------------------------------------------------------------------


def test_the_wire_of_level_strict_carries_what_the_controller_sees_and_sealed_parts() -> None:
    """So nothing is left for whoever reads all links: views of the controller are in
    `test_strict_views.py`.
    """
    run = played(strict()())
    roles: Any = run.roles
    entries = [entry for entry in run.transcript or () if entry.sender != WORLD]
    assert all("controller" in (entry.sender, entry.receiver) for entry in entries)
    (tag, own), streams = roles["owner-1"]._keys, roles["comp"]._streams
    digest = present_digest(sorted(OWNERS), roles["comp"]._digest)
    share = sums.encode(sums.added(sums.pad(stream, digest) for stream in streams))
    _, for_comp = roles["dealer"]._shuffle.passes(0)
    sealed = [tag, own, *streams, *roles["dealer"]._enter(), share, for_comp]
    said = b"".join(msgspec.msgpack.encode(entry.message) for entry in entries)
    assert not [secret for secret in sealed if secret in said]
    assert roles["dealer"]._shuffle.passes(0)[0] in said  # the controller's chunk is not sealed


# What comp sees at level `paper` ------------------------------------------------------------------


def of_comp(**off: bool) -> tuple[Passes, NDArray[np.int64]]:
    """Play at level `paper`; return what comp opens, and who was pulled in each of its passes."""
    given = {
        "policy": "ucb",
        "means": (0.3, 0.5, 0.7),
        "level": "paper",
        "horizon": 300,
        "seed": 4,
        **off,
    }
    run = posse.start(posse.Samba(**given), transcript=10**6, key=short_key())
    run.finish()
    return read(run.view("comp")), run.truth()["arms"][3:]


def test_a_mask_of_level_paper_serves_one_pass() -> None:
    """Comp sees the scores of a pass multiplied by one number in (0, 1], another one in every
    pass.
    """
    (masked, arms), (clear, same) = of_comp(), of_comp(mask=False)
    np.testing.assert_array_equal(arms, same)
    factors = np.sort(masked.values, axis=1) / np.sort(clear.values, axis=1)
    np.testing.assert_allclose(factors, factors[:, :1].repeat(3, axis=1), rtol=1e-12)
    assert len(np.unique(factors[:, 0])) == len(factors) == 297
    assert stats.kstest(factors[:, 0], "uniform").pvalue > 1e-6


@pytest.mark.parametrize("kept", [True, False])
def test_a_place_of_level_paper_names_no_owner_unless_the_permutation_is_off(kept: bool) -> None:
    """In a run as deployed every owner is in every place as often, whichever is pulled."""
    make = prepare(
        ARMS,
        UCB(),
        300,
        seed=None,
        level="paper",
        key=short_key(),
        switches=Switches(permutation=kept),
    )  # type: ignore[arg-type]
    run, table, frames = played(make(), budget=300), np.zeros((3, 3)), dict[int, dict[bytes, int]]()
    for entry in run.transcript or ():
        if isinstance(entry.message, Score):
            frames.setdefault(entry.message.index, {})[entry.message.frame] = (
                int(entry.sender[-1]) - 1
            )
        elif isinstance(entry.message, Batch):
            size, sent = len(entry.message.frames) // 3, frames[entry.message.index]
            for place in range(3):
                table[place, sent[entry.message.frames[place * size : (place + 1) * size]]] += 1
    assert table.sum() == 3 * 297
    assert (stats.chisquare(table.ravel()).pvalue > 1e-6) == kept
