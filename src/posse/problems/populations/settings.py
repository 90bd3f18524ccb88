"""Settings of a population: its clients and data, how clients answer, and how the world changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, field_validator, model_validator

from posse.core import check
from posse.core.settings import IMPORTS, External
from posse.problems.data import TableSettings
from posse.problems.datasets.mnist import (
    DIGIT_CLIENTS,
    digits_population,
    find_mnist,
    find_writers,
    mnist_writers,
)
from posse.problems.populations.pictures import holds_images, read_pictures
from posse.problems.populations.population import Population, standardised
from posse.problems.populations.prepared import load
from posse.problems.populations.splits import CLIENT, LABEL, read_population, some_clients
from posse.problems.populations.worlds import (
    INITIAL_CLIENTS,
    Availability,
    Before,
    Drift,
    LabelDrift,
    Presence,
    Rewards,
    Scenario,
    ValueDrift,
    clients_where,
    named_clients,
    periods_of,
    periods_text,
    read_rewards,
    scenario,
)
from posse.problems.requirements import Requirement, check_all
from posse.problems.tables.frames import Frame

POPULATIONS = {
    "digits": "1,797 images of digits that come with scikit-learn, over Dirichlet clients; no "
    "download",
    "mnist-writers": "60,000 images of digits (MNIST) by their 539 real writers",
    "own": "your own CSV file: a column of clients, one of labels, and features",
    "images": (
        "your own images: a folder (LABEL/file.png), an idx or Parquet file, an .npz with images "
        "and labels"
    ),
    "prepared": "a folder or .npz file that was prepared before",
}
"""Descriptions of populations."""

_ONLY = {
    "alpha": ("digits", "own", "images"),
    "side": ("images",),
    "part": ("mnist-writers",),
    "file": ("own", "images", "prepared"),
    "client_column": ("own", "images"),
    "label_column": ("own", "images"),
}
"""Settings that apply only to some populations."""

_FILES = {
    "own": "a CSV file",
    "images": "a folder or file of images",
    "prepared": "a prepared folder or .npz file",
}
"""Descriptions of `file`, for the populations that are read from it."""

MOVED = ("emnist", "femnist", "stackexchange", "stackoverflow")
"""Populations of 0.1 that only the figures use: their loaders are in `reproduction`."""
_PREPARE = "It belongs to 'python -m reproduction prepare', in a checkout of Posse."


class PopulationSettings(TableSettings):
    """Where clients and their data come from.

    `data` is one of `POPULATIONS`; or your own, a CSV file or a frame with a column of clients and
    one of labels, or images; or a prepared folder or .npz file.
    """

    absent: ClassVar[Mapping[str, str]] = {"words": _PREPARE, "tags": _PREPARE}
    panel: ClassVar[str] = "What is learnt"
    own_words: ClassVar[str] = "a CSV file, a frame, or a prepared folder or .npz file"

    data: Annotated[Any, External.except_for(POPULATIONS)] = "digits"
    """Which population: digits, mnist-writers; or your own, a CSV file, images (a folder, an idx,
    .npz or Parquet file), or a prepared folder or .npz file.
    """
    data_dir: Path | None = None
    """Folder of the data sets; else the one that POSSE_DATA names."""
    file: Path | None = None
    """Your own CSV file (own), images (images), or a prepared folder or .npz file (prepared)."""
    clients: int | None = None
    """Number of Dirichlet clients; where clients are real, use the first ones only."""
    alpha: float = 0.3
    """How similar Dirichlet clients are: small for few labels each, large for the mix of all."""
    seed: int = 0
    """Seed of the split, of who answers, and of drift."""
    part: Literal["train", "test"] = "train"
    """Part of MNIST."""
    client_column: str | None = CLIENT
    """Column of your own file that names the client; 'none' for Dirichlet clients."""
    label_column: str = LABEL
    """Column of your own file that holds the label."""
    scale: Literal["none", "standard"] | None = None
    """Features of your own table: as they are (none), or each scaled to mean 0 and standard
    deviation 1 over all clients (standard; those of 0 and 1 stay); a model keeps both, and takes
    contexts as they are. If left out: standard, unless the model or rewards are functions, or input_size is
    given.
    """
    side: int | None = None
    """Pixels of a side to which your own images are scaled; as they are if all are one even square,
    else 28.
    """
    verify: bool = True
    """Check that known files are the known ones."""
    scenario: Literal["scratch", "init", "init-shift"] = "scratch"
    """What is known before the bandit begins: nothing, rewards of some clients, or other rewards of
    some clients.
    """
    pretrained: int = INITIAL_CLIENTS
    """Clients of pre-training."""
    before: Annotated[str | None, External()] = None
    """Of init-shift: what arms paid before deployment. A CSV file, one row per label and one column
    per arm (arms without one are not seen), or module:function or file.py:function of (contexts,
    labels, arms) that gives rewards.
    """
    first: Annotated[str | None, IMPORTS] = None
    """Clients that pre-training may draw: patterns of their names such as 'clinic-*,lab-1', or
    module:function or file.py:function of a name.
    """
    missing: float = 0.0
    """Chance that a client of a cohort does not answer."""
    late: float = 0.0
    """Chance that its answer comes rounds later, and is lost."""
    delay: int = 1
    """Most rounds that an answer is late."""
    never: float = 0.0
    """Share of clients that never answer."""
    stale: int = 0
    """Rounds by which a deployment reaches a client late, at most, each number equally likely:
    until then
    the client acts with the model it has.
    """
    drift: Literal["none", "labels", "values"] = "none"
    """How the world changes: labels change their arms, or arms their value."""
    drift_every: int = 100
    """Rounds after which labels change, or of a season of the arms' values."""
    drift_share: float = 0.5
    """Share of arms that change, or how deep values fall."""
    available: Annotated[str | None, BeforeValidator(periods_text)] = None
    """Arms that come and go, with their first and last round, from 1 on: 3:50-,7:1-120. Others are
    always there. In Python also {"3": (50, None), "7": (1, 120)}.
    """

    @field_validator("client_column", mode="before")
    @classmethod
    def _no_column(cls, value: object) -> object:
        """Read the word for no column, which flags and TOML files need."""
        return None if value == "none" else value

    def population(self) -> Population:
        """Make the population.

        >>> PopulationSettings(clients=20, alpha=0.1).population().clients
        20
        >>> PopulationSettings(part="test").population()
        Traceback (most recent call last):
        ...
        posse.core.errors.ConfigError: [P100] part applies to mnist-writers, got test for digits.
        Leave part out.
        """
        return self.cached("population", self._scaled)

    def _scaled(self) -> Population:
        check_all(self, _SCALE)
        population = self._population()
        return standardised(population) if self.scale == "standard" else population

    @property
    def population_kind(self) -> str:
        """Which of `POPULATIONS` it is; a file or a frame is own or prepared."""
        if not isinstance(self.data, str):
            return "own"
        if self.data in POPULATIONS:
            return self.data
        path = Path(self.data)
        if holds_images(path):
            return "images"
        return "prepared" if path.suffix == ".npz" or path.is_dir() else "own"

    @property
    def is_own_source(self) -> bool:
        """Whether `data` itself is the user's file or frame, and no name of `POPULATIONS`."""
        return not isinstance(self.data, str) or self.data not in POPULATIONS

    @model_validator(mode="after")
    def _check_population(self) -> Self:
        check_all(self, _POPULATION_DATA)
        if isinstance(self.data, str) and not Path(self.data).exists():
            self.check_name(POPULATIONS)
        kind = self.population_kind
        for name, kinds in _ONLY.items():
            if kind not in kinds:
                self.leave_out((name,), ", ".join(kinds), f" for {kind}")
        if "data" in self.model_fields_set:
            # Without `data`, a custom population may come later, and is scaled.
            check_all(self, _SCALE)
        check_all(self, _POPULATION_FILES)
        self.availability()
        check.positive(alpha=self.alpha)
        check.at_least(1, clients=1 if self.clients is None else self.clients)
        check.at_least(0, stale=self.stale)
        if self.available:
            periods_of(self.available)
        self.drifting(2)
        return self

    def _population(self) -> Population:
        kind = self.population_kind
        if kind == "digits":
            return digits_population(self.clients or DIGIT_CLIENTS, self.alpha, self.seed)
        if kind == "images":
            return read_pictures(
                self._path,
                clients=self.clients,
                alpha=self.alpha,
                seed=self.seed,
                side=self.side,
                label=self.label_column,
                client=self.client_column,
            )
        if kind == "mnist-writers":
            population = mnist_writers(self.data_dir, self.part, self.verify)
        elif kind == "prepared":
            population = load(self._path)
        else:
            population = read_population(
                self.data if isinstance(self.data, Frame) else self._path,
                self.client_column,
                self.label_column,
                clients=self.clients or 10,
                alpha=self.alpha,
                seed=self.seed,
                options=self.read_options(),
            )
        return population if self.clients is None else some_clients(population, self.clients)

    @property
    def _path(self) -> Path:
        """The user's own file or folder: `data` itself, or `file`."""
        return Path(self.data if self.file is None else self.file)

    def data_files(self) -> tuple[Path, ...]:
        """Return the files or folders of `data` and `file`, also of a data set that `data` names."""
        if self.file is None or not self.file.exists():
            return super().data_files()
        return (*super().data_files(), self.file)

    def _find_files(self) -> Iterable[Path]:
        if self.data == "mnist-writers":
            return (*find_mnist(self.data_dir, self.part), find_writers(self.data_dir, self.part))
        return (Path(self.data),) if self.is_own_source else ()

    def world(
        self, population: Population, own: bool = False, first: Callable[[str], bool] | None = None
    ) -> Scenario:
        """Make the scenario.

        Args:
            population: The population.
            own: Whether the rewards before deployment are a function.
            first: Returns whether a client may be drawn for pre-training, by its name.
        """
        arms = len(population.arms)
        before = among = None
        if own:
            before = Before(Rewards(np.zeros((arms, arms))), np.ones(arms, bool))
        elif self.before is not None:
            before = read_rewards(Path(self.before), population.arms)
        if first is not None:
            among = clients_where(population, first)
        elif self.first is not None:
            among = named_clients(population, self.first)
        pretrained = self.pretrained
        if "pretrained" not in self.model_fields_set:
            pretrained = min(pretrained, population.clients if among is None else len(among))
        chosen_scenario = scenario(self.scenario, population, pretrained, before, among)
        if chosen_scenario.pretrained:
            chosen_scenario.initial(population.clients, self.seed)
        return chosen_scenario

    def availability(self) -> Availability:
        """Return how clients answer."""
        return Availability(self.missing, self.late, self.delay, self.never, self.seed)

    def presence(self, arms: tuple[str, ...]) -> Presence | None:
        """Return when each arm is available; None if all arms always are."""
        return Presence(arms, periods_of(self.available)) if self.available else None

    def drifting(self, arms: int) -> Drift | None:
        """Return the drift; None if the world does not change."""
        if self.drift == "none":
            return None
        check.at_least(1, drift_every=self.drift_every)
        check.between(0, 1, open_low=self.drift == "labels", drift_share=self.drift_share)
        drift: type[Drift] = LabelDrift if self.drift == "labels" else ValueDrift
        return drift(arms, self.drift_every, self.drift_share, self.seed)


_POPULATION_DATA: tuple[Requirement[PopulationSettings], ...] = (
    Requirement(
        "problems.data.moved",
        lambda settings: settings.data not in MOVED or settings.population_kind == "prepared",
        lambda settings: (
            f"data '{settings.data}' is no longer part of the package. In a checkout of Posse run "
            f"'python -m reproduction prepare {settings.data} FOLDER', and give that folder as "
            "data."
        ),
    ),
    Requirement(
        "problems.data.and-file",
        lambda settings: settings.file is None or not settings.is_own_source,
        lambda settings: (
            f"data and file both name the clients, got '{settings.data_name}' and "
            f"{settings.file}. Give one."
        ),
    ),
)
"""Requirements of `data`."""
_POPULATION_FILES: tuple[Requirement[PopulationSettings], ...] = (
    Requirement(
        "problems.file.needed",
        lambda settings: (
            settings.is_own_source or settings.data not in _FILES or settings.file is not None
        ),
        lambda settings: (
            f"data '{settings.data}' needs {_FILES[settings.data]}, got no file. Give file."
        ),
    ),
)
"""Requirements of settings about files."""
_SCALE: tuple[Requirement[PopulationSettings], ...] = (
    Requirement(
        "problems.scale.not-own",
        lambda settings: settings.scale != "standard" or settings.population_kind == "own",
        lambda settings: (
            f"scale applies to own, got standard for {settings.population_kind}. Leave scale out."
        ),
        field="scale",
    ),
)
"""Requirements of `scale`: data that Posse ships is not scaled."""
