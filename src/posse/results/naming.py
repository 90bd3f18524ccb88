"""What records are called: the names of one record, and labels that distinguish several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from posse.policies.decisions import Learnt, PolicyName
from posse.results import words
from posse.results.values import JSON, flat, is_colour
from posse.results.words import Vocabulary, vocabulary

PLAIN = "plain"
"""No protection: everything is exchanged in the clear."""

ALONE = "alone"
"""No federation: nothing leaves a party."""

PLACEBO = "placebo"
"""A control: messages of pure noise, which should help nobody."""

_REMARKS = {PLAIN: "no protection", ALONE: "nothing is shared", PLACEBO: "a control, pure noise"}

HORIZON = ("horizon", "budget", "steps", "rounds")
"""Settings that give the number of steps of a run; the first one that is set counts."""

LONGEST = 32
"""Letters of a value in a label; longer ones are cut."""

TWIN = "twin of"
"""Fact of a plain twin: the level that it is the twin of."""


def described(protection: str) -> str:
    """Return a protection with what it means, if its name alone could mislead.

    >>> described("alone"), described("plain, twin of paper"), described("strict")
    ('alone: nothing is shared', 'plain, twin of paper: no protection', 'strict')
    """
    remark = _REMARKS.get(protection.partition(",")[0])
    return f"{protection}: {remark}" if remark else protection


class Named:
    """The names of a `Record`, read from its fields."""

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
        if not isinstance(policy, str) or not policy:
            policy = self.kind
        name = PolicyName(policy)
        table = self.show.get("learnt")
        pulls = getattr(self, "pulls", None)
        if isinstance(table, Mapping) and pulls is not None:
            arms = getattr(self, "arm_names", ())
            name.learnt = Learnt.read(table, arms, pulls.sum(axis=0).tolist())
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
        """What the system calls a kind of role."""
        return str(self._role(kind).get("label") or kind)

    def role_colour(self, kind: str) -> tuple[str, str] | None:
        """Colours of a kind of role on a light and on a dark page; None if the system has none."""
        colours = self._role(kind).get("colour")
        if not isinstance(colours, list) or len(colours) != 2:
            return None
        # A colour goes into the style of a page as it is, and a store may come from elsewhere.
        light, dark = colours
        return (light, dark) if is_colour(light) and is_colour(dark) else None

    def shown(self, name: str) -> tuple[str, ...]:
        """Return a list of sentences or names that the system wants shown (`show[name]`)."""
        return tuple(map(str, self.show_list(name)))

    def show_list(self, name: str) -> list[Any]:
        """Return a list that the system wants shown (`show[name]`); empty without one."""
        values = self.show.get(name)
        return values if isinstance(values, list) else []

    def _role(self, kind: str) -> Mapping[str, JSON]:
        roles: Any = self.show.get("roles") or {}
        role: Mapping[str, JSON] = roles.get(kind) or {}
        return role

    def settings(self) -> dict[str, JSON]:
        """Return the configuration under dotted names; the policy's name is `policy`.

        The horizon and parameters of the policy may be in a configuration under two names. They are
        returned once, under the names of today.
        """
        values = dict(_renamed(name, value) for name, value in flat(self.config))
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


def _renamed(name: str, value: JSON) -> tuple[str, JSON]:
    if name == "policy.name":
        return "policy", value
    return name.replace("policy.parameters.", "policy."), value


def differences(records: Iterable[Named]) -> list[dict[str, str]]:
    """Return in what records differ: names and values as text, one table per record.

    The order is system, policy, level, settings, data, seeds, party, version and status. Settings
    are compared between records of one system, parameters of a policy between records that use it.
    """
    chosen = tuple(records)
    implied = {name for record in chosen for name in record.implied}
    facts = [_facts(record, implied) for record in chosen]
    names: dict[str, None] = {}
    for each in facts:
        names |= dict.fromkeys(each)
    tables: list[dict[str, str]] = [{} for _ in facts]
    for name in names:
        if _differs(name, facts):
            texts = {i: each[name] for i, each in enumerate(facts) if name in each}
            for i, text in _shortened(texts).items():
                tables[i][name] = text
    return tables


def _shortened(texts: Mapping[int, str]) -> dict[int, str]:
    """Cut long texts to the part around the first letter in which they differ.

    >>> _shortened({0: "a" * 40 + "1" + "b" * 40, 1: "a" * 40 + "2"})
    {0: '…aaaaaaaa1bbbbbbbbbbbbbbbbbbbbbb…', 1: '…aaaaaaaa2'}
    """
    if all(len(text) <= LONGEST for text in texts.values()):
        return dict(texts)
    columns = zip(*texts.values(), strict=False)
    common = sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, columns))
    start = max(0, common - LONGEST // 4)
    shortened = {}
    for i, text in texts.items():
        end = start + LONGEST - 1
        shortened[i] = text[start:end]
        if start:
            shortened[i] = f"…{shortened[i]}"
        if len(text) > end:
            shortened[i] += "…"
    return shortened


def labels(records: Iterable[Named]) -> list[str]:
    """Return a different label for each record.

    A label is the user's own one, or policy and level. Records that would have the same label also
    get the first setting in which they differ, then the next one, and at last their ids.
    """
    chosen = tuple(records)
    tables = differences(chosen)
    texts = [_base(record, table) for record, table in zip(chosen, tables, strict=True)]
    names: dict[str, None] = {}
    for table in tables:
        names |= dict.fromkeys(table)
    for name in names:
        if name in ("system", "policy", "level", "party"):
            continue
        for group in _duplicates(texts):
            values = {tables[i].get(name) for i in group}
            for i in group if len(values) > 1 else ():
                texts[i] += _setting(name, tables[i].get(name, ""), chosen[i].words)
    return distinct(texts, chosen)


def distinct(
    texts: Sequence[str], records: Sequence[Named], cut: Callable[[str], str] = str
) -> list[str]:
    """Make texts distinct after `cut` shortened them: by the id of the record, then by number."""
    shortened = [cut(text) for text in texts]
    for group in _duplicates(shortened):
        for i in group:
            shortened[i] += f" · {records[i].id}"
    for group in _duplicates(shortened):
        for number, i in enumerate(group[1:], 2):
            shortened[i] += f" ({number})"
    return shortened


def _duplicates(texts: Sequence[str]) -> list[list[int]]:
    """Return the positions of texts that are equal, one list per text."""
    times = Counter(texts)
    groups: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        if times[text] > 1:
            groups.setdefault(text, []).append(i)
    return list(groups.values())


def _base(record: Named, table: Mapping[str, str]) -> str:
    """Return the label of a record before settings: system, own label, policy and level."""
    if not record.own_label:
        text = record.label
    elif table.keys() & {"policy", "level", "party"}:
        text = f"{record.own_label}, {record.label}"
    else:
        text = record.own_label
    return f"{table['system']}: {text}" if "system" in table else text


def _setting(name: str, value: str, nouns: Vocabulary) -> str:
    """Return a setting as the end of a label.

    >>> _setting("policy.tau", "0.1", Vocabulary()), _setting("horizon", "200", Vocabulary())
    (', tau 0.1', ', 200 steps')
    """
    if not value:
        return ""
    if name == "horizon" and value.isdecimal():
        return f", {words.count(int(value), nouns.step)}"
    if name == "status":
        return f", {value}"
    return f", {name.removeprefix('policy.')} {value}"


def _facts(record: Named, implied: set[str]) -> dict[str, str]:
    """Return all that may distinguish a record, as text."""
    facts = {"system": record.title, "policy": record.policy, "level": record.protection}
    last = {"party": record.party, TWIN: "", "version": record.version, "status": ""}
    if record.twin_of not in record.protection:
        last[TWIN] = record.twin_of
    if record.status != "finished":
        last["status"] = record.status
    for name, value in record.settings().items():
        text = _text(value)
        if name == "policy" or name in implied:
            continue
        if name == "level" and text in record.protection:
            continue
        reserved = name in facts or name in last
        facts[f"config.{name}" if reserved else name] = text
    facts.setdefault("data", record.problem_name)
    if "seed" not in facts and record.seeds:
        facts["seeds"] = _text(list(record.seeds))
    return facts | last


def _differs(name: str, facts: Sequence[Mapping[str, str]]) -> bool:
    """Return whether a fact differs between records that it can be compared between."""
    values: dict[tuple[str, ...], str | None] = {}
    for each in facts:
        group: tuple[str, ...] = ()
        if name not in ("system", "policy", "level"):
            group = (each["system"],)
        if name.startswith("policy."):
            group += (each["policy"],)
        if name == TWIN:
            group += (each["level"],)
        if values.setdefault(group, each.get(name)) != each.get(name):
            return True
    return False


def _text(value: JSON) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return words.words_of(value)
