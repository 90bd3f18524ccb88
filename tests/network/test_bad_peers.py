"""Who is not wanted is refused: the caller is told what it may know, the listener logs and counts
why.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from posse.runtime.certificates import making
from posse.runtime.certificates.authority import Authority, private_pem
from posse.runtime.certificates.identity import PartyIdentity, ssl_contexts
from posse.runtime.local import enrol_all
from posse.runtime.network.wire import WIRE_VERSION, Data, Hello, Reader, Refused, pack
from posse.version import PROTOCOL_VERSION
from tests.kit.certificates import issue
from tests.kit.federations import laid_out, opened, until

HELLO = {
    "wire": WIRE_VERSION,
    "posse": "0",
    "protocol": "samba",
    "protocol_version": PROTOCOL_VERSION,
    "run": "trial-1",
    "name": "clinic-1",
    "received": 0,
    "durable": 0,
}


async def call(port, context, frames=()):
    """Connect, send, and return what comes back until the other hangs up; an alert of TLS is what
    comes back too.
    """
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="" if context else None
            ),
            240,
        )
    except (ssl.SSLError, OSError) as error:
        return f"{error}"
    try:
        for frame in frames:
            writer.write(frame if isinstance(frame, bytes) else pack(frame))
        data = await asyncio.wait_for(reader.read(), 240)
        return list(Reader(1 << 20).feed(data))
    except (ssl.SSLError, OSError) as error:
        return f"{error}"
    finally:
        writer.close()
        with contextlib.suppress(ssl.SSLError, OSError):
            await writer.wait_closed()


def refusal(paths, context, frames=()):
    """Let one caller meet the controller; return what the caller saw, and what the controller
    logged and counted.
    """
    log = []

    async def meet():
        controller = opened(paths[0], log=lambda event, **fields: log.append((event, fields)))
        running = asyncio.create_task(controller.run())
        while not controller.port:
            await asyncio.sleep(0.01)
        try:
            seen = await call(controller.port, context, frames)
            await until(
                lambda: any(name.startswith("refused") for name in controller.counts)
            )  # it may learn it later
            await asyncio.sleep(0.05)
        finally:
            controller.stop()
            await running
        return seen, dict(controller.counts), controller

    seen, counts, controller = asyncio.run(meet())
    assert not any(link.received for link in controller.engine.links.values())
    why = [fields["why"] for event, fields in log if event == "refused"]
    return seen, " ".join(why), counts


def told(seen):
    """The reason that a caller was told."""
    (reason,) = [frame.reason for frame in seen if isinstance(frame, Refused)]
    return reason


def silent(seen):
    """Whether the caller got nothing but the end of the connection: TLS failed, and strangers are
    told nothing.
    """
    return seen == [] or isinstance(seen, str)


@pytest.fixture
def paths(tmp_path):
    return laid_out(tmp_path)


def client(folder):
    return ssl_contexts(PartyIdentity.load(folder))[1]


def foreign(tmp_path, run="trial-1", role="owner", name="clinic-1"):
    """An identity of another authority."""
    enrol_all(tmp_path / "elsewhere", run, {name: role})
    return client(tmp_path / "elsewhere" / name)


def test_a_wrong_authority(paths, tmp_path):
    context = foreign(tmp_path)
    context.verify_mode = ssl.CERT_NONE  # it would itself refuse us
    seen, why, counts = refusal(paths, context)
    assert silent(seen)
    assert "certificate is refused" in why
    assert counts["refused tls"] == 1


def test_the_dialler_of_a_foreign_listener_says_so(paths, tmp_path):
    seen, _, _ = refusal(paths, foreign(tmp_path))
    assert "certificate verify failed" in seen


def test_a_self_signed_certificate(paths, tmp_path):
    key, now = making.new_key(), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clinic-1")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(5)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "self.pem").write_bytes(
        certificate.public_bytes(making.Encoding.PEM) + private_pem(key)
    )
    context = client(tmp_path / "clinic-1")
    context.load_cert_chain(tmp_path / "self.pem")
    seen, why, counts = refusal(paths, context)
    assert silent(seen)
    assert "self-signed" in why or "certificate is refused" in why
    assert counts["refused tls"] == 1


def test_no_certificate(paths):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    seen, why, counts = refusal(paths, context)
    assert silent(seen)
    assert "showed no certificate" in why
    assert counts["refused tls"] == 1


def test_plain_text(paths):
    seen, why, counts = refusal(paths, None, [b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100])
    assert silent(seen)
    assert "does not speak TLS" in why or "plain HTTP" in why
    assert counts["refused tls"] == 1


def test_tls_1_2(paths, tmp_path):
    context = client(tmp_path / "clinic-1")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    seen, why, counts = refusal(paths, context)
    assert silent(seen)
    assert "does not speak TLS 1.3" in why
    assert counts["refused tls"] == 1


def test_an_expired_certificate(paths, tmp_path):
    authority = Authority(
        tmp_path / "authority", now=lambda: datetime.now(UTC) - timedelta(days=400)
    )
    key = making.new_key()
    certificate = issue(authority, "owner", "clinic-9", key, days=30)
    (tmp_path / "old.pem").write_bytes(
        certificate.public_bytes(making.Encoding.PEM) + private_pem(key)
    )
    context = client(tmp_path / "clinic-1")
    context.load_cert_chain(tmp_path / "old.pem")
    seen, why, counts = refusal(paths, context)
    assert silent(seen)
    assert "expired" in why
    assert sum(counts.values()) == 1


def test_a_revoked_certificate(paths, tmp_path):
    context = client(tmp_path / "clinic-1")
    authority = Authority(tmp_path / "authority")
    authority.revoke("clinic-1")
    (tmp_path / "controller" / "crl.pem").write_bytes(authority.crl())
    seen, why, counts = refusal(paths, context, [Hello(**HELLO)])
    assert "was revoked" in told(seen)
    assert "was revoked" in why
    assert counts["refused certificate"] == 1


def test_a_wrong_role(paths, tmp_path):
    enrol_all(
        tmp_path, "trial-1", {"clinic-7": "owner"}
    )  # of this run's authority, and not in the federation
    seen, why, counts = refusal(paths, client(tmp_path / "clinic-7"), [Hello(**HELLO)])
    assert "is not a party of this run" in told(seen)
    assert "clinic-7" in why
    assert counts["refused certificate"] == 1


def test_another_run(paths, tmp_path):
    seen, _, counts = refusal(
        paths, client(tmp_path / "clinic-1"), [Hello(**{**HELLO, "run": "trial-2"})]
    )
    assert "is in run trial-2, and this party is in run trial-1" in told(seen)
    assert counts["refused hello"] == 1


@pytest.mark.parametrize("what", ["wire", "protocol_version"])
def test_another_version_with_both_versions_named(paths, tmp_path, what):
    seen, _, counts = refusal(
        paths, client(tmp_path / "clinic-1"), [Hello(**{**HELLO, what: 99, "posse": "7.7"})]
    )
    assert "posse 7.7" in told(seen)
    assert "Upgrade " in told(seen)
    assert counts["refused hello"] == 1


@pytest.mark.parametrize(
    "frames",
    [
        [Data(1, b"x")],
        [b"\x01\x00\x00\x00\xc1"],
        [b"\xff\xff\xff\x7f"],
        [Hello(**HELLO), Hello(**HELLO)],
        [Hello(**HELLO), b"\xff\xff\xff\x7f"],
        [Hello(**HELLO), b"\x02\x00\x00\x00\xc1\xc1"],
        [Hello(**{**HELLO, "name": "clinic-2"})],
    ],
)
def test_what_an_admitted_peer_may_not_send(paths, tmp_path, frames):
    seen, why, counts = refusal(paths, client(tmp_path / "clinic-1"), frames)
    assert told(seen)
    assert why
    assert sum(count for name, count in counts.items() if name.startswith("refused")) == 1


def test_one_who_never_says_hello_is_hung_up_on(paths, tmp_path, monkeypatch):
    monkeypatch.setattr("posse.runtime.network.connection.GREETING", 0.3)
    seen, _, counts = refusal(paths, client(tmp_path / "clinic-1"))
    assert "no hello within" in told(seen)
    assert counts["refused hello"] == 1
