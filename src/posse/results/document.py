"""What is shown of records: one document, which terminals, pages, notebooks and files render.

`document` makes it from records. It is the one place that decides what is said about a result, and
in which order: the answer, what it cost, how it was protected, and details. What a record does not
know is omitted: a party of a deployment reads only what it may know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from posse.core.statistics import (
    Floats,
    format_interval,
    mean_interval,
    paired_interval,
    wilson,
)
from posse.core.statistics import standard_error as error_of
from posse.results import words
from posse.results.compare import (
    Comparison,
    compare,
    difference,
    identical,
    times_as_long,
    too_short,
)
from posse.results.guarantees import guarantees, ledger, not_covered
from posse.results.joining import ALL, Joining, joining
from posse.results.naming import described, labels
from posse.results.record import (
    ALONE,
    BEST,
    BEST_ARM,
    CHANCE,
    PLACEBO,
    PLAIN,
    Record,
    nouns_of,
    several,
)
from posse.results.section import Section
from posse.results.values import JSON, all_names, as_list, as_table, flat
from posse.results.words import Vocabulary, plural

UNPROTECTED = {
    PLAIN: ("nobody: this run has no protection", "any single party that runs it"),
    ALONE: ("everybody: nothing is shared", "nobody: nothing leaves a party"),
    PLACEBO: ("nobody: this run has no protection", "any single party that runs it"),
}
"""Levels without protection: against whom they protect, and who learns everything."""
REST = "rest of the process"
"""CPU time that no role took: the simulated world, passing messages, writing the record."""
MOST_PULLED = 10
"""Arms in the table of pulls."""
MOST_SEEDS = 50
"""Seeds in the table of a record."""
MOST_BARS = 200
"""Arms in a figure of pulls."""


@dataclass(frozen=True)
class Labelled:
    """Records with their labels."""

    records: tuple[Record, ...]
    labels: tuple[str, ...]

    @property
    def nouns(self) -> Vocabulary:
        """The nouns that all of them share."""
        return nouns_of(self.records)

    def __iter__(self) -> Iterator[tuple[Record, str]]:
        return iter(zip(self.records, self.labels, strict=True))

    def __len__(self) -> int:
        return len(self.records)

    def where(self, condition: Callable[[Record], object]) -> Labelled:
        """Return the records for which a condition holds."""
        places = [i for i, record in enumerate(self.records) if condition(record)]
        return Labelled(
            tuple(self.records[i] for i in places), tuple(self.labels[i] for i in places)
        )

    def different(self) -> Labelled:
        """Return the records of which no two are equal."""
        first_ones: list[Record] = []
        for record in self.records:
            if not any(identical(record, other) for other in first_ones):
                first_ones.append(record)
        return self.where(lambda record: any(record is other for other in first_ones))


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
    """What gains are relative to, such as "an even split"."""
    bars: tuple[Bar, ...]

    def section(self) -> Section:
        """Return the bars as a table."""
        if not self.has_gains:
            texts = tuple((bar.label, bar.text) for bar in self.bars)
            return Section("", ("", self.title), texts, numeric=(1,))
        rows = tuple((bar.label, bar.text, bar.gain) for bar in self.bars)
        columns = ("", self.title, f"against {self.reference}")
        return Section("", columns, rows, numeric=(1, 2))

    @property
    def has_gains(self) -> bool:
        """Whether there are gains; a reference that earned nothing has no percentages."""
        return any(bar.gain for bar in self.bars)


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
        lines = (
            ("against", self.against),
            ("broken by", self.broken_by),
            ("tested by", self.verified),
            ("privacy", self.privacy),
            ("stronger", self.command),
        )
        return tuple(line for line in lines if line[1])


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
    pairs = Labelled(chosen, tuple(labels(chosen)))
    joined_records = joining(chosen) if any(record.parties for record in chosen) else ()
    comparison = compare(chosen) if len(chosen) > 1 else None
    headline, *sentences = _answer(pairs, joined_records)
    return Document(
        title=describe(chosen),
        headline=headline,
        sentences=tuple(filter(None, sentences)),
        warnings=tuple(_warnings(pairs)),
        picture=_picture(pairs),
        table=_cost_table(pairs, comparison),
        protection=_protections(chosen),
        notes=tuple(notes),
        details=(*tables, *_details(pairs, joined_records, comparison)),
        plots=tuple(_plots(pairs)),
        records=chosen,
    )


def describe(records: Sequence[Record]) -> str:
    """Return in one line what was run: system, policies, data and sizes of the first record."""
    first = records[0]
    problems = {record.problem_name for record in records}
    if len(problems) > 1:
        return f"{len(records)} runs on {len(problems)} problems"
    arms = first.arms
    parties = len(first.party_names)
    clients = first.problem.get("clients")
    if isinstance(clients, int):  # devices have no names
        parties = clients
        arms = len(as_list(first.problem.get("names")))
    elif not parties:  # one arm per party; a party of a deployment knows its own arm alone
        parties = 0 if first.party else arms
        arms = 0
    nouns = first.words
    sizes = [(parties, nouns.party), (arms, nouns.arm), (first.horizon, nouns.step)]
    if first.runs > 1:
        sizes.append((first.runs, "run"))
    parts = [f"{first.title}: {first.policy}", first.problem_name]
    parts += [words.count(size, noun) for size, noun in sizes if size]
    if first.status != "finished":
        parts.append(first.state)
    return " · ".join(parts)


def _warnings(pairs: Labelled) -> list[str]:
    warnings = []
    for record, label in pairs:
        owner = f"{label}: " if len(pairs) > 1 else ""
        warnings += [f"{owner}{sentence}" for sentence in record.warnings]
    return warnings


# The answer ---------------------------------------------------------------------------------------


def _answer(pairs: Labelled, joined_records: Sequence[Joining]) -> list[str]:
    """Return the headline, and the sentences below it."""
    rivals = _rivals(pairs)
    first = rivals.records[0]
    label = rivals.labels[0]
    compared = [joined for joined in joined_records if joined.baseline is not None]
    if compared:
        answer = _answer_of_joining(compared[0])
    elif len(rivals) > 1:
        answer = _answer_of_several(rivals)
    elif _winner(first) is not None:
        answer = _answer_of_arm(first, label)
    else:
        answer = [_headline(first, label), _unsaid(first, label), *_cards(first), origin(first)]
    equal = pairs.where(lambda record: record is not first and identical(record, first))
    if len(equal):
        nouns = first.words
        names = words.listed(short_labels(equal)[:3])
        more = f" and {len(equal) - 3} more" if len(equal) > 3 else ""
        what = f"Same {plural(nouns.pull)} and same {nouns.reward} as {names}{more}"
        answer.append(f"{what}, bit for bit.")
    return answer


def _unsaid(record: Record, label: str) -> str:
    """Return what was earned and whether the run finished, unless the headline has it."""
    complete = CHANCE in record.summary and record.total and record.status == "finished"
    return "" if complete else sentence(record, label)


def _cards(record: Record) -> list[str]:
    """Return figures that the system wants shown with the answer, one sentence each."""
    sentences = []
    for card in record.show_list("cards"):
        value, meaning = map(str, as_list(card))
        sentences.append(f"{meaning[:1].upper()}{meaning[1:]}: {value}.")
    return sentences


def short_labels(pairs: Labelled) -> list[str]:
    """Return the protection of each record if nothing else distinguishes them, else their labels."""
    protections = [record.protection for record in pairs.records]
    policies = {str(record.policy) for record in pairs.records}
    if len(policies) == 1 and len(set(protections)) == len(protections):
        return protections
    return list(pairs.labels)


def origin(record: Record) -> str:
    """Return a sentence about the data that a simulation draws rewards from; else empty."""
    if not record.seeds:
        return ""
    if "ratings" in record.show:
        total = sum(_ratings(record))
        return f"Simulated from {words.count(total, 'rating')}."
    for key in ("samples", "rows"):
        count = record.problem.get(key)
        if isinstance(count, int):
            return f"Simulated from {words.count(count, key[:-1])} of data."
    source = record.problem.get("source")
    return f"Simulated: {source}." if source else "Simulated."


def _ratings(record: Record) -> list[int]:
    """Return from how many ratings the mean of each arm is, 0 for an unknown number."""
    counts = record.show_list("ratings")
    return [count if isinstance(count, int) else 0 for count in counts]


def _winner(record: Record) -> int | None:
    """Return the arm that was pulled most, if the system learns a single arm."""
    if record.show.get("learnt") != {} or not record.pulls.size:
        return None
    if record.status != "finished" and "headline" in record.show:
        return None
    return int(record.pulls.sum(axis=0).argmax()) if record.pulls.sum(axis=1).all() else None


def _answer_of_arm(record: Record, label: str) -> list[str]:
    """Return which arm was pulled most, and whether that is the best one."""
    arm = int(record.pulls.sum(axis=0).argmax())
    name = record.arm_names[arm]
    pulls_by_run = record.pulls.sum(axis=1)
    shares = mean_interval(100 * record.pulls[:, arm] / pulls_by_run)
    share = format_interval(shares.estimate, max(shares.low, 0.0), min(shares.high, 100.0))
    pulls = words.count(int(pulls_by_run[0]), record.words.pull)
    if (pulls_by_run != pulls_by_run[0]).any():  # an interrupted run pulled less often
        total = words.count(int(pulls_by_run.sum()), record.words.pull)
        pulls = f"{total} in {words.count(record.runs, 'run')}"
    headline = f"{name} was pulled most: {share} % of {pulls}"
    unsaid = _unsaid(record, label) if record.status != "finished" or not record.total else ""
    return [headline, _truth(record, arm), unsaid, origin(record)]


def _truth(record: Record, arm: int) -> str:
    """Return whether the arm is the best one, if the means are known."""
    best = _best_arm(record)
    if best is None:
        return ""
    noun = record.words.arm
    best_pays = _mean_with_interval(record, best)
    if best == arm:
        return f"It is the best {noun} of these data: it pays {best_pays} on average."
    return (
        f"The best {noun} of these data is {record.arm_names[best]}, which pays {best_pays} on "
        f"average; {record.arm_names[arm]} pays {_mean_with_interval(record, arm)}."
    )


def _best_arm(record: Record) -> int | None:
    """Return the arm of the largest mean, if the means are known."""
    best = record.summary.get(BEST_ARM)
    return record.arm_names.index(str(best)) if best in record.arm_names else None


def _mean_with_interval(record: Record, arm: int) -> str:
    """Write the mean of an arm with its 95 % interval, if it is known from how many ratings."""
    if not record.means:
        return words.number(float(record.summary[BEST]), 3)
    mean = record.means[arm]
    ratings = _ratings(record)
    count = ratings[arm] if len(ratings) == record.arms else 0
    if not count:
        return words.number(mean, 3)
    return f"{format_interval(mean, *wilson(mean * count, count))} ({words.count(count, 'rating')})"


def _headline(record: Record, label: str) -> str:
    """Return what a step earned, or what a party knows, or the name of the data."""
    averages = averages_of(record)
    chance = record.summary.get(CHANCE)
    if averages is not None and isinstance(chance, float):
        nouns = record.words
        text = f"{label} earned {nouns.priced(_text_of(averages))} per {unit_of(nouns)}"
        if chance > 0:
            gain = float(averages.mean()) / chance - 1
            text += f", {words.percent(gain)} against an even split"
        return text
    if headline := record.show.get("headline"):
        return f"{label} {headline}"
    return _headline_of_party(record) if record.party else record.problem_name


def _headline_of_party(record: Record) -> str:
    """Return what a party of a deployment knows: its pulls and rewards, or the name of the data."""
    nouns = record.words
    total = nouns.priced(words.number(record.total_mean))
    if record.arms == 1:
        pulls = words.count(int(record.pulls.sum()), nouns.pull)
        if not record.total:
            return f"{record.party}: {pulls} of {record.arm_names[0]}"
        steps = words.count(record.horizon, nouns.step)
        return f"{record.party}: {pulls} in {steps}, {nouns.reward} {total}"
    return f"{record.party}: {f'a total of {total}' if record.total else record.problem_name}"


def sentence(record: Record, label: str) -> str:
    """Return what was earned, in what time, and whether the run finished."""
    nouns = record.words
    steps = words.count(record.horizon, nouns.step)
    if record.total:
        amount = words.plus_minus(record.total_mean, error_of(record.total))
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
    return f"{text} {_unfinished(record)}".rstrip()


def _unfinished(record: Record) -> str:
    return "" if record.status == "finished" else f"It was not finished: {record.state}."


def _rivals(pairs: Labelled) -> Labelled:
    """Omit records that equal an earlier one, and plain twins of protected ones."""
    protected = [_question(record) for record in pairs.records if record.level != PLAIN]
    rivals = pairs.where(lambda record: record.level != PLAIN or _question(record) not in protected)
    return rivals.different()


def _question(record: Record) -> tuple[str, Mapping[str, JSON], int]:
    """Return what a record and its plain twin have in common."""
    return str(record.policy), record.problem, record.horizon


def _answer_of_several(rivals: Labelled) -> list[str]:
    """Return which run earned most, with its interval, and how much more than the next."""
    first = rivals.records[0]
    if any(record.problem != first.problem for record in rivals.records):
        problems = list(dict.fromkeys(record.problem_name for record in rivals.records))
        where = f"{len(problems)} problems" if len(problems) > 1 else problems[0]
        headline = f"{len(rivals)} runs on {where}: no comparison"
        return [headline, "Rewards of different problems cannot be compared."]
    earning = []
    for record, label in rivals:
        averages = averages_of(record)
        if averages is not None:
            earning.append((float(averages.mean()), averages, record, label))
    if len(earning) < 2:
        return [first.problem_name, sentence(first, rivals.labels[0])]
    earning.sort(key=lambda entry: -entry[0])
    _, averages, top, label = earning[0]
    nouns = rivals.nouns
    amount = nouns.priced(_text_of(averages))
    answer = [f"{label} earned most: {amount} per {unit_of(nouns)}"]
    if any(record.status != "finished" for _, _, record, _ in earning):
        answer.append("A run did not finish: averages are compared, and not totals.")
    elif len({record.horizon for _, _, record, _ in earning}) > 1:
        answer.append("The horizons differ: averages are compared, and not totals.")
    else:
        answer += [_lead(top, *earning[1][2:]), _pulls_of_best_arm(top, label)]
    return [*answer, origin(top)]


def _lead(top: Record, second: Record, name: str) -> str:
    """Return how much more the first of a ranking earned than the second."""
    lead = difference(top, second)
    interval = lead.interval
    base = second.total_mean or 0.0
    percent = f" ({words.percent(interval.estimate / base)})" if base > 0 else ""
    if not interval.known:
        amount = words.number(interval.estimate)
        return f"{amount} more than {name}{percent}, in one run: it may be chance."
    if lead.clear:
        how = ", paired by world seed" if lead.paired else ""
        return f"{interval} more than {name}{percent}{how}."
    doubt = "may be chance"
    if interval.excludes_zero:
        doubt = "one more run with the opposite result could reverse. Use more --runs"
    return f"Not clearly more than {name}: the difference is {interval}, which {doubt}."


def _pulls_of_best_arm(record: Record, label: str) -> str:
    """Return the best arm of a simulation, and how often it was pulled; empty if not known."""
    arm = _best_arm(record)
    if arm is None or _winner(record) is None:
        return ""
    share = record.pulls[:, arm].sum() / record.pulls.sum()
    return (
        f"The best {record.words.arm} of these data is {record.arm_names[arm]} "
        f"({_mean_with_interval(record, arm)}): {label} pulled it in {share:.0%} of the "
        f"{plural(record.words.step)}."
    )


def _answer_of_joining(joined: Joining) -> list[str]:
    """Return how much all parties together gained by joining, and which parties are worse off."""
    record = joined.record
    whole = joined.whole
    nouns = record.words
    gain = whole.difference or 0.0
    sign = 1 if gain >= 0 else -1
    side = "more" if gain >= 0 else "less"
    interval = paired_interval(sign * np.array(whole.gained))
    amount = nouns.priced(str(interval))
    if whole.alone and whole.alone > 0:  # a percentage of a loss would mislead
        amount += f" ({words.percent(gain / whole.alone)})"
    if not interval.known:
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
    facts = [*_cards(record), _unfinished(record), origin(record)]
    return [headline, totals, joined.sentence, *facts]


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


def _text_of(averages: Floats) -> str:
    """Write the mean of averages with its 95 % interval."""
    return str(mean_interval(averages))


def unit_of(nouns: Vocabulary) -> str:
    """Return the noun of a decision; a step, if it makes one decision."""
    return nouns.step if nouns.pull == "pull" else nouns.pull


def _picture(pairs: Labelled) -> Picture | None:
    """Return averages of the runs, the best fixed arm and an even split; None if not known."""
    first = pairs.records[0]
    if any(record.problem != first.problem for record in pairs.records):
        return None
    runs: list[tuple[Record, str, Floats]] = []
    for record, label in pairs.different():
        averages = averages_of(record)
        if averages is not None:
            runs.append((record, label, averages))
    chance = first.summary.get(CHANCE)
    alone = [(label, averages) for record, label, averages in runs if not record.federated]
    if runs and isinstance(chance, float):
        reference = "an even split"
        base = chance
    elif alone and len(runs) > 1:
        reference = alone[0][0]
        base = float(alone[0][1].mean())
    else:
        return None
    bars = []
    for _, label, averages in runs:
        mean = float(averages.mean())
        bars.append(Bar(label, mean, _text_of(averages), _gain(mean, base)))
    nouns = pairs.nouns
    if not isinstance(chance, float):
        return Picture(f"{nouns.earned} per {nouns.step}", reference, tuple(bars))
    best = float(first.summary[BEST])
    best_arm = _best_arm(first)
    text = words.number(best, 3)
    if best_arm is not None:
        text = _mean_with_interval(first, best_arm).partition(" (")[0]
    name = f"best fixed {nouns.arm} ({first.summary[BEST_ARM]})"
    bars.append(Bar(name, best, text, _gain(best, base), yardstick=True))
    bars.append(Bar("even split", base, words.number(base, 3), "", yardstick=True))
    return Picture(f"{nouns.earned} per {unit_of(nouns)}", reference, tuple(bars))


def _gain(value: float, base: float) -> str:
    if base <= 0 or value == base:
        return ""
    return words.percent(value / base - 1)


# What it cost -------------------------------------------------------------------------------------


def _cost_table(pairs: Labelled, comparison: Comparison | None) -> Section:
    """Return what was earned and what it cost, one row per record; unknown columns are omitted."""
    records = pairs.records
    nouns = pairs.nouns
    columns = {
        "": short_labels(pairs) if len(pairs) > 1 else pairs.labels,
        nouns.earned: [
            words.plus_minus(record.total_mean, error_of(record.total)) for record in records
        ],
        "difference": _differences(comparison),
        "regret": [words.number(record.regret_mean) for record in records],
    }
    # Rewards are means over the runs, so costs are too.
    per_run = " per run" if any(record.runs > 1 for record in records) else ""
    columns[f"CPU time{per_run}"] = [
        words.seconds(record.seconds / max(1, record.runs) or None) for record in records
    ]
    notes = [_how_to_read(records)]
    plain = _plain_twin(records)
    if plain is not None:
        if too_short(plain):
            notes.append("Plain is too short to time.")
        else:
            columns["times plain"] = [words.ratio(times_as_long(each, plain)) for each in records]
    columns[f"traffic{per_run}"] = [
        words.size(round(record.bytes / max(1, record.runs))) if record.traffic else words.UNKNOWN
        for record in records
    ]
    columns = {name: cells for name, cells in columns.items() if set(cells) != {words.UNKNOWN}}
    rows = tuple(zip(*columns.values(), strict=True))
    return Section(
        "What it earned and cost",
        tuple(columns),
        rows,
        tuple(filter(None, notes)),
        numeric=tuple(range(1, len(columns))),
    )


def _how_to_read(records: Sequence[Record]) -> str:
    """Return what the numbers after ± and in brackets are."""
    runs = {record.runs for record in records if record.total}
    if not runs:
        return ""
    most = max(runs)
    if most > 1:
        over = words.count(most, "run") if len(runs) == 1 else "the runs"
        return f"± standard error, [ ] 95 % interval, over {over}."
    return "One run has no interval (--runs 10)." if records[0].seeds else ""


def _plain_twin(records: Sequence[Record]) -> Record | None:
    """Return the plain twin of one of the records, or of a record at another level."""
    twins = twins_of(records)
    return None if twins is None else twins[1]


def _differences(comparison: Comparison | None) -> list[str]:
    """Return how much more each record earned than the first, in percent."""
    texts = [words.UNKNOWN]
    if comparison is None:
        return texts
    base = comparison.rows[0].mean or 0.0
    for row in comparison.rows[1:]:
        if row.identical:
            texts.append("identical")
        elif row.difference is None or base <= 0:
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
    return tuple(map(_protection, levels.values()))


def _protection(record: Record) -> Protection:
    declared = as_table(record.show.get("protection_summary"))
    against, broken_by = UNPROTECTED.get(record.level, ("", ""))
    if record.level not in UNPROTECTED:  # stored before systems declared it
        against = " ".join(record.shown("protects")) or "not stated in this record"
        broken_by = "not stated in this record; do not take that for nobody"
        if record.leaks:
            leaks = words.count(len(record.leaks), "sentence")
            broken_by = f"see {leaks} on what is not protected"
    promises = guarantees([record])
    figures = [
        f"{promise.figure} (unit {promise.entry.get('unit', 'not stated')})" for promise in promises
    ]
    warning = ""
    if record.off:
        warning = f"OFF: {', '.join(record.off)}. What the level promises does not hold."
    elif any(promise.entry["epsilon"] is None for promise in promises):
        warning = "No finite ε. This is no promise at all."
    return Protection(
        level=described(record.protection),
        against=str(declared.get("against") or against),
        broken_by=str(declared.get("broken_by") or broken_by),
        verified=_verified(record, as_list(declared.get("attacks"))),
        privacy="; ".join(dict.fromkeys(figures)),
        warning=warning,
        command=str(declared.get("command") or ""),
    )


def _verified(record: Record, attacks: Sequence[JSON]) -> str:
    """Return which attacks were made on this run, or which ones verify the level."""
    if record.audits:
        from posse.results.audits import audits

        return f"{audits(record)[-1].headline.lower()} (this run)"
    if attacks:
        return f"attacks {', '.join(map(str, attacks))}"
    if record.level in UNPROTECTED:
        return "no attack needed"
    return "no attack on this run yet (posse audit)"


PROTECTION_LISTS = {
    "protects": "What is protected",
    "learns": "What each role learns",
    "leaks": "What is not protected",
}
"""Lists of sentences about the protection of a record, with their titles."""


def _protection_details(records: Sequence[Record]) -> list[Section]:
    levels = list(dict.fromkeys(record.protection for record in records))
    sections = []
    for key, title in PROTECTION_LISTS.items():
        for level in levels:
            same = [record for record in records if record.protection == level]
            lists = [_leaks(each) if key == "leaks" else each.shown(key) for each in same]
            items = tuple(dict.fromkeys(chain.from_iterable(lists)))
            sections.append(Section(title, items=items, label=described(level)))
    return [section for section in sections if section.items]


def _leaks(record: Record) -> tuple[str, ...]:
    if record.leaks or not record.federated:
        return record.leaks
    return ("This record does not state what leaks. Do not read that as no leak.",)


def _privacy_details(pairs: Labelled) -> list[Section]:
    """Return what the ledgers prove, their releases, and what they do not cover."""
    records = pairs.records
    noun = pairs.nouns.party
    promises = tuple(promise.sentence(noun) for promise in guarantees(records))
    sections = [Section("Privacy spent", items=promises)]
    for record, label in pairs:
        sections.append(_ledger_table(record, label))
    sections.append(Section("Privacy spent: not covered", items=tuple(not_covered(records))))
    return [section for section in sections if section.items or section.rows]


def _ledger_table(record: Record, label: str) -> Section:
    entries = ledger(record)
    keys = all_names(entries)
    rows = tuple(tuple(_cell(key, entry.get(key)) for key in keys) for entry in entries)
    names = [record.words.party if key == "party" else key.replace("_", " ") for key in keys]
    title = f"Ledger: {words.count(len(entries), 'entry')}"
    return Section(title, tuple(names), rows, label=label)


def _cell(key: str, value: JSON) -> str:
    if value is None:
        return words.UNKNOWN
    if key in ("epsilon", "delta"):
        return words.rounded_up(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {words.words_of(each)}" for name, each in flat(value))
    return words.words_of(value)


# Details ------------------------------------------------------------------------------------------


def _details(
    pairs: Labelled, joined_records: Sequence[Joining], comparison: Comparison | None
) -> list[Section]:
    """Return all further tables: of the systems, of parties, of arms, protection, costs, settings."""
    records = pairs.records
    details = [_parties_table(joined) for joined in joined_records]
    details += _sections(pairs)
    details += _pulls_tables(pairs)
    details += _protection_details(records)
    details += _privacy_details(pairs)
    details += _audit_tables(records)
    details += _cost_details(pairs)
    if comparison is not None:
        details.append(Section("How to read the comparison", items=comparison.notes))
    details += [_facts(record, label) for record, label in pairs]
    return details


def comparison_tables(records: Sequence[Record], names: Sequence[str]) -> list[Section]:
    """Return the tables of several labelled records: costs, pulls and the systems' own."""
    pairs = Labelled(tuple(records), tuple(names))
    comparison = compare(records) if len(records) > 1 else None
    costs = _cost_table(pairs, comparison)
    if comparison is not None:
        costs = replace(costs, notes=(*costs.notes, *comparison.notes))
    return [costs, *_pulls_tables(pairs), *_cost_details(pairs), *_sections(pairs)]


def sections(records: Record | Iterable[Record]) -> list[Section]:
    """Return the tables that the systems of these records want shown, those of one title together."""
    chosen = several(records)
    return _sections(Labelled(chosen, tuple(labels(chosen))))


def _sections(pairs: Labelled) -> list[Section]:
    by_title: dict[str, list[Section]] = {}
    for record, label in pairs:
        for table in record.show_list("sections"):
            section = Section.read(as_table(table), label if len(pairs) > 1 else "")
            by_title.setdefault(section.title, []).append(section)
    return list(chain.from_iterable(by_title.values()))


def _audit_tables(records: Sequence[Record]) -> list[Section]:
    """Return the tables of the last audit of each record."""
    audited = [record for record in records if record.audits]
    if not audited:
        return []
    from posse.results.audits import audits

    return [section for record in audited for section in audits(record)[-1].sections()]


def _parties_table(joined: Joining) -> Section:
    """Return what each party earned, and what joining changed if that is known."""
    nouns = joined.record.words
    shares = joined.shares
    if len(shares) > 1:
        shares = (*shares, joined.whole)
    if joined.baseline is None:
        earned = [
            (each.party, words.number(each.total), words.number(each.regret)) for each in shares
        ]
        title = f"What each {nouns.party} earned"
        columns = (nouns.party, nouns.earned, nouns.regret)
        return Section(title, columns, tuple(earned), numeric=(1, 2), label=joined.label)
    rows = []
    for share in shares:
        cells = (
            share.verdict,
            share.party,
            words.number(share.alone),
            words.number(share.total),
            words.plus_minus(share.difference, share.error),
            words.fraction(share.ratio),
        )
        rows.append(cells)
    return Section(
        "What joining is worth",
        ("verdict", nouns.party, "alone", "joined", "difference", "regret ratio"),
        tuple(rows),
        tuple(_notes_of_joining(joined)),
        numeric=(2, 3, 4, 5),
        label=joined.label,
    )


def _notes_of_joining(joined: Joining) -> list[str]:
    nouns = joined.record.words
    notes = [
        joined.sentence,
        f"{nouns.earned.capitalize()}. Differences are paired by world seed, ± standard error. "
        "The regret ratio is regret joined over regret alone.",
    ]
    if joined.record.runs > 1:
        notes.append(
            f"A verdict is about one {nouns.party}, at 5 %. The first sentence is about all "
            f"{plural(nouns.party)}: at 5 % for the whole table."
        )
    if joined.ratio is not None:
        how = joined.ratio.what if joined.ratio.known else "too few runs for an interval"
        notes.append(f"Regret ratio of {ALL}: {joined.ratio} ({how}).")
    return notes


def _pulls_tables(pairs: Labelled) -> list[Section]:
    """Return the pulls of records of which no two are equal; one arm alone needs no table."""
    pulled = pairs.where(lambda record: record.runs and record.arms > 1)
    return [_pulls_table(record, label) for record, label in pulled.different()]


def _pulls_table(record: Record, label: str) -> Section:
    """Return the arms that were pulled most, with their means if they are known."""
    pulls = record.pulls.sum(axis=0)
    share = pulls / max(1, int(pulls.sum()))
    order = np.argsort(-share, kind="stable")
    means_are_known = record.regret is not None and not record.contextual and record.means
    rows = []
    for arm in order[:MOST_PULLED].tolist():
        mean = _mean_with_interval(record, arm) if means_are_known else words.UNKNOWN
        rows.append((record.arm_names[arm], mean, f"{pulls[arm]:,}", f"{share[arm]:.1%}"))
    others = order[MOST_PULLED:]
    if others.size:
        total = int(pulls[others].sum())
        rows.append((f"{others.size} others", "", f"{total:,}", f"{share[others].sum():.1%}"))
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


def _cost_details(pairs: Labelled) -> list[Section]:
    """Return CPU time by role and traffic by hop, if they are known."""
    sections = []
    for record, label in pairs:
        if record.role_seconds:
            sections.append(_times_table(record, label))
        if record.traffic:
            sections.append(_traffic_table(record, label))
    return sections


def _times_table(record: Record, label: str) -> Section:
    by_role = times(record)
    total = sum(by_role.values())
    rows = [
        (record.role_label(role), words.seconds(value), f"{value / (total or 1):.1%}")
        for role, value in by_role.items()
    ]
    each = words.seconds(seconds_per_step(record))
    rows.append(("all", words.seconds(total), "100.0%"))
    rows.append((f"per {record.words.step} and {record.words.party}", each, ""))
    columns = ("role", "CPU time", "share")
    return Section("CPU time by role", columns, tuple(rows), numeric=(1, 2), label=label)


def _traffic_table(record: Record, label: str) -> Section:
    rows = [
        (hop.hop.replace("->", "→"), f"{hop.messages:,}", words.size(hop.bytes))
        for hop in record.traffic
    ]
    rows.append(("all", f"{record.messages:,}", words.size(record.bytes)))
    columns = ("from → to", "messages", "bytes")
    return Section("Traffic", columns, tuple(rows), numeric=(1, 2), label=label)


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
    problem = {name: value for name, value in record.problem.items() if name != "words"}
    values = flat(facts) + flat(record.config, "config") + flat(problem, "problem")
    values += flat(record.summary, "summary")
    rows = [(name, words.words_of(value)) for name, value in values]
    rows.append(("world seeds", _seeds(record)))
    return Section("Configuration", ("key", "value"), tuple(rows), label=label)


def _seeds(record: Record) -> str:
    if not record.seeds:
        return "none: rewards came from the world, not from a simulation"
    seeds = ", ".join(map(str, record.seeds[:MOST_SEEDS]))
    if len(record.seeds) > MOST_SEEDS:
        seeds += f" and others ({len(record.seeds):,} in all)"
    return f"{seeds} (a party that knows one knows every {record.words.reward})"


# Figures ------------------------------------------------------------------------------------------


def _plots(pairs: Labelled) -> list[Plot]:
    """Return the figures that these records allow. Curves of equal runs are drawn once."""
    curved = pairs.where(lambda record: record.runs and record.steps.size)
    different = curved.different()
    plots = _reward_plots(curved, different)
    regretful = different.where(lambda record: record.regret is not None)
    if len(regretful):
        plots.append(_plot("regret_curves", _regret_caption(regretful), regretful))
    for name in shared_curves(different.records):
        caption = f"{name[:1].upper()}{name[1:]}."
        plots.append(_plot("shown_curves", caption, different, curve=name))
    plots += _pull_plots(pairs)
    timed = pairs.where(lambda record: len(record.role_seconds) > 1)
    if len(timed) > 1:
        plots.append(_plot("role_times", "CPU time by role.", timed))
    return plots


def _reward_plots(curved: Labelled, different: Labelled) -> list[Plot]:
    """Return the figure of the reward: of a protected run and its twin, or its sum, or per step."""
    if not len(curved):
        return []
    nouns = curved.nouns
    # The reward per step of a system that learns from contexts grows, which its sum hides.
    if all(map(_learns_from_contexts, different.records)):
        caption = f"{nouns.reward.capitalize()} per {nouns.step} over the run."
        return [_plot("reward_rates", caption, different)]
    twins = twins_of(curved.records)
    if twins is None or len(curved) > 2:
        caption = f"Cumulative {nouns.reward}, the mean over runs."
        return [_plot("reward_curves", caption, different)]
    secure = twins[0]
    name = "Protected" if secure.protected else f"Level {secure.protection},"
    caption = f"{name} against plain: {nouns.reward} over the {plural(nouns.step)}, and time."
    label = dict(zip(map(id, curved.records), curved.labels, strict=True))
    ordered = Labelled(twins, (label[id(secure)], label[id(twins[1])]))
    return [_plot("secure_against_plain", caption, ordered)]


def _learns_from_contexts(record: Record) -> bool:
    return CHANCE in record.summary and record.show.get("learnt") != {}


def _plot(kind: str, caption: str, pairs: Labelled, curve: str = "") -> Plot:
    return Plot(kind, caption, pairs.records, pairs.labels, curve)


def _pull_plots(pairs: Labelled) -> list[Plot]:
    """Return a figure of pulls for each set of arms; one arm alone needs no figure."""
    pulled = pairs.where(lambda record: record.runs and 1 < record.arms <= MOST_BARS).different()
    plots = []
    for names in dict.fromkeys(record.arm_names for record in pulled.records):
        same = _with_arms(pulled, names)
        by = f" by {same.labels[0]}" if len(same) == 1 else ""
        plots.append(_plot("pulls_per_arm", f"{same.nouns.pulled}{by}.", same))
    return plots


def _with_arms(pairs: Labelled, names: tuple[str, ...]) -> Labelled:
    return pairs.where(lambda record: record.arm_names == names)


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
    same_level = plain.summary.get("twin_of", secure.level) == secure.level
    return same_level and plain.policy == secure.policy and plain.problem == secure.problem


def _regret_caption(pairs: Labelled) -> str:
    caption = pairs.nouns.regret_caption
    if all(record.contextual for record in pairs.records):
        return caption.replace("the best arm", "the best arm of every context")
    return caption


def shared_curves(records: Sequence[Record]) -> list[str]:
    """Return the names of curves that all of some records show, in the order of the first."""
    names = []
    for record in records:
        names.append([str(as_table(curve)["name"]) for curve in record.show_list("curves")])
    shared = names[0] if names else []
    return [name for name in shared if all(name in each for each in names)]
