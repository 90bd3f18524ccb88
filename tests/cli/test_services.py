"""What an operator's commands say of a service that is another member's, frozen, or refused by its
founder.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from posse.core.settings import read_toml
from posse.runtime.certificates.identity import PartyIdentity
from posse.runtime.federation.place import MEMBER
from posse.runtime.local import write_party
from posse.runtime.network.health import is_stopped
from tests.kit.commands import Call, one_line
from tests.kit.living import LivingFederation


@pytest.fixture
def federation(tmp_path: Path) -> LivingFederation:
    """The founder and one member; nobody is in a run."""
    return LivingFederation(tmp_path, {"clinic-e": "owner"})


def findings(posse: Call, file: Path) -> dict[str, dict[str, Any]]:
    return {
        one["what"]: one for one in json.loads(posse("party", "doctor", str(file), "--json").out)
    }


def until_connected(federation: LivingFederation, name: str) -> None:
    while name not in federation.connected():
        federation.tick(f"'{name}' to be connected")


def test_no_command_acts_on_the_service_of_another_member(
    federation: LivingFederation, posse: Call
) -> None:
    federation.join("clinic-f", "owner", runs="clinic-e-runs")
    federation.join("clinic-g", "owner", founder="registry")
    own, other = federation.file("clinic-e"), federation.file("clinic-f")
    federation.running.clear()
    try:
        for name in ("customer", "clinic-e"):
            federation.start(name)
        until_connected(federation, "clinic-e")
        before = federation.ask("clinic-e", "status")
        for command in (
            ("party", "stop"),
            ("party", "leave"),
            ("party", "renew"),
            ("federation", "queue"),
            ("party", "status"),
            ("federation", "queue", "--complete"),
        ):
            words = one_line(posse(*command[:2], str(other), *command[2:]))
            assert (
                "serves 'clinic-e' of federation 'hospitals', and clinic-f.toml is the file of "
                "'clinic-f'" in words
            )
        assert not any(one["fine"] for one in findings(posse, other).values())
        assert "holds the runs of 'clinic-e'" in posse("party", "serve", str(other)).err
        (federation.runs("clinic-e") / MEMBER).unlink()  # a service of the release before
        assert "serves 'clinic-e' of federation" in one_line(posse("party", "stop", str(other)))
        for command, words in (
            (("federation", "expel", "clinic-f", "--at", str(own)), "only the founder expels; "),
            (
                ("federation", "expel", "customer", "--at", str(federation.file("customer"))),
                "the founder cannot expel itself.",
            ),
            (("federation", "queue", str(own), "--complete"), "there is nothing to complete"),
        ):
            said = one_line(posse(*command))
            assert words in said
            assert said.count("[P") == 1
        way = findings(posse, federation.file("clinic-g"))["way to registry"]
        assert way["said"].endswith(
            "is customer 'customer'. Correct home, or give founder = \"customer\"."
        )
        assert federation.ask("clinic-e", "status") == before
        assert all(one["fine"] for one in findings(posse, own).values())
        assert "stopped; continue with" in posse("party", "stop", str(own)).out
    finally:
        federation.__exit__()


def test_a_service_that_is_frozen_is_named_and_told_nothing(
    federation: LivingFederation, posse: Call
) -> None:
    file, runs = federation.file("clinic-e"), federation.runs("clinic-e")
    with federation:
        until_connected(federation, "clinic-e")
        pid = federation.running["clinic-e"].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            while not is_stopped(runs):
                federation.tick("a process to be stopped")
            for command in (("party", "stop"), ("party", "status"), ("federation", "queue")):
                words = one_line(posse(*command, str(file)))
                assert "does not answer: process" in words
                assert f"is stopped; let it go on with: kill -CONT {pid}." in words
            found = findings(posse, file)["process"]
            assert (found["fine"], f"kill -CONT {pid}" in found["said"]) == (False, True)
        finally:
            os.kill(pid, signal.SIGCONT)
        for _ in range(2):  # a stop that was said to have failed would end it between these
            assert federation.ask("clinic-e", "status")["pid"] == pid
        assert federation.running["clinic-e"].poll() is None


def test_a_service_that_its_founder_refuses_says_so(
    federation: LivingFederation, posse: Call
) -> None:
    file = federation.file("clinic-e")
    log = file.with_suffix(".log")
    (federation.folder / "clinic-e").rename(
        federation.folder / "identity"
    )  # its log has its name all the same
    write_party(file, {**read_toml(file), "identity": "identity"})
    with federation:
        until_connected(federation, "clinic-e")
        assert findings(posse, file)["way to customer"]["said"] == "connected"
        assert posse("party", "leave", str(file)).code == 0
        assert federation.running["clinic-e"].wait(60) == 0
        serial = PartyIdentity.load(federation.folder / "identity").certificate.serial_number
        # Before the founder has its own list, it would take the call, and send the list along.
        while not PartyIdentity.load(
            federation.folder / "customer"
        ).crl.get_revoked_certificate_by_serial_number(serial):
            federation.tick("the founder to read its list")
        federation.start("clinic-e")
        while (way := findings(posse, file)["way to customer"])["fine"]:
            federation.tick("the founder to refuse it")
        assert "it refused us: " in way["said"]
        assert "revoked" in way["said"]
        while not (
            lines := [line for line in log.read_text().splitlines() if '"unreachable"' in line]
        ):
            federation.tick("a line in the log")
        line = json.loads(lines[-1])
        assert (line["level"], line["party"], line["peer"]) == ("warning", "clinic-e", "customer")
        assert "revoked" in line["why"]
