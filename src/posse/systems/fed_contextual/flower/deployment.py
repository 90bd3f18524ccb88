"""Models as they are deployed: versions with what an application must know, who shall have which,
and who has it.

A version is a model that devices act with: the first one, one every `deploy_every` rounds, and the
last. Its file holds the arrays of `models.write_model` and `about`, JSON: the run (id of its
record), the version (rounds behind it), the policy with its parameter, the schema (model, features,
arms, what contexts are divided by), the bounds of contexts where they are declared, and a SHA-256
of all of these with the arrays. A server keeps every version (`versions/`), which version is wanted
(`wanted.json`) and what devices said they have (`held.json`).

Every device that is connected is sent the version it shall have: as it connects, when another one
is deployed, and at the end of a run; a run that is over and started again does this alone. It
answers with the version in its file, and refuses what does not fit: a hash that is not right, other
shapes than the schema says, numbers that are not finite, a schema or bounds other than its own
configuration, or its application's log, has.

`posse devices deploy --version N` deploys a named version, which then stays: newer versions are
kept and not deployed until another one is named, or until `posse devices deploy` without a number
deploys the newest and those after it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from zipfile import BadZipFile

import msgspec
import numpy as np

from posse.core.errors import ConfigError, DataError, ProtocolError
from posse.core.files import make_private_folder, write_whole
from posse.problems.populations.population import Scaling
from posse.results import words
from posse.results.section import Section
from posse.systems.fed_contextual.flower.settings import (
    EVALUATIONS,
    HELD,
    VERSIONS,
    WANTED,
    DeploySettings,
    DeviceSettings,
    StatusSettings,
    lines_of,
)

Leaves = list[Any]
LATEST = 1 << 37
"""Seconds since 1970 that no clock shows."""


@dataclass(frozen=True)
class Version:
    """A model, and what an application must know to act with it."""

    run: str
    version: int
    policy: str
    explore: float
    model: str
    features: int
    arms: int
    bounds: tuple[float, float] | None
    """Least and largest number of a context, as declared; none where nothing is."""
    leaves: Leaves
    divisor: float = 0.0
    """What contexts are divided by, 255 for bytes; 0: nothing is said."""
    scaling: str = ""
    """Fingerprint of the constants by which contexts are scaled; empty where they are not."""

    @property
    def hash(self) -> str:
        """SHA-256 of everything above."""
        named = hashlib.sha256(
            b"posse version\x00" + json.dumps(self._plain(), sort_keys=True).encode()
        )
        for leaf in self.leaves:
            one = np.ascontiguousarray(leaf)
            named.update(msgspec.msgpack.encode((str(one.dtype), list(one.shape), one.tobytes())))
        return named.hexdigest()

    def about(self) -> str:
        """Write everything but the arrays, with the hash."""
        return json.dumps({**self._plain(), "sha256": self.hash}, sort_keys=True)

    def _plain(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"model": self.model, "features": self.features, "arms": self.arms}
        schema |= {"divisor": self.divisor} if self.divisor else {}
        schema |= {"scaling": self.scaling} if self.scaling else {}
        return {
            "run": self.run,
            "version": self.version,
            "policy": self.policy,
            "explore": self.explore,
            "schema": schema,
            "bounds": None if self.bounds is None else list(self.bounds),
        }


def version_of(settings: DeviceSettings, run: str, version: int, leaves: Leaves) -> Version:
    """Make the version of a run's model."""
    return Version(
        run,
        version,
        settings.policy,
        settings.explore,
        settings.model,
        settings.features,
        settings.arms,
        settings.bounds,
        leaves,
        settings.divisor,
        settings.scaling,
    )


def parsed(about: Any, leaves: Leaves) -> Version:
    """Read what `about` wrote; refuse it where the hash is another."""
    try:
        told = json.loads(about)
        schema, bounds = told["schema"], told["bounds"]
        made = Version(
            str(told["run"]),
            int(told["version"]),
            str(told["policy"]),
            float(told["explore"]),
            str(schema["model"]),
            int(schema["features"]),
            int(schema["arms"]),
            None if bounds is None else (bounds[0], bounds[1]),
            leaves,
            float(schema.get("divisor", 0.0)),
            str(schema.get("scaling", "")),
        )
        right = told["sha256"] == made.hash
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise ProtocolError(f"a version does not say what it is: {error!r}.") from None
    if not right:
        raise ProtocolError(
            f"version {made.version} is not what its hash says: it was altered on its way."
        )
    return made


def write_version(path: Path, version: Version, scaling: Scaling | None = None) -> None:
    """Write a version to a file, which appears whole or not at all.

    A device adds the constants by which it scales contexts, for the application that acts with it.
    """
    from posse.systems.fed_contextual.computing.models import write_arrays

    arrays = {f"leaf{at}": leaf for at, leaf in enumerate(version.leaves)}
    if scaling is not None:
        arrays |= {"shift": np.array(scaling.shift), "scale": np.array(scaling.spread)}
    write_arrays(
        path, deployment=np.array(version.version), about=np.array(version.about()), **arrays
    )


def read_version(path: Path) -> Version:
    """Read a version from a file, and check its hash."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            count = sum(name.startswith("leaf") for name in found.files)
            return parsed(str(found["about"]), [found[f"leaf{at}"] for at in range(count)])
    except FileNotFoundError:
        raise DataError(f"there is no version {path}.") from None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, ProtocolError) as error:
        raise DataError(f"{path} cannot be read as a deployed model: {error}.") from None


# At a device --------------------------------------------------------------------------------------


def check_fits(
    version: Version, shapes: Sequence[tuple[int, ...]], node: Mapping[str, Any], width: int | None
) -> None:
    """Refuse a version that this device's application could not act with; `width` is that of
    contexts in its log.
    """
    if [tuple(np.shape(leaf)) for leaf in version.leaves] != list(shapes):
        raise ProtocolError(
            f"version {version.version} has not the arrays of a {version.model} model of its "
            "schema."
        )
    if not all(
        np.asarray(leaf).dtype == np.float32 and np.isfinite(leaf).all() for leaf in version.leaves
    ):
        raise ProtocolError(
            f"version {version.version} holds numbers that are not finite, or not of 32 bits."
        )
    for name, found in (
        ("features", version.features),
        ("arms", version.arms),
        ("policy", version.policy),
    ):
        if name in node and node[name] != found:
            raise ProtocolError(
                f"version {version.version} is for {name} {found!r}, and this device is configured "
                f"for {node[name]!r}."
            )
    if width is not None and width != version.features:
        raise ProtocolError(
            f"version {version.version} is for {version.features} features, and the log has "
            f"{width}."
        )
    if version.bounds and {"low", "high"} & set(node):
        low, high = (
            float(node.get("low", version.bounds[0])),
            float(node.get("high", version.bounds[1])),
        )
        if low < version.bounds[0] or high > version.bounds[1]:
            raise ProtocolError(
                f"version {version.version} is for contexts from {version.bounds[0]:g} to "
                f"{version.bounds[1]:g}, and "
                f"this device's go from {low:g} to {high:g}."
            )


# At the server ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """Which version devices shall have."""

    version: int
    pinned: bool = False
    """Whether it stays when newer versions are made: it was deployed by its number."""

    def said(self, version: int) -> str:
        """Say what this means for a version that was made.

        >>> Wanted(4).said(4), Wanted(2, pinned=True).said(4)
        ('it is deployed', 'it is not deployed: version 2 stays until another one is deployed')
        """
        if self.version == version:
            return "it is deployed"
        until = " until another one is deployed" if self.pinned else ""
        return f"it is not deployed: version {self.version} stays{until}"


class _WantedFile(msgspec.Struct):
    """What `wanted.json` holds."""

    version: int
    pinned: bool = False
    canary: float = 0.0
    """Of 0.1: the share of devices that got the version first."""


class _Held(msgspec.Struct):
    """What is noted of a device."""

    version: int
    sha256: str = ""
    at: Annotated[int, msgspec.Meta(ge=0, lt=LATEST)] = 0
    refused: int = -1
    why: str = ""


def _whole(has: Any) -> bool:
    """Say whether an entry of `held` is as `note` writes it."""
    try:
        msgspec.convert(has, _Held)
    except msgspec.ValidationError:
        return False
    return True


class Versions:
    """The versions of a run, in its folder."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def path(self, version: int) -> Path:
        """Return the file of a version."""
        return self.out / VERSIONS / f"{version:06d}.npz"

    def known(self) -> list[int]:
        """Return all versions."""
        return sorted(
            int(path.stem) for path in (self.out / VERSIONS).glob("*.npz") if path.stem.isdecimal()
        )

    def read(self, version: int) -> Version:
        """Read a version; raise where its file holds another."""
        found = read_version(self.path(version))
        if found.version != version:
            raise DataError(
                f"{self.path(version)} holds version {found.version}. Put the file of {version} "
                "back."
            )
        return found

    @property
    def wanted(self) -> Wanted | None:
        """Which version devices shall have; none before the first."""
        path = self.out / WANTED
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=_WantedFile)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise DataError(
                f"{path} does not say which version is wanted ({error}). Name one: posse devices "
                "deploy --version."
            ) from None
        if 0 < stored.canary < 1:
            raise DataError(
                f"{path} deploys version {stored.version} to {stored.canary:.0%} of the devices, "
                "and 0.2 deploys a version to all. Name one: posse devices deploy --version."
            )
        return Wanted(stored.version, stored.pinned)

    @property
    def held(self) -> dict[str, dict[str, Any]]:
        """What each device said it has: version, hash, when; and why it refused another one.

        What cannot be read counts as not said: such a device is asked again.
        """
        with suppress(OSError, ValueError):
            found = json.loads((self.out / HELD).read_text())
            return (
                {device: has for device, has in found.items() if _whole(has)}
                if isinstance(found, dict)
                else {}
            )
        return {}

    def add(self, version: Version, *, want: bool = True) -> Wanted:
        """Keep a new version and, unless it failed its gate, want it; a pinned one stays.

        Returns what is wanted then. Devices that have another model of the same number are asked
        again.
        """
        make_private_folder(self.out / VERSIONS)
        wanted = self.wanted
        self._forget(version)
        if want and not (wanted and wanted.pinned):
            wanted = Wanted(version.version)
            self.want(wanted)
        # Last, so that a version whose file exists is wanted, or was not meant to be.
        write_version(self.path(version.version), version)
        return wanted or Wanted(-1)

    def _forget(self, version: Version) -> None:
        """Forget the devices that have another model of the same number."""
        held = self.held
        kept = {
            device: has
            for device, has in held.items()
            if has["version"] != version.version or has.get("sha256") == version.hash
        }
        if len(kept) < len(held):
            write_whole(self.out / HELD, json.dumps(kept).encode())

    def want(self, wanted: Wanted) -> None:
        """Note which version devices shall have."""
        write_whole(self.out / WANTED, json.dumps(wanted.__dict__).encode())

    def note(self, device: str, **what: Any) -> None:
        """Note what a device said."""
        write_whole(
            self.out / HELD,
            json.dumps({**self.held, device: {**what, "at": int(time.time())}}).encode(),
        )

    def ask_again(self) -> None:
        """Forget who refused what, so that devices are asked again."""
        kept = {
            device: {key: value for key, value in has.items() if key not in ("refused", "why")}
            for device, has in self.held.items()
        }
        write_whole(self.out / HELD, json.dumps(kept).encode())

    def refusing(self) -> list[str]:
        """Return the devices that refuse the version they shall have."""
        wanted = self.wanted
        return sorted(
            one for one, has in self.held.items() if wanted and has.get("refused") == wanted.version
        )

    def missing(self, devices: Iterable[str]) -> dict[str, int]:
        """Return the devices that lack the wanted version and did not refuse it, each with it."""
        wanted, held = self.wanted, self.held
        if wanted is None or wanted.version < 0:
            return {}
        missing = {}
        for device in devices:
            has = held.get(device, {})
            if wanted.version not in (has.get("version"), has.get("refused")):
                missing[device] = wanted.version
        return missing


# Commands -----------------------------------------------------------------------------------------


def _versions(folder: Path) -> Versions:
    for out in (folder, folder / "run"):
        if (out / WANTED).exists():
            return Versions(out)
    raise ConfigError(
        f"{folder} holds no run on devices with a deployed model. Name the run's folder ('out')."
    )


def status(settings: StatusSettings) -> Iterator[Section]:
    """Show which version every device has."""
    versions = _versions(settings.folder)
    wanted, held, lines = versions.wanted, versions.held, lines_of(versions.out)
    assert wanted is not None
    rows = []
    for device, has in sorted(held.items()):
        state = "waits"
        if has.get("version") == wanted.version:
            state = "has it"
        elif has.get("refused") == wanted.version:
            state = "refuses it"
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(has.get("at", 0)))
        rows.append((device, str(has.get("version", "none")), state, when))
    notes = [
        f"wanted: version {wanted.version}" + ", until another one is deployed" * wanted.pinned
    ]
    if wanted.version >= 0 and wanted.version not in versions.known():
        notes.append(
            f"there is no file of version {wanted.version}: name another, 'posse devices deploy "
            "--version'"
        )
    yield Section(
        f"{words.count(len(held), 'device')}, {sum(row[2] == 'has it' for row in rows)} with the "
        "version to have",
        columns=("device", "version", "state", "last seen (UTC)"),
        rows=tuple(rows),
        numeric=(1,),
        notes=(
            *notes,
            f"versions kept: {', '.join(map(str, versions.known()))}; rounds done: {len(lines)}",
            *(f"{device}: {has['why']}" for device, has in sorted(held.items()) if has.get("why")),
        ),
        data={
            "wanted": wanted.__dict__,
            "versions": versions.known(),
            "devices": held,
            "rounds": len(lines),
        },
    )


def deploy(settings: DeploySettings) -> Iterator[Section]:
    """Want a version by its number, which then stays; or the newest, and those after it."""
    versions = _versions(settings.folder)
    known = versions.known()
    names = ", ".join(map(str, known)) or "none: there is no file of a version"
    named = "version" in settings.model_fields_set
    version = settings.version if named else _newest_passed(versions)
    if not named and version < 0:
        raise ConfigError(f"no version passed its gate. Name one of {names}.")
    if version not in known:
        raise ConfigError(f"there is no version {version}. Name one of {names}.")
    versions.read(version)
    versions.want(Wanted(version, pinned=named))
    versions.ask_again()
    yield replace(
        next(status(StatusSettings(folder=versions.out))), title=f"version {version} is wanted"
    )


def _newest_passed(versions: Versions) -> int:
    """Return the newest version that did not fail its gate; -1 where there is none."""
    passed = {line["version"]: line["passed"] for line in lines_of(versions.out, EVALUATIONS)}
    return max((one for one in versions.known() if passed.get(one, True)), default=-1)
