"""Real processes over TLS on this machine: the simulator's model, strangers refused, a killed node
survived.
"""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

from posse.privacy.crypto.keys import fingerprint
from posse.systems.fed_contextual.flower.deployment import Versions, read_version
from posse.systems.fed_contextual.flower.project import make_node
from posse.systems.fed_contextual.flower.settings import DeviceSettings, lines_of
from posse.systems.fed_contextual.flower.trial import Trial
from posse.systems.fed_contextual.flower.wire import identity_of

from .grids import leaves
from .simulator import SIZES, simulated, uneven

NODES = 3
PATIENCE = 300.0
"""Seconds that a busy machine may take for anything here."""
GONE = 30.0
"""Seconds that a round with enough answers waits for a killed node."""


def wait(until: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not until():
        assert time.monotonic() < end, f"{what} did not happen in {patience:g} s"
        time.sleep(0.1)


OWN = """
import jax.numpy as jnp

def pair(shape, arms):
    def init(key):
        return {"w": jnp.zeros((*shape, arms)), "b": jnp.zeros(arms)}
    return init, lambda params, x: x @ params["w"] + params["b"]
"""


def test_fleet_over_tls(tmp_path: Path) -> None:
    """One fleet for all that processes are needed for: starting it takes as much time as a dozen
    other tests.

    It learns a model of a user's own, by which every device is configured.
    """
    own = tmp_path / "own_model_of_a_fleet.py"
    own.write_text(OWN)
    fleet = fleet_of(
        tmp_path, model=f"{own}:pair", server_rate=0.03, cohort=NODES, grace=GONE, least=2
    )
    try:
        fleet.start()
        fleet.submit()
        killed_node_does_not_end_the_run(fleet)
        last_model_is_on_every_device(fleet, NODES - 1)
        link_speaks_tls_of_its_own_authority_only(fleet)
        keys_are_private(fleet)
        unregistered_node_is_refused(fleet)
    finally:
        fleet.stop()
    assert not fleet.crew.others()


@pytest.mark.long
def test_an_undisturbed_run_over_tls(tmp_path: Path) -> None:
    """Cohorts of two in three; a second run on the same fleet loses a node."""
    fleet = fleet_of(tmp_path, cohort=2, grace=PATIENCE)
    try:
        fleet.start()
        fleet.submit()
        assert [line["round"] for line in fleet.follow()] == [1, 2]
        model_is_the_simulators(fleet)
        last_model_is_on_every_device(fleet, NODES)
        before, fleet.out = received(fleet, "node-0003"), tmp_path / "second"
        fleet.submit("--run-config", f'out="{fleet.out}" cohort={NODES} grace={GONE} least=2')
        fleet.settings = fleet.settings.but(cohort=NODES, least=2)
        killed_node_does_not_end_the_run(fleet, before)
    finally:
        fleet.stop()


def fleet_of(folder: Path, **values: Any) -> Trial:
    settings = DeviceSettings(
        rounds=2,
        seed=7,
        quantile=0.5,
        clip=0.2,
        samples=64,
        timeout=PATIENCE,
        deploy_every=2,
        data=uneven(folder),
        **values,
    )
    return Trial(folder / "fleet", settings, NODES)


def model_is_the_simulators(fleet: Trial, cohorts: list[list[int]] | None = None) -> None:
    expected = simulated(fleet.settings, NODES, cohorts, lines_of(fleet.out))
    for ours, theirs in zip(leaves(fleet.out), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
        assert np.abs(ours).max() > 1e-3


def last_model_is_on_every_device(fleet: Trial, left: int) -> None:
    versions = Versions(fleet.out)
    has = {name: one["version"] for name, one in versions.held.items() if one["version"]}
    assert has == {f"node-{at + 1:04d}": 2 for at in range(left)}
    for at in range(left):
        (path,) = (fleet.folder / f"node-{at + 1:04d}" / "home" / "posse-models").iterdir()
        assert read_version(path).hash == versions.read(2).hash


def link_speaks_tls_of_its_own_authority_only(fleet: Trial) -> None:
    address = f"127.0.0.1:{fleet.port}/health"
    assert fleet.link is not None
    with urlopen(
        f"https://{address}", context=ssl.create_default_context(cafile=fleet.link.authority)
    ) as page:
        assert page.status == 200
    with pytest.raises((URLError, ssl.SSLError)):
        urlopen(f"https://{address}", context=ssl.create_default_context())
    with pytest.raises((URLError, OSError)):
        urlopen(f"http://{address}")


def keys_are_private(fleet: Trial) -> None:
    assert fleet.link is not None
    for path in (fleet.link.key, *(keys.private for keys in fleet.keys)):
        assert path.stat().st_mode & 0o077 == 0


def unregistered_node_is_refused(fleet: Trial) -> None:
    stranger = fleet.start_node(NODES, make_node(fleet.folder / f"node-{NODES + 1:04d}"))
    wait(lambda: not stranger.alive, "the refusal")
    said = stranger.log.read_text()
    assert stranger.handle.returncode != 0
    assert "Failed to activate SuperNode" in said
    assert "SuperNode ID" not in said


def received(fleet: Trial, name: str) -> int:
    log = fleet.folder / name / "supernode.log"
    return log.read_text().count("Receiving:") if log.exists() else 0


def killed_node_does_not_end_the_run(fleet: Trial, before: int = 0) -> None:
    """It dies with the first message of the run, `before` of which it had others: it never
    answers.
    """
    victim = next(process for process in fleet.crew.processes if process.name == "node-0003")
    wait(lambda: received(fleet, victim.name) > before, "the first message")
    victim.handle.send_signal(signal.SIGKILL)
    told = list(fleet.follow())
    assert [line["round"] for line in told] == [1, 2]
    assert fleet.result()["rounds"] == 2
    cohorts = [line["clients"] for line in told]
    assert all(2 not in one for one in cohorts)
    assert any("node-0003" in line["lost"] for line in told)
    model_is_the_simulators(fleet, cohorts)


@pytest.mark.long
def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    command = [
        sys.executable,
        "-m",
        "posse",
        "devices",
        "up",
        "--nodes",
        "2",
        "--rounds",
        "50",
        "--folder",
        str(folder),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        log = folder / "node-0002" / "supernode.log"
        wait(lambda: log.exists() and "SuperNode ID" in log.read_text(), "the start of the nodes")
        assert len(homes(folder)) >= 3
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, said
    assert "stopped; the same command goes on" in said
    assert "Traceback" not in said
    assert homes(folder) == set()


@pytest.mark.long
@pytest.mark.parametrize("secure", [False, True])
def test_late_and_killed_devices_over_tls(tmp_path: Path, secure: bool) -> None:
    """One of five is stopped in its first round and goes on when that is over, another one is
    killed then.

    What the late one sends in the end is not in the sum; it takes part again later. Clients are
    larger and smaller than the cap. The model is the simulator's, of those whose answers came in
    time.
    """
    nodes = len(SIZES)
    settings = DeviceSettings(
        rounds=7,
        cohort=nodes,
        seed=7,
        samples=64,
        timeout=PATIENCE,
        grace=GONE,
        least=3,
        dropout=0.4,
        corrupt=0.0,
        secure=secure,
        data=uneven(tmp_path),
        levels=1 << 16,
    )
    trial = Trial(tmp_path / "fleet", settings, nodes)
    try:
        trial.start()
        late, victim = (
            next(process for process in trial.crew.processes if process.name == name)
            for name in ("node-0002", "node-0004")
        )
        trial.submit()
        wait(lambda: "Receiving:" in late.log.read_text(), "the first round")
        late.handle.send_signal(signal.SIGSTOP)
        told = []
        for line in trial.follow():
            told.append(line)
            if line["round"] == 1:
                late.handle.send_signal(signal.SIGCONT)
                victim.handle.send_signal(signal.SIGKILL)
        names = {
            fingerprint(identity_of(keys.public.read_bytes())): at
            for at, keys in enumerate(trial.keys)
        }
    finally:
        trial.stop()
    cohorts = [[names[who] if secure else who for who in line["clients"]] for line in told]
    assert [line["round"] for line in told] == list(range(1, settings.rounds + 1))
    assert 1 not in cohorts[0], "it was late"
    assert 1 in {who for one in cohorts[1:] for who in one}, "it came back"
    assert all(3 not in one for one in cohorts[1:])
    for ours, theirs in zip(
        leaves(trial.out), simulated(trial.settings, nodes, cohorts, told), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.long
def test_secure_run_over_tls(tmp_path: Path) -> None:
    settings = DeviceSettings(
        rounds=2, cohort=NODES, seed=7, secure=True, samples=64, timeout=PATIENCE
    )
    trial = Trial(tmp_path / "fleet", settings, NODES)
    try:
        trial.start()
        trial.submit()
        told = list(trial.follow())
    finally:
        trial.stop()
    assert [len(line["clients"]) for line in told] == [NODES] * 2
    for ours, theirs in zip(leaves(trial.out), simulated(trial.settings, NODES), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.long
def test_noise_over_tls_from_the_command_line(tmp_path: Path) -> None:
    """The simulator's model under noise; the same command again does nothing more and tells the
    same figures.
    """
    folder = tmp_path / "fleet"
    command = [
        sys.executable,
        "-m",
        "posse",
        "devices",
        "up",
        "--nodes",
        "3",
        "--rounds",
        "2",
        "--samples",
        "64",
        "--noise",
        "1",
        "--secure",
        "--devices",
        "3",
        "--optimiser",
        "sgd",
        "--folder",
        str(folder),
        "--json",
    ]
    told = []
    for _ in range(2):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    assert told[0] == told[1]
    assert (told[0]["rounds"], told[0]["paid_rounds"]) == (2, 2)
    assert told[0]["privacy"][0]["epsilon"] > 0
    settings = DeviceSettings(
        rounds=2, cohort=3, seed=1, samples=64, noise=1.0, devices=3, secure=True, optimiser="sgd"
    )
    for ours, theirs in zip(leaves(folder / "run"), simulated(settings, 3), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert homes(folder) == set()


@pytest.mark.long
def test_simulation_on_flowers_engine(tmp_path: Path) -> None:
    pytest.importorskip(
        "ray", reason="ray is not installed: pip install 'posse-bandits[flower-simulation]'"
    )
    command = [
        sys.executable,
        "-m",
        "posse",
        "devices",
        "simulate",
        "--nodes",
        "8",
        "--cohort",
        "4",
        "--rounds",
        "2",
        "--samples",
        "64",
        "--folder",
        str(tmp_path / "fleet"),
        "--json",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 2
    assert homes(tmp_path / "fleet") == set()


def homes(folder: Path) -> set[int]:
    """Ids of processes whose Flower home is in a folder."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("needs /proc to find processes")
    found, mark = set(), f"FLWR_HOME={folder}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(one.startswith(mark) for one in variables):
                found.add(int(entry.name))
    return found
