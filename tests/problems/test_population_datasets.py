"""Loaders of populations: the facts of the real files, and refusals."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from posse.problems.datasets import mnist
from posse.problems.datasets.mnist import digits_population
from tests.kit.rules import refused


def present(data_dir: Path, name: str) -> Path:
    if not (data_dir / name).exists():
        pytest.skip(f"no {name} in {data_dir}; see the README of the data folder")
    return data_dir


def test_mnist_by_writer(data_dir: Path) -> None:
    present(data_dir, "qmnist-writers")
    whole = mnist.mnist_writers(present(data_dir, "mnist"))
    assert (whole.clients, whole.samples) == (539, 60_000)
    assert (whole.sizes().min(), whole.largest) == (19, 131)
    assert round(float(np.asarray(whole.inputs).mean()) / 255, 5) == 0.13066


def test_digits() -> None:
    whole = digits_population(clients=30, alpha=0.5, seed=2)
    assert (whole.clients, whole.samples, len(whole.arms)) == (30, 1797, 10)
    pixels = np.asarray(whole.inputs)
    assert (pixels.dtype, pixels.min(), pixels.max()) == (np.uint8, 0, 255)


def test_bad_writers(tmp_path: Path) -> None:
    file = tmp_path / "labels"
    file.write_bytes(b"\x00\x00\x0c\x02" + struct.pack(">2i", 2, 8) + b"\x00" * 4)
    with refused("problems.mnist.truncated"):
        mnist.read_labels(file)
    file.write_bytes(b"\x00\x00\x0c\x02" + struct.pack(">2i", 2, 7) + b"\x00" * 56)
    with refused("problems.writers.shape"):
        mnist.read_labels(file)
    file.write_bytes(b"\x00\x00\x08\x01")
    with refused("problems.mnist.not-bytes"):
        mnist.read_labels(file)
