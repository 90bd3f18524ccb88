"""The text that Prometheus scrapes, read back by a strict reader, and what this process says of
itself.
"""

from __future__ import annotations

import io
import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.runtime.metrics import Metric, counter, folder, gauge, process, write
from posse.runtime.network.operate import LEVELS, json_log

_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\})? (\S+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def read(text):
    """Read the format back: name, labels and value of every sample; HELP and TYPE must stand before
    them.
    """
    samples, known = [], {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in known
            assert kind in ("gauge", "counter")
            assert (kind == "counter") == name.endswith("_total")
            known[name] = kind
        elif not line.startswith("# HELP "):
            name, labels, value = _SAMPLE.fullmatch(line).groups()
            assert name in known
            pairs = {key: _plain(text) for key, text in _LABEL.findall(labels or "")}
            samples.append((name, pairs, float(value)))
    return samples


def _plain(text):
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


@given(
    st.text(st.characters(exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")),
    st.floats(0, 1e12),
)
def test_any_label_comes_back_as_it_was(label, value):
    ((name, labels, found),) = read(write(gauge("posse_step", "Steps.", value), party=label))
    assert (name, labels) == ("posse_step", {"party": label})
    assert found == pytest.approx(value, rel=1e-14)


def test_what_is_not_known_is_not_written():
    assert (
        write(gauge("posse_step", "Steps.", None))
        == write(counter("posse_x_total", "X.", {}, "kind"))
        == ""
    )


def test_a_counter_has_a_sample_for_each_kind():
    found = read(
        write(counter("posse_refused_total", "Refused.", {"tls": 2, "frame": 1}, "kind"), run="r")
    )
    assert found == [
        ("posse_refused_total", {"run": "r", "kind": "frame"}, 1),
        ("posse_refused_total", {"run": "r", "kind": "tls"}, 2),
    ]


def test_what_this_process_says_of_itself_is_so(tmp_path):
    before = {name: value for name, _, value in read(write(process()))}
    held = [os.open(tmp_path, os.O_RDONLY) for _ in range(7)]
    filled = bytearray(os.urandom(1) * (64 << 20))
    after = {name: value for name, _, value in read(write(process()))}
    for one in held:
        os.close(one)
    assert after["process_open_fds"] - before["process_open_fds"] == 7
    assert (
        after["process_resident_memory_bytes"] - before["process_resident_memory_bytes"]
        > len(filled) / 2
    )
    assert after["process_cpu_seconds_total"] >= before["process_cpu_seconds_total"] > 0


def test_a_journal_is_measured_and_a_missing_one_is_left_out(tmp_path):
    (tmp_path / "journal-0.log").write_bytes(b"x" * 1000)
    (tmp_path / "snapshot-1").write_bytes(b"x" * 234)
    found = {name: value for name, _, value in read(write(folder(tmp_path)))}
    assert found["posse_journal_bytes"] == 1234
    assert found["posse_disk_free_bytes"] > 0
    assert list(folder(tmp_path / "none")) == []


def test_a_metric_of_one_figure_has_no_braces():
    assert write([Metric("a_total", "counter", "A.", (({}, 3),))]).splitlines()[-1] == "a_total 3"


@pytest.mark.parametrize("least", LEVELS)
def test_a_log_leaves_out_what_is_below_its_level(least):
    out = io.StringIO()
    log = json_log("a", out, least=least)
    for event in ("connected", "lost", "failed"):
        log(event, peer="b")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["level"] for line in lines] == list(LEVELS[LEVELS.index(least) :])
    assert all(line["party"] == "a" and line["peer"] == "b" and "time" in line for line in lines)
