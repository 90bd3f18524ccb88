"""Attacks on runs: `posse.audit` of settings, a run, a record, or a recorded view.

An audit of settings, or of a record with settings, simulates all seeds, and then attacks these
simulations. A run is attacked at its current step. Each attack reads only the view of its
adversary, and returns an estimate. The score of the attack compares the estimate with the truth.
For a view that a deployed party recorded, the truth is unknown, so there is no score.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import singledispatch
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import msgspec
import numpy as np

from posse.core import check
from posse.core.errors import ConfigError, DataError, PosseError
from posse.core.interrupts import defer_interrupt
from posse.core.roles import Entry, View
from posse.privacy.leakage.attack import (
    PLANTINGS,
    SIGNIFICANCE,
    WIRE,
    Attack,
    Attempt,
    Evidence,
    attempt,
    check_view,
)
from posse.results import words
from posse.results.audits import OTHER_ROLES, UNSCORED, Audit, Row
from posse.results.record import Progress, Record
from posse.runtime.network import recording
from posse.systems.base import AnySystem, RunSettings, level_or_none
from posse.systems.modules import attacks_of, deploy_of
from posse.systems.registry import system, system_of
from posse.systems.runs import RolesRun, Run

AuditWatch: TypeAlias = Callable[[float, str], None]
"""Called with the fraction of the work that is done, and the name of the current work."""
FractionWatch: TypeAlias = Callable[[float], None]
"""Called with the fraction of the work that is done."""

FAST = ("view", "twin")
"""Values of `Attack.needs` for attacks that take seconds: they read one view, or start plain runs.
Every audit makes these attacks; the user must request all others.
"""
_SLOW_NEEDS = {"runs": "its own runs", "network": "a network"}
"""The other values of `Attack.needs`, each in words."""

TRANSCRIPT = 100_000_000
"""Messages that an audited run stores: more than any run has, so that attacks see every message."""


class AuditInterrupted(KeyboardInterrupt):
    """Ctrl-C during an audit. The attribute `audit` has the results so far."""

    def __init__(self, audit: Audit) -> None:
        super().__init__("interrupted")
        self.audit = audit


def audit(
    what: RunSettings | Run | Record | View,
    *,
    attacks: str | Sequence[str] = (),
    all: bool = False,
    seed: int = 0,
    plantings: int = PLANTINGS,
    watch: AuditWatch | None = None,
    like: RunSettings | None = None,
) -> Audit:
    """Attack a run, and return what each adversary finds out.

    The same arguments return the same result.

    Args:
        what: Settings, a run, a record, or a view that a party recorded (`read_view`). A view is
            attacked only by the attacks of the roles that it belongs to.
        attacks: Names of the attacks to make. By default all attacks that need only one view or
            plain runs.
        all: Also make the attacks that need many runs of roles, or a network.
        seed: Seed of the attacks' random draws.
        plantings: Number of leaks that are planted to measure the power of an attack. The power is
            the share of these leaks that the attack finds.
        watch: Called with the progress (`AuditWatch`).
        like: Settings of a similar run, for an audit of a view. The adversary knows the data of
            this run.

    Raises:
        AuditInterrupted: Ctrl-C was pressed. It is a `KeyboardInterrupt` with the results of the
            finished attacks.
    """
    names = (attacks,) if isinstance(attacks, str) else tuple(attacks)
    auditor = Auditor(what, attacks=names, all=all, seed=seed, plantings=plantings, like=like)
    try:
        auditor.run(watch or (lambda fraction, work: None))
    except KeyboardInterrupt as error:
        raise AuditInterrupted(auditor.result("interrupted")) from error
    return auditor.result()


def settings_of_record(record: Record) -> RunSettings:
    """Return the settings of a simulated run from its record, to simulate the run again.

    If the record has several seeds, the seed of the settings is the first of them.

    Raises:
        ConfigError: The record belongs to a deployed party. The error tells the user to record a
            view, so do not call this function for a record that has a view.
    """
    if record.party:
        raise ConfigError(
            f"record {record.id} belongs to party '{record.party}' of a deployment, which cannot "
            "be simulated, and it has recorded no view. Add [record] with view = true to the "
            "party's file before a run.",
            rule="systems.record.of-deployment",
        )
    model: type[RunSettings] = system(record.kind).Settings
    # `config` may have entries that are not settings, such as `rewards` of a live bandit.
    config: dict[str, Any] = {
        name: value for name, value in record.config.items() if name in model.model_fields
    }
    if record.seeds:
        config["seed"] = record.seeds[0]
    return model(**config)


def read_view(path: Path) -> View:
    """Read the view that a deployed party recorded.

    Raises:
        DataError: The file is not a recorded view, or it is damaged or incomplete.
    """
    recorded = recording.read(path)
    _check_complete(path, recorded)
    header = recorded.header
    secrets = {header.party: {"kind": header.kind, **recorded.state}}
    public = {
        "system": header.system,
        "run": header.run,
        "full": recorded.full,  # whether the recording reached its limit
        **recorded.public,
    }
    return View((header.party,), _decode_messages(path, recorded), secrets, public)


def _check_complete(path: Path, recorded: recording.Recorded) -> None:
    """Raise an error if the file is cut off, lacks messages, or has no state of its party."""
    if recorded.torn:
        size = recorded.whole + recorded.torn
        raise DataError(
            f"{path} is cut off or damaged at byte {recorded.whole:,} of {size:,}. Copy it again, "
            "or start the party once more: it removes what a crash left.",
            rule="systems.view.cut-off",
        )
    if recorded.missing:
        raise DataError(
            f"{path} lacks {recorded.missing:,} messages: recording started or continued in the "
            "middle of the run. Attacks need all messages from the first one.",
            rule="systems.view.messages-missing",
        )
    if not recorded.state:
        raise DataError(
            f"{path} holds no state of '{recorded.header.party}' yet: the run has only started. "
            "Wait for its first snapshot, and try again.",
            rule="systems.view.no-state",
        )


def _decode_messages(path: Path, recorded: recording.Recorded) -> list[Entry]:
    """Return the messages of a recorded view, as entries of a transcript."""
    name = recorded.header.system
    deployment = deploy_of(system(name))
    if deployment is None or deployment.vocabulary is None:
        raise DataError(
            f"{path} is a view of {name}, which reads no recorded views.",
            rule="systems.view.not-supported",
        )
    decoder = deployment.vocabulary.decoder()
    entries = []
    try:
        for number, item in enumerate(recorded.seen):
            # A message that the role refused has an empty body.
            if item.body:
                message = decoder.decode(item.body)
                size = len(item.body)
                entries.append(Entry(number, item.sender, item.receiver, message, size, item.step))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} holds a message that this version cannot read: {error}",
            rule="systems.view.unknown-message",
        ) from error
    return entries


class Target(ABC):
    """What an audit attacks."""

    simulation_fraction: ClassVar[float] = 0.0
    """Fraction of the progress bar for `prepare_views`; the attacks have the rest."""

    def __init__(self, system: AnySystem, protection: str) -> None:
        self.system = system
        self.protection = protection
        """The protection in a few words."""
        self.description = ""
        """The owner and the size of a recorded view, in words; empty for runs."""
        self.run_count = 0
        """Number of runs whose views were attacked."""
        self.longest_run = 0
        """Steps of the longest run whose view was attacked; 0 if that is unknown."""

    def tell_adversary(self, like: RunSettings) -> None:
        """From now on, the adversary knows the data of a similar run with the settings `like`.

        Raises:
            ConfigError: The target is not a view, or the view is of another system than `like`.
        """
        raise ConfigError(
            "'like' is only for a view that a party recorded: a run has its own settings.",
            rule="systems.like.not-a-view",
        )

    def default_attacks(self) -> Sequence[Attack]:
        """Return the attacks that are considered if the user names none."""
        return attacks_of(self.system).attacks

    @abstractmethod
    def reason_to_skip(self, attack: Attack, *, requested: bool) -> str:
        """Return why an attack is left out of the audit; empty if the attack is made.

        Args:
            attack: The attack.
            requested: Whether the user named the attack, or asked for all attacks.
        """

    def seconds_of_own_runs(self, attacks: Sequence[Attack]) -> float:
        """Estimate the seconds that the runs of these attacks take; by default 0.

        Only an attack with `Attack.stage` starts runs. All other attacks add nothing.
        """
        return 0.0

    @abstractmethod
    def prepare_views(self, watch: FractionWatch) -> None:
        """Provide the runs for the attacks, which read views of these runs.

        `watch` is called with the finished fraction.
        """

    @abstractmethod
    def collect_evidence(self, attack: Attack, seed: int) -> list[Evidence]:
        """Return what the adversary of an attack sees, and the truth: one item per run.

        Args:
            attack: The attack.
            seed: Seed for an attack that starts its own runs; other attacks do not use it.
        """

    @property
    def unfinished_run_note(self) -> str:
        """Words for an error: how far an unfinished run is; empty for all other targets."""
        return ""


class SettingsTarget(Target):
    """Settings. The audit simulates one run for each seed."""

    simulation_fraction = 0.5

    def __init__(self, system: AnySystem, settings: RunSettings) -> None:
        super().__init__(system, settings.protection)
        if level_or_none(system, settings) is None:
            raise ConfigError(
                "a plain run protects nothing: one party sees everything. Audit a protected run.",
                rule="systems.what.plain-run",
            )
        self._settings = settings
        self._runs: list[Run] = []

    def reason_to_skip(self, attack: Attack, *, requested: bool) -> str:
        """Return why an attack is left out of the audit; empty if the attack is made.

        An attack is left out if it takes long and was not requested, or if it is impossible with
        these settings.
        """
        if attack.needs not in FAST and not requested:
            return f"needs {_SLOW_NEEDS[attack.needs]}; add it with --all (in Python: all=True)."
        return attack.missing(self._settings)

    def seconds_of_own_runs(self, attacks: Sequence[Attack]) -> float:
        """Return the sum of `Attack.seconds` over the attacks that start runs (`Attack.stage`)."""
        return sum(attack.seconds(self._settings) for attack in attacks if attack.stage is not None)

    def prepare_views(self, watch: FractionWatch) -> None:
        """Simulate every seed."""
        for number in range(len(self._settings.seeds)):
            self._add_run(self._simulate(number, watch))

    def _simulate(self, number: int, watch: FractionWatch) -> Run:
        """Simulate the seed at position `number` of the seeds, and return its finished run."""
        seeds = self._settings.seeds

        def report_progress(progress: Progress) -> None:
            watch((number + progress.fraction) / len(seeds))

        # The start may import and compile. If Ctrl-C raised an exception meanwhile, numba could drop
        # it.
        with defer_interrupt():
            run = self.system.start(self._settings, seeds=[seeds[number]], transcript=TRANSCRIPT)
        if isinstance(run, RolesRun):
            # Set before the first message, so that the transcript of a long run fits into memory.
            run.store_only_parts_for_attacks()
        run.finish(report_progress)
        return run

    def _add_run(self, run: Run) -> None:
        """Add a run for the attacks, which read views of it."""
        self._runs.append(run)
        self.run_count = len(self._runs)
        self.longest_run = max(self.longest_run, run.time)

    def collect_evidence(self, attack: Attack, seed: int) -> list[Evidence]:
        """Return one view per simulation, or the evidence of the runs that the attack starts."""
        if attack.stage is not None:
            return list(attack.stage(self._settings, seed))
        evidence = []
        for run in self._runs:
            view = view_of(run, attack)
            check_view(attack, view)
            evidence.append(Evidence(view, run.truth()))
        return evidence


class RunTarget(SettingsTarget):
    """A run at its current step. Attacks that need other runs start them with this run's settings."""

    simulation_fraction = 0.0

    def __init__(self, run: Run) -> None:
        super().__init__(run.system, run.settings)
        self._run = run

    def prepare_views(self, watch: FractionWatch) -> None:
        """Take the run as it is; nothing is simulated."""
        self._add_run(self._run)

    @property
    def unfinished_run_note(self) -> str:
        """Words for an error, such as "the run is at 50 of 200"; empty if the run is done."""
        if self._run.done:
            return ""
        return f"the run is at {self._run.time:,} of {self._run.horizon:,}"


class ViewTarget(Target):
    """A view without a run, so the truth is unknown."""

    def __init__(self, view: View) -> None:
        name = view.public.get("system")
        if not isinstance(name, str):
            raise ConfigError(
                "the public terms of a view must have an entry 'system', the name of its system.",
                rule="systems.view.no-system",
            )
        super().__init__(system(name), "view")
        self.description = _describe_view(view)
        self._view = view
        self._like: RunSettings | None = None
        states = view.secrets.values()
        self._party_kinds = sorted(str(state["kind"]) for state in states if "kind" in state)
        # The adversary who has this view, in the form of `Attack.adversary`.
        self._adversary = list(self._party_kinds)
        if _includes_wire(view):
            self._adversary.append(WIRE)

    def tell_adversary(self, like: RunSettings) -> None:
        """From now on, the adversary knows the data of a similar run with the settings `like`."""
        if like.system != self.system.name:
            raise ConfigError(
                f"the view belongs to {self.system.name}, and 'like' to {like.system}. Use "
                "settings of the same system.",
                rule="systems.like.other-system",
            )
        self._like = like

    def default_attacks(self) -> Sequence[Attack]:
        """Return the attacks that are considered if the user names none.

        For a view, these are the fast attacks, and the attacks that can read a recorded view instead
        of starting runs (`Attack.of_view`).
        """
        return [
            attack
            for attack in attacks_of(self.system).attacks
            if attack.needs in FAST or attack.of_view is not None
        ]

    def prepare_views(self, watch: FractionWatch) -> None:
        """Do nothing: the view exists already."""

    def reason_to_skip(self, attack: Attack, *, requested: bool) -> str:
        """Return why an attack is left out of the audit; empty if the attack is made.

        An attack is left out in three cases: the view belongs to other kinds of roles than the
        attack's adversary controls; the attack cannot do without its own runs; or the attack is
        impossible with settings like those of the view. `requested` has no effect, because no
        attack on a view takes long.
        """
        # If the kinds are unknown, the adversaries cannot be compared: any adversary may have the
        # view. `check_view` raises an error later if the view does not fit the attack.
        if self._party_kinds and sorted(self._adversary) != sorted(attack.adversary):
            kinds = " and ".join(self._party_kinds)
            return f"{OTHER_ROLES}{_roles_text(attack)}, got a view of {kinds}."
        if attack.stage is not None and attack.of_view is None:
            return "needs its own runs, and a view alone has no settings to run."
        settings = self._like or attacks_of(self.system).similar_settings(self._view.public)
        # Without settings, nothing shows that the attack is impossible.
        return "" if settings is None else attack.missing(settings)

    def collect_evidence(self, attack: Attack, seed: int) -> list[Evidence]:
        """Return the recorded view, in the form that the attack reads, as the only evidence.

        The truth is unknown, so it is empty.
        """
        # An attack reads the view now. If all attacks are left out, the count stays 0.
        self.run_count = 1
        check_view(attack, self._view)
        view: Any = self._view
        if attack.of_view is not None:
            view = attack.of_view(view, self._like)
        return [Evidence(view, truth={})]


@singledispatch
def target_of(what: object) -> Target:
    """Return the `Target` for what the user audits: settings, a run, a record or a view.

    A record of a party that recorded a view becomes the target of this view. Any other record
    becomes the target of its settings.
    """
    # The functions below are registered for these types. This function gets all other types.
    raise ConfigError(
        f"audit takes settings, a run, a record or a view, got {type(what).__name__}. For a "
        "stored run: audit(Store().get(id)).",
        rule="systems.what.wrong-type",
    )


@target_of.register
def _target_of_settings(what: RunSettings) -> Target:
    return SettingsTarget(system_of(what), what)


target_of.register(Run, RunTarget)
target_of.register(View, ViewTarget)


@target_of.register
def _target_of_record(what: Record) -> Target:
    # A party that records a view notes the path here (`posse.systems.parties`).
    path = what.summary.get("view")
    if path is None:
        return target_of(settings_of_record(what))
    return target_of(read_view(Path(str(path))))


class Auditor:
    """Makes the attacks of one audit, and collects their rows."""

    def __init__(
        self,
        what: RunSettings | Run | Record | View,
        *,
        attacks: tuple[str, ...] = (),
        all: bool = False,
        seed: int = 0,
        plantings: int = PLANTINGS,
        like: RunSettings | None = None,
    ) -> None:
        """Choose the attacks. The arguments are those of `audit`."""
        self.target = target_of(what)
        if like is not None:
            self.target.tell_adversary(like)
        self.seed = seed
        self.plantings = plantings
        self._started = time.monotonic()
        self._rows: list[Row] = []
        self.chosen: list[Attack] = []
        """The attacks to make."""
        self.left_out: dict[str, str] = {}
        """Reasons why attacks are left out or failed, by the name of the attack."""
        requested = all or bool(attacks)
        for attack in self._attacks_to_consider(attacks, all=all):
            reason = self.target.reason_to_skip(attack, requested=requested)
            if reason:
                self.left_out[attack.name] = reason
            else:
                self.chosen.append(attack)

    def _attacks_to_consider(self, names: tuple[str, ...], *, all: bool) -> Sequence[Attack]:
        """Return the attacks that the user named; without names, all or the default attacks."""
        attacks = attacks_of(self.target.system).attacks
        choices = tuple(attack.name for attack in attacks)
        for name in names:
            check.one_of(choices, attack=name)
        if names:
            return [attack for attack in attacks if attack.name in names]
        return attacks if all else self.target.default_attacks()

    @property
    def seconds_of_own_runs(self) -> float:
        """Estimated seconds of the chosen attacks that start their own runs."""
        return self.target.seconds_of_own_runs(self.chosen)

    def run(self, watch: AuditWatch) -> None:
        """Make the attacks, and call `watch` with the progress."""
        preparation = 0.0  # fraction of the progress bar
        # An attack with `stage` starts its own runs, and reads no prepared views.
        if any(attack.stage is None for attack in self.chosen):
            preparation = self.target.simulation_fraction
            work = f"running {self.target.system.about.title}"
            self.target.prepare_views(lambda part: watch(preparation * part, work))
        for number, attack in enumerate(self.chosen):
            finished_attacks = number / len(self.chosen)
            watch(preparation + (1 - preparation) * finished_attacks, f"attack {attack.name}")
            started = time.monotonic()
            row = self._make_attack(attack)
            if row is not None:
                self._rows.append(replace(row, seconds=time.monotonic() - started))

    def _make_attack(self, attack: Attack) -> Row | None:
        """Make an attack, and return its row.

        Returns None if the attack has no evidence, or fails. A failure is added to `left_out`.
        """
        try:
            evidence = self.target.collect_evidence(attack, self.seed)
            if any(item.truth for item in evidence):
                return self._attack_with_truth(attack, evidence)
            if evidence:
                return self._attack_without_truth(attack, evidence)
        except PosseError as error:
            self.left_out[attack.name] = error.text
        except (ArithmeticError, LookupError, ValueError, np.linalg.LinAlgError) as error:
            # An attack may fail because the audited run is unfinished and too short. In all other
            # cases such an error is a bug. An attack with its own runs does not read the audited run.
            note = self.target.unfinished_run_note
            if attack.stage is not None or not note:
                raise
            self.left_out[attack.name] = f"{note}, and the attack needs more of it ({error})."
        return None

    def _attack_with_truth(self, attack: Attack, evidence: Sequence[Evidence]) -> Row:
        """Make an attack, score its estimates, and return its row."""
        # Bonferroni: with this division, the probability that any attack of the audit raises a false
        # alarm is at most SIGNIFICANCE.
        significance = SIGNIFICANCE / len(self.chosen)
        result = attempt(
            attack, evidence, self.seed, significance=significance, plantings=self.plantings
        )
        return row_of_attempt(result)

    def _attack_without_truth(self, attack: Attack, evidence: Sequence[Evidence]) -> Row:
        """Make an attack without a score, and return its row."""
        # Only a recorded view has no truth, and its target returns exactly one item of evidence.
        (item,) = evidence
        estimate = attack.estimate(item.seen, self.seed)
        return Row(
            attack=attack.name,
            title=attack.title,
            at=_roles_text(attack),
            verdict=UNSCORED,
            says=attack.tell(estimate),
            claims=attack.claims,
        )

    def result(self, status: str = "finished") -> Audit:
        """Return the results so far."""
        return Audit(
            system=self.target.system.about.title,
            protection=self.target.protection,
            rows=tuple(self._rows),
            seed=self.seed,
            runs=self.target.run_count,
            steps=self.target.longest_run,
            status=status,
            left_out=dict(self.left_out),
            level=SIGNIFICANCE,
            seconds=time.monotonic() - self._started,
            view=self.target.description,
        )


def _includes_wire(view: View) -> bool:
    """Return whether a view has messages that none of its parties sent or received."""
    parties = set(view.parties)
    return any(parties.isdisjoint((entry.sender, entry.receiver)) for entry in view.entries)


def _roles_text(attack: Attack) -> str:
    """Return the kinds of role that the attack's adversary controls, in words."""
    return " and ".join(attack.adversary)


def _describe_view(view: View) -> str:
    """Return the parties that a view belongs to, and its size, in a few words."""
    owner = " and ".join(view.parties) or WIRE
    if "run" in view.public:
        owner += f" of run {view.public['run']}"
    messages = words.count(len(view.entries), "message")
    last_step = max((entry.time for entry in view.entries), default=0)
    text = f"the view of {owner}: {messages}, up to step {last_step:,}"
    if view.public.get("full"):
        text += "; it reached its limit, and what came later is not in it"
    return text


def view_of(run: Run, attack: Attack) -> View:
    """Return what the adversary of `attack` saw of a run.

    The adversary controls one party for each entry of `attack.adversary`, which is a kind of role.
    The entry `WIRE` means no party: with it, the adversary sees all messages on the network.
    """
    parties_by_kind: dict[str, list[str]] = {}
    for party, kind in run.kinds.items():
        parties_by_kind.setdefault(kind, []).append(party)
    parties = []
    for kind in attack.adversary:
        if kind == WIRE:
            continue
        candidates = parties_by_kind.get(kind)
        if not candidates:
            raise ConfigError(f"this run has no {kind}.", rule="systems.adversary.no-such-role")
        parties.append(candidates.pop())  # removed: the same kind again means another party
    view = run.view(*parties)
    if WIRE not in attack.adversary:
        return view
    # The parties' own messages are on the network too. So only their secrets are added.
    return replace(run.tap(), parties=tuple(parties), secrets=view.secrets)


def row_of_attempt(result: Attempt) -> Row:
    """Return the row of an audit for a scored attack."""
    attack = result.attack
    score = result.score
    says = attack.tell(result.estimates[0])
    if len(result.estimates) > 1:
        says += f" (the first of {len(result.estimates):,})"
    shuffled = result.shuffled
    return Row(
        attack=attack.name,
        title=attack.title,
        at=_roles_text(attack),
        verdict=result.verdict,
        says=says,
        statistic=attack.statistic,
        value=score.value,
        interval=score.interval,
        counted=score.text,
        baseline=score.baseline,
        p=score.p,
        power=result.power,
        planted=attack.planted,
        shuffled=None if shuffled is None else shuffled.p,
        claims=attack.claims,
    )
