"""Small faults in the code, one at a time, each against the tests that run through it: which are
found?

    python -m benchmarks.mutants [--sample 200] [--seed 1] [--minutes 60] [--work build/mutants]
    [--without FILE]

A seeded sample of comparisons flipped, calls dropped, constants changed and conditions never true
in `systems`, `privacy` and `runtime`. A place is drawn by its own hash, so a change elsewhere
leaves the others in the sample. All faults of the sample stand in one copy of the source, each
behind a switch that is off and notes that it was passed. The tests run once with all switches off:
which tests pass which fault, and how long each takes. Then a fault is switched on, and the tests
that pass it run, fastest first, until one fails. Everything is imported and collected once; each
run is a fork of that process. A fault in what numba compiles, or in what runs at import, is written
into the copy instead and met by the test files that import its module.

Results are kept after each step, so a run that was stopped goes on where it was. `REASONS` keeps
the survivors that were read and change nothing that a test could see.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import pkgutil
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.faults import PROBE, compiled, sample, switched

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "runtime",
    "privacy",
    "src",
    "network",
    "systems/samba",
    "systems/mpc_contextual",
    "systems/dp_combinatorial",
    "systems",
    "cli",
    "devices",
    "leakage",
    "equivalence",
)
"""Folders of tests that a fault meets, in this order; src: the examples in the modules
themselves.
"""
BUDGETS = 10.0, 60.0
"""Seconds of tests (as the first pass measured them) that a fault meets, after each folder and at
the end.
"""
PATIENCE = 30.0
"""Seconds beyond ten times its own after which a test counts as hanging."""
REASONS = ROOT / "benchmarks" / "mutants.txt"


class Bench:
    """The copy with its switches, the process that has everything imported, and what is known so
    far.
    """

    def __init__(self, work: Path, count: int, seed: int) -> None:
        self.work, self.state = work, work / "state.json"
        self.items: dict[str, Any] = {}
        self.slow: frozenset[str] = frozenset()
        """Tests that are not run."""
        self._screen = os.fdopen(os.dup(1), "w")
        if not self.state.exists():
            _copied(work)
            drawn = sample(count, seed, work)
            fixed = [
                number
                for number, each in enumerate(drawn)
                if compiled((work / each[0]).read_text())
            ]
            self.known: dict[str, Any] = {
                "drawn": drawn,
                "written": fixed,
                "tests": {},
                "files": {},
                "judged": {},
                "plain": {each[0]: (work / each[0]).read_text() for each in drawn},
            }
            for name in self.known["plain"]:
                self._write(name, None)
            (work / "src" / "posse" / "_faults.py").write_text(PROBE)
            self.save()
        self.known = json.loads(self.state.read_text())
        for name in self.known["plain"]:
            self._write(name, None)

    def save(self) -> None:
        """Keep what is known."""
        part = self.state.with_suffix(".part")
        part.write_text(json.dumps(self.known))
        part.replace(self.state)

    def _write(self, name: str, on: int | None) -> None:
        """Write a file with its switches; of those that cannot be switched only `on` is in it."""
        written = self.known["written"]
        numbers: dict[int, int | None] = {
            fault: number
            for number, (file, fault, *_) in enumerate(self.known["drawn"])
            if file == name and number not in written
        }
        if on is not None:
            numbers[self.known["drawn"][on][1]] = None
        (self.work / name).write_text(switched(self.known["plain"][name], numbers))

    def warm(self) -> None:
        """Import the package once; faults that this passes cannot be switched later and are
        written.
        """
        os.chdir(self.work)
        sys.path[:0] = [str(self.work / "src"), str(self.work)]
        os.environ["PYTHONPATH"] = str(self.work / "src")
        for each in [name for name in sys.modules if name.split(".")[0] in ("posse", "benchmarks")]:
            del sys.modules[each]
        runpy.run_path(str(self.work / "tests" / "conftest.py"))
        package = importlib.import_module("posse")
        for module in pkgutil.walk_packages(package.__path__, "posse."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        importlib.import_module("pytest")
        engine: Any = importlib.import_module("hypothesis.internal.conjecture.engine")
        engine.ConjectureRunner.shrink_interesting_examples = lambda runner: (
            None
        )  # that it is found is enough
        passed = set(sys.modules["posse._faults"].PASSED) - set(self.known["written"])  # type: ignore[attr-defined]
        if passed:
            self.known["written"] += sorted(passed)
            self.save()
            os.chdir(ROOT)
            os.environ["PYTHONPATH"] = str(ROOT / "src")
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def collect(self, end: float) -> None:
        """Collect the tests in this process and, from inside pytest, work through folders and
        faults until `end`.
        """
        import pytest

        with open(self.work / "output.txt", "w") as out:
            for stream in (1, 2):
                os.dup2(out.fileno(), stream)
        folders = sorted({f"tests/{room.split('/')[0]}" for room in TESTS if room != "src"})
        pytest.main([*self._flags(), *folders, *sorted(self.known["plain"])], [_Loop(self, end)])

    def go(self, items: list[Any], end: float) -> None:
        """Learn folder after folder, and let each fault meet the tests that are known by then."""
        from jax._src import xla_bridge

        assert not xla_bridge.backends_are_initialized(), (
            "a test module computes with JAX when it is imported"
        )
        self.items = {item.nodeid: item for item in items if item.nodeid not in self.slow}
        gc.freeze()  # forks share what is here
        for room in (*TESTS, ""):
            self.learn(room, end)
            for number in range(len(self.known["drawn"])):
                late = number in self.known["written"] and room not in (
                    "systems",
                    "",
                )  # each run imports everything
                if time.monotonic() < end and not late:
                    self.judge(number, BUDGETS[not room])

    def say(self, line: str) -> None:
        """Print a line, past what pytest catches."""
        print(line, file=self._screen, flush=True)

    def learn(self, room: str, end: float) -> None:
        """Run the tests of a folder once with all switches off: which faults each passes, and its
        time.
        """
        files: dict[str, list[str]] = {}
        for test in self.items:
            file = test.split("::")[0]
            if (
                file.startswith(f"tests/{room}/" if room != "src" else "src/")
                and file not in self.known["files"]
            ):
                files.setdefault(file, []).append(test)
        for file, tests in files.items():
            if time.monotonic() > end:
                return
            results = self.run(tests, -1, stop=False)
            self.known["files"][file] = sorted(
                {each for result in results for each in result["setup"]}
            )
            self.known["tests"] |= {
                each["test"]: [file, each["seconds"], each["call"]]
                for each in results
                if each["passed"]
            }
            self.save()
            bad = [each["test"] for each in results if not each["passed"]]
            took = sum(each["seconds"] for each in results)
            self.say(
                f"learnt {file}: {len(results)} tests ({took:.0f} "
                f"s){f', not usable: {bad}' if bad else ''}"
            )

    def tests_for(self, number: int, budget: float) -> list[str]:
        """Tests that pass a fault, fastest first; then the others of files whose set-up passes
        it.
        """
        if number in self.known["written"]:
            return self._importing(self.known["drawn"][number][0], budget)
        tests, files = self.known["tests"], self.known["files"]
        direct = self._fastest([each for each in tests if number in tests[each][2]])
        near = [
            each
            for each in tests
            if number in files[tests[each][0]] and number not in tests[each][2]
        ]
        chosen, spent = [], 0.0
        for each in direct + self._fastest(near):
            spent += tests[each][1]
            if spent > budget and chosen:
                break
            chosen.append(each)
        return chosen

    def _fastest(self, tests: list[str]) -> list[str]:
        """Fastest first, and every test once before another of its forms."""
        forms, order = Counter[str](), []
        for each in sorted(tests, key=lambda each: self.known["tests"][each][1]):
            forms[each.split("[")[0]] += 1
            order.append((forms[each.split("[")[0]], each))
        return [each for _, each in sorted(order, key=lambda each: each[0])]

    def _importing(self, name: str, budget: float) -> list[str]:
        """Tests of files that import a module, or a module that does, quickest files first."""
        module = (
            name.removeprefix("src/")
            .removesuffix(".py")
            .replace("/", ".")
            .removesuffix(".__init__")
        )
        users = [module] + [
            path.relative_to(self.work / "src").with_suffix("").as_posix().replace("/", ".")
            for path in (self.work / "src" / "posse").rglob("*.py")
            if re.search(_imports(module), path.read_text())
        ]
        seconds: dict[str, float] = {}
        for file, took, _ in self.known["tests"].values():
            seconds[file] = seconds.get(file, 0.0) + took
        chosen, spent = [name] if name in seconds else [], 0.0
        for user in users:
            wanted = [
                each
                for each in seconds
                if re.search(_imports(user), (self.work / each).read_text())
            ]
            for file in sorted(wanted, key=lambda each: seconds[each]):
                if (
                    file not in chosen
                    and file.startswith("tests")
                    and spent + seconds[file] < budget
                ):
                    spent += seconds[file]
                    chosen.append(file)
        return chosen

    def judge(self, number: int, budget: float) -> None:
        """Let a fault meet the tests that it has not met yet, and note the one that finds it."""
        entry = self.known["judged"].setdefault(str(number), {"found": "", "tests": []})
        tests = [each for each in self.tests_for(number, budget) if each not in entry["tests"]]
        if entry["found"] or not tests:
            return
        began = time.monotonic()
        entry["found"], entry["tests"] = self._finder(number, tests), entry["tests"] + tests
        self.save()
        name, _, kind, line = self.known["drawn"][number]
        self.say(
            f"{'found' if entry['found'] else 'not yet':10}{kind:21}{name}:{line}  "
            f"{entry['found']} "
            f"({len(tests)} tests, {time.monotonic() - began:.0f} s)"
        )

    def _finder(self, number: int, tests: list[str]) -> str:
        """Return the test that finds a fault; empty if none does."""
        while tests:
            results = self.run(tests, number, stop=True)
            bad = next((each["test"] for each in results if not each["passed"]), None)
            if bad is None:
                return ""
            file = bad.split("::")[0]
            again = self.run([bad if "::" in bad else file], -1, stop=True)
            if again and all(each["passed"] for each in again):
                return bad
            tests = (
                tests[tests.index(bad) + 1 :]
                if bad in tests
                else [each for each in tests if each != file]
            )
        return ""

    def _flags(self) -> list[str]:
        # A look for a GPU starts threads, which forks do not have.
        quiet = [
            "-p",
            "no:xdist",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            "--ignore-glob=*/test_gpu.py",
        ]
        return [*quiet, "-m", "not long", f"--basetemp={self.work / 't'}"]

    def run(self, tests: list[str], number: int, *, stop: bool) -> list[dict[str, Any]]:
        """Run tests with one fault switched on (-1: none) in a fork, or afresh where it is written
        into the copy.
        """
        passed, log = self.work / "passed", self.work / "log.jsonl"
        shutil.rmtree(passed, ignore_errors=True)
        passed.mkdir()
        log.write_text("")
        written = number in self.known["written"]
        afresh = written or not all(each in self.items for each in tests)
        if written:
            self._write(self.known["drawn"][number][0], number)
        child = os.fork()
        if child == 0:
            os.setsid()
            os.environ |= {"POSSE_FAULT": str(number), "POSSE_PASSED": str(passed)}
            if afresh:
                program = (
                    f"import sys; sys.path.insert(0, {str(ROOT)!r}); import pytest; from "
                    "benchmarks.mutants import "
                    f"Notes; pytest.main({[*self._flags(), '-x', *tests]!r}, [Notes({str(log)!r})])"
                )
                os.execv(sys.executable, [sys.executable, "-c", program])
            with suppress(BaseException):
                self._run_here(
                    [self.items[each] for each in tests], number, str(passed), Notes(str(log)), stop
                )
            os._exit(0)
        try:
            self._wait(child, log, passed)
        finally:
            if written:
                self._write(self.known["drawn"][number][0], None)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        ended = [each for each in lines if "seconds" in each]
        begun = {each["test"] for each in lines} - {each["test"] for each in ended}
        broken = [
            {"test": each, "passed": False, "seconds": 0.0, "setup": [], "call": []}
            for each in begun
        ]
        if not lines and afresh:  # not even collected
            broken = [{"test": tests[0], "passed": False, "seconds": 0.0, "setup": [], "call": []}]
        return ended + broken

    def _run_here(
        self, items: list[Any], number: int, passed: str, notes: Notes, stop: bool
    ) -> None:
        """Run collected tests in this process, a fork, up to the first that fails where `stop` says
        so.
        """
        probe: Any = sys.modules["posse._faults"]
        probe.ON, probe.WHERE = number, passed
        probe.PASSED.clear()
        items[0].config.pluginmanager.register(notes)
        for item, after in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=after)
            if stop and notes.failed:
                return

    def _wait(self, child: int, log: Path, passed: Path) -> None:
        """Wait for a child; end it, and what it started, when one of its tests hangs."""
        size, since = 0, time.monotonic()
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            time.sleep(0.05)
            if log.stat().st_size != size:
                size, since = log.stat().st_size, time.monotonic()
            last = (
                (log.read_text().splitlines() or ["{}"])[-1]
                if time.monotonic() - since > PATIENCE
                else "{}"
            )
            usual = self.known["tests"].get(json.loads(last).get("test"), [0, 30.0])[1]
            if time.monotonic() - since > PATIENCE + 10 * usual:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        for each in Path("/proc").iterdir():
            with suppress(OSError):
                if (
                    each.name.isdigit()
                    and f"POSSE_PASSED={passed}".encode() in (each / "environ").read_bytes()
                ):
                    os.kill(int(each.name), signal.SIGKILL)


class Notes:
    """Write a line when a test begins, and one when it ends: whether it passed, its time, the
    faults it passed.
    """

    def __init__(self, log: str) -> None:
        self._log = log
        self._passed = os.environ["POSSE_PASSED"]
        self._now: dict[str, Any] = {}
        self.failed = False

    def _line(self, line: dict[str, Any]) -> None:
        with open(self._log, "a") as file:
            file.write(json.dumps(line) + "\n")

    def _take(self) -> list[int]:
        numbers = [int(each) for each in os.listdir(self._passed)]
        for number in numbers:
            os.unlink(os.path.join(self._passed, str(number)))
        probe = sys.modules.get("posse._faults")
        if probe is not None:
            probe.PASSED.clear()  # type: ignore[attr-defined]
        return numbers

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note that a test begins."""
        self._now = {"test": nodeid, "passed": True, "setup": [], "call": [], "seconds": 0.0}
        self._line({"test": nodeid})

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add what a part of a test came to, and write the line after the last."""
        self._now["seconds"] += report.duration
        self._now["passed"] &= not report.failed
        self.failed |= report.failed
        if report.skipped:
            self._now["call"] = []
        numbers = self._take()
        self._now["setup" if report.when == "setup" else "call"] += numbers
        if report.when == "teardown":
            self._line(self._now)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that cannot be read."""
        if report.failed:
            self._line(
                {"test": report.nodeid, "passed": False, "setup": [], "call": [], "seconds": 0.0}
            )


class _Loop:
    """Hands what pytest collected to a bench, which runs it in forks."""

    def __init__(self, bench: Bench, end: float) -> None:
        self._bench, self._end = bench, end

    def pytest_runtestloop(self, session: Any) -> bool:
        self._bench.go(session.items, self._end)
        return True


def _imports(module: str) -> str:
    parent, _, leaf = module.rpartition(".")
    return rf"{re.escape(module)}\b|from {re.escape(parent)} import [^\n]*\b{re.escape(leaf)}\b"


def _copied(work: Path) -> None:
    """Copy what tests need of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, work / name)


def reasons() -> dict[str, str]:
    """Survivors that were read: 'file | kind | line of code' -> why no test can see it."""
    lines = REASONS.read_text().splitlines() if REASONS.exists() else []
    entries = [
        line.rsplit(" :: ", 1) for line in lines if " :: " in line and not line.startswith("#")
    ]
    return {what.strip(): why.strip() for what, why in entries}


def main() -> None:
    parser = argparse.ArgumentParser(description="Small faults, and the tests that find them.")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=240.0, help="stop after these; 0 prints what is known"
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "mutants", help="the copy, and what is known"
    )
    parser.add_argument(
        "--without", type=Path, help="file with tests that take too long, one a line"
    )
    given = parser.parse_args()
    given.work = given.work.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(given.work, given.sample, given.seed)
    if given.without is not None:
        bench.slow = frozenset(given.without.read_text().splitlines())
    if given.minutes > 0:
        bench.warm()
        bench.collect(time.monotonic() + 60 * given.minutes)
    report(bench)


def report(bench: Bench) -> None:
    """Say how many were found, and the others with the tests that they met and their reasons."""
    drawn, judged, read = bench.known["drawn"], bench.known["judged"], reasons()
    found = sum(bool(each["found"]) for each in judged.values())
    met = sum(bool(each["tests"]) for each in judged.values())
    bench.say(f"\nfound {found} of {met} that met a test, of a sample of {len(drawn)}")
    for number in sorted(
        (int(each) for each in judged if not judged[each]["found"]), key=lambda each: drawn[each]
    ):
        name, _, kind, line = drawn[number]
        code = bench.known["plain"][name].splitlines()[line - 1].strip()
        what = f"{name} | {kind} | {code}"
        bench.say(
            f"  not found by {len(judged[str(number)]['tests'])} tests: {what}  (line {line}) "
            f"{read.get(what, '')}"
        )


if __name__ == "__main__":
    main()
