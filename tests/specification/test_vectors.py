"""The roles reproduce the test vectors of `samba-strict/1`, also after a restart."""

from __future__ import annotations

import json

import pytest

from tests.specification.vectors import CASES, FOLDER, Run, document


@pytest.mark.parametrize("name", CASES)
def test_the_roles_reproduce_every_message_of_a_vector(name: str) -> None:
    stored = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    # JSON has text as keys: a document is compared as it would be stored.
    assert json.loads(json.dumps(document(name))) == stored


@pytest.mark.parametrize("name", CASES)
def test_a_party_that_restarts_sends_the_same_messages(name: str) -> None:
    run = Run(CASES[name]).play()
    for party in run.names:
        before = [run.described(party, *send) for send in run.sent[party]]
        after = [run.described(party, *send) for send in run.repeat(party)]
        assert after == before, party


def test_a_vector_differs_if_one_root_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = json.loads((FOLDER / "three-owners.json").read_text(encoding="utf-8"))
    run = Run(CASES["three-owners"])
    run.roots["dealer"] = bytes(32)
    messages = [run.described(*send) for send in run.play().sends]
    assert json.loads(json.dumps(messages)) != stored["messages"]
