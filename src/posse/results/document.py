"""What is shown of records: one document, which terminals, pages, notebooks and files render.

`document` makes it from records. It is the one place that decides what is said about a result, and
in which order: the answer, what it cost, how it was protected, and details. What a record does not
know is omitted: a party of a deployment reads only what it may know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from posse.core.statistics import Floats, mean_interval, standard_error, student, wilson
from posse.results import words
from posse.results.compare import compare, difference, identical
from posse.results.guarantees import guarantees, ledger, not_covered
from posse.results.joining import ALL, Joining, Share, joining
from posse.results.naming import ALONE, PLACEBO, PLAIN, described, labels
from posse.results.record import BEST, BEST_ARM, CHANCE, Record, several
from posse.results.section import Section
from posse.results.values import JSON, flat
from posse.results.words import Vocabulary, common, plural

Labelled = Sequence[tuple[Record, str]]
"""Records with their labels."""

UNPROTECTED = (PLAIN, ALONE, PLACEBO)
"""Levels that protect nothing, and so have no plain twin."""
REST = "rest of the process"
"""CPU time that no role took: the simulated world, passing messages, writing the record."""
MOST_PULLED = 10
"""Arms in the table of pulls."""
MOST_SEEDS = 50
"""Seeds in the table of a record."""


# What a document consists of ----------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """An average reward, of a run or of a yardstick such as an even split."""

    label: str
    value: float
    text: str
    """The value with its interval."""
    gain: str
    """How much more than the reference of the picture, in percent."""
    yardstick: bool = False


@dataclass(frozen=True)
class Picture:
    """A bar chart of the answer."""

    title: str
    """What the bars are averages of, such as "reward per step"."""
    reference: str
    """What gains are relative to, such as "an even split"; empty without one."""
    bars: tuple[Bar, ...]

    def section(self) -> Section:
        """Return the bars as a table."""
        columns: tuple[str, ...] = ("", self.title)
        rows = [(bar.label, bar.text) for bar in self.bars]
        if not self.reference:
            return Section("", columns, tuple(rows), numeric=(1,))
        gains = [(bar.label, bar.text, bar.gain) for bar in self.bars]
        columns += (f"against {self.reference}",)
        return Section("", columns, tuple(gains), numeric=(1, 2))


@dataclass(frozen=True)
class Protection:
    """How records of one level were protected, in three lines."""

    level: str
    against: str
    broken_by: str
    """The smallest group that learns what is protected."""
    verified: str
    """The attacks that were made to verify it."""
    privacy: str = ""
    """Epsilon and delta with their unit, if noise protects."""
    warning: str = ""
    """What is switched off; empty if the level holds what it promises."""
    command: str = ""
    """The command that switches stronger protection on."""

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """The three lines with their names, and figure and command if there are any."""
        lines = [
            ("against", self.against),
            ("broken by", self.broken_by),
            ("tested by", self.verified),
        ]
        if self.privacy:
            lines.append(("privacy", self.privacy))
        if self.command:
            lines.append(("stronger", self.command))
        return tuple(lines)


@dataclass(frozen=True)
class Plot:
    """A figure that `posse.results.plots` can draw."""

    kind: str
    """Name of the function that draws it."""
    caption: str
    records: tuple[Record, ...] = field(repr=False)
    labels: tuple[str, ...]
    curve: str = ""
    """Name of the curve, if the system names several."""


@dataclass(frozen=True)
class Document:
    """What is shown of records."""

    title: str
    """What was run: system, policy, data and sizes."""
    headline: str
    """The answer."""
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]
    picture: Picture | None
    table: Section
    """What was earned and what it cost, one row per record."""
    protection: tuple[Protection, ...]
    notes: tuple[str, ...]
    details: tuple[Section, ...]
    plots: tuple[Plot, ...]
    records: tuple[Record, ...] = field(repr=False)


def document(
    records: Record | Iterable[Record], tables: Sequence[Section] = (), notes: Sequence[str] = ()
) -> Document:
    """Return the document of records that are shown together.

    Args:
        records: The first one is the one that was asked for; others are compared with it.
        tables: Further tables that only the system of these records has.
        notes: Further sentences.
    """
    chosen = several(records)
    pairs = list(zip(chosen, labels(chosen), strict=True))
    joined_records = joining(chosen) if any(record.parties for record in chosen) else ()
    headline, sentences = _answer(pairs, joined_records)
    warnings = []
    for record, label in pairs:
        owner = f"{label}: " if len(pairs) > 1 else ""
        warnings += [f"{owner}{sentence}" for sentence in record.warnings]
    return Document(
        title=describe(chosen),
        headline=headline,
        sentences=tuple(filter(None, sentences)),
        warnings=tuple(warnings),
        picture=_picture(pairs),
        table=_cost_table(pairs),
        protection=_protections(chosen),
        notes=tuple(notes),
        details=tuple(_details(pairs, tables, joined_records)),
        plots=tuple(_plots(pairs)),
        records=chosen,
    )


def describe(records: Sequence[Record]) -> str:
    """Return in one line what was run: system, policies, data and sizes of the first record."""
    first = records[0]
    nouns = first.words
    problems = list(dict.fromkeys(record.problem_name for record in records))
    if len(problems) > 1:
        return f"{len(records)} runs on {len(problems)} problems"
    names = first.problem.get("names")
    clients = first.problem.get("clients")
    arms = first.arms
    parties = len(first.party_names)
    if isinstance(clients, int) and isinstance(names, list):  # devices have no names
        parties = clients
        arms = len(names)
    if not parties and arms:  # one arm per party
        parties = arms
        arms = 0
    parts = [f"{first.title}: {first.policy}", first.problem_name]
    if parties:
        parts.append(words.count(parties, nouns.party))
    if arms:
        parts.append(words.count(arms, nouns.arm))
    parts.append(words.count(first.horizon, nouns.step))
    if first.runs > 1:
        parts.append(words.count(first.runs, "run"))
    if first.status != "finished":
        parts.append(first.state)
    return " · ".join(parts)


# The answer ---------------------------------------------------------------------------------------


def _answer(pairs: Labelled, joined_records: Sequence[Joining]) -> tuple[str, tuple[str, ...]]:
    """Return the headline, and the sentences below it."""
    rivals = _rivals(pairs)
    first = rivals[0][0]
    for joined in joined_records:
        if joined.baseline is not None:
            headline, sentences = _answer_of_joining(joined)
            break
    else:
        if len(rivals) > 1:
            headline, sentences = _answer_of_several(rivals)
        else:
            headline, sentences = _answer_of_one(*rivals[0])
    equal = [record for record, _ in pairs if record is not first and identical(record, first)]
    if equal:
        nouns = first.words
        names = words.listed(short_labels([(record, record.label) for record in equal[:3]]))
        more = f" and {len(equal) - 3} more" if len(equal) > 3 else ""
        what = f"Same {plural(nouns.pull)} and same {nouns.reward} as {names}{more}"
        sentences = (*sentences, f"{what}, bit for bit.")
    return headline, sentences


def _cards(record: Record) -> tuple[str, ...]:
    """Return figures that the system wants shown with the answer, one sentence each."""
    sentences = []
    for card in record.show_list("cards"):
        if not isinstance(card, list) or len(card) != 2:
            continue
        value, meaning = map(str, card)
        sentences.append(f"{meaning[:1].upper()}{meaning[1:]}: {value}.")
    return tuple(sentences)


def short_labels(pairs: Labelled) -> list[str]:
    """Return the protection of each record if nothing else distinguishes them, else their labels."""
    protections = [record.protection for record, _ in pairs]
    policies = {str(record.policy) for record, _ in pairs}
    if len(policies) == 1 and len(set(protections)) == len(protections):
        return protections
    return [label for _, label in pairs]


def origin(record: Record) -> str:
    """Return a sentence about the data that a simulation draws rewards from; else empty."""
    if not record.seeds:
        return ""
    ratings = [count for count in record.show_list("ratings") if isinstance(count, int)]
    if "ratings" in record.show:
        total = sum(ratings)
        return f"Simulated from {words.count(total, 'rating')}."
    for key in ("samples", "rows"):
        count = record.problem.get(key)
        if isinstance(count, int):
            return f"Simulated from {words.count(count, key[:-1])} of data."
    source = record.problem.get("source")
    return f"Simulated: {source}." if source else "Simulated."


def _answer_of_one(record: Record, label: str) -> tuple[str, tuple[str, ...]]:
    text = sentence(record, label)
    arm = _winner(record)
    unfinished = record.status != "finished" and "headline" in record.show
    if arm is None or unfinished:
        complete = CHANCE in record.summary and record.status == "finished"
        about = (_about_intervals(record), origin(record))
        sentences = ("" if complete else text, *_cards(record), *about)
        return _headline_without_winner(record, label), sentences
    nouns = record.words
    shares = 100 * record.pulls[:, arm] / record.pulls.sum(axis=1)
    mean, low, high = spread(shares)
    share = words.interval(mean, max(low, 0.0), min(high, 100.0))
    pulls_by_run = record.pulls.sum(axis=1)
    pulls = words.count(int(pulls_by_run[0]), nouns.pull)
    if (pulls_by_run != pulls_by_run[0]).any():  # an interrupted run pulled less often
        total = words.count(int(pulls_by_run.sum()), nouns.pull)
        pulls = f"{total} in {words.count(record.runs, 'run')}"
    headline = f"{record.arm_names[arm]} was pulled most: {share} % of {pulls}"
    unsaid = text if record.status != "finished" or not record.total else ""
    return headline, (_truth(record, arm), unsaid, _about_intervals(record), origin(record))


def _winner(record: Record) -> int | None:
    """Return the arm that was pulled most, if the system learns a single arm."""
    if record.show.get("learnt") != {} or not record.arms:
        return None
    if not record.pulls.sum(axis=1).all():
        return None
    return int(record.pulls.sum(axis=0).argmax())


def _truth(record: Record, arm: int) -> str:
    """Return whether the arm is the best one, if the means are known."""
    best = record.summary.get(BEST_ARM)
    names = record.arm_names
    if best not in names:
        return ""
    noun = record.words.arm
    best_pays = _mean_with_interval(record, names.index(str(best)))
    if best == names[arm]:
        return f"It is the best {noun} of these data: it pays {best_pays} on average."
    return (
        f"The best {noun} of these data is {best}, which pays {best_pays} on average; "
        f"{names[arm]} pays {_mean_with_interval(record, arm)}."
    )


def _mean_with_interval(record: Record, arm: int) -> str:
    """Write the mean of an arm with its 95 % interval, if it is known from how many ratings."""
    if not record.means:
        return words.number(float(record.summary[BEST]), 3)
    mean = record.means[arm]
    counts = record.show_list("ratings")
    count = counts[arm] if len(counts) == record.arms else None
    if not isinstance(count, int) or count < 1:
        return words.number(mean, 3)
    low, high = wilson(mean * count, count)
    return f"{words.interval(mean, max(0.0, low), min(1.0, high))} ({words.count(count, 'rating')})"


def _headline_without_winner(record: Record, label: str) -> str:
    """Return what a step earned, or what a party knows, or the name of the data."""
    averages = averages_of(record)
    chance = record.summary.get(CHANCE)
    nouns = record.words
    if averages is not None and isinstance(chance, float):
        text = f"{label} earned {nouns.priced(words.interval(*spread(averages)))}"
        text += f" per {unit_of(nouns)}"
        if chance > 0:
            gain = float(averages.mean()) / chance - 1
            text += f", {words.percent(gain)} against an even split"
        return text
    if headline := record.show.get("headline"):
        return f"{label} {headline}"
    if record.party and record.total:
        return f"{record.party}: a total of {nouns.priced(words.number(record.total_mean))}"
    if record.party and record.arms == 1:
        pulls = words.count(int(record.pulls.sum()), nouns.pull)
        return f"{record.party}: {pulls} of {record.arm_names[0]}"
    return f"{record.party}: {record.problem_name}" if record.party else record.problem_name


def sentence(record: Record, label: str) -> str:
    """Return what was earned, in what time, and whether the run finished."""
    nouns = record.words
    steps = words.count(record.horizon, nouns.step)
    if record.total:
        amount = words.plus_minus(record.total_mean, standard_error(record.total))
        runs = words.count(record.runs, "run")
        text = f"{label} earned {nouns.priced(amount)} over {steps} ({runs})"
        if record.seconds:  # 0 if nobody measured it
            text += f" in {words.seconds(record.seconds)}"
        text += "."
    elif record.party:
        text = f"{label} took part in {steps}; it does not know what was earned."
    else:
        text = f"{label} finished no run."
    if record.status == "running" and record.show.get("in_use"):
        return f"{text} It is in use: more decisions may follow."
    if record.status != "finished":
        return f"{text} It was not finished: {record.state}."
    return text


def _rivals(pairs: Labelled) -> Labelled:
    """Omit records that equal an earlier one, and plain twins of protected ones."""
    protected = {_question(record) for record, _ in pairs if record.level != PLAIN}
    rivals = []
    for record, label in pairs:
        if record.level != PLAIN or _question(record) not in protected:
            rivals.append((record, label))
    return _different(rivals)


def _question(record: Record) -> tuple[str, str, int]:
    """Return what a record and its plain twin have in common."""
    return str(record.policy), str(record.problem), record.horizon


def _answer_of_several(rivals: Labelled) -> tuple[str, tuple[str, ...]]:
    """Return which run earned most, with its interval, and how much more than the next."""
    first = rivals[0][0]
    problems = list(dict.fromkeys(record.problem_name for record, _ in rivals))
    if any(record.problem != first.problem for record, _ in rivals):
        where = f"{len(problems)} problems" if len(problems) > 1 else problems[0]
        headline = f"{len(rivals)} runs on {where}: no comparison"
        return headline, ("Rewards of different problems cannot be compared.",)
    earning = [pair for pair in rivals if averages_of(pair[0]) is not None]
    if len(earning) < 2:
        return problems[0], (sentence(*rivals[0]),)
    ranking = sorted(earning, key=lambda pair: -spread(averages_of(pair[0]))[0])
    top, label = ranking[0]
    nouns = common(record.words for record, _ in rivals)
    amount = nouns.priced(words.interval(*spread(averages_of(top))))
    headline = f"{label} earned most: {amount} per {unit_of(nouns)}"
    sentences = ["The horizons differ, or a run did not finish."]
    if all(_complete(record, first) for record, _ in earning):
        sentences = [_lead(top, *ranking[1]), _best_arm(top, label)]
    return headline, (*sentences, _about_intervals(top), origin(top))


def _complete(record: Record, first: Record) -> bool:
    return record.horizon == first.horizon and record.status == "finished"


def _lead(top: Record, second: Record, name: str) -> str:
    """Return how much more the first of a ranking earned than the second."""
    ahead = difference(top, second)
    lead = ahead.interval.estimate
    if math.isnan(lead):
        return ""
    base = second.total_mean
    percent = f" ({words.percent(lead / base)})" if base and base > 0 else ""
    if not ahead.interval.known:
        return f"{words.number(lead)} more than {name}{percent}, in one run: it may be chance."
    if ahead.clear:
        how = ", paired by world seed" if ahead.paired else ""
        return f"{ahead.interval} more than {name}{percent}{how}."
    doubt = "may be chance"
    if ahead.interval.excludes_zero:
        doubt = "too few runs support: one run in which it fails would undo it (more --runs)"
    return f"Not clearly more than {name}: the difference is {ahead.interval}, which {doubt}."


def _best_arm(record: Record, label: str) -> str:
    """Return the best arm of a simulation, and how often it was pulled; empty if not known."""
    best = record.summary.get(BEST_ARM)
    names = record.arm_names
    if _winner(record) is None or best not in names:
        return ""
    arm = names.index(str(best))
    share = record.pulls[:, arm].sum() / record.pulls.sum()
    return (
        f"The best {record.words.arm} of these data is {best} ({_mean_with_interval(record, arm)}):"
        f" {label} pulled it in {share:.0%} of the {plural(record.words.step)}."
    )


def _about_intervals(record: Record) -> str:
    if record.runs < 2:
        return "One run has no interval (--runs 10)." if record.seeds else ""
    return f"In brackets: 95 % intervals over {words.count(record.runs, 'run')}."


def _answer_of_joining(joined: Joining) -> tuple[str, tuple[str, ...]]:
    """Return what joining earned all parties together, and who is worse off."""
    record = joined.record
    whole = joined.whole
    nouns = record.words
    gain = whole.difference or 0.0
    size = abs(gain)
    side = "more" if gain >= 0 else "less"
    interval = student(size, whole.error, whole.runs - 1)
    amount = nouns.priced(str(interval))
    if whole.alone:
        amount += f" ({words.percent(gain / whole.alone)})"
    if whole.error is None:
        headline = f"In this one run joining earned {amount} {side} {nouns.reward} than alone"
    elif not interval.excludes_zero:
        headline = f"It is not clear whether joining pays: {amount} {side} {nouns.reward}"
    else:
        headline = f"Joining earned {amount} {side} {nouns.reward} than alone"
    steps = words.count(record.horizon, nouns.step)
    totals = (
        f"{joined.label}: {nouns.priced(words.number(whole.total))} against "
        f"{nouns.priced(words.number(whole.alone))} alone, all {plural(nouns.party)} together, "
        f"over {steps} ({words.count(record.runs, 'run')})."
    )
    unfinished = ""
    if record.status != "finished":
        unfinished = f"It was not finished: {record.state}."
    return headline, (
        totals,
        joined.sentence,
        *_cards(record),
        unfinished,
        _about_intervals(record),
        origin(record),
    )


def sameness(secure: Record, plain: Record) -> str:
    """Return whether protection changed anything."""
    if secure.status != "finished" or plain.status != "finished":
        return "One of the two runs did not finish: they cannot be compared."
    if not identical(secure, plain):
        return (
            f"NOT identical: {secure.label} and its plain twin differ. This is a defect, please "
            "report it."
        )
    return (
        f"Identical: {secure.protection} and its plain twin have the same "
        f"{plural(secure.words.pull)} and the same {secure.words.reward}, to the last bit."
    )


# Averages and bars --------------------------------------------------------------------------------


def spread(values: npt.ArrayLike | None) -> tuple[float, float, float]:
    """Return the mean and both ends of Student's 95 % interval; with one value the ends are NaN."""
    assert values is not None
    interval = mean_interval(values)
    return interval.estimate, interval.low, interval.high


def averages_of(record: Record) -> Floats | None:
    """Return what a decision earned on average in every run; a step, if it makes one decision."""
    if not record.total:
        return None
    if CHANCE in record.summary and record.arms:
        decisions = record.pulls.sum(axis=1).astype(np.float64)
    else:
        steps = record.steps_done or record.horizon * record.runs
        decisions = np.full(record.runs, steps / record.runs)
    return np.array(record.total) / decisions if decisions.all() else None


def unit_of(nouns: Vocabulary) -> str:
    """Return the noun of a decision; a step, if it makes one decision."""
    return nouns.step if nouns.pull == "pull" else nouns.pull


def _picture(pairs: Labelled) -> Picture | None:
    """Return averages of the runs, the best fixed arm and an even split; None if not known."""
    first = pairs[0][0]
    if any(record.problem != first.problem for record, _ in pairs):
        return None
    runs: list[tuple[Record, str, Floats]] = []
    for record, label in _different(pairs):
        averages = averages_of(record)
        if averages is not None:
            runs.append((record, label, averages))
    reference, base = _reference(runs)
    if not reference:
        return None
    bars = [
        Bar(label, float(each.mean()), words.interval(*spread(each)), _gain(each.mean(), base))
        for _, label, each in runs
    ]
    nouns = common(record.words for record, *_ in runs)
    if CHANCE not in first.summary:
        return Picture(f"{nouns.earned} per {nouns.step}", reference, tuple(bars))
    best = float(first.summary[BEST])
    best_arm = str(first.summary[BEST_ARM])
    name = f"best fixed {nouns.arm} ({best_arm})"
    text = words.number(best, 3)
    if best_arm in first.arm_names:
        text = _mean_with_interval(first, first.arm_names.index(best_arm)).partition(" (")[0]
    bars += [
        Bar(name, best, text, _gain(best, base), yardstick=True),
        Bar("even split", base, words.number(base, 3), "", yardstick=True),
    ]
    return Picture(f"{nouns.earned} per {unit_of(nouns)}", reference, tuple(bars))


def _reference(runs: Sequence[tuple[Record, str, Floats]]) -> tuple[str, float]:
    """Return what gains are relative to: an even split, or the parties alone, if either is known."""
    if runs and CHANCE in runs[0][0].summary:
        return "an even split", float(runs[0][0].summary[CHANCE])
    for record, label, averages in runs:
        if not record.federated and len(runs) > 1:
            return label, float(averages.mean())
    return "", 0.0


def _gain(value: float, base: float) -> str:
    if base <= 0 or value == base:
        return ""
    return words.percent(float(value) / base - 1)


# What it cost -------------------------------------------------------------------------------------


def _cost_table(pairs: Labelled) -> Section:
    """Return what was earned and what it cost, one row per record; unknown columns are omitted."""
    records = [record for record, _ in pairs]
    base = _base_of_costs(pairs)
    times = "times the first"
    if base.level in UNPROTECTED and any(record.level != base.level for record in records):
        times = f"times {base.level}"
    nouns = common(record.words for record in records)
    columns = {
        "": short_labels(pairs) if len(pairs) > 1 else [pairs[0][1]],
        nouns.earned: [_earned(record) for record in records],
        "difference": _differences(pairs),
        "regret": [words.number(record.regret_mean) for record in records],
        "CPU time": [words.seconds(record.seconds or None) for record in records],
        times: [_ratio(record, base, len(records)) for record in records],
        "traffic": [_traffic(record) for record in records],
    }
    columns = {name: cells for name, cells in columns.items() if set(cells) != {words.UNKNOWN}}
    rows = tuple(zip(*columns.values(), strict=True))
    numeric = tuple(range(1, len(columns)))
    return Section("What it earned and cost", tuple(columns), rows, numeric=numeric)


def _earned(record: Record) -> str:
    return words.plus_minus(record.total_mean, standard_error(record.total))


def _ratio(record: Record, base: Record, count: int) -> str:
    """Return the CPU time in units of that of the base; unknown for one record alone."""
    if count < 2 or not base.seconds:
        return words.UNKNOWN
    return words.ratio(record.seconds / base.seconds)


def _traffic(record: Record) -> str:
    return words.size(record.bytes) if record.traffic else words.UNKNOWN


def _base_of_costs(pairs: Labelled) -> Record:
    """Return the plain twin of the first record, or the parties alone, or the first record."""
    first = pairs[0][0]
    for record, _ in pairs:
        if record.level == PLAIN and record.policy == first.policy:
            return record
    for record, _ in pairs:
        if record.level == ALONE:
            return record
    return first


def _differences(pairs: Labelled) -> list[str]:
    """Return how much more each record earned than the first, in percent."""
    if len(pairs) < 2:
        return [words.UNKNOWN]
    rows = compare([record for record, _ in pairs]).rows
    base = rows[0].mean
    texts = [words.UNKNOWN]
    for row in rows[1:]:
        if row.identical:
            texts.append("identical")
        elif row.difference is None or not base or base < 0:
            texts.append(words.plus_minus(row.difference, row.difference_error))
        else:
            texts.append(_relative(row.difference / base, row.difference_error, base))
    return texts


def _relative(gain: float, error: float | None, base: float) -> str:
    """Write a relative gain in percent, with its standard error.

    >>> _relative(0.0412, 0.9, 100.0), _relative(-0.1, None, 100.0)
    ('+4.12 ± 0.90 %', '-10 %')
    """
    if error is None:
        return words.percent(gain)
    text = words.plus_minus(100 * gain, 100 * error / base)
    return f"{'+' if gain > 0 else ''}{text} %"


def seconds_per_step(record: Record) -> float | None:
    """Return CPU seconds per party and step that was taken."""
    steps = record.steps_done * (len(record.party_names) or record.arms)
    return record.seconds / steps if steps else None


# Protection ---------------------------------------------------------------------------------------


def _protections(records: Sequence[Record]) -> tuple[Protection, ...]:
    """Return how records were protected, one per level; plain twins of protected ones are omitted."""
    protected = [record for record in records if record.level not in UNPROTECTED]
    levels: dict[str, Record] = {}
    for record in protected or records[:1]:
        levels.setdefault(record.protection, record)
    return tuple(_protection(record) for record in levels.values())


def _protection(record: Record) -> Protection:
    summary = record.show.get("protection_summary")
    declared: Mapping[str, JSON] = summary if isinstance(summary, Mapping) else {}
    against = str(declared.get("against") or _against(record))
    figures = []
    warning = ""
    for guarantee in guarantees([record]):
        figures.append(f"{guarantee.figure} (unit {guarantee.entry.get('unit', 'not stated')})")
        if guarantee.entry["epsilon"] is None:
            warning = "No finite ε. This is no promise at all."
    broken_by = str(declared.get("broken_by") or _broken_by(record))
    if record.off:
        warning = f"OFF: {', '.join(record.off)}. What the level promises does not hold."
    return Protection(
        described(record.protection),
        against,
        broken_by,
        _verified(record, declared.get("attacks")),
        "; ".join(dict.fromkeys(figures)),
        warning,
        str(declared.get("command") or ""),
    )


def _against(record: Record) -> str:
    """Return whom an older record, or one without protection, is protected against."""
    if record.level == ALONE:
        return "everybody: nothing is shared"
    if record.level in UNPROTECTED:
        return "nobody: this run has no protection"
    return " ".join(record.shown("protects")) or "not stated in this record"


def _broken_by(record: Record) -> str:
    if record.level == ALONE:
        return "nobody: nothing leaves a party"
    if record.level in UNPROTECTED:
        return "any single party that runs it"
    if record.leaks:
        return f"see {words.count(len(record.leaks), 'sentence')} on what is not protected"
    return "not stated in this record; do not take that for nobody"


def _verified(record: Record, attacks: JSON) -> str:
    """Return which attacks were made on this run, or which ones verify the level."""
    if record.audits:
        from posse.results.audits import audits

        return f"{audits(record)[-1].headline.lower()} (this run)"
    if record.level in UNPROTECTED and not attacks:
        return "no attack needed"
    if isinstance(attacks, list) and attacks:
        names = ", ".join(map(str, attacks))
        return f"attacks {names}"
    return "no attack on this run yet (posse audit)"


def _protection_details(records: Sequence[Record]) -> list[Section]:
    sections = []
    for title, key in (
        ("What is protected", "protects"),
        ("What each role learns", "learns"),
        ("What is not protected", "leaks"),
    ):
        by_level: dict[str, dict[str, None]] = {}
        for record in records:
            own = record.leaks if key == "leaks" else record.shown(key)
            if key == "leaks" and not own and record.federated:
                own = ("This record does not state what leaks. Do not read that as no leak.",)
            by_level.setdefault(record.protection, {}).update(dict.fromkeys(own))
        for level, items in by_level.items():
            if items:
                sections.append(Section(title, items=tuple(items), label=described(level)))
    return sections


def _privacy_details(pairs: Labelled) -> list[Section]:
    """Return what the ledgers prove, their releases, and what they do not cover."""
    records = [record for record, _ in pairs]
    if not any(record.privacy for record in records):
        return []
    nouns = common(record.words for record in records)
    sections = []
    if promised := guarantees(records):
        sentences = tuple(guarantee.sentence(nouns.party) for guarantee in promised)
        sections.append(Section("Privacy spent", items=sentences))
    for record, label in pairs:
        if entries := ledger(record):
            sections.append(_ledger_table(record, label, entries))
    if excluded := not_covered(records):
        sections.append(Section("Privacy spent: not covered", items=tuple(excluded)))
    return sections


def _ledger_table(record: Record, label: str, entries: Sequence[Mapping[str, JSON]]) -> Section:
    keys: dict[str, None] = {}
    for entry in entries:
        keys |= dict.fromkeys(entry)
    rows = tuple(tuple(_cell(key, entry.get(key)) for key in keys) for entry in entries)
    names = [record.words.party if key == "party" else key.replace("_", " ") for key in keys]
    title = f"Ledger: {words.count(len(entries), 'entry')}"
    return Section(title, tuple(names), rows, label=label)


def _cell(key: str, value: JSON) -> str:
    if value is None:
        return words.UNKNOWN
    if isinstance(value, float):
        return words.rounded_up(value) if key in ("epsilon", "delta") else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {words.words_of(each)}" for name, each in flat(value))
    return words.words_of(value)


# Details ------------------------------------------------------------------------------------------


def _details(
    pairs: Labelled, tables: Sequence[Section], joined_records: Sequence[Joining]
) -> list[Section]:
    """Return all further tables: of the systems, of parties, of arms, protection, costs, settings."""
    from posse.results.audits import audits

    records = [record for record, _ in pairs]
    details = list(tables)
    details += [_parties_table(joined) for joined in joined_records]
    details += sections_of(pairs)
    details += _pulls_tables(pairs)
    details += _protection_details(records)
    details += _privacy_details(pairs)
    for record in records:
        for audit in audits(record)[-1:]:
            details += audit.sections()
    for record, label in pairs:
        details += _cost_details(record, label)
    if len(records) > 1:
        details.append(Section("How to read the comparison", items=compare(records).notes))
    details += [_facts(record, label) for record, label in pairs]
    return details


def comparison_tables(records: Sequence[Record], names: Sequence[str]) -> list[Section]:
    """Return the tables of labelled records next to each other: costs, pulls and the systems' own."""
    pairs = list(zip(records, names, strict=True))
    costs = _cost_table(pairs)
    if len(pairs) > 1:
        costs = replace(costs, notes=compare(records).notes)
    tables = [costs, *_pulls_tables(pairs)]
    for record, label in pairs:
        tables += _cost_details(record, label)
    return tables + sections_of(pairs)


def sections(
    records: Record | Iterable[Record], names: Sequence[str] | None = None
) -> list[Section]:
    """Return the tables that the systems of these records want shown, those of one title together."""
    chosen = several(records)
    return sections_of(list(zip(chosen, names or labels(chosen), strict=True)))


def sections_of(pairs: Labelled) -> list[Section]:
    """Return the tables that the systems of labelled records want shown."""
    by_title: dict[str, list[Section]] = {}
    for record, label in pairs:
        for table in record.show_list("sections"):
            section = Section.read(table, label if len(pairs) > 1 else "")
            by_title.setdefault(section.title, []).append(section)
    return [section for same in by_title.values() for section in same]


def _parties_table(joined: Joining) -> Section:
    """Return what each party earned, and what joining changed if that is known."""
    nouns = joined.record.words
    shares = joined.shares
    if len(shares) > 1:
        shares = (*shares, joined.whole)
    if joined.baseline is None:
        return Section(
            f"What each {nouns.party} earned",
            (nouns.party, nouns.earned, nouns.regret),
            tuple(
                (each.party, words.number(each.total), words.number(each.regret)) for each in shares
            ),
            numeric=(1, 2),
            label=joined.label,
        )
    notes = [
        f"{nouns.earned.capitalize()}. Differences are paired by world seed, ± standard error. "
        "Ratio: regret joined over regret alone."
    ]
    if joined.record.runs > 1:
        notes.append(
            f"A verdict is about one {nouns.party}: Student's t at 5 %. Who is worse off: at 5 % "
            "for the whole table (Holm)."
        )
    if joined.ratio is not None:
        how = joined.ratio.what if joined.ratio.known else "too few runs for an interval"
        notes.append(f"Regret ratio of {ALL}: {joined.ratio} ({how}).")
    return Section(
        "What joining is worth",
        ("verdict", nouns.party, "alone", "joined", "difference", "regret ratio"),
        tuple(_worth(share) for share in shares),
        (joined.sentence, *notes),
        numeric=(2, 3, 4, 5),
        label=joined.label,
    )


def _worth(share: Share) -> tuple[str, ...]:
    return (
        share.verdict,
        share.party,
        words.number(share.alone),
        words.number(share.total),
        words.plus_minus(share.difference, share.error),
        words.fraction(share.ratio),
    )


def _pulls_tables(pairs: Labelled) -> list[Section]:
    """Return the pulls of records of which no two are equal; one arm alone needs no table."""
    pulled = [pair for pair in pairs if pair[0].arms > 1 and pair[0].runs]
    return [_pulls_table(*pair) for pair in _different(pulled)]


def _pulls_table(record: Record, label: str) -> Section:
    """Return the arms that were pulled most, with their means if they are known."""
    pulls = record.pulls.sum(axis=0)
    share = pulls / max(1, int(pulls.sum()))
    order = np.argsort(-share, kind="stable")
    rows = []
    for arm in order[:MOST_PULLED]:
        mean = words.UNKNOWN
        if record.regret is not None and not record.contextual and record.means:
            mean = _mean_with_interval(record, int(arm))
        rows.append((record.arm_names[arm], mean, f"{pulls[arm]:,}", f"{share[arm]:.1%}"))
    others = order[MOST_PULLED:]
    if others.size:
        total = int(pulls[others].sum())
        rest = float(share[others].sum())
        rows.append((f"{others.size} others", "", f"{total:,}", f"{rest:.1%}"))
    nouns = record.words
    columns = (nouns.arm, "mean", plural(nouns.pull), "share")
    return Section(nouns.pulled, columns, tuple(rows), numeric=(1, 2, 3), label=label)


def times(record: Record) -> dict[str, float]:
    """Return CPU time by role, the longest first, and the rest of the process (`REST`) last.

    Records of several processes may have more time of roles than of the process that wrote them,
    and then no rest.
    """
    roles = dict(sorted(record.role_seconds.items(), key=lambda item: -item[1]))
    rest = record.seconds - sum(roles.values())
    if roles and rest > 0.001 * record.seconds:
        roles[REST] = rest
    return roles


def _cost_details(record: Record, label: str) -> list[Section]:
    """Return CPU time by role and traffic by hop, if they are known."""
    sections = []
    by_role = times(record)
    if by_role:
        total = sum(by_role.values())
        rows = [
            (record.role_label(role), words.seconds(value), f"{value / (total or 1):.1%}")
            for role, value in by_role.items()
        ]
        each = words.seconds(seconds_per_step(record))
        rows.append(("all", words.seconds(total), "100.0%"))
        rows.append((f"per {record.words.step} and {record.words.party}", each, ""))
        columns = ("role", "CPU time", "share")
        sections.append(
            Section("CPU time by role", columns, tuple(rows), numeric=(1, 2), label=label)
        )
    if record.traffic:
        hops = [
            (hop.hop.replace("->", "→"), f"{hop.messages:,}", words.size(hop.bytes))
            for hop in record.traffic
        ]
        hops.append(("all", f"{record.messages:,}", words.size(record.bytes)))
        columns = ("from → to", "messages", "bytes")
        sections.append(Section("Traffic", columns, tuple(hops), numeric=(1, 2), label=label))
    return sections


def _facts(record: Record, label: str) -> Section:
    """Return configuration, problem, figures and seeds of a record."""
    facts: dict[str, JSON] = {
        "id": record.id,
        "system": record.title,
        "status": record.state,
        "created": record.created,
        "version": record.version,
    }
    if record.party or record.run_id != record.id:
        facts |= {"run": record.run_id, "party": record.party or "all"}
    tables: dict[str, JSON] = {
        "": facts,
        "config": record.config,
        "problem": {key: record.problem[key] for key in record.problem if key != "words"},
        "summary": record.summary,
    }
    rows = [
        (name, words.words_of(value))
        for prefix, table in tables.items()
        for name, value in flat(table, prefix)
    ]
    rows.append(("world seeds", _seeds(record)))
    return Section("Configuration", ("key", "value"), tuple(rows), label=label)


def _seeds(record: Record) -> str:
    if not record.seeds:
        return "none: rewards came from the world, not from a simulation"
    seeds = ", ".join(map(str, record.seeds[:MOST_SEEDS]))
    if len(record.seeds) > MOST_SEEDS:
        seeds += f", … ({len(record.seeds):,} in all)"
    return f"{seeds} (a party that knows one knows every {record.words.reward})"


# Figures ------------------------------------------------------------------------------------------


def _plots(pairs: Labelled) -> list[Plot]:
    """Return the figures that these records allow. Curves of equal runs are drawn once."""
    curved = [pair for pair in pairs if pair[0].runs and pair[0].steps.size]
    different = _different(curved)
    plots = _reward_plots(curved, different) if curved else []
    regretful = [pair for pair in different if pair[0].regret is not None]
    if regretful:
        plots.append(_plot("regret_curves", _regret_caption(regretful), regretful))
    for name in shared_curves([record for record, _ in different]):
        caption = f"{name[:1].upper()}{name[1:]}."
        plots.append(_plot("shown_curves", caption, different, curve=name))
    plots += _pull_plots(pairs)
    timed = [pair for pair in pairs if sum(x > 0 for x in pair[0].role_seconds.values()) > 1]
    if len(timed) > 1:
        plots.append(_plot("role_times", "CPU time by role.", timed))
    return plots


def _reward_plots(curved: Labelled, different: Labelled) -> list[Plot]:
    """Return figures of the reward: of a protected run and its twin, or its sum, or per step."""
    nouns = common(record.words for record, _ in curved)
    plots = []
    twins = twins_of([record for record, _ in curved])
    learning = _learns_from_contexts(different)
    if twins and len(curved) == 2:
        secure = twins[0]
        name = "Protected" if secure.protected else f"Level {secure.protection},"
        caption = f"{name} against plain: {nouns.reward} over the {plural(nouns.step)}, and time."
        ordered = sorted(curved, key=lambda pair: pair[0] is not secure)
        plots.append(_plot("secure_against_plain", caption, ordered))
    elif not learning:
        caption = f"Cumulative {nouns.reward}, the mean over runs."
        plots.append(_plot("reward_curves", caption, different))
    if learning:
        caption = f"{nouns.reward.capitalize()} per {nouns.step} over the run."
        plots.append(_plot("reward_rates", caption, different))
    return plots


def _plot(kind: str, caption: str, pairs: Labelled, curve: str = "") -> Plot:
    records = tuple(record for record, _ in pairs)
    return Plot(kind, caption, records, tuple(label for _, label in pairs), curve)


def _pull_plots(pairs: Labelled) -> list[Plot]:
    """Return a figure of pulls for each set of arms; one arm alone needs no figure."""
    by_arms: dict[tuple[str, ...], list[tuple[Record, str]]] = {}
    pulled = [pair for pair in pairs if pair[0].runs and 1 < pair[0].arms <= 200]
    for record, label in _different(pulled):
        by_arms.setdefault(record.arm_names, []).append((record, label))
    plots = []
    for same in by_arms.values():
        caption = common(record.words for record, _ in same).pulled
        if len(same) == 1:
            caption += f" by {same[0][1]}"
        plots.append(_plot("pulls_per_arm", f"{caption}.", same))
    return plots


def _different(pairs: Labelled) -> list[tuple[Record, str]]:
    """Return the records of which no two are equal."""
    different: list[tuple[Record, str]] = []
    for record, label in pairs:
        if not any(identical(record, other) for other, _ in different):
            different.append((record, label))
    return different


def _learns_from_contexts(pairs: Labelled) -> bool:
    """Return whether the reward per step grows, which its sum hides."""
    if not pairs:
        return False
    return all(CHANCE in record.summary and record.show.get("learnt") != {} for record, _ in pairs)


def twins_of(records: Sequence[Record]) -> tuple[Record, Record] | None:
    """Return a protected record and its plain twin; None if there is no such pair."""
    for secure in records:
        for plain in records:
            if secure.runs and plain.runs and _is_twin(plain, secure):
                return secure, plain
    return None


def _is_twin(plain: Record, secure: Record) -> bool:
    if plain.level != PLAIN or secure.level in UNPROTECTED:
        return False
    # The twin of another level may draw in another order: it is not this run without protection.
    if plain.summary.get("twin_of", secure.level) != secure.level:
        return False
    return plain.policy == secure.policy and plain.problem == secure.problem


def _regret_caption(pairs: Labelled) -> str:
    caption = common(record.words for record, _ in pairs).regret_caption
    if all(record.contextual for record, _ in pairs):
        return caption.replace("the best arm", "the best arm of every context")
    return caption


def shared_curves(records: Sequence[Record]) -> list[str]:
    """Return the names of curves that all of some records show, in the order of the first."""
    names: list[list[str]] = []
    for record in records:
        names.append([curve["name"] for curve in record.show_list("curves")])
    return [name for name in names[0] if all(name in each for each in names)] if names else []
