"""What goes wrong, told so that the reader can mend it.

Every error a user can cause is a `PosseError`: it has a stable code and one line that gives the
rule, the value and the remedy. A front door prints that line and exits with `exit_code`; anything
else is a bug and keeps its traceback.
"""

from __future__ import annotations

from typing import ClassVar


class PosseError(Exception):
    """A mistake that its reader can mend.

    >>> raise ConfigError("budget must be at least 10, got 3. Raise it.")
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] budget must be at least 10, got 3. Raise it.
    """

    code: ClassVar[str] = "P000"
    exit_code: ClassVar[int] = 2

    @property
    def text(self) -> str:
        """The line without its code."""
        return super().__str__()

    def __str__(self) -> str:
        return f"[{self.code}] {self.text}"


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
    """A party received what the protocol allows only after messages of others that have not come
    yet.
    """


class FrameError(ProtocolError):
    """A sealed frame does not open: altered, or sealed for another run, step, pass or direction."""

    code = "P510"


class DisagreementError(ProtocolError):
    """Parties were started for different things: one of their files must be corrected, and then the
    run goes on.
    """

    code = "P530"


class BudgetError(PosseError):
    """A release would spend more privacy than was budgeted; nothing was released and the ledger is
    as it was.
    """

    code = "P600"


class JournalError(PosseError):
    """A party's journal cannot be read or kept: the disk, its permissions, or another process."""

    code = "P800"


class LinkError(PosseError):
    """Two parties cannot go on together: one lacks what the other has forgotten, or they are of
    different runs.
    """

    code = "P810"


class UnfinishedError(LinkError):
    """A party's own part is over, and a peer that needs its last messages has not confirmed
    them.
    """

    code = "P820"
    exit_code = 3


class StalledError(LinkError):
    """A party that is needed has been missing or refused for too long; the run stays open, and the
    journal with it.
    """

    code = "P830"
    exit_code = 3


class CertificateError(PosseError):
    """A certificate, its key or its authority does not prove what it should; `reason` says why, for
    programs.
    """

    code = "P700"

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class EnrolmentError(PosseError):
    """A token, request or answer of an enrolment was refused; `reason` says why, for programs."""

    code = "P710"

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason
