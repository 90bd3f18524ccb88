"""Certificates and keys of a fleet: an authority, the SuperLink's certificate, a key for each node.

The SuperLink proves itself by a certificate of the authority; nodes prove themselves by ECDSA keys (P-256) that are
registered with the SuperLink. Flower's nodes have no certificates.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from posse.core import files
from posse.runtime.certificates.making import authority_certificate, new_key, party_certificate
from posse.runtime.certificates.names import Peer

DAYS = 30
RUN = "devices"


class LinkFiles(NamedTuple):
    """Files of the SuperLink."""

    authority: Path
    certificate: Path
    key: Path


class NodeKeys(NamedTuple):
    """Files of a node's key, as OpenSSH writes them."""

    private: Path
    public: Path


def make_link(folder: Path, hosts: Sequence[str]) -> LinkFiles:
    """Make an authority and the SuperLink's certificate for some hosts; the authority's key is not kept."""
    files.make_folder(folder)
    made = LinkFiles(folder / "ca.pem", folder / "superlink.pem", folder / "superlink.key")
    now, authority, own = datetime.now(UTC), new_key(), new_key()
    signed = authority_certificate(authority, "posse devices", RUN, now)
    certificate = party_certificate(
        signed, authority, own.public_key(), Peer(RUN, "superlink", "superlink"), hosts, now, DAYS
    )
    files.write_whole(made.authority, signed.public_bytes(Encoding.PEM))
    files.write_whole(made.certificate, certificate.public_bytes(Encoding.PEM))
    private = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files.write_whole(made.key, private, mode=files.PRIVATE)
    return made


def make_node(folder: Path) -> NodeKeys:
    """Make a node's key."""
    files.make_folder(folder)
    made, key = NodeKeys(folder / "node.key", folder / "node.pub"), ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    files.write_whole(made.private, private, mode=files.PRIVATE)
    files.write_whole(made.public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return made
