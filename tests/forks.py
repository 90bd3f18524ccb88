"""Processes of `python -m posse ...` and `python script.py` that begin as forks of one that has
imported everything.

Importing is most of what a short process costs. A fork is a process like any other: its own memory,
sockets, signals and exit code; it can be killed with kill -9. What it does not test is the start of
the interpreter, so tests that use the fixture `fresh` begin processes in the usual way, and so do
all that ask for more than a fork can give.

`Popen` here stands in for `subprocess.Popen`, in the tests and in what they start. It sends words,
folder, environment and streams to the process below, over a socket that stays open and brings back
the number and the exit status.

Processes that `multiprocessing` spawns in tests are forks likewise, of its own fork server, which
has imported what they need; each gets the environment of whoever starts it.
"""

from __future__ import annotations

import array
import atexit
import inspect
import json
import multiprocessing.context
import multiprocessing.spawn
import os
import runpy
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PLACE = "POSSE_TESTS_FORKS"
"""The variable that names the socket; "later": of a process that is not started yet; empty: no
forks.
"""
USUAL = subprocess.Popen
NUMBER = struct.Struct("!q")
FIXED = ("PYTHON", "LC_", "LANG", "MALLOC", "OMP_", "NUMBA_", "OPENBLAS_")
"""Variables that are read when an interpreter begins, or when libraries are imported."""
THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Those of them that a fork can still follow (`_become`)."""
MODULES = (
    "posse.cli.app",
    "posse.systems.samba.deploy",
    "posse.systems.mpc_contextual.deploy",
    "posse.results.store",
    "posse.systems.dp_combinatorial.deploy",
    "posse.systems.samba.system",
    "posse.systems.mpc_contextual.system",
    "posse.systems.dp_combinatorial.system",
    "posse.systems.audit",
    "posse.systems.parties",
    "rich.progress",
    "posse.runtime.federation.service",
    "posse.runtime.network.operate",
    "posse.systems.samba.attacks",
    "posse.systems.samba.layout",
    "posse.systems.mpc_contextual.layout",
)

SPAWNED = (*MODULES, "numba", "posse.sweeps", "posse.studio.jobs")
"""What spawned processes import."""

_SIGNATURE = inspect.signature(USUAL._execute_child)  # type: ignore[attr-defined]


def interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that a fork could not follow."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(FIXED) and name not in THREADS
    }


_BEGUN = interpreter(os.environ)
"""What the process that forks began with."""


class Popen(USUAL):  # type: ignore[type-arg]
    """Begins a process as a fork where that is the same."""

    _line: socket.socket | None = None

    def _execute_child(self, *given: Any, **named: Any) -> None:
        how = _SIGNATURE.bind(self, *given, **named).arguments
        environment = dict(os.environ if how["env"] is None else how["env"])
        words = (
            [os.fspath(word) for word in how["args"]]
            if isinstance(how["args"], list | tuple)
            else []
        )
        usual = {
            "preexec_fn": None,
            "pass_fds": (),
            "executable": None,
            "shell": False,
            "umask": -1,
            "uid": None,
        }
        plain = all(
            how.get(name, value) in (value, words and words[0]) for name, value in usual.items()
        )
        same = interpreter(environment) == _BEGUN
        known = words[:3] == [sys.executable, "-m", "posse"] or (words[:1], words[1:2]) == (
            [sys.executable],
            [word for word in words[1:2] if word.endswith(".py")],
        )
        if not (plain and same and os.environ.get(PLACE) and known and len(words) > 1):
            return super()._execute_child(*given, **named)  # type: ignore[misc,no-any-return]
        streams = [how["p2cread"], how["c2pwrite"], how["errwrite"]]
        fds = array.array("i", [fd if fd != -1 else own for own, fd in enumerate(streams)])
        asked = {
            "words": words[1:],
            "folder": os.fspath(how["cwd"] or os.getcwd()),
            "environment": environment,
            "session": how["start_new_session"],
        }
        if os.environ[PLACE] == "later":
            _start()
            environment[PLACE] = os.environ[PLACE]
        data = json.dumps(asked).encode()
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(os.environ[PLACE])
        self._line.sendmsg([NUMBER.pack(len(data))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        self._line.sendall(data)
        self.pid = NUMBER.unpack(_exactly(self._line, NUMBER.size))[0]
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            *(
                how[name]
                for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            )
        )

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._line is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc,no-any-return]
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        if wait_flags & os.WNOHANG and not poll.poll(0):
            return 0, 0
        status = NUMBER.unpack(_exactly(self._line, NUMBER.size))[0]
        self._line.close()
        return self.pid, status

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._line is None:
            return super()._internal_poll(*given, **named)  # type: ignore[misc,no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None and (found := self._try_wait(os.WNOHANG))[0]:
                    self._handle_exitstatus(found[1])  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


COMMAND = """#!{python} -IS
import array, json, os, socket, struct, sys
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["{place}"])
asked = {{"words": ["-m", "posse", *sys.argv[1:]], "folder": os.getcwd(), "environment": dict(os.environ)}}
data = json.dumps({{**asked, "session": False}}).encode()
line.sendmsg([struct.pack("!q", len(data))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))])
line.sendall(data)
line.recv(8, socket.MSG_WAITALL)
os._exit(os.waitstatus_to_exitcode(struct.unpack("!q", line.recv(8, socket.MSG_WAITALL))[0]) & 255)
"""


def command(folder: Path) -> Path:
    """Return a folder for PATH whose `posse` begins a fork; where there are no forks, that of the
    usual one.
    """
    if not os.environ.get(PLACE):
        return Path(sys.executable).parent
    if os.environ[PLACE] == "later":
        _start()
    (folder / "posse").write_text(
        COMMAND.format(python=sys.executable, place=PLACE), encoding="utf-8"
    )
    (folder / "posse").chmod(0o700)
    return folder


def _exactly(line: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = line.recv(size - len(found))
        if not part:
            raise ConnectionError("the process that forks is gone")
        found += part
    return found


def begin() -> None:
    """Let this process, and those that it starts, begin others as forks."""
    later = (
        os.environ.get(PLACE, "later") == "later"
    )  # also where it was said before: workers inherit it
    if hasattr(os, "pidfd_open") and later:  # Linux alone
        os.environ[PLACE], subprocess.Popen = "later", Popen  # type: ignore[misc]
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(list(SPAWNED))
        multiprocessing.context._concrete_contexts["spawn"] = server  # type: ignore[attr-defined]
        usual = multiprocessing.spawn.get_preparation_data
        multiprocessing.spawn.get_preparation_data = lambda name: {
            **usual(name),
            "environment": _Environment(),
        }


class _Environment:
    """The variables of this process; where it is unpickled they become those of that one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import os; os.environ.clear(); os.environ.update({dict(os.environ)!r})",)


def _start() -> None:
    """Start the process that forks, which ends with this one."""
    folder = tempfile.mkdtemp(prefix="posse-forks-")
    os.environ[PLACE] = f"{folder}/socket"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.environ[PLACE])
    listening.listen(64)
    own, theirs = socket.socketpair()
    fds = (listening.fileno(), theirs.fileno())
    process = USUAL(
        [sys.executable, "-m", "tests.forks", *map(str, fds)],
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        cwd=Path(__file__).parents[1],
    )
    listening.close()
    theirs.close()

    def end() -> None:
        own.close()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)


# The process that forks ---------------------------------------------------------------------------


def _serve(listening: socket.socket, owner: socket.socket) -> dict[str, Any]:
    """Fork for whoever asks, until the owner is gone; return, in every fork, what was asked."""
    poll = select.poll()
    for each in (listening, owner):
        poll.register(each, select.POLLIN)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == owner.fileno():
                os._exit(0)
            if fd in running:
                poll.unregister(fd)
                pid, line = running.pop(fd)
                _, status = os.waitpid(pid, 0)
                os.close(fd)
                with suppress(OSError):  # nobody waits for it
                    line.sendall(NUMBER.pack(status))
                line.close()
                continue
            line, _ = listening.accept()
            streams: list[int] = []
            try:
                size, streams, _, _ = socket.recv_fds(line, NUMBER.size, 3)
                asked: dict[str, Any] = json.loads(_exactly(line, NUMBER.unpack(size)[0]))
                pid = os.fork()
            except (
                OSError,
                ValueError,
                struct.error,
            ):  # whoever asked is gone; others go on asking
                for stream in streams:
                    os.close(stream)
                line.close()
                continue
            if pid == 0:
                for each in (listening, owner, line, *(other for _, other in running.values())):
                    each.close()
                for other in running:
                    os.close(other)
                for own, stream in enumerate(streams):
                    os.dup2(stream, own)
                    os.close(stream)
                return asked
            for stream in streams:
                os.close(stream)
            ended = os.pidfd_open(pid)  # can be read once the process has ended
            running[ended] = pid, line
            poll.register(ended, select.POLLIN)
            with suppress(OSError):  # nobody waits for it
                line.sendall(NUMBER.pack(pid))


def _become(asked: dict[str, Any]) -> None:
    """Be what an interpreter that was started so would be."""
    if asked["session"]:
        os.setsid()
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    if threads := os.environ.get("OMP_NUM_THREADS"):
        threadpool_limits(int(threads))
    import_module("numba").config.reload_config()  # reads NUMBA_NUM_THREADS
    script = asked["words"][0] != "-m"
    sys.argv = asked["words"] if script else ["posse", *asked["words"][2:]]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent) if script else asked["folder"]
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        line = {"buffering": 1} if fd == 2 or os.isatty(fd) else {}
        made = os.fdopen(
            fd,
            "w" if fd else "r",
            encoding=before.encoding,
            errors=before.errors,
            closefd=False,
            **line,
        )
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


if __name__ == "__main__":
    import gc
    from importlib import import_module

    from threadpoolctl import threadpool_limits

    for module in MODULES:
        import_module(module)
    import_module("numba").njit("float64(float64)")(lambda x: x)  # which loads what compiling needs
    from tests import (
        forks,
    )  # the module of this name, which is not this one, takes the place of Popen

    subprocess.Popen = forks.Popen  # type: ignore[misc]
    gc.collect()
    gc.freeze()
    request = _serve(*(socket.socket(fileno=int(fd)) for fd in sys.argv[1:]))
    _become(request)
    if request["words"][0] == "-m":
        runpy.run_module("posse", run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
