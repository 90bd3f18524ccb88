"""Which contexts: the settings that name a contextual problem, and the contexts they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from posse.core import check
from posse.core.fixed import RewardRange
from posse.core.settings import External
from posse.problems.contexts.contexts import (
    Bounds,
    Contexts,
    check_count,
    party_names,
    read_features,
)
from posse.problems.contexts.images import (
    COMPONENTS,
    SIGMA,
    Labelled,
    Normalise,
    digits,
    kernel_means,
    kmeans,
    mnist,
    shared,
)
from posse.problems.data import DataSettings
from posse.problems.datasets.files import data_folder
from posse.problems.datasets.mnist import find_mnist
from posse.problems.requirements import Floats, Requirement, check_all
from posse.problems.tables.mapping import read_pairs

PROBLEMS = {
    "digits": "1,797 images of digits that come with scikit-learn; ten arms, one per digit; no "
    "download",
    "mnist": "60,000 images of digits (MNIST); ten arms, one per digit",
    "clusters": "any number of arms: clusters of the digits or of MNIST, which pay where an "
    "image is near",
    "own": "your own features, a CSV file a party, and a CSV file of rewards",
}
"""Descriptions of contextual problems."""

_CLUSTERS = ("base", "arms", "sigma", "normalise", "cluster_seed")
_OWN = ("bounds", "scale", "reward_range")
_BUILT_IN = ("components", "norms", "columns")


class ContextSettings(DataSettings):
    """Where contexts come from: images that are split over parties, or features from each party.

    Your own are `data={"features": {"clinic": ..., "lab": ...}, "rewards": ...}`, each a CSV file
    or a frame.
    """

    panel: ClassVar[str] = "What is learnt"
    aliases: ClassVar[Mapping[str, str]] = {
        "problem": "data",
        "features": "data.features",
        "rewards": "data.rewards",
    }
    parts: ClassVar[tuple[str, ...]] = ("features", "rewards")
    tables: ClassVar[tuple[str, ...]] = ("features",)
    part_help: ClassVar[Mapping[str, str]] = {
        "features": "CSV files of your own, party=file,party=file: a column row, and a column a "
        "feature.",
        "rewards": "CSV file of what arms pay: a column row, and a column an arm with the chance "
        "of a reward, or "
        "with --reward-range what it pays.",
    }
    own_words: ClassVar[str] = "a table of features (a file or frame a party) and rewards"

    data: Annotated[Any, External.except_for(PROBLEMS)] = "digits"
    """Which problem: digits, mnist, clusters; or your own, a table of features and rewards."""
    data_dir: Path | None = None
    """Folder of the data sets; else the one that POSSE_DATA names."""
    components: int = COMPONENTS
    """Principal components of an image that are its features."""
    rows: int | None = None
    """Use the first rows only; all of them if left out."""
    parties: int = 2
    """Number of parties that the features are split over, evenly."""
    columns: tuple[int, ...] | None = None
    """Number of features that each party holds, such as 15,5, instead of an even split."""
    norms: Bounds = "joint"
    """How rows are kept within norm 1: joint (rows of norm 1, which only a simulation can check) or
    declared (each party scales its own part down to its share of the norm).
    """
    base: Literal["digits", "mnist"] = "digits"
    """Images that are clustered."""
    arms: int = 100
    """Number of clusters, one per arm."""
    sigma: float = SIGMA
    """How far a cluster pays: the chance is exp(-distance^2 / (2 sigma))."""
    normalise: Normalise = "none"
    """Whether the chances of a row are scaled: none, max (the best arm always pays) or sum (they
    add up to 1).
    """
    cluster_seed: int = 1
    """Seed of the clustering: the same number gives the same arms."""
    bounds: dict[str, float] | None = None
    """Largest norm of each party's part of a row, party=number,party=number; squares add up to at
    most 1; by its share of the features if left out.
    """
    scale: bool = False
    """Scale longer rows of your own features down to the bound, instead of refusing them."""
    reward_range: tuple[float, float] | None = None
    """Least and largest reward, such as -5,20: your file of rewards then holds exactly what arms
    pay, in this range, and not chances of a reward of 1.
    """

    @field_validator("bounds", mode="before")
    @classmethod
    def _bound_pairs(cls, value: object) -> object:
        if isinstance(value, str | list | tuple):
            return read_pairs(value, "bounds", "clinic=0.6,lab=0.8")
        return value

    @model_validator(mode="after")
    def _check_contexts(self) -> Self:
        of = f" for {'own' if self.own_data else self.data}"
        check.at_least(1, components=self.components)
        check.at_least(1, rows=1 if self.rows is None else self.rows)
        if self.data != "clusters":
            self.leave_out(_CLUSTERS, "clusters", of)
        if self.own_data:
            self.leave_out(_BUILT_IN, "the problems that Posse makes", of)
            check_all(self, _OWN_FILES)
            RewardRange.of(self.reward_range)
            self.check_files()
        else:
            self.check_name({name: what for name, what in PROBLEMS.items() if name != "own"})
            self.leave_out(_OWN, "your own files (own)", of)
            check_all(self, _SPLIT)
            check_count(self._count)
        return self

    @property
    def own_data(self) -> bool:
        """Whether the features are a user's own."""
        return isinstance(self.data, dict) or self.data == "own"

    def _find_files(self) -> Iterable[Path]:
        return find_mnist(self.data_dir) if self._images == "mnist" else ()

    @property
    def _images(self) -> str:
        """Name of the images that contexts are made of, or that are clustered."""
        return self.base if self.data == "clusters" else str(self.data)

    def contexts(self) -> Contexts:
        """Make the contexts, once.

        >>> contexts = ContextSettings(rows=500, parties=3).contexts()
        >>> contexts.parties, [len(block.columns) for block in contexts.blocks]
        (('party-1', 'party-2', 'party-3'), [7, 7, 6])
        """
        return self.cached("contexts", self._own if self.own_data else self._built_in)

    def _built_in(self) -> Contexts:
        names = party_names(self._count)
        folder = None
        if self._images == "mnist":
            folder = str(data_folder(self.data_dir).resolve())
        images = _read_images(folder, self.components, self.rows)
        if self.data != "clusters":
            return images.contexts(names, self.columns, self.norms)
        centres = _centres(images, self.arms, self.cluster_seed)
        means = kernel_means(images.rows, centres, self.sigma, self.normalise)
        arms = tuple(f"cluster-{k + 1}" for k in range(self.arms))
        return shared(
            f"clusters of {images.name}", images.rows, arms, means, names, self.columns, self.norms
        )

    def used(self, contexts: Contexts) -> dict[str, int]:
        """Return what was used where a setting was left out, for the record of a run.

        >>> settings = ContextSettings(columns=(15, 5))
        >>> settings.used(settings.contexts())
        {'rows': 1797, 'parties': 2}
        """
        return {"rows": len(contexts), "parties": len(contexts.parties)}

    @property
    def _count(self) -> int:
        """Number of parties that hold the features of images."""
        return self.parties if self.columns is None else len(self.columns)

    def _own(self) -> Contexts:
        contexts = read_features(
            self.data_part("features"),
            self.data_part("rewards"),
            bounds=self.bounds,
            scale=self.scale,
            pays=None if self.reward_range is None else RewardRange.of(self.reward_range),
            options=self.read_options(),
        )
        return contexts if self.rows is None else contexts.first(self.rows)


_OWN_FILES: tuple[Requirement[ContextSettings], ...] = (
    Requirement(
        "problems.data.missing-part",
        lambda contexts: not contexts.missing_parts,
        lambda contexts: (
            "own files are features and rewards, got no "
            f"{' and no '.join(contexts.missing_parts)}. Give both."
        ),
    ),
    Requirement(
        "problems.parties.not-the-features",
        lambda contexts: (
            "parties" not in contexts.model_fields_set
            or contexts.parties == len(contexts.data_part("features"))
        ),
        lambda contexts: (
            f"parties must be those of the features, got {contexts.parties} for "
            f"{len(contexts.data_part('features'))} files. Leave parties out."
        ),
    ),
)
_SPLIT: tuple[Requirement[ContextSettings], ...] = (
    Requirement(
        "problems.columns.not-parties",
        lambda contexts: (
            contexts.columns is None
            or "parties" not in contexts.model_fields_set
            or contexts.parties == len(contexts.columns)
        ),
        lambda contexts: (
            f"columns must be one count per party, got {contexts.columns} for {contexts.parties} "
            "parties. Change one."
        ),
    ),
)


@lru_cache(maxsize=8)
def _read_images(folder: str | None, components: int, rows: int | None) -> Labelled:
    """Return MNIST of a folder, or the digits.

    The same arguments give the same object, so that `_centres` can keep its centres.
    """
    images = digits(components) if folder is None else mnist(folder, components=components)
    return images.first(rows)


@lru_cache(maxsize=8)
def _centres(images: Labelled, arms: int, seed: int) -> Floats:
    return kmeans(images.rows, arms, seed)
