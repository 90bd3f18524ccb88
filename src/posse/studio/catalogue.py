"""What can be set up: systems, policies, data and a user's own files; settings from a request, read
as flags are.

A request names what ships with Posse, data that lie in the folder of data sets, files that were
sent to the studio (`file:` and their digest), and code or files that were allowed when the studio
was started. It names no other path or module of this machine: settings that could are marked in
their class (`posse.core.settings.External`).
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posse.core import files
from posse.core.errors import DataError, PosseError
from posse.core.settings import IMPORTS, MATCH_NOTHING, External, Settings
from posse.policies import listing as policies
from posse.problems import listing as problems
from posse.problems.datasets.files import data_folder
from posse.studio.guard import UPLOAD, Refused
from posse.systems import base, registry
from posse.systems.audit import settings_of_record
from posse.systems.modules import commands_of, scene_of

if TYPE_CHECKING:
    from posse.results.record import Record
    from posse.systems.base import AnySystem, RunSettings
    from posse.systems.modules import Command

FILE = "file:"
STORED = 512 << 20
"""Bytes of all files that were sent, at most."""
LARGEST = 1_000_000
"""The largest whole number that a setting of the studio may be, seeds apart."""
MOST = {"owners": 200, "parties": 16, "agents": 100, "producers": 500, "arms": 1000}
"""The same of settings that say how many there are of something that is drawn."""
DEEPEST = 20
"""Tables and lists inside one another in a setting, at most."""
REMEMBERED = 16
"""Settings whose data stay loaded."""
MIDDLE = (0.5, 0.5)
"""Where a kind of role stands in a picture if its system does not place it."""
UNMARKED = {"policy": IMPORTS, "data": External()}
"""How settings of these names are checked where a system of somebody else does not mark them."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Uploads:
    """A user's own files, by digest; they stay for later runs."""

    def __init__(self, folder: Path) -> None:
        files.make_private_folder(folder)
        self._folder = folder

    def put(self, name: str, data: bytes) -> dict[str, Any]:
        """Keep a table that was sent, and say what it is."""
        if not data or len(data) > UPLOAD:
            raise Refused(
                413 if data else 400, f"a file may have 1 to {UPLOAD:,} bytes, got {len(data):,}."
            )
        if sum(path.stat().st_size for path in self._folder.iterdir()) + len(data) > STORED:
            raise Refused(
                413, f"the studio keeps {STORED:,} bytes of files. Remove some from {self._folder}."
            )
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Refused(400, "the file is no text in UTF-8. Send a CSV file.") from error
        lines = [
            line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
        ]
        if not lines or "\0" in text:
            raise Refused(400, "the file is empty or no text. Send a CSV file.")
        digest = hashlib.sha256(data).hexdigest()
        shown = re.sub(r"[^\w. ()-]", "_", Path(name).name)[:80] or "data.csv"
        files.write_whole(self._folder / f"{digest}.csv", data, mode=files.PRIVATE)
        note = f"{len(lines) - 1:,} rows; columns {lines[0][:200]}"
        said = {"id": digest, "name": shown, "size": len(data), "note": note}
        files.write_whole(
            self._folder / f"{digest}.json", json.dumps(said).encode(), mode=files.PRIVATE
        )
        return said

    def listed(self) -> list[dict[str, Any]]:
        """Files that are here."""
        return [json.loads(path.read_text()) for path in sorted(self._folder.glob("*.json"))]

    def path(self, word: str) -> Path:
        """Return where a file lies that settings name."""
        digest = word.removeprefix(FILE)
        path = self._folder / f"{digest}.csv"
        if not _DIGEST.fullmatch(digest) or not path.is_file():
            raise Refused(
                400,
                f"the file {digest[:12]} is not here. Send it to this studio first.",
                field="data",
            )
        return path

    def word(self, value: Any) -> Any:
        """Write paths of such files as settings of the studio name them."""
        if isinstance(value, Mapping):
            return {name: self.word(one) for name, one in value.items()}
        if isinstance(value, str) and (path := Path(value)).parent == self._folder:
            return f"{FILE}{path.stem}"
        return value

    def said(self, text: str) -> str:
        """Write a sentence with the names that files had when they were sent, and not with where
        they lie.
        """

        def name(found: re.Match[str]) -> str:
            about = self._folder / f"{found['digest']}.json"
            return str(json.loads(about.read_text())["name"]) if about.is_file() else found[0]

        return re.sub(
            rf"({re.escape(str(self._folder))}/)?(?P<digest>{_DIGEST.pattern})\.csv", name, text
        )


class Catalogue:
    """The systems as a page needs them, and settings from what a page sends."""

    def __init__(self, folder: Path, allowed: Sequence[str] = ()) -> None:
        """`allowed` are names of code and files, beside those that ship, which settings of a
        request may have.
        """
        self.uploads = Uploads(folder)
        self._allowed = tuple(allowed)
        self._made: OrderedDict[str, RunSettings] = OrderedDict()
        self._looked: dict[str, tuple[Any, list[Any]]] = {}
        self._reading, self._looking = threading.Lock(), threading.Lock()

    def systems(self) -> list[dict[str, Any]]:
        """Describe every system; of data those that were looked through before, or None
        (`data`).
        """
        with self._reading:  # a second page waits for what the first one reads
            return [self._system(one) for one in registry.systems()]

    def data(self) -> dict[str, list[Any]]:
        """Look through the data that each system knows, which takes seconds, again where a file of
        theirs changed.
        """
        now = _files()
        with self._looking:
            for one in registry.systems():
                if self._known(one, now) is None:
                    shipped = problems.listing(one.about.problems, None)
                    known = [] if shipped is None else list(shipped.entries)
                    self._looked[one.name] = now, known
        return {one.name: self._looked[one.name][1] for one in registry.systems()}

    def _known(self, one: AnySystem, now: Any) -> list[Any] | None:
        """Return the data of a system, if the files are those that were looked through."""
        before, known = self._looked.get(one.name, (None, []))
        return known if before == now else None

    def _system(self, one: AnySystem) -> dict[str, Any]:
        about, scene = one.about, scene_of(one)
        without_flag = commands_of(one).without_flag
        shipped = policies.listing(about.policies)
        known = [] if shipped is None else [dict(policy) for policy in shipped.entries]
        known += [
            made for name in self._allowed if (made := _own_policy(one.Settings, name)) is not None
        ]
        return {
            "name": one.name,
            "title": about.title,
            "summary": about.summary,
            "reference": about.reference,
            "protects": about.protects,
            "words": dict(about.nouns),
            "exact": about.exact,
            "roles": [
                {
                    **asdict(role),
                    "colour": list(role.colour),
                    "place": list(scene.places.get(role.kind, MIDDLE)),
                }
                for role in one.roles
            ],
            "levels": [{"name": level.name, "summary": level.summary} for level in one.levels],
            "schema": schema_of(one.Settings, without_flag),
            "groups": groups_of(one.Settings, without_flag),
            "scenarios": [plain(scenario) for scenario in scene.scenarios],
            "policies": known,
            "data": self._known(one, _files()),
        }

    def system(self, name: Any) -> AnySystem:
        """Return a system by the name that a request gives."""
        if not isinstance(name, str):
            raise Refused(400, "system must be the name of a system.", field="system")
        if name not in registry.names():
            raise Refused(
                400,
                f"unknown system '{name[:40]}'. Known: {', '.join(registry.names())}.",
                field="system",
            )
        return registry.system(name)

    def settings(self, system: AnySystem, given: Any) -> RunSettings:
        """Make settings of what a request gives; those used last keep their data."""
        values = self.safe(system.Settings, given)
        key = json.dumps([system.name, values], sort_keys=True, default=str)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = system.Settings(**values)
            while len(self._made) > REMEMBERED:
                self._made.popitem(last=False)
        else:
            self._made.move_to_end(key)
        return made

    def safe(self, model: type[Settings], given: Any) -> dict[str, Any]:
        """Refuse what a request may not name, and put paths in the place of files that were
        sent.
        """
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise Refused(400, "settings must be a table.")
        values: dict[str, Any] = {}
        for name, value in given.items():
            field = model.aliases.get(name, name).partition(".")[0]
            known = model.model_fields.get(field)
            if value is None and known is not None and known.default is None:
                continue
            _bounded(name, value)
            # The settings refuse an unknown name; without its value nothing depends on how they do
            # it.
            values[name] = None if known is None else self._inside(model, name, field, value)
        return values

    def _inside(self, model: type[Settings], name: str, field: str, value: Any) -> Any:
        """Refuse a value that names code or a file outside Posse, unless it is allowed or was sent
        to the studio.
        """
        mark = model.external_mark(field)
        if mark in (None, External()):
            mark = UNMARKED.get(field, mark)
        if mark is None:
            return value
        if mark.path:
            raise Refused(400, f"{name} is a path, which a page may not name.", field=name)
        if field == "data":
            part = "." in model.aliases.get(name, "")
            return self._data(name, value, MATCH_NOTHING if part else mark.built_in)
        self._check_names(name, value, mark.built_in)
        return value

    def _data(self, name: str, value: Any, built_in: str) -> Any:
        if isinstance(value, Mapping):
            return {key: self._data(name, part, MATCH_NOTHING) for key, part in value.items()}
        if isinstance(value, str) and value.startswith(FILE):
            return str(self.uploads.path(value))
        if not isinstance(value, str) or not self._may_name(value, built_in):
            raise Refused(
                400,
                f"{name} must be a data set that ships, a file sent to the studio, or a file "
                "allowed when the studio "
                f"starts, got {str(value)[:40]!r}. Send the file, or start the studio with --allow "
                "FILE.",
                field=name,
            )
        return value

    def _check_names(self, name: str, value: Any, built_in: str) -> None:
        """Refuse text that names code or a file outside Posse, at any depth; keys may become text
        too.
        """
        if isinstance(value, Mapping):
            self._check_names(name, [*value, *value.values()], built_in)
        elif isinstance(value, list | tuple):
            for part in value:
                self._check_names(name, part, built_in)
        elif isinstance(value, str) and not self._may_name(value, built_in):
            raise Refused(
                400,
                f"{name} must be built in, or allowed when the studio starts, got {value[:40]!r}. "
                "Choose another, or "
                "start the studio with --allow NAME.",
                field=name,
            )

    def _may_name(self, text: str, built_in: str) -> bool:
        return text in self._allowed or re.fullmatch(built_in, text) is not None

    def over(self, system: AnySystem, given: Any) -> dict[str, list[Any]]:
        """Check a grid: settings with the values that each takes."""
        if not isinstance(given, Mapping) or not all(
            isinstance(one, list) and one for one in given.values()
        ):
            raise Refused(400, "over must be a table of lists.", field="over")
        if any(len(one) > MOST["arms"] for one in given.values()):
            raise Refused(400, f"over may have {MOST['arms']} values of a setting.", field="over")
        return {
            name: [self.safe(system.Settings, {name: one}).get(name) for one in values]
            for name, values in given.items()
        }

    # Checking -------------------------------------------------------------------------------------

    def check(self, name: Any, given: Any) -> dict[str, Any]:
        """Say what settings come to, or what is wrong with them and with which."""
        system = self.system(name)
        try:
            settings = self.settings(system, given)
            settings.load()
            said = {
                "level": system.level_of(settings),
                "protection": settings.protection,
                **known(system, settings),
                "learns": list(level.learns(settings))
                if (level := base.level_or_none(system, settings))
                else [],
                "preview": self._preview(system, settings),
            }
        except Refused:  # what the studio does not allow is no mistake in the settings
            raise
        except PosseError as error:
            message = self.uploads.said(error.text)
            about = "data" if message != error.text else None
            named = field_of(system.Settings, error.text, given, about)
            return {"ok": False, "errors": [{"field": named, "message": message}]}
        return {"ok": True, "settings": self.shown(settings), "errors": [], **said}

    def _preview(self, system: AnySystem, settings: RunSettings) -> dict[str, Any]:
        made = dict(plain(preview(system, settings)))
        return {**made, "note": self.uploads.said(made.get("note") or "")}

    def shown(self, settings: RunSettings) -> dict[str, Any]:
        """Write settings as a page gives them: files by digest."""
        resolved = settings.resolved()
        return (
            {**resolved, "data": self.uploads.word(resolved["data"])}
            if "data" in resolved
            else resolved
        )

    def again(self, record: Record) -> dict[str, Any] | None:
        """Return the settings that start a run of the store again; None where a page may not give
        them.
        """
        try:
            model = self.system(record.kind).Settings
            for name, value in record.config.items():
                field = model.model_fields.get(name)
                if field is not None and value != field.default:
                    self._inside(model, name, name, self.uploads.word(value))
            return self.shown(settings_of_record(record))
        except PosseError:
            return None

    # Budgets --------------------------------------------------------------------------------------

    def budgets(self) -> list[dict[str, Any]]:
        """Describe the calculations of privacy that systems declare."""
        return [
            {
                "name": name,
                "title": " ".join(action.path),
                "summary": action.summary,
                "defaults": dict(action.defaults),
                "schema": schema_of(action.settings(), action.skip),
                "groups": groups_of(action.settings(), action.skip),
            }
            for name, action in _budgets()
        ]

    def budget(self, name: str, given: Any) -> dict[str, Any]:
        """Calculate one."""
        from posse.results.section import Section

        action = dict(_budgets()).get(name)
        if action is None:
            raise Refused(
                404, f"unknown budget '{name[:40]}'. Known: {', '.join(dict(_budgets()))}."
            )
        model = action.settings()
        values = {**action.defaults, **self.safe(model, given)}
        try:
            settings = model(**values)
            found = list(action.run(settings))
        except PosseError as error:
            raise Refused(400, error.text, field=field_of(model, error.text, given)) from error
        sections = [one for one in found if isinstance(one, Section)]
        uncovered = [
            note.removeprefix("- ")
            for one in sections
            if one.title == "Not covered"
            for note in one.notes
        ]
        return {
            "settings": settings.resolved(),
            "sections": [one.plain() for one in sections],
            "says": next((one.title for one in sections if "(" in one.title), ""),
            "not_covered": uncovered,
            "notes": [one for one in found if isinstance(one, str)],
            "data": [plain(one.data) for one in sections],
        }


def _own_policy(model: Any, name: str) -> dict[str, Any] | None:
    """Describe a policy of the user's own; None where a system does not take it."""
    if not hasattr(model, "registry"):
        return None
    try:
        made = model.registry.make(name)
    except PosseError:
        return None
    given = {one.name: plain(getattr(made, one.name)) for one in fields(made)}
    return {
        "name": name,
        "summary": " ".join((type(made).__doc__ or "").split()),
        "parameters": given,
        "own": True,
    }


def _budgets() -> Iterator[tuple[str, Command]]:
    for one in registry.systems():
        for action in commands_of(one).commands:
            if action.path[0] == "budget":
                yield ("-".join(action.path[1:]) or one.name), action


def _files() -> list[tuple[str, int, int]]:
    """Return names, sizes and dates of the files in the folder of data sets."""
    try:
        folder = data_folder()
        found = [(str(path), path.stat()) for depth in ("*", "*/*") for path in folder.glob(depth)]
    except (DataError, OSError):
        return []
    return sorted((name, said.st_size, said.st_mtime_ns) for name, said in found)


def schema_of(model: type[Settings], skip: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of settings, without those that are not offered or name a path."""
    made = model.model_json_schema()
    for name in model.model_fields:
        if name in skip or _is_path(model, name):
            made["properties"].pop(name, None)
    made["aliases"] = dict(model.aliases)
    return made


def groups_of(model: type[Settings], skip: Sequence[str]) -> list[dict[str, Any]]:
    """Return the settings under the headings that help has."""
    groups: dict[str, list[str]] = {}
    for name in model.model_fields:
        if name not in skip and not _is_path(model, name):
            groups.setdefault(model.heading(name), []).append(name)
    return [{"title": heading, "fields": names} for heading, names in groups.items()]


def field_of(
    model: type[Settings], text: str, given: Mapping[str, Any], about: str | None = None
) -> str | None:
    """Guess which setting a sentence is about: the first given one that it names, else `about` or
    the first named.
    """
    names = {name: name for name in model.model_fields} | {
        word: name.partition(".")[0] for word, name in model.aliases.items()
    }
    found = [names[word] for word in re.findall(r"[A-Za-z_]+", text) if word in names]
    stated = {names.get(word, word) for word in given}
    return next((name for name in found if name in stated), about or (found[0] if found else None))


def known(system: AnySystem, settings: RunSettings) -> dict[str, Any]:
    """Say what each kind of role knows, can never know and could find out, and what is not
    protected.
    """
    roles = [role.kind for role in system.roles if role.party]
    return {
        "not_protected": list(base.not_protected(system, settings)),
        "knowledge": {kind: plain(scene_of(system).knowledge(settings, kind)) for kind in roles},
    }


def preview(system: AnySystem, settings: RunSettings) -> Mapping[str, Any]:
    """Return what is learnt, to be looked at before a run: arms with their means."""
    if (made := scene_of(system).preview(settings)) is not None:
        return made
    problem: Mapping[str, Any] = settings.problem()
    names, means = problem.get("names") or (), problem.get("means") or ()
    arms = [{"name": name, "mean": mean} for name, mean in zip(names, means, strict=False)]
    return {"arms": arms, "histogram": [], "note": problem.get("source", "")}


def plain(value: Any) -> Any:
    """Write a value with what JSON has."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not (-1e308 < value < 1e308):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _is_path(model: type[Settings], name: str) -> bool:
    mark = model.external_mark(name)
    return mark is not None and mark.path


def _bounded(name: str, value: Any, depth: int = 0) -> None:
    """Refuse numbers that would fill the machine, and texts and tables that nobody types."""
    if depth > DEEPEST:
        raise Refused(
            400, f"{name} may have {DEEPEST} tables inside one another, got more.", field=name
        )
    if isinstance(value, Mapping):
        for one in value.values():
            _bounded(name, one, depth + 1)
    elif isinstance(value, list | tuple):
        if len(value) > MOST["arms"]:
            raise Refused(
                400,
                f"{name} may have {MOST['arms']:,} values here, got {len(value):,}.",
                field=name,
            )
        for one in value:
            _bounded(name, one, depth + 1)
    elif isinstance(value, str):
        if len(value) > 200:
            raise Refused(
                400, f"{name} may have 200 characters here, got {len(value):,}.", field=name
            )
        if re.fullmatch(r"\s*[+-]?\d+\s*", value):
            _bounded(name, int(value))
    elif isinstance(value, int) and not isinstance(value, bool) and "seed" not in name:
        most = MOST.get(name, LARGEST)
        if abs(value) > most:
            raise Refused(
                400,
                f"{name} may be {most:,} in the studio, got {value:,}. Use the command line.",
                field=name,
            )
