"""Records as tables: what was earned, what it cost, what was protected and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posse.cli.screen import bullets, heading, say, table

if TYPE_CHECKING:
    from posse.results.compare import Comparison
    from posse.results.joining import Joining
    from posse.results.record import Record
    from posse.results.reports.sections import Section


def describe(record: Record) -> str:
    """Say in one line what was run."""
    from posse.results import words

    said = record.words
    # Where parties are not named, each is one arm.
    many = len(record.party_names) or record.arms
    who = [words.count(many, said.party)] if many else []
    who += [words.count(record.arms, said.arm)] if record.party_names and record.arms else []
    clients, names = record.problem.get("clients"), record.problem.get("names")
    if isinstance(clients, int) and isinstance(names, list):  # devices are counted, not named
        who = [words.count(clients, said.party), words.count(len(names), said.arm)]
    who += [words.count(record.horizon, said.step)] + (
        [words.count(record.runs, "run")] if record.runs else []
    )
    parts = (record.policy, record.problem_name, *who)
    return " · ".join(parts if record.status == "finished" else (*parts, record.state))


def first(records: Sequence[Record]) -> None:
    """Print the answer: who won, what a step earned beside chance and the best fixed arm, and what
    the system adds.
    """
    from posse.results.reports.answers import answer

    said = answer(records)
    say(said.headline, style="bold")
    say(" ".join(said.sentences))
    if said.line:
        say(said.line)
    own = records[0].show.get("cards")
    for card in said.cards[: len(own)] if isinstance(own, list) else ():
        say(f"{card.below[:1].upper()}{card.below[1:]}: {card.value}.")


def folded(record: Record, stored: bool = True) -> None:
    """Print in a line what `protection` prints whole, and where that can be read."""
    from posse.results import words
    from posse.results.naming import PLAIN

    level = "none" if record.level == PLAIN else record.protection
    off = f" OFF: {', '.join(record.off)}." if record.off else ""
    many = (
        words.count(len(record.leaks), "caveat") if record.leaks else "it does not say what leaks"
    )
    where = (
        f"posse runs show {record.id}, or a report" if stored else "without --brief, or in a report"
    )
    say(f"\nProtection: {level}.{off} What is not protected: {many} ({where}).")


def earned_and_cost(records: Sequence[Record]) -> None:
    """Print records side by side, a column each: what was earned, and what it cost."""
    from posse.results import differences, labels, standard_error, words
    from posse.results.compare import times_as_long
    from posse.results.words import common

    said = common(record.words for record in records)
    errors, regrets = (
        [standard_error(record.total) for record in records],
        [record.regret_mean for record in records],
    )
    earned = f"earned ({said.money})" if said.money else "earned"
    rows = [
        (
            earned,
            *(
                words.plus_minus(r.total_mean, error)
                for r, error in zip(records, errors, strict=True)
            ),
        ),
        *(
            [(said.regret, *map(words.number, regrets))]
            if any(one is not None for one in regrets)
            else []
        ),
    ]
    if any(record.seconds for record in records):  # a bandit in use measures none
        each = f"CPU time per {said.step} and {said.party}, all included"
        rows.append(("CPU time", *(words.seconds(r.seconds) for r in records)))
        rows.append((each, *(words.seconds(per_step(r)) for r in records)))
    if len(records) > 1:
        ratios = [1.0, *(times_as_long(record, records[0]) for record in records[1:])]
        rows.append(
            (
                "times as long",
                *("too short to compare" if x is None else words.ratio(x) for x in ratios),
            )
        )
    if any(record.traffic for record in records):
        rows.append(("messages", *(f"{r.messages:,}" if r.traffic else "none" for r in records)))
        rows.append(("bytes", *(words.size(r.bytes) if r.traffic else "none" for r in records)))
    # The protection alone, where nothing else differs.
    other = {name for table in differences(records) for name in table} - {"level"}
    names = labels(records) if other else [record.protection for record in records]
    table(["", *names], rows, numeric=range(1, len(records) + 1))
    if any(error is not None for error in errors):
        say("Mean of the runs ± its standard error.", style="dim")


def per_step(record: Record) -> float | None:
    """Seconds a step and party, over the steps that were taken: an interrupted run took fewer than
    its budget.
    """
    steps = record.steps_done * (len(record.party_names) or record.arms)
    return record.seconds / steps if steps else None


def sameness(secure: Record, plain: Record, *, twin: str = "the plain one") -> str:
    """Say plainly whether protection changed anything."""
    from posse.results import identical, words

    if secure.status != "finished" or plain.status != "finished":
        return "One of the two was not finished: they cannot be compared."
    if identical(secure, plain):
        each = "" if secure.runs == 1 else f" in each of the {secure.runs} runs"
        what = "the secure run" if secure.protected else "the run"
        said = secure.words
        took = (
            "pulled every arm as often"
            if said.pull == "pull"
            else f"took as many {words.plural(said.pull)} of each"
        )
        return (
            f"Identical: {what} ({secure.protection}) {took} as {twin} "
            f"and earned the same {words.number(secure.total_mean)}, to the last bit{each}."
        )
    return (
        f"NOT identical: {secure.label} and its plain twin differ. This is a defect, please report "
        "it."
    )


def protection(record: Record) -> None:
    """Print what a level protects, and what it does not."""
    from posse.results.naming import PLAIN, described

    level = "none" if record.level == PLAIN else described(record.protection)
    learns = record.shown("learns")
    heading(f"Protection: {level}{'. What each role learns' if learns else ''}")
    if record.off:
        say(
            f"OFF: {', '.join(record.off)}. What the level promises does not hold.",
            style="bold red",
        )
    bullets(learns, style="green" if record.protected else "yellow")
    _spent(record)
    heading("What is not protected")
    unsaid = "This record does not say what leaks. Do not take that for nothing."
    bullets(
        record.leaks or ((unsaid,) if record.federated else ("Nothing is shared.",)), style="yellow"
    )


def _spent(record: Record) -> None:
    from posse.results.reports.sections import guarantees, not_covered

    if promised := guarantees([record]):
        heading("Privacy spent")
        bullets((guarantee.sentence(record.words.party) for guarantee in promised), style="green")
    if left_out := not_covered([record]):
        heading("Privacy spent: not covered")
        bullets(left_out, style="yellow")


def section(made: Section) -> None:
    """Print a table and notes that a system gives as data."""
    if made.title:
        heading(f"{made.title} ({made.label})" if made.label else made.title)
    if made.rows:
        table(made.columns, made.rows, numeric=made.numeric)
    for note in made.notes:
        say(note, style="dim" if made.rows else "")


def details(record: Record, beside: Sequence[Record] = ()) -> None:
    """Print the rest of one record: its sections, what parties earned, protection."""
    from posse.results.reports.audits import audits
    from posse.results.reports.sections import sections

    seen: set[str] = set()
    for made in sections([record, *beside]):
        if not made.title or made.title not in seen:  # of the others a report has them
            section(made)
        seen.add(made.title)
    joining([record, *(other for other in beside if not other.federated)])
    protection(record)
    for audit in audits(record)[-1:]:
        for made in audit.sections():
            section(made)


def comparison(compared: Comparison, brief: bool = False) -> None:
    """Print a comparison, and what to know when reading it; in `brief` only how much there is to
    know.
    """
    from posse.results import words

    columns = ("run", compared.words.earned, "difference", "same", "time", "ratio")
    rows = [
        (
            row.label,
            words.plus_minus(row.mean, row.error),
            words.UNKNOWN if i == 0 else words.plus_minus(row.difference, row.difference_error),
            words.UNKNOWN if i == 0 else "yes" if row.identical else "no",
            words.seconds(row.seconds),
            words.ratio(row.ratio),
        )
        for i, row in enumerate(compared.rows)
    ]
    table(columns, rows, numeric=(1, 2, 4, 5))
    if brief:
        say(
            f"{words.count(len(compared.notes), 'note')} on how to read it: leave --brief out.",
            style="dim",
        )
        return
    reward = compared.words.reward.capitalize()
    say(
        f"{reward}: mean of the runs ± its standard error. Difference and ratio: to the first "
        "line.",
        style="dim",
    )
    for note in compared.notes:
        say(note, style="dim")


def pulls(record: Record, most: int = 10) -> None:
    """Print the arms that were pulled most, with their means where they are known."""
    from posse.results import words

    share = record.pulls.sum(axis=0) / max(1, int(record.pulls.sum()))
    means = record.problem.get("means")
    known = means if isinstance(means, list) and len(means) == record.arms else [None] * record.arms
    order = sorted(range(record.arms), key=lambda arm: -share[arm])[:most]
    rows = [
        [record.arm_names[arm], words.number(known[arm], 3), f"{share[arm]:.1%}"] for arm in order
    ]
    if record.arms > most:
        rest = float(sum(share[arm] for arm in range(record.arms) if arm not in order))
        rows.append([f"{record.arms - most} others", "", f"{rest:.1%}"])
    columns = [record.words.arm, "mean", words.plural(record.words.pull)]
    if known.count(None) == record.arms:
        columns, rows = [columns[0], columns[2]], [[row[0], row[2]] for row in rows]
    table(columns, rows, numeric=range(1, len(columns)))


def joining(records: Sequence[Record]) -> None:
    """Print what each party earned, beside the same party alone where a record of that is there;
    losers are marked.
    """
    from posse.results.joining import joining as joined_of

    for joined in joined_of(records):
        said = joined.record.words
        unit = f" ({said.money})" if said.money else ""
        if joined.baseline is None:
            heading(f"{joined.record.label}: what each {said.party} earned{unit}")
            _parties(joined)
        else:
            heading(f"{joined.record.label}: what joining is worth{unit}")
            _worth(joined)


def _parties(joined: Joining) -> None:
    from posse.results import words

    said = joined.record.words
    shares = (*joined.shares, joined.whole)
    rows = [
        (share.party, words.number(share.total), words.number(share.regret)) for share in shares
    ]
    table((said.party, said.reward, "pseudo-regret"), rows, numeric=(1, 2))


def _worth(joined: Joining) -> None:
    from posse.results import words

    said = joined.record.words
    rows = [
        (
            share.party,
            share.verdict,
            words.number(share.alone),
            words.number(share.total),
            words.plus_minus(share.difference, share.error),
            words.fraction(share.ratio),
        )
        for share in (*joined.shares, joined.whole)
    ]
    columns = (
        said.party,
        "joined",
        f"{said.reward} alone",
        f"{said.reward} joined",
        "difference",
        "regret ratio",
    )
    table(columns, rows, numeric=range(2, 6))
    if joined.losers:
        say(
            f"Worse off joined, in {said.reward} or regret: {words.listed(joined.losers)}.",
            style="bold red",
        )
    if joined.doubtful:
        say(joined.doubt, style="yellow")
    if joined.rule:
        say(joined.rule, style="dim")
    say(
        "Difference: paired by world seed, ± its standard error. Ratio: regret joined over regret "
        "alone.",
        style="dim",
    )
    if joined.ratio is not None:
        what = f" ({joined.ratio.what})" if joined.ratio.known else ", too few runs for an interval"
        say(f"Regret ratio, all together: {joined.ratio}{what}.", style="dim")


def saved(records: Sequence[Record], again: str = "") -> None:
    """Say under which ids records were kept, and how to see them."""
    heading("Saved")
    bullets(f"{record.id}  {record.label}" for record in records)
    say(f"See it again: {again or f'posse runs show {records[0].id}'}")
