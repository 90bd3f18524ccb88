"""Keys, masks and noise of these tests come from a stream that the test's name fixes.

An audit errs at a level of .01, so with fresh randomness one run in a few of this folder would be
red by chance. Which masks a test sees is decided by its name, and not by anybody's choice of a
seed, nor by what ran before it: modules that are imported for the first time take nothing from the
stream, and what attacks keep between tests is made anew for each file.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from posse.privacy.crypto import keys
from posse.systems.samba.attacks import reading

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


_urandom = os.urandom


class _Stream:
    """Bytes in place of the operating system's."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, name: str) -> None:
        self._key, self._count = hashlib.sha256(name.encode()).digest(), 0

    def __call__(self, size: int) -> bytes:
        if _importing():
            return _urandom(size)
        self._count += 1
        return hashlib.shake_256(self._key + self._count.to_bytes(8, "big")).digest(size)

    def identity(
        self, curve: ec.EllipticCurve, backend: object = None
    ) -> ec.EllipticCurvePrivateKey:
        assert isinstance(curve, ec.SECP256R1)
        return ec.derive_private_key(int.from_bytes(self(40), "big") % (_ORDER - 1) + 1, curve)


def _importing() -> bool:
    """Whether a module that is being imported asks, before any code of the package that called for
    it.
    """
    frame = sys._getframe(2)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("posse."):
            return False
        if module.startswith(("importlib", "_frozen_importlib")):
            return True
        frame = frame.f_back
    return False


@pytest.fixture(scope="module", autouse=True)
def _stream(request: pytest.FixtureRequest) -> Iterator[_Stream]:
    made = _Stream()
    made.begin(request.node.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", made)
        patch.setattr(random, "_urandom", made)
        patch.setattr(ec, "generate_private_key", made.identity)
        # The length of a signature in DER depends on its randomness, which is OpenSSL's own unless
        # told otherwise.
        patch.setattr(keys, "_ECDSA", ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
        reading.short_key.cache_clear()  # drawn here, not by whichever test is the first to need it
        reading.short_key()
        reading._scores.cache_clear()
        yield made


@pytest.fixture(autouse=True)
def _named(_stream: _Stream, request: pytest.FixtureRequest) -> None:
    _stream.begin(request.node.nodeid)
