"""A member agrees only to what it consents to, whatever its founder sends, in whatever order, and
wherever it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
import resource
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posse.core.errors import CertificateError, ConfigError, JournalError, PosseError, ProtocolError
from posse.runtime.certificates import making
from posse.runtime.certificates.authority import utc_now
from posse.runtime.certificates.identity import PartyIdentity
from posse.runtime.federation import care
from posse.runtime.federation.consent import Demand
from posse.runtime.federation.founder import QUEUED, Founder, Item
from posse.runtime.federation.listener import Control
from posse.runtime.federation.member import Member
from posse.runtime.federation.service import Living
from posse.runtime.federation.talk import (
    ACCEPTED,
    DROPPED,
    OVER,
    PROPOSED,
    REFUSED,
    STARTED,
    Entry,
    Invitation,
    Leave,
    Left,
    Line,
    Past,
    Proposal,
    Propose,
    Recall,
    Recalled,
    Renew,
    Renewed,
    Report,
    Sheet,
    Shown,
    Signed,
    Wanted,
    check_portable,
    decode,
    encode,
)
from posse.runtime.local import write_party
from posse.runtime.network.connection import Connection
from posse.runtime.network.deployment import Deployment, Service
from posse.runtime.network.engine import Vocabulary
from posse.runtime.network.operate import json_log
from posse.runtime.network.wire import LARGEST_FRAME, Kept, WireError
from posse.runtime.place import Place
from tests.kit.toy_roles import Leaf
from tests.runtime.federation.one_member import MOST, Federation, invite, tell


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(Path(tempfile.mkdtemp()))


steps = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from([PROPOSED, PROPOSED, STARTED, STARTED, DROPPED, OVER, "kill"]),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(budgets=st.lists(st.integers(1, 80), min_size=6, max_size=6), steps=steps)
def test_no_sequence_of_sheets_passes_the_consent(
    federation: Federation, budgets: list[int], steps: list[tuple[int, str]]
) -> None:
    runs = Path(tempfile.mkdtemp(dir=federation.folder))
    federation.took.clear()
    # Two proposals may have one name: they are two runs, of which a member takes one.
    proposals = [
        federation.propose(f"run-{number // 2}", budget) for number, budget in enumerate(budgets)
    ]

    async def go() -> None:
        member = federation.member(runs.name)
        for number, phase in steps:
            if phase == "kill":
                tasks = [part.task for part in member.parts.values() if part.task is not None]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                member = federation.member(runs.name)
                continue
            states = await tell(member, federation, (proposals[number], phase))
            await asyncio.sleep(0)
            assert phase == PROPOSED or states[proposals[number].digest] != ACCEPTED
        for part in member.parts.values():
            if part.task is not None:
                part.task.cancel()

    asyncio.run(go())
    began = set(federation.took)
    # Which of two proposals of one name it was is in the ledger; at least the smaller of them.
    least = sum(min(budgets[2 * k : 2 * k + 2]) for k in range(3) if f"run-{k}" in began)
    ledger = federation.member(runs.name).ledger
    assert least <= ledger.spent.decisions <= MOST
    assert len(began) <= 4


def test_a_member_takes_part_as_far_as_it_agreed(federation: Federation) -> None:
    proposals = [federation.propose(f"f-{number}", 45) for number in range(3)]
    federation.took.clear()

    async def go() -> None:
        member = federation.member("parts")
        states = await tell(member, federation, *((signed, PROPOSED) for signed in proposals))
        assert list(states.values()) == [ACCEPTED, ACCEPTED, REFUSED]
        await tell(member, federation, *((signed, STARTED) for signed in proposals))
        await asyncio.sleep(0)
        assert federation.took == ["f-0", "f-1"]
        for part in member.parts.values():
            assert part.task is not None
            part.task.cancel()

    asyncio.run(go())


def test_what_is_not_signed_for_this_federation_is_refused(federation: Federation) -> None:
    member = federation.member("refusals")
    other = Signed.sign(
        Proposal.make("banks", {"protocol": "toy", "run": "a", "budget": 9}), federation.customer
    )
    good = federation.propose("b", 9)
    forged = Signed(good.body, other.signature, good.certificate)
    owner = Signed.sign(good.proposal, PartyIdentity.load(federation.folder / "clinic-b"))
    for signed, words in (
        (other, "is for federation 'banks'"),
        (forged, "does not verify"),
        (msgspec.structs.replace(good, certificate=b"none"), "does not parse"),
    ):
        with pytest.raises((ProtocolError, CertificateError), match=words):
            signed.check(member.identity, utc_now())
        assert asyncio.run(tell(member, federation, (signed, PROPOSED))) == {signed.digest: REFUSED}
    # What a member proposes itself needs no consent but its own limits.
    assert asyncio.run(tell(member, federation, (owner, PROPOSED))) == {owner.digest: ACCEPTED}
    assert (
        asyncio.run(tell(member, federation, (federation.propose("c", 61), PROPOSED))).popitem()[1]
        == REFUSED
    )


def test_a_part_that_listens_needs_a_listen_address(federation: Federation) -> None:
    def listens(name: str, values: Mapping[str, Any]) -> Invitation:
        made = invite(name, values)
        return replace(made, files={"clinic-b": {**made.files["clinic-b"], "listens": True}})

    member, signed = federation.member("deaf"), federation.propose("heard", 9)
    member.systems = replace(member.systems, invite=listens)
    sheet = Sheet((Line(signed, PROPOSED, {}),), federation.revoked)
    (entry,) = asyncio.run(member.take(sheet)).entries
    assert entry.state == REFUSED
    for words in ("no listen", "Give listen", "VPN or a tunnel"):
        assert words in entry.text


def test_a_run_is_not_started_that_was_not_agreed_to(federation: Federation) -> None:
    member, signed = federation.member("unasked"), federation.propose("d", 9)
    assert asyncio.run(tell(member, federation, (signed, STARTED))) == {signed.digest: REFUSED}
    assert not list(member.runs.glob("*/run.json"))


def test_what_was_dropped_before_it_started_is_given_back(federation: Federation) -> None:
    member, signed = federation.member("dropped"), federation.propose("e", 50)
    asyncio.run(tell(member, federation, (signed, PROPOSED)))
    assert member.ledger.spent.decisions == 50
    asyncio.run(tell(member, federation, (signed, DROPPED)))
    assert member.ledger.spent.decisions == federation.member("dropped").ledger.spent.decisions == 0
    assert not (member.runs / "e").exists()


def test_a_restored_member_counts_what_it_can_and_asks_its_operator_for_the_rest(
    federation: Federation,
) -> None:
    member, good = federation.member("restored"), federation.propose("good", 30)
    old = Signed.sign(
        Proposal.make("hospitals", {"protocol": "gone", "run": "old"}), federation.customer
    )

    def known(name: str, values: Mapping[str, Any]) -> Invitation:
        if name == "gone":
            raise ConfigError("there is no system 'gone'.")
        return invite(name, values)

    member.systems = replace(member.systems, invite=known)
    founder = Founder(member, federation.authority, lambda _: None)
    for number, signed in enumerate((good, old)):
        founder.items.append(Item(number, signed, {"clinic-b": "owner"}, (), OVER, began=True))
    member.ledger.adopt({"runs": {}, "started": []}, newest=False)
    told = decode(encode(Recalled(founder.history("clinic-b"))))
    assert isinstance(told, Recalled)
    member.recalled(told.runs)
    assert (member.ledger.spent.decisions, member.uncounted, member.ledger.restored) == (
        30,
        ("old",),
        True,
    )
    # What would lower the sum counts as nothing that is known.
    member.recalled((Past("less", "0" * 32, OVER, Demand("toy", "strict", "ucb", -30)),))
    assert (member.ledger.spent.decisions, member.uncounted, member.ledger.restored) == (
        30,
        ("less",),
        True,
    )
    member.recalled(())
    assert not member.ledger.restored
    # A long history of large proposals fits in a frame.
    large = Proposal.make(
        "hospitals", {"protocol": "toy", "run": "large", "budget": 1, "note": "x" * 90_000}
    )
    founder.items = [
        Item(0, Signed.sign(large, federation.customer), {"clinic-b": "owner"}, (), OVER)
    ] * 1000
    assert len(encode(Recalled(founder.history("clinic-b")))) < LARGEST_FRAME / 10


def test_a_run_is_looked_up_by_its_name(federation: Federation) -> None:
    member = federation.member("absent")
    asyncio.run(
        tell(
            member,
            federation,
            *((federation.propose(name, 9), PROPOSED) for name in ("first", "second")),
        )
    )
    assert member.absent("second") == f"'clinic-b' has {ACCEPTED} run 'second'"
    assert member.absent("third") == "run 'third' is not known"


class Stoppable:
    """A party of a run, of which it matters alone whether it was stopped."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


def test_a_party_stops_whose_run_ended_after_the_backup_or_whose_peer_moved(
    federation: Federation,
) -> None:
    member, signed = federation.member("stopped"), federation.propose("ended", 9)
    asyncio.run(tell(member, federation, (signed, PROPOSED)))
    (part,) = member.parts.values()
    made: Any = lambda name, values: replace(  # noqa: E731
        invite(name, values),
        files={"clinic-b": {**invite(name, values).files["clinic-b"], "connect": ("customer",)}},
    )
    member.systems = replace(member.systems, invite=made)
    moved, ended = Stoppable(), Stoppable()
    part.party = moved  # type: ignore[assignment]
    asyncio.run(member._go_on(part, Line(signed, STARTED, {"customer": "127.0.0.1:9"})))
    part.party = ended  # type: ignore[assignment]
    member.recalled((Past("ended", signed.digest, OVER, Demand("toy", "strict", "ucb", 9)),))
    assert (part.again, moved.stopped, ended.stopped, part.state) == (True, True, True, OVER)


def test_a_part_that_stands_still_is_logged_and_its_founder_knows_why(
    federation: Federation,
) -> None:
    member, signed = federation.member("halted"), federation.propose("halted", 9)
    founder, events = Founder(member, federation.authority, lambda _: None), []
    item = Item(
        0,
        signed,
        {"clinic-b": "owner", "clinic-d": "owner"},
        (),
        STARTED,
        without=("clinic-d",),
        began=True,
    )
    item.ends_at = "clinic-b"
    founder.items.append(item)
    service: Any = SimpleNamespace(member=member, founder=founder)

    async def fails(place: Place, service: Service) -> Mapping[str, Any]:
        raise JournalError("its disk is full.")

    async def go() -> None:
        halted = asyncio.Event()
        member.systems, member.changed = replace(member.systems, run=fails), halted.set  # type: ignore[method-assign]
        member.log = lambda event, **fields: events.append((event, fields))
        await tell(member, federation, (signed, PROPOSED))
        await tell(member, federation, (signed, STARTED))
        await asyncio.wait_for(halted.wait(), 60)
        (part,) = member.parts.values()
        assert part.task is not None
        part.task.cancel()  # it would be tried again
        sheet = Sheet((Line(signed, STARTED, {}),), federation.revoked)
        founder.take("clinic-b", await member.take(sheet))
        assert founder.shown(item, {})["waiting"] == {
            "clinic-b": "its part stands still: its disk is full."
        }
        assert not care._health(service)["healthy"]
        halted.clear()
        member._began(part, Stoppable(), Deployment(Leaf("clinic-b"), Vocabulary(()), {}))  # type: ignore[arg-type]
        assert halted.is_set()
        member.parties.clear()
        founder.take("clinic-b", await member.take(sheet))
        assert founder.shown(item, {})["waiting"] == {}  # nor for one that was expelled
        assert care._health(service)["healthy"]

    asyncio.run(go())
    assert ("stopped", {"run": "halted", "why": "its disk is full."}) in events
    stream = io.StringIO()
    log = json_log("clinic-b", stream, least="warning")
    for event, fields in [
        ("stopped", {}),
        ("accepted", {}),
        *events,
        ("not renewed", {}),
        ("sheet refused", {}),
    ]:
        log(event, **fields)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("stopped", "error"),
        ("not renewed", "warning"),
        ("sheet refused", "warning"),
    ]


def test_a_part_that_is_dropped_while_it_stands_still_is_not_tried_again(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posse.runtime.federation.member._RETRY", 0.001)
    member, signed, tries = federation.member("dropped"), federation.propose("dropped-late", 9), []

    async def fails(place: Place, service: Service) -> Mapping[str, Any]:
        tries.append(place.run)
        if len(tries) == 3:
            next(iter(member.parts.values())).state = DROPPED
        raise JournalError("its disk is full.")

    async def go() -> None:
        member.systems = replace(member.systems, run=fails)
        await tell(member, federation, (signed, PROPOSED))
        await tell(member, federation, (signed, STARTED))
        (part,) = member.parts.values()
        assert part.task is not None
        await asyncio.wait_for(part.task, 60)

    asyncio.run(go())
    assert len(tries) == 3


def test_a_member_in_a_run_does_not_leave(federation: Federation) -> None:
    founder = Founder(federation.member("leaves"), federation.authority, lambda _: None)
    founder.items.append(
        Item(0, federation.propose("long", 9), {"clinic-b": "owner"}, (), STARTED, began=True)
    )
    with pytest.raises(ConfigError, match="'clinic-b' is in a run"):
        founder.leave("clinic-b")
    assert "clinic-b" in founder.members()


def test_a_founder_that_starts_reads_its_queue_and_drops_runs_of_who_was_revoked(
    tmp_path: Path,
) -> None:
    federation = Federation(tmp_path)
    values = {
        "identity": "customer",
        "authority": "authority",
        "listen": "127.0.0.1:0",
        "runs": "founder",
    }
    path = write_party(tmp_path / "customer.toml", values)
    federation.authority.revoke("clinic-b")

    async def go(member: str, work: Callable[[Living], Coroutine[Any, Any, None]]) -> Item:
        service = Living(path, federation.systems(), lambda *_, **__: None)
        assert service.founder is not None
        item = Item(1, federation.propose(f"of-{member}", 9), {member: "owner"}, (), PROPOSED)
        service.founder.items.append(item)
        working = asyncio.create_task(work(service))
        async with asyncio.timeout(60):
            while item.phase != DROPPED:
                await asyncio.sleep(0.005)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        service.member.close()
        return item

    assert asyncio.run(go("clinic-b", Living._look)).text == "clinic-b is no member any more"
    assert asyncio.run(go("customer", Living.run)).text.startswith("customer refused: ")


def test_a_run_of_another_member_is_answered_like_one_that_is_not_there(tmp_path: Path) -> None:
    """Who proposed nothing of that name learns neither that there is such a run nor drops it."""
    federation = Federation(tmp_path)
    values = {
        "identity": "customer",
        "authority": "authority",
        "listen": "127.0.0.1:0",
        "runs": "founder",
    }
    path = write_party(tmp_path / "customer.toml", values)

    async def answers() -> list[Shown]:
        service = Living(path, federation.systems(), lambda *_, **__: None)
        founder = service.founder
        assert founder is not None
        signed = federation.propose("march", 9)
        founder.items.append(Item(1, signed, {"clinic-b": "owner"}, (), proposer="clinic-c"))
        made = [
            service._answer(founder, who, Wanted(run, drop))
            for who, run, drop in (
                ("clinic-c", "march", False),
                ("clinic-b", "march", False),
                ("clinic-b", "march", True),
                ("clinic-b", "never", False),
            )
        ]
        assert founder.items[0].phase == QUEUED
        service.member.close()
        return made

    own, other, dropped, absent = asyncio.run(answers())
    assert (json.loads(own.state)["run"], own.reason) == ("march", "")
    assert (other, dropped) == (absent_of("march", absent), absent_of("march", absent))


def absent_of(run: str, answer: Shown) -> Shown:
    """The answer about a run that is not there, as it is about another name."""
    return Shown(run, answer.state, answer.reason.replace(answer.run, run))


def test_a_founder_signs_no_new_key_of_a_member_in_a_run(tmp_path: Path) -> None:
    """The parties of the run know the old key, whatever the member asks for."""
    federation = Federation(tmp_path)
    founder = Founder(federation.member("renewing"), federation.authority, lambda _: None)
    identity = PartyIdentity.load(tmp_path / "clinic-b")
    shown = identity.certificate.public_bytes(Encoding.DER)
    item = Item(1, federation.propose("march", 9), {"clinic-b": "owner"}, (), STARTED)
    founder.items.append(item)
    with pytest.raises(CertificateError) as refused:
        founder.renew("clinic-b", shown, identity.request(new_key=True))
    assert refused.value.reason == "in-run"
    assert founder.renew("clinic-b", shown, identity.request())
    item.phase = OVER
    assert founder.renew("clinic-b", shown, identity.request(new_key=True))


def test_a_party_hangs_up_on_a_peer_whose_certificate_was_revoked(tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    member = federation.member("revoking")
    ended: list[str] = []

    def connection(name: str) -> SimpleNamespace:
        shown = PartyIdentity.load(tmp_path / name).certificate.public_bytes(Encoding.DER)
        return SimpleNamespace(certificate=shown, hang_up=lambda why: ended.append(name))

    federation.enrolled("owner", "clinic-c")
    connections = {name: connection(name) for name in ("customer", "clinic-c")}
    member.parties["march"] = SimpleNamespace(connections=connections)  # type: ignore[assignment]
    federation.authority.revoke("clinic-c")
    member.cut_revoked()
    assert ended == []  # the list is not here yet
    member.adopt(federation.authority.current_crl().public_bytes(Encoding.DER))
    member.cut_revoked()
    assert ended == ["clinic-c"]


def test_a_restored_founder_says_nothing_of_runs_before_its_queue_is_complete(
    tmp_path: Path,
) -> None:
    federation = Federation(tmp_path)
    values = {
        "identity": "customer",
        "authority": "authority",
        "listen": "127.0.0.1:0",
        "runs": "founder",
    }
    path = write_party(tmp_path / "customer.toml", values)
    Member(path, federation.systems(), lambda *_, **__: None).close()
    care.backup(path, tmp_path / "backup")
    shutil.rmtree(tmp_path / "authority")
    shutil.rmtree(tmp_path / "founder")
    care.restore(tmp_path / "backup", path)

    async def answers() -> tuple[list[object], list[object]]:
        service = Living(path, federation.systems(), lambda *_, **__: None)
        sent: list[object] = []
        service.control.connections["clinic-b"] = SimpleNamespace()  # type: ignore[assignment]
        service.control.send = lambda peer, message: sent.append(message) or True  # type: ignore[method-assign, func-returns-value]
        service._take("clinic-b", Recall())
        before = list(sent)
        service._complete()
        service.member.close()
        return before, sent

    assert asyncio.run(answers()) == ([], [Recalled(())])


def test_a_second_hello_ends_a_control_connection() -> None:
    async def go() -> None:
        control = Control(
            "hospitals", "customer", lambda _: ("owner", "clinic-b"), print, print, print
        )
        connection = Connection(control)
        connection.peer, control.connections["clinic-b"] = "clinic-b", connection
        control.frame(connection, Kept(0))
        with pytest.raises(WireError, match="must come once"):
            control.frame(connection, control.greeting("clinic-b"))

    asyncio.run(go())


def test_a_short_certificate_is_renewed_in_its_last_third(federation: Federation) -> None:
    now = federation.authority.now()
    made = making.party_certificate(
        federation.authority.certificate,
        federation.authority.key,
        federation.customer.key.public_key(),
        federation.customer.peer,
        (),
        now,
        6 / 24,
    )
    due = [making.renewal_due(made, 30, now + timedelta(hours=hours)) for hours in (0, 3.9, 4.1)]
    assert due == [False, False, True]


@pytest.mark.parametrize("times", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_what_is_altered_on_a_control_connection_is_no_proposal(
    federation: Federation, times: int
) -> None:
    """Every kind of message with bytes changed or cut: it does not decode, or what was signed does
    not verify.
    """
    rng, good, identity = random.Random(3), federation.propose("fuzz", 9), federation.customer
    told = [
        Sheet(
            (Line(good, PROPOSED, {"controller": "127.0.0.1:1"}, (), {"customer": b"c"}),),
            federation.revoked,
        ),
        Report("127.0.0.1:1", (Entry(good.digest, ACCEPTED),)),
        Renew(b"csr"),
        Renewed(b"der"),
        Leave(),
        Left("no"),
        Propose(good),
        Wanted("fuzz", True),
        Shown("fuzz", "{}"),
        Recall(),
        Recalled((Past("fuzz", good.digest, OVER, Demand("toy", "strict", "ucb", 9)),)),
    ]
    bodies, largest = [encode(each) for each in told], 0
    for number in range(times):
        if number == times // 10:
            largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        body = bytearray(bodies[number % len(bodies)])
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(body) + 1)
            body[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        try:
            made = decode(bytes(body))
        except WireError:
            continue
        carried = [made.signed] if isinstance(made, Propose) else []
        carried += [line.signed for line in made.lines] if isinstance(made, Sheet) else []
        for signed in carried:
            if signed != good:
                with pytest.raises((PosseError, ValueError)):
                    signed.check(identity, utc_now())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - largest < 50 << 10


@pytest.mark.parametrize(
    "value", ["../x", "/etc/passwd", "~root", "a\\b", {"deep": [{"er": "x/y.csv"}]}]
)
def test_settings_name_no_file(value: object) -> None:
    with pytest.raises(ConfigError, match="names a file"):
        check_portable({"data": value})


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_what_does_not_decode_on_a_control_connection_is_refused(data: bytes) -> None:
    for read in (decode, lambda body: Signed(body, b"", b"").proposal):
        with contextlib.suppress(WireError, PosseError):
            read(data)
