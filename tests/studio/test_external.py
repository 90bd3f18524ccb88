"""What a request can make the studio import or open: nothing outside Posse, unless it was allowed
or sent there.

The first half walks every setting of every system without the gate (`Catalogue.safe`): a setting
whose text reaches an import or a file must be marked in its class (`External`). The second half
sends such texts through the gate.
"""

from __future__ import annotations

import importlib
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, combinations, product
from os import PathLike, fsdecode
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from typer.testing import CliRunner

import posse
from posse.cli.app import app
from posse.core.errors import MissingExtraError
from posse.core.settings import IMPORTS, External, Settings
from posse.policies import own
from posse.problems.listing import listing
from posse.results.store import Store
from posse.studio.catalogue import Catalogue
from posse.studio.catalogue import _budgets as budgets
from posse.studio.guard import Refused
from posse.systems import registry
from posse.systems.modules import scene_of
from tests.studio.conftest import Server, Visitor
from tests.systems.toy.system import Toy

CANARY = "posse_canary"
SYSTEMS = (*registry.BUILT_IN, "toy")
BUDGET = "budget "
BUDGETS = tuple(f"{BUDGET}{name}" for name in ("arms", "sampled", "dp-combinatorial"))
FOUR = ("first", "before", "schedule", "model")

# Watching -----------------------------------------------------------------------------------------

_reached: list[str] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Note every event of the interpreter (an open file, a listed folder, a new process) that names
    a canary.
    """
    if _reached is None:
        return
    words = [fsdecode(one) for one in arguments if isinstance(one, str | bytes | PathLike)]
    if any(CANARY in word for word in words):
        _reached.append(event)


class _Finder:
    """Notes every module that is looked for and named like a canary, and finds none."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if _reached is not None and CANARY in name:
            _reached.append("import")


@pytest.fixture(scope="module", autouse=True)
def _watch() -> Iterator[None]:
    sys.addaudithook(_audit)  # it cannot be removed, and does nothing while nobody watches
    sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
    yield
    sys.meta_path.remove(_Finder)  # type: ignore[arg-type]


@contextmanager
def watched() -> Iterator[list[str]]:
    """Collect what is imported and opened in this block and named like a canary."""
    global _reached
    before, _reached = _reached, []
    try:
        yield _reached
    finally:
        _reached = before


# Texts and settings -------------------------------------------------------------------------------


@pytest.fixture
def canaries(tmp_path: Path) -> list[str]:
    """Texts that name code or a file that is there: a module, modules in files, tables, arrays and
    a folder.
    """
    code, table, arrays, folder = (
        tmp_path / f"{CANARY}{end}" for end in (".py", ".csv", ".npz", "")
    )
    code.write_text("def function(*given):\n    return 1\n")
    table.write_text("client,label,item,rating,x1\na,b,c,1,0.5\n")
    np.savez(arrays, images=np.zeros((2, 4, 4), np.uint8), labels=np.zeros(2, np.int64))
    folder.mkdir()
    (folder / "population.json").write_text("{}")
    return [
        f"{CANARY}:function",
        str(table),
        f"{code}:function",
        CANARY,
        *map(str, (code, arrays, folder)),
    ]


def shapes(model: type[Settings], field: str, text: str) -> Iterator[Any]:
    """A text in each form that a setting could take it in."""
    inside = [one for one in _kinds(model.model_fields[field].annotation) if _is_model(one)]
    parts = {*getattr(model, "parts", ()), *(name for one in inside for name in one.model_fields)}
    yield from (
        text,
        [text],
        [[text]],
        {"name": text},
        {"class": text},
        {"name": {"name": text}},
        {text: 1},
    )
    yield from (
        {"name": "ucb", "parameters": {"tau": text}},
        f"a={text},b={text}",
        f"{{name = '{text}'}}",
    )
    pair = {"a": text, "b": text}
    for some in chain.from_iterable(
        combinations(sorted(parts), count) for count in range(1, len(parts) + 1)
    ):
        yield from (dict.fromkeys(some, one) for one in (pair, text, f"a={text},b={text}"))
        yield {part: pair if part in getattr(model, "tables", ()) else text for part in some}


def _kinds(annotation: Any) -> Iterator[Any]:
    yield annotation
    yield from chain.from_iterable(map(_kinds, typing.get_args(annotation)))


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def accepts(model: type[Settings], field: str, value: Any) -> bool:
    """Whether the type of a setting may take a value; what a validator is given first may be
    anything.
    """
    known, decorators = (
        model.model_fields[field],
        model.__pydantic_decorators__.field_validators.values(),
    )
    if any(field in one.info.fields and one.info.mode != "after" for one in decorators):
        return True
    kind: Any = Annotated[known.annotation, *known.metadata] if known.metadata else known.annotation
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    except Exception:
        return True
    return True


def bases(model: type[Settings], name: str, folder: Path) -> list[dict[str, Any]]:
    """Settings in which a setting may have an effect: presets, scenarios, tables, and each choice
    and switch alone.
    """
    made: list[dict[str, Any]] = [{}]
    if name in SYSTEMS:
        system = registry.system(name)
        made.append(dict(system.about.demo.settings))
        made += [dict(one.settings) for one in scene_of(system).scenarios]
        made += own_tables(name, folder)
    for field, known in model.model_fields.items():
        words = [
            word
            for kind in _kinds(known.annotation)
            if typing.get_origin(kind) is typing.Literal
            for word in typing.get_args(kind)
        ]
        words += [not known.default] if known.annotation is bool else []
        made += [{field: word} for word in words if word != known.default]
    return [values for values in made if _valid(model, values)]


def _valid(model: type[Settings], values: Mapping[str, Any]) -> bool:
    with suppress(Exception):
        return bool(model(**values))
    return False


def own_tables(name: str, folder: Path) -> list[dict[str, Any]]:
    """A user's own tables, as each system takes them."""

    def table(text: str) -> str:
        path = folder / f"table-{len(list(folder.iterdir()))}.csv"
        path.write_text(text)
        return str(path)

    if name == "samba":
        ratings = "".join(f"{item},{stars}\n" for item in "abc" for stars in (1, 3, 4, 5))
        return [{"data": table(f"item,rating\n{ratings}"), "threshold": 3.5, "horizon": 20}]
    if name == "fed-contextual":
        rows = "".join(f"c{i % 5},{i / 40},{'ab'[i % 2]}\n" for i in range(40))
        clients = {"data": table(f"client,x1,label\n{rows}"), "cohort": 2, "horizon": 3}
        return [clients, {**clients, "scenario": "init", "pretrained": 2}]
    if name == "mpc-contextual":
        features = {party: table("row,x\n1,0.1\n2,0.2\n") for party in ("clinic", "lab")}
        return [
            {"data": {"features": features, "rewards": table("row,a,b\n1,0.1,0.9\n2,0.8,0.2\n")}}
        ]
    if name == "dp-combinatorial":
        offers, qualities = "agent,supplier,cost,capacity\n", "supplier,quality\n"
        offers += "".join(f"{agent},{supplier},0.1,5\n" for agent in "ab" for supplier in "xyz")
        qualities += "".join(f"{supplier},0.{at}\n" for at, supplier in enumerate("xyz", 4))
        return [{"data": {"offers": table(offers), "qualities": table(qualities)}, "horizon": 500}]
    return []


# The walk without the gate ------------------------------------------------------------------------


class Open(Catalogue):
    """A catalogue whose gate lets everything through."""

    def safe(self, model: type[Settings], given: Any) -> dict[str, Any]:
        return dict(given)


def use(catalogue: Catalogue, name: str, values: dict[str, Any], begin: bool = True) -> None:
    """Do with settings what a check or a budget does, and the beginning of a run; mistakes do not
    matter here.
    """
    with suppress(Exception):
        if name.startswith(BUDGET):
            catalogue.budget(name.removeprefix(BUDGET), values)
        elif catalogue.check(name, values)["ok"] and begin:
            system = registry.system(name)
            system.start(catalogue.settings(system, values)).advance(1)


def model_of(name: str) -> type[Settings]:
    """The settings of a system, or of a budget."""
    if name in SYSTEMS:
        return registry.system(name).Settings
    return dict(budgets())[name.removeprefix(BUDGET)].settings()


def reaching(name: str, texts: list[str], folder: Path, *fields: str) -> set[str]:
    """Settings without a mark, or those of `fields` without one, whose value is imported or
    opened.
    """
    model, catalogue = model_of(name), Open(folder / "files")
    beginnings = bases(model, name, folder)
    unmarked = [
        field for field in fields or model.model_fields if model.external_mark(field) is None
    ]
    return {field for field in unmarked if _reaches(catalogue, name, field, texts, beginnings)}


def _reaches(
    catalogue: Catalogue, name: str, field: str, texts: list[str], beginnings: list[dict[str, Any]]
) -> bool:
    model = model_of(name)
    for text in texts:
        values = [value for value in shapes(model, field, text) if accepts(model, field, value)]
        for base, (number, value) in product(beginnings, enumerate(values)):
            with watched() as events:
                use(
                    catalogue, name, {**base, field: value}, begin=number == 0 and text in texts[:2]
                )
            if events:
                return True
    return False


@pytest.mark.parametrize("name", [*SYSTEMS, *BUDGETS])
def test_every_setting_that_reaches_an_import_or_a_file_is_marked(
    name: str, canaries: list[str], tmp_path: Path
) -> None:
    assert reaching(name, canaries, tmp_path) == set()


def unmark(monkeypatch: pytest.MonkeyPatch, name: str, field: str) -> None:
    """Take the mark from a setting of a system, and the name that alone would have it checked."""
    known = registry.system(name).Settings.model_fields[field]
    metadata = [mark for mark in known.metadata if not isinstance(mark, External)]
    monkeypatch.setattr(known, "metadata", metadata)
    if known.annotation is Any:  # which marks a setting too
        monkeypatch.setattr(known, "annotation", str | dict[str, str | dict[str, str]])


MARKED = [
    (name, field)
    for name in SYSTEMS[:-1]
    for field in ("policy", "data", "encoding", *FOUR)
    if (mark := registry.system(name).Settings.model_fields.get(field)) is not None
    and any(isinstance(one, External) for one in mark.metadata)
]
"""Every setting of a system that is marked by more than its type."""


def test_these_are_all_marks() -> None:
    declared = {
        (name, field)
        for name in SYSTEMS[:-1]
        for field, known in registry.system(name).Settings.model_fields.items()
        if any(isinstance(one, External) for one in known.metadata)
    }
    assert declared == set(MARKED)


@pytest.mark.parametrize(("name", "field"), MARKED)
def test_the_walk_finds_each_setting_whose_mark_is_removed(
    name: str, field: str, canaries: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reaching(name, canaries, tmp_path, field) == set()
    unmark(monkeypatch, name, field)
    assert reaching(name, canaries, tmp_path, field) == {field}


class Grown(Toy):
    """The toy with settings that nobody marked."""

    system: ClassVar[str] = "toy"
    hook: str = ""
    """Imported, by path `plain` alone."""
    steps: tuple[str, ...] = ()
    """The names of modules."""
    notes: dict[str, str] | None = None
    """Files by name."""
    words: str = ""
    """Neither imported nor opened."""
    safe_hook: Annotated[str, IMPORTS] = ""
    """Imported, and marked."""
    other_name: str = Field("", alias="by_alias")
    """A field that its class alone knows by this name."""

    def load(self) -> Any:
        for hook in (self.hook if self.path == "plain" else "", self.safe_hook):
            if hook:
                own.load(hook)
        for step in self.steps:
            importlib.import_module(step)
        for file in (self.notes or {}).values():
            Path(file).read_text()
        return super().load()


def test_the_walk_finds_new_settings_without_a_mark(
    canaries: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(registry.system("toy")), "Settings", Grown)
    assert reaching("toy", canaries, tmp_path) == {"hook", "steps", "notes"}


def test_a_name_that_the_gate_does_not_know_has_no_value(tmp_path: Path) -> None:
    assert Catalogue(tmp_path / "files").safe(Grown, {"by_alias": "os:system"}) == {
        "by_alias": None
    }


DESCRIBED = re.compile(r"module:|\.py:|\.npz|\bencoding of\b|^folder of", re.IGNORECASE)
"""What help says of a setting that names code or a file."""


def settings_classes(base: type[Settings]) -> Iterator[type[Settings]]:
    for kind in base.__subclasses__():
        yield kind
        yield from settings_classes(kind)


def test_every_text_of_posse_that_is_said_to_name_code_or_a_file_is_marked() -> None:
    """Settings of parties and devices too, which no page gives today."""
    package = Path(posse.__file__).parent
    for file in package.rglob("*.py"):
        if re.search(r"^class .*Settings\b", file.read_text(encoding="utf-8"), re.MULTILINE):
            with suppress(ImportError, MissingExtraError):
                importlib.import_module(
                    ".".join(("posse", *file.relative_to(package).with_suffix("").parts))
                )
    said, unmarked = set[tuple[str, str]](), set[tuple[str, str]]()
    for kind in settings_classes(Settings):
        for name, known in kind.model_fields.items() if kind.__module__[:6] == "posse." else ():
            if str in _kinds(known.annotation) and DESCRIBED.search(known.description or ""):
                said.add((kind.__name__, name))
                unmarked |= {(kind.__name__, name)} if kind.external_mark(name) is None else set()
    assert unmarked == set()
    assert said >= {
        ("SourceSettings", "function"),
        ("ActSettings", "function"),
        ("DeliverySettings", "function"),
        ("PartyEntry", "encoding"),
        ("DeviceSettings", "start"),
        ("FedContextual", "first"),
    }


class Marks(Settings):
    """Settings of types that are marks themselves, or are none."""

    file: Path | None = None
    several: tuple[Path, ...] = ()
    named: dict[str, list[Path]] | None = None
    either: Annotated[str | Path, IMPORTS] = ""
    anything: Any = None
    inner: list[Annotated[str, IMPORTS]] | None = None
    plain: str = ""


def test_types_that_hold_a_path_or_anything_are_marks() -> None:
    marks = {name: Marks.external_mark(name) for name in Marks.model_fields}
    paths = {name for name, mark in marks.items() if mark is not None and mark.path}
    assert paths == {"file", "several", "named", "either"}
    assert (marks["anything"], marks["inner"], marks["plain"]) == (External(), IMPORTS, None)


class Unmarked(Settings):
    """What an installed system may have whose author marks nothing."""

    policy: str = "greedy"
    data: str = "own"


class AnyUnmarked(Settings):
    """The same, with settings that take anything."""

    policy: Any = "greedy"
    data: Any = "own"


@pytest.mark.parametrize("model", [Unmarked, AnyUnmarked])
def test_policy_and_data_are_checked_where_nobody_marks_them(
    model: type[Settings], tmp_path: Path
) -> None:
    catalogue = Catalogue(tmp_path / "files", ("mine:rate", "mine.csv"))
    for values in ({"policy": "greedy"}, {"policy": "mine:rate"}, {"data": "mine.csv"}):
        assert catalogue.safe(model, values) == values
    for values in (
        {"policy": "os:system"},
        {"policy": {"class": "os:system"}},
        {"data": "/etc/passwd"},
    ):
        refused = refusal(catalogue, model, values)
        assert refused is not None
        assert (refused.status, refused.more["field"]) == (400, next(iter(values)))


def test_no_system_and_no_budget_is_left_out() -> None:
    assert set(registry.names()) == set(SYSTEMS)
    assert {f"{BUDGET}{name}" for name, _ in budgets()} == set(BUDGETS)


# The gate -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SYSTEMS, *BUDGETS])
def test_the_gate_refuses_what_names_code_or_a_file(
    name: str, canaries: list[str], tmp_path: Path
) -> None:
    model, catalogue = model_of(name), Catalogue(tmp_path / "files")
    words = {**{field: field for field in model.model_fields}, **model.aliases}
    for word, text in product(words, canaries):
        field = words[word].partition(".")[0]
        mark = model.external_mark(field)
        for value in shapes(model, field, text) if mark is not None else ():
            with watched() as events:
                refused = refusal(catalogue, model, {word: value})
                use(
                    catalogue,
                    name,
                    {"scenario": "init", word: value} if word == "first" else {word: value},
                )
            assert events == [], (word, value)
            if refused is None:
                assert (mark, ":" in text) == (IMPORTS, False), (word, value)
            else:
                assert (refused.status, refused.more) == (400, {"field": word})


def refusal(catalogue: Catalogue, model: type[Settings], values: dict[str, Any]) -> Refused | None:
    """What the gate answers to settings; None where it lets them through."""
    try:
        catalogue.safe(model, values)
    except Refused as refused:
        return refused
    return None


def upload(visitor: Visitor, text: str) -> str:
    """Send a table, and return the word for it."""
    headers = {"content-type": "application/octet-stream"}
    return f"file:{visitor.client.post('/api/files', content=text.encode(), headers=headers).json()['id']}"


def requests(
    system: str, settings: dict[str, Any], field: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every request that gives settings, with a setting beside the others or as a value of a
    grid.
    """
    rest = {name: value for name, value in settings.items() if name != field}
    over = {"system": system, "settings": rest, "over": {field: [settings[field]]}}
    yield "/api/check", {"system": system, "settings": settings}
    yield "/api/stages", {"system": system, "settings": settings}
    yield from (
        ("/api/jobs", {"kind": kind, "system": system, "settings": settings})
        for kind in ("run", "choose")
    )
    yield from (("/api/jobs", {"kind": kind, **over}) for kind in ("sweep", "choose"))


@pytest.mark.parametrize(
    "field", ["first", "before", "schedule", "model", "policy", "encoding", "data", "data_dir"]
)
def test_no_request_runs_a_program_or_opens_a_file(
    field: str, visitor: Visitor, canaries: list[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    names = [f"touch {trace}-{client}" for client in range(3)]
    rows = [f"{names[i % 3]},{i / 40},{i / 7},{'aA'[i % 2]}" for i in range(40)]
    settings: dict[str, Any] = {
        "data": upload(visitor, "\n".join(["client,x1,x2,label", *rows])),
        "cohort": 2,
        "pretrained": 1,
        "horizon": 3,
        "client_column": "client",
        "label_column": "label",
        "scenario": "init-shift" if field == "before" else "init",
    }
    assert visitor.post("/api/check", {"system": "fed-contextual", "settings": settings}, 200)["ok"]
    shell, module, file, table = "os:system", canaries[0], canaries[2], canaries[1]
    path = field in ("data", "data_dir", "before")
    for text in (shell, module, file, *((table, "/etc/passwd") if path else ())):
        for address, body in requests("fed-contextual", {**settings, field: text}, field):
            with watched() as events:
                answer = visitor.client.post(address, json=body)
            assert (answer.status_code, answer.json().get("field")) == (400, field), (
                address,
                text,
                answer.text,
            )
            assert events == []
    assert list(tmp_path.glob("trace*")) == []
    assert visitor.get("/api/jobs") == visitor.get("/api/stages") == []


def test_what_is_built_in_passes(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path / "files")
    passing: dict[str, list[dict[str, Any]]] = {
        "fed-contextual": [
            *({"model": model} for model in ("auto", "linear", "bag-of-words", "cnn")),
            *(
                {"schedule": one}
                for one in ("constant", "inverse-sqrt", "falcon", "0.2, 0.1,5e-2", [0.2, 0.1], 0.1)
            ),
            *({"first": one} for one in ("clinic-*,lab-1", "Ärzte [12]")),
            {"policy": {"name": "falcon", "gamma": 10}},
            *(
                {"encoding": one}
                for one in ("", "latin-1", "UTF-8", "cp1252", "utf-8-sig", "ISO8859_15", "utf 16")
            ),
            {"keep": None, "before": None, "first": None, "data_dir": None},
        ],
        "samba": [
            {"policy": "epsilon-greedy"},
            {"policy": {"name": "softmax", "parameters": {"tau": "1e-2"}}},
        ],
    }
    for system in registry.systems():
        shipped = listing(system.about.problems, None)
        names = [] if shipped is None else [entry["name"] for entry in shipped.entries]
        assert names or system.name == "toy"
        for values in [*passing.get(system.name, ()), *({"data": name} for name in names)]:
            kept = {name: value for name, value in values.items() if value is not None}
            assert catalogue.safe(system.Settings, values) == kept


def test_what_was_allowed_at_the_start_passes_and_nothing_like_it(
    start: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, table = tmp_path / "allowed_functions.py", tmp_path / "pays.csv"
    code.write_text(
        "def rate(deployment): return 0.1\n"
        "def one(name): return name.endswith(('1', '2'))\n"
        "def model(shape, arms):\n"
        "    import jax.numpy as jnp\n"
        "    size = shape[0] * (shape[1] if len(shape) > 1 else 1)\n"
        "    init = lambda key: jnp.zeros((size, arms), jnp.float32)\n"
        "    return init, lambda params, x: x.reshape(x.shape[0], -1) @ params\n"
    )
    digits = [str(digit) for digit in range(10)]
    table.write_text(
        "\n".join([f"label,{','.join(digits)}", *(f"{digit}{',0.5' * 10}" for digit in digits)])
    )
    where = {name: f"{code}:{name}" for name in ("rate", "one", "model")}
    visitor = start(allowed=(*where.values(), str(table))).visitor()
    systems = {one["name"]: one for one in visitor.get("/api/systems")}
    assert not any(policy.get("own") for policy in systems["fed-contextual"]["policies"])
    base = {"cohort": 2, "clients": 5, "horizon": 3}
    allowed: list[dict[str, Any]] = [
        {"schedule": where["rate"]},
        {"model": where["model"]},
        {"first": where["one"], "scenario": "init"},
        {"before": str(table), "scenario": "init-shift"},
    ]
    for settings in allowed:
        said = visitor.post(
            "/api/check", {"system": "fed-contextual", "settings": {**base, **settings}}, 200
        )
        assert said["ok"], said
        field = next(iter(settings))
        name = settings[field]
        for other in (
            f"{name}2",
            name.upper(),
            f"./{name}",
            f" {name}",
            name.replace("/", "//", 1),
            f"{name}\n",
        ):
            body = {"system": "fed-contextual", "settings": {**base, **settings, field: other}}
            assert visitor.post("/api/check", body, 400)["field"] == field
    for field in ("data_dir", "keep", "model_out", "file"):  # a run could write there
        body = {"system": "fed-contextual", "settings": {field: str(table)}}
        assert visitor.post("/api/check", body, 400)["field"] == field


def test_the_command_allows_names_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(
        "posse.studio.serve.serve", lambda **options: started.append(options["allowed"])
    )

    def call(*flags: str) -> int:
        return CliRunner().invoke(app, ["studio", "--no-browser", *flags]).exit_code

    code, table = tmp_path / "allowed_names.py", tmp_path / "pays.csv"
    code.write_text("def rate(deployment): return 0.1\n")
    table.write_text("a\n")
    assert (
        call(
            "--allow",
            f"{code}:rate",
            "--allow",
            str(table),
            "--policy",
            "tests.kit.policies:Tuned",
        )
        == 0
    )
    assert started == [(f"{code}:rate", str(table), "tests.kit.policies:Tuned")]
    for wrong in (
        "nonsense",
        f"{code}:other",
        f"{tmp_path}",
        f"{tmp_path}/none.csv",
        "posse_canary:function",
    ):
        assert call("--allow", wrong) != 0
    assert len(started) == 1


def test_a_run_of_the_store_imports_nothing_when_it_is_looked_at(
    server: Server, visitor: Visitor, canaries: list[str]
) -> None:
    record = posse.run(
        posse.FedContextual(
            cohort=2, clients=5, horizon=2, scenario="init", pretrained=1, pretraining=1
        )
    )
    assert visitor.get(f"/api/runs/{Store().save(record)}")["again"]["policy"] == "softmax"
    shell = {"policy": {"name": "x", "class": canaries[0]}}
    for number, change in enumerate(
        [shell, *({field: canaries[2]} for field in FOUR), {"data": canaries[1]}]
    ):
        id = Store().save(replace(record, id=f"run-{number}", config={**record.config, **change}))
        with watched() as events:
            shown = visitor.get(f"/api/runs/{id}")
        assert shown["again"] is None
        assert events == [], change


def test_a_choice_takes_the_table_of_a_policy_as_it_is(
    visitor: Visitor, canaries: list[str]
) -> None:
    """The text of a table is no table: with the right keys it would be read as another one."""
    body = {"kind": "choose", "system": "samba", "settings": {"owners": 3, "horizon": 20}}
    written = f'x\' = 1, name = "{canaries[0]}", y = "'
    with watched() as events:
        answer = visitor.client.post(
            "/api/jobs", json={**body, "over": {"policy": [{written: '"} #', "name": "ucb"}]}}
        )
    assert (answer.status_code, answer.json()["field"], events) == (400, "policy", [])
    id = visitor.post(
        "/api/jobs", {**body, "over": {"policy": [{"name": "softmax", "tau": 0.2}]}}, 201
    )["id"]
    job = next(one for one in visitor.get("/api/jobs") if one["id"] == id)
    assert {cell["policy"] for cell in job["cells"]} == {"softmax"}
    visitor.client.delete(f"/api/jobs/{id}")


def test_names_and_tables_that_no_page_sends_are_refused(visitor: Visitor) -> None:
    for name in ("self", "FIRST", "first ", "_kept", "cached", "pοlicy"):
        said = visitor.post(
            "/api/check", {"system": "fed-contextual", "settings": {name: "os:system"}}, 200
        )
        assert not said["ok"]
    for deep in ('{"name":', "["):
        value = deep * 800 + '"ucb"' + ("}" if deep == '{"name":' else "]") * 800
        answer = visitor.client.post(
            "/api/check",
            content=f'{{"system": "samba", "settings": {{"policy": {value}}}}}',
            headers={"content-type": "application/json"},
        )
        assert (answer.status_code, answer.json()["field"]) == (400, "policy")


def test_a_folder_or_a_file_here_is_no_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / CANARY).mkdir()
    (tmp_path / "digits").mkdir()
    (tmp_path / "outside.csv").write_text("client,x1,label\n")
    catalogue = Catalogue(tmp_path / "files")
    for name, values in (
        ("fed-contextual", {"data": CANARY}),
        ("fed-contextual", {"data": "file:../outside"}),
        ("fed-contextual", {"data": f"file:{tmp_path}/outside"}),
        ("mpc-contextual", {"rewards": "digits"}),
        ("dp-combinatorial", {"data": {"offers": "uniform"}}),
    ):
        refused = refusal(catalogue, registry.system(name).Settings, values)
        assert refused is not None
        assert (refused.status, refused.more["field"]) == (400, next(iter(values)))
