"""What commands print as JSON, and how they end: one call after the other in one folder, with a
store of its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import posse.cli
from tests.frozen import fixed

VOLATILE = {
    "seconds",
    "created",
    "id",
    "record",
    "role_seconds",
    "pid",
    "host",
    "age",
    "process",
    "version",
    "posse",
    "ratio",
    "rounds_a_second",
    "key_seconds",
    "made",
    "issued",
    "expires",
    "said",
}
"""Keys of times, of this process and machine (`said` by its doctor), and of what is drawn anew each
time.
"""
_ID = re.compile(r"\b[0-9a-z]{9}-[0-9a-z]{4}\b")
_WHEN = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.\d]*\+00:00)?|posse1_[\w-]+|127\.0\.0\.1:\d+"
)
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?")
_LASTS = re.compile(r"\b[\d.,]+ (?:s|ms|us|µs|seconds|s CPU)\b")
_NAMED = re.compile(r"\{([\w-]+)\}")
_TIMED = re.compile(r"second|CPU|time")
PROSE = 4
"""Words from which on a text is prose: it may be worded anew, and its numbers may not change."""


def call(*words: str) -> tuple[int, str, str]:
    """Call the command line; return its exit code, and what it wrote."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["posse", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                posse.cli.main()
                code = 0
            except SystemExit as stop:
                code = int(stop.code or 0)
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def plain(value: Any, key: str = "") -> Any:
    """What must not change of a value: all of it but times, ids, and the words of sentences."""
    if key in VOLATILE:
        return f"<{key}>"
    if isinstance(value, dict):
        return {name: plain(each, name) for name, each in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], str) and _TIMED.search(value[0]):
            return value[:1]
        parts = [plain(each) for each in value]
        # Some notes are about times; those about numbers have numbers.
        return [each for each in parts if each != "<text >"] if key == "notes" else parts
    if not isinstance(value, str):
        return value
    text = _ID.sub("<id>", _WHEN.sub("<when>", value.replace(str(Path.cwd()), "<folder>")))
    text = _LASTS.sub("<time>", text)
    if len(text.split()) < PROSE:
        return text
    return f"<text {' '.join(sorted(each.strip('.,') for each in _NUMBER.findall(text)))}>"


class Session:
    """Calls, and what each gave."""

    def __init__(self, folder: Path) -> None:
        self.found: dict[str, Any] = {}
        self.ids: dict[str, str] = {}
        os.chdir(folder)
        os.environ["POSSE_HOME"] = str(folder / "home")
        os.environ["COLUMNS"] = "200"
        for name in ("POSSE_DATA", "NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(name, None)

    def __call__(self, line: str) -> None:
        """Call a command, given as one line; its JSON is kept, or where it has none only its exit
        code.

        `name: command` keeps the id of its run, for later lines with `{name}`.
        """
        name, colon, rest = line.partition(": ")
        words = _NAMED.sub(lambda match: self.ids[match[1]], rest if colon else line).split()
        code, out, err = call(*words, *_defaults_of_0_1(words))
        entry: dict[str, Any] = {"exit code": code}
        if "--json" in line.split() and code < 2:
            made = json.loads(out)
            entry["json"] = plain(made)
            if colon:
                self.ids[name] = _id_of(made)
        if code:
            entry["error"] = re.findall(r"\[P\d+\]", err)
        calls = sum(each.startswith(line) for each in self.found)
        self.found[line if line not in self.found else f"{line}, call {calls + 1}"] = entry

    def all(self, lines: str, *, alike: bool = False) -> dict[str, Any]:
        """Call all of these lines; `alike` draws the same randomness for each, whatever comes
        before it.
        """
        fixed.restart()
        for line in lines.strip().splitlines():
            if alike:
                fixed.restart()
            self(line)
        return self.found


def _defaults_of_0_1(words: list[str]) -> list[str]:
    """State what simulations of samba were by default when the data were written."""
    stated: list[str] = []
    if words[1:2] != ["samba"] or "--config" in words:
        return stated
    if words[0] in ("run", "simulate", "sweep", "audit") and "policy" not in " ".join(words):
        stated += ["--policy", "ucb"]
    if words[0] == "sweep":
        stated += ["--path", "roles"]
    return stated


def _id_of(made: Any) -> str:
    """The id of the first run in what a command printed."""
    return str(_ID.findall(json.dumps(made))[0])


MARKET = "--agents 3 --producers 4 --horizon 40 --alpha 0.3"
MPC = "--rows 40 --steps 8"
FED = "--clients 40 --cohort 8 --horizon 3 --server-rate 0.02"
RUNS = f"""
strict: run samba --owners 3 --budget 40 --seed 5 --json
paper: run samba --owners 3 --budget 40 --seed 5 --level paper --policy pursuit --paillier-bits 2048 --json
own: run samba --owners 3 --budget 30 --policy own_policy.py:PriorMean --json
plain: run samba --owners 4 --budget 60 --path plain --policy softmax --tau 0.2 --label mine --json
mpc: run mpc-contextual {MPC} --keep-shares shares --json
again: run mpc-contextual {MPC} --start-from shares --json
market: run dp-combinatorial {MARKET} --start 4 --json
"""
DEVICES = f"""
fed: run fed-contextual {FED} --noise 1.0 --clip 0.05 --model-out model.npz --json
simulate fed-contextual {FED} --runs 2 --json
audit fed-contextual {FED} --json
runs show {{fed}} --json
runs export {{fed}} --out runs.json
predict model.npz rows.csv --json
rates log.csv --json
devices app fleet --json
"""
COMMANDS = f"""
--version
{RUNS.strip()}
run samba --owners 1
run samba --level nowhere
run nothing
run samba --config absent.toml
run samba --config run.toml --no-save --json
simulate samba --owners 3 --budget 200 --runs 3 --json
simulate mpc-contextual {MPC} --runs 2 --json
simulate dp-combinatorial {MARKET} --start 4 --runs 2 --json
compare samba --owners 3 --budget 200 --runs 3 --policy ucb --policy thompson --json
compare mpc-contextual {MPC} --runs 2 --policy linucb --policy thompson --json
compare dp-combinatorial {MARKET} --runs 2 --policy fcb --policy alone --json
compare {{strict}} {{plain}}
sweep samba --owners 3 --budget 200 --runs 2 --over seed=1,2 --workers 1 --json
audit samba --owners 3 --budget 30 --level paper --json
audit samba --owners 3 --budget 30 --level strict --json
audit mpc-contextual {MPC} --json
audit dp-combinatorial {MARKET} --start 4 --json
audit {{strict}} --json
audit {{paper}} --json
audit {{own}} --json
audit {{market}} --json
runs list --json
runs show {{strict}} --json
runs show {{paper}} --json
runs show absent --json
runs export {{strict}} {{market}} --out runs.csv
runs export {{plain}} --out runs.json
runs report {{paper}} --out report.html
runs delete {{again}} --yes
runs delete absent
policies --json
policies --check own_policy.py:PriorMean
problems --json
arms embedded:movielens --json
arms arms.csv --json
budget arms --arms 5 --epsilon 0.2 --steps 10 --json
budget sampled --json
budget sampled --noise 1.1 --json
ranges --json
predict shares rows-of-mpc.csv --json
evaluate log.csv --json
devices status absent --json
devices deploy absent --json
devices rollback absent --json
reproduce --json
demo absent
studio --port absent
"""
OPERATORS = """
ca init --run trial-9 --ca authority
ca init --run trial-9 --ca authority
ca token --ca authority --role owner --name clinic-a --out token-a
ca token --ca authority --role owner --name clinic-b --json
ca list --ca authority --json
enrol --token-file token-a --request request --out clinic-a
ca sign request --ca authority --out answer
enrol --token-file token-a --answer answer --out clinic-a
ca sign request --ca authority --out again
ca list --ca authority --json
ca revoke clinic-a --ca authority
ca revoke absent --ca authority
ca crl --ca authority
ca list --ca authority --json
ca serve --ca absent
found hospitals
queue hospitals/customer.toml --json
doctor hospitals/customer.toml --json
status hospitals/customer.toml --json
submit run.toml --at hospitals/customer.toml --json
serve absent.toml
expel clinic-a --at hospitals/customer.toml
leave hospitals/customer.toml
renew hospitals/customer.toml
up absent.toml --json
up run.toml --json
party absent.toml
status absent.toml --json
pause absent.toml
resume absent.toml
stop absent.toml
end absent.toml
change absent.toml
doctor absent.toml --json
backup absent.toml --out kept
restore absent absent.toml
units hospitals/customer.toml
"""


def listed(folder: Path, lines: str = COMMANDS) -> dict[str, Any]:
    """Call commands of everything that is no party's."""
    write_inputs(folder)
    return Session(folder).all(lines, alike=True)


def operated(folder: Path) -> dict[str, Any]:
    """Call the commands of operators, with no party running."""
    write_inputs(folder)
    return Session(folder).all(OPERATORS)


def write_inputs(folder: Path) -> None:
    """Files that commands read."""
    (folder / "own_policy.py").write_text(Path(__file__).with_name("own_policy.py").read_text())
    (folder / "run.toml").write_text('owners = 3\nbudget = 30\npolicy = "thompson"\n')
    (folder / "arms.csv").write_text("name,mean\nred,0.25\nblue,0.5\ngreen,0.125\n")
    rows = [[(7 * row + 3 * column) % 17 for column in range(64)] for row in range(5)]
    _table(folder / "rows.csv", [f"pixel{column}" for column in range(64)], rows)
    rows = [
        [round(((7 * row + 3 * column) % 17 - 8) / 40, 3) for column in range(20)]
        for row in range(5)
    ]
    _table(folder / "rows-of-mpc.csv", [f"c{column}" for column in range(20)], rows)
    log = [
        [row % 24, row % 5 / 4, row % 3 / 2, "abc"[row % 3], row * 7 % 4 / 3, 0.25 + row % 2 / 4]
        for row in range(240)
    ]
    _table(folder / "log.csv", ["client", "x", "y", "arm", "reward", "probability"], log)


def _table(path: Path, names: list[str], rows: list[list[Any]]) -> None:
    path.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n")


def _logged(row: int) -> list[Any]:
    return [row % 24, row % 5 / 4, row % 3 / 2, "abc"[row % 3], row * 7 % 4 / 3, 0.25 + row % 2 / 4]
