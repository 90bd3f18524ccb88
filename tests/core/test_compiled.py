"""Compilation: one source, and machine code kept under the digest of every source it depends on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from posse.core import compiled
from posse.core.compiled import compile_user, elementary, source_digest, specialise
from posse.core.exact import log


def twice(x: float) -> float:
    return 2.0 * x


def thrice(x: float) -> float:
    return 3.0 * x


def template(x: float) -> float:
    return change(x) + 1.0  # type: ignore[name-defined]  # noqa: F821


def test_a_compiled_function_keeps_its_source() -> None:
    made = elementary(twice)
    assert made(4.0) == 8.0
    assert made.py_func is twice  # type: ignore[attr-defined]


def test_a_template_is_bound_to_the_functions_of_each_policy() -> None:
    two = specialise(template, {"change": compile_user(twice)}, name="two", keep=False)
    three = specialise(template, {"change": compile_user(thrice)}, name="three", keep=False)
    assert (two(5.0), three(5.0)) == (11.0, 16.0)
    assert "change" not in template.__globals__


def test_a_function_that_is_compiled_already_is_left_alone() -> None:
    assert compile_user(log) is log
    assert compile_user(twice) is not twice


def test_the_digest_covers_every_source_that_numbers_depend_on(tmp_path: Path) -> None:
    """Change one file of another folder than the compiled function's own, and the key of its machine code changes."""
    house = tmp_path / "posse"
    (house / "core").mkdir(parents=True)
    (house / "policies").mkdir()
    (house / "core" / "compiled.py").write_bytes(Path(compiled.__file__).read_bytes())
    rule = house / "policies" / "rule.py"
    digests = []
    for text in ("c = 2.0\n", "c = 3.0\n", "c = 2.0\n"):
        rule.write_text(text)
        program = f"import runpy; print(runpy.run_path({str(house / 'core' / 'compiled.py')!r})['source_digest']())"
        digests.append(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip())
    assert len(digests[0]) == 64
    assert digests[0] == digests[2] != digests[1]
    assert source_digest() != digests[0]
