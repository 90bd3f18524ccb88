"""What a party reads beside its file: the customer's certificate; at the customer, who was admitted
and its own key.
"""

from __future__ import annotations

import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core import files
from posse.core.errors import ConfigError, JournalError
from posse.privacy.crypto.paillier import PrivateKey, generate_key
from posse.runtime.certificates.authority import REGISTER, Authority, load_certificate
from posse.runtime.certificates.identity import CERTIFICATE, peer_of
from posse.runtime.place import Place

ADMITTED = "admitted.json"
"""In the customer's journal: the signing keys of those that took part when the run began."""


def customer_key(place: Place, given: Path | None) -> bytes:
    """Return the customer's signing key from its certificate, which the run's authority must have
    signed.
    """
    if given is None:
        raise ConfigError(
            "customer is missing, and every party verifies the customer's signatures. Set "
            "customer to the file of the customer's certificate."
        )
    path = place.folder / given
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"the customer's certificate {path} cannot be read: {error}.") from error
    identity = place.identity
    peer = peer_of(
        certificate.public_bytes(Encoding.DER),
        identity.authority,
        identity.crl,
        identity.run,
        certificate.not_valid_before_utc,
    )
    if peer.role != "customer":
        raise ConfigError(
            f"{path} is the certificate of '{peer.name}' ({peer.role}), not of the customer."
        )
    return peer.public


def admitted(place: Place, folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return the signing keys of those who take part, in the order of `names`; in a run that has
    begun, as they were.

    So a certificate that is revoked or issued anew in a run keeps nobody from going on: the
    manifest has their keys.
    """
    path = place.journal / ADMITTED
    if place.begun and path.exists():
        try:
            kept = {
                str(name): bytes.fromhex(key) for name, key in json.loads(path.read_text()).items()
            }
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise JournalError(
                f"{path} cannot be read: {error}. Restore it from a copy."
            ) from error
        if set(kept) == set(names):
            return {name: kept[name] for name in names}
    found = _issued(folder, names) if (folder / REGISTER).exists() else _sent(place, folder, names)
    return {name: found[name] for name in names}


def _sent(place: Place, folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return the signing keys of parties from certificates that the founder of a federation sent,
    checked.
    """
    identity, known = place.identity, {}
    for name in names:
        path = folder / name / CERTIFICATE
        certificate = load_certificate(path)
        peer = peer_of(
            certificate.public_bytes(Encoding.DER),
            identity.authority,
            identity.crl,
            identity.run,
            certificate.not_valid_before_utc,
        )
        if peer.name != name or peer.role == "customer":
            raise ConfigError(f"{path} is the certificate of {peer}.")
        known[name] = peer.public
    return known


def _issued(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return the signing keys of parties from the certificates that the authority has issued."""
    authority = Authority(folder)
    crl, known = authority.current_crl(), {}
    for row in authority.list()[1]:
        if row.revoked is None and row.role != "customer" and row.name in names:
            peer = peer_of(row.certificate, authority.certificate, crl, authority.run, row.issued)
            known[peer.name] = peer.public
    missing = [name for name in names if name not in known]
    if missing:
        raise ConfigError(
            f"'{missing[0]}' has no certificate yet. Make a token with 'posse federation ca token' and let it "
            "enrol."
        )
    return known


def paillier(place: Place, bits: int) -> PrivateKey:
    """Read the customer's Paillier key, or make one for a new journal, with which it stays."""
    path = place.journal / "paillier.key"
    if path.exists():
        return PrivateKey.load(path.read_bytes())
    if place.begun:
        raise JournalError(
            f"{path} is missing beside the journal, and the total of this run opens with no other "
            "key. Restore it from "
            "a copy, or begin a new run."
        )
    key = generate_key(bits)
    files.write_whole(path, key.save(), mode=files.PRIVATE)
    return key
