"""What the authority remembers: tokens and certificates, in SQLite.

Every change is one transaction that is on the disk when it returns, so a kill at any point leaves
the state before or after it. Using a token, recording its certificate and keeping the answer are
one transaction. Several processes may use one register
(`posse federation ca serve` beside `posse federation ca token`): the second writer waits for the
first.

The database holds no private key and no token's secret; `posse.runtime.certificates.tokens` says
what its keys can do.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core.errors import CertificateError
from posse.core.files import PRIVATE, check_private
from posse.runtime.certificates.names import Peer
from posse.runtime.certificates.tokens import Token

OPEN, USED, EXPIRED = "open", "used", "expired"
SYNCHRONOUS = "EXTRA"
"""The removed journal is synced too, or a power cut could bring a used token back."""

_WAIT = 10.0
_FORMAT = 1

_SCHEMA = f"""
PRAGMA user_version = {_FORMAT};
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE tokens (
    id BLOB PRIMARY KEY, role TEXT NOT NULL, name TEXT NOT NULL, hosts TEXT NOT NULL,
    made INTEGER NOT NULL, expires INTEGER NOT NULL, days REAL NOT NULL, state TEXT NOT NULL,
    request_key BLOB, answer_key BLOB, refusal_key BLOB NOT NULL,
    request BLOB, answer BLOB, serial TEXT, refusals INTEGER NOT NULL DEFAULT 0, last_refusal TEXT
) STRICT;
CREATE TABLE certificates (
    serial TEXT PRIMARY KEY, role TEXT NOT NULL, name TEXT NOT NULL, key BLOB NOT NULL,
    issued INTEGER NOT NULL, expires INTEGER NOT NULL, revoked INTEGER, certificate BLOB NOT NULL
) STRICT;
"""

_PARTS_OF_DAYS = (
    "ALTER TABLE tokens RENAME COLUMN days TO whole_days",
    "ALTER TABLE tokens ADD COLUMN days REAL NOT NULL DEFAULT 0",
    "UPDATE tokens SET days = whole_days",
    "ALTER TABLE tokens DROP COLUMN whole_days",
)
"""Changes a register that release 0.1.0 made, which took whole days only; that release reads the
result too.
"""


@dataclass(frozen=True)
class TokenRow:
    """A token as the authority knows it."""

    id: bytes
    role: str
    name: str
    hosts: tuple[str, ...]
    made: datetime
    expires: datetime
    days: float
    """How long the certificate will count."""
    state: str
    """open, used, withdrawn or expired."""
    refusals: int
    """How many requests with this token were refused."""
    last_refusal: str | None
    serial: str | None
    request: bytes | None = field(repr=False)
    """Digest of the request it was used for."""
    answer: bytes | None = field(repr=False)
    request_key: bytes | None = field(repr=False)
    answer_key: bytes | None = field(repr=False)
    refusal_key: bytes = field(repr=False)


@dataclass(frozen=True)
class CertificateRow:
    """A certificate that was issued."""

    serial: str
    """In hexadecimal."""
    role: str
    name: str
    issued: datetime
    expires: datetime
    revoked: datetime | None
    key: bytes = field(repr=False)
    """Fingerprint of its public key."""
    certificate: bytes = field(repr=False)


def create(path: Path, **facts: str) -> None:
    """Make an empty register, readable by its owner only."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        # One transaction: every other one would wait for the disk by itself.
        connection.executescript("BEGIN;" + _SCHEMA)
        connection.executemany(
            "INSERT INTO facts VALUES (?, ?)", [*facts.items(), ("crl_number", "0")]
        )
        connection.execute("COMMIT")


class Register:
    """The tables of one authority. A connection lives as long as a call, so threads may share a
    register.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        check_private(path)
        with self._connected() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != _FORMAT:
                raise CertificateError(
                    f"{path} is of format {version}, this posse reads {_FORMAT}. Use its version."
                )

    def fact(self, name: str) -> str:
        """Read what was written when the authority was made."""
        with self._connected() as connection:
            return str(
                connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0]
            )

    def tokens(self, now: datetime) -> list[TokenRow]:
        """All tokens, oldest first; those past their time lose their keys first."""
        with self.writing() as writing:
            writing.expire(now)
        with self._connected() as connection:
            return [
                _token(row)
                for row in connection.execute("SELECT * FROM tokens ORDER BY made, rowid")
            ]

    def open_tokens(self, now: datetime) -> list[TokenRow]:
        """The tokens that can still be used; only reads."""
        with self._connected() as connection:
            query = "SELECT * FROM tokens WHERE state = 'open' AND expires > ? ORDER BY made, rowid"
            return [_token(row) for row in connection.execute(query, (_seconds(now),))]

    def certificates(self) -> list[CertificateRow]:
        """All certificates, oldest first."""
        with self._connected() as connection:
            return [
                _certificate(row)
                for row in connection.execute("SELECT * FROM certificates ORDER BY rowid")
            ]

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """Change the register: all of the block or nothing, and nobody else in between."""
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Writing(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(
                sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)
            ) as connection:
                connection.row_factory = sqlite3.Row
                connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
                # Deleted keys are overwritten in the file; copies of it made before are beyond
                # reach.
                connection.execute("PRAGMA secure_delete = ON")
                yield connection
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.Error as error:
            raise CertificateError(
                f"the authority's register {self.path} cannot be used: {error}. If another process "
                "holds it, wait; if "
                "it is damaged, restore a copy.",
                "register",
            ) from error


class Writing:
    """One transaction on the register."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def expire(self, now: datetime) -> None:
        """Delete the keys of tokens whose time is over."""
        self._connection.execute(
            "UPDATE tokens SET request_key = NULL, answer_key = NULL, "
            "state = CASE state WHEN 'open' THEN 'expired' ELSE state END "
            "WHERE expires <= ? AND (request_key IS NOT NULL OR state = 'open')",
            (_seconds(now),),
        )

    def add_token(self, token: Token, hosts: tuple[str, ...], days: float, now: datetime) -> None:
        """Remember a token by its keys."""
        query = "SELECT type FROM pragma_table_info('tokens') WHERE name = 'days'"
        if self._connection.execute(query).fetchone()[0] == "INTEGER":
            for statement in _PARTS_OF_DAYS:
                self._connection.execute(statement)
        peer, keys = token.peer, (token.key("request"), token.key("answer"), token.key("refusal"))
        self._connection.execute(
            "INSERT INTO tokens (id, role, name, hosts, made, expires, days, state, request_key, "
            "answer_key, "
            "refusal_key) VALUES (?, ?, ?, ?, ?, ?, ?, 'open', ?, ?, ?)",
            (
                token.id,
                peer.role,
                peer.name,
                json.dumps(hosts),
                _seconds(now),
                _seconds(token.expires),
                days,
                *keys,
            ),
        )

    def token(self, id: bytes) -> TokenRow | None:
        """Find a token."""
        row = self._connection.execute("SELECT * FROM tokens WHERE id = ?", (id,)).fetchone()
        return None if row is None else _token(row)

    def use(self, id: bytes, request: bytes, answer: bytes, serial: str) -> None:
        """Mark a token as used for one request, keep the answer, delete its keys."""
        self._connection.execute(
            "UPDATE tokens SET state = 'used', request = ?, answer = ?, serial = ?, request_key = "
            "NULL, "
            "answer_key = NULL WHERE id = ?",
            (request, answer, serial, id),
        )

    def refuse(self, id: bytes, reason: str) -> None:
        """Count a refused request."""
        self._connection.execute(
            "UPDATE tokens SET refusals = refusals + 1, last_refusal = ? WHERE id = ?", (reason, id)
        )

    def withdraw(self, name: str) -> int:
        """Close the open tokens of a name."""
        return self._connection.execute(
            "UPDATE tokens SET state = 'withdrawn', request_key = NULL, answer_key = NULL "
            "WHERE name = ? AND state = 'open'",
            (name,),
        ).rowcount

    def role_of(self, name: str, now: datetime) -> str | None:
        """The role that a name has by a certificate in force or an open token."""
        row = self._connection.execute(
            "SELECT role FROM certificates WHERE name = ?1 AND revoked IS NULL AND expires > ?2 "
            "UNION SELECT role FROM tokens WHERE name = ?1 AND state = 'open' AND expires > ?2 "
            "LIMIT 1",
            (name, _seconds(now)),
        ).fetchone()
        return None if row is None else str(row[0])

    def holder_of(self, key: bytes) -> tuple[str, str] | None:
        """Role and name that a key was ever certified for."""
        row = self._connection.execute(
            "SELECT role, name FROM certificates WHERE key = ? LIMIT 1", (key,)
        ).fetchone()
        return None if row is None else (str(row[0]), str(row[1]))

    def add_certificate(
        self, certificate: x509.Certificate, key: bytes, peer: Peer, now: datetime
    ) -> None:
        """Remember a certificate, by the fingerprint of its key and by its serial in
        hexadecimal.
        """
        serial, ends = f"{certificate.serial_number:x}", _seconds(certificate.not_valid_after_utc)
        self._connection.execute(
            "INSERT INTO certificates VALUES (?, ?, ?, ?, ?, ?, NULL, ?)",
            (
                serial,
                peer.role,
                peer.name,
                key,
                _seconds(now),
                ends,
                certificate.public_bytes(Encoding.DER),
            ),
        )

    def certificate(self, serial: str) -> CertificateRow | None:
        """Find a certificate by its serial."""
        row = self._connection.execute(
            "SELECT * FROM certificates WHERE serial = ?", (serial,)
        ).fetchone()
        return None if row is None else _certificate(row)

    def revoke(self, which: str, now: datetime) -> list[str]:
        """Revoke one serial, or every certificate of a name; returns the serials."""
        query = (
            "SELECT serial FROM certificates WHERE revoked IS NULL AND (serial = ?1 OR name = ?1)"
        )
        serials = [str(row[0]) for row in self._connection.execute(query, (which,))]
        self._connection.executemany(
            "UPDATE certificates SET revoked = ? WHERE serial = ?",
            [(_seconds(now), serial) for serial in serials],
        )
        return serials

    def is_revoked(self, serial: str) -> bool:
        """Say whether a certificate was revoked."""
        query = "SELECT 1 FROM certificates WHERE serial = ? AND revoked IS NOT NULL"
        return self._connection.execute(query, (serial,)).fetchone() is not None

    def revoked(self) -> list[tuple[int, datetime]]:
        """Serials of revoked certificates, with when."""
        query = "SELECT serial, revoked FROM certificates WHERE revoked IS NOT NULL ORDER BY rowid"
        return [(int(serial, 16), _time(at)) for serial, at in self._connection.execute(query)]

    def next_crl_number(self) -> int:
        """Count the revocation lists."""
        query = (
            "UPDATE facts SET value = CAST(value AS INTEGER) + 1 WHERE name = 'crl_number' "
            "RETURNING value"
        )
        return int(self._connection.execute(query).fetchone()[0])


def _token(row: sqlite3.Row) -> TokenRow:
    times = {name: _time(row[name]) for name in ("made", "expires")}
    return TokenRow(**{**dict(row), **times, "hosts": tuple(json.loads(row["hosts"]))})


def _certificate(row: sqlite3.Row) -> CertificateRow:
    times = {
        name: _time(row[name]) for name in ("issued", "expires", "revoked") if row[name] is not None
    }
    return CertificateRow(**{**dict(row), **times})


def _seconds(at: datetime) -> int:
    return int(at.timestamp())


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
