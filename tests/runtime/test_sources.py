"""Where rewards come from: the same answer to the same question, and clear words where there is
none.
"""

from __future__ import annotations

import asyncio
import http.server
import json
import sys
import threading

import pytest

from posse.core.errors import ConfigError, DataError
from posse.core.roles import Pull, Reward
from posse.runtime.sources import SourceSettings, answering


def rewards(source, numbers, run="r1"):
    async def every():
        return [await source(run, number) for number in numbers]

    return asyncio.run(every())


def made(folder, **settings):
    return SourceSettings(**settings).source(7, folder)


def test_a_chance_is_a_function_of_the_number(tmp_path):
    source = made(tmp_path, kind="bernoulli", mean=0.3)
    first = rewards(source, range(2000))
    assert first == rewards(made(tmp_path, kind="bernoulli", mean=0.3), range(2000))
    assert set(first) == {0.0, 1.0}
    assert abs(sum(first) / 2000 - 0.3) < 0.05  # five standard errors


def test_ratings_are_drawn_above_a_threshold_of_the_rows_that_pass(tmp_path):
    rows = ["age,city,rating", "30,Lyon,5", "40,lyon,4", "50,Lyon,1", "9,Lyon,1", "60,Nice,1", ""]
    (tmp_path / "own.csv").write_text("\n".join(rows))

    def mean(threshold, **more):
        settings = SourceSettings(kind="ratings", file="own.csv", **more)
        drawn = rewards(settings.source(7, tmp_path, threshold), range(3000))
        assert drawn == rewards(settings.source(7, tmp_path, threshold), range(3000))
        assert set(drawn) <= {0.0, 1.0}
        return sum(drawn) / 3000

    assert mean(3) == pytest.approx(2 / 5, abs=0.05)  # more than five standard errors
    assert mean(4) == pytest.approx(1 / 5, abs=0.04)
    assert mean(3, where="age >= 18, city = Lyon") == pytest.approx(2 / 3, abs=0.05)
    assert mean(3, where="age < 45, age >= 30") == 1
    assert mean(20, column="age") == pytest.approx(4 / 5, abs=0.04)
    for where, what in (
        ("age >= 99", "no row where"),
        ("__import__('os')", "where must be tests"),
        ("x = 1", "column"),
    ):
        with pytest.raises((ConfigError, DataError), match=what):
            mean(3, where=where)


def test_a_file_is_replayed_in_order_and_again(tmp_path):
    (tmp_path / "plain.csv").write_text("# rewards\n0.5\n1\n0\n")
    assert rewards(made(tmp_path, kind="csv", file="plain.csv"), [0, 1, 2, 3, 1]) == [
        0.5,
        1,
        0,
        0.5,
        1,
    ]
    (tmp_path / "table.csv").write_text("day,reward\nmonday,0.25\ntuesday,0.75\n")
    assert rewards(made(tmp_path, kind="csv", file="table.csv"), [1, 0]) == [0.75, 0.25]


def test_a_used_up_file_of_rewards_is_printed_each_time_it_starts_again(tmp_path, capsys):
    (tmp_path / "plain.csv").write_text("0.5\n1\n")
    rewards(made(tmp_path, kind="csv", file="plain.csv"), [0, 1, 2, 3, 4])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("plain.csv" in line and "2 rewards" in line for line in lines)


def test_a_table_of_rewards_is_read_as_data_are(tmp_path):
    text = "Tag;Erlös\nMontag;0,25\nDienstag;0,75\n"
    (tmp_path / "table.csv").write_bytes(text.encode("cp1252"))
    settings = {"kind": "csv", "file": "table.csv", "decimal": ",", "encoding": "cp1252"}
    for columns in ({"columns": "reward=Erlös"}, {"column": "Erlös"}):
        assert rewards(made(tmp_path, **settings, **columns), [1, 0]) == [0.75, 0.25]
    source = SourceSettings(**settings, columns="reward=Erlös")
    assert source.known(tmp_path) == (0.5, 2)
    (tmp_path / "table.csv").write_text("reward;x\n0,5;1\n7;1\n")
    with pytest.raises(DataError, match="line 3"):
        made(tmp_path, kind="csv", file="table.csv", decimal=",")


def test_what_a_file_has_is_known_and_what_a_service_pays_is_not(tmp_path):
    (tmp_path / "ratings.csv").write_text("item,rating\na,5\na,1\na,4\na,2\n")
    ratings = SourceSettings(kind="ratings", file="ratings.csv")
    assert ratings.known(tmp_path, 3) == (0.5, None)
    assert SourceSettings(kind="http", url="http://localhost").known(tmp_path) is None


def test_a_module_that_a_source_imports_and_that_is_missing_is_named(tmp_path, monkeypatch):
    (tmp_path / "rewards_of_nowhere.py").write_text("import no_such_module_at_all\n")
    with pytest.raises(ConfigError, match="imports 'no_such_module_at_all'"):
        made(tmp_path, kind="python", function="rewards_of_nowhere:reward")


def test_functions_may_be_async_and_slow(tmp_path, monkeypatch):
    (tmp_path / "my_rewards_module.py").write_text(
        "import asyncio\n"
        "def plain(run, number):\n    return number / 10\n"
        "async def later(run, number):\n    await asyncio.sleep(0.01)\n    return 1 - number / 10\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert rewards(made(tmp_path, kind="python", function="my_rewards_module:plain"), [0, 3]) == [
        0,
        0.3,
    ]
    assert rewards(made(tmp_path, kind="python", function="my_rewards_module:later"), [0, 3]) == [
        1,
        0.7,
    ]
    with pytest.raises(ConfigError, match="no function 'nothing'"):
        made(tmp_path, kind="python", function="my_rewards_module:nothing")


class Service(http.server.BaseHTTPRequestHandler):
    """Answers what a test wants, and keeps what it was asked."""

    asked: list[tuple[dict, str]]
    answer: bytes
    status = 200

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append((body, self.headers["Idempotency-Key"]))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *args):
        return


@pytest.fixture
def service():
    kind = type("Once", (Service,), {"asked": [], "answer": b'{"reward": 0.5}'})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield kind, f"http://127.0.0.1:{server.server_port}/reward"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_service_is_told_run_and_pull_and_an_idempotency_key(tmp_path, service):
    kind, url = service
    assert rewards(made(tmp_path, kind="http", url=url), [4]) == [0.5]
    assert kind.asked == [({"run": "r1", "pull": 4}, "r1/4")]


@pytest.mark.parametrize(
    ("status", "answer", "what"),
    [
        (200, b"0.5", "must answer with JSON"),
        (200, b"{", "must answer with JSON"),
        (500, b"", "does not answer"),
        (200, b'{"reward": "much"}', "must answer with JSON"),
    ],
)
def test_a_service_that_answers_badly_is_told(tmp_path, service, status, answer, what):
    kind, url = service
    kind.status, kind.answer = status, answer
    with pytest.raises(DataError, match=what):
        rewards(made(tmp_path, kind="http", url=url), [0])


def test_a_service_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match="does not answer"):
        rewards(made(tmp_path, kind="http", url="http://127.0.0.1:1/", timeout=1), [0])


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"kind": "bernoulli"}, "needs mean"),
        ({"kind": "bernoulli", "mean": 1.5}, r"mean must be in \[0, 1\]"),
        ({"kind": "csv"}, "needs file"),
        ({"kind": "ratings"}, "needs file"),
        (
            {"kind": "csv", "file": "none.csv", "where": "age > 3"},
            "where belongs to a source of kind 'ratings'",
        ),
        ({"kind": "csv", "file": "none.csv"}, "cannot read rewards"),
        ({"kind": "python", "function": "nowhere"}, "module:function"),
        (
            {"kind": "python", "function": "no_such_module_here:f"},
            "no module 'no_such_module_here'",
        ),
        ({"kind": "http", "url": "ftp://x"}, "must begin with http"),
        ({"kind": "dice"}, "kind must be"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, settings, what):
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises((ConfigError, DataError), match=what) as caught:
        made(tmp_path, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0.5\n1.5\n", r"row 2: a reward must be .* in \[0, 1\], got '1.5'"),
        ("reward\n", "no rows"),
        ("", "no reward"),
        ("a,b\n1,2\n", "no column 'reward'"),
        ("0.5\nhalf\n", "row 2"),
    ],
)
def test_bad_files_name_the_row(tmp_path, text, what):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(DataError, match=what):
        made(tmp_path, kind="csv", file="r.csv")


def test_rewards_outside_the_range_are_refused(tmp_path):
    async def wild(run, number):
        return [0.5, 2.0, float("nan")][number]

    answer = answering(wild, "r1")
    assert asyncio.run(answer(Pull("a", 0))) == Reward(0, 1 << 23)
    for number in (1, 2):
        with pytest.raises(DataError, match=r"must be in \[0, 1\]"):
            asyncio.run(answer(Pull("a", number)))
