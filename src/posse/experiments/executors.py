"""Work on many items: in this process, on processes, on any `concurrent.futures.Executor`, or on a Dask cluster."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from multiprocessing import get_context
from threading import Thread
from typing import Any, TypeVar

from posse.core import check
from posse.core.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")
Done = Generator[tuple[int, Future[Result]], None, None]
"""Numbers of items with their futures, each when it is done."""

CLUSTER_SECONDS = 10
"""How long to wait for the scheduler of a cluster."""
MANAGER_SECONDS = 10
"""How long to wait for the thread of a pool whose processes were ended."""


def each_done(
    work: Callable[[Item], Result], items: Sequence[Item], *, executor: Executor | str | None = None,
    workers: int | None = None,
) -> Done[Result]:  # fmt: skip
    """Do work on items and yield the number of each with its future, when it is done or has failed.

    Without an executor it is done on `workers` processes, as many as there are cores if left out; 1 is this process. A
    string is the address of a Dask scheduler. What is not begun when this generator is closed is cancelled, and
    processes of its own are ended.
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


def finished(executor: Executor | None, work: Callable[[Item], Result], items: Iterable[Item]) -> Done[Result]:
    """Give work to an executor, or do it here, and yield the number of each item with its future when it is done.

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
    futures = {executor.submit(work, item): number for number, item in enumerate(items)}
    try:
        for future in as_completed(futures):
            yield futures[future], future
    finally:
        for future in futures:
            future.cancel()


def _packed(work: Callable[[Item], Result], item: Item) -> bytes:
    """Work and item as bytes, so that what cannot be read at the other end fails alone."""
    try:
        return pickle.dumps((work, item))
    except Exception as error:
        raise ConfigError(
            f"this cannot travel to another process: {' '.join(str(error).split())}. Define functions and classes in a "
            "module, not as a lambda or inside a function; or use one process (workers=1) or a ThreadPoolExecutor."
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
        "its process ended before the work was done. Memory may be short; and a script must do this under "
        "'if __name__ == \"__main__\":'."
    )


def _failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


@contextmanager
def _pool(executor: Executor | str | None, count: int) -> Iterator[Executor]:
    """Give the executor that is meant; processes of our own are ended at once when the caller stops early."""
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
        # The pool's own thread reaps the processes too: only when it is done are they gone for everyone who looks. It
        # can hang in Pythons before 3.11.5 while a large item is on its way to a process.
        if manager is not None:
            manager.join(MANAGER_SECONDS)
        for process in processes:
            process.join()
        raise
    made.shutdown()


class _Processes(ProcessPoolExecutor):
    """Processes that leave Ctrl-C to the one that waits for them, from their first instruction on."""

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
        raise ConfigError(f"an executor by name is the address of a Dask scheduler, tcp://host:8786, got '{address}'.")
    distributed = check.require("distributed", extra="dask")
    try:
        client = distributed.Client(address, timeout=CLUSTER_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no Dask scheduler answers at {address}. Start one with 'dask scheduler', and workers with "
            f"'dask worker {address}'."
        ) from error
    with client:
        pool: Executor = client.get_executor()
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False)
            raise
        pool.shutdown()
