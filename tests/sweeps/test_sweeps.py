"""Sweeps: which settings are run, where, and what is kept when something goes wrong."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import posse._executors
from posse._executors import LostError, finished
from posse.core.errors import ConfigError, DataError
from posse.policies.arms.shipped import Softmax
from posse.results.store import Store
from posse.sweeps import (
    Sweep,
    SweepError,
    SweepInterrupted,
    grid_of,
    plain_where_equal,
    sweep,
)
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.samba.settings import Samba
from tests.sweeps.toy import Far, Mine, Narrow, Toy, run

GRID = {"policy": ["ucb", "softmax"], "tau": [0.05, 0.1]}


def quick(settings: object, over: object = None, **options: object) -> Sweep:
    """A sweep of toys in this process."""
    return sweep(settings, over, **{"run": run, "workers": 1, **options})  # type: ignore[arg-type]


def seen(log: Path) -> int:
    return len(list(log.iterdir()))


# Which settings.


def test_a_grid_leaves_out_what_a_policy_lacks_and_runs_equal_settings_once() -> None:
    result = quick(Toy(), GRID, runs=3)
    assert [(one.policy, one.tau) for one in result.settings.values()] == [  # type: ignore[attr-defined]
        ("ucb", None),
        ("softmax", 0.05),
        ("softmax", 0.1),
    ]
    assert (result.run, result.kept, len(result.records)) == (3, 0, 3)
    assert all(record.runs == 3 for record in result.records)
    assert result.parameters == ("policy", "tau")


def test_a_list_of_changes_and_a_list_of_settings() -> None:
    changes = [{"policy": "ucb"}, {"policy": "softmax", "tau": 0.2}, {"slope": 2.0}]
    listed = quick(Toy(policy="ucb"), changes)
    assert [record.total for record in listed.records] == [(1.0,), (1.0,), (2.0,)]
    assert [
        record.total for record in quick([Toy(slope=3.0), Toy(slope=4.0), Toy(slope=3.0)]).records
    ] == [(3,), (4,)]
    assert quick([Toy(slope=3.0), Toy(slope=4.0)]).parameters == ("slope",)


def test_parameters_of_the_first_policy_go_with_it() -> None:
    base = Toy(policy="softmax", tau=0.3)
    made = list(
        grid_of(
            Toy, {"policy": "softmax", "tau": 0.3}, {"policy": ["ucb", "softmax", Softmax(0.25)]}
        )
    )
    assert [(one.policy, one.tau) for one in made] == [
        ("ucb", None),
        ("softmax", 0.3),
        ("softmax", 0.25),
    ]
    assert len(quick(base, {"policy": ["ucb", "softmax"]}).records) == 2


def test_a_parameter_that_no_policy_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="policy 'ucb' has no parameter 'tau'"):
        quick(Toy(), {"policy": ["ucb", "thompson"], "tau": [0.1]})
    with pytest.raises(ConfigError, match="unknown setting 'slop'"):
        quick(Toy(), {"slop": [1.0]})
    with pytest.raises(ConfigError, match="at least one setting"):
        quick([])
    with pytest.raises(ConfigError, match="at least one setting"):
        quick(Toy(), {"slope": []})


def test_settings_without_effect_are_left_out_in_every_system() -> None:
    markets = list(
        grid_of(
            DpCombinatorial,
            {"agents": 3},
            {"method": ["alone", "p-fcb"], "epsilon": ["1.0", "2.0"]},
        )
    )
    assert [(one.policy, one.epsilon) for one in markets] == [
        ("alone", 1.0),
        ("alone", 1.0),
        ("p-fcb", 1.0),
        ("p-fcb", 2.0),
    ]
    assert len({one.digest() for one in markets}) == 3
    with pytest.raises(ConfigError, match="epsilon has no meaning with method 'alone'"):
        list(
            grid_of(DpCombinatorial, {"agents": 3}, {"method": ["alone", "fcb"], "epsilon": [2.0]})
        )
    shares = list(
        grid_of(
            MpcContextual,
            {"rows": 90},
            {"policy": ["epsilon-greedy", "linucb"], "width": ["0.5", "2"]},
        )
    )
    assert [(one.policy, one.width) for one in shares][1:] == [
        ("epsilon-greedy", 1.0),
        ("linucb", 0.5),
        ("linucb", 2.0),
    ]
    batches = list(grid_of(MpcContextual, {"rows": 90}, {"batch": ["1", "5"], "newton": ["3"]}))
    assert [(one.batch, one.newton) for one in batches] == [(1, 3), (5, 2)]


def test_words_from_a_command_line_are_read_as_numbers() -> None:
    made = list(
        grid_of(
            Samba,
            {"owners": "3"},
            {"policy": ["softmax"], "tau": ["0.1", "0.2"], "budget": ["100"]},
        )
    )
    assert [(one.tau, one.horizon, one.owners) for one in made] == [(0.1, 100, 3), (0.2, 100, 3)]


# What was run before.


def test_what_a_store_holds_is_not_run_again(tmp_path: Path) -> None:
    log, store = tmp_path / "log", Store(tmp_path / "runs.sqlite")
    log.mkdir()
    base = Toy(log=str(log))
    first = quick(base, GRID, store=store)
    assert (first.run, first.kept, seen(log)) == (3, 0, 3)
    for file in log.iterdir():
        file.unlink()
    more = quick(base, {**GRID, "tau": [0.05, 0.1, 0.2]}, store=tmp_path / "runs.sqlite")
    assert (more.run, more.kept, seen(log)) == (1, 3, 1)
    assert [record.id for record in more.records[:3]] == [record.id for record in first.records]
    # Other seeds, other runs, other settings: nothing is found.
    assert quick(base.but(seed=9), GRID, store=store).kept == 0
    assert quick(base, GRID, runs=2, store=store).kept == 0
    assert len(store) == 3 + 1 + 3 + 3


def test_another_version_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "runs.sqlite")
    quick(Toy(), {"slope": [1.0, 2.0]}, store=store)
    monkeypatch.setattr("posse.sweeps.__version__", "0.0.1")
    assert quick(Toy(), {"slope": [1.0, 2.0]}, store=store).run == 2


# Where.


def test_processes(tmp_path: Path) -> None:
    counted: list[tuple[int, int]] = []
    result = quick(
        Toy(log=str(tmp_path)),
        {"slope": [1.0, 2.0, 3.0]},
        workers=2,
        watch=lambda done, whole: counted.append((done, whole)),
    )
    assert [record.total for record in result.records] == [(1.0,), (2.0,), (3.0,)]
    assert str(os.getpid()) not in {file.name.split("-")[1] for file in tmp_path.iterdir()}
    assert counted == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_executors_of_the_caller(tmp_path: Path) -> None:
    over = {"slope": [1.0, 2.0, 3.0]}
    with ThreadPoolExecutor(2) as threads:
        # What stays in this process need not travel.
        local = quick(
            Toy(), over, executor=threads, workers=None, run=lambda settings: run(settings)
        )
        assert threads.submit(int).result() == 0
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        remote = quick(Toy(), over, executor=processes, workers=None)
    for made in (local, remote):
        assert [record.total for record in made.records] == [(1.0,), (2.0,), (3.0,)]
    with pytest.raises(ConfigError, match="got an executor too"):
        quick(Toy(), over, executor=threads, workers=2)
    with pytest.raises(ConfigError, match="address of a Dask scheduler"):
        quick(Toy(), over, executor="dask", workers=None)


def test_a_policy_of_ones_own_travels_and_a_lambda_is_told() -> None:
    made = quick(Toy(), {"policy": [Mine(), "ucb"]}, workers=2)
    assert made.rows()[0]["policy"] == "mine"
    with pytest.raises(ConfigError, match="cannot travel to another process") as told:
        quick(Toy(), {"slope": [1.0, 2.0]}, workers=2, run=lambda settings: run(settings))
    assert "\n" not in str(told.value)


def test_parameters_of_a_policy_of_ones_own_are_columns() -> None:
    made = quick(Toy(), {"policy": [Narrow(0.1), Narrow(0.2), "ucb"]})
    assert [(row["policy"], row["width"]) for row in made.rows()] == [
        ("narrow", 0.1),
        ("narrow", 0.2),
        ("ucb", None),
    ]


def test_a_parameter_that_is_called_as_a_setting_is_has_a_column_of_its_own() -> None:
    made = quick(Toy(policy=Far()), {"horizon": [20, 30]})
    assert [row["horizon"] for row in made.rows()] == [20, 30]
    made = quick(Toy(), {"policy": [Far(100, 1), Far(200, 2)]})
    assert [(row["policy.horizon"], row["policy.total"]) for row in made.rows()] == [
        (100, 1),
        (200, 2),
    ]


def test_a_sweep_in_which_nothing_varies_is_a_table() -> None:
    made = quick([Toy()])
    assert "<table" in made._repr_html_()
    with pytest.raises(DataError, match="needs a setting that varies"):
        made.figure()
    with pytest.raises(SweepError, match="with what was given: thirteen"):
        quick(Toy(horizon=13))


def test_what_a_run_writes_is_refused(tmp_path: Path) -> None:
    for settings in (
        posse.FedContextual(model_out=tmp_path / "m.npz"),
        posse.MpcContextual(keep_shares=tmp_path / "shares"),
    ):
        with pytest.raises(ConfigError, match="is written by one run, got a sweep"):
            sweep(settings, {"seed": [1, 2]}, workers=1)


def test_a_base_that_could_not_run_alone_is_varied() -> None:
    made = sweep(posse.Samba(horizon=5, path="plain"), {"owners": [2, 3]}, workers=1)
    assert [record.config["owners"] for record in made.records] == [2, 3]


@pytest.mark.parametrize(
    "over",
    [
        {"slope": 1.0},
        {"policy": "ucb"},
        {"policy": {"name": "softmax"}},
        "policy",
        3,
        ["policy"],
        [None],
    ],
)
def test_what_is_no_list_of_values_is_said(over: Any) -> None:
    with pytest.raises(ConfigError, match=r"over (is a table of lists|gives a list of values)"):
        quick(Toy(), over)


@pytest.mark.parametrize("given", ["samba", 3, posse.Samba, {"policy": "ucb"}])
def test_what_is_no_settings_is_said(given: Any) -> None:
    for call in (posse.run, posse.start, posse.sweep):
        with pytest.raises(ConfigError, match=r"expected settings, such as posse\.Samba"):
            call(given)


def test_a_file_that_a_setting_names_is_a_part_of_the_digest(tmp_path: Path) -> None:
    source, data = tmp_path / "own.py", tmp_path / "ratings"
    digests = set()
    for number in (1, 2):
        source.write_text(f"def made(*_):\n    return {number}\n")
        data.write_text(f"item,rating\na,{number}\nb,5\nc,3\n")
        digests |= {
            posse.FedContextual(model=f"{source}:made").digest(),
            posse.Samba(data=str(data)).digest(),
        }
        digests |= {posse.FedContextual(schedule=f"{source}:made").digest()}
    assert len(digests) == 6


def test_a_data_set_that_is_found_in_a_folder_is_a_part_of_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {
        "google-local/review-Vermont.json.gz": posse.Samba(data="google-local"),
        "ml-latest-small/ratings.csv": posse.Samba(data="movielens"),
        "qmnist-train-labels-idx2-int": posse.FedContextual(data="mnist-writers"),
    }
    for folder in ("a", "b"):  # the images, which the writers belong to
        (tmp_path / folder).mkdir()
        for part in ("images-idx3", "labels-idx1"):
            (tmp_path / folder / f"train-{part}-ubyte").write_text("")
    for name, settings in places.items():
        digests = set()
        for folder, text in (("a", "1"), ("a", "2"), ("b", "3")):
            file = tmp_path / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            monkeypatch.setenv("POSSE_DATA", folder)
            digests.add(settings.digest())
        assert len(digests) == 3, name


def test_what_only_looks_like_a_file_is_no_part_of_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSSE_DATA", raising=False)
    settings = (
        posse.MpcContextual(data="digits"),
        posse.MpcContextual(data="clusters"),
        posse.DpCombinatorial(data="uniform"),
        posse.FedContextual(data="digits"),
        posse.FedContextual(data="mnist-writers"),
        posse.Samba(data="movielens"),
        posse.FedContextual(data="digits", model="bag-of-words"),
        posse.FedContextual(schedule=",".join(["0.125"] * 100)),
        posse.FedContextual(model="badly.made:model"),
    )
    before = [one.digest() for one in settings]
    for name in ("digits", "clusters", "uniform", "mnist-writers", "movielens", "badly"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    (tmp_path / "badly" / "__init__.py").write_text("raise RuntimeError('boom')")
    assert [one.digest() for one in settings] == before


def test_a_folder_that_a_setting_names_is_a_part_of_the_digest(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    (folder / "one").mkdir(parents=True)
    settings = (
        lambda: posse.FedContextual(data="images", file=folder),
        lambda: posse.MpcContextual(start_from=folder),
    )
    digests = set()
    changes: list[Callable[[], object]] = [
        lambda: (folder / "one" / "a").write_text("x"),
        lambda: (folder / "one" / "a").write_text("y"),
        lambda: (folder / "one" / "a").rename(folder / "one" / "b"),
        lambda: (folder / "c").write_text(""),
    ]
    for change in changes:
        change()
        digests |= {make().digest() for make in settings}
    assert len(digests) == 2 * len(changes)


def test_exact_systems_run_as_plain_twins_unless_the_protocol_is_asked_for() -> None:
    base = Samba(policy="ucb", owners=3, horizon=30, seed=5)
    grid = {"horizon": [20, 30]}
    plain = sweep(base, grid, workers=1)
    protocol = sweep(base.but(path="roles"), grid, workers=1)
    assert [record.level for record in plain.records] == ["plain", "plain"]
    assert [record.config["path"] for record in plain.records] == ["plain", "plain"]
    assert [record.level for record in protocol.records] == ["strict", "strict"]
    assert [record.total for record in plain.records] == [
        record.total for record in protocol.records
    ]
    assert plain.parameters == protocol.parameters == ("horizon",)
    shares = sweep(MpcContextual(rows=40, horizon=6), {"seed": [0, 1]}, workers=1)
    assert {record.level for record in shares.records} == {"plain"}


def test_a_sweep_that_compares_protections_runs_the_protocol() -> None:
    base = Samba(policy="ucb", owners=3, horizon=20, paillier_bits=2048)
    made = sweep(base, {"level": ["strict", "paper"]}, workers=1)
    assert [record.level for record in made.records] == ["strict", "paper"]
    made = sweep([base, base.plain()], workers=1)
    assert [record.level for record in made.records] == ["strict", "plain"]


def test_twins_that_earn_other_rewards_do_not_replace_a_run() -> None:
    market = DpCombinatorial(agents=3, producers=4, horizon=24, alpha=0.3, start=3)
    assert plain_where_equal([market]) == [market]


def test_real_systems() -> None:
    base = Samba(owners=3, horizon=60, seed=5).plain()
    made = sweep(base, {"policy": ["ucb", "thompson"]}, runs=4, workers=1)
    assert [record.policy for record in made.records] == ["ucb", "thompson"]
    assert all(record.seeds == (5, 6, 7, 8) for record in made.records)
    market = DpCombinatorial(agents=3, producers=12, horizon=300, path="compiled")
    made = sweep(market, {"policy": ["alone", "p-fcb"], "epsilon": [1.0, 2.0]}, workers=1)
    assert [(row["policy"], row["epsilon"]) for row in made.rows()] == [
        ("alone", None),
        ("p-fcb", 1.0),
        ("p-fcb", 2.0),
    ]


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tcp://")
        over = {"slope": [1.0, 2.0, 3.0, 4.0], "horizon": [10, 13]}
        made = quick(Toy(log=str(tmp_path)), over, executor=address, workers=None, errors="keep")
        nowhere = quick(
            Toy(log=str(tmp_path / "none")), executor=address, workers=None, errors="keep"
        )
    assert [type(error) for _, error in nowhere.errors] == [
        FileNotFoundError
    ]  # not taken for a lost connection
    assert [record.total for record in made.records] == [(1.0,), (2.0,), (3.0,), (4.0,)]
    assert len(made.errors) == 4
    assert isinstance(made.errors[0][1], DataError)
    assert str(os.getpid()) not in {file.name.split("-")[1] for file in tmp_path.iterdir()}
    monkeypatch.setattr(posse._executors, "CLUSTER_SECONDS", 1)
    with pytest.raises(ConfigError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        quick(Toy(), over, executor="tcp://127.0.0.1:1", workers=None)


PATIENCE = 120.0


class Dask:
    """A scheduler and workers as processes; what the sweep reports is kept, and answered by the
    next action.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[str] = []
        self.actions: list[Callable[[], object]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.gave_up = False
        self.address = ""
        self.scheduler = self.start_scheduler(0)

    def start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        root = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
        with (self.folder / f"log-{len(self.processes)}").open("wb") as log:
            command = [
                sys.executable,
                "-m",
                f"distributed.cli.{module}",
                "--no-dashboard",
                *arguments,
            ]
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self.processes.append(process)
        return process

    def start_scheduler(self, port: int) -> subprocess.Popen[bytes]:
        file = self.folder / f"scheduler-{len(self.processes)}.json"
        process = self.start(
            "dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--scheduler-file",
            str(file),
        )
        until(lambda: file.is_file() and file.read_text().endswith("}"))
        self.address = json.loads(file.read_text())["address"]
        return process

    def start_worker(self) -> subprocess.Popen[bytes]:
        return self.start(
            "dask_worker",
            self.address,
            "--nworkers",
            "1",
            "--nthreads",
            "2",
            "--no-nanny",
            "--local-directory",
            str(self.folder),
        )

    def close(self) -> None:
        for process in self.processes:
            end(process)

    def give_up(self) -> None:
        """End a sweep that waits for ever."""
        self.gave_up = True
        self.close()

    def report(self, record: logging.LogRecord) -> bool:
        self.reports.append(record.getMessage())
        assert self.actions, self.reports
        self.actions.pop(0)()
        return False


def until(wanted: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.02)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.fixture
def dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dask]:
    pytest.importorskip("distributed")
    monkeypatch.setattr(posse._executors, "IDLE_SECONDS", 0.2)
    cluster = Dask(tmp_path)
    logger = logging.getLogger("posse")
    logger.addFilter(cluster.report)
    late = threading.Timer(PATIENCE, cluster.give_up)
    late.start()
    try:
        yield cluster
        assert not cluster.gave_up, "it waited for ever"
    finally:
        late.cancel()
        logger.removeFilter(cluster.report)
        cluster.close()


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_that_loses_its_workers_and_its_scheduler(
    dask: Dask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workers: list[subprocess.Popen[bytes]] = []
    folder = tmp_path / "began"
    folder.mkdir()

    def work() -> None:
        workers.append(dask.start_worker())
        until(lambda: seen(folder) == 3)

    # Nobody works: a worker comes. It dies: the scheduler dies too.
    dask.actions = [work, lambda: end(dask.scheduler)]

    def watch(done: int, whole: int) -> None:
        if done == 2:
            end(workers[0])

    over = {"horizon": [10, 11, 17]}
    base = Toy(log=str(folder))
    made = quick(base, over, executor=dask.address, workers=None, watch=watch, errors="keep")
    assert [dask.address in report for report in dask.reports] == [True, True]
    assert [row["horizon"] for row in made.rows()] == [10, 11]
    assert [settings.horizon for settings in made.missing] == [17]  # type: ignore[attr-defined]
    ((settings, error),) = made.errors
    assert (settings, type(error)) == (made.missing[0], LostError)
    assert [
        record for record in caplog.records if record.exc_info
    ] == []  # no traceback at a terminal
    again = quick(made, run=lambda settings: run(settings.but(horizon=12)))
    assert (again.run, again.kept, len(again.records), again.missing) == (1, 2, 3, ())


@pytest.mark.filterwarnings("ignore")
def test_ctrl_c_ends_a_sweep_that_waits_for_a_dask_cluster(
    dask: Dask, monkeypatch: pytest.MonkeyPatch
) -> None:
    import distributed

    def freeze() -> None:
        monkeypatch.setattr(posse._executors, "CLUSTER_SECONDS", 0.5)
        dask.scheduler.send_signal(signal.SIGSTOP)

    def interrupt() -> None:
        dask.scheduler.send_signal(signal.SIGCONT)
        os.kill(os.getpid(), signal.SIGINT)

    dask.actions = [freeze, interrupt]
    with pytest.raises(SweepInterrupted) as stopped:
        quick(Toy(), {"horizon": [10, 11]}, executor=dask.address, workers=None)
    assert ["No worker" in report for report in dask.reports] == [True, False]
    assert len(stopped.value.sweep.missing) == 2
    with distributed.Client(
        dask.address, set_as_default=False
    ) as client:  # nothing is left for workers that come
        until(
            lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0
        )


@pytest.mark.filterwarnings("ignore")
def test_what_is_sent_while_no_dask_scheduler_is_connected_is_not_waited_for(dask: Dask) -> None:
    with posse._executors._cluster(dask.address) as pool:
        client: Any = pool._client  # type: ignore[attr-defined]

        def items() -> Iterator[int]:
            yield -1
            end(dask.scheduler)
            until(lambda: client.status == "connecting" and not client.futures)
            yield -2
            dask.start_scheduler(int(dask.address.rpartition(":")[2]))
            until(lambda: client.status == "running")

        with closing(finished(pool, abs, items())) as ended:
            assert {number: type(future.exception()) for number, future in ended} == {
                0: LostError,
                1: LostError,
            }
        assert (
            dask.processes[-1].poll() is None
        )  # the new scheduler is there, and was not asked for them


# What goes wrong.


def test_an_executor_that_is_closed_keeps_what_was_done(tmp_path: Path) -> None:
    begun, closed = threading.Event(), threading.Event()

    def run_before_and_after(settings: Toy) -> Any:
        if settings.horizon == 11:
            begun.set()
            closed.wait(PATIENCE)
        return run(settings)

    def close(done: int, whole: int) -> None:
        if done == 1:
            begun.wait(PATIENCE)
            threads.shutdown(wait=False, cancel_futures=True)
            closed.set()

    threads = ThreadPoolExecutor(1)
    over = {"horizon": [10, 11, 12, 20]}
    with pytest.raises(SweepError) as told:
        quick(Toy(), over, executor=threads, workers=None, watch=close, run=run_before_and_after)
    made = told.value.sweep
    assert [record.config["horizon"] for record in made.records] == [10, 11]
    assert [(settings.horizon, type(error)) for settings, error in made.errors] == [  # type: ignore[attr-defined]
        (12, LostError),
        (20, LostError),
    ]
    # What is missing is run, and a store then holds the whole.
    store = Store(tmp_path / "runs.sqlite")
    again = quick(made, store=store)
    assert (again.run, again.kept, again.parameters) == (2, 2, made.parameters)
    assert [record.config["horizon"] for record in again.records] == over["horizon"]
    assert again.records[:2] == made.records
    assert quick(Toy(), over, store=store).kept == len(store) == 4
    with pytest.raises(ConfigError, match="got over or runs too"):
        quick(made, over)
    # One that takes nothing any more fails the settings, and the sweep is returned.
    kept = quick(Toy(), over, executor=threads, workers=None, errors="keep")
    assert (len(kept.errors), kept.records) == (4, ())


@pytest.mark.parametrize("workers", [1, 2])
def test_one_that_fails_does_not_lose_the_others(workers: int, tmp_path: Path) -> None:
    over, store = {"horizon": [10, 13, 14, 12]}, Store(tmp_path / "runs.sqlite")
    with pytest.raises(SweepError) as told:
        quick(Toy(), over, workers=workers, store=store)
    assert told.value.text == "2 of 4 settings failed, first horizon 13: thirteen is no horizon."
    assert [record.config["horizon"] for record in told.value.sweep.records] == [10, 12]
    assert len(store) == 2
    kept = quick(Toy(), over, workers=workers, errors="keep")
    assert [settings.horizon for settings, _ in kept.errors] == [13, 14]  # type: ignore[attr-defined]
    assert "odd" in str(kept.errors[1][1])


def test_a_process_that_ends_takes_no_other_setting_along() -> None:
    made = quick(Toy(), {"horizon": [15, 10, 11, 12]}, workers=2, errors="keep")
    assert [record.config["horizon"] for record in made.records] == [10, 11, 12]
    ((settings, error),) = made.errors
    assert settings.horizon == 15  # type: ignore[attr-defined]
    assert "its process ended before the work was done" in str(error)


def test_ctrl_c_keeps_what_was_done(tmp_path: Path) -> None:
    over, store = {"horizon": [10, 11, 16, 12]}, Store(tmp_path / "runs.sqlite")
    with pytest.raises(SweepInterrupted) as stopped:
        quick(Toy(), over, store=store)
    assert [record.config["horizon"] for record in stopped.value.sweep.records] == [10, 11]
    assert len(store) == 2
    again = quick(Toy(), {"horizon": [10, 11, 12]}, store=store)
    assert (again.run, again.kept) == (1, 2)


def test_ctrl_c_ends_the_processes() -> None:
    before = set(multiprocessing.active_children())

    def interrupt(done: int, whole: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(SweepInterrupted) as stopped:
        quick(Toy(), {"horizon": list(range(20, 60))}, workers=2, watch=interrupt)
    assert len(stopped.value.sweep.records) == 1
    assert set(multiprocessing.active_children()) <= before


def test_ctrl_c_does_not_wait_for_what_is_being_run() -> None:
    def interrupt(done: int, whole: int) -> None:
        if done:
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(SweepInterrupted):
        quick(Toy(), {"horizon": [10, 17]}, workers=2, watch=interrupt)
    assert time.monotonic() - started < 80  # a worker at horizon 17 sleeps for 100 seconds


SCRIPT = """
import sys
from posse.sweeps import SweepInterrupted, sweep
from tests.sweeps.toy import Toy, run

if __name__ == "__main__":
    try:
        sweep(Toy(), {"horizon": [10, 11, 12, 17]}, workers=2, run=run, watch=lambda *n: print(*n, flush=True))
    except SweepInterrupted as stopped:
        print("kept", len(stopped.sweep.records), flush=True)
        sys.exit(7)
"""


def test_ctrl_c_at_a_terminal_reaches_all_processes_and_leaves_no_traceback(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    with subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("3 "):
                os.killpg(process.pid, signal.SIGINT)
                break
        out, errors = process.communicate(timeout=240)
    assert process.returncode == 7
    assert out.split("kept ")[1] == "3\n"
    assert "Traceback" not in errors


# What comes out.


def test_a_tidy_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    made = quick(Toy(), GRID, runs=2)
    rows = made.rows()
    assert rows[0] == {
        "policy": "ucb",
        "tau": None,
        "seed": 1,
        "total": 1.0,
        "regret": 0.5,
        "seconds": 0.5,
    }
    assert [(row["policy"], row["tau"], row["seed"]) for row in rows[2:]] == [
        ("softmax", 0.05, 1),
        ("softmax", 0.05, 2),
        ("softmax", 0.1, 1),
        ("softmax", 0.1, 2),
    ]
    frame = made.frame()
    assert list(frame.columns) == ["policy", "tau", "seed", "total", "regret", "seconds"]
    assert len(frame) == 6
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert made.frame() == rows


def test_a_table_and_a_figure(tmp_path: Path) -> None:
    made = quick(Toy(), {"policy": ["ucb", "softmax"], "slope": [1.0, 2.0, 4.0]}, runs=3)
    table = made.write(tmp_path / "sweep.csv").read_text().splitlines()
    assert table[0] == "policy,slope,seed,total,regret,seconds"
    assert len(table) == 1 + 18
    (ax,) = made.figure().axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("slope", "total")
    lines = {
        line.get_label(): line for line in ax.lines if not str(line.get_label()).startswith("_")
    }
    assert list(lines) == ["policy ucb", "policy softmax"]
    assert lines["policy ucb"].get_ydata().tolist() == [2.0, 4.0, 8.0]  # type: ignore[union-attr]
    (ax,) = made.figure(x="policy", y="regret").axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["ucb", "softmax"]
    with pytest.raises(ConfigError, match="unknown x 'polcy'"):
        made.figure(x="polcy")
    with pytest.raises(ConfigError, match="unknown y"):
        made.figure(y="reward")
    (ax,) = quick(Toy(), {"policy": ["ucb", "softmax"], "tau": [0.1, 0.2]}).figure().axes
    level = next(line for line in ax.lines if line.get_label() == "policy ucb")
    assert (level.get_xdata().tolist(), level.get_ydata().tolist()) == ([0.1, 0.2], [1.0, 1.0])  # type: ignore[union-attr]
    nothing = quick(Toy(), {"horizon": [13]}, errors="keep")
    for draw in (nothing.figure, lambda: nothing.write(tmp_path / "none.csv")):
        with pytest.raises(DataError, match="no setting was run"):
            draw()


def test_a_sweep_shows_itself_in_a_notebook() -> None:
    shown = quick(Toy(), GRID, runs=3)._repr_html_()
    assert [
        name
        for name in ("policy", "tau", "runs", "reward", "CPU time")
        if f">{name}</th>" not in shown
    ] == []
    assert shown.count("<tr>") == 4
    assert "<svg" in shown
