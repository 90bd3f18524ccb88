"""What the tests of certificates share: an authority with a clock that tests turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from posse.runtime.certificates import making, register
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.tokens import Token, make_request, read_answer

RUN = "trial-7"
START = datetime(2030, 5, 1, 12, 0, 0, tzinfo=UTC)


class Clock:
    """A clock that stands still until it is turned."""

    def __init__(self, at: datetime = START) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def turn(self, **by: float) -> None:
        self.at += timedelta(**by)


def request_for(token: Token) -> bytes:
    """A request with a fresh key."""
    return make_request(token, making.signing_request(making.new_key()))


def issue(
    authority: Authority,
    role: str,
    name: str,
    key: ec.EllipticCurvePrivateKey | None = None,
    **options: Any,
) -> x509.Certificate:
    """Enrol a key as a party does, and return its certificate."""
    token = authority.token(role, name, **options)
    request = make_request(token, making.signing_request(key or making.new_key()))
    return x509.load_der_x509_certificate(
        read_answer(token, request, Desk(authority).answer(request).data).certificate
    )


@pytest.fixture(autouse=True, scope="package")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """A killed process loses nothing that was written; only a power cut would, which no test here
    brings about.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(register, "SYNCHRONOUS", "OFF")
        yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authority(tmp_path: Path, clock: Clock) -> Authority:
    return Authority.init(tmp_path / "ca", "acme", RUN, now=clock)


@pytest.fixture
def desk(authority: Authority) -> Desk:
    return Desk(authority)


@pytest.fixture
def token(authority: Authority) -> Token:
    return authority.token("owner", "clinic-b")
