"""Compilation: one source, and machine code kept under the digest of every source it depends on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
    """Change a file that a compiled function's module imports by way of another, and the key of its
    code changes.
    """
    house = tmp_path / "posse"
    (house / "core").mkdir(parents=True)
    (house / "policies").mkdir()
    (house / "core" / "compiled.py").write_bytes(Path(compiled.__file__).read_bytes())
    (house / "policies" / "rule.py").write_text("from posse.policies import (\n    middle,\n)\n")
    (house / "policies" / "middle.py").write_text("from posse.policies.constant import c\n")
    constant, unrelated = house / "policies" / "constant.py", house / "policies" / "unrelated.py"

    def digest() -> str:
        made = f"runpy.run_path({str(house / 'core' / 'compiled.py')!r})['source_digest']('posse.policies.rule')"
        program = [sys.executable, "-c", f"import runpy; print({made})"]
        return subprocess.run(program, capture_output=True, text=True, check=True).stdout.strip()

    digests = []
    for text, beside in (("c = 2.0\n", ""), ("c = 3.0\n", ""), ("c = 2.0\n", "d = 1\n")):
        constant.write_text(text)
        unrelated.write_text(beside)
        digests.append(digest())
    assert len(digests[0]) == 64
    assert digests[0] == digests[2] != digests[1]


def test_code_of_a_user_is_not_kept() -> None:
    """What a user's module imports is not known, so old machine code could answer for it."""
    assert type(elementary(twice).dispatcher._cache).__name__ == "NullCache"  # type: ignore[attr-defined]
    assert log.dispatcher._cache._cache_file._digest == source_digest("posse.core.exact")  # type: ignore[attr-defined]


def test_short_functions_give_the_same_bits_in_plain_python_and_compiled() -> None:
    """And what calls nothing else imports no numba, which the program checks."""
    program = [sys.executable, "-m", "tests.core.interpreted"]
    done = subprocess.run(
        program, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.splitlines() == ["[]", "[]"]  # none that differs, none that was left out


def test_interpreting_ends_when_it_has_cost_too_much() -> None:
    code = (
        "import sys; from posse.core import compiled; from posse.core.exact import log\n"
        "compiled.PATIENCE = 0.0\n"
        "first = log(10.0); assert 'numba' not in sys.modules\n"
        "assert log(10.0) == first and 'numba' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_process_compiles_and_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"7{0:063x}"
    code = (
        "import sys; from pathlib import Path; from posse.core import compiled\n"
        f"print(compiled._take_turn(Path({str(path)!r})), flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    monkeypatch.setattr(compiled, "TURN", 0.2)
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout.readline() == "True\n"
        assert not compiled._take_turn(path)
        assert compiled._take_turn(path.with_name(f"8{0:063x}"))  # another function
        other.communicate("")
    assert compiled._take_turn(path)  # it died before it had saved anything
    compiled._end_turn(path)


def halved(word: np.uint64) -> np.uint64:
    return word >> np.uint64(1)


inner = compiled.Compiled(halved, (), True, {})
kinds: list[type] = []


def compile_inner() -> None:
    inner.dispatcher(np.uint64(1))


def outer(word: np.uint64) -> np.uint64:
    compile_inner()  # what another thread does in the middle of this call
    kinds.append(type(inner(word)))
    return word


def test_a_call_that_began_in_the_interpreter_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code would return a number of Python, which as the next function's argument is a
    signed one.
    """
    monkeypatch.setattr(compiled._Clock, "compiles", False)
    monkeypatch.setattr(compiled._Clock, "spent", 0.0)
    made = compiled.Compiled(outer, (), True, {})
    assert made(np.uint64(2**64 - 2)) == 2**64 - 2
    assert kinds == [np.uint64]
    assert isinstance(inner(np.uint64(2**64 - 2)), int)  # from then on it is compiled
