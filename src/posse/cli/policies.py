"""`posse policies`: what ships, and whether a policy of yours may run in a federation."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import options
from posse.cli.screen import heading, print_json, say, table

if TYPE_CHECKING:
    from posse.policies.arms.base import Policy

Check = Annotated[
    str | None,
    typer.Option("--check", help="Check a policy of yours: module:Class or file.py:Class.", metavar="MODULE:CLASS"),
]

_SELECTION = {"argmax": "best score", "match": "probability", "custom": "custom"}


def policies(check: Check = None, json: options.Json = False) -> None:
    """List the policies, or check your own."""
    if check is not None:
        _check(check, json)
        return
    from posse.policies.arms.registry import POLICIES

    if json:
        print_json([_facts(policy()) for policy in POLICIES.values()])
        return
    rows = []
    for kind in POLICIES.values():
        policy = kind()
        rows.append((policy.name, _parameters(policy), str(len(policy.passes())), _selection(policy), policy.reference))
    table(("policy", "parameters", "passes", "selects by", "reference"), rows, numeric=(2,))
    say(
        "\nSelection: the best score, or an arm drawn by its probability; +explore: some steps take any arm.",
        style="dim",
    )
    say("With contexts: epsilon-greedy, linucb, thompson (mpc-contextual); greedy, epsilon-greedy, softmax, falcon "
        "(fed-contextual).", style="dim")  # fmt: skip
    say("Your own: subclass posse.policies.Policy, then: posse policies --check file.py:Class", style="dim")


def _parameters(policy: Policy) -> str:
    return ", ".join(f"{field.name} {field.default}" for field in fields(policy)) or "none"


def _selection(policy: Policy) -> str:
    how = ", ".join(_SELECTION[selection.kind] for selection in policy.passes())
    return how + (" +explore" if policy.explores else "")


def _facts(policy: Policy) -> dict[str, object]:
    parameters = {field.name: None if field.default is MISSING else field.default for field in fields(policy)}
    return {
        "name": policy.name,
        "summary": policy.summary,
        "parameters": parameters,
        "passes": len(policy.passes()),
        "selection": [selection.kind for selection in policy.passes()],
        "explores": policy.explores,
        "reference": policy.reference,
    }


def _check(where: str, json: bool) -> None:
    from posse.cli.progress import Doing
    from posse.policies.arms.registry import policy as made

    policy = made(where)
    with Doing(f"checking {where}"):
        from posse.policies.arms.checks import check

        found = check(policy)
    if json:
        results = [{"name": r.name, "passed": r.passed, "reason": r.reason} for r in found.results]
        print_json({"policy": where, "passed": found.passed, "results": results})
    else:
        heading(f"{type(policy).__name__}: {'may run in a federation' if found.passed else 'refused'}")
        table(("check", "result"), [(r.name, "ok" if r.passed else f"FAILED: {r.reason}") for r in found.results])
    if not found.passed:
        raise typer.Exit(1)
