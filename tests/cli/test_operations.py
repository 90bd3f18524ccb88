"""How a machine runs a party: units of systemd, an image and a compose file."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from posse.cli.app import app
from posse.cli.operators.party import unit_text, units_with_old_names
from posse.core.settings import read_toml
from posse.runtime.local import write_party
from tests.kit.federations import laid_out

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def sections(text):
    """Read a unit back: values by section and name, in order."""
    found, name = {}, ""
    for line in filter(None, text.splitlines()):
        if re.fullmatch(r"\[\w+\]", line):
            name = line[1:-1]
            found[name] = {}
        else:
            key, _, value = line.partition("=")
            found[name].setdefault(key, []).append(value)
    return found


@pytest.fixture
def party(tmp_path):
    folder = tmp_path / "a b 50%"
    folder.mkdir()
    return next(path for path in laid_out(folder) if path.stem == "clinic-1")


def test_a_unit_runs_the_party_with_few_rights(party, tmp_path):
    said = CliRunner().invoke(app, ["party", "unit", str(party), "--user", "clinic"])
    assert said.exit_code == 0, said.output
    found = sections(said.stdout)
    service = {key: " ".join(values) for key, values in found["Service"].items()}
    assert service["User"] == "clinic"
    assert service["ExecStart"].endswith(
        f' party start "{str(party.resolve()).replace("%", "%%")}"'
    )
    assert service["Restart"] == "on-failure"
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectKernelTunables", "RestrictNamespaces"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["LimitCORE"] == "0"
    writable = service["ReadWritePaths"].replace("%%", "%")
    assert f'"-{party.parent / "clinic-1" / "journal"}"' in writable
    assert f'"-{party.parent / "clinic-1"}"' in writable
    assert set(found) == {"Unit", "Service", "Install"}


def test_a_port_below_1024_gets_the_one_right_it_needs(party):
    write_party(party, {**read_toml(party), "listen": "*:443"})
    service = sections(
        unit_text(
            party, "posse", "party start", Path("/opt/posse/bin/posse"), Path("/var/lib/posse")
        )
    )["Service"]
    assert (
        service["CapabilityBoundingSet"]
        == service["AmbientCapabilities"]
        == ["CAP_NET_BIND_SERVICE"]
    )


def test_a_file_that_would_not_start_gets_no_unit(party, tmp_path):
    federation = tmp_path / "federation.toml"
    federation.write_text('protocol = "samba"\n[[owners]]\nname = "clinic-1"\n', encoding="utf-8")
    said = CliRunner().invoke(app, ["party", "unit", str(federation)])
    assert said.exit_code == 2
    assert "this is a federation's file" in " ".join(said.stderr.split())
    service = tmp_path / "service.toml"
    service.write_text('home = "home"\nidentity = "clinic-1"\n', encoding="utf-8")
    assert " serve " in CliRunner().invoke(app, ["party", "unit", str(service)]).stdout


def test_a_unit_is_not_written_over_another(party, tmp_path):
    out = tmp_path / "posse-clinic.service"
    for expected in (0, 2):
        assert (
            CliRunner().invoke(app, ["party", "unit", str(party), "--out", str(out)]).exit_code
            == expected
        )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("command", ["party start", "party serve"])
def test_systemd_accepts_the_unit(party, tmp_path, command):
    out = tmp_path / "posse-clinic.service"
    program = tmp_path / "posse"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    out.write_text(unit_text(party, "root", command, program, tmp_path))
    verify = ["systemd-analyze", "verify", "--man=no", str(out)]
    found = subprocess.run(verify, capture_output=True, text=True, timeout=120)
    about = [line for line in (found.stdout + found.stderr).splitlines() if out.name in line]
    assert about == []
    broken = tmp_path / "posse-broken.service"
    broken.write_text(out.read_text().replace("[Service]", "[Service]\nNoSuchThing=1"))
    found = subprocess.run([*verify[:-1], str(broken)], capture_output=True, text=True, timeout=120)
    assert "NoSuchThing" in found.stdout + found.stderr


# The image ----------------------------------------------------------------------------------------

KNOWN = {
    "FROM",
    "COPY",
    "RUN",
    "ENV",
    "USER",
    "WORKDIR",
    "VOLUME",
    "STOPSIGNAL",
    "HEALTHCHECK",
    "ENTRYPOINT",
    "CMD",
}


def instructions():
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]


def test_the_image_is_built_from_what_is_here_and_runs_as_nobody():
    found = instructions()
    assert {name for name, _ in found} <= KNOWN
    assert found[0][0] == "FROM"
    stages = [rest.split(" AS ")[1] for name, rest in found if name == "FROM" and " AS " in rest]
    for name, rest in found:
        if name == "COPY" and not rest.startswith("--from="):
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
        elif name == "COPY":
            assert rest.split()[0].removeprefix("--from=") in stages
    last = max(i for i, (name, _) in enumerate(found) if name == "FROM")
    users = [rest for name, rest in found[last:] if name == "USER"]
    assert users == ["10001:10001"]
    assert [name for name, _ in found[last:]].index("USER") < [
        name for name, _ in found[last:]
    ].index("ENTRYPOINT")
    extras = re.search(r'"/src\[([a-z,]+)\]"', dict(found[:last])["RUN"])[1].split(",")
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    assert (
        f">={'.'.join(re.search(r'python:(3[.0-9]+)', found[0][1])[1].split('.')[:2])}"
        == project["requires-python"]
    )


def test_the_compose_file_keeps_what_the_image_needs():
    made = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    (service,) = made["services"].values()
    assert (
        DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]
    ).resolve() == DEPLOY / "Containerfile"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["ulimits"]["core"] == 0
    volumes = [rest for name, rest in instructions() if name == "VOLUME"]
    mounted = {each.split(":")[1] for each in service["volumes"]}
    assert set(volumes) <= mounted
    command = json.loads(next(rest for name, rest in instructions() if name == "CMD"))
    assert str(Path(command[-1]).parent) in mounted
    assert {each.split(":")[0] for each in service["volumes"] if not each.startswith(".")} <= set(
        made["volumes"]
    )


BARE = """
import importlib.abc, sys
OPTIONAL = {"matplotlib", "pyarrow", "sklearn", "PIL", "distributed", "jax", "optax", "flwr", "fastapi", "uvicorn"}

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def test_the_entry_point_runs_in_a_bare_environment(tmp_path):
    """As in the image: an environment of its own, without what only other commands need."""
    bare = tmp_path / "bare"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=120
    )
    site = next((bare / "lib").glob("python3*")) / "site-packages"
    here = [each for each in sys.path if each.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join([*here, str(ROOT / "src"), ""]))
    (site / "sitecustomize.py").write_text(BARE)
    entry = bare / "bin" / "posse"
    entry.write_text(
        f"#!{bare / 'bin' / 'python'}\nimport sys\nfrom posse.cli import main\nsys.exit(main())\n"
    )
    entry.chmod(0o755)
    assert json.loads(next(rest for name, rest in instructions() if name == "ENTRYPOINT")) == [
        "posse"
    ]
    (command, *rest) = json.loads(next(rest for name, rest in instructions() if name == "CMD"))
    keep = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    environment = {
        **keep,
        "PATH": f"{bare / 'bin'}:{os.environ['PATH']}",
        "POSSE_HOME": str(tmp_path / "store"),
    }

    def posse(*arguments):
        return subprocess.run(
            ["posse", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            cwd=tmp_path,
        )

    missing = posse(command, *rest)
    assert missing.returncode == 2
    assert "party.toml" in missing.stderr
    assert "Traceback" not in missing.stderr
    folder = tmp_path / "run"
    folder.mkdir()
    path = next(path for path in laid_out(folder) if path.stem == "controller")
    said = posse("party", "doctor", str(path))
    assert said.returncode == 0, said.stdout + said.stderr
    assert "is free" in said.stdout


# Units with old names -----------------------------------------------------------------------------


def test_doctor_names_units_that_call_posse_by_an_old_name(party, tmp_path, monkeypatch):
    folder = tmp_path / "units"
    folder.mkdir()
    monkeypatch.setattr("posse.cli.operators.party.UNIT_FOLDERS", (folder, tmp_path / "none"))
    (folder / "other.service").write_text("[Service]\nExecStart=/bin/true serve a.toml\n")
    (folder / "new.service").write_text(
        unit_text(party, "a", "party serve", Path("/b/posse"), party)
    )
    assert units_with_old_names() == []
    (folder / "old.service").write_text(
        '[Service]\nExecStart="/opt/posse/bin/posse" serve "/srv/a.toml"\n'
        "ExecStop=/opt/posse/bin/posse stop /srv/a.toml\n"
    )
    serve, stop = units_with_old_names()
    assert "old.service calls 'posse serve'" in serve
    assert "Write 'posse party serve'" in serve
    assert "Write 'posse party stop'" in stop
    examined = CliRunner().invoke(app, ["party", "doctor", str(party), "--json"])
    found = [one for one in json.loads(examined.stdout) if one["what"] == "systemd"]
    assert [one["fine"] for one in found] == [False, False]
    assert examined.exit_code == 1
