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

A new version goes to a share of the devices first, if `canary` is set: those whose names hash
lowest, the same ones every time. The others have the version before it until someone deploys it to
all (`posse devices deploy`), or takes the devices back to a named version (`posse devices
rollback`), which then stays until another one is deployed by name.
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
from posse.core.files import make_folder, write_whole
from posse.results import words
from posse.results.reports.sections import Section
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
        )
        right = told["sha256"] == made.hash
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise ProtocolError(f"a version does not say what it is: {error!r}.") from None
    if not right:
        raise ProtocolError(
            f"version {made.version} is not what its hash says: it was altered on its way."
        )
    return made


def write_version(path: Path, version: Version) -> None:
    """Write a version to a file, which appears whole or not at all."""
    from posse.systems.fed_contextual.computing.models import write_arrays

    leaves = {f"leaf{at}": leaf for at, leaf in enumerate(version.leaves)}
    write_arrays(
        path, deployment=np.array(version.version), about=np.array(version.about()), **leaves
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
    canary: float = 0.0
    """Share of devices that get it; 0 or 1 for all."""
    before: int = -1
    """Version of the others."""
    pinned: bool = False
    """Whether it stays though others are made: someone named it."""

    def of(self, device: str) -> int:
        """Return the version that a device shall have."""
        place = (
            int.from_bytes(
                hashlib.sha256(b"posse canary\x00" + device.encode()).digest()[:8], "big"
            )
            / 2.0**64
        )
        return self.version if not 0 < self.canary < 1 or place < self.canary else self.before

    def said(self, version: int) -> str:
        """Say what this means for a version that was made.

        >>> Wanted(4, 0.25, 2).said(4), Wanted(2, pinned=True).said(4)
        ('it is deployed to 25% of the devices', 'it is not deployed: version 2 stays until another one is named')
        """
        if self.version != version:
            return (
                f"it is not deployed: version {self.version} stays"
                + " until another one is named" * self.pinned
            )
        return "it is deployed" + f" to {self.canary:.0%} of the devices" * (0 < self.canary < 1)


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
            return msgspec.json.decode(path.read_bytes(), type=Wanted)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise DataError(
                f"{path} does not say which version is wanted ({error}). Name one: posse devices "
                "deploy --version."
            ) from None

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

    def add(self, version: Version, canary: float, *, want: bool = True) -> Wanted:
        """Keep a new version and, unless it failed its gate, want it, for a share of devices; a
        pinned one stays.

        Returns what is wanted then. Devices that have another model of the same number are asked
        again.
        """
        make_folder(self.out / VERSIONS)
        wanted = self._wanted(version, canary, want)
        write_version(
            self.path(version.version), version
        )  # last: what is known is wanted, or was not meant to be
        return wanted

    def _wanted(self, version: Version, canary: float, want: bool) -> Wanted:
        now, number, held = self.wanted, version.version, self.held
        other = {
            one
            for one, has in held.items()
            if has["version"] == number and has.get("sha256") != version.hash
        }
        if other:
            kept = {device: has for device, has in held.items() if device not in other}
            write_whole(self.out / HELD, json.dumps(kept).encode())
        if not want or (now and (now.pinned or now.version == number)):
            return now or Wanted(-1)
        partly = now and 0 < now.canary < 1
        wanted = (
            Wanted(number, canary, now.before if partly else now.version) if now else Wanted(number)
        )
        self.want(wanted)
        return wanted

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
            one for one, has in self.held.items() if wanted and has.get("refused") == wanted.of(one)
        )

    def missing(self, devices: Iterable[str]) -> dict[str, int]:
        """Return the version that each device shall have and has not, unless it refused it."""
        wanted, held = self.wanted, self.held
        if wanted is None:
            return {}
        shall = {device: wanted.of(device) for device in devices}
        has = {device: held.get(device, {}) for device in shall}
        return {
            device: version
            for device, version in shall.items()
            if version >= 0
            and version not in (has[device].get("version"), has[device].get("refused"))
        }


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
    rows, both = [], {wanted.version, wanted.before} if 0 < wanted.canary < 1 else {wanted.version}
    lost = [at for at in sorted(both) if at >= 0 and at not in versions.known()]
    for device, has in sorted(held.items()):
        shall = wanted.of(device)
        state = (
            "has it"
            if has.get("version") == shall
            else "refuses it"
            if has.get("refused") == shall
            else "waits"
        )
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(has.get("at", 0)))
        rows.append((device, str(has.get("version", "none")), str(shall), state, when))
    some = f" for {wanted.canary:.0%} of the devices, version {wanted.before} for the others" * (
        0 < wanted.canary < 1
    )
    yield Section(
        f"{words.count(len(held), 'device')}, {sum(row[3] == 'has it' for row in rows)} with the "
        "version to have",
        columns=("device", "version", "shall have", "state", "last seen (UTC)"),
        rows=tuple(rows),
        numeric=(1, 2),
        notes=(
            "wanted: version "
            f"{wanted.version}{some}{', until another one is named' if wanted.pinned else ''}",
            *(
                f"there is no file of version {at}: name another, 'posse devices deploy --version'"
                for at in lost
            ),
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
    """Want a version by name, for all devices or a share of them."""
    yield from _named(settings, pinned=False)


def rollback(settings: DeploySettings) -> Iterator[Section]:
    """Take devices back to a version, which then stays."""
    yield from _named(settings, pinned=True)


def _named(settings: DeploySettings, *, pinned: bool) -> Iterator[Section]:
    versions, now = _versions(settings.folder), None
    with suppress(DataError):  # it may be damaged, and is written anew
        now = versions.wanted
    known = versions.known()
    names = ", ".join(map(str, known)) or "none: there is no file of a version"
    passed = {line["version"]: line["passed"] for line in lines_of(versions.out, EVALUATIONS)}
    newest = max((one for one in known if passed.get(one, True)), default=-1)
    named = "version" in settings.model_fields_set
    if not named and (pinned or newest < 0):
        why = "a rollback needs --version" if pinned else "no version passed its gate"
        raise ConfigError(f"{why}. Name one of {names}.")
    version = settings.version if named else newest
    if version not in known:
        raise ConfigError(f"there is no version {version}. Name one of {names}.")
    versions.read(version)
    before = -1 if now is None else now.before if 0 < now.canary < 1 else now.version
    if 0 < settings.canary < 1 and before not in known:
        raise ConfigError(
            "the version of the other devices is not known. Deploy one to all devices first."
        )
    wanted = Wanted(version, settings.canary, before if 0 < settings.canary < 1 else -1, pinned)
    versions.want(wanted)
    versions.ask_again()
    yield replace(
        next(status(StatusSettings(folder=versions.out))), title=f"version {version} is wanted"
    )
