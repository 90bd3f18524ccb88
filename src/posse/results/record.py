"""A record is the result of an experiment: settings, rewards, costs and what was not protected."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from posse.core import check as rules
from posse.core.check import ensure
from posse.core.errors import DataError
from posse.core.statistics import Band, Floats, band
from posse.policies.decisions import Learnt, PolicyName
from posse.results import words
from posse.results.values import (
    JSON,
    as_list,
    as_table,
    flat,
    floats,
    integers,
    is_colour,
    plain,
    plain_dict,
    same,
    strict,
)
from posse.results.words import Vocabulary, common, vocabulary
from posse.version import __version__

Ints = npt.NDArray[np.int64]

ARRAYS = ("steps", "reward", "regret", "pulls", "party_total", "party_regret")
"""The fields that are arrays; all others are plain values (`Record.metadata`)."""

_DERIVED = (
    "runs",
    "arms",
    "horizon",
    "policy",
    "label",
    "protection",
    "problem_name",
    "total_mean",
    "bytes",
    "messages",
)

STATUSES = ("finished", "interrupted", "failed", "running", "lost")
"""Values of `Record.status`. "lost" is a run that was in progress in a process that has ended."""

PLAIN = "plain"
"""Level: no protection, everything is exchanged in the clear."""
ALONE = "alone"
"""Level: no federation, nothing leaves a party."""
PLACEBO = "placebo"
"""Level of a control: messages of pure noise, which should help nobody."""

HORIZON = ("horizon", "budget", "steps", "rounds")
"""Settings that give the number of steps of a run; the first one that is set counts."""

CHANCE = "chance_reward"
"""Key of `Record.summary`: what a step pays on average if arms are drawn evenly."""
BEST = "best_fixed_reward"
"""Key of `Record.summary`: what a step pays on average with the best arm alone."""
BEST_ARM = "best_fixed_arm"
"""Key of `Record.summary`: the name of that arm."""

_ID = re.compile(r"[0-9a-z][0-9a-z-]{0,62}[0-9a-z]")
_SHOW_TYPES: Mapping[str, type[dict[str, object]] | type[list[object]]] = {
    "roles": dict,
    "protects": list,
    "learns": list,
    "sections": list,
    "cards": list,
    "off": list,
    "implied": list,
    "warnings": list,
    "baseline": list,
    "curves": list,
}

# Crockford's alphabet: in ASCII order, and without the letters i, l, o, u that are misread or
# misheard.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(milliseconds: int | None = None) -> str:
    """Make an id: nine characters of time (milliseconds since 1970), a dash, four random ones.

    Ids sort as their times do; two made in the same millisecond differ with probability 1 - 2^-20,
    and a store refuses the second of two equal ones.

    >>> new_id(0).startswith("000000000-"), new_id(1) > new_id(0), len(new_id())
    (True, True, 14)
    """
    now = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    return f"{_base32(now, 9)}-{_base32(secrets.randbits(20), 4)}"


def utc_now() -> str:
    """Return the time as an ISO string in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def yardsticks(means: npt.ArrayLike, names: Sequence[str]) -> dict[str, str | float]:
    """Return what a step pays on average without learning, as entries of `Record.summary`.

    Args:
        means: Mean reward of each arm, (arms,), or of each context and arm, (contexts, arms).
        names: Names of the arms.

    >>> yardsticks([0.2, 0.6], ["tea", "coffee"])
    {'chance_reward': 0.4, 'best_fixed_reward': 0.6, 'best_fixed_arm': 'coffee'}
    """
    mean_by_arm = np.atleast_2d(np.asarray(means, np.float64)).mean(axis=0)
    best = int(mean_by_arm.argmax())
    return {
        CHANCE: float(mean_by_arm.mean()),
        BEST: float(mean_by_arm[best]),
        BEST_ARM: names[best],
    }


def _base32(number: int, width: int) -> str:
    return "".join(_ALPHABET[(number >> (5 * i)) & 31] for i in reversed(range(width)))


def points_of(steps: int, points: int = 200) -> Ints:
    """At most `points` steps, evenly spread, the last one included: a curve's size does not grow
    with a run's length.

    >>> points_of(100, 5)
    array([  1,  26,  50,  75, 100])
    """
    return np.unique(np.linspace(1, steps, min(points, steps)).round().astype(np.int64))


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    run: int
    """Number of the current run, from 0."""
    runs: int
    fraction: float
    """Share of the whole record's work that is done."""
    together: int = 1
    """Runs that advance together, starting with `run`."""


Watch = Callable[[Progress], None]
"""Is called with the progress of a run."""


@dataclass(frozen=True)
class Traffic:
    """What moved over one hop, such as "owner -> controller"."""

    hop: str
    messages: int
    bytes: int

    def __post_init__(self) -> None:
        ensure(
            self.messages >= 0 and self.bytes >= 0,
            f"traffic on '{self.hop}' must not be negative, got {self.messages} and {self.bytes} B.",
            rule="results.traffic.negative",
        )


def _no_integers() -> Ints:
    return np.zeros(0, np.int64)


def _no_floats() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Record:
    """One experiment: one or more runs of one configuration on one problem, as far as its maker may
    know it.

    Arrays are copied and made read-only; `reward` and `regret` are cumulative, at the steps in
    `steps`. What is not known is left out: a run that failed early has no runs and no points, and a
    party of a deployment may know neither what was earned nor which arms were pulled.

    >>> record = Record(
    ...     kind="clinics",
    ...     level="strict",
    ...     config={"policy": "ucb", "horizon": 2},
    ...     problem={"name": "two arms", "names": ["a", "b"], "means": [0.2, 0.8]},
    ...     seeds=(7,),
    ...     steps=[1, 2],
    ...     reward=[[0, 1]],
    ...     regret=[[0.6, 0.6]],
    ...     total=(1.0,),
    ...     pulls=[[1, 1]],
    ...     seconds=0.5,
    ... )
    >>> record.label, record.runs, record.horizon, record.total_mean
    ('ucb (strict)', 1, 2, 1.0)
    >>> record.pulls.dtype, record.reward.flags.writeable
    (dtype('int64'), False)
    >>> Record(
    ...     id="0a",
    ...     kind="clinics",
    ...     level="strict",
    ...     config={"horizon": 2},
    ...     problem={},
    ...     party="controller",
    ... )
    <Record 0a: clinics (strict), controller, 0 runs of 2 steps>
    """

    kind: str
    """The system that made it, or any other word."""
    config: Mapping[str, JSON]
    """The resolved configuration; `policy` and `horizon` are read from it.

    A policy is a table with its `name` and its `parameters`, and the `digest` of its source where
    it is custom. A name alone, and parameters next to the name, as earlier versions wrote them, are
    read too.
    """
    problem: Mapping[str, JSON]
    """What was learnt: `name`, `names` of the arms, `means` where they are known, `source`, `words`
    (`Vocabulary`).
    """
    level: str
    """Protection: "plain" (none), "alone" (no federation), "placebo" (a control), or a level of its
    system.
    """
    steps: Ints = field(default_factory=_no_integers)
    """(points,) the steps at which the curves were sampled, increasing."""
    reward: Floats = field(default_factory=_no_floats)
    """(runs, points) cumulative reward."""
    total: tuple[float, ...] = ()
    """(runs,) cumulative reward at the end of each run; empty where that is not known."""
    pulls: Ints = field(default_factory=_no_integers)
    """(runs, arms) how often each arm was pulled; no arms where that is not known."""
    regret: Floats | None = None
    """(runs, points) cumulative pseudo-regret; None where the true means are not known."""
    parties: tuple[str, ...] = ()
    """Names of the parties that earn for themselves; empty where only the whole earns."""
    party_total: Floats | None = None
    """(runs, parties) cumulative reward of each party at the end of each run."""
    party_regret: Floats | None = None
    """(runs, parties) cumulative pseudo-regret of each party at the end of each run."""
    seeds: tuple[int, ...] = ()
    """World seeds of a simulation, one per run; empty in a deployment."""
    leaks: tuple[str, ...] = ()
    """Plain sentences: what is not protected."""
    status: str = "finished"
    """One of `STATUSES`."""
    role_seconds: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds by kind of role."""
    traffic: tuple[Traffic, ...] = ()
    """Messages and bytes by hop."""
    seconds: float = 0.0
    """CPU seconds of the whole experiment, all threads; compiling is not in it."""
    privacy: tuple[Mapping[str, JSON], ...] = ()
    """Entries of the privacy ledger."""
    audits: tuple[Mapping[str, JSON], ...] = ()
    """What attacks found in runs of these settings (`results.audits`), the latest last."""
    summary: Mapping[str, str | float | int] = field(default_factory=dict)
    """Further figures. `label` is the user's own label; `yardsticks` are what a step would pay
    without learning.
    """
    show: Mapping[str, JSON] = field(default_factory=dict)
    """What the system wants shown, as data: `title`, `roles` (by kind: `label`, and `colour` on a
    light and a dark page), `protects` and `learns` (sentences), `cards` (pairs: a figure with its
    unit, what it is), `sections` (tables: `title`, `columns`, `rows`, `notes`, `numeric`), `curves`
    (further ones, at `steps`: `name`, and `values` of every run), `protection` (the level in a few
    words), `off` (what is switched off), `implied` (settings that the protection says already),
    `stopped` and `warnings` (sentences), `headline` (what was earned, where chance is unknown),
    `in_use` (whether it continues as long as it is used), `baseline` (settings that a record of
    level "alone" must share: `joining`).
    """
    id: str = field(default_factory=new_id)
    """Short and sortable (`new_id`)."""
    run_id: str = ""
    """The same in all records of one run, which several parties may keep; by default its own id."""
    party: str = ""
    """The party that recorded what it may know; empty for a whole run in one process."""
    created: str = field(default_factory=utc_now)
    """When, as an ISO string in UTC."""
    version: str = __version__
    """The version of Posse that made it."""

    def __post_init__(self) -> None:
        """Copy arrays and values into the types that a store keeps."""
        values = self.__dict__
        for name, convert in _ELEMENTS.items():
            values[name] = tuple(map(convert, values[name]))
        for name in ("privacy", "audits"):
            entries = enumerate(values[name])
            values[name] = tuple(plain_dict(each, f"{name}[{i}]") for i, each in entries)
        for name in ("config", "problem", "summary", "show"):
            values[name] = plain_dict(values[name], name)
        values["seconds"] = float(self.seconds)
        values["role_seconds"] = {role: float(x) for role, x in self.role_seconds.items()}
        self._copy_arrays()

    def _copy_arrays(self) -> None:
        """Copy arrays into their types; those that were left out get one empty row per run."""
        values = self.__dict__
        values["run_id"] = self.run_id or self.id
        values["steps"] = integers(values["steps"], 1, "steps")
        values["pulls"] = integers(values["pulls"], 2, "pulls")
        for name in ("reward", "regret", "party_total", "party_regret"):
            if values[name] is not None:
                values[name] = floats(values[name], 2, name)
        left_out = ("pulls",) if self.steps.size else ("pulls", "reward", "regret")
        for name in left_out:
            if np.shape(values[name]) == (0, 0):
                values[name] = values[name].reshape(self.runs, 0)

    @classmethod
    def restored(cls, values: Mapping[str, object]) -> Record:
        """Return the record whose fields a store kept. They were validated when it was stored.

        Raises:
            KeyError: A field is missing that every record has, or is unknown.
        """
        unknown = values.keys() - {each.name for each in fields(cls)}
        if unknown:
            raise KeyError(f"unknown field '{min(unknown)}'")
        record = object.__new__(cls)
        for each in fields(cls):
            # Records of earlier versions lack newer fields.
            if each.default_factory is not MISSING:
                record.__dict__[each.name] = each.default_factory()
            elif each.default is not MISSING:
                record.__dict__[each.name] = each.default
        record.__dict__.update(values)
        for name in ("kind", "config", "problem", "level"):
            if name not in values:
                raise KeyError(name)
        for name in (*_ELEMENTS, "privacy", "audits"):
            record.__dict__[name] = tuple(record.__dict__[name])
        record._copy_arrays()
        return record

    def but(self, **changes: object) -> Record:
        """Return a copy with other values of some fields, in the types that a store keeps.

        It copies nothing else, unlike `dataclasses.replace`.
        """
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__ | changes)
        return copy

    def validate(self) -> None:
        """Raise if the parts of this record do not fit each other. A store calls it once.

        Raises:
            DataError: Names the field and the rule that it breaks.
            ConfigError: The status or a word of the vocabulary is unknown.
        """
        rules.one_of(STATUSES, status=self.status)
        vocabulary(self.problem.get("words"))
        _check_names(self)
        _check_shapes(self)
        _check_numbers(self)
        _check_show(self.show)

    @property
    def runs(self) -> int:
        """How many runs it holds, of which something is known."""
        arrays = (self.pulls, self.reward, self.party_total, self.party_regret)
        return len(self.total) or max(0 if array is None else len(array) for array in arrays)

    @property
    def arms(self) -> int:
        """How many arms there were."""
        return int(self.pulls.shape[1])

    @property
    def horizon(self) -> int:
        """Steps a run: `config["horizon"]`, or in its place "budget", "steps", "rounds"; else the
        last step sampled.
        """
        for name in HORIZON:
            steps = self.config.get(name)
            if isinstance(steps, int) and not isinstance(steps, bool):
                return steps
        return int(self.steps[-1]) if self.steps.size else 0

    @property
    def steps_planned(self) -> int:
        """Steps that all runs together have when they finish."""
        runs = self.config.get("runs")
        return self.horizon * (runs if isinstance(runs, int) else max(1, self.runs))

    @property
    def steps_done(self) -> int:
        """Steps taken in all runs together; an interrupted record took fewer than runs times
        horizon.

        `summary["steps_done"]` where a step is not one pull; else the number of pulls.
        """
        steps = self.summary.get("steps_done")
        return int(steps) if isinstance(steps, int | float) else int(self.pulls.sum())

    @property
    def state(self) -> str:
        """The status; if the run has not finished, with the number of steps done, if known."""
        steps_known = self.arms or "steps_done" in self.summary
        if self.status == "finished" or not steps_known:
            return self.status
        noun = self.words.step
        progress = f"{self.steps_done:,} of {words.count(self.steps_planned, noun)}"
        if self.status != "running":
            return f"{self.status} after {progress}"
        if self.show.get("in_use"):  # nobody knows how many steps there will be
            progress = f"{words.count(self.steps_done, noun)} so far"
        return f"running: {progress}"

    @property
    def arm_names(self) -> tuple[str, ...]:
        """Names of the arms; numbered, such as "arm 1", if the problem does not name each."""
        names = as_list(self.problem.get("names"))
        if len(names) == self.arms:
            return tuple(map(str, names))
        return tuple(f"{self.words.arm} {i + 1}" for i in range(self.arms))

    @property
    def means(self) -> tuple[float, ...]:
        """True mean reward of each arm; empty if the problem does not have one per arm."""
        means = as_list(self.problem.get("means"))
        if len(means) != self.arms:
            return ()
        return tuple(np.array(means, np.float64).tolist())

    @property
    def party_names(self) -> tuple[str, ...]:
        """Names of the parties: those that earn, or else those that the problem names."""
        if self.parties:
            return self.parties
        entries = as_list(self.problem.get("parties"))
        return tuple(str(as_table(entry).get("name")) for entry in entries)

    @property
    def total_mean(self) -> float | None:
        """Mean cumulative reward over runs; None where it is not known."""
        return float(np.mean(self.total)) if self.total else None

    @property
    def regret_mean(self) -> float | None:
        """Mean cumulative pseudo-regret over runs at the last step sampled; None if not known."""
        if self.regret is None or not self.regret.size:
            return None
        return float(self.regret[:, -1].mean())

    @property
    def bytes(self) -> int:
        """Bytes over all hops."""
        return sum(hop.bytes for hop in self.traffic)

    @property
    def messages(self) -> int:
        """Messages over all hops."""
        return sum(hop.messages for hop in self.traffic)

    @property
    def words(self) -> Vocabulary:
        """The system's nouns for step, arm, pull, reward and party (`problem["words"]`)."""
        return vocabulary(self.problem.get("words"))

    @property
    def title(self) -> str:
        """What the system is called: `show["title"]`, or the kind of the record."""
        return str(self.show.get("title") or self.kind)

    @property
    def policy(self) -> PolicyName:
        """Name of the policy, or the kind of the record if the configuration has none.

        If something was learnt (`show["learnt"]`), the name also decides by it: with a linear
        model, or with the arm that was pulled most.
        """
        policy = self.config.get("policy")
        if isinstance(policy, Mapping):
            policy = policy.get("name")
        name = PolicyName(policy if isinstance(policy, str) and policy else self.kind)
        table = self.show.get("learnt")
        if isinstance(table, Mapping):
            name.learnt = Learnt.read(table, self.arm_names, self.pulls.sum(axis=0).tolist())
        return name

    @property
    def own_label(self) -> str:
        """The user's own label, or an empty string."""
        label = self.summary.get("label", "")
        return label if isinstance(label, str) else ""

    @property
    def label(self) -> str:
        """Policy, protection and party; `labels` distinguishes several records."""
        name: str = self.policy
        if name != self.protection:
            name = f"{name} ({self.protection})"
        return f"{name}, {self.party}" if self.party else name

    @property
    def federated(self) -> bool:
        """Whether the parties exchanged anything at all."""
        return ALONE not in (self.level, self.policy)

    @property
    def off(self) -> tuple[str, ...]:
        """Protections of the level that were switched off (`show["off"]`)."""
        return () if self.level == PLAIN else self.shown("off")

    @property
    def twin_of(self) -> str:
        """The level whose plain twin this is; empty for a protected record."""
        return str(self.summary.get("twin_of", "")) if self.level == PLAIN else ""

    @property
    def protected(self) -> bool:
        """Whether the level holds what it promises: not plain, and nothing switched off."""
        return self.level != PLAIN and not self.off

    @property
    def protection(self) -> str:
        """The level as tables show it: "paper, aes and mask off", "plain, twin of paper".

        It is `show["protection"]` if the system wrote one.
        """
        if own := self.show.get("protection"):
            return str(own)
        if self.off:
            return f"{self.level}, {words.listed(self.off)} off"
        return f"{self.level}, twin of {self.twin_of}" if self.twin_of else self.level

    @property
    def contextual(self) -> bool:
        """Whether every step has a context, which decides the best arm."""
        return "features" in self.problem

    @property
    def problem_name(self) -> str:
        """Name of the problem, or its source, or "unnamed"."""
        return str(self.problem.get("name") or self.problem.get("source") or "unnamed")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences: why the run stopped early, which data were dropped, what may be wrong."""
        stopped = str(self.show.get("stopped") or "")
        sentences = (stopped, *self.shown("dropped"), *self.shown("warnings"))
        return tuple(filter(None, sentences))

    @property
    def implied(self) -> tuple[str, ...]:
        """Settings that the name of the protection implies, so that labels omit them."""
        return (*self.shown("implied"), *self.off)

    def role_label(self, kind: str) -> str:
        """Return what the system calls a kind of role."""
        return str(self._role(kind).get("label") or kind)

    def role_colour(self, kind: str) -> tuple[str, str] | None:
        """Return the colours of a kind of role on a light and on a dark page, if it has any."""
        colours = self._role(kind).get("colour")
        # A colour goes into the style of a page as it is, and a store may come from elsewhere.
        if not isinstance(colours, list) or not all(map(is_colour, colours)):
            return None
        light, dark = map(str, colours)
        return light, dark

    def _role(self, kind: str) -> Mapping[str, JSON]:
        return as_table(as_table(self.show.get("roles")).get(kind))

    def shown(self, name: str) -> tuple[str, ...]:
        """Return a list of sentences or names that the system wants shown (`show[name]`)."""
        return tuple(map(str, self.show_list(name)))

    def show_list(self, name: str) -> Sequence[JSON]:
        """Return a list that the system wants shown (`show[name]`); empty without one."""
        return as_list(self.show.get(name))

    def settings(self) -> dict[str, JSON]:
        """Return the configuration under dotted names; the policy's name is `policy`.

        The horizon and parameters of the policy may be in a configuration under two names. They are
        returned once, under the names of today.
        """
        values = {_setting_name(name): value for name, value in flat(self.config)}
        for name in list(values):
            parameter = f"policy.{name}"
            if parameter in values and values[parameter] == values[name]:
                del values[name]
        horizons = [values[name] for name in HORIZON if isinstance(values.get(name), int)]
        settings: dict[str, JSON] = {}
        for name, value in values.items():
            same = name in HORIZON and value in horizons[:1]
            settings["horizon" if same else name] = value
        return settings

    def reward_band(self, quantiles: tuple[float, float] | None = None) -> Band:
        """Return the mean cumulative reward at each step, with its band (see `band`)."""
        return band(self.reward, quantiles)

    def regret_band(self, quantiles: tuple[float, float] | None = None) -> Band:
        """Return the mean cumulative pseudo-regret at each step, with its band.

        Raises:
            DataError: The true means of the arms are not known.
        """
        if self.regret is None:
            raise DataError(
                f"run {self.id} has no regret: the true means of its arms are not known.",
                rule="results.regret.not-known",
            )
        return band(self.regret, quantiles)

    def fields(self) -> dict[str, JSON]:
        """Return every field that is not an array, as plain values. Numbers may be NaN."""
        values: dict[str, JSON] = {}
        for each in fields(self):
            if each.name not in (*ARRAYS, "traffic"):
                value = getattr(self, each.name)
                values[each.name] = list(value) if isinstance(value, tuple) else value
        values["traffic"] = [
            {"hop": each.hop, "messages": each.messages, "bytes": each.bytes}
            for each in self.traffic
        ]
        return values

    def metadata(self) -> dict[str, JSON]:
        """Return `fields()` and what follows from them as strict JSON."""
        derived: dict[str, JSON] = {name: getattr(self, name) for name in _DERIVED}
        return {key: strict(value) for key, value in {**self.fields(), **derived}.items()}

    def document(self) -> dict[str, JSON]:
        """Return `metadata()` and the arrays: all that a record holds."""
        arrays = {name: plain(getattr(self, name), name) for name in ARRAYS}
        return {**self.metadata(), **arrays}

    def __repr__(self) -> str:
        parts = [
            self.label,
            f"{words.count(self.runs, 'run')} of {words.count(self.horizon, self.words.step)}",
        ]
        if self.total:
            parts.append(f"earned {self.words.priced(words.number(self.total_mean))}")
        if self.status != "finished":
            parts.append(self.state)
        return f"<Record {self.id}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Return the record as a notebook shows it."""
        from posse.results.render import card

        return card(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        # Compared as text, in which NaN is equal to itself.
        mine, theirs = (json.dumps(record.fields(), sort_keys=True) for record in (self, other))
        return mine == theirs and all(
            same(getattr(self, name), getattr(other, name)) for name in ARRAYS
        )

    def __hash__(self) -> int:
        return hash(self.id)


def several(records: Record | Iterable[Record]) -> tuple[Record, ...]:
    """Accept one record where several are expected."""
    return (records,) if isinstance(records, Record) else tuple(records)


def nouns_of(records: Iterable[Record]) -> Vocabulary:
    """Return the nouns that the systems of records share, and the defaults for the others."""
    return common(record.words for record in records)


_ELEMENTS: Mapping[str, Callable[..., object]] = {
    "total": float,
    "parties": str,
    "seeds": int,
    "leaks": str,
    "traffic": lambda hop: hop,
}
"""Fields that are tuples, with the type of their elements."""


def _setting_name(name: str) -> str:
    """Return the name of today for a setting in a configuration."""
    if name == "policy.name":
        return "policy"
    return name.replace("policy.parameters.", "policy.")


def _check_names(record: Record) -> None:
    for name in ("id", "run_id"):
        id = getattr(record, name)
        ensure(
            id != "last" and _ID.fullmatch(id),
            f"{name} must be 2 to 64 of a-z, 0-9 and '-', and not 'last', got {id!r}. Use new_id().",
            rule=f"results.{name}.malformed",
        )
    for name in ("kind", "level", "version"):
        ensure(getattr(record, name), f"{name} must not be empty.", rule=f"results.{name}.empty")
    try:
        created = datetime.fromisoformat(record.created)
    except ValueError as error:
        raise DataError(
            f"created must be an ISO time, got {record.created!r}.",
            rule="results.created.not-a-time",
        ) from error
    ensure(
        created.tzinfo is not None,
        f"created must have a time zone, got {record.created!r}. Write it in UTC, ending in +00:00.",
        rule="results.created.no-time-zone",
    )
    repeated = rules.first_repeated(record.parties)
    problem = "an empty one" if repeated is None else f"'{repeated}' twice"
    ensure(
        repeated is None and "" not in record.parties,
        f"parties must have different names, got {problem}. Give each another name.",
        rule="results.parties.not-distinct",
    )


def _check_numbers(record: Record) -> None:
    steps = record.steps
    ensure(
        not record.runs or len(record.seeds) in (0, record.runs),
        f"expected {record.runs} world seeds, one per run, got {len(record.seeds)}. Give all, or "
        "none.",
        rule="results.seeds.wrong-number",
    )
    ensure(
        all(0 <= seed < 2**64 for seed in record.seeds),
        "world seeds must be in [0, 2^64).",
        rule="results.seeds.out-of-range",
    )
    ensure(
        (np.diff(steps, prepend=-1) > 0).all(),
        "steps must increase and not be negative.",
        rule="results.steps.not-increasing",
    )
    ensure(
        (record.pulls >= 0).all(),
        f"pulls must not be negative, got {record.pulls.min(initial=0)}.",
        rule="results.pulls.negative",
    )
    ensure(
        np.isfinite(record.total).all(),
        "total must be finite, got NaN or infinity.",
        rule="results.total.not-finite",
    )
    for name, value in {"seconds": record.seconds, **record.role_seconds}.items():
        ensure(
            0 <= value < np.inf,
            f"seconds must be finite and not negative, got {value} for {name}.",
            rule="results.seconds.negative",
        )


def _check_shapes(record: Record) -> None:
    runs = record.runs
    points = record.steps.size
    parties = len(record.parties)
    columns = {
        "reward": points,
        "regret": points,
        "pulls": record.arms,
        "party_total": parties,
        "party_regret": parties,
    }
    for name, size in columns.items():
        array = getattr(record, name)
        # Without a run the other axis means nothing.
        if array is None or array.shape[0] == runs == 0:
            continue
        ensure(
            array.shape == (runs, size),
            f"{name} must have shape {(runs, size)} for {runs} runs and {points} steps, got "
            f"{array.shape}. Give one row per run and one column per step (per arm for pulls, per "
            "party for what parties earned).",
            rule=f"results.{name}.wrong-shape",
        )


def _check_show(show: Mapping[str, JSON]) -> None:
    """Raise if what a system wants shown cannot be printed. Unknown keys are ignored."""
    for name, expected in _SHOW_TYPES.items():
        ensure(
            isinstance(show.get(name, expected()), expected),
            f"show.{name} must be a {expected.__name__}, got {show.get(name)!r}.",
            rule="results.show.wrong-type",
            field=f"show.{name}",
        )
    for kind, role in as_table(show.get("roles")).items():
        # The colours go into the style of a page as they are.
        colours = as_list(as_table(role).get("colour"))
        ensure(
            isinstance(role, Mapping) and all(map(is_colour, colours)),
            f"show.roles.{kind} must have a label and two colours such as '#2f7fd6', got {role!r}.",
            rule="results.show.no-colours",
            field=f"show.roles.{kind}",
        )
    for i, section in enumerate(as_list(show.get("sections"))):
        table = as_table(section)
        width = len(as_list(table.get("columns")))
        ensure(
            table and all(len(as_list(row)) == width for row in as_list(table.get("rows"))),
            f"show.sections[{i}] must be a table whose rows are as long as its columns, got "
            f"{section}.",
            rule="results.show.not-a-table",
            field=f"show.sections[{i}]",
        )


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the record of what was done."""

    def __init__(self, record: Record) -> None:
        super().__init__("interrupted")
        self.record = record
