"""Keeping what came out: the store, reports and figures, tried before a long run and not only after
it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from posse.cli.flags import INTERRUPTED
from posse.cli.screen import print_json, remark
from posse.core.check import require
from posse.core.errors import ConfigError, DataError, StoreError
from posse.core.files import explain_os_error, open_whole
from posse.core.interrupts import save_on_interrupt

if TYPE_CHECKING:
    from posse.results.record import Record
    from posse.results.store import RunHandle, Store


_PICTURES = (".pdf", ".png", ".svg")


def open_store() -> Store:
    """Open the store of this machine."""
    from posse.results.store import Store

    return Store()


class Keeper:
    """Where the records of one command go; built before the run, so that what cannot work fails at
    once.
    """

    def __init__(
        self,
        *,
        save: bool,
        label: str | None = None,
        report: Path | None = None,
        figure: Path | None = None,
        late: bool = False,
    ) -> None:
        """`late`: the store is opened only when there is something to keep."""
        self._label, self._report, self._figure = label, report, figure
        if label is not None and not label.strip():
            raise ConfigError(
                "label must not be empty. Leave --label out, or give it a word.",
                rule="cli.label.empty",
            )
        if figure is not None and figure.suffix.lower() not in _PICTURES:
            raise ConfigError(
                f"a figure must end in {', '.join(_PICTURES)}, got '{figure.name}'.",
                rule="cli.figure.unknown-format",
            )
        for path in (report, figure):
            check_place(path)
        if report or figure:
            require("matplotlib", extra="plot")
        self._listed: dict[str, RunHandle] = {}
        self.saves = save
        """Whether records are kept in the store."""
        if save and not late:
            self.store  # noqa: B018  a store that cannot be opened is an error before the run

    @cached_property
    def store(self) -> Store | None:
        """The store, or None where nothing is saved."""
        return open_store() if self.saves else None

    def begin(self, head: Record) -> RunHandle | None:
        """List a run that begins, where runs are saved; a store that cannot be written now may be
        when it ends.
        """
        if self.store is not None:
            with suppress(StoreError):
                handle = self.store.begin(self.name(head))
                self._listed[handle.id] = handle
                return handle
        return None

    def name(self, record: Record, handle: RunHandle | None = None) -> Record:
        """Give a record the user's label, and the id under which its run is listed."""
        id = record.id if handle is None else handle.id
        result = record.but(id=id, run_id=id)
        if self._label is None:
            return result
        return result.but(summary={**record.summary, "label": self._label})

    def _save(self, record: Record) -> None:
        handle = self._listed.pop(record.id, None)
        try:
            if handle is not None:
                handle.end(record)
            elif self.store is not None:
                self.store.save(record)
        except StoreError:
            if handle is not None:
                handle.drop()
            raise

    @contextmanager
    def kept(self, records: Sequence[Record]) -> Iterator[None]:
        """Keep records after they were shown: a full store hides no result, a closed pipe (`|
        head`) loses none.
        """
        try:
            with save_on_interrupt(lambda: self._rescued(records)):
                yield
        except (typer.Exit, KeyboardInterrupt) as stop:
            if not records:
                raise
            self._keep(records)
            if cut := isinstance(stop, KeyboardInterrupt):
                remark("interrupted.")
            if self.saves:
                remark(f"what was finished before is saved as {_ids(records)}.")
            raise (typer.Exit(INTERRUPTED) if cut else stop) from stop.__cause__
        except BaseException:
            if records:
                self._keep(records)
            raise
        self._keep(records)

    def _rescued(self, records: Sequence[Record]) -> str:
        """Save what was finished, in another thread than the one that does not look up, and say
        so.
        """
        if self.saves:
            for record in reversed(records):
                self._save(record)
        for handle in self._listed.values():
            handle.drop()
        if not records or not self.saves:
            return ""
        return f"what was finished before is saved as {_ids(records)}"

    def _keep(self, records: Sequence[Record]) -> None:
        """Save records, the first one last so that it is 'last', and write what was asked for."""
        for record in reversed(records):
            if self.saves:
                self._save(record)
        for handle in self._listed.values():  # runs that were only compared with
            handle.drop()
        self._listed.clear()
        for record in records:
            for file in record.shown("wrote"):
                remark(f"wrote {file}")
        saved = "nothing was saved (--no-save)"
        if self.saves:
            saved = f"what was done is saved as {_ids(records)}"
        try:
            with save_on_interrupt(lambda: saved):
                self.draw(records)
        except KeyboardInterrupt as stop:
            remark(f"interrupted; {saved}.")
            raise typer.Exit(INTERRUPTED) from stop

    def draw(self, records: Sequence[Record]) -> None:
        """Write the report and the figure that were asked for."""
        if self._report is not None:
            from posse.results import report

            report(records, self._report)
            remark(f"report: {self._report}")
        if self._figure is not None:
            write_figure(records, self._figure)
            remark(f"figure: {self._figure}")

    @contextmanager
    def on_interrupt(self, json: bool = False) -> Iterator[None]:
        """Keep what an interrupted run had done, say its id and how it continues, and exit with the
        code of Ctrl-C.
        """
        from posse.results.record import Interrupted

        try:
            yield
        except Interrupted as stop:
            record = stop.record
            if json and record.runs:
                print_json(
                    {"interrupted": True, "to_store": self.saves, "records": [record.document()]}
                )
            remark(f"interrupted; {self.interrupted(record)}.")
            raise typer.Exit(INTERRUPTED) from stop

    def interrupted(self, record: Record) -> str:
        """Keep the record of an interrupted run, and return what there is to say of it."""
        resume = str(record.show.get("resume", ""))
        if not record.runs:
            if handle := self._listed.pop(record.id, None):
                handle.drop()
            return resume or "a run had not started, and there is nothing of it to save"
        if self.store is None:
            return resume or "nothing was saved (--no-save)"
        self._save(record)
        text = f"what was done is saved as {record.id} (status: interrupted)"
        return f"{text}; {resume}" if resume else text


def _ids(records: Sequence[Record]) -> str:
    return ", ".join(record.id for record in records)


def write_figure(records: Sequence[Record], path: Path) -> None:
    """Draw regret over the steps, or reward where regret is not known, and write it whole or not at
    all.
    """
    from posse.results import regret_curves, reward_curves

    has_regret = all(record.regret is not None for record in records)
    figure = regret_curves(records) if has_regret else reward_curves(records)
    with open_whole(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower())


def make_folder(folder: Path) -> None:
    """Make a folder where there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot make the folder {folder}: {explain_os_error(error)}",
            rule="cli.folder.not-made",
        ) from error


def check_place(path: Path | None) -> None:
    """Refuse a file that cannot be written, before the work that it is for."""
    if path is None:
        return
    folder = path.expanduser().resolve().parent
    if not folder.is_dir():
        raise DataError(
            f"cannot write {path}: the folder {folder} does not exist. Create it first.",
            rule="cli.path.no-folder",
        )
    if path.is_dir():
        raise DataError(
            f"cannot write {path}: it is a folder. Give the name of a file.",
            rule="cli.path.is-a-folder",
        )
    if not os.access(folder, os.W_OK):
        raise DataError(
            f"cannot write {path}: {folder} is not yours to write. Choose another place.",
            rule="cli.path.not-writable",
        )
