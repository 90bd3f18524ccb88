"""A service's file and its folder of runs: limits hold as they are now, and one process of one
member has it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core.errors import CertificateError, ConfigError, JournalError
from posse.runtime.certificates.identity import PartyIdentity
from posse.runtime.federation import care
from posse.runtime.federation.founder import Founder
from posse.runtime.federation.member import Member
from posse.runtime.federation.place import MEMBER, check_answers, open_service
from posse.runtime.federation.service import Living
from posse.runtime.federation.talk import (
    ACCEPTED,
    PROPOSED,
    REFUSED,
    STARTED,
    Line,
    Proposal,
    Sheet,
    Signed,
)
from posse.runtime.local import write_party
from posse.runtime.network.deployment import Build
from posse.runtime.network.operate import Control, ask
from tests.runtime.federation.one_member import Federation, tell


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path)


def everything(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that is in a folder: names, modes, times of the last change and bytes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, data)
    return found


def quiet(*_: object, **__: object) -> None:
    """Log nothing."""


# Limits -------------------------------------------------------------------------------------------


def test_a_limit_that_is_lowered_behind_a_running_service_holds_at_the_next_decision(
    federation: Federation,
) -> None:
    member = federation.member("runs")
    first, second, third = (federation.propose(run, 40) for run in ("first", "second", "third"))

    async def go() -> None:
        assert await tell(member, federation, (first, PROPOSED)) == {first.digest: ACCEPTED}
        federation.file("runs", consent={"systems": ["toy"], "budget": 39})
        assert await tell(member, federation, (second, PROPOSED)) == {second.digest: REFUSED}
        assert member._refused[second].text == "decisions would be 40; budget is 39."
        sheet = Sheet((Line(second, PROPOSED, {}),), federation.revoked)
        (entry,) = (await member.take(sheet)).entries
        assert "the run is outside budget in its [consent]" in entry.text
        assert "39" not in entry.text  # the founder and the proposer may not see the limit
        # What was agreed to stays agreed to, and starts.
        assert await tell(member, federation, (first, STARTED)) == {first.digest: STARTED}
        federation.file("runs", consent={"systems": ["toy"], "budget_in_all": 79})
        assert await tell(member, federation, (third, PROPOSED)) == {third.digest: REFUSED}
        assert member._refused[third].text == "decisions would be 80; budget_in_all is 79."
        (part,) = member.parts.values()
        assert part.task is not None
        part.task.cancel()

    asyncio.run(go())
    assert member.ledger.spent.decisions == 40


def test_a_limit_that_is_lowered_while_a_proposal_is_looked_at_holds(
    federation: Federation,
) -> None:
    member, signed = federation.member("runs"), federation.propose("a", 40)
    build = member.systems.build

    def slow(name: str) -> Build:
        federation.file("runs", consent={"systems": ["toy"], "budget": 39})
        return build(name)

    member.systems = replace(member.systems, build=slow)
    assert asyncio.run(tell(member, federation, (signed, PROPOSED))) == {signed.digest: REFUSED}
    assert member._refused[signed].text == "decisions would be 40; budget is 39."
    assert member.ledger.spent.runs == 0


def test_what_a_file_has_that_cannot_be_read_is_not_told_to_others(
    federation: Federation,
) -> None:
    member, signed = federation.member("runs"), federation.propose("a", 1)
    federation.file("runs", proxy=["http://bob:secret@proxy.example:3128"])
    assert asyncio.run(tell(member, federation, (signed, PROPOSED))) == {signed.digest: REFUSED}
    assert "secret" not in member._refused[signed].text
    assert "secret" in member.place.edited()  # the member's own operator


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("identity = [", "cannot be read now"),
        ("identity = 'clinic-b'\nbudgets = 1", "cannot be read now"),
        ("identity = 'clinic-b'\n[consent]\nbudget = -1", "cannot be read now"),
        ("identity = 'clinic-b'", "has no [consent] in its file"),
        (None, "cannot be read now"),
    ],
)
def test_a_file_that_cannot_be_read_refuses_every_proposal(
    federation: Federation, text: str | None, words: str
) -> None:
    member, path, signed = (
        federation.member("runs"),
        federation.folder / "clinic-b.toml",
        federation.propose("a", 1),
    )
    path.unlink() if text is None else path.write_text(text)
    assert asyncio.run(tell(member, federation, (signed, PROPOSED))) == {signed.digest: REFUSED}
    assert words in member._refused[signed].text
    said = {one.what: one for one in care.examine(path)}
    if "cannot be read" in words:
        assert "refuses every proposal until it can be read" in said["consent"].said
        assert not said["consent"].fine
        assert "it cannot be read, so every proposal is refused" in member.place.edited()
    else:
        assert (
            said["consent"].said == "no [consent]: it agrees to nothing but what it proposes itself"
        )
    federation.file("runs")
    other = federation.propose("b", 1)
    assert asyncio.run(tell(member, federation, (other, PROPOSED))) == {other.digest: ACCEPTED}
    assert member.place.edited() == ""


def test_customers_whom_a_founder_names_count_as_they_are_now(federation: Federation) -> None:
    founder = Founder(federation.member("runs"), federation.authority, lambda _: None)
    proposal = Proposal.make("hospitals", {"protocol": "toy", "run": "a", "budget": 1})
    signed = Signed.sign(proposal, PartyIdentity.load(federation.folder / "clinic-b"))
    with pytest.raises(Exception, match="does not name it under customers"):
        founder.propose("clinic-b", signed)
    federation.file("runs", consent={"customers": ["clinic-b"]})
    assert founder.propose("clinic-b", signed).run == "a"


def test_what_else_was_edited_is_named_and_its_values_are_not(federation: Federation) -> None:
    member = federation.member("runs")
    path = federation.file("runs", proxy="http://bob:secret@proxy.example:3128", sync=False)
    assert member.place.edited() == (
        "proxy, sync changed since the service started; stop and start it to take that up"
    )
    federation.file("runs", consent={"runs": 1})
    assert member.place.edited() == ""
    said = {one.what: one.said for one in care.examine(path)}
    assert said["consent"] == "runs = 1"


# Whose runs ---------------------------------------------------------------------------------------


def test_a_folder_of_runs_belongs_to_one_member(federation: Federation) -> None:
    federation.member("runs").close()
    federation.enrolled("owner", "clinic-c")
    values = {"identity": "clinic-c", "home": "127.0.0.1:7400", "runs": "runs"}
    other = write_party(federation.folder / "clinic-c.toml", values)
    before = everything(federation.folder / "runs")
    words = (
        "holds the runs of 'clinic-b' of federation 'hospitals', and clinic-c.toml is the file of "
        "'clinic-c'"
    )
    with pytest.raises(JournalError, match=words):
        Member(other, federation.systems(), quiet)
    (finding,) = care.examine(other)
    assert not finding.fine
    assert words in finding.said
    with pytest.raises(JournalError, match=words):
        care.backup(other, federation.folder / "out")
    archive = federation.folder / "backup"
    write_party(other, {**values, "runs": "others"})
    Member(other, federation.systems(), quiet).close()
    care.backup(other, archive)
    write_party(other, values)
    with pytest.raises(JournalError, match=words):
        care.restore(archive, other)
    assert everything(federation.folder / "runs") == before
    federation.member("runs")  # whom it belongs to has it again


def test_a_folder_of_the_release_before_is_bound_at_the_first_start(federation: Federation) -> None:
    member, signed = federation.member("runs"), federation.propose("a", 7)
    asyncio.run(tell(member, federation, (signed, PROPOSED)))
    (federation.folder / "runs" / MEMBER).unlink()
    assert federation.member("runs").ledger.spent.decisions == 7
    assert json.loads((federation.folder / "runs" / MEMBER).read_text()) == {
        "federation": "hospitals",
        "name": "clinic-b",
    }
    (federation.folder / "runs" / MEMBER).write_text("{")
    with pytest.raises(JournalError, match=r"member\.json cannot be read"):
        federation.member("runs")


def test_an_answer_of_another_members_service_is_told(federation: Federation) -> None:
    place = open_service(federation.file("runs"))
    place.check_answers({"service": "clinic-b", "federation": "hospitals", "pid": 9})
    for status in (
        {"service": "clinic-c", "federation": "hospitals"},
        {"service": "clinic-b", "federation": "banks"},
    ):
        with pytest.raises(
            JournalError, match=r"process 9 has .*runs open and serves .*clinic-b\.toml is the file"
        ):
            place.check_answers({**status, "pid": 9})


def test_commands_reach_a_service_whose_certificate_was_revoked(federation: Federation) -> None:
    path = federation.file("runs")
    federation.authority.revoke("clinic-b")
    revoked = federation.authority.current_crl().public_bytes(Encoding.DER)
    PartyIdentity.load(federation.folder / "clinic-b").adopted(revoked)
    with pytest.raises(CertificateError, match="revoked"):
        open_service(path)
    check_answers(path, {"service": "clinic-b", "federation": "hospitals", "pid": 9})
    with pytest.raises(JournalError, match=r"process 9 has .*runs open and serves 'clinic-c'"):
        check_answers(path, {"service": "clinic-c", "federation": "hospitals", "pid": 9})


def test_a_renewal_outlives_a_list_that_comes_meanwhile(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = federation.member("runs")
    before, usual = member.identity, PartyIdentity.adopted
    renewed = replace(before, certificate=federation.customer.certificate)  # any other one

    def slow(identity: PartyIdentity, revoked: bytes) -> PartyIdentity:
        made = usual(identity, revoked)
        member.identity = renewed
        return made

    monkeypatch.setattr(PartyIdentity, "adopted", slow)
    member.adopt(federation.revoked)
    assert member.identity.certificate == renewed.certificate != before.certificate
    assert member.identity.crl == before.crl


def test_a_status_of_many_runs_is_read_whole(tmp_path: Path) -> None:
    runs = {f"run-{number}": {"state": "finished", "text": "x" * 100} for number in range(5000)}

    async def go() -> object:
        control = Control(tmp_path, {"status": lambda _: {"runs": runs}})
        await control.start()
        try:
            return await ask(tmp_path, "status")
        finally:
            control.close()

    assert asyncio.run(go()) == {"runs": runs}


def test_a_second_start_leaves_the_folder_as_it_is(federation: Federation) -> None:
    member = federation.member("runs")
    agreed, dropped = federation.propose("agreed", 7), federation.propose("dropped", 5)
    asyncio.run(tell(member, federation, (agreed, PROPOSED), (dropped, PROPOSED)))
    part = member.parts[dropped.digest]
    part.state = "dropped"
    member._keep(part)  # as between two writes
    (member.runs / ".part-october").mkdir()
    before = everything(member.runs)
    with pytest.raises(JournalError, match="in use by another process"):
        Member(federation.file("runs"), federation.systems(), quiet)
    assert everything(member.runs) == before
    member = federation.member("runs")  # the first is gone: what it left is tidied
    assert not (member.runs / ".part-october").exists()
    assert member.ledger.spent.decisions == 7


def test_a_service_that_does_not_start_lets_go_of_its_folder(federation: Federation) -> None:
    member = federation.member("runs")
    (member.runs / "ledger.json").write_text("{")
    for _ in range(2):
        with pytest.raises(JournalError, match="restore it from a copy"):
            federation.member("runs")


def test_a_service_whose_file_lacks_something_lets_go_of_its_folder(
    federation: Federation,
) -> None:
    async def start() -> None:
        Living(federation.file("runs", home=None), federation.systems(), quiet)

    for _ in range(2):
        with pytest.raises(ConfigError, match="needs home"):
            asyncio.run(start())
    federation.member("runs").close()


# The password of a proxy --------------------------------------------------------------------------


def test_a_file_with_a_password_is_for_its_owner_only(federation: Federation) -> None:
    path = federation.file("runs", proxy="http://bob:secret@proxy.example:3128")
    path.chmod(0o644)
    with pytest.raises(CertificateError, match=r"clinic-b\.toml can be used by others .*chmod go="):
        Member(path, federation.systems(), quiet)
    assert next(one.said for one in care.examine(path) if "password" in one.what).endswith(
        f"chmod go= {path}"
    )
    path.chmod(0o600)
    Member(path, federation.systems(), quiet).close()
    assert not [one for one in care.examine(path) if "password" in one.what]
    care.backup(path, federation.folder / "backup")
    path.unlink()
    care.restore(federation.folder / "backup", path)
    assert path.stat().st_mode & 0o777 == 0o600
    Member(path, federation.systems(), quiet).close()
