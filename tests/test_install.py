"""Wheel and sdist, built and installed as a user does, outside the repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from posse.version import __version__

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "posse"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def outside(*words: str | Path, folder: Path) -> str:
    """Run a command in a folder, without what this environment says about Python and Posse; give
    what it says.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "POSSE_"))
    }
    environment |= {"POSSE_HOME": str(folder / "home"), "COLUMNS": "80"}
    command = [str(word) for word in words]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist; the wheel is built from what the sdist holds."""
    folder = tmp_path_factory.mktemp("dist")
    outside(
        sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def bare(folder: Path, *, beside: bool) -> Path:
    """Make an environment of its own; `beside`: with the packages installed here, but not with
    Posse.
    """
    venv.create(folder, with_pip=not beside)
    python = folder / "bin" / "python"
    if beside:  # lines of a .pth file in that folder, as that of an editable Posse, are not read
        there = outside(
            python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder
        ).strip()
        Path(there, "beside.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def test_every_file_of_the_package_is_in_wheel_and_sdist(built: tuple[Path, Path]) -> None:
    files = {
        path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*") if path.is_file()
    }
    files = {name for name in files if "__pycache__" not in name}
    assert {Path(name).suffix for name in files} >= {
        ".css",
        ".js",
        ".html",
        ".txt",
        ".csv",
        ".md",
        ".typed",
    }
    with zipfile.ZipFile(built[0]) as wheel:
        assert files <= set(wheel.namelist())
        assert not {
            name for name in wheel.namelist() if not name.startswith(("posse/", "posse_bandits-"))
        }
        (name,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
        metadata = message_from_bytes(wheel.read(name))
    with tarfile.open(built[1]) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    assert {f"src/{name}" for name in files} <= held
    assert {
        "Makefile",
        "CITATION.cff",
        "README.md",
        "docs/guide.md",
        "examples/own_policy.py",
        "reproduction/__main__.py",
    } <= held
    assert (metadata["Name"], metadata["Version"]) == ("posse-bandits", __version__)
    assert metadata["Author"] == "The Posse developers"
    assert metadata.get_all("Project-URL") is None
    assert set(metadata.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])


def test_the_demo_the_studio_and_a_report_work_from_the_wheel(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    python = bare(tmp_path / "env", beside=True)
    install = (
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
    )
    outside(sys.executable, *install, built[0], folder=tmp_path)
    posse = python.with_name("posse")
    assert outside(posse, "--version", folder=tmp_path) == f"posse {__version__}\n"
    where = outside(python, "-c", "import posse; print(posse.__file__)", folder=tmp_path)
    assert where.startswith(str(tmp_path))
    for kept in PACKAGE.rglob(
        "posse-compiled"
    ):  # files are named by digests of the sources: the same code there
        there = Path(where).parent / kept.relative_to(PACKAGE)
        shutil.copytree(kept, there, ignore=shutil.ignore_patterns("*.*"))  # such are being written
    said = outside(posse, "demo", "--horizon", "60", folder=tmp_path)
    assert "Identical" in said
    page = (tmp_path / "posse-demo" / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    style = (PACKAGE / "results" / "templates" / "page.css").read_text(encoding="utf-8")
    assert style.splitlines()[0] in page
    assert "--behind-proxy" in outside(posse, "studio", "--help", folder=tmp_path)


def test_the_command_of_a_hint_installs_this_project(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    """In a checkout and from a wheel, pip takes the printed command and finds Posse there."""
    script = "from posse.core.check import require; require('no_such_module', extra='plot')"
    here = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False
    )
    python = bare(tmp_path / "env", beside=True)
    pip = (sys.executable, "-m", "pip", "--python", str(python))
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    outside(*pip, "install", "--quiet", "--no-deps", "--no-index", built[0], folder=tmp_path)
    wheel = subprocess.run(
        [python, "-c", script],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    for said, begins, place in (
        (here.stderr, "pip install -e", ROOT),
        (wheel.stderr, "pip install", built[0]),
    ):
        (hint,) = re.findall(r"Install it with: (pip install .*)", said)
        *begin, what = shlex.split(hint)
        assert (" ".join(begin), what) == (begins, f"{place}[plot]")
        # Without -e, which needs a package that pip fetches for it.
        told = outside(
            *pip, "install", what, "--dry-run", "--ignore-installed", *offline, folder=tmp_path
        )
        assert f"Would install posse-bandits-{__version__}" in told


def test_the_version_stands_in_one_place() -> None:
    assert "version" not in PROJECT
    assert __version__ not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert not re.search(
        r"^version:", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
    )


@pytest.mark.long
def test_an_empty_environment_installs_what_a_hint_says(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    """The wheel alone runs; what is missing is named by a command that then installs it."""
    python = bare(tmp_path / "env", beside=False)
    posse = python.with_name("posse")
    outside(python, "-m", "pip", "install", "--quiet", built[0], folder=tmp_path)
    said = outside(posse, "demo", folder=tmp_path)
    (hint,) = re.findall(r"(pip install \S*\[\w+\]')", said)
    assert shlex.split(hint)[-1] == f"{built[0]}[plot]"
    outside(python, "-m", *shlex.split(hint), "--quiet", folder=tmp_path)
    outside(posse, "demo", folder=tmp_path)
    assert "<svg" in (tmp_path / "posse-demo" / "report.html").read_text(encoding="utf-8")
