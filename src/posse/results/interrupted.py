"""An interrupted run, with the record of what it had done."""

from __future__ import annotations

from posse.results.record import RunRecord


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the record of what was done."""

    def __init__(self, record: RunRecord) -> None:
        super().__init__("interrupted")
        self.record = record
