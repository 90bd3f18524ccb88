"""Attacks on a run: `posse.audit` of settings, of a run, of its record, or of a view that was
recorded.

Settings and records are simulated again, one seed after the other, and every adversary is given its
own view; a run is attacked as far as it is. Without a truth (a view that a deployed party recorded)
attacks estimate, and nothing is scored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from posse.core.check import nearest
from posse.core.errors import ConfigError, DataError, PosseError
from posse.core.interrupts import defer_interrupt
from posse.core.roles import Entry, View
from posse.privacy.leakage.attack import (
    LEVEL,
    PLANTINGS,
    WIRE,
    Attack,
    Attempt,
    Evidence,
    attempt,
    check_view,
)
from posse.results import words
from posse.results.record import Record
from posse.results.reports.audits import OTHER_ROLES, UNSCORED, Audit, Row
from posse.runtime.network import recording
from posse.systems import base
from posse.systems.base import RunSettings
from posse.systems.modules import attacks_of, deploy_of
from posse.systems.registry import system, system_of
from posse.systems.runs import RolesRun, Run

Progress: TypeAlias = Callable[[float, str], None]
"""Called with the share of the work that is done, and what is being done."""

TRANSCRIPT = 100_000_000
"""Messages that a run keeps while it is audited: all of them."""
VIEW = "view"
"""In the summary of a party's record: the file of the view that it recorded."""


class AuditInterrupted(KeyboardInterrupt):
    """Ctrl-C, with the audit as far as it was."""

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
    watch: Progress | None = None,
    like: RunSettings | None = None,
) -> Audit:
    """Attack a run and say what every adversary finds.

    `attacks` names those to make; without it, all that need one view or plain runs, and with `all`
    those too that need many runs of roles or a network. The same `seed` gives the same answer.
    Ctrl-C raises `AuditInterrupted`, which holds what is done. A view that a party recorded
    (`read_view`) is attacked as its own role; `like` are settings of a run like it, whose data the
    adversary knows.
    """
    named = (attacks,) if isinstance(attacks, str) else tuple(attacks)
    going = Auditing(what, attacks=named, all=all, seed=seed, plantings=plantings, like=like)
    try:
        for _ in going.rows(watch or (lambda share, doing: None)):
            pass
    except KeyboardInterrupt as stop:
        raise AuditInterrupted(going.audit("interrupted")) from stop
    return going.audit()


def settings_of(record: Record) -> RunSettings:
    """Return the settings that a record was made with, to run them again."""
    if record.party:
        raise ConfigError(
            f"record {record.id} is what party '{record.party}' knows of a deployment, which "
            "nobody can simulate again,"
            " and it has recorded no view. Add [record] with view = true to the party's file "
            "before a run."
        )
    of = system(record.kind)
    known = of.Settings.model_fields
    config: dict[str, Any] = {name: value for name, value in record.config.items() if name in known}
    if record.seeds:
        config["seed"] = record.seeds[0]
    settings: RunSettings = of.Settings(**config)
    return settings


def read_view(path: Path) -> View:
    """Read the view that a deployed party recorded; raises `DataError` on what is cut off, or is
    none.
    """
    kept = recording.read(path)
    if kept.torn:
        raise DataError(
            f"{path} is cut off or damaged at byte {kept.whole:,} of {kept.whole + kept.torn:,}. "
            "Copy it again; a "
            "party that is started once more cuts off what a crash left."
        )
    if kept.missing:
        raise DataError(
            f"{path} lacks {kept.missing:,} messages: recording began, or went on, in the middle "
            "of the run. Attacks "
            "begin at the first message."
        )
    if not kept.state:
        raise DataError(
            f"{path} holds no state of '{kept.header.party}' yet: the run has only begun."
        )
    deployment = deploy_of(system(kept.header.system))
    if deployment is None or deployment.vocabulary is None:
        raise DataError(f"{path} is of {kept.header.system}, which reads no recorded views.")
    decode = deployment.vocabulary.decoder().decode
    try:
        entries = [
            Entry(number, one.sender, one.receiver, decode(one.body), len(one.body), one.step)
            for number, one in enumerate(kept.seen)
            if one.body
        ]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} holds a message that this version does not read: {error}"
        ) from error
    party, kind = kept.header.party, kept.header.kind
    public = {
        "system": kept.header.system,
        "run": kept.header.run,
        "full": kept.full,
        **kept.public,
    }
    return View((party,), entries, {party: {"kind": kind, **kept.state}}, public)


@dataclass
class Auditing:
    """An audit that goes on: which attacks, on what, and the rows made so far."""

    what: RunSettings | Run | Record | View
    attacks: tuple[str, ...] = ()
    all: bool = False
    seed: int = 0
    plantings: int = PLANTINGS
    like: RunSettings | None = None
    made: list[Row] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began, self._runs, self._steps = time.monotonic(), 0, 0
        what = self.what
        self.settings: RunSettings | None = None
        if isinstance(what, Record):
            kept = what.summary.get(VIEW)
            what = self.what = settings_of(what) if kept is None else read_view(Path(str(kept)))
        if isinstance(what, RunSettings):
            self.settings, self.system = what, system_of(what)
        elif isinstance(what, Run):
            self.settings, self.system = what.settings, what.system
        elif isinstance(what, View):
            name = what.public.get("system")
            if not isinstance(name, str):
                raise ConfigError(
                    "a view must say which system it is of: its public terms have no 'system'."
                )
            self.system = system(name)
            if self.like is not None and self.like.system != name:
                raise ConfigError(
                    f"the view is of {name}, and the settings that it is like are of "
                    f"{self.like.system}."
                )
        else:
            raise ConfigError(
                f"audit takes settings, a run, a record or a view, got {type(what).__name__}. For "
                "a stored run: "
                "audit(Store().get(id))."
            )
        if self.like is not None and not isinstance(what, View):
            raise ConfigError(
                "'like' goes with a view that a party recorded: a run has settings of its own."
            )
        if self.settings is not None and base.level(self.system, self.settings) is None:
            raise ConfigError(
                "a plain run protects nothing: one party sees everything, and there is nothing to "
                "find."
            )
        self.chosen = self._choose()

    def _choose(self) -> tuple[Attack, ...]:
        known = {attack.name: attack for attack in attacks_of(self.system).attacks}
        for name in self.attacks:
            if name not in known:
                raise ConfigError(
                    f"{self.system.name} has no attack '{name}'.{nearest(name, tuple(known))}"
                )
        chosen = []
        for name, attack in known.items():
            recorded = isinstance(self.what, View) and attack.of_view is not None
            asked = (
                name in self.attacks
                if self.attacks
                else self.all or attack.needs in ("view", "twin") or recorded
            )
            if not asked:
                if not self.attacks and self.settings is not None:
                    self.left_out[name] = (
                        f"needs {_NEEDS[attack.needs]}; ask for it with --all (in Python: "
                        "all=True)."
                    )
                continue
            if why := self._why_not(attack):
                self.left_out[name] = why
            else:
                chosen.append(attack)
        return tuple(chosen)

    def _why_not(self, attack: Attack) -> str:
        """Return why an attack says nothing about this; empty where it does."""
        if attack.needs != "view" and attack.stage is None:
            return (
                "asks a model about rows: make it from Python "
                "(`posse.privacy.leakage.membership.infer`)."
            )
        if not isinstance(self.what, View):
            return attack.missing(self.settings)
        view = self.what
        kinds = sorted(str(own["kind"]) for own in view.secrets.values() if "kind" in own)
        tapped = any(
            one.sender not in view.parties and one.receiver not in view.parties
            for one in view.entries
        )
        if kinds and sorted([*kinds, *([WIRE] if tapped else [])]) != sorted(attack.adversary):
            return f"{OTHER_ROLES}{_at(attack)}, got a view of {' and '.join(kinds)}."
        if attack.needs != "view" and attack.of_view is None:
            return "needs runs of its own, and a view alone has no settings to run."
        terms = self.like or attacks_of(self.system).similar_settings(view.public)
        return "" if terms is None else attack.missing(terms)

    @property
    def seconds(self) -> float:
        """About how long the attacks take that stage runs of their own."""
        if self.settings is None:
            return 0.0
        return sum(
            attack.seconds(self.settings) for attack in self.chosen if attack.stage is not None
        )

    def rows(self, watch: Progress) -> Iterator[Row]:
        """Make the attacks, one row after the other."""
        one_view = [
            attack for attack in self.chosen if attack.stage is None or isinstance(self.what, View)
        ]
        share = 0.5 if one_view and isinstance(self.what, RunSettings) else 0.0
        evidence = self._evidence(
            one_view, lambda part: watch(share * part, f"running {self.system.about.title}")
        )
        for number, attack in enumerate(self.chosen):
            watch(share + (1 - share) * number / len(self.chosen), f"attack {attack.name}")
            started = time.monotonic()
            row = self._row(attack, evidence.get(attack.name, ()))
            if row is not None:
                row = replace(row, seconds=time.monotonic() - started)
                self.made.append(row)
                yield row

    def _row(self, attack: Attack, evidence: Sequence[Evidence]) -> Row | None:
        try:
            if attack.stage is not None and self.settings is not None:
                evidence = list(attack.stage(self.settings, self.seed))
            if not evidence:
                return None
            if any(one.truth for one in evidence):
                level = LEVEL / max(1, len(self.chosen))
                return row_of(
                    attempt(attack, evidence, self.seed, level=level, plantings=self.plantings)
                )
            (seen,) = (one.seen for one in evidence)
            check_view(attack, seen)
            if attack.of_view is not None:
                seen = attack.of_view(seen, self.like)
            estimate = attack.estimate(seen, self.seed)
            return Row(
                attack.name,
                attack.title,
                _at(attack),
                UNSCORED,
                attack.tell(estimate),
                claims=attack.claims,
            )
        except PosseError as error:
            self.left_out[attack.name] = error.text
            return None
        except (ArithmeticError, LookupError, ValueError, np.linalg.LinAlgError) as error:
            run = self.what
            if attack.stage is not None or not isinstance(run, Run) or run.done:
                raise
            self.left_out[attack.name] = (
                f"the run is at {run.time:,} of {run.horizon:,}, and the attack needs more of it "
                f"({error})."
            )
            return None

    def _evidence(
        self, attacks: Sequence[Attack], watch: Callable[[float], None]
    ) -> dict[str, list[Evidence]]:
        """Give every attack the views of its adversary, one a run."""
        made: dict[str, list[Evidence]] = {attack.name: [] for attack in attacks}
        if not attacks:
            return made
        if isinstance(self.what, View):
            self._runs = 1
            for attack in attacks:
                made[attack.name].append(Evidence(self.what, {}))
            return made
        for run in self._each(watch):
            views: dict[tuple[str, ...], View] = {}
            truth = run.truth()
            self._runs, self._steps = self._runs + 1, max(self._steps, run.time)
            for attack in attacks:
                if attack.adversary not in views:
                    try:
                        views[attack.adversary] = view_of(run, attack)
                    except ConfigError as error:
                        self.left_out[attack.name] = error.text
                        continue
                made[attack.name].append(Evidence(views[attack.adversary], truth))
        return made

    def _each(self, watch: Callable[[float], None]) -> Iterator[Run]:
        if isinstance(self.what, Run):
            yield self.what
            return
        assert self.settings is not None
        seeds = self.settings.seeds
        for number, seed in enumerate(seeds):
            with defer_interrupt():  # what is imported may compile, and a compiler loses a Ctrl-C
                run = self.system.start(self.settings, seeds=[seed], transcript=TRANSCRIPT)
            if isinstance(run, RolesRun) and run.memory.transcript is not None:
                run.memory.transcript.truncate = run.truncate
            run.finish(lambda at, number=number: watch((number + at.fraction) / len(seeds)))  # type: ignore[misc]
            yield run

    def audit(self, status: str = "finished") -> Audit:
        """Return the audit as far as it is."""
        settings: Any = self.settings
        protection = "view" if settings is None else settings.protection
        view = _said_of(self.what) if isinstance(self.what, View) else ""
        return Audit(
            self.system.about.title,
            protection,
            tuple(self.made),
            self.seed,
            self._runs,
            self._steps,
            status,
            dict(self.left_out),
            LEVEL,
            time.monotonic() - self._began,
            view=view,
        )


def _said_of(view: View) -> str:
    """Say what a view is of, in a few words."""
    run = f" of run {view.public['run']}" if "run" in view.public else ""
    last = max((entry.time for entry in view.entries), default=0)
    full = (
        "; it reached its limit, and what came later is not in it"
        if view.public.get("full")
        else ""
    )
    return (
        f"the view of {' and '.join(view.parties) or WIRE}{run}: "
        f"{words.count(len(view.entries), 'message')}, up to "
        f"step {last:,}{full}"
    )


def view_of(run: Run, attack: Attack) -> View:
    """Return what an adversary saw: a party of every kind that it holds, and on the wire all that
    travelled.
    """
    left = dict(run.kinds)
    parties = []
    for kind in attack.adversary:
        party = next((name for name, of in reversed(left.items()) if of == kind), None)
        if party is None and kind != WIRE:
            raise ConfigError(f"this run has no {kind}.")
        if party is not None:
            del left[party]
            parties.append(party)
    if WIRE not in attack.adversary:
        return run.view(*parties)
    tap = run.tap()
    return View(tuple(parties), tap.entries, run.view(*parties).secrets, tap.public, tap.forgotten)


_NEEDS = {
    "view": "one view",
    "twin": "plain runs of its own",
    "runs": "runs of its own",
    "network": "a network",
}


def _at(attack: Attack) -> str:
    return " and ".join(attack.adversary)


def row_of(made: Attempt) -> Row:
    """Write an attempt as a row."""
    attack, score = made.attack, made.score
    says = attack.tell(made.estimates[0])
    if len(made.estimates) > 1:
        says += f" (the first of {len(made.estimates):,})"
    return Row(
        attack.name,
        attack.title,
        _at(attack),
        made.verdict,
        says,
        attack.statistic,
        score.value,
        score.interval,
        score.text,
        score.baseline,
        score.p,
        made.power,
        attack.planted,
        None if made.shuffled is None else made.shuffled.p,
        attack.claims,
    )
