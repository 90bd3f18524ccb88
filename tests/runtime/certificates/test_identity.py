"""Whose certificate counts: every way in which one does not, with its reason."""

from __future__ import annotations

import asyncio
import pickle
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import CertificateError, ConfigError
from posse.privacy.crypto.keys import Identity, verify
from posse.runtime.certificates import enrolment, making
from posse.runtime.certificates.authority import Authority, Desk, utc_now
from posse.runtime.certificates.identity import (
    ALPN,
    PartyIdentity,
    Peer,
    Reason,
    crl_number,
    peer_of,
    ssl_contexts,
)
from tests.kit.certificates import RUN, START, Clock, issue


def enrolled(
    authority: Authority, folder: Path, role: str = "owner", name: str = "clinic-b"
) -> Path:
    token = authority.token(role, name)
    answer = Desk(authority).answer(enrolment.prepare(token, folder, authority.now())).data
    enrolment.complete(token, folder, answer, authority.now())
    return folder


def issued(authority: Authority, role: str = "owner", name: str = "clinic-b") -> bytes:
    return issue(authority, role, name).public_bytes(Encoding.DER)


def reason(
    authority: Authority, der: bytes | None, *, run: str = RUN, now: datetime = START
) -> str:
    with pytest.raises(CertificateError) as caught:
        peer_of(der, authority.certificate, authority.current_crl(), run, now)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return str(caught.value.reason)


def handmade(
    authority: Authority,
    uris: tuple[str, ...] = (f"posse://{RUN}/owner/x",),
    *,
    signer: ec.EllipticCurvePrivateKey | None = None,
    key: Any = None,
    ca: bool = False,
    usages: tuple[x509.ObjectIdentifier, ...] = (
        ExtendedKeyUsageOID.CLIENT_AUTH,
        ExtendedKeyUsageOID.SERVER_AUTH,
    ),
    digest: Any = None,
    strange: bool = False,
    bare: bool = False,
    days: int = 1,
) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(authority.certificate.subject)
        .issuer_name(authority.certificate.subject)
        .public_key((key or making.new_key()).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START - timedelta(days=1))
        .not_valid_after(START + timedelta(days=days))
    )
    if not bare:
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(making._usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        names = [x509.UniformResourceIdentifier(uri) for uri in uris] or [
            x509.DNSName("x.example.org")
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if strange:
        odd = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")
        builder = builder.add_extension(odd, critical=True)
    return builder.sign(signer or authority.key, digest or hashes.SHA256()).public_bytes(
        Encoding.DER
    )


def test_a_certificate_names_its_party(authority: Authority) -> None:
    der = issued(authority)
    peer = peer_of(der, authority.certificate, authority.current_crl(), RUN, START)
    assert peer == Peer(RUN, "owner", "clinic-b")
    assert peer.public == making.public_key(x509.load_der_x509_certificate(der)).public_bytes(
        Encoding.X962, making.PublicFormat.CompressedPoint
    )
    assert (
        peer_of(
            handmade(authority), authority.certificate, authority.current_crl(), RUN, START
        ).name
        == "x"
    )


def test_expired_and_not_yet_valid(authority: Authority) -> None:
    der = issued(authority)
    assert reason(authority, der, now=START + timedelta(days=90)) == Reason.EXPIRED
    assert (
        reason(authority, der, now=START - making.SKEW - timedelta(minutes=1))
        == Reason.NOT_YET_VALID
    )
    peer_of(der, authority.certificate, authority.current_crl(), RUN, START - making.SKEW)
    peer_of(
        der,
        authority.certificate,
        authority.current_crl(),
        RUN,
        START + timedelta(days=89, hours=23),
    )


def test_revoked(authority: Authority) -> None:
    der, other = issued(authority), issued(authority, name="clinic-c")
    authority.revoke("clinic-b")
    assert reason(authority, der) == Reason.REVOKED
    assert (
        peer_of(other, authority.certificate, authority.current_crl(), RUN, START).name
        == "clinic-c"
    )


def test_of_another_authority_with_the_same_name_and_run(
    authority: Authority, tmp_path: Path, clock: Clock
) -> None:
    other = Authority.init(tmp_path / "other", "acme", RUN, now=clock)
    assert other.certificate.subject == authority.certificate.subject
    assert reason(authority, issued(other)) == Reason.WRONG_AUTHORITY


def test_signed_by_itself_by_a_party_or_by_nobody(authority: Authority) -> None:
    own = making.new_key()
    assert reason(authority, handmade(authority, signer=own, key=own)) == Reason.WRONG_AUTHORITY
    assert reason(authority, handmade(authority, signer=making.new_key())) == Reason.WRONG_AUTHORITY
    der = issued(authority)
    assert reason(authority, der[:-1] + bytes([der[-1] ^ 1])) == Reason.WRONG_AUTHORITY


def test_of_another_run(authority: Authority) -> None:
    assert reason(authority, issued(authority), run="trial-8") == Reason.OTHER_RUN


def test_without_a_role(authority: Authority) -> None:
    assert reason(authority, handmade(authority, ())) == Reason.NO_ROLE
    assert reason(authority, handmade(authority, bare=True)) == Reason.NO_ROLE
    assert (
        reason(authority, handmade(authority, ("https://example.org/owner/x",))) == Reason.NO_ROLE
    )
    assert reason(authority, authority.certificate.public_bytes(Encoding.DER)) == Reason.NO_ROLE
    desk = making.desk_certificate(
        authority.certificate, authority.key, making.new_key().public_key(), START
    )
    assert reason(authority, desk.public_bytes(Encoding.DER)) == Reason.NO_ROLE


def test_malformed(authority: Authority) -> None:
    for der in (None, b"", b"junk", issued(authority)[:-1], issued(authority) + b"\0"):
        assert reason(authority, der) == Reason.MALFORMED
    uri = f"posse://{RUN}/owner/x"
    for uris in (
        (uri, f"posse://{RUN}/comp/comp"),
        (f"{uri}/",),
        (f"posse://{RUN}/owner",),
        (f"{uri}%2f",),
        (uri, uri),
    ):
        assert reason(authority, handmade(authority, uris)) == Reason.MALFORMED
    assert reason(authority, handmade(authority, ca=True)) == Reason.MALFORMED
    assert (
        reason(authority, handmade(authority, usages=(ExtendedKeyUsageOID.SERVER_AUTH,)))
        == Reason.MALFORMED
    )
    assert (
        reason(authority, handmade(authority, key=ec.generate_private_key(ec.SECP384R1())))
        == Reason.MALFORMED
    )
    assert (
        reason(authority, handmade(authority, key=rsa.generate_private_key(65537, 2048)))
        == Reason.MALFORMED
    )
    assert reason(authority, handmade(authority, digest=hashes.SHA512())) == Reason.MALFORMED
    assert reason(authority, handmade(authority, strange=True)) == Reason.MALFORMED


def test_a_list_of_another_authority(authority: Authority, tmp_path: Path, clock: Clock) -> None:
    other = Authority.init(tmp_path / "other", "acme", RUN, now=clock)
    with pytest.raises(
        CertificateError, match="the revocation list is not signed by this run's authority"
    ):
        peer_of(issued(authority), authority.certificate, other.current_crl(), RUN, START)


def test_an_expired_authority(authority: Authority, clock: Clock) -> None:
    clock.turn(days=5 * 365 - 1)
    der = issued(authority)
    assert reason(authority, der, now=clock() + timedelta(days=1)) == Reason.EXPIRED
    assert (
        reason(authority, handmade(authority, days=9999), now=clock() + timedelta(days=1))
        == Reason.EXPIRED
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, bytes]:
    authority = Authority.init(tmp_path_factory.mktemp("sound") / "ca", "acme", RUN, now=Clock())
    return authority, issued(authority)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_certificate_changed_in_any_way(
    sound: tuple[Authority, bytes], data: st.DataObject
) -> None:
    authority, der = sound
    start = data.draw(st.integers(0, len(der)))
    end = data.draw(st.integers(start, min(len(der), start + 8)))
    changed = der[:start] + data.draw(st.binary(max_size=8)) + der[end:]
    if changed != der:
        assert reason(authority, changed) in (Reason.MALFORMED, Reason.WRONG_AUTHORITY)


def test_loading_an_identity(authority: Authority, tmp_path: Path, clock: Clock) -> None:
    identity = PartyIdentity.load(enrolled(authority, tmp_path / "b"), now=clock)
    assert (identity.run, identity.role, identity.name) == (RUN, "owner", "clinic-b")
    assert "key" not in repr(identity)
    with pytest.raises(TypeError):
        pickle.dumps(identity)
    der = identity.certificate.public_bytes(Encoding.DER)
    assert identity.check(der, START) == identity.peer


def test_the_protocols_key_is_the_certificates(
    authority: Authority, tmp_path: Path, clock: Clock
) -> None:
    identity = PartyIdentity.load(enrolled(authority, tmp_path / "b"), now=clock)
    signing = identity.signing
    assert signing.public == identity.peer.public
    verify(identity.peer.public, b"join", b"data", signing.sign(b"join", b"data"))
    with pytest.raises(ConfigError, match="an identity must be a P-256 key, got one on secp384r1"):
        Identity(ec.generate_private_key(ec.SECP384R1()))


@pytest.mark.parametrize(
    ("name", "mode", "says"),
    [
        ("party.key", 0o640, "can be used by others"),
        ("party.key", 0o604, "can be used by others"),
        ("ca.crt", 0o664, "can be written by others"),
        ("crl.pem", 0o646, "can be written by others"),
    ],
)
def test_permissions_of_an_identity(
    authority: Authority, tmp_path: Path, clock: Clock, name: str, mode: int, says: str
) -> None:
    folder = enrolled(authority, tmp_path / "b")
    (folder / name).chmod(mode)
    with pytest.raises(CertificateError, match=says):
        PartyIdentity.load(folder, now=clock)


def test_parts_that_do_not_belong_together(
    authority: Authority, tmp_path: Path, clock: Clock
) -> None:
    other = Authority.init(tmp_path / "other", "acme", RUN, now=clock)
    mine, same, foreign = tmp_path / "b", tmp_path / "c", tmp_path / "d"
    enrolled(authority, mine)
    enrolled(authority, same, name="clinic-c")
    enrolled(other, foreign)

    def load_with(name: str, source: Path) -> str:
        before = (mine / name).read_bytes()
        (mine / name).write_bytes((source / name).read_bytes())
        with pytest.raises(CertificateError) as caught:
            PartyIdentity.load(mine, now=clock)
        (mine / name).write_bytes(before)
        return str(caught.value)

    assert "party.key is not the key of party.crt" in load_with("party.key", same)
    assert "not signed by this run's authority" in load_with("ca.crt", foreign)
    assert "revocation list is not signed" in load_with("crl.pem", foreign)
    PartyIdentity.load(mine, now=clock)
    (mine / "crl.pem").unlink()
    with pytest.raises(CertificateError, match=r"crl\.pem cannot be read"):
        PartyIdentity.load(mine, now=clock)
    with pytest.raises(CertificateError, match="there is no identity in"):
        PartyIdentity.load(tmp_path / "nowhere")


def test_an_identity_that_has_expired_or_was_revoked(
    authority: Authority, tmp_path: Path, clock: Clock
) -> None:
    folder = enrolled(authority, tmp_path / "b")
    with pytest.raises(CertificateError) as caught:
        PartyIdentity.load(folder, now=lambda: START + timedelta(days=91))
    assert caught.value.reason == Reason.EXPIRED
    authority.revoke("clinic-b")
    (folder / "crl.pem").write_bytes((authority.folder / "crl.pem").read_bytes())
    with pytest.raises(CertificateError) as caught:
        PartyIdentity.load(folder, now=clock)
    assert caught.value.reason == Reason.REVOKED


def test_a_newer_list_is_taken_and_an_older_one_is_not(
    authority: Authority, tmp_path: Path, clock: Clock
) -> None:
    folder = enrolled(authority, tmp_path / "b")
    identity = PartyIdentity.load(folder, now=clock)
    old, peer = (folder / "crl.pem").read_bytes(), issued(authority, name="clinic-c")
    assert identity.check(peer, START).name == "clinic-c"
    authority.revoke("clinic-c")
    (folder / "crl.pem").write_bytes((authority.folder / "crl.pem").read_bytes())
    newer = identity.with_crl()
    assert crl_number(newer.crl) == crl_number(identity.crl) + 1
    with pytest.raises(CertificateError, match=r"clinic-c.* was revoked"):
        newer.check(peer, START)
    (folder / "crl.pem").write_bytes(old)
    with pytest.raises(CertificateError, match="is number 0, number 1 was here before"):
        newer.with_crl()


@pytest.fixture
def parties(tmp_path: Path) -> tuple[PartyIdentity, PartyIdentity]:
    """Two parties of an authority of today, as TLS itself reads the clock."""
    authority = Authority.init(tmp_path / "now", "acme", RUN)
    return (
        PartyIdentity.load(enrolled(authority, tmp_path / "b")),
        PartyIdentity.load(enrolled(authority, tmp_path / "comp", "comp", "comp")),
    )


async def meet(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[Any, Any]:
    """Shake hands over loopback; what both ends know of each other."""
    seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls = writer.get_extra_info("ssl_object")
        seen.set_result(
            (tls.version(), tls.selected_alpn_protocol(), tls.getpeercert(binary_form=True))
        )
        writer.write(b"x")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server)
    try:
        async with asyncio.timeout(10):
            port = listening.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
            try:
                tls = writer.get_extra_info("ssl_object")
                # A refusal of the client's certificate shows at the first byte.
                await reader.readexactly(1)
                return await seen, (
                    tls.version(),
                    tls.selected_alpn_protocol(),
                    tls.getpeercert(binary_form=True),
                )
            finally:
                writer.transport.abort()
    finally:
        listening.close()
        await listening.wait_closed()


def test_both_ends_know_each_other(parties: tuple[PartyIdentity, PartyIdentity]) -> None:
    b, comp = parties
    at_server, at_client = asyncio.run(meet(ssl_contexts(comp)[0], ssl_contexts(b)[1]))
    assert at_server[:2] == at_client[:2] == ("TLSv1.3", ALPN[0])
    assert comp.check(at_server[2], utc_now()) == b.peer
    assert b.check(at_client[2], utc_now()) == comp.peer


def test_strangers_do_not_get_through(
    parties: tuple[PartyIdentity, PartyIdentity], tmp_path: Path
) -> None:
    b, comp = parties
    other = PartyIdentity.load(
        enrolled(Authority.init(tmp_path / "o", "acme", RUN), tmp_path / "ob")
    )
    old = ssl_contexts(b)[1]
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    careless = ssl_contexts(other)[1]
    careless.verify_mode = ssl.CERT_NONE
    for client in (ssl_contexts(other)[1], old, bare, careless):
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            asyncio.run(meet(ssl_contexts(comp)[0], client))


def test_contexts_have_no_surprises(parties: tuple[PartyIdentity, PartyIdentity]) -> None:
    for context in ssl_contexts(parties[0]):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.options & ssl.OP_NO_TICKET
    assert ssl_contexts(parties[0])[0].num_tickets == 0
    (parties[0].folder / "party.key").chmod(0o644)
    with pytest.raises(CertificateError, match="can be used by others"):
        ssl_contexts(parties[0])


def test_no_session_is_resumed(parties: tuple[PartyIdentity, PartyIdentity]) -> None:
    b, comp = parties
    server, client = ssl_contexts(comp)[0], ssl_contexts(b)[1]
    left, right = socket.socketpair()

    async def both() -> None:
        def serve() -> None:
            with server.wrap_socket(left, server_side=True) as tls:
                tls.sendall(b"x")
                tls.recv(1)

        def connect() -> bool:
            with client.wrap_socket(right) as tls:
                tls.recv(1)
                return tls.session.has_ticket if tls.session else False

        _, ticket = await asyncio.gather(asyncio.to_thread(serve), asyncio.to_thread(connect))
        assert not ticket

    asyncio.run(both())


def test_clock_of_the_library_is_utc_in_whole_seconds() -> None:
    assert utc_now().tzinfo is UTC
    assert utc_now().microsecond == 0
