"""Requests, answers and refusals: altered, replayed, repeated, forged."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posse.core.errors import EnrolmentError
from posse.runtime.certificates import making, tokens
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.names import Peer
from posse.runtime.certificates.tokens import (
    NO_TAG,
    TAG,
    Answer,
    Refused,
    Request,
    Token,
    read_answer,
    read_request,
    sealed,
)
from tests.kit.certificates import RUN, Clock, request_for

FUZZ = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def refusal(token: Token, request: bytes, reply: bytes) -> EnrolmentError:
    with pytest.raises(EnrolmentError) as caught:
        read_answer(token, request, reply)
    return caught.value


def test_a_request_is_granted_for_the_tokens_party(desk: Desk, token: Token) -> None:
    request = request_for(token)
    reply = desk.answer(request)
    assert (reply.peer, reply.reason, reply.repeated) == (Peer(RUN, "owner", "clinic-b"), "", False)
    assert read_answer(token, request, reply.data).serial == reply.serial
    ((row,), (certificate,)) = desk.authority.list()
    assert (row.state, row.serial, certificate.name) == ("used", certificate.serial, "clinic-b")


def test_the_secret_never_travels(desk: Desk, token: Token, authority: Authority) -> None:
    request = request_for(token)
    reply = desk.answer(request)
    for secret in (token.secret, token.key("request"), token.key("answer"), token.key("refusal")):
        assert secret not in request + reply.data
    assert token.secret not in authority.register.path.read_bytes()


def test_the_keys_of_a_token_are_deleted_when_it_is_used(
    desk: Desk, token: Token, authority: Authority
) -> None:
    path = authority.register.path
    assert token.key("request") in path.read_bytes()
    desk.answer(request_for(token))
    stored = path.read_bytes()
    assert token.key("request") not in stored
    assert token.key("answer") not in stored


def test_the_keys_of_a_token_are_deleted_when_it_expires(
    token: Token, authority: Authority, clock: Clock
) -> None:
    clock.turn(minutes=15)
    ((row,), _) = authority.list()
    assert row.state == "expired"
    assert token.key("request") not in authority.register.path.read_bytes()


def test_the_same_request_gets_the_same_answer_while_the_token_lasts(
    desk: Desk, token: Token, clock: Clock
) -> None:
    request = request_for(token)
    first = desk.answer(request)
    clock.turn(minutes=14, seconds=59)
    again = desk.answer(request)
    assert again.data == first.data
    assert again.repeated
    assert len(desk.authority.list()[1]) == 1
    clock.turn(seconds=1)
    late = desk.answer(request)
    assert late.reason == Refused.EXPIRED
    assert refusal(token, request, late.data).reason == Refused.EXPIRED


def test_a_used_token_with_another_key_is_refused_and_counted(desk: Desk, token: Token) -> None:
    desk.answer(request_for(token))
    second = request_for(token)
    reply = desk.answer(second)
    error = refusal(token, second, reply.data)
    assert error.reason == Refused.USED
    assert "tell the customer at once" in str(error)
    assert "not authenticated" not in str(error)
    ((row,), certificates) = desk.authority.list()
    assert (row.refusals, row.last_refusal, len(certificates)) == (1, "used", 1)


def test_an_expired_token(desk: Desk, token: Token, clock: Clock) -> None:
    request = request_for(token)
    clock.turn(minutes=15)
    reply = desk.answer(request)
    error = refusal(token, request, reply.data)
    assert error.reason == Refused.EXPIRED
    assert "not authenticated" not in str(error)
    assert desk.authority.list()[1] == []


def test_a_token_works_to_its_last_second(desk: Desk, token: Token, clock: Clock) -> None:
    clock.turn(minutes=14, seconds=59)
    assert desk.answer(request_for(token)).reason == ""


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (Peer("other", "owner", "clinic-b"), Refused.OTHER_RUN),
        (Peer(RUN, "comp", "clinic-b"), Refused.OTHER_ROLE),
        (Peer(RUN, "owner", "clinic-c"), Refused.OTHER_NAME),
    ],
)
def test_a_token_for_another_run_role_or_name(
    desk: Desk, token: Token, peer: Peer, reason: Refused
) -> None:
    """Who holds a token can write another name into it, with a right checksum; the authority knows
    better.
    """
    changed = msgspec.structs.replace(token, peer=peer)
    request = request_for(changed)
    assert refusal(token, request, desk.answer(request).data).reason == reason
    assert desk.authority.list()[1] == []
    assert desk.answer(request_for(token)).reason == "", (
        "a refused request does not use the token up"
    )


def test_an_unknown_token_and_one_of_another_authority(
    desk: Desk, tmp_path: Path, clock: Clock
) -> None:
    other = Authority.init(tmp_path / "other", "other", RUN, now=clock).token("owner", "clinic-b")
    request = request_for(other)
    reply = desk.answer(request)
    assert reply.data.endswith(NO_TAG)
    error = refusal(other, request, reply.data)
    assert error.reason == Refused.UNKNOWN
    assert "not authenticated" in str(error)


def test_a_request_with_another_secret(desk: Desk, token: Token) -> None:
    forged = msgspec.structs.replace(token, secret=bytes(32))
    request = request_for(forged)
    assert desk.answer(request).reason == Refused.ALTERED
    assert desk.authority.list()[1] == []


def test_an_altered_request_is_refused_at_every_byte(desk: Desk, token: Token) -> None:
    request = request_for(token)
    for i in range(len(request)):
        reply = desk.answer(request[:i] + bytes([request[i] ^ 1]) + request[i + 1 :])
        assert reply.reason in (
            Refused.ALTERED,
            Refused.MALFORMED,
            Refused.UNKNOWN,
            Refused.VERSION,
        ), i
    assert desk.authority.list()[1] == []
    assert desk.answer(request).reason == ""


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> tuple[Token, bytes, bytes]:
    authority = Authority.init(tmp_path_factory.mktemp("exchange") / "ca", "acme", RUN, now=Clock())
    token = authority.token("owner", "clinic-b")
    request = request_for(token)
    return token, request, Desk(authority).answer(request).data


def test_an_altered_answer_is_refused_at_every_byte(exchange: tuple[Token, bytes, bytes]) -> None:
    token, request, answer = exchange
    read_answer(token, request, answer)
    for i in range(len(answer)):
        changed = answer[:i] + bytes([answer[i] ^ 0x40]) + answer[i + 1 :]
        assert refusal(token, request, changed).reason in ("altered", "malformed")


@FUZZ
@given(data=st.data())
def test_an_answer_changed_in_any_way_is_refused(
    exchange: tuple[Token, bytes, bytes], data: st.DataObject
) -> None:
    token, request, answer = exchange
    start = data.draw(st.integers(0, len(answer)))
    end = data.draw(st.integers(start, min(len(answer), start + 40)))
    changed = answer[:start] + data.draw(st.binary(max_size=40)) + answer[end:]
    if changed != answer:
        assert refusal(token, request, changed).reason in ("altered", "malformed")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, bytes]:
    authority = Authority.init(tmp_path_factory.mktemp("asked") / "ca", "acme", RUN, now=Clock())
    return Desk(authority), request_for(authority.token("owner", "clinic-b"))


@FUZZ
@given(data=st.data())
def test_a_request_changed_in_any_way_is_refused(
    asked: tuple[Desk, bytes], data: st.DataObject
) -> None:
    desk, request = asked
    start = data.draw(st.integers(0, len(request)))
    end = data.draw(st.integers(start, min(len(request), start + 40)))
    changed = request[:start] + data.draw(st.binary(max_size=40)) + request[end:]
    if changed != request:
        assert desk.answer(changed).reason


@FUZZ
@given(st.binary(max_size=400))
def test_decoders_take_any_bytes(exchange: tuple[Token, bytes, bytes], data: bytes) -> None:
    token, request, _ = exchange
    with pytest.raises(EnrolmentError):
        read_request(data)
    assert refusal(token, request, data).reason == "malformed"


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.binary(max_size=20)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@FUZZ
@given(st.lists(ANYTHING, max_size=8), st.sampled_from(["request", "answer", "refusal"]))
def test_decoders_take_any_structure(
    exchange: tuple[Token, bytes, bytes], fields: list[object], kind: str
) -> None:
    token, request, _ = exchange
    data = msgspec.msgpack.encode([f"posse enrol {kind}", *fields]) + bytes(TAG)
    with pytest.raises(EnrolmentError):
        read_request(data)
    refusal(token, request, data)


def test_deep_nesting_is_malformed(desk: Desk) -> None:
    assert desk.answer(b"\x91" * 60_000 + bytes(TAG)).reason == Refused.MALFORMED
    assert desk.answer(b"\x91" * 70_000).reason == Refused.MALFORMED


def test_an_answer_to_another_request_of_the_same_token(desk: Desk, token: Token) -> None:
    mine, other = request_for(token), request_for(token)
    error = refusal(token, mine, desk.answer(other).data)
    assert error.reason == "other-request"


def test_a_request_is_no_answer_and_an_answer_under_the_request_key_none(
    exchange: tuple[Token, bytes, bytes],
) -> None:
    token, request, answer = exchange
    assert refusal(token, request, request).reason == "malformed"
    opened = read_answer(token, request, answer)
    for key in (token.key("request"), token.key("refusal"), None):
        assert refusal(token, request, sealed(opened, key)).reason == "altered"


def test_a_refusal_cannot_be_forged_or_replayed(desk: Desk, token: Token, clock: Clock) -> None:
    first, second = request_for(token), request_for(token)
    clock.turn(minutes=15)
    true = desk.answer(first).data
    assert "not authenticated" not in str(refusal(token, first, true))
    assert "not authenticated" in str(refusal(token, second, true)), "a refusal of another request"
    for i in range(len(true) - TAG, len(true)):
        assert "not authenticated" in str(
            refusal(token, first, true[:i] + bytes([true[i] ^ 1]) + true[i + 1 :])
        )
    forged = sealed(tokens.Refusal(1, read_request(first).nonce, "used"), token.key("answer"))
    assert "not authenticated" in str(refusal(token, first, forged))


def test_a_refusal_of_a_later_version(token: Token) -> None:
    request = request_for(token)
    later = sealed(
        tokens.Refusal(1, read_request(request).nonce, "full-moon"), token.key("refusal")
    )
    assert refusal(token, request, later).reason == "version"


def test_a_request_of_a_later_version(desk: Desk, token: Token) -> None:
    request = Request(2, token.id, b"", bytes(32), RUN, "owner", "clinic-b")
    assert desk.answer(sealed(request, token.key("request"))).reason == Refused.VERSION


def csr_with(key: object, signer: object | None = None) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "comp")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)  # type: ignore[arg-type]


def test_keys_that_are_not_proved_or_not_on_the_curve(desk: Desk, token: Token) -> None:
    sound = making.signing_request(making.new_key())
    unproved = sound[:-1] + bytes([sound[-1] ^ 1])
    other_curve = csr_with(ec.generate_private_key(ec.SECP384R1()))
    for csr in (b"", b"junk", unproved, other_curve, sound + b"\0"):
        request = tokens.make_request(token, csr)
        assert refusal(token, request, desk.answer(request).data).reason == Refused.BAD_KEY
    assert desk.answer(tokens.make_request(token, sound)).reason == ""


def test_the_subject_of_a_request_is_ignored(desk: Desk, token: Token) -> None:
    request = tokens.make_request(token, csr_with(making.new_key()))
    opened = read_answer(token, request, desk.answer(request).data)
    certificate = x509.load_der_x509_certificate(opened.certificate)
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "clinic-b"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == [f"posse://{RUN}/owner/clinic-b"]


def test_a_key_has_one_holder(desk: Desk, authority: Authority, token: Token) -> None:
    csr = making.signing_request(making.new_key())
    assert desk.answer(tokens.make_request(token, csr)).reason == ""
    other = authority.token("owner", "clinic-c")
    assert desk.answer(tokens.make_request(other, csr)).reason == Refused.KEY_IN_USE
    own = tokens.make_request(other, making.signing_request(authority.key))
    assert desk.answer(own).reason == Refused.KEY_IN_USE
    renewed = authority.token("owner", "clinic-b")
    assert desk.answer(tokens.make_request(renewed, csr)).reason == ""


def test_of_many_at_once_with_one_token_exactly_one_wins(desk: Desk, token: Token) -> None:
    requests_ = [request_for(token) for _ in range(8)]
    replies: list[str] = []
    start = threading.Barrier(len(requests_))

    def enrol(request: bytes) -> None:
        start.wait()
        replies.append(desk.answer(request).reason)

    threads = [threading.Thread(target=enrol, args=(request,)) for request in requests_]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(replies) == ["", *["used"] * 7]
    ((row,), certificates) = desk.authority.list()
    assert (len(certificates), row.refusals) == (1, 7)


def test_a_withdrawn_token_and_a_revoked_repeat(
    desk: Desk, authority: Authority, token: Token
) -> None:
    authority.revoke("clinic-b")
    request = request_for(token)
    assert refusal(token, request, desk.answer(request).data).reason == Refused.WITHDRAWN
    second = authority.token("owner", "clinic-b")
    request = request_for(second)
    assert desk.answer(request).reason == ""
    authority.revoke("clinic-b")
    assert desk.answer(request).reason == Refused.WITHDRAWN


def test_a_failing_signature_records_nothing(
    desk: Desk, authority: Authority, token: Token, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (authority.folder / "crl.pem").write_bytes(b"damaged")
    request = request_for(token)
    assert refusal(token, request, desk.answer(request).data).reason == Refused.FAILED
    assert authority.list()[1] == []
    authority.crl()
    assert desk.answer(request).reason == ""


def test_an_answer_of_another_version(exchange: tuple[Token, bytes, bytes]) -> None:
    token, request, answer = exchange
    opened = read_answer(token, request, answer)
    later = msgspec.structs.replace(opened, version=2)
    assert isinstance(later, Answer)
    assert refusal(token, request, sealed(later, token.key("answer"))).reason == "other-request"
