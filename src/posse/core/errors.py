"""Errors that a user can cause and repair.

Every such error is a `PosseError`. Its message is one line: rule, value and remedy. A command
prints the line and exits with `exit_code`. Any other exception is a bug and keeps its traceback.

Programs and tests do not read the message. They use two stable strings:

* `code` names the class of the error: `P100` is the code of errors in settings. Users see the code
  in the message and search for it.
* `rule` names the one rule that was broken, such as `samba.horizon.below-owners`. No two rules have
  the same string. The string has three parts, `room.field.problem`:
  - The *room* is the part of Posse that raises the error: a folder of the package (`policies`), or
    a system by the name of its folder (`samba`, `mpc_contextual`).
  - The field is what the user must change.
  - The problem is what is wrong with the field.

Code that raises an error names the rule:

    raise ConfigError("horizon must be ...", rule="samba.horizon.below-owners")

Validators of `posse.core.check` make the rule from their keyword and from the room of the module
that calls them. `posse.core.settings` turns pydantic's errors into rules. Some rooms have no rules;
the errors of these rooms have an empty `rule`.
"""

from __future__ import annotations

from typing import ClassVar


class PosseError(Exception):
    """A mistake that the user can repair.

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

    def __init__(
        self, text: str = "", *, rule: str = "", field: str | None = None, public_text: str = ""
    ) -> None:
        """Make an error.

        Args:
            text: Rule, value and remedy, in two short sentences.
            rule: The rule that was broken, as `room.field.problem`.
            field: What the user must change; by default the field in `rule`. Given for a nested
                setting (its full path) and for an unknown key.
            public_text: The message for other parties, if `text` has values that only this party
                may see.
        """
        super().__init__(text)
        self.rule = rule
        self._field = field
        self.public_text = public_text or text
        """The message without the code, as other parties may read it."""

    @property
    def field(self) -> str:
        """What the user must change: a setting, a flag or a key."""
        if self._field is not None:
            return self._field
        # The room comes before the field, and the problem after it.
        return ".".join(self.rule.split(".")[1:-1])

    @property
    def text(self) -> str:
        """The message alone. `str` puts the code before the message, such as [P100]."""
        return super().__str__()

    def __str__(self) -> str:
        return f"[{self.code}] {self.text}"

    def as_dict(self) -> dict[str, str]:
        """Return the error as `--json` prints it."""
        return {"code": self.code, "rule": self.rule, "field": self.field, "text": self.text}


def page_of(code: str) -> str:
    """Return the page about a code, by its path in a checkout of Posse.

    Codes with the same first digit share a page.

    >>> page_of("P110")
    'docs/errors/P100.md'
    """
    return f"docs/errors/{code[:2]}00.md"


def room_of(module: str) -> str:
    """Return the room of a module: a folder of the package, or a system's folder.

    A module outside the package is its own room.

    >>> room_of("posse.systems.samba.settings"), room_of("posse.systems.base")
    ('samba', 'systems')
    >>> room_of("posse.policies.arms.shipped"), room_of("my_policy")
    ('policies', 'my_policy')
    """
    package, *inner = module.split(".")
    if package != "posse" or not inner:
        return package
    # `systems.samba.settings` is in the folder of a system; `systems.base` belongs to all systems.
    if inner[0] == "systems" and len(inner) > 2:
        return inner[1]
    return inner[0]


class ConfigError(PosseError):
    """A parameter, flag or configuration key is outside its rule."""

    code = "P100"


class PolicyError(PosseError):
    """A policy cannot run in a federation; the message names the property that the policy lacks."""

    code = "P110"


class DataError(PosseError):
    """A data file is missing or malformed, or has too little data."""

    code = "P200"


class StoreError(PosseError):
    """The run store is locked, damaged or full, or has no run of the requested name."""

    code = "P300"


class MissingExtraError(PosseError):
    """An optional dependency is not installed; the message names the command that installs it."""

    code = "P400"


class ProtocolError(PosseError):
    """The protocol does not allow what a party received; the party's state has not changed.

    Also raised if a run cannot return the result that was asked for.
    """

    code = "P500"


class EarlyError(ProtocolError):
    """A message came too early: messages of other parties must come first."""


class FrameError(ProtocolError):
    """A frame, which is one encrypted message, cannot be opened.

    The frame is malformed or was altered, or was sealed for another run, step, pass or direction.
    """

    code = "P510"


class DisagreementError(ProtocolError):
    """Parties were started with different terms. The run continues when a file is corrected."""

    code = "P530"


class BudgetError(PosseError):
    """A release would spend more privacy than the budget allows.

    Nothing was released, and the ledger has not changed.
    """

    code = "P600"


class JournalError(PosseError):
    """A party's journal cannot be read or written.

    The reason is the disk, its permissions or another process.
    """

    code = "P800"


class LinkError(PosseError):
    """Two parties cannot continue together.

    One party needs messages that the other has deleted, or the parties belong to different runs.
    """

    code = "P810"


class UnconfirmedError(LinkError):
    """A party's part is over, but a peer has not confirmed the receipt of the last messages.

    Start the party again, so that it can send its last messages again.
    """

    code = "P820"
    exit_code = 3


class StalledError(LinkError):
    """A party that the run needs has been absent, or has been refused, for too long.

    The run is not over; it continues when the party is back.
    """

    code = "P830"
    exit_code = 3


class _ErrorWithReason(PosseError):
    """An error with a `reason`: one word that programs may test.

    `reason` is older than `rule`, and is kept for programs that use it.
    """

    def __init__(
        self, text: str = "", reason: str = "", *, rule: str = "", field: str | None = None
    ) -> None:
        super().__init__(text, rule=rule, field=field)
        self.reason = reason


class CertificateError(_ErrorWithReason):
    """A certificate, key or authority is missing, invalid or not protected."""

    code = "P700"


class EnrolmentError(_ErrorWithReason):
    """A token, request or answer was refused while a party applied for its certificate."""

    code = "P710"
