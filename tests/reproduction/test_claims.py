"""Claims of the documents: complete, judged by reproductions, with commands that run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posse.cli.app import app
from posse.core.errors import ConfigError
from reproduction import EXPERIMENTS, claims
from reproduction.claims import FAILS, HOLDS, UNKNOWN, Finding, combined, pages
from reproduction.kit import Mean, bonferroni, growth, judge, runs_needed
from tests.reproduction.conftest import Reproduce

NUMBERED = {
    "samba": [*(f"Figure {n}" for n in range(1, 9)), *(f"Theorem {n}" for n in range(1, 5))],
    "samba-demo": ["Figure 1", "Figure 2"],
    "mpc-contextual": [
        *(f"Figure {n}" for n in range(1, 10)),
        "Table 1",
        "Theorem 1",
        *(f"Algorithm {n}" for n in range(1, 4)),
    ],
    "dp-combinatorial": [
        *(f"Figure {n}" for n in range(1, 6)),
        "Theorem 1",
        "Claim 1",
        "Algorithm 1",
        "Algorithm 2",
    ],
    "fed-contextual": [
        *(f"Figure {n}" for n in range(1, 5)),
        *(f"Table {n}" for n in range(1, 10)),
        *(f"Algorithm {n}" for n in range(1, 5)),
    ],
}
"""Every figure, table, theorem and algorithm that the documents number."""
ROOT = Path(__file__).parents[2]


def spelled(place: str) -> str:
    """Write 'Figures 2 and 7' as 'Figure 2, Figure 7'."""
    return re.sub(r"Figures (\d+) and (\d+)", r"Figure \1, Figure \2", place)


@pytest.mark.parametrize("name", claims.DOCUMENTS)
def test_everything_numbered_has_a_row(name: str) -> None:
    places = ", ".join(spelled(claim.place) for claim in claims.document(name).claims)
    missing = [what for what in NUMBERED[name] if not re.search(rf"{what}(?!\d)", places)]
    assert missing == []
    assert claims.document(name).departures


def test_every_reproduction_has_rows_and_every_row_a_reproduction_or_a_reason() -> None:
    every = [claim for name in claims.DOCUMENTS for claim in claims.document(name).claims]
    assert len({claim.id for claim in every}) == len(every)
    assert set(EXPERIMENTS) <= {claim.reproduction for claim in every}
    for claim in every:
        assert (claim.reproduction in EXPERIMENTS) != bool(claim.note), claim.id
    for name, made in claims.measured().items():
        assert name in EXPERIMENTS
        assert made.reproduction == name
        assert {one.claim for one in made.findings} == {
            claim.name for claim in claims.claims_of(name)
        }


def test_commands_of_rows_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for command in sorted({row.command for row in claims.rows() if row.command}):
        program, *words = shlex.split(command)
        if program == "posse":
            assert CliRunner().invoke(app, words).exit_code == 0, command
            continue
        *begin, id = (word for word in (program, *words) if word != "--small")
        assert begin == ["python", "-m", "reproduction", "run"]
        assert id in EXPERIMENTS


def test_the_page_is_what_the_rows_say() -> None:
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == pages.claims_page(), (
        "run: make claims"
    )


def test_tables_of_full_forms_are_of_record_and_have_their_pictures() -> None:
    full, folder = (
        {name for name, made in claims.measured().items() if not made.small},
        ROOT / "docs" / "reproduced",
    )
    pages = {path for path in folder.glob("*.md") if path.name != "index.md"}
    assert {path.stem for path in pages} == {name.replace("/", "-") for name in full}
    shown = {
        name
        for path in pages
        for name in re.findall(r"]\((.*?\.svg)\)", path.read_text(encoding="utf-8"))
    }
    assert shown == {path.name for path in folder.glob("*.svg")}


def test_verdicts_follow_intervals() -> None:
    assert judge("a", Mean(-0.02, 0.01, 5)).verdict == FAILS
    told = judge("a", Mean(0.01, 0.02, 5))
    assert told.verdict == UNKNOWN
    assert "about 20 runs" in told.because
    assert "one run" in runs_needed(Mean(1.0, float("nan"), 1))
    assert bonferroni(Mean(1.0, 0.5, 9), 5).half > 0.5
    assert growth([1, 2, 4], [1, 4.1, 16]).low < 2 < growth([1, 2, 4], [1, 4.1, 16]).high
    parts = [Finding("x", "1", HOLDS), Finding("y", "2", FAILS), Finding("z", "3", UNKNOWN, "few")]
    assert combined("all", parts).verdict == FAILS
    with pytest.raises(ValueError, match="say because"):
        Finding("x", "1", UNKNOWN)
    with pytest.raises(ValueError, match="a verdict is one of"):
        Finding("x", "1", "maybe")


def test_what_a_user_measures_takes_its_place(tmp_path: Path, reproduce: Reproduce) -> None:
    findings = [Finding(claim.name, "seen", HOLDS) for claim in claims.claims_of("samba/theorems")]
    with pytest.raises(ValueError, match="has the claims"):
        claims.measurement("samba/theorems", True, findings[1:])
    with pytest.raises(ValueError, match="has the claims none"):
        claims.measurement("samba/other", True, [])
    made = claims.measurement("samba/theorems", False, findings)
    folder = tmp_path / "samba" / "theorems"
    folder.mkdir(parents=True)
    made.write(folder / "claims.json")
    own = claims.rows(["samba/theorems"], tmp_path)
    assert {row.measured for row in own} == {"seen"}
    assert own[0].command == "python -m reproduction run samba/theorems"
    told = json.loads(reproduce("claims", "samba/theorems", "--out", str(tmp_path), "--json").out)
    assert {row["verdict"] for row in told} == {HOLDS}
    assert told[0]["date"] == made.date
    # A small form takes the place of no full one.
    other = tmp_path / "z"
    other.mkdir()
    replace(
        made, small=True, findings=tuple(replace(one, measured="less") for one in findings)
    ).write(other / "claims.json")
    assert {row.measured for row in claims.rows(["samba/theorems"], tmp_path)} == {"seen"}
    (other / "claims.json").write_text("{}")
    with pytest.raises(ConfigError, match="not what a reproduction writes"):
        claims.rows(folder=tmp_path)
    with pytest.raises(ConfigError, match="no claim matches"):
        claims.rows(["nothing/*"])


def test_claims_on_screen(reproduce: Reproduce) -> None:
    shown = reproduce("claims", "samba-demo/*").out
    assert HOLDS in shown
    assert "5 claims" in shown


def test_tables_and_pictures_of_full_forms_are_kept(tmp_path: Path) -> None:
    findings = [Finding(claim.name, "seen", HOLDS) for claim in claims.claims_of("samba/theorems")]
    for small, name in ((True, "small"), (False, "full")):
        out = tmp_path / name
        out.mkdir()
        claims.measurement("samba/theorems", small, findings, "a machine").write(
            out / "claims.json"
        )
        (out / "analysis.md").write_text(f"# Theorems, {name}\n\n**So.**\n\nFiles: `x.csv`\n")
        (out / "x.svg").write_text(
            '<svg><path transform="scale(0.015625)" d="M 1.2345 2.0"/></svg>'
        )
    kept = tmp_path / "reproduced"
    pages.keep_figures(tmp_path, kept)
    assert sorted(path.name for path in kept.iterdir()) == [
        "index.md",
        "samba-theorems.md",
        "samba-theorems.svg",
    ]
    page = (kept / "samba-theorems.md").read_text()
    assert page.startswith("# Theorems, full\n\n`python -m reproduction run samba/theorems`, 20")
    assert ", a machine.\n\n![Theorems, full](samba-theorems.svg)\n\n**So.**\n" in page
    assert "Files" not in page
    assert (
        kept / "samba-theorems.svg"
    ).read_text() == '<svg><path transform="scale(0.015625)" d="M1.2 2"/></svg>'
    assert "- [Theorems, full](samba-theorems.md)" in (kept / "index.md").read_text()


def test_measurements_become_those_of_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce
) -> None:
    of_record = tmp_path / "measured"
    shutil.copytree(claims.MEASURED, of_record)
    monkeypatch.setattr(claims, "MEASURED", of_record)
    findings = [Finding(claim.name, "seen", HOLDS) for claim in claims.claims_of("samba/theorems")]
    out = tmp_path / "out" / "samba" / "theorems"
    out.mkdir(parents=True)
    measurement = claims.measurement("samba/theorems", False, findings)
    measurement.write(out / "claims.json")
    (out / "analysis.md").write_text("# Theorems\n\n**So.**\n")
    page = tmp_path / "claims.md"
    said = reproduce("claims", "--out", str(out), "--keep", str(page)).out
    assert "new measurements: samba/theorems" in said
    assert claims.read(of_record / "samba-theorems.json") == measurement
    assert "| seen |" in page.read_text()
    assert (tmp_path / "reproduced" / "samba-theorems.md").exists()
    assert (
        "new measurements: none" in reproduce("claims", "--out", str(out), "--keep", str(page)).out
    )
