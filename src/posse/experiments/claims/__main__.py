"""Keep what reproductions found, and write the page: `python -m posse.experiments.claims posse-reproduce page.md`."""

import sys
from pathlib import Path

from posse.experiments import claims

if __name__ == "__main__":
    folder, target = map(Path, sys.argv[1:])
    taken = claims.take(folder)
    target.write_text(claims.page(), encoding="utf-8")
    print(f"{target} written; taken: {', '.join(taken) or 'nothing new'}")
