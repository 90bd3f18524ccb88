"""Read arms from a file of ratings, compare policies, and export the records.

    python examples/own_ratings.py [ratings.csv]

Without a file the program writes a small one.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from posse.results import compare, export, reward_curves
from posse.systems.registry import run
from posse.systems.samba.settings import Samba


def made_up(path: Path) -> Path:
    """Write 3,000 ratings of five shops, one to five stars."""
    draw = random.Random(1)
    rows = [
        f"shop {shop},{min(5, max(1, round(draw.gauss(2 + shop / 2, 1))))}"
        for shop in range(1, 6)
        for _ in range(600)
    ]
    path.write_text("item,rating\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Compare four policies on the same worlds."""
    folder = Path(tempfile.mkdtemp(prefix="posse-"))
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else made_up(folder / "ratings.csv")
    records = [
        run(Samba(policy=policy, data=str(data), threshold=3, budget=3000, runs=20).plain())
        for policy in ("epsilon-greedy", "ucb", "thompson", "pursuit")
    ]
    for row in compare(records).rows:
        print(f"{row.label:24} {row.mean:8.1f} +- {row.error or 0:.1f}")
    print("rows:", export(records, folder / "curves.csv"))
    reward_curves(records).savefig(folder / "curves.png")
    print("figure:", folder / "curves.png")


if __name__ == "__main__":
    main()
