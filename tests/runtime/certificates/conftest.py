"""What the tests of certificates share: an authority with a clock that tests turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from posse.runtime.certificates import register
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.tokens import Token
from tests.kit.certificates import RUN, Clock


@pytest.fixture(autouse=True, scope="package")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """A killed process loses nothing that was written; only a power cut would, which no test here
    brings about.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(register, "SYNCHRONOUS", "OFF")
        yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authority(tmp_path: Path, clock: Clock) -> Authority:
    return Authority.init(tmp_path / "ca", "acme", RUN, now=clock)


@pytest.fixture
def desk(authority: Authority) -> Desk:
    return Desk(authority)


@pytest.fixture
def token(authority: Authority) -> Token:
    return authority.token("owner", "clinic-b")
