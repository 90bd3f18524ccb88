"""Lists of the policies that ship with Posse, one for each kind that systems use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from posse.core.listing import Listing
from posse.policies.arms.registry import POLICIES
from posse.policies.contextual.explorations import EXPLORATIONS

_SELECTED_BY = {"argmax": "best score", "match": "probability", "custom": "custom"}


def listing(kind: str) -> Listing | None:
    """Return the policies of a kind, as `About.policies` names it; None for an unknown kind."""
    list_policies = _LISTS.get(kind)
    return None if list_policies is None else list_policies()


def _arms() -> Listing:
    rows: list[tuple[str, ...]] = []
    entries: list[dict[str, object]] = []
    for policy_class in POLICIES.values():
        policy = policy_class()
        parameters = _defaults(policy_class)
        selections = [selection.kind for selection in policy.passes()]
        selected_by = ", ".join(_SELECTED_BY[selection] for selection in selections)
        if policy.explores:
            selected_by += " +explore"
        rows.append(
            (
                policy.name,
                _as_text(parameters),
                str(len(selections)),
                selected_by,
                policy.reference,
            )
        )
        entries.append(
            {
                "name": policy.name,
                "summary": policy.summary,
                "parameters": parameters,
                "passes": len(selections),
                "selection": selections,
                "explores": policy.explores,
                "reference": policy.reference,
            }
        )
    return Listing(
        "Arms",
        ("policy", "parameters", "passes", "selects by", "reference"),
        tuple(rows),
        tuple(entries),
        notes=(
            "Selection: the best score, or an arm drawn by its probability; +explore: some steps "
            "take any arm.",
        ),
        numeric=(2,),
    )


def _shared_contexts() -> Listing:
    summaries = {
        "epsilon-greedy": ("epsilon 0.1", "the best score"),
        "linucb": ("epsilon 0.1, width 1.0", "the best score and a bonus for what is little known"),
        "thompson": ("epsilon 0.1, width 1.0", "the best of scores drawn from what is known"),
    }
    return Listing(
        "Contexts on shares",
        ("policy", "parameters", "pulls, where the arm is not drawn by epsilon"),
        tuple((name, *texts) for name, texts in summaries.items()),
        tuple(
            {"name": name, "parameters": parameters, "summary": summary}
            for name, (parameters, summary) in summaries.items()
        ),
    )


def _purchases() -> Listing:
    summaries = {
        "p-fcb": "noisy reports at a few rounds",
        "fcb": "everything after every round, in the clear",
        "naive": "everything after every round, with noise",
        "alone": "no federation",
        "placebo": "reports of noise alone, a control",
    }
    return Listing(
        "Markets",
        ("policy", "what is sent"),
        tuple(summaries.items()),
        tuple(
            {"name": name, "summary": summary, "parameters": {"coefficient": 1.0}}
            for name, summary in summaries.items()
        ),
    )


def _explorations() -> Listing:
    defaults = {name: _defaults(exploration) for name, exploration in EXPLORATIONS.items()}
    return Listing(
        "Contexts on devices",
        ("policy", "parameters", "chooses"),
        tuple(
            (name, _as_text(defaults[name]), exploration.summary)
            for name, exploration in EXPLORATIONS.items()
        ),
        tuple(
            {"name": name, "summary": exploration.summary, "parameters": defaults[name]}
            for name, exploration in EXPLORATIONS.items()
        ),
        notes=(
            "Your own: a function of the scores that returns probabilities, as module:function or "
            "file.py:function.",
        ),
    )


def _defaults(policy: Any) -> dict[str, object]:
    """Return the default of each parameter; None for a parameter without one."""
    return {
        parameter.name: None if parameter.default is MISSING else parameter.default
        for parameter in fields(policy)
    }


def _as_text(parameters: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parameters.items()) or "none"


_LISTS: dict[str, Callable[[], Listing]] = {
    "arms": _arms,
    "shared-contexts": _shared_contexts,
    "purchases": _purchases,
    "explorations": _explorations,
}
