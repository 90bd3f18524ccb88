"""What a fleet is set up from: the app as an installable Flower project, and certificates and keys.

The project is two thin modules that import from Posse, and the settings. The SuperLink proves
itself by a certificate of an authority; nodes prove themselves by ECDSA keys (P-256) that are
registered with the SuperLink. Flower's nodes have no certificates.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from posse.core import files
from posse.core.errors import ConfigError, DataError
from posse.runtime.certificates.making import authority_certificate, new_key, party_certificate
from posse.runtime.certificates.names import Peer
from posse.runtime.local import to_toml
from posse.systems.fed_contextual.flower.settings import DeviceSettings
from posse.version import __version__

FLOWER = "1.41.0"
PACKAGE = "posse_devices"
DAYS = 30
"""How long the SuperLink's certificate holds."""
RUN = "devices"
_APP = '''"""The {what} of Posse's federated contextual bandit."""

from posse.systems.fed_contextual.flower.{module} import make

app = make()
'''
_LICENCE = """Licensed under the Apache License, Version 2.0 (the "License"); you may not use this project except in
compliance with the License. You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software distributed under the License is distributed on an
"AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the License for the specific
language governing permissions and limitations under the License.
"""


def write_project(folder: Path, settings: DeviceSettings, publisher: str = "posse") -> Path:
    """Write the project to a new folder; settings become its run configuration."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"the app is written to a new folder, and {folder} is not empty. Choose another."
        )
    if not publisher.isidentifier():
        raise ConfigError(
            f"publisher must be one word of letters and digits, got {publisher!r}. Shorten it."
        )
    package = folder / PACKAGE
    try:
        package.mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(_pyproject(settings, publisher))
        (folder / "LICENSE").write_text(_LICENCE)
        (package / "__init__.py").write_text('"""Posse on devices."""\n')
        for module, what in (("server_app", "server"), ("client_app", "client")):
            (package / f"{module}.py").write_text(_APP.format(module=module, what=what))
    except OSError as error:
        raise DataError(
            f"cannot write in {folder}: {error.strerror}. Choose a place you own."
        ) from error
    return folder


def _pyproject(settings: DeviceSettings, publisher: str) -> str:
    config = settings.resolved()
    if not settings.scaling:
        # Devices of 0.1 do not know this setting.
        del config["scaling"]
    extras = "flower,contextual,dp" if settings.noise else "flower,contextual"
    return to_toml(
        {
            "build-system": {"requires": ["hatchling>=1.24"], "build-backend": "hatchling.build"},
            "project": {
                "name": PACKAGE.replace("_", "-"),
                "version": "1.0.0",
                "description": "A federated contextual bandit on devices.",
                "requires-python": ">=3.11",
                "dependencies": [
                    f"flwr>={FLOWER},<1.42",
                    f"posse-bandits[{extras}]>={__version__}",
                ],
                "license": {"file": "LICENSE"},
            },
            "tool.hatch.build.targets.wheel": {"packages": [PACKAGE]},
            "tool.flwr.app": {
                "publisher": publisher,
                "fab-format-version": 1,
                "flwr-version-target": FLOWER,
            },
            "tool.flwr.app.components": {
                "serverapp": f"{PACKAGE}.server_app:app",
                "clientapp": f"{PACKAGE}.client_app:app",
            },
            "tool.flwr.app.config": config,
        }
    ).lstrip()


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
    """Make an authority and the SuperLink's certificate for some hosts; the authority's key is not
    kept.
    """
    files.make_private_folder(folder)
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
    files.make_private_folder(folder)
    made, key = (
        NodeKeys(folder / "node.key", folder / "node.pub"),
        ec.generate_private_key(ec.SECP256R1()),
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    files.write_whole(made.private, private, mode=files.PRIVATE)
    files.write_whole(
        made.public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    )
    return made
