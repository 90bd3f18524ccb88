"""Lists of the data that Posse can learn from, one for each kind that systems use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from posse.core.check import require
from posse.core.errors import DataError, MissingExtraError
from posse.core.listing import Listing
from posse.problems.arms.settings import INVENTED
from posse.problems.contexts.settings import PROBLEMS
from posse.problems.datasets.mnist import HOME as MNIST_HOME
from posse.problems.datasets.mnist import load_mnist
from posse.problems.datasets.published import EMBEDDED, SIZE
from posse.problems.datasets.ratings import DATASETS
from posse.problems.markets.instances import INSTANCES
from posse.problems.populations.settings import POPULATIONS

_COLUMNS = ("--data", "ready", "what it is")


def listing(kind: str, folder: Path | None) -> Listing | None:
    """Return the data of a kind, as `About.problems` names it; None for an unknown kind.

    Args:
        kind: The kind of data.
        folder: The folder of the data sets; by default the one that POSSE_DATA names.
    """
    return _LISTS[kind](folder) if kind in _LISTS else None


def _arms(folder: Path | None) -> Listing:
    stores = "ratings of 8 invented stores by 320 invented people, with age and neighbourhood"
    entries = [
        *(_entry(f"embedded:{name}", f"{SIZE} published means") for name in EMBEDDED),
        _entry(INVENTED, stores),
    ]
    for name, dataset in DATASETS.items():
        entries.append(_entry(name, dataset.description, _why_no_ratings(name, folder)))
    own_files = (
        ("FILE.csv", "yours", "columns name,mean, or item,rating with --threshold (and --where)"),
        ("FILE.json.gz", "yours", "Steam or Google Local reviews as published, with --threshold"),
    )
    return _listing("Arms", entries, own_files)


def _contexts(folder: Path | None) -> Listing:
    entries = [
        _entry(name, what, _why_no_contexts(name, folder)) for name, what in PROBLEMS.items()
    ]
    return _listing("Contexts", entries)


def _listing(
    title: str, entries: list[dict[str, Any]], own_files: tuple[tuple[str, ...], ...] = ()
) -> Listing:
    """Return a listing with the reasons why data are not ready."""
    reasons = (f"{entry['name']}: {entry['reason']}" for entry in entries if entry["reason"])
    rows = (*map(_row, entries), *own_files)
    return Listing(title, _COLUMNS, rows, tuple(entries), notes=tuple(reasons))


def _markets(folder: Path | None) -> Listing:
    own_files = (
        (
            "offers=FILE.csv",
            "yours",
            "columns agent,supplier,cost,capacity; and one of the two below",
        ),
        (
            "qualities=FILE.csv",
            "yours",
            "columns supplier,quality: a row per supplier; random units",
        ),
        ("records=FILE.csv", "yours", "columns supplier,quality: a row per past unit, in order"),
    )
    return Listing(
        "Markets",
        _COLUMNS,
        (*((name, "yes", f"random: {what}") for name, what in INSTANCES.items()), *own_files),
        tuple({"name": name, "ready": True, "what": what} for name, what in INSTANCES.items()),
    )


def _populations(folder: Path | None) -> Listing:
    return Listing(
        "Devices",
        ("--data", "what it is"),
        (*POPULATIONS.items(), ("FILE.csv, FILE.npz", "the same as own and prepared")),
        tuple({"name": name, "what": what} for name, what in POPULATIONS.items()),
    )


def _entry(name: str, what: str, reason: str = "") -> dict[str, object]:
    return {"name": name, "ready": not reason, "what": what, "reason": reason}


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    ready = "yes" if entry["ready"] else "no"
    return entry["name"], "yours" if entry["name"] == "own" else ready, entry["what"]


def _why_no_ratings(name: str, folder: Path | None) -> str:
    """Return why a data set of ratings cannot be read; empty if it can."""
    if _no_folder(folder):
        return _where_to_get(DATASETS[name].source)
    try:
        DATASETS[name].check(folder)
    except DataError as error:
        return str(error)
    return ""


def _why_no_contexts(name: str, folder: Path | None) -> str:
    """Return why a contextual problem cannot be made; empty if it can."""
    if name == "mnist" and _no_folder(folder):
        return _where_to_get(MNIST_HOME)
    try:
        if name in ("digits", "clusters"):
            require("sklearn", extra="data")
        if name == "mnist":
            load_mnist(folder)
    except (DataError, MissingExtraError) as error:
        return str(error)
    return ""


def _no_folder(folder: Path | None) -> bool:
    return folder is None and not os.environ.get("POSSE_DATA")


def _where_to_get(source: str) -> str:
    return f"get it from {source} and set POSSE_DATA (or --data-dir) to the folder that holds it."


_LISTS: dict[str, Callable[[Path | None], Listing]] = {
    "arms": _arms,
    "contexts": _contexts,
    "markets": _markets,
    "populations": _populations,
}
