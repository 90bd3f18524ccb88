"""The eight settings of figures 1 and 2, what the paper prints, and the sizes at which its figures
are made.

Sizes are small for continuous integration, brief for one GPU, and the paper's own. The grid of a
size is the same for every policy: rates of clients times rates of the server times values of what
its exploration depends on (Greedy has none). Hyper-parameters are chosen on seeds that are not
reported; or, at the paper's size, taken as its tables print them, which leaves nothing to choose.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from posse.core import check
from posse.core.errors import ConfigError
from reproduction.kit import Paper

REFERENCE = Paper(
    "fed-contextual",
    "Agarwal, McMahan, Xu: An empirical evaluation of federated contextual bandit algorithms, 2023",
)
KINDS = ("images", "tags")


class Setting(NamedTuple):
    """A population of images or tags, what is known before, and whether models are deployed
    often.
    """

    kind: str
    scenario: str
    often: bool = False


SETTINGS = {
    "fig1a": Setting("images", "scratch"),
    "fig1b": Setting("images", "init"),
    "fig1c": Setting("images", "init-shift"),
    "fig1d": Setting("images", "init-shift", often=True),
    "fig2a": Setting("tags", "scratch"),
    "fig2b": Setting("tags", "init"),
    "fig2c": Setting("tags", "init-shift"),
    "fig2d": Setting("tags", "init-shift", often=True),
}
"""By figure."""


# What the paper prints: hyper-parameters of its tables 1 to 9, and the rewards of its section 5.2.
# Rewards of figures 1 to 4 are printed as pictures only.


class Printed(NamedTuple):
    """A line of a table: learning rates of server and clients, and what exploration depends on."""

    server: float
    client: float
    explore: str = "-"

    @property
    def parameters(self) -> dict[str, float]:
        """What exploration depends on, by name.

        >>> Printed(0.002, 0.1, "mu 12, gamma 1000").parameters
        {'mu': 12.0, 'gamma': 1000.0}
        """
        pairs = (part.split() for part in self.explore.split(", ") if self.explore != "-")
        return {name: float(value) for name, value in pairs}


@cache
def printed() -> dict[str, dict[str, Printed]]:
    """Tables 1 to 8, by figure and policy (`init` is supervised pre-training), and table 9, by
    population and noise.

    Table 9 is of Softmax from scratch under a fixed clipping norm.

    >>> printed()["fig1a"]["falcon"], printed()["tags"]["0.3"].client
    (Printed(server=0.002, client=0.1, explore='mu 12, gamma 1000'), 2.0)
    """
    tables: dict[str, dict[str, Printed]] = {}
    with files(__package__).joinpath("printed.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            values = Printed(float(row["server"]), float(row["client"]), row["explore"])
            tables.setdefault(row["of"], {})[row["line"]] = values
    return tables


CLIPS = {"images": 0.1, "tags": 0.8}
"""Clipping norms of table 9."""

NOISES = {"images": (0.01, 0.1), "tags": (0.3, 0.7)}
"""Noise multipliers of figure 4, small and large."""

OPTIMISER = {"tags": (0.81, 0.62)}
"""Section 5.2, Softmax in init-shift: reward with Adam and with SGD at the server; on EMNIST "no
change".
"""

WEIGHTED = {"images": (0.71, 0.60), "tags": (0.72, 0.47)}
"""Section 5.2, epsilon-Greedy in init-shift: reward without and with importance weights."""


# Sizes.

FORM = "POSSE_FED_CONTEXTUAL_FORM"
"""Environment variable that names the size of a full run: brief (if unset), paper or printed."""

Supervised = tuple[float, float, str]
"""Pre-training: rate of clients, rate of the server, its optimiser."""


@dataclass(frozen=True)
class Size:
    """How long, with how many clients, with which model and over which rates."""

    data: str
    """The population, as settings name it, or a stand-in."""
    arms: int
    rounds: int
    """Of both phases together, as the paper counts them."""
    before: int
    """Of pre-training, where there is some."""
    pretrained: int
    """Clients of pre-training."""
    cohort: int
    seldom: int
    """Rounds between deployments."""
    often: int
    """The same where models are deployed five times as often."""
    client_rates: tuple[float, ...]
    server_rates: tuple[float, ...]
    sgd_rates: tuple[float, ...]
    """Of the server, where it descends without Adam."""
    supervised: dict[str, Supervised]
    """By scenario."""
    clip: float
    noises: tuple[float, float]
    model: str = "auto"
    hidden: int = 128
    channels: tuple[int, int] = (32, 64)
    scale: int = 10
    """How often the clients of a round are taken where noise grows with them."""

    def phase(self, scenario: str) -> int:
        """Rounds of the bandit phase."""
        return self.rounds if scenario == "scratch" else self.rounds - self.before


@dataclass(frozen=True)
class Form:
    """A size for images and one for tags, the exploration that is tried, and the seeds."""

    name: str
    images: Size
    tags: Size
    choose: tuple[int, ...]
    """Seeds on which hyper-parameters are chosen."""
    report: tuple[int, ...]
    """Seeds that are reported: 1, 2, ..."""
    more: Mapping[str, int] = field(default_factory=dict)
    """Patterns of lines that are reported on more seeds, and on how many; the first that fits
    counts.
    """
    epsilons: tuple[float, ...] = (0.05, 0.1)
    betas: tuple[float, ...] = (0.05, 0.1)
    falcons: tuple[tuple[float, float], ...] = ((1, 1000), (1, 5000))
    """(mu in units of K / 5, gamma)"""
    whole: bool = False
    """Whether the paper's own data are taken where they are found."""
    as_printed: bool = False
    """Whether hyper-parameters are those of the paper's tables, so that none are chosen."""

    def __post_init__(self) -> None:
        both = set(self.choose) & set(range(1, 1 + max((len(self.report), *self.more.values()))))
        if both or not self.choose or len(self.report) < 2:
            raise ConfigError(
                "hyper-parameters are chosen on other seeds than those reported, of which there "
                "are two or more, got "
                f"{self.choose} and {self.report}. Take others."
            )

    def seeds(self, line: str) -> tuple[int, ...]:
        """Give the seeds on which a line is reported.

        >>> SMALL.seeds("fig1a-softmax"), len(BRIEF.seeds("fig1a-softmax"))
        ((1, 2, 3), 20)
        """
        count = next(
            (count for pattern, count in self.more.items() if fnmatchcase(line, pattern)), 0
        )
        return tuple(range(1, count + 1)) or self.report

    def size(self, kind: str) -> Size:
        """Give the size for images or for tags."""
        return {"images": self.images, "tags": self.tags}[kind]

    def explorations(self, policy: str, arms: int) -> tuple[dict[str, float], ...]:
        """Give the values of a policy's exploration that are tried.

        >>> SMALL.explorations("falcon", 50)
        ({'mu': 10.0, 'gamma': 1000}, {'mu': 10.0, 'gamma': 5000})
        """
        tried: dict[str, tuple[dict[str, float], ...]] = {
            "greedy": ({},),
            "epsilon-greedy": tuple({"epsilon": epsilon} for epsilon in self.epsilons),
            "softmax": tuple({"beta": beta} for beta in self.betas),
            "falcon": tuple(
                {"mu": times * arms / 5, "gamma": gamma} for times, gamma in self.falcons
            ),
        }
        return tried[policy]


_IMAGES: dict[str, Supervised] = {"init": (0.5, 0.5, "sgd"), "init-shift": (0.5, 0.5, "sgd")}
_TAGS: dict[str, Supervised] = {"init": (0.2, 0.05, "adam"), "init-shift": (0.05, 0.05, "adam")}

SMALL = Form(
    "small",
    Size(
        "letters",
        10,
        40,
        10,
        15,
        10,
        10,
        2,
        (0.03,),
        (0.01, 0.03),
        (1.0, 3.0),
        {"init": (0.2, 0.05, "adam"), "init-shift": (0.2, 0.05, "adam")},
        0.1,
        (0.1, 1.0),
        "linear",
    ),
    Size(
        "bags",
        20,
        40,
        10,
        15,
        10,
        10,
        2,
        (0.5,),
        (0.02, 0.05),
        (1.0, 3.0),
        _TAGS,
        0.8,
        (0.3, 0.7),
        scale=5,
    ),
    choose=(101,),
    report=(1, 2, 3),
)
"""Digits and made-up texts, a linear model, few rounds: for checking that everything runs."""

_MORE = {
    "fig1a-*": 20,
    "fig4-*": 20,
    "fig1c-softmax": 20,
    "fig1[cd]-*": 10,
    "sec5_2-images-*": 10,
    "fig2*": 40,
    "sec5_2-tags-*": 40,
    "noise-*": 20,
}
"""Seeds differ most for images from scratch; figure 3 bounds a spread; and tags cost little."""

BRIEF = Form(
    "brief",
    Size(
        "emnist",
        62,
        400,
        100,
        100,
        32,
        100,
        20,
        (0.1, 0.2),
        (0.002, 0.005, 0.01),
        (0.5, 1.0, 2.0),
        _IMAGES,
        CLIPS["images"],
        NOISES["images"],
        hidden=64,
        channels=(16, 32),
    ),
    Size(
        "stackexchange",
        50,
        400,
        100,
        100,
        32,
        100,
        20,
        (0.2, 1.0),
        (0.01, 0.02, 0.05),
        (0.5, 1.0, 2.0),
        _TAGS,
        CLIPS["tags"],
        NOISES["tags"],
    ),
    choose=(101,),
    report=(1, 2, 3, 4, 5),
    more=_MORE,
    betas=(0.05, 0.1, 0.02),
    falcons=((1, 1000), (1, 5000), (10, 1000)),
)
"""For about half an hour of one GPU: half the paper's clients a round and rounds (a quarter for
tags), as many deployments, a convolutional network of half its width, and six pairs of rates.
"""

PAPER = Form(
    "paper",
    Size(
        "emnist",
        62,
        800,
        100,
        100,
        64,
        200,
        40,
        (0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
        (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
        (0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
        _IMAGES,
        CLIPS["images"],
        NOISES["images"],
    ),
    Size(
        "stackexchange",
        50,
        1600,
        100,
        100,
        64,
        200,
        40,
        (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
        (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
        (0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
        _TAGS,
        CLIPS["tags"],
        NOISES["tags"],
    ),
    choose=(101, 102),
    report=(1, 2, 3, 4, 5),
    more=_MORE,
    betas=(0.02, 0.05, 0.1),
    falcons=tuple((times, gamma) for times in (1, 10, 100) for gamma in (1000, 5000)),
    whole=True,
)
"""The paper's rounds, clients a round, network and grids (its appendix A), and its data where they
are found.
"""

WHOLE = {"emnist": "femnist", "stackexchange": "stackoverflow"}
"""What the paper has where there is a smaller population here."""

PRINTED = replace(PAPER, name="printed", more={}, as_printed=True)
"""The paper's rounds, clients a round and network, with the hyper-parameters of its tables 1 to 9:
no grid to run.
"""

FULL = {form.name: form for form in (BRIEF, PAPER, PRINTED)}


def form_of(small: bool) -> Form:
    """Give the small form, or the full one that the environment names."""
    if small:
        return SMALL
    name = os.environ.get(FORM, "brief")
    check.one_of(tuple(FULL), **{FORM: name})
    return FULL[name]
