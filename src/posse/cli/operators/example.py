"""`posse up --example`: four shops share 400 coupons, and head office learns one number.

The files of the example are data of the package. They are copied to a folder of the user, who can
read and change them.
"""

from __future__ import annotations

import csv
import socket
from dataclasses import asdict, dataclass
from importlib.resources import files as package_files
from pathlib import Path
from typing import TYPE_CHECKING

from posse.cli.screen import print_json, remark, say, table
from posse.core import files
from posse.core.errors import DataError
from posse.core.settings import read_toml

if TYPE_CHECKING:
    from posse.runtime.network.health import Status

FOLDER = Path("posse-example")
"""Where the example goes unless `--folder` names another place."""
FEDERATION = "federation.toml"
_SOURCE = ("examples", "coupons")


@dataclass(frozen=True)
class PartyResult:
    """What one party knows when its part is over; numbers outside its knowledge are None."""

    party: str
    role: str
    pulls: int | None
    total: int | None
    record: str


@dataclass(frozen=True)
class Comparison:
    """What other choices earn in expectation, for somebody who has the files of all shops."""

    even_split: int
    best_alone: int


def prepare(folder: Path) -> Path:
    """Copy the example's files to a folder, where they are missing; return the federation's file.

    The federation listens on a port that is free now, so that the example also runs next to other
    federations.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source in package_files("posse").joinpath(*_SOURCE).iterdir():
            text = source.read_text(encoding="utf-8")
            if source.name == FEDERATION:
                text = text.replace("\nbudget", f'\nlisten = "127.0.0.1:{_free_port()}"\nbudget', 1)
            if not (folder / source.name).exists():
                files.write_whole(folder / source.name, text.encode(), mode=files.PUBLIC)
    except OSError as error:
        raise DataError(
            f"cannot write the example in {folder}: {files.explain_os_error(error)} Pass --folder.",
            rule="cli.folder.not-writable",
        ) from error
    return folder / FEDERATION


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def compare(federation: Path) -> Comparison:
    """Compute what an even split and the best shop alone earn, from the files of all shops."""
    settings = read_toml(federation)
    rates = []
    for owner in settings["owner"]:
        with (federation.parent / owner["source"]["file"]).open(encoding="utf-8") as lines:
            used = [int(row["used"]) for row in csv.DictReader(lines)]
        rates.append(sum(used) / len(used))
    coupons = settings["budget"]
    return Comparison(
        even_split=round(coupons * sum(rates) / len(rates)),
        best_alone=round(coupons * max(rates)),
    )


def read_parties(place: Path) -> list[PartyResult]:
    """Read the result of every party from its own folder: customer, owners, servers."""
    from posse.systems.parties import read_result

    results = []
    for path in sorted(place.glob("*.toml")):
        result = read_result(place / path.stem / "journal")
        total = round(result["total"]) if "total" in result else None
        identity = (result["party"], result["role"])
        results.append(PartyResult(*identity, result.get("pulls"), total, result["record"]))
    places = {"customer": 0, "owner": 1}
    return sorted(results, key=lambda result: places.get(result.role, 2))


def show(outcome: Status, federation: Path, place: Path, as_json: bool) -> None:
    """Print the total, what other choices earn, and what each party's own record has."""
    parties = read_parties(place)
    comparison = compare(federation)
    if as_json:
        figures = {"run": outcome["run"], "total": outcome["total"], "pulls": outcome["pulls"]}
        own = [asdict(party) for party in parties]
        print_json({**figures, **asdict(comparison), "parties": own, "folder": str(place)})
        return
    say(
        f"{outcome['total']:.0f} of {outcome['pulls']} coupons were used. "
        f"An even split earns {comparison.even_split}, "
        f"the best shop alone {comparison.best_alone}.",
        style="bold",
    )
    rows = [(party.party, _knowledge(party), party.record) for party in parties]
    table(("party", "what its own record has", "record"), rows)
    remark(f"Their files: {place.parent}. One record in full: posse runs show RECORD.")


def _knowledge(party: PartyResult) -> str:
    if party.total is None:
        return "neither coupons nor a total"
    if party.role == "customer":
        return f"the total: {party.total} used of {party.pulls}"
    return f"its own coupons: {party.total} used of {party.pulls}"
