"""Errors that a user can cause and repair.

Every such error is a `PosseError`. Its message is one line: rule, value and remedy. A front door
prints the line and exits with `exit_code`. Any other exception is a bug and keeps its traceback.

Programs and tests do not read the message. They use two stable strings:

* `code`: the class of the error (`P100` for settings), which users know and operators search for.
* `rule`: the one rule that was broken, as `room.field.rule`: `samba.horizon.below-owners`. The room
  is a folder of the package or the name of a system, the field is what the user must change, and
  the rule is what is wrong with it. Two rules never share a string.

A new refusal names its rule where it raises:

    raise ConfigError("horizon must be ...", rule="samba.horizon.below-owners")

Validators of `posse.core.check` and the types of settings name theirs: their room is that of the
module that calls them. An error of a room that is not converted yet has an empty `rule`.
"""

from __future__ import annotations

from typing import ClassVar


class PosseError(Exception):
    """A mistake that its reader can repair.

    >>> error = ConfigError("budget must be at least 10, got 3.", rule="samba.budget.too-small")
    >>> error.code, error.rule, error.field
    ('P100', 'samba.budget.too-small', 'budget')
    >>> raise error
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] budget must be at least 10, got 3.
    """

    code: ClassVar[str] = "P000"
    exit_code: ClassVar[int] = 2

    def __init__(self, text: str = "", *, rule: str = "", field: str | None = None) -> None:
        """Make an error.

        Args:
            text: Rule, value and remedy, in two short sentences.
            rule: The rule that was broken, as `room.field.rule`.
            field: What the user must change, if it is not the field in `rule`: the full path of a
                nested setting, or a key that does not exist.
        """
        super().__init__(text)
        self.rule = rule
        self._field = field

    @property
    def field(self) -> str:
        """What the user must change."""
        if self._field is not None:
            return self._field
        return ".".join(self.rule.split(".")[1:-1])

    @property
    def text(self) -> str:
        """The line without its code."""
        return super().__str__()

    def __str__(self) -> str:
        return f"[{self.code}] {self.text}"

    def as_dict(self) -> dict[str, str]:
        """Return the error as `--json` prints it."""
        return {"code": self.code, "rule": self.rule, "field": self.field, "text": self.text}


def room_of(module: str) -> str:
    """Return the room of a module: a folder of the package, or a system.

    >>> room_of("posse.systems.samba.settings"), room_of("posse.systems.base")
    ('samba', 'systems')
    >>> room_of("posse.policies.arms.shipped"), room_of("my_policy")
    ('policies', 'my_policy')
    """
    package, *folders = module.split(".")
    if package != "posse" or not folders:
        return package
    if folders[0] == "systems" and len(folders) > 2:
        return folders[1]
    return folders[0]


class ConfigError(PosseError):
    """A parameter, flag or configuration key is outside its rule."""

    code = "P100"


class PolicyError(PosseError):
    """A policy cannot run in a federation; the message names the property it violates."""

    code = "P110"


class DataError(PosseError):
    """A data file is missing, malformed, or holds less than was asked for."""

    code = "P200"


class StoreError(PosseError):
    """The run store is locked, damaged, full, or does not hold the run asked for."""

    code = "P300"


class MissingExtraError(PosseError):
    """An optional dependency is not installed; the message names the command that installs it."""

    code = "P400"


class ProtocolError(PosseError):
    """A party received what the protocol does not allow; its state is as it was before."""

    code = "P500"


class EarlyError(ProtocolError):
    """A message came before messages of other parties that the protocol requires first."""


class FrameError(ProtocolError):
    """A sealed frame does not open: altered, or sealed for another run, step, pass or direction."""

    code = "P510"


class DisagreementError(ProtocolError):
    """Parties were started for different things. The run continues when a file is corrected."""

    code = "P530"


class BudgetError(PosseError):
    """A release would spend more privacy than was budgeted.

    Nothing was released, and the ledger is as it was.
    """

    code = "P600"


class JournalError(PosseError):
    """A party's journal cannot be read or written: the disk, its permissions or another process."""

    code = "P800"


class LinkError(PosseError):
    """Two parties cannot continue together.

    One lacks what the other has forgotten, or they are of different runs.
    """

    code = "P810"


class UnfinishedError(LinkError):
    """A party's own part is over, but a peer that needs its last messages has not confirmed them."""

    code = "P820"
    exit_code = 3


class StalledError(LinkError):
    """A party that is needed has been missing or refused for too long.

    The run and its journal stay open.
    """

    code = "P830"
    exit_code = 3


class _ReasonedError(PosseError):
    """An error with a `reason`: one word for programs."""

    def __init__(
        self, text: str = "", reason: str = "", *, rule: str = "", field: str | None = None
    ) -> None:
        super().__init__(text, rule=rule, field=field)
        self.reason = reason


class CertificateError(_ReasonedError):
    """A certificate, its key or its authority does not prove what it should."""

    code = "P700"


class EnrolmentError(_ReasonedError):
    """A token, request or answer of an enrolment was refused."""

    code = "P710"
