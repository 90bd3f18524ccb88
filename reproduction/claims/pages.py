"""Keep what reproductions found, and write the pages: `python -m reproduction.claims
posse-reproduce page.md`.

Beside the page of claims, a folder `reproduced` has tables and picture of every full form, with
date and command.
"""

import re
import sys
from pathlib import Path

from reproduction import claims


def keep(folder: Path, reproduced: Path) -> None:
    """Keep tables and pictures of the full forms below a folder, and list all that are kept."""
    reproduced.mkdir(exist_ok=True)
    for found in sorted(folder.rglob("claims.json")):
        made = claims.read(found)
        if made.small:
            continue
        name = made.reproduction.replace("/", "-")
        page = (found.parent / "analysis.md").read_text(encoding="utf-8").partition("\nFiles: ")[0]
        title, _, rest = page.partition("\n")
        lines = [title, "", f"`{made.command}`, {made.date}, {made.machine}."]
        for number, picture in enumerate(sorted(found.parent.glob("*.svg"))):
            kept = reproduced / f"{name}{f'-{number + 1}' if number else ''}.svg"
            kept.write_text(rounded(picture.read_text(encoding="utf-8")), encoding="utf-8")
            lines += ["", f"![{title.lstrip('# ')}]({kept.name})"]
        (reproduced / f"{name}.md").write_text(
            "\n".join([*lines, rest.rstrip(), ""]), encoding="utf-8"
        )
    lines = [
        "# What was measured",
        "",
        "Tables and pictures of the full forms, with command, date and machine.",
        "",
    ]
    for path in sorted(reproduced.glob("*.md")):
        if path.name != "index.md":
            title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
            lines.append(f"- [{title}]({path.name})")
    (reproduced / "index.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def rounded(svg: str) -> str:
    """Write the numbers of an SVG's paths with one decimal, and nothing between its elements: a
    third of its size.
    """

    def short(path: re.Match[str]) -> str:
        numbers = re.sub(
            r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), path[0]
        )
        return re.sub(r"\s+", " ", re.sub(r"\s*([A-Za-z])\s*", r"\1", numbers.removeprefix(' d="')))

    paths = re.sub(r' d="[^"]+', lambda path: f' d="{short(path).strip()}', svg)
    return re.sub(
        r"\s*\n\s*", "\n", re.sub(r"<metadata>.*?</metadata>", "", paths, flags=re.DOTALL)
    )


if __name__ == "__main__":
    folder, target = map(Path, sys.argv[1:])
    taken = claims.take(folder)
    target.write_text(claims.page(), encoding="utf-8")
    keep(folder, target.parent / "reproduced")
    print(f"{target} written; taken: {', '.join(taken) or 'nothing new'}")
