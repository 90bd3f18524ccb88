"""The tutorial notebooks run in a kernel as a user's do, and what they make shows itself."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

BOOKS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.ipynb"))
SHOWN = {  # by notebook and cell: what its last line shows, and words of it
    "samba": {
        1: "What is not protected",
        3: "world seeds are the same",
        5: "png",
        9: "finds it out",
    },
    "mpc-contextual": {1: "What is not protected", 3: "world seeds are the same", 5: "png"},
    "dp-combinatorial": {1: "What is not protected", 3: "alone", 5: "epsilon"},
    "fed-contextual": {1: "What is not protected", 3: "noise", 5: "png"},
}
"""Cells are counted with those of text."""


def cells_of(path: Path) -> list[Any]:
    return list(nbformat.read(path, as_version=4).cells)


def test_there_is_one_a_system_and_no_output_is_committed() -> None:
    from posse.systems import registry

    assert {path.stem for path in BOOKS} == set(registry.names()) == set(SHOWN)
    for path in BOOKS:
        nbformat.validate(nbformat.read(path, as_version=4))
        assert not [
            cell for cell in cells_of(path) if cell.get("outputs") or cell.get("execution_count")
        ]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem == "samba" else pytest.mark.long)
        for path in BOOKS
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_notebook_runs_and_shows_what_it_makes(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))
    for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        book, timeout=1800, startup_timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    for number, words in SHOWN[path.stem].items():
        shown = {
            kind: text
            for output in book.cells[number].outputs
            for kind, text in output.get("data", {}).items()
        }
        if words == "png":
            assert base64.b64decode(shown["image/png"]).startswith(b"\x89PNG"), number
        else:
            assert words in shown["text/html"], (number, sorted(shown))
    bars = [
        one
        for one in book.cells[1].outputs
        if "<progress" in one.get("data", {}).get("text/html", "")
    ]
    assert len(bars) == 1  # updated in place, not written again
    assert 'value="1.000"' in bars[0]["data"]["text/html"]
