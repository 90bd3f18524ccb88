"""Prepared populations: what was written is what is read, damage is told, and memory does not grow
with the clients.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from posse.core.errors import ConfigError
from posse.problems.populations.population import Bag, Population
from posse.problems.populations.prepared import HEADER, Writer, load, save
from tests.kit.rules import refused
from tests.problems.populations import images, texts


@pytest.mark.parametrize("name", ["folder", "one.npz"])
@pytest.mark.parametrize("whole", [images([2, 3, 1]), texts()], ids=["images", "texts"])
def test_what_was_saved_is_loaded(tmp_path: Path, name: str, whole: Population) -> None:
    path = save(whole, tmp_path / name)
    back = load(path, check=True)
    assert back.describe() == whole.describe()
    assert [back.client_name(i) for i in range(2)] == [whole.client_name(i) for i in range(2)]
    one, other = (population.gather([1, 0], pad=3) for population in (whole, back))
    mine, theirs = (tuple(x) if isinstance(x, Bag) else (x,) for x in (one.x, other.x))
    for this, that in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(this, that)
    np.testing.assert_array_equal(one.y, other.y)
    np.testing.assert_array_equal(one.mask, other.mask)
    with pytest.raises(ConfigError, match="is written to a new"):
        save(whole, path)


def test_a_folder_is_mapped(tmp_path: Path) -> None:
    back = load(save(images([2, 3]), tmp_path / "folder"))
    assert isinstance(back.inputs, np.memmap)
    assert isinstance(back.offsets, np.memmap)


def test_damage_is_told(tmp_path: Path) -> None:
    with refused("problems.prepared.no-header"):
        load(tmp_path)
    with refused("problems.prepared.missing"):
        load(tmp_path / "none.npz")
    folder = save(images([2, 3]), tmp_path / "folder")
    np.save(folder / "labels.npy", np.zeros(4, np.int32))
    with refused("problems.prepared.wrong-array"):
        load(folder)
    (folder / "labels.npy").write_bytes(b"no array")
    with refused("problems.prepared.not-whole"):
        load(folder)
    header = json.loads((folder / HEADER).read_text())
    (folder / HEADER).write_text(json.dumps(header | {"version": 9}))
    (folder / "labels.npy").unlink()
    np.save(folder / "labels.npy", np.zeros(5, np.int32))
    with refused("problems.prepared.other-version"):
        load(folder)
    (folder / HEADER).write_text("{")
    with refused("problems.prepared.broken-header"):
        load(folder)
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 and no more")
    with refused("problems.prepared.broken-file"):
        load(tmp_path / "bad.npz")


def wrong(folder: Path, *chunks: tuple[list[int], int, int]) -> None:
    """Write chunks of (sizes, columns, label)."""
    with Writer(folder, folder.name, ("a", "b")) as out:
        for sizes, columns, label in chunks:
            out.add(
                sizes,
                np.zeros((sum(sizes), columns), np.uint8),
                np.full(sum(sizes), label, np.int32),
            )


def test_a_writer_checks_before_it_writes(tmp_path: Path) -> None:
    with refused("problems.population.out-of-range"):
        wrong(tmp_path / "one", ([1], 2, 2))
    assert not list((tmp_path / "one").iterdir())
    with refused("problems.prepared.sizes"):
        wrong(tmp_path / "empty", ([1, 0], 2, 1))
    with refused("problems.prepared.chunks-differ"):
        wrong(tmp_path / "two", ([1], 2, 1), ([1], 3, 1))
    with refused("problems.prepared.no-header"):
        load(tmp_path / "two")


STUBS = """
import importlib, sys, types
import posse
for name in ("posse.problems", "posse.policies"):
    package = types.ModuleType(name)
    package.__path__ = [posse.__path__[0] + "/" + name.split(".")[1]]
    sys.modules[name] = package
"""
"""The modules themselves: what the two packages import when they are imported is another matter."""

GATHER = """
import numpy as np
from posse.problems.populations.prepared import load
from posse.problems.populations.splits import some_clients
from tests.kit.rules import refused
whole = load(sys.argv[1])
population = some_clients(whole, whole.clients - 1)  # views of what is mapped
draw = np.random.default_rng(1)
def resident():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
population.gather(np.arange(64), pad=8)
before = resident()
for _ in range(40):
    population.gather(draw.choice(population.clients, 64, replace=False), pad=8)
print(population.clients, before, resident())
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="no /proc to read the resident memory from"
)
def test_memory_does_not_grow_with_the_population(tmp_path: Path) -> None:
    resident = {}
    for clients in (2_000, 342_477):
        folder = tmp_path / str(clients)
        with Writer(folder, "many", ("a", "b")) as out:
            for low in range(0, clients, 20_000):
                count = min(20_000, clients - low)
                sizes = 1 + np.arange(count) % 7
                total = int(sizes.sum())
                out.add(sizes, np.full((total, 8, 8), 7, np.uint8), np.zeros(total, np.int32))
        told = subprocess.run(
            [sys.executable, "-c", STUBS + GATHER, folder],
            capture_output=True,
            text=True,
            check=True,
        )
        found, before, after = (int(word) for word in told.stdout.split())
        assert found == clients - 1
        assert after - before < 8_000  # kB; the files of the large one are 93 MB
        resident[clients] = after
    # In kB: without giving pages back the large population would be 90 MB more.
    assert abs(resident[342_477] - resident[2_000]) < 12_000


BARE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numba", "pydantic", "msgspec", "scipy", "sklearn", "PIL", "cryptography", "gmpy2"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Refuse())
"""
IMPORT = """
for name in sys.argv[1:]:
    importlib.import_module(name)
print("well")
"""

NUMPY_ALONE = (
    *(
        f"posse.problems.populations.{name}"
        for name in ("population", "prepared", "splits", "worlds")
    ),
    *(
        f"posse.policies.{name}"
        for name in ("contextual.explorations", "evaluation.offline", "evaluation.federated")
    ),
)


def test_modules_need_numpy_alone() -> None:
    code = BARE + STUBS + IMPORT
    told = subprocess.run(
        [sys.executable, "-c", code, *NUMPY_ALONE], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout.strip()) == (0, "well"), told.stderr
