"""Compilation: one source, the same bits interpreted and compiled, and the right machine code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posse.core import compiled, machine_code
from posse.core.compiled import Compiled, compile_template, compile_user_function, compiled_scalar
from posse.core.exact import log
from posse.core.machine_code import SourceCache, source_digest

SIZE = 2.0
TABLE = np.arange(3)


def twice(x: float) -> float:
    return 2.0 * x


def thrice(x: float) -> float:
    return 3.0 * x


def template(x: float) -> float:
    return change(x) + 1.0  # type: ignore[name-defined]  # noqa: F821


def inner(x: float) -> float:
    return x * SIZE + TABLE[1]


def outer(x: float) -> float:
    return inner(x)


def test_each_policy_has_its_own_kernel() -> None:
    two = compile_template(
        template, {"change": compile_user_function(twice)}, name="two", keep=False
    )
    three = compile_template(
        template, {"change": compile_user_function(thrice)}, name="three", keep=False
    )
    assert (two(5.0), three(5.0)) == (11.0, 16.0)
    assert (two.py_func(5.0), three.py_func(5.0)) == (11.0, 16.0)


def test_short_functions_give_the_same_bits_interpreted_and_compiled() -> None:
    """The program also checks that interpreting imports no numba."""
    program = [sys.executable, "-m", "tests.core.interpreted"]
    done = subprocess.run(
        program, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.splitlines() == ["[]", "[]"]  # none that differs, none that was left out


def test_interpreting_ends_when_it_has_cost_too_much() -> None:
    code = (
        "import sys; from posse.core import compiled; from posse.core.exact import log\n"
        "compiled.PATIENCE = 0.0\n"
        "first = log(10.0); assert 'numba' not in sys.modules\n"
        "assert log(10.0) == first and 'numba' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def halved(word: np.uint64) -> np.uint64:
    return word >> np.uint64(1)


halve = Compiled(halved, keep=False, short=True, options={})
types: list[type] = []


def compile_halve() -> None:
    halve.dispatcher(np.uint64(1))


def record_type(word: np.uint64) -> np.uint64:
    compile_halve()  # what another thread does in the middle of this call
    types.append(type(halve(word)))
    return word


def test_a_call_that_began_in_the_interpreter_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code returns a Python number, which the next function would take as signed."""
    monkeypatch.setattr(compiled._InterpretingBudget, "used_up", False)
    monkeypatch.setattr(compiled._InterpretingBudget, "seconds_spent", 0.0)
    function = Compiled(record_type, keep=False, short=True, options={})
    assert function(np.uint64(2**64 - 2)) == 2**64 - 2
    assert types == [np.uint64]
    assert isinstance(halve(np.uint64(2**64 - 2)), int)  # from then on it is compiled


# Machine code on disk -----------------------------------------------------------------------------


def change_constant() -> None:
    globals()["SIZE"] = 3.0


def change_array() -> None:
    globals()["TABLE"] = np.arange(1, 4)


def change_function() -> None:
    globals()["inner"] = twice


@pytest.mark.parametrize("change", [change_constant, change_array, change_function])
def test_the_digest_covers_all_that_a_function_depends_on(
    change: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = source_digest(outer)
    assert source_digest(outer) == before
    for name in ("SIZE", "TABLE", "inner"):
        monkeypatch.setattr(sys.modules[__name__], name, globals()[name])
    change()
    assert source_digest(outer) != before


def test_code_of_a_user_is_neither_kept_nor_interpreted() -> None:
    function = compiled_scalar(twice)
    assert isinstance(function, Compiled)
    assert (function._keep, function.short) == (False, False)
    assert function(4.0) == 8.0
    assert compile_user_function(log) is log


LOG = "import sys; from posse.core import compiled; from posse.core.exact import log; "
COMPILE = (
    f"{LOG}compiled.stop_interpreting(); print(log(10.0), len(log.dispatcher.stats.cache_hits))"
)


def log_in_a_process(folder: Path, code: str = COMPILE) -> list[str]:
    """Return the logarithm of 10, and how many signatures a new process loaded from disk."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_machine_code_is_used_again_and_survives_damage(tmp_path: Path) -> None:
    """A machine that loses power can leave empty files."""
    value = str(log(10.0))
    assert log_in_a_process(tmp_path) == [value, "0"]
    assert log_in_a_process(tmp_path) == [value, "1"]
    for damaged in tmp_path.rglob("*.nb?"):
        damaged.write_bytes(b"")
    assert log_in_a_process(tmp_path) == [value, "0"]
    assert log_in_a_process(tmp_path) == [value, "1"]


def test_a_full_disk_costs_compiling_again(tmp_path: Path) -> None:
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)); "
    assert log_in_a_process(tmp_path, limit + COMPILE) == [str(log(10.0)), "0"]
    assert not list(tmp_path.rglob("*.nbc"))


def test_one_process_compiles_and_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from pathlib import Path; from posse.core.machine_code import SourceCache\n"
        "from tests.core.test_compiled import twice\n"
        f"cache = SourceCache(twice, Path({str(tmp_path)!r})); cache._take_lock()\n"
        "print(cache._lock is not None, flush=True); sys.stdin.read()"
    )
    monkeypatch.setattr(machine_code, "MAX_WAIT", 0.1)
    same, another = SourceCache(twice, tmp_path), SourceCache(thrice, tmp_path)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout.readline() == "True\n"
        same._take_lock()
        another._take_lock()
        assert same._lock is None
        assert another._lock is not None
        other.communicate("")
    same._take_lock()  # the other process ended before it had saved anything
    assert same._lock is not None
    same._release_lock()
    another._release_lock()


# A race between versions --------------------------------------------------------------------------

RACER = """
import sys
from posse.core import compiled
from posse.systems.samba.kernels import kernels
from posse.core.exact import log
from posse.policies import UCB
compiled.stop_interpreting()
print("ready", flush=True)
sys.stdin.readline()
score = UCB.score(9, 0, 3.0, 4, 0.0, 0, (2.0,))
print(score, log(10.0), log(10), log(True), kernels(UCB()).exploring(0.5, 9, 4, (2.0,)))
"""


@pytest.mark.long
@pytest.mark.parametrize("starts", range(2))
def test_processes_that_start_together_run_their_own_version(tmp_path: Path, starts: int) -> None:
    """24 processes of two versions share a cache; the second version replaces the first in place.

    All import their version first, and compile at the same moment. numba's own cache gave wrong
    code in one of 48 starts.
    """
    package = tmp_path / "posse"
    shutil.copytree(Path(compiled.__file__).parents[1], package)
    exact = package / "core" / "exact.py"
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
    }
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    versions: list[list[subprocess.Popen[str]]] = []
    first = exact.read_text()
    second = first.replace("return e * _LN2_HIGH +", "return 1.0 + e * _LN2_HIGH +")
    for text in (first, second):
        exact.write_text(text)
        processes = []
        for _ in range(12):
            process = subprocess.Popen([sys.executable, "-c", RACER], env=environment, **pipes)  # type: ignore[call-overload]
            processes.append(process)
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        versions.append(processes)
    for process in [*versions[0], *versions[1]]:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [{process.communicate()[0] for process in processes} for processes in versions]
    assert [len(answer) for answer in answers] == [1, 1]
    assert answers[0] != answers[1]
