"""Work on many items: in this process, on processes, on any `concurrent.futures.Executor`, or on a
Dask cluster.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from multiprocessing import get_context
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from posse.core import check
from posse.core.errors import ConfigError, PosseError

Item = TypeVar("Item")
Result = TypeVar("Result")
Done = Generator[tuple[int, Future[Result]], None, None]
"""Numbers of items with their futures, each when it is done."""

CLUSTER_SECONDS = 10
"""How long to wait for the scheduler of a cluster."""
IDLE_SECONDS = 10.0
"""How long a cluster may finish nothing before it is asked whether it has workers."""
MISSING = (
    "Run what is missing: the same sweep where a store keeps its records, or posse.sweep with this "
    "sweep."
)
MANAGER_SECONDS = 10
"""How long to wait for the thread of a pool whose processes were ended."""

log = logging.getLogger("posse")


class LostError(PosseError):
    """Work was given to an executor, and will not be done there: its cluster is gone, or it was
    cancelled.
    """

    code = "P121"


def each_done(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    executor: Executor | str | None = None,
    workers: int | None = None,
) -> Done[Result]:
    """Do work on items and yield the number of each with its future, when it is done or has failed.

    Without an executor it is done on `workers` processes, as many as there are cores if left out; 1
    is this process. A string is the address of a Dask scheduler. What is not begun when this
    generator is closed is cancelled, and processes of its own are ended.
    """
    if not items:
        return
    count = min(workers or os.cpu_count() or 1, len(items))
    if isinstance(executor, ThreadPoolExecutor) or (executor is None and count == 1):
        with closing(finished(executor, work, items)) as ended:
            yield from ended
        return
    packed, broken = [_packed(work, item) for item in items], []
    with _pool(executor, count) as pool, closing(finished(pool, _unpacked, packed)) as ended:
        for number, future in ended:
            if isinstance(future.exception(), BrokenProcessPool):
                broken.append(number)
            else:
                yield number, future
    # What ends its process takes the work beside it along: that is done again, one item at a time.
    for number in broken:
        with _pool(None, 1) as pool:
            starts, future = pool.submit(int), pool.submit(_unpacked, packed[number])
            lost = isinstance(future.exception(), BrokenProcessPool)
        yield number, _failed(_lost()) if lost else future
        if starts.exception() is not None:
            yield from ((other, _failed(_lost())) for other in broken if other != number)
            return


def finished(
    executor: Executor | None, work: Callable[[Item], Result], items: Iterable[Item]
) -> Done[Result]:
    """Give work to an executor, or do it here, and yield the number of each item with its future
    when it is done.

    What is not begun when this generator is closed is cancelled.

    >>> with ThreadPoolExecutor(2) as pool:
    ...     sorted((number, future.result()) for number, future in finished(pool, abs, [-3, 4]))
    [(0, 3), (1, 4)]
    """
    if executor is None:
        for number, item in enumerate(items):
            here: Future[Result] = Future()
            try:
                here.set_result(work(item))
            except Exception as error:
                here.set_exception(error)
            yield number, here
        return
    futures: dict[Future[Result], int] = {}
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    idle_seconds = IDLE_SECONDS if isinstance(executor, _DaskPool) else None
    try:
        for number, item in enumerate(items):
            future = _submitted(executor, work, item)
            futures[future] = number
            future.add_done_callback(ended.put)
        waiting = len(futures)
        while waiting:
            try:
                future = ended.get(timeout=idle_seconds)
            except Empty:
                _look_after(executor, futures)
                continue
            waiting -= 1
            yield futures[future], _failed(_cancelled()) if future.cancelled() else future
    finally:
        for future in futures:
            future.cancel()


def _look_after(executor: Executor, futures: Iterable[Future[Any]]) -> None:
    """Report a cluster that finishes nothing; where the connection was lost, end what was never
    sent.
    """
    assert isinstance(executor, _DaskPool)
    executor.report_idle()
    if executor.lost:
        for future in futures:
            future.cancel()


def _submitted(executor: Executor, work: Callable[[Item], Result], item: Item) -> Future[Result]:
    """Give one item to an executor; one that takes no more fails the item, and what was done before
    is not lost.
    """
    try:
        return executor.submit(work, item)
    except Exception as error:
        return _failed(error)


def _packed(work: Callable[[Item], Result], item: Item) -> bytes:
    """Work and item as bytes, so that what cannot be read at the other end fails alone."""
    try:
        return pickle.dumps((work, item))
    except Exception as error:
        raise ConfigError(
            f"this cannot travel to another process: {' '.join(str(error).split())}. Define "
            "functions and classes in a "
            "module, not as a lambda or inside a function; or use one process (workers=1) or a "
            "ThreadPoolExecutor."
        ) from error


def _unpacked(packed: bytes) -> Any:
    """Do the work, in a worker; an error that cannot travel back is told by its words."""
    try:
        work, item = pickle.loads(packed)
        return work(item)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError(f"{type(error).__name__}: {error}") from None
        raise


def _lost() -> ConfigError:
    return ConfigError(
        "its process ended before the work was done. Memory may be short; and a script must do "
        "this under "
        "'if __name__ == \"__main__\":'."
    )


def _cancelled() -> LostError:
    return LostError(
        f"its executor was closed, or lost its connection, before the work was done. {MISSING}"
    )


def _failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


@contextmanager
def _pool(executor: Executor | str | None, count: int) -> Iterator[Executor]:
    """Give the executor that is meant; processes of our own are ended at once when the caller stops
    early.
    """
    if isinstance(executor, Executor):
        yield executor
        return
    if executor is not None:
        with _cluster(executor) as pool:
            yield pool
        return
    threads = max(1, (os.cpu_count() or 1) // count)
    made = _Processes(count, get_context("spawn"), initializer=_begin_worker, initargs=(threads,))
    try:
        yield made
    except BaseException:
        processes = list(made._processes.values())
        manager: Thread | None = getattr(made, "_executor_manager_thread", None)
        made.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        # The pool's own thread reaps the processes too: only when it is done are they gone for
        # everyone who looks. It can hang in Pythons before 3.11.5 while a large item is on its way
        # to a process.
        if manager is not None:
            manager.join(MANAGER_SECONDS)
        for process in processes:
            process.join()
        raise
    made.shutdown()


class _Processes(ProcessPoolExecutor):
    """Processes that leave Ctrl-C to the one that waits for them, from their first instruction
    on.
    """

    def submit(self, *args: Any, **options: Any) -> Future[Any]:
        """Submit with Ctrl-C held back: a process that this starts inherits that."""
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(*args, **options)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return super().submit(*args, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker(threads: int) -> None:
    """Ignore Ctrl-C, and share the cores among the workers."""
    import numba

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    numba.set_num_threads(min(threads, numba.get_num_threads()))


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    if "://" not in address:
        raise ConfigError(
            "an executor by name is the address of a Dask scheduler, tcp://host:8786, got "
            f"'{address}'."
        )
    distributed = check.require("distributed", extra="dask")
    try:
        client = distributed.Client(address, timeout=CLUSTER_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no Dask scheduler answers at {address}. Start one with 'dask scheduler', and workers "
            "with "
            f"'dask worker {address}'."
        ) from error
    dask_log = logging.getLogger("distributed.client")
    level = dask_log.level
    try:
        with client:
            pool = _DaskPool(client, address)
            yield pool
            if pool.lost:  # Dask logs a traceback of its attempt to connect again, which closing the client ends
                dask_log.setLevel(logging.CRITICAL)
    finally:
        dask_log.setLevel(level)


class _DaskPool(Executor):
    """A Dask cluster as an executor whose futures all end.

    Those of Dask's own executor stay open for ever where the connection is lost while a result is
    on its way.
    """

    def __init__(self, client: Any, address: str) -> None:
        self.lost = False
        """Whether the connection was lost; Dask then drops in silence what it is given until it is
        connected again.
        """
        self._client, self._address = client, address
        self._trouble = ""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Send work to the cluster, where it is dropped when the client is closed."""
        remote = self._client.submit(work, *arguments, **options)
        return asyncio.run_coroutine_threadsafe(
            self._result(remote), self._client.loop.asyncio_loop
        )

    async def _result(self, remote: Any) -> Any:
        try:
            result = await remote
        except (OSError, CancelledError) as error:
            if remote.status == "error":  # the work itself raised it
                raise
            self.lost = self.lost or self._client.status != "running"
            raise LostError(
                f"the Dask scheduler at {self._address} was lost, or cancelled the work, before it "
                "was done. Start the "
                f"cluster again. {MISSING}"
            ) from error
        self._trouble = ""
        return result

    def report_idle(self) -> None:
        """Log what keeps the cluster from working, once until it works again."""
        trouble = "" if self.lost else self._find_trouble()
        is_new = trouble != self._trouble
        self._trouble = trouble
        if trouble and is_new:
            log.warning("%s Ctrl-C ends the sweep and keeps what is done.", trouble)

    def _find_trouble(self) -> str:
        try:
            workers = self._client.sync(
                self._client.scheduler.ncores, callback_timeout=CLUSTER_SECONDS
            )
        except OSError:
            return f"The Dask scheduler at {self._address} does not answer; the sweep waits for it."
        if workers:
            return ""
        return (
            f"No worker is connected to the Dask scheduler at {self._address}; the sweep waits for "
            "one. Start one with "
            f"'dask worker {self._address}'."
        )
