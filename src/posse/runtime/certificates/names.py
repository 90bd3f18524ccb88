"""Run, role and name of a party, and how a certificate spells them:
`posse://<run>/<role>/<name>`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from posse.core.errors import ConfigError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SCHEME = "posse://"
PORTS = 65_535
NO_PART = "operator"
"""Role of a member that has no part in runs, such as a founder that only keeps the register."""


@dataclass(frozen=True)
class Peer:
    """Who a certificate is for; `public` is its key as `posse.privacy.crypto.keys` writes
    identities.

    >>> Peer("trial-7", "owner", "clinic-b").uri
    'posse://trial-7/owner/clinic-b'
    """

    run: str
    role: str
    name: str
    public: bytes = field(default=b"", compare=False, repr=False)

    def __post_init__(self) -> None:
        check_name(run=self.run)
        check_name(role=self.role)
        check_name(name=self.name)

    @property
    def uri(self) -> str:
        """The form in a certificate's subject alternative names."""
        return f"{SCHEME}{self.run}/{self.role}/{self.name}"

    def __str__(self) -> str:
        return f"{self.role} '{self.name}' of run '{self.run}'"


def check_name(**values: str) -> None:
    """Refuse a run, role or name that could be read in two ways.

    >>> check_name(name="Clinic B")
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] name must be 1 to 63 of a-z, 0-9 and -, and not begin with
    -, got 'Clinic B'.
    """
    ((what, value),) = values.items()
    if not _NAME.fullmatch(value):
        raise ConfigError(
            f"{what} must be 1 to 63 of a-z, 0-9 and -, and not begin with -, got {value[:80]!r}."
        )


def from_uri(uri: str) -> Peer | None:
    """Read a certificate's URI; None where it is none of ours.

    >>> from_uri("posse://trial-7/owner/clinic-b")
    Peer(run='trial-7', role='owner', name='clinic-b')
    >>> from_uri("posse://trial-7/owner/clinic-b/")
    """
    parts = uri.removeprefix(SCHEME).split("/")
    if (
        not uri.startswith(SCHEME)
        or len(parts) != 3
        or not all(_NAME.fullmatch(part) for part in parts)
    ):
        return None
    run, role, name = parts
    return Peer(run, role, name)


def check_host(host: str) -> str:
    """Return a host name or an IP address in its plain form; wildcards are refused.

    >>> check_host("*.example.org")
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] host must be a DNS name in lower case or an IP address,
    got '*.example.org'.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        labels = host.split(".")
        # A last label of digits would be read as an address by some.
        if (
            len(host) <= 253
            and all(_LABEL.fullmatch(label) for label in labels)
            and not labels[-1].isdigit()
        ):
            return host
    raise ConfigError(f"host must be a DNS name in lower case or an IP address, got {host[:80]!r}.")


def split_address(address: str) -> tuple[str, int]:
    """Read `host:port`; an IPv6 host stands in brackets.

    >>> split_address("[::1]:7710")
    ('::1', 7710)
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (
        colon
        and host
        and port.isascii()
        and port.isdigit()
        and len(port) <= 5
        and 0 < int(port) <= PORTS
    ):
        raise ConfigError(
            f"address must be host:port (an IPv6 host in brackets), got {address[:80]!r}."
        )
    return check_host(host), int(port)
