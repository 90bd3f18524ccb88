"""A store of runs, models, shares and saved bandits that 0.1 wrote: opened, reported, audited and
used again.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import posse
from tests.frozen import adapter, archive, commands
from tests.frozen.commands import FED, MARKET, RUNS, Session
from tests.frozen.folders import parties

WRITTEN = f"""
{RUNS.strip()}
standard: run samba --owners 3 --budget 40 --seed 5 --level standard --paillier-bits 2048 --json
sweep samba --owners 3 --budget 100 --runs 2 --over seed=1,2 --over policy=ucb,pursuit --workers 1 --json
simulate dp-combinatorial {MARKET} --start 4 --runs 3 --json
fed: run fed-contextual {FED} --noise 1.0 --clip 0.05 --model-out model.npz --json
simulate fed-contextual {FED} --runs 2 --json
audit {{paper}} --json
devices app fleet --json
"""
READ = """
runs list --json
runs show {strict} --json
runs show {paper} --json
runs show {own} --json
runs show {plain} --json
runs show {mpc} --json
runs show {again} --json
runs show {market} --json
runs show {fed} --json
runs show {standard} --json
runs show {agent} --json
compare {strict} {plain}
runs export {strict} {market} {fed} --out runs.csv
runs export {strict} {market} {fed} --out runs.json
runs report {strict} {paper} {standard} --out samba.html
runs report {mpc} --out mpc.html
runs report {market} --out market.html
runs report {fed} --out fed.html
runs report {agent} --out agent.html
audit {strict} --json
audit {paper} --json
audit {market} --json
predict model.npz rows.csv --json
predict shares rows-of-mpc.csv --json
predict {fed} rows.csv --json
run mpc-contextual --rows 40 --steps 8 --start-from shares --no-save --json
run mpc-contextual --rows 40 --steps 8 --start-from shares --frozen --no-save --json
"""
LIVE: dict[str, Any] = {
    "strict": lambda: posse.live(
        posse.Samba(level="strict", policy="ucb"), arms=("red", "blue", "green"), horizon=40
    ),
    "paper": lambda: posse.live(
        posse.Samba(level="paper", policy="thompson", paillier_bits=2048), arms=("a", "b")
    ),
    "plain": lambda: posse.live(
        posse.Samba(path="plain", policy="pursuit"), arms=("red", "blue", "green")
    ),
}


def _used(bandit: Any, decisions: int) -> list[list[Any]]:
    made = []
    for _ in range(decisions):
        decision = bandit.decide()
        made.append([decision.id, decision.arm, decision.name])
        bandit.reward(decision.id, (decision.id * 7 + decision.arm * 3) % 5 / 4)
    return made


def write(into: Path) -> Iterator[str]:
    """Write the store with everything beside it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "stored"
        folder.mkdir()
        commands.write_inputs(folder)
        session = Session(folder)
        session.all(WRITTEN)
        for name, made in LIVE.items():
            bandit = made()
            _used(bandit, 12)
            bandit.save(folder / f"live-{name}.json")
        market = archive.unpack(into / "parties" / "market.zip", Path(place) / "market")
        os.chdir(market)
        adapter.resume(parties(market))
        os.chdir(folder)
        rows = commands.call("runs", "list", "--json")[1]
        session.ids["agent"] = next(row["id"] for row in json.loads(rows) if row["party"] == "ada")
        (folder / "ids.json").write_text(json.dumps(session.ids))
        for path in (folder / "home").rglob("*.sqlite"):
            with closing(sqlite3.connect(path)) as file:  # one file, without what was written ahead
                file.execute("vacuum")
                file.execute("pragma wal_checkpoint(truncate)")
        archive.pack(folder, into / "stored.zip")
        yield "stored"


def read(archives: Path) -> dict[str, Any]:
    """Use the store, the models and the bandits."""
    with tempfile.TemporaryDirectory() as place:
        folder = archive.unpack(archives / "stored.zip", Path(place) / "stored")
        session = Session(folder)
        session.ids = json.loads((folder / "ids.json").read_text())
        found = session.all(READ, alike=True)
        for name, made in LIVE.items():
            found[f"live {name}"] = _used(made().load(folder / f"live-{name}.json"), 10)
        return found
