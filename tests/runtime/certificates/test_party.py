"""The party's folder: what an enrolment writes, keeps, refuses, and how it goes on after being cut
short.
"""

from __future__ import annotations

import stat
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core.errors import CertificateError, DataError, EnrolmentError
from posse.runtime.certificates import enrolment, making
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.identity import PartyIdentity
from posse.runtime.certificates.tokens import Answer, Token, read_answer, read_request, sealed
from tests.kit.certificates import RUN, START, Clock, issue


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_it_writes(desk: Desk, token: Token, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    request = enrolment.prepare(token, folder, START)
    assert mode(folder) == 0o700
    assert {path.name: mode(path) for path in folder.iterdir()} == {
        "party.key": 0o600,
        "enrol.request": 0o600,
    }
    enrolled = enrolment.complete(token, folder, desk.answer(request).data, START)
    assert {path.name: mode(path) for path in folder.iterdir()} == {
        "party.key": 0o600,
        "party.crt": 0o644,
        "ca.crt": 0o644,
        "crl.pem": 0o644,
    }
    assert enrolled.peer == token.peer
    assert enrolled.authority_fingerprint == desk.authority.fingerprint
    assert PartyIdentity.load(folder, now=lambda: START).name == "clinic-b"


def test_the_private_key_is_in_no_message(desk: Desk, token: Token, tmp_path: Path) -> None:
    request = enrolment.prepare(token, tmp_path / "b", START)
    key = enrolment.load_key(tmp_path / "b" / "party.key")
    secret = key.private_numbers().private_value.to_bytes(32, "big")
    assert secret not in request + desk.answer(request).data
    assert secret not in (desk.authority.register.path).read_bytes()


def test_it_goes_on_with_the_same_bytes(desk: Desk, token: Token, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    first = enrolment.prepare(token, folder, START)
    desk.answer(first)
    again = enrolment.prepare(token, folder, START)
    assert again == first
    enrolment.complete(token, folder, desk.answer(again).data, START)


def test_a_new_token_in_the_same_folder_keeps_the_key(
    authority: Authority, desk: Desk, tmp_path: Path
) -> None:
    folder = tmp_path / "b"
    first, second = authority.token("owner", "clinic-b"), authority.token("owner", "clinic-b")
    enrolment.prepare(first, folder, START)
    key = (folder / "party.key").read_bytes()
    request = enrolment.prepare(second, folder, START)
    assert (folder / "party.key").read_bytes() == key
    with pytest.raises(EnrolmentError, match="was made with another token"):
        enrolment.complete(first, folder, b"", START)
    enrolment.complete(second, folder, desk.answer(request).data, START)


def test_an_identity_is_never_overwritten(
    authority: Authority, desk: Desk, token: Token, tmp_path: Path
) -> None:
    folder = tmp_path / "b"
    answer = desk.answer(enrolment.prepare(token, folder, START)).data
    enrolment.complete(token, folder, answer, START)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for again in (
        lambda: enrolment.prepare(authority.token("owner", "clinic-b"), folder, START),
        lambda: enrolment.complete(token, folder, answer, START),
    ):
        with pytest.raises(DataError, match="holds an identity already"):
            again()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_expired_token_draws_no_key(token: Token, tmp_path: Path) -> None:
    with pytest.raises(EnrolmentError, match="expired at"):
        enrolment.prepare(token, tmp_path / "b", token.expires)
    assert not (tmp_path / "b").exists()


def test_an_answer_before_a_request(token: Token, tmp_path: Path) -> None:
    with pytest.raises(EnrolmentError, match="no request was made in"):
        enrolment.complete(token, tmp_path / "b", b"", START)


def test_a_folder_or_key_that_others_could_have_made(token: Token, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(CertificateError, match="can be written by others"):
        enrolment.prepare(token, folder, START)
    folder.chmod(0o700)
    enrolment.prepare(token, folder, START)
    (folder / "party.key").chmod(0o644)
    with pytest.raises(CertificateError, match=r"can be used by others \(mode 644\)"):
        enrolment.prepare(token, folder, START)


def test_a_damaged_request_is_made_again(desk: Desk, token: Token, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    enrolment.prepare(token, folder, START)
    (folder / "enrol.request").write_bytes(b"cut sh")
    enrolment.complete(
        token, folder, desk.answer(enrolment.prepare(token, folder, START)).data, START
    )


def answered(desk: Desk, token: Token, folder: Path) -> Answer:
    request = enrolment.prepare(token, folder, START)
    return read_answer(token, request, desk.answer(request).data)


def refused(token: Token, folder: Path, answer: Answer, now: object = START) -> str:
    """What a party says to an answer that has a right tag and a wrong content."""
    with pytest.raises(EnrolmentError) as caught:
        enrolment.complete(token, folder, sealed(answer, token.key("answer")), now)  # type: ignore[arg-type]
    assert not (folder / "party.crt").exists()
    assert not (folder / "ca.crt").exists()
    return str(caught.value.reason)


def test_answers_whose_tag_is_right_and_content_wrong(
    authority: Authority, desk: Desk, token: Token, tmp_path: Path, clock: Clock
) -> None:
    """Who stole the authority's database has the tag's key, and gets no further."""
    folder = tmp_path / "b"
    true = answered(desk, token, folder)
    change = msgspec.structs.replace
    other = Authority.init(tmp_path / "other", "acme", RUN, now=clock)
    key = enrolment.load_key(folder / "party.key")
    foreign = issue(other, "owner", "clinic-b", key).public_bytes(Encoding.DER)
    foreign_ca = other.certificate.public_bytes(Encoding.DER)
    foreign_crl = other.current_crl().public_bytes(Encoding.DER)
    assert refused(token, folder, change(true, authority=foreign_ca)) == "wrong-authority"
    assert refused(token, folder, change(true, certificate=foreign)) == "wrong-authority"
    assert refused(token, folder, change(true, revoked=foreign_crl)) == "wrong-authority"
    all_foreign = change(true, certificate=foreign, authority=foreign_ca, revoked=foreign_crl)
    assert refused(token, folder, all_foreign) == "wrong-authority"
    not_an_authority = change(true, authority=true.certificate)
    assert refused(token, folder, not_an_authority) == "wrong-authority"
    strange_key = issue(authority, "owner", "clinic-b")
    assert (
        refused(token, folder, change(true, certificate=strange_key.public_bytes(Encoding.DER)))
        == "other-key"
    )
    assert refused(token, folder, change(true, serial="0")) == "malformed"
    assert refused(token, folder, change(true, certificate=b"junk")) == "malformed"
    assert refused(token, folder, change(true, nonce=bytes(32))) == "other-request"
    assert refused(token, folder, true, START + timedelta(days=91)) == "expired"
    assert refused(token, folder, true, START - timedelta(days=2)) == "not-yet-valid"
    enrolment.complete(token, folder, sealed(true, token.key("answer")), START)


@pytest.mark.parametrize(("role", "name"), [("comp", "comp"), ("owner", "clinic-c")])
def test_an_answer_for_another_party(
    desk: Desk, token: Token, tmp_path: Path, role: str, name: str
) -> None:
    folder = tmp_path / "b"
    true = answered(desk, token, folder)
    authority = desk.authority
    public = making.requested_key(read_request((folder / "enrol.request").read_bytes()).csr)
    peer = enrolment.Peer(RUN, role, name)
    other = making.party_certificate(
        authority.certificate, authority.key, public, peer, (), START, 90
    )
    wrong = msgspec.structs.replace(true, certificate=other.public_bytes(Encoding.DER))
    assert refused(token, folder, wrong) == "other"


def test_an_answer_for_another_run(desk: Desk, token: Token, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    true = answered(desk, token, folder)
    authority = desk.authority
    key = enrolment.load_key(folder / "party.key")
    peer = enrolment.Peer("trial-8", "owner", "clinic-b")
    other = making.party_certificate(
        authority.certificate, authority.key, key.public_key(), peer, (), START, 90
    )
    wrong = msgspec.structs.replace(true, certificate=other.public_bytes(Encoding.DER))
    assert refused(token, folder, wrong) == "other-run"


def test_a_token_with_another_fingerprint(
    authority: Authority, desk: Desk, token: Token, tmp_path: Path
) -> None:
    wrong = msgspec.structs.replace(token, fingerprint=bytes(32))
    answer = desk.answer(enrolment.prepare(wrong, tmp_path / "b", START)).data
    with pytest.raises(EnrolmentError, match="the token says 0000-0000") as caught:
        enrolment.complete(wrong, tmp_path / "b", answer, START)
    assert caught.value.reason == "wrong-authority"


def test_its_certificate_is_for_its_key(desk: Desk, token: Token, tmp_path: Path) -> None:
    true = answered(desk, token, tmp_path / "b")
    certificate = x509.load_der_x509_certificate(true.certificate)
    assert certificate.public_key() == enrolment.load_key(tmp_path / "b" / "party.key").public_key()
