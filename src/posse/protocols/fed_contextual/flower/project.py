"""Writes the app as an installable Flower project: two thin modules that import from Posse, and the settings."""

from __future__ import annotations

from pathlib import Path

from posse.core.errors import ConfigError, DataError
from posse.protocols.fed_contextual.flower.settings import DeviceSettings
from posse.runtime.local import to_toml
from posse.version import __version__

FLOWER = "1.41.0"
PACKAGE = "posse_devices"
_APP = '''"""The {what} of Posse's federated contextual bandit."""

from posse.protocols.fed_contextual.flower.{module} import make

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
        raise ConfigError(f"the app is written to a new folder, and {folder} is not empty. Choose another.")
    if not publisher.isidentifier():
        raise ConfigError(f"publisher must be one word of letters and digits, got {publisher!r}. Shorten it.")
    package = folder / PACKAGE
    try:
        package.mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(_pyproject(settings, publisher))
        (folder / "LICENSE").write_text(_LICENCE)
        (package / "__init__.py").write_text('"""Posse on devices."""\n')
        for module, what in (("server_app", "server"), ("client_app", "client")):
            (package / f"{module}.py").write_text(_APP.format(module=module, what=what))
    except OSError as error:
        raise DataError(f"cannot write in {folder}: {error.strerror}. Choose a place you own.") from error
    return folder


def _pyproject(settings: DeviceSettings, publisher: str) -> str:
    extras = "flower,contextual,dp" if settings.noise else "flower,contextual"
    return to_toml({
        "build-system": {"requires": ["hatchling>=1.24"], "build-backend": "hatchling.build"},
        "project": {
            "name": PACKAGE.replace("_", "-"),
            "version": "1.0.0",
            "description": "A federated contextual bandit on devices.",
            "requires-python": ">=3.11",
            "dependencies": [f"flwr>={FLOWER},<1.42", f"posse-bandits[{extras}]>={__version__}"],
            "license": {"file": "LICENSE"},
        },
        "tool.hatch.build.targets.wheel": {"packages": [PACKAGE]},
        "tool.flwr.app": {"publisher": publisher, "fab-format-version": 1, "flwr-version-target": FLOWER},
        "tool.flwr.app.components": {
            "serverapp": f"{PACKAGE}.server_app:app", "clientapp": f"{PACKAGE}.client_app:app",
        },
        "tool.flwr.app.config": settings.resolved(),
    }).lstrip()  # fmt: skip
