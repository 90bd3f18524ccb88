"""Every message of small runs, at every role, as bytes: a digest for each type and way, and the
first one in full.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

import posse
from tests.frozen import adapter, fixed
from tests.frozen.shapes import ordered

SHOWN = 256
"""Bytes of a message that are kept to be looked at, behind which only the digest speaks; manifests
are kept whole.
"""
LEARNING = {
    "ucb": {},
    "thompson": {},
    "epsilon-greedy": {"epsilon": 0.4},
    "epsilon-decreasing": {"scale": 2.0},
    "softmax": {"tau": 0.3},
    "pursuit": {"beta": 0.2},
    "tests.frozen.own_policy:PriorMean": {},
}
SMALL = {"owners": 3, "horizon": 10, "seed": 5}


def scenarios() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Name, settings and options of every run."""
    for level in ("strict", "paper"):
        for policy, parameters in LEARNING.items():
            if level == "strict" or ":" not in policy:
                yield (
                    f"samba {level} {policy}",
                    posse.Samba(level=level, policy=policy, **parameters, **SMALL),
                    {},
                )
    yield (
        "samba strict prices",
        posse.Samba(level="strict", policy="ucb", price=[0.02, 0.05, 0.5], **SMALL),
        {},
    )
    for switch in ("aes", "paillier", "permutation", "mask", "shortcut"):
        off = {switch: False, "policy": "epsilon-greedy", "epsilon": 0.5, "level": "paper"}
        yield f"samba paper without {switch}", posse.Samba(**off, **SMALL), {}
    rows = {"rows": 40, "horizon": 6, "seed": 5}
    for policy in ("epsilon-greedy", "linucb", "thompson"):
        yield f"mpc {policy}", posse.MpcContextual(policy=policy, **rows), {}
    yield "mpc batch", posse.MpcContextual(batch=3, **rows), {}
    yield "mpc overlap", posse.MpcContextual(overlap=True, bits=20, **rows), {}
    market = {"agents": 3, "producers": 4, "horizon": 24, "alpha": 0.3, "seed": 5}
    for noise in ("tight", "paper", "equal", "none"):
        yield f"dp {noise}", posse.DpCombinatorial(noise=noise, start=3, **market), {}
    yield "dp placebo", posse.DpCombinatorial(policy="placebo", start=3, **market), {}
    yield "dp reports", posse.DpCombinatorial(reports=(1, 2, 4, 8), rule="fuse", **market), {}
    for policy in ("fcb", "naive"):
        yield f"dp {policy}", posse.DpCombinatorial(policy=policy, **market), {}


def shown(data: bytes) -> dict[str, Any]:
    """A message to be compared and looked at."""
    seen = len(data) if msgspec.msgpack.decode(data)[0] == "Offer" else SHOWN
    return {
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "begins": data[:seen].hex(),
    }


def logged(entries: Iterator[tuple[str, str, Any]]) -> dict[str, Any]:
    """Digests of messages by way and tag, and of all in their order."""
    ways: dict[str, Any] = {}
    sums: dict[str, Any] = {}
    whole = hashlib.sha256()
    for sender, receiver, message in entries:
        data = msgspec.msgpack.encode(message)
        framed = f"{sender} {receiver} {len(data)} ".encode() + data
        whole.update(framed)
        way = f"{sender} > {receiver} {msgspec.msgpack.decode(data)[0]}"
        if way not in ways:
            ways[way], sums[way] = {"messages": 0, "first": shown(data)}, hashlib.sha256()
        ways[way]["messages"] += 1
        sums[way].update(framed)
    for way, entry in ways.items():
        entry["all"] = sums[way].hexdigest()
    return {"in order": whole.hexdigest(), "ways": ways}


def _by_kind(run: Any, entries: Any) -> Iterator[tuple[str, str, Any]]:
    kinds = dict(run.kinds)
    for entry in entries:
        yield (
            kinds.get(entry.sender, entry.sender),
            kinds.get(entry.receiver, entry.receiver),
            entry.message,
        )


def simulated() -> dict[str, Any]:
    """Messages between all roles of runs in one process, and what the world answered; what every
    role saved.
    """
    found = {}
    for name, settings, options in scenarios():
        fixed.restart()
        run = posse.start(settings, **options)
        saved: dict[str, Any] = {}
        while (delivery := run.deliver(explain=False)) is not None:
            # What a role holds in the middle of a run is more than at its end.
            if run.time == run.horizon // 2 and "middle" not in saved:
                saved["middle"] = _saved(run)
            assert delivery is not None
        saved["end"] = _saved(run)
        view = run.view(*run.parties)
        found[name] = {**logged(_by_kind(run, view.entries)), "saved": saved}
    return found


def _saved(run: Any) -> dict[str, Any]:
    """Names and digests of what every role saves: the content of its snapshots."""
    found = {}
    for party in run.parties:
        state = run.view(party).secrets[party]
        data = msgspec.msgpack.encode(ordered(state), order="sorted")
        found[party] = {"fields": sorted(state), "sha256": hashlib.sha256(data).hexdigest()}
    return found


def aggregation() -> dict[str, Any]:
    """Messages of secure rounds between clients and server: nobody lost, some lost, and a sparse
    graph.
    """
    found = {}
    for name, clients, lost in adapter.ROUNDS:
        fixed.restart()
        found[name] = logged(iter(adapter.secure_round(clients, lost)))
    return found
