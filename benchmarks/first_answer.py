"""CPU seconds from the command to the first answer, with an empty and with a full cache of code.

Run it with another Python to measure another installation: the base install has no extras.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = ("run", "samba", "--policy", "ucb", "--owners", "10", "--horizon", "300")
REPEAT = 3


def command_seconds(folder: Path) -> float:
    """Return the CPU seconds of the command, with its code and its store in a folder."""
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(folder / "code"),
        "POSSE_HOME": str(folder / "store"),
    }
    program = [sys.executable, "-c", "from posse.cli import main; main()", *COMMAND]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(program, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_answer() -> None:
    """Print the medians."""
    cold = []
    warm = []
    for _ in range(REPEAT):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(command_seconds(Path(folder)))
            warm.append(command_seconds(Path(folder)))
    print(
        f"\nfirst answer of 'posse {' '.join(COMMAND)}', CPU seconds: "
        f"{statistics.median(cold):.2f} with an empty cache, {statistics.median(warm):.2f} after"
    )


if __name__ == "__main__":
    first_answer()
