"""Records as tables: what was earned, what it cost, what was protected and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posse.cli.screen import bullets, heading, say, table

if TYPE_CHECKING:
    from posse.results.compare import Comparison
    from posse.results.record import RunRecord


def describe(record: RunRecord) -> str:
    """Say in one line what was run."""
    from posse.results import words

    parts = (
        record.policy, f"{record.problem_name}", words.count(record.arms, "owner"), words.count(record.budget, "step"),
        words.count(record.runs, "run"),
    )  # fmt: skip
    return " · ".join(parts if record.status == "finished" else (*parts, record.state))


def earned_and_cost(records: Sequence[RunRecord]) -> None:
    """Print records side by side, a column each: what was earned, and what it cost."""
    from posse.results import standard_error, words
    from posse.results.compare import times_as_long

    errors = [standard_error(record.total) for record in records]
    rows = [
        ("earned", *(words.plus_minus(r.total_mean, error) for r, error in zip(records, errors, strict=True))),
        ("pseudo-regret", *(words.number(_regret(r)) for r in records)),
        ("CPU time", *(words.seconds(r.seconds) for r in records)),
        ("CPU time per step and owner, all included", *(words.seconds(per_step(r)) for r in records)),
    ]
    if len(records) > 1:
        ratios = [1.0, *(times_as_long(record, records[0]) for record in records[1:])]
        rows.append(("times as long", *("too short to compare" if x is None else words.ratio(x) for x in ratios)))
    if any(record.traffic for record in records):
        rows.append(("messages", *(f"{r.messages:,}" if r.traffic else "none" for r in records)))
        rows.append(("bytes", *(words.size(r.bytes) if r.traffic else "none" for r in records)))
    table(["", *(record.protection for record in records)], rows, numeric=range(1, len(records) + 1))
    if any(error is not None for error in errors):
        say("Mean of the runs ± its standard error.", style="dim")


def per_step(record: RunRecord) -> float | None:
    """Seconds a step and owner, over the steps that were taken: an interrupted run took fewer than its budget."""
    steps = int(record.pulls.sum()) * record.arms
    return record.seconds / steps if steps else None


def sameness(secure: RunRecord, plain: RunRecord) -> str:
    """Say plainly whether protection changed anything."""
    from posse.results import identical, words

    if secure.status != "finished" or plain.status != "finished":
        return "One of the two was not finished: they cannot be compared."
    if identical(secure, plain):
        each = "" if secure.runs == 1 else f" in each of the {secure.runs} runs"
        what = "the secure run" if secure.protected else "the run"
        return (
            f"Identical: {what} ({secure.protection}) pulled every arm as often as the plain one "
            f"and earned the same {words.number(secure.total_mean)}, to the last bit{each}."
        )
    return f"NOT identical: {secure.label} and its plain twin differ. This is a defect, please report it."


def protection(record: RunRecord) -> None:
    """Print what a level protects, and what it does not."""
    from posse.protocols.samba.levels import LEVELS, Switches, learns

    known = record.level in LEVELS
    heading(f"Protection: {record.protection}. What each role learns" if known else "Protection: none")
    if record.off:
        say(f"OFF: {', '.join(record.off)}. What the level promises does not hold.", style="bold red")
    if known:
        switches = Switches(**dict.fromkeys(record.off, False))
        bullets(learns(record.level, switches), style="yellow" if record.off else "green")
    heading("What is not protected")
    bullets(record.leaks or ("This record does not say what leaks. Do not take that for nothing.",), style="yellow")


def comparison(compared: Comparison) -> None:
    """Print a comparison, and what to know when reading it."""
    from posse.results import words

    columns = ("run", "reward", "difference", "same", "time", "ratio")
    rows = [
        (
            row.label, words.plus_minus(row.mean, row.error),
            words.UNKNOWN if i == 0 else words.plus_minus(row.difference, row.difference_error),
            words.UNKNOWN if i == 0 else "yes" if row.identical else "no",
            words.seconds(row.seconds), words.ratio(row.ratio),
        )
        for i, row in enumerate(compared.rows)
    ]  # fmt: skip
    table(columns, rows, numeric=(1, 2, 4, 5))
    say("Reward: mean of the runs ± its standard error. Difference and ratio: to the first line.", style="dim")
    for note in compared.notes:
        say(note, style="dim")


def pulls(record: RunRecord, most: int = 10) -> None:
    """Print the arms that were pulled most, with their means where they are known."""
    from posse.results import words

    share = record.pulls.sum(axis=0) / max(1, int(record.pulls.sum()))
    means = record.problem.get("means")
    known = means if isinstance(means, list) and len(means) == record.arms else [None] * record.arms
    order = sorted(range(record.arms), key=lambda arm: -share[arm])[:most]
    rows = [(record.arm_names[arm], words.number(known[arm], 3), f"{share[arm]:.1%}") for arm in order]
    if record.arms > most:
        rest = float(sum(share[arm] for arm in range(record.arms) if arm not in order))
        rows.append((f"{record.arms - most} others", "", f"{rest:.1%}"))
    table(("arm", "mean", "pulls"), rows, numeric=(1, 2))


def saved(records: Sequence[RunRecord], again: str = "") -> None:
    """Say under which ids records were kept, and how to see them."""
    heading("Saved")
    bullets(f"{record.id}  {record.label}" for record in records)
    say(f"See it again: {again or f'posse runs show {records[0].id}'}")


def _regret(record: RunRecord) -> float | None:
    if record.regret is None or not record.regret.size:
        return None
    return float(record.regret[:, -1].mean())
