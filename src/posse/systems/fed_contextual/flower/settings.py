"""Settings of a run on devices: the keys of `[tool.flwr.app.config]`, of `flwr run --run-config`
and of flags.

Also the names of the files in the folder of a run.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.files import write_whole
from posse.core.settings import IMPORTS, External, Settings
from posse.policies.contextual.explorations import Exploration
from posse.policies.contextual.registry import exploration, parameters_of
from posse.policies.own import is_own
from posse.privacy.aggregation.terms import plan
from posse.systems.fed_contextual.computing.cohorts import room
from posse.systems.fed_contextual.learning import (
    RING,
    Count,
    LearningSettings,
    Positive,
    Published,
)
from posse.systems.fed_contextual.remarks import (
    declared_client_rate,
    declared_size,
    default_server_rate,
)

STATE, SPENT, PROGRESS, BEGUN = "state.npz", "spent.json", "progress.jsonl", "begun.json"
MODEL, RESULT, FAILED, RECORD, UNMASKED = (
    "model.npz",
    "result.json",
    "failed.txt",
    "record.txt",
    "unmasked.json",
)
VERSIONS, WANTED, HELD = "versions", "wanted.json", "held.json"
METRICS, METRIC_LINES, EVALUATIONS = "metrics.prom", "metrics.jsonl", "evaluations.jsonl"
UNMASKING, LOCK = "unmasking.msgpack", "lock"
Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]
MEASURE = 1 << 12
"""Steps a whole in which secure sums count rewards and probabilities."""
FEWEST = 3
"""Devices of a secure round at least."""
BAG_SIZE = 48.0
"""How large bags of words are where nothing is declared: those of questions with six to seven words
that count.
"""
FAR = 9.0
"""Standard deviations beyond which no noise is drawn: 53 bits have no such tail."""


Line: TypeAlias = dict[str, Any]
"""What a round showed, as `progress.jsonl` holds it."""


def lines_of(out: Path, name: str = PROGRESS) -> list[Line]:
    """Return the lines of all rounds that are whole, or those of another file."""
    try:
        text = (out / name).read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    except OSError:
        return []
    except ValueError as error:
        raise DataError(
            f"{out / name} is damaged ({error}). Take that line out, or name another folder."
        ) from None


def keep_lines(out: Path, name: str, count: int | None = None) -> None:
    """Drop what a stopped server left of a line, and lines behind the first `count`."""
    with suppress(FileNotFoundError):
        text = (out / name).read_text()
        kept = "".join(
            [line for line in text.splitlines(keepends=True) if line.endswith("\n")][:count]
        )
        if kept != text:
            write_whole(out / name, kept.encode())


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of a run's folder, made where there is none; the lock goes when the
    process does.
    """
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise DataError(
            f"cannot write in {folder}: {error.strerror}. Name another folder."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ConfigError(
                f"{folder} is in use by another process ({file.read().strip() or 'unknown'}). Stop "
                "it, or name another "
                "folder."
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


REACH = ("out", "timeout", "grace", "start_with", "limit", "gate")
"""Settings that may change while a run goes on: places, patience, and how much may be spent."""


def note_begun(settings: DeviceSettings, out: Path) -> None:
    """Note the settings that the run in a folder begins with."""
    write_whole(out / BEGUN, json.dumps(_bound(settings)).encode())


def check_begun(settings: DeviceSettings, out: Path, *, nodes: bool = False) -> None:
    """Refuse to go on with other settings than the run in a folder began with, and name what
    differs.

    More rounds are other settings only on one machine, where a folder is one run (`nodes`: as are
    its nodes).
    """
    if not ((out / STATE).exists() or (out / SPENT).exists()):
        return
    try:
        before = {
            "contexts": "",
            "scaling": "",
            **json.loads((out / BEGUN).read_text()),
        }  # it may have begun without
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{out} does not say what its run began with ({error}). Name another folder."
        ) from None
    now = _bound(settings)
    if not nodes:
        for values in (before, now):
            values.pop("start_with", None)
        now["rounds"] = (
            before["rounds"] if settings.rounds >= len(lines_of(out)) else settings.rounds
        )
    other = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if other:
        shown = ", ".join(_difference(name, before.get(name), now.get(name)) for name in other)
        raise ConfigError(
            f"the run in {out} began with {shown}. Give what it began with to go on, or name "
            "another folder."
        )


def _difference(name: str, before: object, now: object) -> str:
    if name == "content":
        return "other samples in the file of data"
    return (
        f"{'nodes' if name == 'start_with' else name} = {json.dumps(before)} (now "
        f"{json.dumps(now)})"
    )


def _bound(settings: DeviceSettings) -> dict[str, Any]:
    """Every setting that a run goes on with; its data also by content, where they are a file
    here.
    """
    bound = {name: value for name, value in settings.resolved().items() if name not in REACH}
    data = Path(settings.data).expanduser()
    content = {"content": hashlib.sha256(data.read_bytes()).hexdigest()} if data.is_file() else {}
    return {**bound, **content, "start_with": settings.start_with}


CANARY = (
    "Every version is deployed to all devices, if it passes its gate. Go back, or hold back newer "
    "versions, with 'posse devices deploy --version N'."
)
"""What replaces the share of devices that got a new version first in 0.1."""


class DeviceSettings(LearningSettings):
    """A run on devices. All values are words, numbers and switches: Flower carries no others."""

    aliases: ClassVar[Mapping[str, str]] = {"horizon": "rounds"}
    absent: ClassVar[Mapping[str, str]] = {
        "scale": (
            "It measures the contexts of all devices, and a server sees none. Give scaling, and "
            "the file of the constants to every device."
        ),
        "canary": CANARY,
    }

    model: Annotated[str, IMPORTS] = "linear"
    """Reward model: linear, cnn, bag (of words); or your own, module:function of (shape, arms),
    which every device that takes part names in its own configuration too (own-model).
    """
    hidden: Count = 128
    """Of the cnn: units of its hidden layer."""
    channels: str = "32,64"
    """Of the cnn: channels of its two convolutions."""
    features: Count = 64
    """Numbers of a sample (linear), pixels of an image (cnn), or words of the vocabulary (bag of
    words).
    """
    arms: Annotated[int, Field(ge=2)] = 10
    """Arms of the bandit."""
    policy: Published = "softmax"
    """How devices choose an arm from the predicted rewards."""
    explore: Annotated[float, Field(ge=0)] = 0.0
    """Epsilon of epsilon-greedy, temperature of softmax, gamma of FALCON; 0: as published, .05, .05
    and 1000.
    """
    rounds: Count = 3
    """Federated rounds."""
    cohort: Count = 3
    """Devices of a round; the expected number under noise, where each is drawn by a coin."""
    start_with: Annotated[int, Field(ge=0)] = 0
    """Devices to wait for before the first round; 0: those of a cohort."""
    least: Count = 1
    """Answers without which a round is done again; 1 under noise, where every round counts as it
    is.
    """
    deploy_every: Count = 1
    """Rounds after which devices act with the newest model."""
    keep_log: bool = False
    """Devices act once for a deployed model and learn from that log in every round, instead of
    acting anew.
    """
    samples: Count = 128
    """Samples of a device at most."""
    client_rate: NotNegative = 0.0
    """Learning rate of devices; 0: 0.1, and for a linear model at most 0.5 / input_size."""
    server_rate: NotNegative = 0.0
    """Learning rate of the server; 0: 0.6 / input_size for linear models and bags, 0.002 for a cnn,
    1 for sgd.
    """
    input_size: NotNegative = 0.0
    """How large contexts are, as declared by who designs them: nothing is measured on devices. The
    record of a simulation says it of its data. 0: a quarter of a linear model's features (numbers
    from 0 to 1; others as low and high say), and 48 for bags.
    """
    quantile: Share = 0.0
    """Fraction of updates that should be within the norm, which then follows it; 0 keeps it fixed,
    as noise needs.
    """
    devices: Annotated[int, Field(ge=0)] = 0
    """Under noise, the devices of the fleet: a round draws each that is connected with the chance
    cohort / devices.
    """
    limit: Annotated[float, Field(ge=0)] = 0.0
    """Largest epsilon (with delta) that may be spent on a device: training stops before it is more;
    0 for none.
    """
    data: Annotated[str, External("digits")] = "digits"
    """Where a device's samples are if its own configuration does not say: digits, a prepared
    population, or images.
    """
    timeout: Positive = 600.0
    """Seconds that a round, or a stage of a secure one, waits for devices."""
    grace: Positive = 30.0
    """Seconds that it waits for the others when it has enough answers, and no less than those
    took.
    """
    seed: Annotated[int, Field(ge=-1, lt=2**31)] = -1
    """All randomness of the run, which then can be repeated and protects nothing; -1: from the
    operating system.
    """
    secure: bool = False
    """Sums under masks: the server sees no single update."""
    levels: Annotated[int, Field(ge=0, le=1 << 24)] = 0
    """Whole numbers from 0 to the norm to which updates are rounded; 0: none, or 65,536 where sums
    are secure.
    """
    corrupt: Share = 0.1
    """Devices that a secure sum supposes to be with the server, as a share of the cohort."""
    dropout: Share = 0.1
    """Devices that may be lost in a secure round, as a share of the cohort."""
    evaluate: Literal["", "ips", "snips", "dr"] = ""
    """Estimate a new version on devices' logs, in a round of its own, before it is deployed; empty:
    not at all.
    """
    gate: float = 0.0
    """Lower bound that the estimate must reach for the version to be deployed."""
    evaluation_clip: Positive = 1.0
    """Norm to which a device's sums of an evaluation are clipped: at 1 all devices have about the
    same say.
    """
    most_weight: Annotated[float, Field(ge=1)] = 20.0
    """Largest importance weight of an evaluation."""
    low: float = 0.0
    """Least number of a context, as declared; written into deployed models. Bounds also say how
    large contexts are.
    """
    high: float = 0.0
    """Largest number of a context, as declared; low and high both 0: nothing is."""
    contexts: Literal["", "numbers", "bytes"] = ""
    """What contexts are, as declared; written into deployed models: devices divide bytes (uint8) by
    255. A device that has others refuses; empty: not said.
    """
    scaling: Annotated[str, Field(pattern="^([0-9a-f]{12})?$")] = ""
    """Fingerprint of the constants by which devices scale each feature of a context; every device
    names their file in its own configuration (scaling). Empty: contexts are taken as they are.
    """
    start: Annotated[str, External()] = ""
    """First model: model.npz of an earlier run, or a state that 'posse run fed-contextual --keep'
    wrote; else drawn.
    """
    out: Annotated[str, External()] = "posse-run"
    """Folder of the state, the model and the progress, where the server runs; a run goes on from
    what is there.
    """

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Build from Flower's run configuration, and check what belongs together.

        Apps of 0.1 hold every setting: `canary = 0.0` there is what 0.2 always does.
        """
        if values.get("canary") == 0:
            values = {name: value for name, value in values.items() if name != "canary"}
        return cls(**values).checked()

    def checked(self) -> Self:
        """Refuse settings that do not go together."""
        if self.samples % self.batch:
            raise ConfigError(
                f"samples must be a multiple of batch = {self.batch}, got {self.samples}. "
                f"Take {-(-self.samples // self.batch) * self.batch}."
            )
        if self.least > self.cohort:
            raise ConfigError(
                f"least must be at most cohort = {self.cohort}, got {self.least}. Lower it."
            )
        if self.scaling and (self.model != "linear" or self.contexts == "bytes"):
            raise ConfigError(
                "scaling is for a linear model of contexts of numbers, got model "
                f"{self.model}{' and bytes' if self.contexts == 'bytes' else ''}. Leave it out."
            )
        if self.policy == "epsilon-greedy" and self.explore > 1:
            raise ConfigError(
                f"explore, the epsilon of epsilon-greedy, must be at most 1, got {self.explore}."
            )
        if not is_own(self.model):
            check.one_of(("linear", "cnn", "bag"), model=self.model)
        if len(self.widths) != 2 or min(self.widths) < 1:
            raise ConfigError(
                f"channels must be two numbers of at least 1, such as 16,32, got {self.channels}."
            )
        if self.model == "cnn" and self.side**2 != self.features:
            raise ConfigError(
                f"features of a cnn must be a square number of pixels, got {self.features}."
            )
        if self.secure and self.cohort < FEWEST:
            raise ConfigError(
                f"a secure sum needs a cohort of at least {FEWEST}, got {self.cohort}. Raise it."
            )
        if self.secure:
            self._check_quorum()
        most, steps = self.most_drawn + FAR * self.noise, self.rounded_to + 1
        if (
            self.rounded_to
            and max(most * steps, self.secure * self.most_drawn * self.samples * MEASURE) >= RING
        ):
            raise ConfigError(
                "cohort x levels and cohort x samples x 4096 must stay below 2^31. Lower one of "
                "them."
            )
        if (
            self.secure
            and self.evaluate
            and self.most_drawn * MEASURE * max(1, self.evaluation_clip) ** 2 >= RING
        ):
            raise ConfigError(
                "cohort x evaluation_clip^2 x 4096 must stay below 2^31. Lower one of them."
            )
        if self.gate and not self.evaluate:
            raise ConfigError(
                f"gate goes with evaluate, got gate {self.gate:g} and no estimate. Give evaluate."
            )
        if self.high < self.low or self.high == self.low != 0:
            raise ConfigError(
                f"high must be above low = {self.low:g}, got {self.high:g}. Correct one of them."
            )
        self._check_noise()
        return self

    def _check_quorum(self) -> None:
        made = plan(self.cohort, corrupt=self.corrupt, dropout=self.dropout)
        if made.complete and not made.quorum:
            quorum = (made.clients + made.corrupt) // 2 + 1
            raise ConfigError(
                f"a cohort of {made.clients} devices must keep a quorum of {quorum}, and may lose "
                f"{made.dropouts}: devices refuse such rounds. Lower dropout or corrupt."
            )

    def _check_noise(self) -> None:
        self.check_protection()
        if not self.noise:
            if self.devices:
                raise ConfigError(
                    f"devices goes with noise, got devices {self.devices} and noise 0. Give noise."
                )
            return
        if self.least > 1:
            raise ConfigError(
                f"least must be 1 with noise, got {self.least}: a round then counts however few "
                "devices answer. Leave least out."
            )
        if self.devices < self.cohort:
            raise ConfigError(
                f"noise needs devices, the number of devices that a cohort of {self.cohort} is "
                f"drawn from, got {self.devices}. Set devices; the more there are, the less "
                "privacy a round costs."
            )
        self.check_delta(self.devices)

    def exploration(self) -> Exploration:
        """Return the policy; FALCON's mu is a fifth of the arms, as published."""
        known = parameters_of(self.policy)[-1:] if self.explore else ()
        return exploration(self.policy, dict.fromkeys(known, self.explore))

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of the cnn as numbers."""
        parts = self.channels.split(",")
        return (
            tuple(int(part) for part in parts)
            if all(part.strip().isdigit() for part in parts)
            else ()
        )

    @property
    def rates(self) -> tuple[float, float]:
        """Learning rates of devices and server: those given, or as the declared size of contexts
        has it.
        """
        size = squared = self.input_size or (BAG_SIZE if self.model == "bag" else self.features / 4)
        if self.scaling and not self.input_size:
            # Features of mean 0 and standard deviation 1.
            size = squared = float(self.features)
        elif self.model == "linear" and not self.input_size and self.bounds:
            low, high = (bound / (self.divisor or 1) for bound in self.bounds)
            size, squared = declared_size(self.features, low, high)
        client = self.client_rate or declared_client_rate(squared, self.model)
        return client, self.server_rate or default_server_rate(size, self.model, self.optimiser)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Least and largest number of a context, as declared; none where nothing is."""
        return (self.low, self.high) if self.low < self.high else None

    @property
    def divisor(self) -> float:
        """What devices divide contexts by, as declared; 0: not said."""
        return {"bytes": 255.0, "numbers": 1.0}.get(self.contexts, 0.0)

    @property
    def most_drawn(self) -> int:
        """Devices that a round may draw: all of a cohort, or so many that coins give more once in
        10^9 rounds.
        """
        return min(self.devices, room(self.cohort, "poisson")) if self.noise else self.cohort

    @property
    def enough(self) -> int:
        """Devices with which a round may begin."""
        return max(self.least, FEWEST) if self.secure else self.least

    @property
    def rounded_to(self) -> int:
        """Levels in force."""
        return self.levels or (1 << 16 if self.secure else 0)

    @property
    def side(self) -> int:
        """Side of an image."""
        return math.isqrt(self.features)


class TrialSettings(DeviceSettings):
    """A fleet of processes on one machine; by default all nodes take part in a round, and the model
    fits the data.
    """

    nodes: int = 3
    """Devices."""
    folder: Path = Path("posse-devices")
    """Where keys, logs, the state and the model go."""
    scaling_file: Path | None = None
    """File of --model-out with the constants by which the nodes scale contexts; it sets scaling."""
    seed: Annotated[int, Field(ge=-1, lt=2**31)] = 1
    """All randomness of the run, which then can be repeated and protects nothing; -1: from the
    operating system.
    """

    def of_the_fleet(self) -> DeviceSettings:
        """Return the settings of the run, checked."""
        check.at_least(1, nodes=self.nodes)
        known = DeviceSettings.model_fields
        given = {name: getattr(self, name) for name in self.model_fields_set if name in known}
        from posse.systems.fed_contextual.flower.samples import fitting, read_scaling

        fits: dict[str, Any] = dict(fitting(self.data))
        if self.noise or self.scaling_file:
            # Under noise no figure would cover what is measured of all contexts; and contexts that
            # are scaled have another size.
            fits.pop("input_size", None)
        if self.scaling_file is not None:
            fits["scaling"] = read_scaling(self.scaling_file).fingerprint
        usual = {
            "cohort": min(self.nodes, 64),
            "seed": self.seed,
            "devices": self.nodes if self.noise else 0,
        }
        made = DeviceSettings(**{**usual, **fits, **given}).checked()
        if made.cohort > self.nodes:
            raise ConfigError(
                f"cohort must be at most nodes = {self.nodes}, got {made.cohort}. Lower it."
            )
        if made.noise and made.devices < self.nodes:
            raise ConfigError(
                f"devices must be at least nodes = {self.nodes}, got {made.devices}. Raise it."
            )
        places = {"start": made.start, "data": "" if made.data == "digits" else made.data}
        return made.but(
            **{name: str(Path(at).expanduser().resolve()) for name, at in places.items() if at}
        )


class SimulateSettings(TrialSettings):
    """A fleet that Flower simulates."""

    nodes: int = 100
    """Devices."""
    folder: Path = Path("posse-simulation")
    """Where logs, the state and the model go."""


class AppSettings(DeviceSettings):
    """An installable Flower project."""

    folder: Path
    """A new folder for the project."""
    scaling_file: Path | None = None
    """File of --model-out with the constants by which devices scale contexts; it sets scaling."""
    publisher: str = "posse"
    """Who publishes the app."""


class StatusSettings(Settings):
    """Which version of the model every device has."""

    folder: Path
    """The run's folder (`out`), or that of a trial."""


class DeploySettings(StatusSettings):
    """Which version of the model devices shall have."""

    absent: ClassVar[Mapping[str, str]] = {"canary": CANARY}
    version: int = -1
    """Version to deploy, by its number; it stays until another one is deployed. Left out: the
    newest that did not fail its gate, and those after it.
    """
