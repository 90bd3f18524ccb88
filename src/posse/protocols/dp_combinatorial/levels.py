"""What each method protects and what it does not, in sentences that every record and report prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posse.privacy.dp.schedules import communication_rounds
from posse.protocols.dp_combinatorial.terms import Terms


def level_of(terms: Terms, schedule: str) -> str:
    """Name the protection of a record: the noise schedule, `plain`, `alone` or `placebo`.

    >>> level_of(Terms(("a", "b"), ("p",), 10, method="fcb"), "tight")
    'plain'
    """
    if terms.method in ("alone", "placebo"):
        return terms.method
    return "plain" if terms.always or not any(terms.multipliers) else schedule


def learns(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What leaves an agent in a run of this configuration (`Record.config`), one sentence each.

    >>> learns({"method": "alone"})
    ('Nothing leaves an agent.',)
    """
    method, noisy = config.get("method"), config.get("noise") != "none"
    if method is None:
        return ("This record does not say what was sent.",)
    if method == "alone":
        return ("Nothing leaves an agent.",)
    if method == "placebo":
        return ("Agents exchange noise that holds nothing of what they bought.",)
    if method == "fcb":
        return ("Every agent sends every other what it bought of each producer and how much was good, every round.",)
    reports = communication_rounds(config["start"], config["stop"], config["rounds"])
    when = f"after {len(reports)} of {config['rounds']:,} rounds"
    if not noisy:
        return (f"Every agent sends every other what it bought of each producer and how much was good, {when}.",)
    return (
        f"Every agent sends every other one noisy pair for each producer (units, good units) {when}.",
        "All receivers get the same pair: together they see no more than one of them.",
    )


def leaks(terms: Terms, schedule: str) -> tuple[str, ...]:
    """What is not protected, one sentence each."""
    if terms.method == "alone":
        return ()
    out = [
        "Who takes part, with which producers, for how many rounds, and when reports are sent: the terms are public."
    ]
    if terms.method != "placebo":
        out += _of_reports(level_of(terms, schedule) != "plain")
    if terms.rule == "fuse" and any(terms.multipliers):
        out.append(
            "Reports are fused by their variance, so each tells the scale of its noise and with it the capacities."
        )
    out.append("Producers see what is bought from them; nothing here hides an agent from a producer.")
    return tuple(out)


def _of_reports(noisy: bool) -> list[str]:
    if not noisy:
        return ["Everything an agent bought and how good it was, to every other agent: there is no noise."]
    return [
        "Trends over many rounds: the guarantee is for the unit it names, and reports exist to tell averages.",
        "An agent that lies in its reports can fix what others believe of a producer for good: nothing limits it.",
    ]
