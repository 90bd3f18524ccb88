"""What the benchmarks share: CPU time of this thread, the AEAD floor, and a straight line through
points.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FRAME_PLAINTEXT = 40
ASSOCIATED = 32 + 6 + 8  # manifest digest, direction, index


def cpu(work: Callable[[], object], repeat: int = 1) -> float:
    """Return the least CPU seconds of this thread over `repeat` calls."""
    best = float("inf")
    for _ in range(repeat):
        started = time.thread_time()
        work()
        best = min(best, time.thread_time() - started)
    return best


def seal_floor(owners: int = 100, steps: int = 500, repeat: int = 3) -> float:
    """Return CPU seconds of one raw AES-256-GCM call sealing a frame.

    As many key objects as owners, a fresh nonce and plaintext for every call, new associated data
    for every step: the seal calls of a run and nothing else.
    """
    seals = [AESGCM(os.urandom(32)).encrypt for _ in range(owners)]
    count = owners * steps
    nonces = struct.unpack("12s" * count, os.urandom(12 * count))
    plaintexts = struct.unpack(f"{FRAME_PLAINTEXT}s" * count, os.urandom(FRAME_PLAINTEXT * count))
    prefix = os.urandom(ASSOCIATED - 8)
    associated = [prefix + step.to_bytes(8, "little") for step in range(steps)]

    def all_calls() -> None:
        at = 0
        for data in associated:
            for seal, nonce, plaintext in zip(
                seals, nonces[at : at + owners], plaintexts[at : at + owners], strict=True
            ):
                seal(nonce, plaintext, data)
            at += owners

    return cpu(all_calls, repeat) / count


def line(x: list[float], y: list[float]) -> tuple[float, float, float]:
    """Least squares line: slope, intercept and R^2."""
    slope, intercept = np.polyfit(x, y, 1)
    residual = np.array(y) - (slope * np.array(x) + intercept)
    spread = np.array(y) - np.mean(y)
    return float(slope), float(intercept), float(1 - (residual @ residual) / (spread @ spread))
