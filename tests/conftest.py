"""What tests share: where real data lies, and where compiled code is kept."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests import forks

REPOSITORY = Path(__file__).resolve().parents[1]
PATIENCE = 600
"""Seconds that a test may take: no quick one takes a quarter, on a busy machine either."""

# Tests compile many small programs and run each for a moment: quick compiling costs a quarter. Its
# last bits may be others (equivalence/test_runs.py compiles as users do). A flag that a jaxlib does
# not know would end every process.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if version("jaxlib").startswith("0.10."):
    os.environ.setdefault(
        "XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    )
# What JAX compiles is kept on disk, as numba's code is: workers and the processes that tests start
# share it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(REPOSITORY / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

# A busy machine is slow at everything: no test fails for the time it took.
hypothesis_settings.register_profile(
    "posse", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("posse")

# A shell that runs tests in the background may have told its children to ignore Ctrl-C, and those
# theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

forks.begin()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, all files of the browser go to one worker: they share a browser."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "tests/browser" if file.startswith("tests/browser/") else file

    return Together(config, log)


@pytest.hookimpl(hookwrapper=True)
def pytest_collect_file(file_path: Path) -> Any:
    """Look for examples only in files of this folder that hold some: looking through a module takes
    a while.
    """
    outcome = yield
    if file_path.suffix == ".py" and ">>> " not in file_path.read_text(encoding="utf-8"):
        outcome.force_result(
            [one for one in outcome.get_result() if type(one).__name__ != "DoctestModule"]
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Any:
    """Look for garbage after collecting, not during it; what was collected is never looked through
    again.

    Workers collect in turn: what the first compiles of the tests, the others read.
    """
    gc.disable()
    with Path(__file__).open() as turn:
        if "PYTEST_XDIST_WORKER" in os.environ and find_spec("fcntl"):
            import_module("fcntl").flock(turn, 2)  # exclusively, until the file is closed
        yield
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """A test that waits for what does not come fails where it waits, and its fixtures stop what it
    began.

    The alarm rings again and again: a task that nobody awaits may have taken the first. What does
    not stop even so is ended by the limit in pyproject.toml, with the whole worker.
    """
    if item.get_closest_marker("long") or not hasattr(signal, "setitimer"):
        yield
        return

    def stuck(*_: object) -> None:
        pytest.fail(f"no end after {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, stuck)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, 10)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


pytest_runtest_setup = pytest_runtest_teardown = pytest_runtest_call


@pytest.fixture(autouse=True)
def same_interpreter() -> Iterator[None]:
    """What a library leaves in the environment (Dask does) would keep all later processes from
    beginning as forks.
    """
    before = forks.interpreter(os.environ)
    yield
    for name in forks.interpreter(os.environ).keys() | before.keys():
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of this test begin in the usual way, with an interpreter of their own."""
    monkeypatch.setenv(forks.PLACE, "")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets: POSSE_DATA, or shared/data beside the repository."""
    path = (
        Path(os.environ["POSSE_DATA"])
        if "POSSE_DATA" in os.environ
        else REPOSITORY.parent / "shared" / "data"
    )
    if not path.is_dir():
        pytest.skip(f"no data sets at {path}; set POSSE_DATA to the folder that holds them")
    return path
