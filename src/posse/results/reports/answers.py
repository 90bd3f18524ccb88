"""The answer first: who won and by how much, what a step earned beside chance and the best fixed
arm, at what price.

What a record does not know is left out: a party of a deployment reads only what it may know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from posse.core.statistics import Floats, mean_interval, standard_error, student
from posse.results import words
from posse.results.compare import Difference, difference, identical, times_as_long
from posse.results.joining import Joining, joining
from posse.results.naming import PLAIN, labels
from posse.results.record import Record
from posse.results.reports.sections import Named
from posse.results.words import Vocabulary, common, plural

CHANCE, BEST, ARM = "chance_reward", "best_fixed_reward", "best_fixed_arm"
"""Figures of a record's summary: what a step pays on average by an arm at random, by the best fixed
arm, and which.
"""


@dataclass(frozen=True)
class Bar:
    """One average in a row of averages."""

    label: str
    value: float
    text: str
    yardstick: bool = False
    """Whether it is what a run is measured against, and no run itself."""


@dataclass(frozen=True)
class Card:
    """One figure with its unit, and what it is."""

    value: str
    below: str
    alarm: bool = False


@dataclass(frozen=True)
class Answer:
    """What the top of a page and of a screen says about records shown together."""

    headline: str
    sentences: tuple[str, ...]
    bars: tuple[Bar, ...]
    measured: str
    """What the bars are averages of, such as "Average reward a step"."""
    cards: tuple[Card, ...]

    @property
    def line(self) -> str:
        """The bars in one line, for a screen; empty where there are none."""
        if not self.bars:
            return ""
        return f"{self.measured}: {'; '.join(f'{bar.label} {bar.text}' for bar in self.bars)}."


def yardsticks(means: npt.ArrayLike, names: Sequence[str]) -> dict[str, str | float]:
    """Return what a step pays on average without learning, for a summary; `means` are (arms,) or
    (contexts, arms).

    >>> yardsticks([0.2, 0.6], ["tea", "coffee"])
    {'chance_reward': 0.4, 'best_fixed_reward': 0.6, 'best_fixed_arm': 'coffee'}
    """
    each = np.atleast_2d(np.asarray(means, np.float64)).mean(axis=0)
    best = int(each.argmax())
    return {CHANCE: float(each.mean()), BEST: float(each[best]), ARM: names[best]}


def answer(records: Sequence[Record], names: Sequence[str] | None = None) -> Answer:
    """Answer for records that are shown together, the first of them the one that was asked for."""
    named = list(zip(records, labels(records) if names is None else names, strict=True))
    joined = next((one for one in joining(records) if one.baseline is not None), None)
    rivals = _rivals(named)
    if joined is not None:
        headline, sentences = _joined(joined)
        cards = (*_shown(joined.record), _protection(joined.record))
    elif len(rivals) > 1:
        (headline, sentences), cards = _best_run(rivals), ()
    else:
        record, label = rivals[0]
        headline, sentences = _single(record, label)
        cards = (*_shown(record), *_costs(record, records), _protection(record))
    same = [
        name
        for other, name in named
        if other is not rivals[0][0] and identical(other, rivals[0][0])
    ]
    if same:
        nouns, more = rivals[0][0].words, f"; and {len(same) - 3} more" if len(same) > 3 else ""
        what = f"Same {plural(nouns.pull)} and same {nouns.reward}"
        sentences = (*sentences, f"{what}, bit for bit: {'; '.join(same[:3])}{more}.")
    bars, measured = ((), "") if joined is not None else _bars(named, rivals)
    return Answer(headline, tuple(one for one in sentences if one), bars, measured, cards)


def spread(values: npt.ArrayLike) -> tuple[float, float, float]:
    """Return the mean and Student's 95 % interval of it; NaN for the ends where there is one
    value.
    """
    interval = mean_interval(values)
    return interval.estimate, interval.low, interval.high


def averages(record: Record) -> Floats | None:
    """Return what a decision (a step where one decision is made in each) earned on average, in
    every run.
    """
    if not record.total:
        return None
    if CHANCE in record.summary and record.arms:
        many = record.pulls.sum(axis=1).astype(np.float64)
    else:
        many = np.full(
            record.runs, (record.steps_done or record.horizon * record.runs) / record.runs
        )
    return np.array(record.total) / many if many.all() else None


def per(nouns: Vocabulary, *, decided: bool) -> str:
    """Return the noun that an average is of: a decision where a step has several, else a step."""
    return nouns.pull if decided and nouns.pull != "pull" else nouns.step


def sentence(record: Record, label: str) -> str:
    """Say in a sentence or two what a record says: what was earned, how long it took, and whether
    it was finished.
    """
    nouns = record.words
    steps = words.count(record.horizon, nouns.step)
    if record.total:
        earned = nouns.priced(words.plus_minus(record.total_mean, standard_error(record.total)))
        runs = words.count(record.runs, "run")
        time = (
            f" in {words.seconds(record.seconds)}" if record.seconds else ""
        )  # 0 is: nobody measured it
        text = f"{label} earned {earned} over {steps} ({runs}){time}."
    elif record.party:
        text = f"{label} took part in {steps}; it does not know what was earned."
    else:
        text = f"{label} finished no run."
    if record.status == "running" and record.show.get("in_use"):
        return f"{text} It is in use: more decisions may follow."
    return text if record.status == "finished" else f"{text} It was not finished: {record.state}."


def _rivals(named: Named) -> Named:
    """Leave out what is a run twice: one equal to an earlier one, and the plain twin of a protected
    one.
    """
    rivals: list[tuple[Record, str]] = []
    protected = {
        (one.policy, str(one.problem), one.horizon) for one, _ in named if one.level != PLAIN
    }
    for record, label in named:
        twin = (
            record.level == PLAIN
            and (record.policy, str(record.problem), record.horizon) in protected
        )
        if not twin and not any(identical(record, other) for other, _ in rivals):
            rivals.append((record, label))
    return rivals


# Headlines ----------------------------------------------------------------------------------------


def _single(record: Record, label: str) -> tuple[str, tuple[str, ...]]:
    said = sentence(record, label)
    arm = _winner(record) if record.status == "finished" or "headline" not in record.show else None
    if arm is None:
        return _title(record, label), (said,)
    nouns, means = record.words, record.problem.get("means")
    shares = 100 * record.pulls[:, arm] / record.pulls.sum(axis=1)
    mean, low, high = spread(shares)
    share = words.interval(mean, max(low, 0.0), min(high, 100.0))
    name, best = record.arm_names[arm], record.summary.get(ARM)
    made = record.pulls.sum(axis=1)  # an interrupted run pulled less often than its horizon says
    pulls = words.count(int(made[0] if (made == made[0]).all() else made.sum()), nouns.pull)
    several = "" if (made == made[0]).all() else f" in {words.count(record.runs, 'run')}"
    headline = f"{name} won: {share} % of {pulls}{several}"
    truth = ""
    if best is not None:
        known = means[arm] if isinstance(means, list) and len(means) == record.arms else None
        pays = words.number(float(record.summary[BEST]), 3)
        other = (
            f"The best {nouns.arm} is {best}, which pays {pays} on average; {name} pays "
            f"{words.number(known, 3)}."
        )
        truth = f"It is the best {nouns.arm}: it pays {pays} on average." if best == name else other
    interval = (
        f"In brackets: 95 % interval over {words.count(record.runs, 'run')}."
        if record.runs > 1
        else ""
    )
    return headline, (truth, said, interval)


def _winner(record: Record) -> int | None:
    """Return the arm that a bandit came to, where its system says that what was learnt is an
    arm.
    """
    if record.show.get("learnt") != {} or not record.arms or not record.pulls.sum(axis=1).all():
        return None
    return int(record.pulls.sum(axis=0).argmax())


def _title(record: Record, label: str) -> str:
    """Name what a step earned beside chance; what a party knows; else the data."""
    each, chance = averages(record), record.summary.get(CHANCE)
    nouns = record.words
    unit = per(nouns, decided=True)
    if each is not None and isinstance(chance, float):
        earned = nouns.priced(words.interval(*spread(each)))
        beside = (
            f", {words.ratio(float(each.mean()) / chance)} as much as chance" if chance > 0 else ""
        )
        return f"{label} earned {earned} a {unit}{beside}"
    if own := record.show.get("headline"):
        return f"{label} {own}"
    if record.party and record.total:
        return f"{record.party}: a total of {nouns.priced(words.number(record.total_mean))}"
    if record.party and record.arms == 1:
        pulled = words.count(int(record.pulls.sum()), nouns.pull)
        return f"{record.party}: {pulled} of {record.arm_names[0]}"
    return f"{record.party}: {record.problem_name}" if record.party else record.problem_name


def _best_run(rivals: Named) -> tuple[str, tuple[str, ...]]:
    """Name the run that earned most, with its interval, and what it is ahead of the next."""
    problems = list(dict.fromkeys(record.problem_name for record, _ in rivals))
    first = sentence(*rivals[0])
    if any(record.problem != rivals[0][0].problem for record, _ in rivals):
        where = f" on {len(problems)} problems" if len(problems) > 1 else f" on {problems[0]}"
        return f"{len(rivals)} runs{where}: no one winner", (
            first,
            "Rewards of different problems do not compare.",
        )
    earned = [
        (record, label, each) for record, label in rivals if (each := averages(record)) is not None
    ]
    if len(earned) < 2:
        return problems[0], (first,)
    same, over = (
        len({one[0].horizon for one in earned}) == 1,
        all(one[0].status == "finished" for one in earned),
    )
    earned.sort(key=lambda one: -float(np.mean(one[0].total if same and over else one[2])))
    (top, label, each), (second, name, _) = earned[:2]
    nouns = common(record.words for record, _ in rivals)
    if not (same and over):
        unit = per(nouns, decided=CHANCE in top.summary)
        return (
            f"{label} earned most: {nouns.priced(words.interval(*spread(each)))} a {unit}",
            (
                f"On {problems[0]}, by what a {unit} earned: "
                f"{'not all runs were finished' if same else 'the horizons differ'}.",
                _interval(top),
            ),
        )
    ahead = difference(top, second)
    total = nouns.priced(words.interval(*spread(top.total)))
    headline = f"{label} earned most: {total} over {words.count(top.horizon, nouns.step)}"
    if not ahead.interval.known:
        return headline, (
            f"{words.number(ahead.interval.estimate)} more than {name}, in one run: it may be "
            "chance.",
            _best_arm(top, label),
        )
    return headline, (_lead(ahead, name), _best_arm(top, label), _interval(top))


def _lead(ahead: Difference, name: str) -> str:
    """Return how far the best run is ahead of the next one, and whether that is clear."""
    if ahead.clear:
        pairing = ", paired by world seed" if ahead.paired else ""
        return f"{ahead.interval} more than the next, {name}{pairing}."
    doubt = "may be chance"
    if ahead.interval.excludes_zero:
        doubt = "one more run that fails would undo"
    return f"Not clearly more than {name}: the difference is {ahead.interval}, which {doubt}."


def _best_arm(record: Record, label: str) -> str:
    """Name the best arm of a simulation, and how often a run pulled it; empty where that is not
    known.
    """
    best = record.summary.get(ARM)
    if _winner(record) is None or best not in record.arm_names:
        return ""
    share = record.pulls[:, record.arm_names.index(str(best))].sum() / record.pulls.sum()
    return (
        f"The best {record.words.arm} is {best}: {label} pulled it in {share:.0%} of the "
        f"{plural(record.words.step)}."
    )


def _interval(record: Record) -> str:
    return (
        f"In brackets: 95 % intervals over {words.count(record.runs, 'run')}."
        if record.runs > 1
        else ""
    )


def _joined(joined: Joining) -> tuple[str, tuple[str, ...]]:
    """Say what joining earned all parties together, and what it cost."""
    record, base, whole, nouns = joined.record, joined.baseline, joined.whole, joined.record.words
    assert base is not None
    gain = whole.difference or 0.0
    side = "more" if gain >= 0 else "less"
    interval = student(abs(gain), whole.error, whole.runs - 1)
    amount = nouns.priced(str(interval))
    headline = f"Joining earned {amount} {side} {nouns.reward} than alone"
    if whole.error is None:
        headline = f"In this one run joining earned {amount} {side} {nouns.reward} than alone"
    elif not interval.excludes_zero:
        headline = f"Whether joining pays cannot be told: {amount} {side} {nouns.reward} than alone"
    each, steps = f"all {plural(nouns.party)} together", words.count(record.horizon, nouns.step)
    totals = (
        f"{nouns.priced(words.number(whole.total))} against "
        f"{nouns.priced(words.number(whole.alone))} alone"
    )
    cost = (
        f"It cost {words.seconds(record.seconds)} of CPU time (alone {words.seconds(base.seconds)})"
    )
    cost += (
        f" and {words.size(record.bytes)} in {words.count(record.messages, 'message')}"
        if record.traffic
        else ""
    )
    state = "" if record.status == "finished" else f"It was not finished: {record.state}."
    runs = words.count(record.runs, "run")
    return headline, (
        f"{joined.label}: {totals}, {each}, over {steps} ({runs}).",
        f"{cost}.",
        _interval(record),
        state,
    )


# Bars and cards -----------------------------------------------------------------------------------


def _bars(named: Named, rivals: Named) -> tuple[tuple[Bar, ...], str]:
    """Return averages of the runs beside the best fixed arm and chance; none where no record has
    these.
    """
    with_chance = [(record, label) for record, label in named if CHANCE in record.summary]
    if not with_chance:
        return (), ""
    bars, seen = [], list[Record]()
    for record, label in with_chance:
        each = averages(record)
        if each is not None and not any(identical(record, other) for other in seen):
            seen.append(record)
            bars.append(Bar(label, float(each.mean()), words.interval(*spread(each))))
    figures: Mapping[str, str | float | int] = with_chance[0][0].summary
    if all(record.problem == with_chance[0][0].problem for record, _ in with_chance):
        best, chance = float(figures[BEST]), float(figures[CHANCE])
        bars.append(
            Bar(
                f"best fixed {rivals[0][0].words.arm} ({figures[ARM]})",
                best,
                words.number(best, 3),
                True,
            )
        )
        bars.append(Bar("chance", chance, words.number(chance, 3), True))
    nouns = common(record.words for record, _ in with_chance)
    return tuple(bars), f"Average {nouns.reward} a {per(nouns, decided=True)}"


def _shown(record: Record) -> tuple[Card, ...]:
    """Cards of the system's own (`show["cards"]`)."""
    own = record.show.get("cards")
    return (
        tuple(Card(str(one[0]), str(one[1])) for one in own if isinstance(one, list))
        if isinstance(own, list)
        else ()
    )


def _costs(record: Record, among: Sequence[Record]) -> tuple[Card, ...]:
    plain = next(
        (
            one
            for one in among
            if one.level == PLAIN and one is not record and one.policy == record.policy
        ),
        None,
    )
    longer = None if plain is None else times_as_long(record, plain)
    beside = f", {words.ratio(longer)} the plain one" if longer is not None else ""
    time = Card(
        words.seconds(record.seconds), f"CPU time, {words.count(record.runs, 'run')}{beside}"
    )
    hops = Card(words.size(record.bytes), words.count(record.messages, "message"))
    return (*((time,) if record.seconds else ()), *((hops,) if record.traffic else ()))


def _protection(record: Record) -> Card:
    return Card(
        "none" if record.level == PLAIN else record.protection, "protection", alarm=bool(record.off)
    )
