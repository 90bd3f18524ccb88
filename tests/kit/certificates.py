"""Certificates of an authority whose clock tests turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from posse.runtime.certificates import making
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
