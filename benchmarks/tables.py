"""How much reading a table costs, next to what pyarrow needs for the same file.

    python -m benchmarks.tables

Prints CPU time of the process: two columns of a million rows by `Schema`, by pyarrow alone (which
gives the same: numbers, and distinct words with their codes), and by Python's csv; and five million
rows in a process of its own, with its memory.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from posse.problems.tables.schema import Schema, numbers, words
from posse.problems.tables.table import open_table

ROWS = 1_000_000
SCHEMA = Schema(words("item"), numbers("rating"))
LOAD = """
import resource, sys
from posse.problems.arms.settings import ProblemSettings
ProblemSettings(data=sys.argv[1], threshold=3).arms()
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def process_cpu(work: Callable[[], object], repeat: int = 7) -> float:
    """Return the least CPU seconds of this process, all threads, over `repeat` calls."""
    best = float("inf")
    for _ in range(repeat):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def write(path: Path, rows: int) -> Path:
    """Write ratings of a thousand items."""
    part = "".join(f"item-{i % 997},{i % 5 + 1}\n" for i in range(100_000))
    path.write_text("item,rating\n" + part * (rows // 100_000))
    return path


def by_csv(path: Path) -> list[tuple[str, float]]:
    """Read with Python's csv alone, without a check."""
    with path.open(newline="") as stream:
        reader = csv.reader(stream)
        next(reader)
        return [(item, float(rating)) for item, rating in reader]


def main() -> None:
    """Print the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        text = write(Path(folder, "ratings.csv"), ROWS)
        columnar = Path(folder, "ratings.parquet")
        pa.parquet.write_table(pa.csv.read_csv(text), columnar)
        own = process_cpu(lambda: SCHEMA.read(open_table(text)))
        arrow = process_cpu(lambda: pa.csv.read_csv(text)["item"].dictionary_encode())
        plain = process_cpu(lambda: by_csv(text), repeat=2)
        print(f"CSV, {ROWS:,} rows: {own:.3f} s; pyarrow {arrow:.3f} s, {own / arrow:.2f} times")
        print(f"CSV by Python's csv alone: {plain:.3f} s, {own / plain:.2f} times")
        own = process_cpu(lambda: SCHEMA.read(open_table(columnar)))
        arrow = process_cpu(lambda: pa.parquet.read_table(columnar)["item"].dictionary_encode())
        print(f"Parquet: {own:.3f} s; pyarrow {arrow:.3f} s, {own / arrow:.2f} times")
        large = write(Path(folder, "large.csv"), 5 * ROWS)
        done = subprocess.run(
            [sys.executable, "-c", LOAD, str(large)], capture_output=True, text=True, check=True
        )
        seconds, megabytes = map(float, done.stdout.split())
        print(f"{5 * ROWS:,} rows: {seconds:.2f} CPU-seconds, {megabytes:.0f} MiB")


if __name__ == "__main__":
    main()
