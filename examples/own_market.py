"""A market from your own files: what each agent gains, and what its purchases reveal.

    python examples/own_market.py [offers.csv deliveries.csv]

Without files the program writes small ones: two bakeries and a canteen buy eggs, and the records
state which eggs were whole.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import posse
from posse.problems import Market, binds
from posse.results import words
from posse.results.joining import joining

OFFERS = """\
agent,supplier,cost,capacity
bakery north,hill farm,0.19,120
bakery north,lake farm,0.15,200
bakery south,lake farm,0.16,90
bakery south,old mill,0.08,300
canteen,hill farm,0.21,60
canteen,lake farm,0.15,60
canteen,old mill,0.09,400
"""
DELIVERED = {"hill farm": "1111111111", "lake farm": "1110111111", "old mill": "0110110101"}


def made_up(folder: Path) -> tuple[Path, Path]:
    """Write offers, and past deliveries one unit a row."""
    offers, deliveries = folder / "offers.csv", folder / "deliveries.csv"
    rows = [f"{farm},{egg}\n" for farm, eggs in DELIVERED.items() for egg in eggs]
    offers.write_text(OFFERS, encoding="utf-8")
    deliveries.write_text("supplier,quality\n" + "".join(rows), encoding="utf-8")
    return offers, deliveries


def show(market: Market) -> None:
    """Print who deals with whom, and whether revenue and quality pull apart."""
    print(f"{market.source}: {len(market.agents)} agents, {len(market.producers)} suppliers")
    for agent, capacities in zip(market.agents, market.capacity, strict=True):
        dealt = (name for name, most in zip(market.producers, capacities, strict=True) if most > 0)
        print(f"  {agent} deals with {words.listed(list(dealt))}")
    print("  the quality threshold", "binds" if binds(market) else "does not bind")


def main() -> None:
    """Run the market alone and together, on the same deliveries."""
    offers, deliveries = (
        sys.argv[1:3] if len(sys.argv) > 2 else made_up(Path(tempfile.mkdtemp(prefix="posse-")))
    )
    together = posse.DpCombinatorial(
        offers=offers,
        records=deliveries,
        alpha=0.8,
        rho=0.25,
        currency="EUR",
        rounds=2_000,
        runs=3,
        margin=0.01,
        epsilon=1,
        delta="1/T",
        unit="entry",
    )
    show(together.load().market)
    records = [posse.run(together.instead(policy=method)) for method in ("alone", "p-fcb")]
    (joined,) = joining(records)
    for share in joined.shares:
        print(
            f"{share.party}: {words.plus_minus(share.difference, share.error)} EUR by joining "
            f"({share.verdict})"
        )
    print(records[1].privacy[0]["sentence"])


if __name__ == "__main__":
    main()
