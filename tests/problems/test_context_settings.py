"""Settings of a contextual problem: what they make, and none of them left unheard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posse.core.errors import PosseError
from posse.problems.contexts.images import digits, kernel_means, kmeans, mnist
from posse.problems.contexts.settings import PROBLEMS, ContextSettings
from tests.kit.rules import refused


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    contents = {
        "clinic": "row,age,dose\nann,0.3,0.4\nbob,-0.1,0.2\n",
        "lab": "row,iron\nann,0.5\nbob,0.25\n",
        "pays": "row,wait,treat\nann,0,1\nbob,0.9,0.3\n",
    }
    paths = {name: tmp_path / f"{name}.csv" for name in contents}
    for name, path in paths.items():
        path.write_text(contents[name], encoding="utf-8")
    return paths


def own(files: dict[str, Path], **changes: Any) -> ContextSettings:
    features = {name: files[name] for name in ("clinic", "lab")}
    return ContextSettings(
        **{"problem": "own", "features": features, "rewards": files["pays"], **changes}
    )


def test_parties_without_number_are_refused_at_once() -> None:
    with refused("problems.parties.too-many"):
        ContextSettings(parties=10**12)


def test_the_default_needs_no_file() -> None:
    contexts = ContextSettings().contexts()
    assert contexts.name == "digits"
    assert contexts.features.tobytes() == digits(20).rows.tobytes()
    assert contexts.parties == ("party-1", "party-2")
    assert [len(block.columns) for block in contexts.blocks] == [10, 10]
    assert contexts.joint_norm_checked


def test_every_setting_of_digits_is_heard() -> None:
    contexts = ContextSettings(
        components=7, rows=100, columns=(1, 2, 4), norms="declared"
    ).contexts()
    assert contexts.features.shape == (100, 7)
    assert [block.columns for block in contexts.blocks] == [(0,), (1, 2), (3, 4, 5, 6)]
    assert not contexts.joint_norm_checked
    assert len(ContextSettings(parties=5).contexts().parties) == 5


def test_every_setting_of_clusters_is_heard() -> None:
    settings = ContextSettings(
        problem="clusters",
        arms=12,
        sigma=0.3,
        normalise="max",
        cluster_seed=4,
        rows=400,
        components=9,
        parties=3,
    )
    contexts, images = settings.contexts(), digits(9).first(400)
    wanted = kernel_means(images.rows, kmeans(images.rows, 12, 4), 0.3, "max")
    assert contexts.means.tobytes() == wanted.tobytes()
    assert contexts.features.tobytes() == images.rows.tobytes()
    assert (contexts.name, contexts.arms[0], len(contexts.arms)) == (
        "clusters of digits",
        "cluster-1",
        12,
    )
    assert len(contexts.parties) == 3


def test_mnist_and_its_clusters(data_dir: Path) -> None:
    if not (data_dir / "mnist").is_dir():
        pytest.skip(f"no mnist in {data_dir}; see the README of the data folder")
    contexts = ContextSettings(problem="mnist", data_dir=data_dir, rows=2000).contexts()
    assert contexts.features.tobytes() == mnist(data_dir).rows[:2000].tobytes()
    clusters = ContextSettings(
        problem="clusters", base="mnist", data_dir=data_dir, rows=2000, arms=30
    ).contexts()
    assert clusters.name == "clusters of mnist"
    assert clusters.features.tobytes() == contexts.features.tobytes()
    # The kernel as the chance of a reward: the best arm of a row pays more often than not.
    assert 0.5 < clusters.best < 0.8


def test_mnist_says_where_to_get_it(tmp_path: Path) -> None:
    with refused("problems.data_dir.file-missing"):
        ContextSettings(problem="mnist", data_dir=tmp_path).contexts()


def test_own_files(files: dict[str, Path]) -> None:
    contexts = own(files, bounds={"clinic": 0.8, "lab": 0.6}).contexts()
    assert contexts.parties == ("clinic", "lab")
    assert [block.bound for block in contexts.blocks] == [0.8, 0.6]
    assert len(own(files, rows=1).contexts()) == 1
    scaled = own(files, bounds={"clinic": 0.25, "lab": 0.6}, scale=True).contexts()
    assert np.linalg.norm(scaled.held("clinic"), axis=1).max() == pytest.approx(0.25)


def test_settings_are_text_too(files: dict[str, Path]) -> None:
    """As flags give them."""
    flags = {
        "features": f"clinic={files['clinic']}, lab={files['lab']}",
        "bounds": ["clinic=0.8", "lab=0.6"],
    }
    assert own(files, **flags).contexts().parties == ("clinic", "lab")
    assert own(files, **flags).bounds == {"clinic": 0.8, "lab": 0.6}
    assert ContextSettings.make({"columns": ["15", "5"], "rows": "100"}).columns == (15, 5)


def test_a_file_of_settings(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        f"problem = 'own'\nrewards = '{files['pays']}'\n[features]\nclinic = '{files['clinic']}'\n"
        f"lab = '{files['lab']}'\n[bounds]\nclinic = 0.8\nlab = 0.6\n",
        encoding="utf-8",
    )
    assert ContextSettings.make(file=path).contexts().parties == ("clinic", "lab")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"columns": (15, 5)},
        {"problem": "clusters", "arms": 5, "rows": 200},
        {"parties": 3, "norms": "declared"},
    ],
)
def test_a_record_can_be_given_again(values: dict[str, Any]) -> None:
    settings = ContextSettings(**values)
    contexts = settings.contexts()
    again = ContextSettings(**{**settings.resolved(), **settings.used(contexts)}).contexts()
    assert again.describe() == contexts.describe()
    assert again.means.tobytes() == contexts.means.tobytes()


def test_a_record_of_own_files_can_be_given_again(files: dict[str, Path]) -> None:
    settings = own(files)
    contexts = settings.contexts()
    assert settings.used(contexts) == {"rows": 2, "parties": 2}
    again = ContextSettings(**{**settings.resolved(), **settings.used(contexts)}).contexts()
    assert again.describe() == contexts.describe()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"arms": 20}, "arms applies to clusters, got 20 for digits. Leave arms out"),
        ({"sigma": 0.1}, "sigma applies to clusters"),
        ({"base": "mnist"}, "base applies to clusters"),
        ({"normalise": "sum"}, "normalise applies to clusters"),
        ({"cluster_seed": 2}, "cluster_seed applies to clusters"),
        (
            {"features": {"a": "a.csv"}},
            "own files are features and rewards, got no rewards. Give both",
        ),
        (
            {"rewards": "a.csv"},
            "own files are features and rewards, got no features",
        ),
        ({"data": {"rewards": "a.csv"}}, "got no features"),
        (
            {"data": {"feature": {}, "rewards": "a.csv"}},
            "data has no part 'feature'. Did you mean 'features'",
        ),
        (
            {"data": {"features": 3}},
            "data.features must be a table of files or frames by name, got int",
        ),
        ({"data": {"features": {"a": 3}}}, "data.features.a must be a file or a frame, got int"),
        (
            {"data": 3},
            "data must be a name, a file or a frame, or a table of features, rewards, got int",
        ),
        (
            {"data": [{"row": "ann", "age": 0.5}]},
            "a frame alone is not enough. Your own are a table of features",
        ),
        (
            {"data": {"features": {"a": "a.csv", "b": "b.csv"}, "rewards": "c.csv"}},
            "no file a.csv. Check the path",
        ),
        (
            {"data": "clusters", "features": "a=a.csv"},
            "features is a part of data, got both. Give one",
        ),
        (
            {"problem": "clusters", "features": "a=a.csv"},
            "features is a part of data, got problem too. Give one",
        ),
        (
            {"problem": "clusters", "data": "clusters"},
            "problem is another word for data, got both. Give one",
        ),
        ({"bounds": {"a": 0.5}}, "bounds applies to your own files"),
        ({"scale": True}, "scale applies to your own files"),
        ({"parties": 1}, "a party count of 1"),
        ({"columns": (20,)}, "a party count of 1"),
        (
            {"parties": 3, "columns": (15, 5)},
            "columns must be one count per party",
        ),
        ({"columns": (15, 6)}, "add up to 20 features, got 15,6"),
        ({"parties": 21}, "add up to 20 features, got 1,.* for 21 parties"),
        ({"components": 65}, r"components must be in \[1, 64\]"),
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"rows": 1798}, r"rows must be in \[1, 1797\], .* got 1798"),
        ({"problem": "clusters", "arms": 1}, r"arms must be in \[2, 1797\], .* got 1"),
        ({"problem": "clusters", "rows": 50}, r"arms must be in \[2, 50\], .* got 100"),
        ({"problem": "clusters", "sigma": 0.0, "arms": 3}, "sigma must be a finite number above 0"),
        (
            {"problem": "clusters", "cluster_seed": -1},
            r"seed of a clustering must be in \[0, 2\^63\), got -1",
        ),
        ({"problem": "own"}, "got no features"),
        (
            {"problem": "own", "features": {"a": "a.csv", "b": "b.csv"}},
            "got no rewards",
        ),
        (
            {"problem": "own", "components": 5},
            "components applies to the problems that Posse makes",
        ),
        ({"problem": "own", "columns": (1, 2)}, "columns applies to the problems that Posse makes"),
        ({"problem": "own", "norms": "declared"}, "norms applies to the problems that Posse makes"),
        (
            {"features": "a.csv"},
            "features must be pairs like clinic=clinic.csv,lab=lab.csv, got 'a.csv'",
        ),
        ({"features": "a=a.csv,a=b.csv"}, "features must be pairs like .* Give each name once"),
        ({"bounds": "a=much"}, "bounds.a must be a valid number"),
        ({"problem": "digit"}, "unknown data 'digit'. Did you mean 'digits'"),
        ({"party": 4}, "unknown setting 'party'. Did you mean 'parties'"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(values: dict[str, Any], says: str) -> None:
    with pytest.raises(PosseError, match=says) as caught:
        ContextSettings(**values).contexts()
    assert "\n" not in str(caught.value)


def test_a_number_of_parties_beside_files_must_be_theirs(files: dict[str, Path]) -> None:
    with refused("problems.parties.not-the-features"):
        own(files, parties=3).contexts()


@pytest.mark.parametrize("name", list(ContextSettings.model_fields))
def test_every_setting_says_what_it_is(name: str) -> None:
    assert (ContextSettings.model_fields[name].description or "").strip()


def test_every_problem_says_what_it_is() -> None:
    assert set(PROBLEMS) == {"digits", "mnist", "clusters", "own"}
