"""What records are called: the names of one record, and labels that distinguish several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile

from posse.results import words
from posse.results.record import ALONE, PLACEBO, PLAIN, Record
from posse.results.values import JSON, all_names
from posse.results.words import Vocabulary

_REMARKS = {PLAIN: "no protection", ALONE: "nothing is shared", PLACEBO: "a control, pure noise"}

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


def differences(records: Iterable[Record]) -> list[dict[str, str]]:
    """Return in what records differ: names and values as text, one table per record.

    The order is system, policy, level, settings, data, seeds, party, version and status. Settings
    are compared between records of one system, parameters of a policy between records that use it.
    """
    chosen = tuple(records)
    implied = {name for record in chosen for name in record.implied}
    facts = [_facts(record, implied) for record in chosen]
    tables: list[dict[str, str]] = [{} for _ in facts]
    for name in all_names(facts):
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
    same = len(list(takewhile(lambda letters: len(set(letters)) == 1, columns)))
    start = max(0, same - LONGEST // 4)
    end = start + LONGEST - 1
    before = "…" if start else ""
    shortened = {}
    for i, text in texts.items():
        after = "…" if len(text) > end else ""
        shortened[i] = f"{before}{text[start:end]}{after}"
    return shortened


def labels(records: Iterable[Record]) -> list[str]:
    """Return a different label for each record.

    A label is the user's own one, or policy and level. Records that would have the same label also
    get the first setting in which they differ, then the next one, and at last their ids.
    """
    chosen = tuple(records)
    tables = differences(chosen)
    texts = [_base(record, table) for record, table in zip(chosen, tables, strict=True)]
    for name in all_names(tables):
        if name in ("system", "policy", "level", "party"):
            continue
        for group in _duplicates(texts):
            values = {tables[i].get(name) for i in group}
            for i in group if len(values) > 1 else ():
                texts[i] += _setting(name, tables[i].get(name, ""), chosen[i].words)
    return distinct(texts, chosen)


def distinct(
    texts: Sequence[str], records: Sequence[Record], cut: Callable[[str], str] = str
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


def _base(record: Record, table: Mapping[str, str]) -> str:
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


def _facts(record: Record, implied: set[str]) -> dict[str, str]:
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
