"""A model as an ONNX graph chooses as JAX does; an application decides and logs as devices do."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError, DataError
from posse.policies.contextual.explorations import (
    EpsilonGreedy,
    Exploration,
    Falcon,
    Greedy,
    Softmax,
    draw,
)
from posse.systems.fed_contextual.computing.models import bag_of_words, cnn, linear, write_model
from posse.systems.fed_contextual.computing.own_models import adapted
from posse.systems.fed_contextual.export import ExportSettings, Read, _scores, export, graph_of
from posse.systems.fed_contextual.flower.deployment import Version, write_version
from posse.systems.fed_contextual.flower.samples import log_of
from posse.systems.fed_contextual.flower.settings import DeviceSettings

POLICIES: tuple[Exploration, ...] = (Greedy(), EpsilonGreedy(0.2), Softmax(0.1), Falcon(gamma=50.0))
CLOSE = 1e-5
MODELS = {"linear": linear(20, 7), "bag": bag_of_words(50, 7), "cnn": cnn(7, 12, 16, (3, 5))}


def written(kind: str, folder: Path, **more: Any) -> tuple[Path, Any]:
    """A model of a kind with random numbers, and its file."""
    shapes = jax.eval_shape(MODELS[kind].init, jax.random.key(0))
    rng = np.random.default_rng(3)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(0.2 * rng.normal(size=leaf.shape), jnp.float32), shapes
    )
    path = folder / f"{kind}.npz"
    write_model(path, params, 5, **more)
    return path, params


def contexts_of(kind: str, count: int) -> tuple[Any, dict[str, Any]]:
    """Contexts as JAX takes them, and as the graph does."""
    rng = np.random.default_rng(1)
    if kind == "bag":
        words, weights = rng.integers(0, 50, (count, 6)), rng.random((count, 6)).astype(np.float32)
        return (words, weights), {"words": words.astype(np.int64), "weights": weights}
    if kind == "cnn":
        images = rng.integers(0, 256, (count, 12, 12)).astype(np.uint8)
        return images, {"contexts": images.astype(np.float32)}
    rows = rng.normal(size=(count, 20)).astype(np.float32)
    return rows, {"contexts": rows}


@pytest.mark.parametrize("kind", MODELS)
def test_onnx_chooses_as_jax_does(kind: str, tmp_path: Path) -> None:
    """On 10,000 contexts: the same arm unless scores, or a cumulated chance and the number drawn,
    are that close.
    """
    runtime = pytest.importorskip(
        "onnxruntime", reason="onnxruntime is not installed: make test-models"
    )
    pytest.importorskip("onnx", reason="onnx is not installed: make test-models")
    path, params = written(kind, tmp_path)
    count = 10_000
    ours, theirs = contexts_of(kind, count)
    u = np.random.default_rng(2).random(count, np.float32)
    scores = MODELS[kind].scores(params, ours)
    for policy in POLICIES:
        made = graph_of(Read(path, kind), policy).SerializeToString()
        session = runtime.InferenceSession(made, providers=["CPUExecutionProvider"])
        arm, chance, found, chances = session.run(None, {**theirs, "u": u})
        np.testing.assert_allclose(found, scores, atol=CLOSE)
        expected = policy.probabilities(scores, jnp)
        arms, wanted = (np.asarray(one) for one in draw(expected, jnp.asarray(u), jnp))
        top = np.sort(np.asarray(scores), axis=1)
        reached = np.cumsum(np.asarray(expected), axis=1)
        near = (top[:, -1] - top[:, -2] < CLOSE) | (
            np.abs(reached - u[:, None]).min(axis=1) < CLOSE
        )
        same = arm == arms
        assert (same | near).all()
        assert near.mean() < 0.01
        np.testing.assert_allclose(
            chances, policy.probabilities(jnp.asarray(found), jnp), atol=CLOSE
        )
        np.testing.assert_array_equal(chance, chances[np.arange(count), arm])
        steep = CLOSE * (50 if policy.name == "falcon" else 1)  # a gap's rounding, times gamma
        np.testing.assert_allclose(chance[same & ~near], wanted[same & ~near], atol=steep)


def test_torch_chooses_as_jax_does(tmp_path: Path) -> None:
    """On 10,000 contexts, with a module of the same numbers: the same arm unless it is that
    close.
    """
    torch = pytest.importorskip("torch", reason="torch is not installed: make test-models")
    _, params = written("linear", tmp_path)
    module = torch.nn.Linear(20, 7)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(np.asarray(params["w"]).T))
        module.bias.copy_(torch.tensor(np.asarray(params["b"])))
    model, rows = adapted(module, (20,), 7), contexts_of("linear", 10_000)[0]
    ours = MODELS["linear"].scores(params, rows)
    theirs = model.scores(model.init(jax.random.key(0)), jnp.asarray(rows))
    np.testing.assert_allclose(theirs, ours, atol=CLOSE)
    u = jnp.asarray(np.random.default_rng(2).random(len(rows), np.float32))
    for policy in POLICIES:
        chances = policy.probabilities(ours, jnp)
        arms, others = (
            np.asarray(draw(policy.probabilities(one, jnp), u, jnp)[0]) for one in (ours, theirs)
        )
        top, reached = np.sort(np.asarray(ours), axis=1), np.cumsum(np.asarray(chances), axis=1)
        steep = CLOSE * (
            50 if policy.name == "falcon" else 10
        )  # a score's rounding, times gamma or 1 / beta
        near = (top[:, -1] - top[:, -2] < CLOSE) | (
            np.abs(reached - np.asarray(u)[:, None]).min(axis=1) < steep
        )
        assert ((arms == others) | near).all()
        assert near.mean() < 0.05


def test_export_writes_what_it_says_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: make test-models")
    path, _ = written("linear", tmp_path, arms=[f"arm-{at}" for at in range(7)], scale=255.0)
    out = tmp_path / "m.onnx"
    (shown,) = export(ExportSettings(model=path, out=out, policy="falcon", gamma=10))
    assert "linear model of 7 arms that chooses by falcon" in str(shown.title)
    props = {one.key: one.value for one in onnx.load(out).metadata_props}
    assert props["arms"].split("\n")[3] == "arm-3"
    assert props["policy"] == "falcon mu=1.4 gamma=10"

    def flat(scores: Any, xp: Any = np) -> Any:
        return xp.ones_like(scores) / scores.shape[-1]

    with pytest.raises(
        ConfigError, match="policies that ship with Posse can be exported, got flat"
    ):
        list(export(ExportSettings(model=path, out=out, policy=flat)))


def test_models_without_a_graph_are_refused_with_the_reason(tmp_path: Path) -> None:
    other = tmp_path / "own.npz"
    np.savez(other, leaf0=np.zeros((3, 4)), leaf1=np.zeros((4, 2)))
    with pytest.raises(DataError, match=r"no built-in model \(linear, bag of words, cnn\)"):
        Read(other)
    path, _ = written("linear", tmp_path)
    with pytest.raises(ConfigError, match=r"kind is cnn, and .* holds a linear model"):
        Read(path, "cnn")
    with pytest.raises(DataError, match="there is no such file"):
        Read(tmp_path / "none.npz")
    assert Read(written("cnn", tmp_path)[0]).shape == (12, 12)


def test_an_application_decides_and_logs_as_devices_do(tmp_path: Path) -> None:
    path, params = written("linear", tmp_path)
    log, rng = tmp_path / "log.npz", np.random.default_rng(7)
    app = posse.OnDevice(path, log, policy="softmax", beta=0.1)
    rows = rng.normal(size=(40, 20)).astype(np.float32)
    made = [app.decide(row) for row in rows]
    expected = np.asarray(Softmax(0.1).probabilities(MODELS["linear"].scores(params, rows), jnp))
    for at, one in enumerate(made):
        assert one.probability == pytest.approx(expected[at, one.arm], abs=1e-5)
    assert [app.log(one, at / 40) for at, one in enumerate(made)] == [True] * 40
    assert not app.log(made[0], 1.0)
    settings = DeviceSettings(features=20, arms=7, samples=32)
    contexts, arms, rewards, chances, mask = log_of(settings, log)
    np.testing.assert_array_equal(contexts, rows[-32:])
    assert arms.tolist() == [one.arm for one in made[-32:]]
    np.testing.assert_allclose(rewards, np.arange(8, 40) / 40, rtol=1e-6)
    np.testing.assert_allclose(chances, [one.probability for one in made[-32:]], rtol=1e-6)
    assert mask.sum() == 32
    again = posse.OnDevice(
        path, log, policy="softmax", keep=10
    )  # another process of the same application
    again.log(again.decide(rows[0]), 1.0)
    assert log_of(settings, log)[4].sum() == 10
    with pytest.raises(ConfigError, match="20 finite numbers"):
        app.decide([1.0])
    with pytest.raises(ConfigError, match="finite"):
        app.log(app.decide(rows[0]), float("nan"))


def two_arms(path: Path, features: int) -> Path:
    write_model(
        path,
        {"b": np.zeros(2, np.float32), "w": np.zeros((features, 2), np.float32)},
        1,
        ("left", "right"),
    )
    return path


def test_contexts_of_another_width_are_refused_and_the_log_stays_as_it_was(tmp_path: Path) -> None:
    log, path = tmp_path / "log.npz", two_arms(tmp_path / "model.npz", 2)
    app = posse.OnDevice(path, log)
    assert app.log(app.decide([1.0, 2.0]), 1.0)
    before = log.read_bytes()
    two_arms(path, 3)
    choice = app.decide([1.0, 2.0, 3.0])
    for _ in range(2):
        with pytest.raises(
            DataError, match=r"holds contexts of 2 numbers, .* for 3 numbers\. Move the log away"
        ):
            app.log(choice, 1.0)
    assert log.read_bytes() == before
    log.rename(tmp_path / "old.npz")
    assert app.log(choice, 1.0)
    assert np.load(log)["contexts"].shape == (1, 3)


def test_a_process_forked_while_a_row_is_written_does_not_keep_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, opened, own = (
        posse.OnDevice(two_arms(tmp_path / "model.npz", 1), tmp_path / "log.npz"),
        [],
        os.open,
    )
    monkeypatch.setattr(os, "open", lambda *given: opened.append(own(*given)) or opened[-1])
    with app._alone():
        kept = os.dup(opened[0])  # as a forked process has it
    with (tmp_path / ".log.npz.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(kept)


def test_two_applications_on_one_log_lose_no_row(tmp_path: Path) -> None:
    path, log = two_arms(tmp_path / "model.npz", 1), tmp_path / "log.npz"
    apps = [posse.OnDevice(path, log), posse.OnDevice(path, log)]

    def write(app: Any) -> None:
        for _ in range(10):
            app.log(app.decide([1.0]), 1.0)

    threads = [threading.Thread(target=write, args=(app,)) for app in apps]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(np.load(log)["arms"]) == 20


def test_what_is_no_reward_no_decision_and_no_context_is_refused_in_one_line(
    tmp_path: Path,
) -> None:
    path, log = two_arms(tmp_path / "model.npz", 2), tmp_path / "log.npz"
    app = posse.OnDevice(path, log)
    choice = app.decide([0.1, 0.2])
    for reward in ("a", "1", None, float("inf"), 1e39, [1.0, 2.0]):
        with pytest.raises(ConfigError, match="a reward must be a finite number, got"):
            app.log(choice, reward)  # type: ignore[arg-type]
    for wrong in ("x", None, 1.5):
        with pytest.raises(ConfigError, match="a reward is for a decision, or for its id, got"):
            app.log(wrong, 1.0)  # type: ignore[arg-type]
    assert app.log(np.int64(choice.id), np.float32(1.0))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be 2 finite numbers, got nan as number 1"):
        app.decide([float("nan"), 1])
    with pytest.raises(ConfigError, match=r"got 1e\+39 as number 2"):
        app.decide([1, 1e39])
    for scale in (float("nan"), -1.0, float("inf")):
        with pytest.raises(ConfigError, match="scale must be "):
            posse.OnDevice(path, log, scale=scale)
    with pytest.raises(ConfigError, match="scale must be"):
        ExportSettings(model=path, scale=-1.0)


def test_an_application_takes_the_model_that_was_deployed_last(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    app = posse.OnDevice(path, tmp_path / "log.npz", policy="greedy")
    with pytest.raises(DataError, match="no model was deployed"):
        app.decide([1.0])
    for bias in ([0.0, 1.0], [1.0, 0.0]):
        write_model(
            path,
            {"b": np.array(bias, np.float32), "w": np.zeros((1, 2), np.float32)},
            1,
            ("left", "right"),
        )
        assert app.decide([1.0]).name == ("right" if bias[1] else "left")


def test_an_application_with_images(tmp_path: Path) -> None:
    path, params = written("cnn", tmp_path)
    images, _ = contexts_of("cnn", 3)
    app = posse.OnDevice(path, tmp_path / "log.npz", policy="greedy")
    for image, scores in zip(images, np.asarray(MODELS["cnn"].scores(params, images)), strict=True):
        np.testing.assert_allclose(app.scores(image), scores, atol=CLOSE)
        assert app.decide(image).arm == scores.argmax()
    with pytest.raises(ConfigError, match="whole numbers from 0 to 255"):
        app.decide(images[0] + 0.5)


def deployed(path: Path, **changes: Any) -> Path:
    """A file as devices get it: two arrays, with what they are."""
    about: dict[str, Any] = {"policy": "falcon", "explore": 50.0, "model": "linear", **changes}
    leaves = [np.zeros(3, np.float32), np.ones((2, 3), np.float32)]
    write_version(
        path, Version(run="run", version=3, features=2, arms=3, bounds=None, leaves=leaves, **about)
    )
    return path


def test_a_deployed_model_is_what_it_says(tmp_path: Path) -> None:
    path, log = tmp_path / "model.npz", tmp_path / "log.npz"
    app = posse.OnDevice(deployed(path), log)
    app.decide([0.1, 0.2])
    assert app.policy == Falcon(gamma=50.0)
    assert posse.OnDevice(path, log, policy="falcon", gamma=50.0).decide([0.1, 0.2]).probability
    for given in ({"policy": "falcon"}, {"policy": "softmax"}, {"beta": 0.2}):
        with pytest.raises(DataError, match="was deployed for Falcon"):
            posse.OnDevice(path, log, **given).decide([0.1, 0.2])
    assert (Read(path).kind, Read(deployed(path, model="bag")).kind) == ("linear", "bag")
    with pytest.raises(DataError, match="bag of words"):
        posse.OnDevice(path, log).decide([0.1, 0.2])
    with pytest.raises(ConfigError, match="holds a bag model"):
        Read(path, "linear")
    for changes, words in (
        ({"model": "mine.py:Dense"}, "a model of your own, mine.py:Dense"),
        ({"policy": "mine:policy"}, "mine:policy"),
    ):
        with pytest.raises(DataError, match=words):
            Read(deployed(path, **changes))


def test_a_graph_of_a_deployed_model_has_the_policy_that_devices_have(tmp_path: Path) -> None:
    """Another one would log chances with which nobody chose; a file that was altered is refused."""
    path, out = deployed(tmp_path / "model.npz"), tmp_path / "m.onnx"
    for given in (
        {"policy": "softmax"},
        {"policy": "falcon"},
        {"policy": "falcon", "gamma": 9},
        {"beta": 0.05},
    ):
        with pytest.raises(ConfigError, match="was deployed for Falcon"):
            list(export(ExportSettings(model=path, out=out, **given)))
    assert not out.exists()
    pytest.importorskip("onnx", reason="onnx is not installed: make test-models")
    for given in ({}, {"policy": "falcon", "gamma": 50.0}):
        (shown,) = export(ExportSettings(model=path, out=out, **given))
        assert "chooses by falcon" in str(shown.title)
    with np.load(path) as found:
        parts = {**found, "leaf0": found["leaf0"] + 1}
    np.savez(path, **parts)
    with pytest.raises(DataError, match="is not what its hash says"):
        Read(path)


def test_a_late_reward_goes_to_no_decision_of_another_process(tmp_path: Path) -> None:
    path, log = written("linear", tmp_path)[0], tmp_path / "log.npz"
    late = posse.OnDevice(path, log).decide(np.zeros(20))
    again = posse.OnDevice(path, log)
    new = again.decide(np.ones(20))
    assert not again.log(late, 1.0)
    assert again.log(new, 1.0)
    log.write_bytes(log.read_bytes()[:-30])
    with pytest.raises(DataError, match="cannot be read"):
        posse.OnDevice(path, log)


class Evaluated:
    """A graph that computes each operator at once, of those that a linear model has."""

    onnx = SimpleNamespace(TensorProto=SimpleNamespace(FLOAT=1))
    constant = staticmethod(np.asarray)

    def __init__(self, contexts: Any) -> None:
        self.contexts = contexts

    def __call__(self, op: str, *inputs: Any, name: str = "") -> Any:
        left, right = (self.contexts if isinstance(each, str) else each for each in inputs)
        return {"Div": np.divide, "MatMul": np.matmul, "Add": np.add}[op](left, right)


def test_a_linear_model_is_a_product_and_a_sum(tmp_path: Path) -> None:
    path, params = written("linear", tmp_path)
    rows, _ = contexts_of("linear", 5)
    found: Any = _scores(Evaluated(rows), Read(path))[0]  # type: ignore[arg-type]
    np.testing.assert_allclose(found, MODELS["linear"].scores(params, rows), atol=CLOSE)
