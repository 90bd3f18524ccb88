"""How records are called: the names of one record, and labels that keep several apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from posse.policies.decisions import Learnt, PolicyName
from posse.results import words
from posse.results.values import JSON, flat
from posse.results.words import Vocabulary, vocabulary

PLAIN = "plain"
"""No protection: what is exchanged is exchanged in the clear."""

ALONE = "alone"
"""No federation: nothing leaves a party, so there is nothing to protect and nothing to gain."""

PLACEBO = "placebo"
"""A control: messages of pure noise, which carry nothing and should help nobody."""

_REMARKS = {PLAIN: "no protection", ALONE: "nothing is shared", PLACEBO: "a control, pure noise"}

HORIZON = ("horizon", "budget", "steps", "rounds")
"""Settings that say how many steps a run has; the first one given counts."""

MOST = 8
"""Settings that a label names at most; of more that differ it names those that separate records."""

LONG = 32
"""Letters of one value in a label; a longer one is cut where it does not differ."""

TWIN = "twin of"
"""Whose plain twin a record is, where the twins of several levels are one."""


def remark(protection: str) -> str:
    """Say what a protection (`Record.protection`) is when its name alone could mislead; else
    nothing.

    >>> remark("plain, twin of paper"), remark("alone"), remark("tight")
    ('no protection', 'nothing is shared', '')
    """
    return _REMARKS.get(protection.partition(",")[0], "")


def described(protection: str) -> str:
    """Write a protection with its remark.

    >>> described("alone"), described("strict")
    ('alone: nothing is shared', 'strict')
    """
    return f"{protection}: {remark(protection)}" if remark(protection) else protection


def warns(protection: str) -> bool:
    """Return whether a protection is less than its name says: a part of it is switched off.

    >>> warns("plain"), warns("paper, mask off")
    (False, True)
    """
    return protection.endswith(" off")


class Named:
    """The names of a `Record`, read from its fields; it holds nothing of its own."""

    id: str
    kind: str
    level: str
    party: str
    status: str
    version: str
    seeds: tuple[int, ...]
    config: Mapping[str, JSON]
    problem: Mapping[str, JSON]
    summary: Mapping[str, str | float | int]
    show: Mapping[str, JSON]

    @property
    def words(self) -> Vocabulary:
        """What this system calls a step, an arm, a pull, a reward and a party: `problem["words"]`,
        or the defaults.
        """
        return vocabulary(self.problem.get("words"))

    @property
    def title(self) -> str:
        """What the system is called: `show["title"]`, or the kind of the record."""
        return str(self.show.get("title") or self.kind)

    @property
    def policy(self) -> PolicyName:
        """Name of the policy, or the kind of the record where the configuration has none; `decide`
        of what was learnt.

        `show["learnt"]` says that something was: a linear model, or nothing more where it is an
        arm.
        """
        policy = self.config.get("policy")
        name = policy.get("name") if isinstance(policy, Mapping) else policy
        made = PolicyName(name if isinstance(name, str) and name else self.kind)
        table, pulls = self.show.get("learnt"), getattr(self, "pulls", None)
        if isinstance(table, Mapping) and pulls is not None:
            made.learnt = Learnt.read(
                table, getattr(self, "arm_names", ()), pulls.sum(axis=0).tolist()
            )
        return made

    @property
    def own_label(self) -> str:
        """The user's own label, or an empty string."""
        label = self.summary.get("label", "")
        return label if isinstance(label, str) else ""

    @property
    def label(self) -> str:
        """Name of this record alone: policy and protection, once where they are one word, and whose
        record it is.

        `labels` names several records, so that no two are called the same.
        """
        name = (
            self.policy if self.policy == self.protection else f"{self.policy} ({self.protection})"
        )
        return f"{name}, {self.party}" if self.party else name

    @property
    def federated(self) -> bool:
        """Whether the parties exchanged anything at all."""
        return ALONE not in (self.level, self.policy)

    @property
    def off(self) -> tuple[str, ...]:
        """Protections of the level that were switched off (`show["off"]`); none in a plain record,
        which has none.
        """
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
        """The level as every table shows it, such as "paper, aes and mask off" or "plain, twin of
        paper".

        The system's own words (`show["protection"]`) where it has some.
        """
        if own := self.show.get("protection"):
            return str(own)
        if self.off:
            return f"{self.level}, {words.listed(self.off)} off"
        return f"{self.level}, twin of {self.twin_of}" if self.twin_of else self.level

    @property
    def contextual(self) -> bool:
        """Whether every step has a context, and with it a best arm of its own."""
        return "features" in self.problem

    @property
    def problem_name(self) -> str:
        """Name of the problem, or its source, or "unnamed"."""
        return next(
            (str(self.problem[key]) for key in ("name", "source") if self.problem.get(key)),
            "unnamed",
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences: why it stopped early, what of the data was dropped, signs that it did not do
        what was meant.
        """
        stopped = self.show.get("stopped")
        return (
            *((str(stopped),) if stopped else ()),
            *self.shown("dropped"),
            *self.shown("warnings"),
        )

    @property
    def implied(self) -> tuple[str, ...]:
        """Settings that the protection says already (`show["implied"]`), so that labels do not
        repeat them.
        """
        return (*self.shown("implied"), *self.off)

    def role_label(self, kind: str) -> str:
        """What the system calls a kind of role."""
        return str(self._role(kind).get("label") or kind)

    def role_colour(self, kind: str) -> tuple[str, str] | None:
        """Colours of a kind of role on a light and on a dark page; None where the system gives
        none.
        """
        colour = self._role(kind).get("colour")
        if isinstance(colour, Sequence) and not isinstance(colour, str) and len(colour) == 2:
            return str(colour[0]), str(colour[1])
        return None

    def shown(self, name: str) -> tuple[str, ...]:
        """Sentences or names that its system gives whoever shows it (`show[name]`); none where it
        gives none.
        """
        values = self.show.get(name)
        return tuple(str(one) for one in values) if isinstance(values, list) else ()

    def _role(self, kind: str) -> Mapping[str, JSON]:
        roles = self.show.get("roles")
        role = roles.get(kind) if isinstance(roles, Mapping) else None
        return role if isinstance(role, Mapping) else {}

    def settings(self) -> dict[str, JSON]:
        """Return the configuration with dotted names, one value a parameter; the policy's name
        stands as `policy`.

        Other words for the horizon, and parameters of the policy that stand beside it too, are
        given once.
        """
        pairs = (
            (name.replace("policy.parameters.", "policy."), value)
            for name, value in flat(self.config)
        )
        values = {"policy" if name == "policy.name" else name: value for name, value in pairs}
        values = {
            name: value
            for name, value in values.items()
            if values.get(f"policy.{name}", values) != value
        }
        horizon = next(
            (values[name] for name in HORIZON if isinstance(values.get(name), int)), None
        )
        if horizon is None:
            return values
        alike = {name for name in HORIZON if values.get(name) == horizon}
        first = next(name for name in values if name in alike)
        kept = {name: value for name, value in values.items() if name not in alike or name == first}
        return {"horizon" if name == first else name: value for name, value in kept.items()}


def differences(records: Iterable[Named]) -> list[dict[str, str]]:
    """Return what sets each record apart from the others shown with it: names and values as words,
    one table a record.

    First system, policy and level, then settings, data, seeds, party, version and status. A name is
    in the tables where its value differs between records of one system (for a parameter of a
    policy: of one policy).
    """
    chosen = tuple(records)
    implied = {name for record in chosen for name in record.implied}
    facts = [_facts(record, implied) for record in chosen]
    names = dict.fromkeys(name for one in facts for name in one)
    differing = [name for name in names if _differs(name, chosen, facts)]
    short = {name: _short({one[name] for one in facts if name in one}) for name in differing}
    return [{name: short[name][one[name]] for name in differing if name in one} for one in facts]


def labels(records: Iterable[Named]) -> list[str]:
    """Name records that are shown together, so that no two are called the same.

    A user's own label comes first, then policy and protection, then whatever else differs. Records
    that differ in nothing get their ids.
    """
    chosen = tuple(records)
    tables = differences(chosen)
    named = _named({name: None for table in tables for name in table}, tables)
    made = [_label(record, table, named) for record, table in zip(chosen, tables, strict=True)]
    return distinct(made, chosen)


def distinct(
    texts: Sequence[str], records: Sequence[Named], cut: Callable[[str], str] = str
) -> list[str]:
    """Make texts distinct after `cut` shortened them: by the id of the record, then by number."""
    made = [cut(text) for text in texts]
    times = Counter(made)
    made = [
        f"{text} · {one.id}" if times[text] > 1 else text
        for text, one in zip(made, records, strict=True)
    ]
    seen: set[str] = set()
    for i, text in enumerate(made):
        number = 1
        while made[i] in seen:
            number += 1
            made[i] = f"{text} ({number})"
        seen.add(made[i])
    return made


def _facts(record: Named, implied: Collection[str]) -> dict[str, str]:
    """All that may set a record apart, in words; first what a label always says."""
    facts = {"system": record.title, "policy": record.policy, "level": record.protection}
    status = "" if record.status == "finished" else record.status
    twin = "" if record.twin_of in record.protection else record.twin_of
    last = {"party": record.party, TWIN: twin, "version": record.version, "status": status}
    for name, value in record.settings().items():
        text = _text(value)
        # The policy stands there already, and the level is a part of the protection.
        if (
            name != "policy"
            and name not in implied
            and not (name == "level" and text in record.protection)
        ):
            facts[f"config.{name}" if name in facts or name in last else name] = text
    facts.setdefault("data", record.problem_name)
    if "seed" not in facts and record.seeds:
        facts["seeds"] = _text(list(record.seeds))
    return {**facts, **last}


def _differs(name: str, records: Sequence[Named], facts: Sequence[Mapping[str, str]]) -> bool:
    """Return whether a fact differs where it can be compared; records of other systems have other
    settings.
    """
    groups: dict[tuple[str, ...], set[str | None]] = {}
    for record, one in zip(records, facts, strict=True):
        group: tuple[str, ...] = () if name in ("system", "policy", "level") else (record.title,)
        group += (record.policy,) if name.startswith("policy.") else ()
        group += (record.protection,) if name == TWIN else ()
        groups.setdefault(group, set()).add(one.get(name))
    return any(len(values) > 1 for values in groups.values())


def _named(names: Iterable[str], tables: Sequence[Mapping[str, str]]) -> list[str]:
    """Choose the names that labels give; of too many those that separate further records, in their
    order.
    """
    differing = list(names)
    if len(differing) <= MOST:
        return differing
    chosen: list[str] = []
    parts = 1
    for name in differing:
        now = len({tuple(table.get(one) for one in (*chosen, name)) for table in tables})
        if now > parts:
            chosen, parts = [*chosen, name], now
    return chosen


def _label(record: Named, table: Mapping[str, str], named: Sequence[str]) -> str:
    facts = {name: table[name] for name in named if table.get(name)}
    parts = [record.own_label] if record.own_label else []
    if not record.own_label or facts.keys() & {"policy", "level", "party"}:
        parts.append(record.label)
    system = f"{facts['system']}: " if "system" in facts else ""
    last = [name.rpartition(".")[2] for name in facts]
    for name, value in facts.items():
        short = name.rpartition(".")[2]
        if name == "horizon" and value.isdecimal():
            parts.append(words.count(int(value), record.words.step))
        elif name == "status":
            parts.append(value)
        elif name not in ("system", "policy", "level", "party"):
            parts.append(f"{short if last.count(short) == 1 else name} {value}")
    return system + ", ".join(parts)


def _text(value: JSON) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return words.words_of(value)


def _short(texts: Collection[str]) -> dict[str, str]:
    """Cut long texts in the middle; of those that then look the same, what they share with the next
    one is left out.

    >>> sorted(_short({"a" * 40 + "1" + "b" * 40, "a" * 40 + "2" + "b" * 40}).values())
    ['…aaaaaaaa1bbbbbbbbbbbbbbbbbbbbbb…', '…aaaaaaaa2bbbbbbbbbbbbbbbbbbbbbb…']
    """
    made = {
        text: text if len(text) <= LONG else f"{text[: LONG // 2 - 1]}…{text[-LONG // 2 :]}"
        for text in texts
    }
    times = Counter(made.values())
    alike = sorted(text for text, short in made.items() if times[short] > 1)
    shared = [0, *(_shared(*pair) for pair in pairwise(alike)), 0]
    starts = {
        text: max(0, max(both) - LONG // 4)
        for text, both in zip(alike, pairwise(shared), strict=False)
    }
    cut = {
        text: f"…{text[at : at + LONG - 1]}{'…' if text[at + LONG - 1 :] else ''}"
        for text, at in starts.items()
    }
    times = Counter(cut.values())
    return made | {
        text: f"{one} at {starts[text]}" if times[one] > 1 else one for text, one in cut.items()
    }


def _shared(one: str, other: str) -> int:
    """Letters that two texts have in common at first."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
