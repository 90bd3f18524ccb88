"""The authority's folder: what is in it, who may read it, what a kill leaves."""

from __future__ import annotations

import os
import pickle
import signal
import sqlite3
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from posse.core import files
from posse.core.errors import CertificateError, ConfigError, DataError
from posse.runtime.certificates import making
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.identity import crl_number
from posse.runtime.certificates.names import Peer
from posse.runtime.certificates.tokens import read_answer
from tests.kit.certificates import RUN, START, Clock, issue, request_for


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_their_permissions(authority: Authority) -> None:
    assert mode(authority.folder) == 0o700
    assert {path.name: mode(path) for path in authority.folder.iterdir()} == {
        "ca.key": 0o600,
        "register.db": 0o600,
        "ca.crt": 0o644,
        "crl.pem": 0o644,
    }
    assert list(authority.folder.parent.iterdir()) == [authority.folder], (
        "nothing is left beside it"
    )


def test_permissions_do_not_follow_a_lax_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = Authority.init(tmp_path / "lax", "acme", RUN)
    finally:
        os.umask(before)
    assert (mode(made.folder), mode(made.folder / "ca.key"), mode(made.register.path)) == (
        0o700,
        0o600,
        0o600,
    )


def test_its_certificate(authority: Authority) -> None:
    certificate = authority.certificate
    making.check_authority(certificate)
    basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert usage.crl_sign
    assert not usage.digital_signature
    assert certificate.not_valid_after_utc - START == timedelta(days=5 * 365)


def test_nothing_is_overwritten(authority: Authority, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in authority.folder.iterdir()}
    with pytest.raises(DataError, match="exists and is not overwritten"):
        Authority.init(authority.folder, "acme", RUN)
    assert {path.name: path.read_bytes() for path in authority.folder.iterdir()} == before
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="exists and is not overwritten"):
        Authority.init(tmp_path / "file", "acme", RUN)
    with pytest.raises(DataError, match="cannot make"):
        Authority.init(tmp_path / "file" / "inside", "acme", RUN)
    with pytest.raises(DataError, match="exists and is not overwritten"):
        files.write_whole(tmp_path / "file", b"y", replace=False)
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize(
    ("name", "run"), [("Acme", RUN), ("acme", "trial 7"), ("", RUN), ("acme", "a/b")]
)
def test_names_are_checked_before_anything_is_written(tmp_path: Path, name: str, run: str) -> None:
    with pytest.raises(ConfigError, match="must be 1 to 63"):
        Authority.init(tmp_path / "ca", name, run)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_an_authority(tmp_path: Path) -> None:
    with pytest.raises(
        CertificateError,
        match=r"there is no authority in .* Make one with 'posse federation ca init'",
    ):
        Authority(tmp_path)


@pytest.mark.parametrize("name", ["", "ca.key", "register.db"])
def test_secrets_that_others_may_read(authority: Authority, name: str) -> None:
    (authority.folder / name).chmod(0o750)
    with pytest.raises(
        CertificateError, match=r"can be used by others \(mode 750\). Run: chmod go= "
    ) as caught:
        Authority(authority.folder).key
    assert caught.value.reason == "permissions"


def test_a_certificate_that_others_may_write(authority: Authority) -> None:
    (authority.folder / "ca.crt").chmod(0o666)
    with pytest.raises(CertificateError, match=r"can be written by others"):
        Authority(authority.folder)


def test_an_encrypted_key(tmp_path: Path, clock: Clock) -> None:
    Authority.init(tmp_path / "ca", "acme", RUN, passphrase=b"correct horse", now=clock)
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in (tmp_path / "ca" / "ca.key").read_bytes()
    silent = Authority(tmp_path / "ca", now=clock)
    silent.token("owner", "clinic-b")
    silent.list()
    with pytest.raises(CertificateError, match=r"is encrypted\. Give its passphrase"):
        silent.crl()
    with pytest.raises(CertificateError, match="the passphrase does not open"):
        Authority(tmp_path / "ca", passphrase=lambda: b"wrong", now=clock).crl()
    Authority(tmp_path / "ca", passphrase=lambda: b"correct horse", now=clock).crl()
    with pytest.raises(ConfigError, match="at least 8 bytes"):
        Authority.init(tmp_path / "ca2", "acme", RUN, passphrase=b"short")


def test_a_key_that_is_not_the_certificates(authority: Authority, tmp_path: Path) -> None:
    other = Authority.init(tmp_path / "other", "acme", RUN)
    (authority.folder / "ca.key").write_bytes((other.folder / "ca.key").read_bytes())
    with pytest.raises(CertificateError, match=r"is not the key of ca\.crt"):
        authority.crl()
    (authority.folder / "ca.key").write_bytes(b"junk")
    with pytest.raises(CertificateError, match="is not a private key"):
        authority.crl()


def test_an_issued_certificate(authority: Authority) -> None:
    key = making.new_key()
    certificate = issue(authority, "comp", "comp", key, hosts=["a.example.org", "10.0.0.7"])
    assert certificate.not_valid_before_utc == START - making.SKEW
    assert certificate.not_valid_after_utc == START + timedelta(days=90)
    extensions = certificate.extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.CLIENT_AUTH,
        ExtendedKeyUsageOID.SERVER_AUTH,
    ]
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == [
        f"posse://{RUN}/comp/comp",
        "a.example.org",
        "10.0.0.7",
    ]
    assert certificate.public_key() == key.public_key()


def test_hosts_are_those_of_the_token(authority: Authority) -> None:
    token = authority.token("owner", "clinic-b", hosts=["b.example.org", "::1"], days=7)
    request = request_for(token)
    opened = read_answer(token, request, Desk(authority).answer(request).data)
    certificate = x509.load_der_x509_certificate(opened.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == [
        f"posse://{RUN}/owner/clinic-b",
        "b.example.org",
        "::1",
    ]
    assert certificate.not_valid_after_utc == START + timedelta(days=7)


OLD_TOKENS = """
ALTER TABLE tokens RENAME TO later;
CREATE TABLE tokens (
    id BLOB PRIMARY KEY, role TEXT NOT NULL, name TEXT NOT NULL, hosts TEXT NOT NULL,
    made INTEGER NOT NULL, expires INTEGER NOT NULL, days INTEGER NOT NULL, state TEXT NOT NULL,
    request_key BLOB, answer_key BLOB, refusal_key BLOB NOT NULL,
    request BLOB, answer BLOB, serial TEXT, refusals INTEGER NOT NULL DEFAULT 0, last_refusal TEXT
) STRICT;
INSERT INTO tokens SELECT * FROM later;
DROP TABLE later;
"""
"""Makes the table of tokens as release 0.1.0 made it."""


@pytest.mark.parametrize("old", [False, True])
def test_a_certificate_may_count_for_a_part_of_a_day(authority: Authority, old: bool) -> None:
    issue(authority, "owner", "clinic-a")
    token = authority.token("owner", "clinic-b", days=7)
    if old:
        with sqlite3.connect(authority.register.path) as connection:
            connection.executescript(OLD_TOKENS)
        connection.close()
    before, _ = authority.list()
    for name, days in (("clinic-c", 0.5), ("clinic-d", 1.25), ("clinic-e", making.LEAST_DAYS)):
        certificate = issue(authority, "owner", name, days=days)
        assert certificate.not_valid_after_utc == START + timedelta(days=days)
    assert authority.list()[0][:2] == before
    # A token that was open before the table changed is good for the days that it was made for.
    request = request_for(token)
    opened = read_answer(token, request, Desk(authority).answer(request).data)
    certificate = x509.load_der_x509_certificate(opened.certificate)
    assert certificate.not_valid_after_utc == START + timedelta(days=7)


def test_a_name_has_one_role(authority: Authority) -> None:
    authority.token("owner", "clinic-b")
    authority.token("owner", "clinic-b")
    with pytest.raises(ConfigError, match="'clinic-b' is owner in this run and cannot be comp too"):
        authority.token("comp", "clinic-b")
    authority.revoke("clinic-b")
    authority.token("comp", "clinic-b")


def test_a_certificate_ends_with_its_authority(authority: Authority, clock: Clock) -> None:
    clock.turn(days=5 * 365 - 10)
    certificate = issue(authority, "owner", "late")
    assert certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc
    clock.turn(days=10)
    public, later = making.new_key().public_key(), Peer(RUN, "owner", "later")
    with (
        authority.register.writing() as writing,
        pytest.raises(CertificateError, match="the authority has expired"),
    ):
        authority.sign(writing, public, later, (), 90)


@pytest.mark.parametrize("options", [{"minutes": 0}, {"minutes": 1441}, {"days": 0}, {"days": 826}])
def test_lengths_out_of_range(authority: Authority, options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must be in"):
        authority.token("owner", "a", **options)  # type: ignore[arg-type]


def test_revocation_by_name_and_by_serial(authority: Authority) -> None:
    first = issue(authority, "owner", "a")
    second = issue(authority, "owner", "a")
    third = issue(authority, "owner", "b")
    assert authority.revoke(f"{third.serial_number:X}") == [f"{third.serial_number:x}"]
    assert len(authority.revoke("a")) == 2
    listed = x509.load_pem_x509_crl(authority.crl())
    assert {entry.serial_number for entry in listed} == {
        one.serial_number for one in (first, second, third)
    }
    assert listed.is_signature_valid(making.public_key(authority.certificate))
    assert authority.current_crl() == listed
    with pytest.raises(CertificateError, match="nothing to revoke"):
        authority.revoke("a")
    assert all(row.revoked == START for row in authority.list()[1])


def test_the_number_of_a_list_grows(authority: Authority) -> None:
    assert crl_number(authority.current_crl()) == 0
    assert [crl_number(x509.load_pem_x509_crl(authority.crl())) for _ in range(3)] == [1, 2, 3]


KILLED = """
import os, signal, sys
from posse.runtime.certificates import authority, making, register
from posse.core import files
step, folder = int(sys.argv[1]), sys.argv[2]
calls = 0
def killing(function):
    def wrapped(*args, **options):
        global calls
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        return function(*args, **options)
    return wrapped
files.write_whole = killing(files.write_whole)
files.sync_folder = killing(files.sync_folder)
register.create = killing(register.create)
authority.Authority.init(folder, "acme", "trial-7")
"""


@pytest.mark.parametrize("step", [1, 5, 6, 7])
def test_a_kill_while_it_is_made_leaves_all_or_nothing(tmp_path: Path, step: int) -> None:
    folder = tmp_path / "ca"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(step), str(folder)], capture_output=True, timeout=240
    )
    assert done.returncode == -signal.SIGKILL
    if folder.exists():
        Authority(folder).crl()
    else:
        Authority.init(folder, "acme", RUN).crl()


def test_a_register_that_is_damaged_or_of_another_format(authority: Authority) -> None:
    path = authority.register.path
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(CertificateError, match="is of format 9, this posse reads 1"):
        Authority(authority.folder)
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(CertificateError, match="cannot be used: file is not a database"):
        Authority(authority.folder)


def test_an_authority_does_not_pickle(authority: Authority) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(authority)
