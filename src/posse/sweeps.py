"""Sweeps: many settings, each run once, on processes, on any executor, or on a Dask cluster.

>>> from posse.systems.samba.settings import Samba
>>> grid = grid_of(Samba, {"owners": 3}, {"policy": ["ucb", "softmax"], "tau": [0.05, 0.1]})
>>> [(one.policy, one.tau) for one in grid]
[('ucb', None), ('ucb', None), ('softmax', 0.05), ('softmax', 0.1)]
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from posse._executors import each_done
from posse.core import check
from posse.core.errors import ConfigError, DataError, MissingExtraError, PosseError
from posse.core.statistics import Band, band, standard_error
from posse.results import plots, words
from posse.results.record import Record
from posse.results.render import fragment
from posse.results.section import Section
from posse.results.store import Store
from posse.systems.base import RunSettings
from posse.systems.registry import run as run_settings
from posse.systems.registry import system_of
from posse.version import __version__

S = TypeVar("S", bound=RunSettings)
Run = Callable[[Any], Record]
"""What a worker does with settings; it must be importable there."""
Over = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
"""A grid, of which every combination is run, or a list of changes."""
Watch = Callable[[int, int], None]
"""Called with the number of settings that are done, and of how many."""

DIGEST = "digest"
"""Under this key of its summary a record keeps the digest of its settings, by which it is found
again.
"""
MEASURED = ("seed", "total", "regret", "seconds")
"""Columns of one run, next to the parameters."""


class SweepError(PosseError):
    """Some settings of a sweep failed; `sweep` holds the others."""

    code = "P120"

    def __init__(self, message: str, sweep: Sweep) -> None:
        super().__init__(message)
        self.sweep = sweep


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C; `sweep` holds the records of what was done."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__("interrupted")
        self.sweep = sweep


def sweep(
    settings: RunSettings | Iterable[RunSettings] | Sweep,
    over: Over | None = None,
    runs: int | None = None,
    *,
    executor: Executor | str | None = None,
    store: Store | str | Path | None = None,
    workers: int | None = None,
    watch: Watch | None = None,
    errors: Literal["raise", "keep"] = "raise",
    run: Run = run_settings,
) -> Sweep:
    """Run settings, varied by `over`, and return what came out.

    `over` is a grid, such as `{"policy": ["ucb", "softmax"], "tau": [0.05, 0.1]}`, or a list of
    changes. A parameter that a policy lacks is left out, and equal settings run once. `runs` is the
    number of runs of each. Settings run as their plain twins where those earn the same, bit for
    bit; state `path`, such as path="roles", to run the protocol (`plain_where_equal`).

    They run on `workers` processes (as many as there are cores; 1 is this process), on any
    `concurrent.futures.Executor`, or on a Dask cluster by the address of its scheduler, such as
    "tcp://10.0.0.1:8786". With a `store` every record is saved as soon as it is there, and settings
    of which it holds a finished record (same settings, data, seeds and version of Posse) are not
    run again. Ctrl-C raises `SweepInterrupted`, which holds what was done. A setting that fails
    does not end the others; at the end it raises `SweepError`, or with `errors="keep"` stands in
    `Sweep.errors`; so do settings that a cluster or an executor lost. Given a `Sweep` instead of
    settings, such as that of an error, it runs what is missing there and returns the whole. A
    script that uses processes calls this under `if __name__ == "__main__":`.
    """
    check.one_of(("raise", "keep"), errors=errors)
    if executor is not None and workers is not None:
        raise ConfigError(
            "workers are the processes that a sweep starts itself, got an executor too. Give one."
        )
    if workers is not None:
        check.at_least(1, workers=workers)
    result = _begin(settings, over, runs, plain=run is run_settings)
    _check_settings(result.settings.values())
    if store is not None and not isinstance(store, Store):
        store = Store(store)
    if store is not None:
        _join_stored(result, store)
    result.kept = len(result.done)
    total = len(result.settings)
    if watch is not None:
        watch(result.kept, total)
    tasks = [
        (digest, one, run) for digest, one in result.settings.items() if digest not in result.done
    ]
    try:
        with closing(each_done(_run_one, tasks, executor=executor, workers=workers)) as ended:
            for number, future in ended:
                digest = tasks[number][0]
                error = future.exception()
                if isinstance(error, Exception):
                    result.failed[digest] = error
                else:
                    result.done[digest] = future.result()
                    result.run += 1
                    if store is not None:
                        store.save(result.done[digest])
                if watch is not None:
                    watch(len(result.done) + len(result.failed), total)
    except KeyboardInterrupt as stop:
        raise SweepInterrupted(result) from stop
    if result.failed and errors == "raise":
        raise SweepError(result.complaint, result) from next(iter(result.failed.values()))
    return result


def _check_settings(varied: Collection[RunSettings]) -> None:
    """Refuse an empty sweep, and settings that write a file: every run would overwrite it."""
    if not varied:
        raise ConfigError("a sweep needs at least one setting, got none.")
    for settings in varied:
        for name in settings.writes:
            if getattr(settings, name) is not None:
                raise ConfigError(
                    f"{name} is written by one run, got a sweep. Leave it out, and run again what "
                    "you choose."
                )


def _join_stored(result: Sweep, store: Store) -> None:
    """Take finished records from a store, and save there what an earlier sweep has done."""
    stored = _stored(store, result.settings)
    for digest, record in result.done.items():
        if digest not in stored:
            store.save(record, replace=True)
    result.done |= stored


# What came out.


@dataclass(eq=False)
class Sweep:
    """Settings and, by the same digests, records of those that were run and errors of those that
    failed.
    """

    settings: dict[str, RunSettings]
    """By digest, in order; equal ones once."""
    parameters: tuple[str, ...]
    """Names of the settings that vary."""
    done: dict[str, Record] = field(default_factory=dict)
    failed: dict[str, Exception] = field(default_factory=dict)
    run: int = 0
    """Settings that were run now."""
    kept: int = 0
    """Settings whose record was in the store, or in the sweep that is continued."""

    @property
    def records(self) -> tuple[Record, ...]:
        """Records in the order of the settings, without those that failed or were not started."""
        return tuple(self.done[digest] for digest in self.settings if digest in self.done)

    @property
    def missing(self) -> tuple[RunSettings, ...]:
        """Settings without a record: those that failed, were lost, or were not started."""
        return tuple(one for digest, one in self.settings.items() if digest not in self.done)

    @property
    def errors(self) -> tuple[tuple[RunSettings, Exception], ...]:
        """Settings that failed, each with its error."""
        return tuple(
            (one, self.failed[digest])
            for digest, one in self.settings.items()
            if digest in self.failed
        )

    @property
    def complaint(self) -> str:
        """What failed, in one line."""
        first, error = self.errors[0]
        varied = {name: value for name, value in self.values(first).items() if value is not None}
        said = ", ".join(f"{name} {value}" for name, value in varied.items()) or "what was given"
        why = error.text if isinstance(error, PosseError) else f"{type(error).__name__}: {error}"
        count = f"{len(self.errors)} of {words.count(len(self.settings), 'setting')} failed"
        return (
            f"{count}, {'first' if len(self.errors) > 1 else 'with'} {said}: "
            f"{' '.join(why.split())}"
        )

    def values(self, settings: RunSettings) -> dict[str, Any]:
        """What settings have for the parameters that vary; None for one that has no effect on
        them.
        """
        resolved = _flat(settings) | dict.fromkeys(getattr(settings, "unused", ()))
        return {name: _scalar(resolved.get(name)) for name in self.parameters}

    def rows(self) -> list[dict[str, Any]]:
        """One row a run: a column for each parameter, and seed, total, regret and CPU seconds of
        the run.
        """
        rows = []
        for digest, record in (
            (digest, self.done[digest]) for digest in self.settings if digest in self.done
        ):
            values = self.values(self.settings[digest])
            for number, total in enumerate(record.total):
                seed = record.seeds[number] if record.seeds else None
                regret = None if record.regret is None else float(record.regret[number, -1])
                measured = (seed, total, regret, record.seconds / record.runs)
                rows.append(values | dict(zip(MEASURED, measured, strict=True)))
        return rows

    def frame(self) -> Any:
        """The rows as a pandas frame, or as they are where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            return self.rows()
        return pandas.DataFrame(
            self.rows(), columns=list(dict.fromkeys((*self.parameters, *MEASURED)))
        )

    def _repr_html_(self) -> str:
        """Return the table for a notebook, and the figure where matplotlib is installed."""
        rows = []
        for key, settings in self.settings.items():
            if key in self.done:
                record = self.done[key]
                earned = ""
                if record.total:
                    earned = words.plus_minus(record.total_mean, standard_error(record.total))
                values = [words.words_of(value) for value in self.values(settings).values()]
                time = words.seconds(record.seconds)
                rows.append((*values, str(record.runs), earned, time))
        figures = []
        with suppress(MissingExtraError, DataError):
            title = "Reward by setting"
            figures.append(plots.inline(self.figure(), prefix="posse-sweep", title=title))
        columns = (*self.parameters, "runs", "reward", "CPU time")
        complaint = self.complaint if self.errors else ""
        return fragment(complaint, sections=[Section("", columns, tuple(rows))], figures=figures)

    def write(self, path: str | Path) -> Path:
        """Write the rows as CSV."""
        rows = self.rows()
        if not rows:
            raise DataError(f"there is nothing to write to {path}: no setting was run.")
        target = Path(path)
        with target.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return target

    def figure(self, x: str | None = None, y: str = "total") -> plots.Figure:
        """Draw a measure against a parameter, a line for each combination of the others, with 95 %
        t intervals.

        Settings on which the parameter has no effect are drawn level across the figure.
        """
        check.one_of(MEASURED[1:], y=y)
        if not self.parameters:
            raise DataError(
                "a figure of a sweep needs a setting that varies, and none does. Give over."
            )
        rows = [row for row in self.rows() if row[y] is not None]
        if not rows:
            raise DataError(
                f"a figure needs at least one run with a {y}, and no setting was run that has one."
            )
        if x is None:
            numeric = (name for name in self.parameters if _numeric(row[name] for row in rows))
            x = next(numeric, self.parameters[0])
        check.one_of(self.parameters, x=x)
        names = list(dict.fromkeys(row[x] for row in rows if row[x] is not None)) or [""]
        places: list[Any] = list(range(len(names)))
        if _numeric(names):
            names.sort()
            places = names
        figure = plots.blank()
        ax = plots.axes(figure, x=x, y=y)
        for line, (label, values) in enumerate(self._lines(rows, x, y).items()):
            if set(values) == {None}:
                values = dict.fromkeys(names, values[None])
            drawn = [number for number, name in enumerate(names) if name in values]
            where = np.array([places[number] for number in drawn])
            bands = [band(values[names[number]]) for number in drawn]
            whole = Band(
                np.array([each.mean for each in bands]),
                np.array([each.low for each in bands]),
                np.array([each.high for each in bands]),
                bands[0].runs,
                bands[0].what,
            )
            colour = plots.SERIES[line % len(plots.SERIES)]
            plots.draw_band(ax, where, whole, line, plots.text(label, limit=72))
            ax.plot(where, whole.mean, "o", markersize=4, color=colour)
        if places is not names:
            ax.set_xticks(places, [plots.text(str(name)) for name in names])
        plots.legend(figure, ax, f"band: {whole.what}")
        return figure

    def _lines(
        self, rows: list[dict[str, Any]], x: str, y: str
    ) -> dict[str, dict[Any, list[float]]]:
        """Return the values of y by x, for each combination of the other parameters."""
        lines: dict[str, dict[Any, list[float]]] = {}
        for row in rows:
            others = [name for name in self.parameters if name != x and row[name] is not None]
            label = ", ".join(f"{name} {row[name]}" for name in others) or y
            lines.setdefault(label, {}).setdefault(row[x], []).append(row[y])
        return lines


def _scalar(value: Any) -> Any:
    if isinstance(value, Mapping) and "name" in value:
        return value["name"]
    return (
        value
        if value is None or isinstance(value, str | int | float)
        else json.dumps(value, default=str)
    )


def _numeric(values: Iterable[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    )


# Which settings.


def grid_of(kind: type[S], given: Mapping[str, Any], grid: Over) -> Iterator[S]:
    """Make the settings of a grid, or of a list of changes, beside what is given for all.

    A parameter that a policy lacks is left out, where another policy of the sweep has it.
    """
    if not _several(grid) or not (
        isinstance(grid, Mapping) or all(isinstance(one, Mapping) for one in grid)
    ):
        raise ConfigError(
            f"over is a table of lists or a list of tables, got {grid!r}. Write {{'policy': "
            f"['ucb']}}."
        )
    if isinstance(grid, Mapping):
        for values in grid.values():
            if isinstance(values, Mapping) or not _several(values):
                raise ConfigError(
                    f"over gives a list of values for each setting, got {values!r}. Write "
                    f"[{values!r}]."
                )
        cells = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    else:
        cells = [dict(one) for one in grid]
    lacking = [_lacking(kind, given, cell) for cell in cells]
    beside = (
        [_lacking(kind, {}, given)]
        if any(kind.aliases.get(name, name) == "policy" for name in given)
        else []
    )
    never = set.intersection(*lacking, *beside) if cells else set()
    for cell, lacks in zip(cells, lacking, strict=True):
        yield kind(
            **{
                name: value
                for name, value in kind.merged(given, cell).items()
                if name not in lacks - never
            }
        )


def _several(given: Any) -> bool:
    """Whether this is a list of values, and not one."""
    return isinstance(given, Iterable) and not isinstance(given, RunSettings | str)


def _lacking(
    kind: type[RunSettings], given: Mapping[str, Any], cell: Mapping[str, Any]
) -> set[str]:
    """Names of settings that have no effect in a cell: parameters of other policies, or what the
    class calls unused.
    """
    table, lacks = {**given, **cell}, set()
    if registry := getattr(kind, "registry", None):
        parameters, policy = (
            set(registry.settings_fields()),
            table.get("policy", kind.model_fields["policy"].default),
        )
        named, beside, _ = registry.parts(policy)
        lacks = parameters - set(registry.parameters_of(policy))
        if "policy" in cell and (beside or isinstance(named, registry.base)):  # it states its own
            lacks |= parameters - set(cell)
    if hasattr(kind, "unused"):
        stated = {kind.aliases.get(name, name): value for name, value in table.items()}
        fields = {name: field for name, field in kind.model_fields.items() if name in stated}
        blank = kind.model_construct(
            **{name: _read(field, stated[name]) for name, field in fields.items()}
        )
        lacks |= {
            name
            for name in (*kind.model_fields, *kind.aliases)
            if kind.aliases.get(name, name) in blank.unused
        }
    return lacks


def _read(field: Any, value: Any) -> Any:
    """A value as its field reads it, such as a number from the words of a command line; else as it
    is.
    """
    try:
        return TypeAdapter(field.annotation).validate_python(value)
    except ValidationError:
        return value


def _varied(
    settings: RunSettings | Iterable[RunSettings], over: Over | None, runs: int | None
) -> Iterator[RunSettings]:
    bases: list[Any] = list(settings) if _several(settings) else [settings]
    for base in bases:
        if not isinstance(base, RunSettings):
            raise ConfigError(
                f"expected settings, such as posse.Samba(), or a list of them, got {base!r}."
            )
        given = {name: getattr(base, name) for name in base.model_fields_set}
        yield from grid_of(
            type(base),
            given | ({} if runs is None else {"runs": runs}),
            [{}] if over is None else over,
        )


def plain_where_equal(settings: Sequence[RunSettings]) -> list[RunSettings]:
    """Replace settings by their plain twins where protection does not change the result.

    This holds for systems with exact twins (`About.exact`). Settings stay as they are if they state
    how they run, such as path="roles", or if their sweep compares protections.

    >>> from posse.systems.samba.settings import Samba
    >>> grid = [Samba(owners=3), Samba(owners=3, path="roles")]
    >>> [(one.protection, plain.protection) for one, plain in zip(grid, plain_where_equal(grid))]
    [('strict', 'plain'), ('strict', 'strict')]
    """
    protections: dict[str, set[str]] = {}
    for one in settings:
        protections.setdefault(one.system, set()).add(one.protection)
    made = []
    for one in settings:
        exact = system_of(one).about.exact and len(protections[one.system]) == 1
        made.append(_twin_unless_stated(one) if exact else one)
    return made


def _twin_unless_stated(settings: RunSettings) -> RunSettings:
    """Return the plain twin, unless a setting that the twin changes was stated."""
    stated = settings.model_fields_set.intersection(changed_by_twin(settings))
    return settings if stated else settings.plain()


def changed_by_twin(settings: RunSettings) -> list[str]:
    """Return the names of the settings that the plain twin changes, such as `path`."""
    twin = settings.plain()
    names = type(settings).model_fields
    return [name for name in names if getattr(twin, name) != getattr(settings, name)]


def _begin(
    settings: RunSettings | Iterable[RunSettings] | Sweep,
    over: Over | None,
    runs: int | None,
    *,
    plain: bool,
) -> Sweep:
    """Return a sweep of which nothing is run, or what was done of one that is continued.

    `plain` replaces settings by their plain twins where that does not change the result.
    """
    if not isinstance(settings, Sweep):
        each = list(_varied(settings, over, runs))
        if plain:
            each = plain_where_equal(each)
        varied = {one.digest(): one for one in each}
        return Sweep(varied, _parameters(list(varied.values()), over) if varied else ())
    if over is not None or runs is not None:
        raise ConfigError(
            "a sweep that is continued has its settings, got over or runs too. Leave them out."
        )
    return Sweep(settings.settings, settings.parameters, dict(settings.done))


def _flat(settings: RunSettings) -> dict[str, Any]:
    """What settings have, with a column for each parameter of a policy of one's own."""
    found = {"system": settings.system, **settings.resolved()}
    policy = found.get("policy")
    own = policy.get("parameters", {}) if isinstance(policy, Mapping) else {}
    named = {
        f"policy.{name}" if name in (*found, *MEASURED) else name: value
        for name, value in own.items()
    }
    return {**found, **named, "policy": _scalar(policy)}


def _parameters(settings: Sequence[RunSettings], over: Over | None) -> tuple[str, ...]:
    """Names of what is varied: what `over` names, and what differs."""
    resolved = [_flat(one) for one in settings]
    stated = [name for one in ([over] if isinstance(over, Mapping) else over or ()) for name in one]
    named = [type(settings[0]).aliases.get(name, name).partition(".")[0] for name in stated]
    every = dict.fromkeys(name for one in resolved for name in one)
    differ = [
        name for name in every if any(one.get(name) != resolved[0].get(name) for one in resolved)
    ]
    return tuple(dict.fromkeys((*named, *differ)))


def _stored(store: Store, varied: Mapping[str, RunSettings]) -> dict[str, Record]:
    """Finished records of these settings that a store holds, by digest."""
    systems = {one.system for one in varied.values()}
    rows = [row for row in store.list() if (row.status, row.version) == ("finished", __version__)]
    heads = store.heads(row.id for row in rows if row.kind in systems)
    held = {
        str(digest): id
        for id, head in heads.items()
        if (digest := head.summary.get(DIGEST)) in varied
    }
    return {digest: store.get(id) for digest, id in held.items()}


def _run_one(task: tuple[str, RunSettings, Run]) -> Record:
    """Run settings, in a worker; the record keeps their digest."""
    digest, settings, run = task
    record = run(settings)
    return record.but(summary={**record.summary, DIGEST: digest})
