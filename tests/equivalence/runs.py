"""Digests of eighty small runs, twenty a system: whoever changes the code sees whether it changed a
number.

`runs.json` holds settings and what they gave. `python -m tests.equivalence.runs` runs them all
again and names those that differ; `--write` writes their digests anew, which is right only where
numbers were meant to change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("runs.json")
INTEGERS = ("steps", "pulls")
FLOATS = ("reward", "regret", "total", "party_total", "party_regret")

SYSTEMS = ("samba", "dp_combinatorial", "mpc_contextual", "fed_contextual")

RENAMED: dict[str, str] = {}
"""Settings that are called otherwise since the file was written, by their old names; what runs give
never changes.
"""

Entry = dict[str, Any]


def run(system: str, settings: Mapping[str, Any], twin: str | None) -> Any:
    """Run settings of a system, or of its plain twin."""
    from posse.systems import registry

    renamed = {RENAMED.get(name, name): value for name, value in settings.items()}
    made = registry.system(system.replace("_", "-")).Settings(**renamed)
    if twin == "plain":
        return registry.run(made.plain())
    return registry.run(made, **({"key": _key()} if system == "samba" else {}))


@cache
def _key() -> Any:
    """One Paillier key for all runs: totals do not depend on it."""
    from posse.privacy.crypto.paillier import generate_key

    return generate_key(2048)


def run_entry(entry: Entry) -> dict[str, Any]:
    """Run what an entry names, and return what is compared: a digest, rounded figures, and the
    weights' digest.

    The figures are for machines that round the last bit of a float otherwise; weights are those of
    a single trained model.
    """
    system, settings, twin = entry["system"], entry["settings"], entry["twin"]
    if system != "fed_contextual" or settings.get("runs", 1) > 1:
        record = run(system, settings, twin)
        return {"digest": digest(record), "figures": figures(record)}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.npz"
        record = run(system, {**settings, "model_out": str(model)}, twin)
        return {"digest": digest(record), "figures": figures(record), "weights": weights(model)}


def digest(record: Any) -> str:
    """SHA-256 of everything that was learnt and earned: arrays as they lie in memory, guarantees to
    nine digits.
    """
    sha = hashlib.sha256()
    for names, kind in ((INTEGERS, "<i8"), (FLOATS, "<f8")):
        for name in names:
            value = getattr(record, name)
            array = np.zeros(0) if value is None else np.ascontiguousarray(value)
            sha.update(f"{name} {None if value is None else array.shape}\n".encode())
            sha.update(array.astype(kind).tobytes())
    sha.update(json.dumps(guarantees(record.privacy)).encode())
    return sha.hexdigest()


def guarantees(privacy: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Epsilon and delta of every entry, to nine significant digits."""
    return [
        ["" if entry[name] is None else f"{entry[name]:.9g}" for name in ("epsilon", "delta")]
        for entry in privacy
    ]


def figures(record: Any) -> dict[str, float]:
    """What another machine must come near to: reward a decision, and its first and last
    guarantee.
    """
    made = int(record.pulls.sum())
    told = {"average_reward": math.fsum(record.total) / made, "decisions": made}
    bounds = [entry["epsilon"] for entry in record.privacy if entry["epsilon"] is not None]
    if bounds:
        told |= {"first_epsilon": bounds[0], "last_epsilon": bounds[-1]}
    if "average_probability" in record.summary:
        told["average_probability"] = record.summary["average_probability"]
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in told.items()
    }


def weights(model: Path) -> str:
    """SHA-256 of a model's arrays, in whatever order and under whatever names they were written."""
    with np.load(model) as arrays:
        leaves = [
            arrays[name]
            for name in arrays.files
            if arrays[name].ndim and arrays[name].dtype.kind == "f"
        ]
    parts = sorted((str(leaf.shape), leaf.astype("<f4").tobytes()) for leaf in leaves)
    return hashlib.sha256(b"".join(shape.encode() + data for shape, data in parts)).hexdigest()


def machine() -> str:
    """Short digest of what the last bits of a float depend on: processor, number of cores, numpy
    and jax.
    """
    parts = [platform.machine(), str(os.cpu_count()), version("numpy"), version("jax")]
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        parts += sorted({line for line in lines if line.startswith(("model name", "flags"))})
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def load() -> tuple[str, list[Entry]]:
    """Read the digest of the machine that wrote the entries, and every entry."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    return kept["machine"], kept["runs"]


def differences(entry: Entry, found: Mapping[str, Any], same_machine: bool) -> list[str]:
    """Name what differs.

    Whatever depends on the last bit of a matrix product is compared bit by bit on the machine that
    wrote it alone, and by its figures elsewhere.
    """
    if same_machine:
        names = [name for name in ("digest", "weights") if name in found]
    else:
        names = ["digest"] if entry["portable"] else []
    wrong = [name for name in names if found[name] != entry[name]]
    for name, value in entry["figures"].items():
        if not math.isclose(found["figures"][name], value, rel_tol=2e-5):
            wrong.append(f"{name}: {found['figures'][name]} instead of {value}")
    return wrong


def _write(entries: Iterable[Entry]) -> None:
    """Write every entry on lines of its own, so that a change shows which one it is of."""
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    FILE.write_text(
        f'{{"machine": {json.dumps(machine())}, "runs": [\n{lines}\n]}}\n', encoding="utf-8"
    )


def main() -> int:
    """Run every entry; compare it, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="write digests instead of comparing them"
    )
    parser.add_argument("--system", choices=SYSTEMS, help="run one system only")
    asked = parser.parse_args()
    where, entries = load()
    failed = 0
    for number, entry in enumerate(entries):
        if asked.system not in (None, entry["system"]):
            continue
        began = time.process_time()
        found = run_entry(entry)
        wrong = [] if asked.write else differences(entry, found, where == machine())
        failed += bool(wrong)
        spent = time.process_time() - began
        print(
            f"{number:3} {entry['system']:17} {spent:6.2f} s  {'; '.join(wrong) or 'ok'}",
            flush=True,
        )
        if asked.write:
            entry.update(found)
    if asked.write:
        _write(entries)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
