"""A fleet on one machine, for trying it: a SuperLink, SuperNodes with keys of their own, TLS
between them.

Every program has a home and a log of its own below one folder, as if it were elsewhere:

| place | holds |
|---|---|
| `link/` | authority, certificate and key of the SuperLink, its log |
| `node-0001/` ... | a node's key, home and log |
| `app/` | the Flower project that is run |
| `run/` | state, progress, model and result of the server |
| `operator/` | the connection of the one who runs the fleet |
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from posse.core.check import require
from posse.core.errors import ConfigError, DataError, LinkError, PosseError
from posse.core.interrupts import handle_signals
from posse.policies.own import is_own
from posse.results import words
from posse.results.section import Section
from posse.runtime.local import to_toml
from posse.systems.fed_contextual.flower.deployment import Versions
from posse.systems.fed_contextual.flower.processes import Crew, Process
from posse.systems.fed_contextual.flower.project import (
    LinkFiles,
    NodeKeys,
    make_link,
    make_node,
    write_project,
)
from posse.systems.fed_contextual.flower.samples import DATA, SCALING, read_scaling
from posse.systems.fed_contextual.flower.settings import (
    FAILED,
    FEWEST,
    PROGRESS,
    RESULT,
    STATE,
    AppSettings,
    DeviceSettings,
    Line,
    SimulateSettings,
    TrialSettings,
    alone,
    check_begun,
    lines_of,
)

HOST = "127.0.0.1"
CONNECTION = "trial"
LOOK = 0.25
STARTING = 60.0
"""Seconds that the SuperLink has to come up."""
DOUBT = 20.0
"""Seconds without news after which Flower is asked how the run stands."""
MOST = 64
"""Devices on one machine at most: each takes two processes and some 250 MB."""
NAMES = ("PLD", "RDP")
"""Accountants, in the order of the figures."""


class Trial:
    """A SuperLink and its nodes on this machine. Use `start`, then `submit`, then `follow`; `stop`
    at the end.
    """

    def __init__(
        self,
        folder: Path,
        settings: DeviceSettings,
        nodes: int,
        scaling_file: Path | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self.out = self.folder / "run"
        self.settings = settings.model_copy(
            update={"out": str(self.out), "start_with": nodes}
        ).checked()
        self.nodes = nodes
        self._scaling_file = None if scaling_file is None else scaling_file.expanduser().resolve()
        self.crew, self.port = Crew(), 0
        self.run_id, self._done = "", 0
        self.link: LinkFiles | None = None
        self.keys: list[NodeKeys] = []
        self._data = ""
        self.stopping = False
        """Set by whoever wants it to end."""

    # Starting -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Make certificates and keys, start the SuperLink, register the nodes and start them."""
        self._clear()
        self._data = self._prepared()
        self.link = make_link(self.folder / "link", [HOST, "localhost"])
        self.keys = [make_node(self._node(at)) for at in range(self.nodes)]
        roster = b"".join(keys.public.read_bytes() for keys in self.keys)
        (self.folder / "link" / "roster").write_bytes(roster)
        self.port = free_port()
        self._start_link(
            [
                "--ssl-ca-certfile",
                str(self.link.authority),
                "--ssl-certfile",
                str(self.link.certificate),
                "--ssl-keyfile",
                str(self.link.key),
                "--enable-supernode-auth",
            ]
        )
        self.register([keys.public for keys in self.keys])
        for at in range(self.nodes):
            self.start_node(at)

    def _prepared(self) -> str:
        """Return the file that nodes read their samples from; the digits are written to one, split
        over the nodes.
        """
        if self.settings.data != "digits":
            return str(Path(self.settings.data).expanduser().resolve())
        from posse.problems.datasets.mnist import digits_population
        from posse.problems.populations.prepared import save

        path = self.folder / f"digits-{self.nodes}.npz"
        return str(path if path.exists() else save(digits_population(self.nodes), path))

    def start_simulation(self) -> None:
        """Start a SuperLink that simulates its nodes on a cluster."""
        self._clear()
        self.port = free_port()
        data = {} if self.settings.data == "digits" else {DATA: self._prepared()}
        if self._scaling_file is not None:
            data[SCALING] = str(self._scaling_file)
        self._start_link(["--insecure", "--simulation"], **data)

    def _clear(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in (RESULT, FAILED):
                (self.out / name).unlink(missing_ok=True)
            shutil.rmtree(self.folder / "app", ignore_errors=True)
        except OSError as error:
            raise DataError(
                f"cannot write in {self.folder}: {error.strerror}. Pass --folder."
            ) from error
        write_project(self.folder / "app", self.settings)

    def _start_link(self, flags: Sequence[str], **environment: str) -> None:
        place = self.folder / "link"
        link = self.crew.start(
            "superlink",
            ["flower-superlink", *flags, "--host", HOST, "--port", str(self.port)],
            place / "superlink.log",
            self.crew.environment(place / "home", **environment),
        )
        connection: dict[str, object] = {"address": f"{HOST}:{self.port}", "insecure": True}
        if self.link is not None:
            connection = {
                "address": f"{HOST}:{self.port}",
                "root-certificates": str(self.link.authority),
            }
        home = self.folder / "operator"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(
            to_toml(
                {"superlink": {"default": CONNECTION}, f"superlink.{CONNECTION}": connection}
            ).lstrip()
        )
        self._wait_for(link)

    def _wait_for(self, link: Process) -> None:
        context = (
            None
            if self.link is None
            else ssl.create_default_context(cafile=str(self.link.authority))
        )
        scheme, end = "http" if context is None else "https", time.monotonic() + STARTING
        while not self.stopping:
            with (
                suppress(URLError, OSError),
                urlopen(f"{scheme}://{HOST}:{self.port}/health", context=context) as page,
            ):
                if page.status == 200:
                    return
            if not link.alive or time.monotonic() > end:
                raise LinkError(
                    f"the SuperLink did not come up: {link.last_words()} (its log: {link.log})"
                )
            time.sleep(LOOK)
        raise KeyboardInterrupt

    def start_node(self, at: int, keys: NodeKeys | None = None) -> Process:
        """Start a node, with its own key or another."""
        assert self.link is not None
        keys, place = keys or self.keys[at], self._node(at)
        config = {
            "partition-id": at,
            "num-partitions": self.nodes,
            "key": str(keys.private),
            "roster": str(self.folder / "link" / "roster"),
            "data": self._data,
            "corrupt": self.settings.corrupt,
            "secure": self.settings.secure,
            "least-cohort": FEWEST,
        }
        if self._scaling_file is not None:
            config["scaling"] = str(self._scaling_file)
        if is_own(self.settings.model):
            config["own-model"] = self.settings.model
        command = [
            "flower-supernode",
            "--superlink",
            f"{HOST}:{self.port}",
            "--root-certificates",
            str(self.link.authority),
            "--auth-supernode-private-key",
            str(keys.private),
            "--host",
            HOST,
            "--port",
            str(free_port()),
            "--node-config",
            " ".join(f"{key}={json.dumps(value)}" for key, value in config.items()),
        ]
        return self.crew.start(
            place.name, command, place / "supernode.log", self.crew.environment(place / "home")
        )

    def register(self, publics: Sequence[Path]) -> None:
        """Register nodes' keys with the SuperLink, all at a time."""
        names = [path.parent.name for path in publics]
        asked = [
            self._flwr(
                f"register-{name}", "supernode", "register", str(path), CONNECTION, "--name", name
            )
            for name, path in zip(names, publics, strict=True)
        ]
        for process in asked:
            if self._ended(process):
                raise LinkError(
                    f"a node was not registered: {process.last_words()} (log: {process.log})"
                )

    def submit(self, *flags: str) -> None:
        """Start the run; rounds that a run before it did are not reported again."""
        if not (self.out / STATE).exists():
            (self.out / PROGRESS).unlink(missing_ok=True)
        self._done = len(lines_of(self.out))
        started = self._flwr(
            "submit", "run", str(self.folder / "app"), CONNECTION, "--format", "json", *flags
        )
        if self._ended(started):
            raise LinkError(f"the run was not started: {started.last_words()} (log: {started.log})")
        with suppress(ValueError, IndexError):
            text = started.log.read_text()
            self.run_id = json.loads(text[text.index("{") :]).get("run-id", "")

    # Following ------------------------------------------------------------------------------------

    def follow(self) -> Iterator[Line]:
        """Yield the line of every round, until the run is over; raise where it failed."""
        at, news = self._done, time.monotonic()
        while not self.stopping:
            over = (self.out / RESULT).exists()
            lines = lines_of(self.out)
            at = min(
                at, len(lines)
            )  # a server that goes on drops lines of rounds that it does again
            yield from lines[at:]
            if len(lines) > at:
                at, news = len(lines), time.monotonic()
            if over:
                return
            self._check(time.monotonic() - news)
            if time.monotonic() - news > DOUBT:
                news = time.monotonic()
            time.sleep(LOOK)

    def result(self) -> dict[str, Any]:
        """Return how the run ended."""
        try:
            found: dict[str, Any] = json.loads((self.out / RESULT).read_text())
        except (OSError, ValueError) as error:
            raise DataError(
                f"{self.out / RESULT} is damaged ({error}). Remove it and run the command again."
            ) from None
        return found

    def _check(self, silence: float) -> None:
        """Raise where the server failed, its SuperLink is gone, or the run is over without a
        result.
        """
        self._check_failed()
        link = self.crew.processes[0]
        if not link.alive:
            raise LinkError(f"the SuperLink ended: {link.last_words()} (its log: {link.log})")
        if (
            silence > DOUBT
            and self._status().startswith("finished")
            and not (self.out / RESULT).exists()
        ):
            self._check_failed()  # it may have ended while it was asked for
            raise PosseError(
                f"the run ended without a result; the log of the server is in {link.log}."
            )

    def _check_failed(self) -> None:
        if (self.out / FAILED).exists():
            raise PosseError(f"the server gave up: {(self.out / FAILED).read_text().strip()}")

    def _status(self) -> str:
        asked = self._flwr("list", "list", CONNECTION, "--run-id", self.run_id, "--format", "json")
        self._ended(asked)
        text = asked.log.read_text(errors="replace")
        with suppress(ValueError, IndexError, KeyError):
            return str(json.loads(text[text.index("{") :])["runs"][0]["status"])
        return ""

    # Ending ---------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop everything that was started."""
        self.crew.stop()

    def _flwr(self, name: str, *arguments: str) -> Process:
        home = self.folder / "operator"
        log = home / f"{name}.log"
        log.unlink(missing_ok=True)
        return self.crew.start(
            name, ["flwr", *arguments], log, self.crew.environment(home, NO_COLOR="1")
        )

    def _ended(self, process: Process) -> int:
        """Wait for a program to end; returns its code."""
        while process.alive:
            if self.stopping:
                raise KeyboardInterrupt
            time.sleep(0.05)
        return process.handle.returncode

    def _node(self, at: int) -> Path:
        return self.folder / f"node-{at + 1:04d}"


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


# Commands -----------------------------------------------------------------------------------------


def up(settings: TrialSettings) -> Iterator[str | Section]:
    """Run a fleet of processes on this machine."""
    if settings.nodes > MOST:
        raise ConfigError(
            f"nodes on one machine must be at most {MOST}, got {settings.nodes}. Try 'posse "
            "devices simulate'."
        )
    trial = _trial(settings)

    def start() -> None:
        trial.start()
        trial.submit()

    return _run(
        trial,
        start,
        f"starting a SuperLink with TLS, and {words.count(trial.nodes, 'node')} with keys of their "
        "own",
    )


def simulate(settings: SimulateSettings) -> Iterator[str | Section]:
    """Run a fleet on Flower's own engine."""
    trial = _trial(settings)
    require("ray", extra="flower-simulation")
    if trial.settings.secure:
        raise ConfigError(
            "a simulation has no keys, so that its sums cannot be secure. Take 'posse devices up'."
        )

    def start() -> None:
        trial.start_simulation()
        trial.submit("--federation-config", f"num-supernodes={trial.nodes}")

    return _run(
        trial, start, f"starting a SuperLink that simulates {words.count(trial.nodes, 'node')}"
    )


def app(settings: AppSettings) -> Iterator[str | Section]:
    """Write the Flower project."""
    given = {
        name: getattr(settings, name)
        for name in settings.model_fields_set
        if name in DeviceSettings.model_fields
    }
    if settings.scaling_file is not None:
        given["scaling"] = read_scaling(settings.scaling_file).fingerprint
    made = write_project(settings.folder, DeviceSettings(**given).checked(), settings.publisher)
    yield Section(
        f"Flower app in {made}",
        notes=(
            f"start it on a fleet with: flwr run {made} CONNECTION --stream",
            "certificates, keys and what the server sees: docs/devices.md",
        ),
        data={"folder": str(made)},
    )


def _trial(settings: TrialSettings) -> Trial:
    made = settings.of_the_fleet()
    require("flwr", extra="flower")
    require("jax", extra="contextual")
    return Trial(settings.folder, made, settings.nodes, settings.scaling_file)


def _run(trial: Trial, start: Callable[[], None], beginning: str) -> Iterator[str | Section]:
    """Start a fleet, follow its rounds, and say what came out; whatever happens, nothing goes on
    running.

    A run that is over starts one if devices shall have another version than they have.
    """
    _check_before(trial)
    if (trial.out / RESULT).exists() and len(lines_of(trial.out)) >= trial.settings.rounds:
        versions = Versions(trial.out)
        waiting = len(versions.missing({*versions.held, *trial.result().get("waiting", ())}))
        yield "this run is over and nothing is trained; " + (
            f"{words.count(waiting, 'device')} shall have another version"
            if waiting
            else "for another one pass --folder"
        )
        if not waiting:
            yield from _result(trial)
            return
    yield beginning
    with alone(trial.folder), _stopping(trial) as signals:
        start()
        for line in trial.follow():
            count = len(line["clients"])
            came = (
                f"{count} devices, average reward {line['reward']:.4f}" if count else "noise alone"
            )
            yield f"round {line['round']} of {line['of']}: {came}, {line['seconds']:.1f} s"
    if signals and signals[0] != signal.SIGINT:
        yield f"stopped; the same command goes on from {trial.out}"
        raise SystemExit(128 + signals[0])
    if signals:
        raise KeyboardInterrupt
    yield from _result(trial)


def _check_before(trial: Trial) -> None:
    """Make the model, read the first one, and look at what a round costs before anything is
    started.
    """
    from posse.systems.fed_contextual.flower.device import first_model, model_of
    from posse.systems.fed_contextual.flower.noise import ledger_of

    check_begun(trial.settings, trial.out, nodes=True)
    model_of(trial.settings)
    if not (trial.out / STATE).exists():
        first_model(trial.settings)
    if trial.settings.noise:
        ledger_of(trial.settings)


@contextmanager
def _stopping(trial: Trial) -> Iterator[list[int]]:
    """Stop what was started, however this ends; a signal is noted, and ends the waiting."""
    signals: list[int] = []

    def note(number: int) -> None:
        signals.append(number)
        trial.stopping = True

    try:
        with handle_signals(note, trial.stop):
            yield signals
    except KeyboardInterrupt:
        if not signals:
            raise
    finally:
        if not (trial.out / RESULT).exists():
            from posse.systems.fed_contextual.flower.recording import keep_interrupted

            keep_interrupted(trial.settings, trial.out)


def _result(trial: Trial) -> Iterator[str | Section]:
    """Say what a run gave, and how it was protected, by what the server noted."""
    result = trial.result()
    lines = lines_of(trial.out)
    rounds, devices = words.count(result["rounds"], "round"), words.count(trial.nodes, "device")
    protected = "the server saw every device's update; --secure hides them in sums"
    if lines and all(line.get("masked") for line in lines):
        protected = "sums were secure: the server saw no single update"
    if not all(line.get("authenticated", True) for line in lines):
        protected = "a simulation: nothing was protected"
    seeded = (
        ["run from a seed, for repeating it: no protection of what devices drew"]
        if result["reproducible"]
        else []
    )
    yield Section(
        f"{rounds} on {devices}: average reward {result['average_reward']:.4f}",
        notes=(
            f"model: {result['model']}",
            protected,
            *seeded,
            f"logs, and keys: {trial.folder}",
            f"record: posse runs show {result['record']}",
        ),
        data={**result, "nodes": trial.nodes, "folder": str(trial.folder)},
    )
    if waiting := result.get("waiting"):
        named = ", ".join(
            f"{device} (version {version})" for device, version in sorted(waiting.items())
        )
        yield (
            f"without the model that they shall have: {named}. The same command sends it to them "
            "again."
        )
    if refusing := Versions(trial.out).refusing():
        yield (
            f"the model is refused by {', '.join(refusing)}: 'posse devices status {trial.folder}' "
            "says why."
        )
    if "privacy" not in result:
        return
    first = result["privacy"][0]
    figures = ", ".join(
        f"{one['figure']} by {name}" for name, one in zip(NAMES, result["privacy"], strict=True)
    )
    yield Section(
        "Differential privacy, epsilon and delta",
        notes=(
            f"{figures}, for {first['covers']}",
            first["adjacency"],
            f"sampling: {first['sampling']}; noise on a sum counts as "
            f"{first['noise_multiplier']:g} clips",
            f"rounds paid for: {result['paid_rounds']}",
        ),
    )
    yield Section("Not covered", notes=tuple(first["not_covered"]))
    if "stopped" in result:
        yield (
            f"stopped early: {result['stopped']}. More noise, more devices or a larger limit allow "
            "more."
        )
