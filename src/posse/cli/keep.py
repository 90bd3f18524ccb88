"""Results of a command: records in the store, reports and figures. A place that cannot be written
is an error before the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
    from posse.results import Record, RunHandle, Store


_PICTURES = (".pdf", ".png", ".svg")


def open_store() -> Store:
    """Open the store of this machine."""
    from posse.results.store import Store

    return Store()


class Keeper:
    """Where the records of one command go."""

    def __init__(
        self,
        *,
        save: bool,
        label: str | None = None,
        report: Path | None = None,
        figure: Path | None = None,
        json: bool = False,
    ) -> None:
        """Check everything before the run.

        Args:
            save: Whether records are kept in the store.
            label: The user's name for the run.
            report: Where to write an HTML page about the records.
            figure: Where to draw the curves.
            json: Whether an interrupted run is printed as JSON.
        """
        if label is not None and not label.strip():
            raise ConfigError(
                "label must not be empty. Leave --label out, or pass a word.",
                rule="cli.label.empty",
            )
        if figure is not None and figure.suffix.lower() not in _PICTURES:
            raise ConfigError(
                f"a figure must end in {', '.join(_PICTURES)}, got '{figure.name}'.",
                rule="cli.figure.unknown-format",
            )
        for path in filter(None, (report, figure)):
            check_place(path)
            require("matplotlib", extra="plot")
        self._json = json
        self._label = {} if label is None else {"label": label}
        self._report = report
        self._figure = figure
        self._listed: dict[str, RunHandle] = {}
        """Runs that the store lists as running, by id."""
        self.saves = save
        self.again = "" if save else "the same command with"
        """The beginning of the command that prints all details, where no record has an id."""
        self.store = open_store() if save else None

    def begin(self, head: Record) -> RunHandle | None:
        """List a run that begins, if runs are saved.

        A store that cannot be written now may be writable when the run ends.
        """
        with suppress(StoreError):
            if self.store is not None:
                handle = self.store.begin(self.name(head))
                self._listed[handle.id] = handle
                return handle
        return None

    def name(self, record: Record, handle: RunHandle | None = None) -> Record:
        """Give a record the user's label, and the id under which its run is listed."""
        id = record.id if handle is None else handle.id
        return record.but(id=id, run_id=id, summary={**record.summary, **self._label})

    @contextmanager
    def keep(self, records: Sequence[Record]) -> Iterator[None]:
        """Keep records after they were printed, however the block ends.

        A full store hides no result, and a closed pipe (`| head`) loses none.
        """
        try:
            with save_on_interrupt(lambda: self._rescue(records)):
                yield
        except BaseException as stop:
            if not records:
                raise
            self._keep(records)
            if isinstance(stop, KeyboardInterrupt):
                remark("interrupted.")
            if self.saves and isinstance(stop, typer.Exit | KeyboardInterrupt):
                remark(f"what was finished before is saved as {_ids(records)}.")
            if isinstance(stop, KeyboardInterrupt):
                raise typer.Exit(INTERRUPTED) from stop.__cause__
            raise
        self._keep(records)

    def _rescue(self, records: Sequence[Record]) -> str:
        """Save finished records from another thread, and return a sentence about them."""
        self._save(records)
        saved = f"what was finished before is saved as {_ids(records)}"
        return saved if records and self.saves else ""

    def _save(self, records: Sequence[Record]) -> None:
        """Save records, the first one last so that it is 'last'; drop runs that have none."""
        for record in reversed(records):
            self._save_one(record)
        for handle in self._listed.values():  # these runs were only compared with
            handle.drop()
        self._listed.clear()

    def _save_one(self, record: Record) -> None:
        handle = self._listed.pop(record.id, None)
        if handle is not None:
            try:
                handle.end(record)
            except StoreError:
                handle.drop()
                raise
        elif self.store is not None:
            self.store.save(record)

    def _keep(self, records: Sequence[Record]) -> None:
        """Save records, and write what was asked for."""
        self._save(records)
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
    def on_interrupt(self) -> Iterator[None]:
        """Keep what an interrupted run had done, and exit with the code of Ctrl-C.

        The remark names the id, and how the run continues.
        """
        from posse.results.record import Interrupted

        try:
            yield
        except Interrupted as stop:
            record = stop.record
            if self._json and record.runs:
                documents = [record.document()]
                print_json({"interrupted": True, "to_store": self.saves, "records": documents})
            remark(f"interrupted; {self.save_interrupted(record)}.")
            raise typer.Exit(INTERRUPTED) from stop

    def save_interrupted(self, record: Record) -> str:
        """Save the record of an interrupted run, and return a sentence about it."""
        resume = str(record.show.get("resume", ""))
        if not record.runs:
            handle = self._listed.pop(record.id, None)
            if handle is not None:
                handle.drop()
            return resume or "a run had not started, and there is nothing of it to save"
        if not self.saves:
            return resume or "nothing was saved (--no-save)"
        self._save_one(record)
        saved = f"what was done is saved as {record.id} (status: interrupted)"
        return "; ".join(filter(None, (saved, resume)))


def _ids(records: Sequence[Record]) -> str:
    return ", ".join(record.id for record in records)


def write_figure(records: Sequence[Record], path: Path) -> None:
    """Draw regret over the steps, or reward where regret is not known.

    The file is written completely or not at all.
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


def check_place(path: Path) -> None:
    """Refuse a file that cannot be written, before the work that it is for."""
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
            f"cannot write {path}: you may not write in {folder}. Choose another place.",
            rule="cli.path.not-writable",
        )
