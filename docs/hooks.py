"""Pages of the site that lie elsewhere in the repository, so that each text has one source.

Tutorials are the notebooks, examples the programs. Links are written as they work in the
repository, and are turned into links of the site here.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
NAMED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "adding.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changes.md",
}
LANGUAGES = {".py": "python", ".sh": "sh", ".toml": "toml", ".csv": "text"}
SEARCH_BOOST = {
    "faq.md": 4,
    "quickstart.md": 3,
    "index.md": 2,
    "concepts.md": 2,
    "reproduced/": 0.1,
    "reference/": 0.3,
    "examples/": 0.3,
    "tutorials/": 0.5,
    "claims.md": 0.3,
    "changes.md": 0.3,
    "adding.md": 0.5,
}
"""Weight of pages in the search, by the beginning of their place; 1 if none fits.

New users ask in the words of the FAQ. Long tables of published figures contain every word.
"""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
LIST = re.compile(r"( *)([-*]|\d+\.) ")


def pages() -> dict[str, str]:
    """Give the place in the site of every file of the repository that is a page of it."""
    books, programs = ROOT.glob("docs/tutorials/*.ipynb"), ROOT.glob("examples/*.*")
    found = {f"docs/{path.name}": path.name for path in ROOT.glob("docs/*.md")}
    found |= {f"docs/tutorials/{path.name}": f"tutorials/{path.stem}.md" for path in books}
    found |= {f"examples/{path.name}": f"examples/{path.name}.md" for path in programs}
    return found | NAMED


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie elsewhere, the threat models of all systems as one page, and the list
    of examples.
    """
    for source, place in pages().items():
        if not source.startswith("docs/") or source.endswith(".ipynb"):
            files.append(File.generated(config, place, content=_text(ROOT / source)))
    files.append(File.generated(config, "threats.md", content=_threats()))
    files.append(File.generated(config, "examples/index.md", content=_examples()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links of the repository into links of the site, and set lists as this Markdown wants
    them.
    """
    for beginning, boost in SEARCH_BOOST.items():
        if page.file.src_uri.startswith(beginning):
            page.meta["search"] = {"boost": boost}
    known = pages()
    places = {place: source for source, place in known.items()}
    source = places.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def link(match: re.Match[str]) -> str:
        mark, text, target, anchor = match.groups(default="")
        if not target or "://" in target:
            return match.group()
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = known.get(there) or (
            there.removeprefix("docs/") if there.startswith("docs/") else None
        )
        if (
            source.startswith("docs/")
            and source not in places.values()
            and (ROOT / "docs" / target).exists()
        ):
            place = target
        if place is None:
            return text if (ROOT / there).exists() else match.group()
        return f"{mark}[{text}]({posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    parts = re.split(r"(^```.*?^```[^\n]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else _spaced(LINK.sub(link, part)) for part in parts
    )


def _spaced(text: str) -> str:
    """Set an empty line before the first line of a list that follows a paragraph, and indent nested
    ones by four.
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        item = LIST.match(line)
        if item and not inside and lines and lines[-1].strip():
            lines.append("\n")
        inside = bool(item) or (inside and line.startswith(" ")) or (inside and not line.strip())
        lines.append(f"  {line}" if item and len(item[1]) in (2, 3) else line)
    return "".join(lines)


def _text(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return _notebook(path)
    shown = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        shown = "\n".join([*shown.splitlines()[:8], "..."])
    where = f"In the repository: `examples/{path.name}`."
    return f"# {path.name}\n\n{where}\n\n```{LANGUAGES[path.suffix]}\n{shown.rstrip()}\n```\n"


def _notebook(path: Path) -> str:
    """Give a notebook as a page: text, code, and the pictures that `figures.py` drew of its
    cells.
    """
    lines = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        lines.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        picture = ROOT / "docs" / "pictures" / f"tutorial-{cell['id']}.png"
        if picture.exists():
            lines.append(f"![What the cell shows](../pictures/{picture.name})")
    where = f"*This page is the notebook `docs/tutorials/{path.name}`; `make notebooks` opens it.*"
    return "\n\n".join([lines[0], where, *lines[1:]]) + "\n"


def _threats() -> str:
    """Put the threat models of all systems on one page, from the page of each."""
    parts = [
        "# Threat models\n\nWho is assumed to do what, and what attacks find, from the page of "
        "each system. "
        "`posse audit SYSTEM` makes the attacks; every record names what its level does *not* "
        "protect."
    ]
    for path in sorted(ROOT.glob("docs/systems/*.md")):
        text = path.read_text(encoding="utf-8")
        found = re.search(
            r"^## Threat model[^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
        body = re.sub(r"^#(#+ )", r"\1", found[1] if found else "", flags=re.MULTILINE)
        body = re.sub(r"^(#+ )", r"#\1", body, flags=re.MULTILINE)
        name = path.stem
        parts.append(f"## {name}\n\nThe whole page: [{name}](systems/{name}.md).\n{body}")
    return "\n\n".join(parts)


def _examples() -> str:
    """List the examples, each with the first line of what it says about itself."""
    lines = ["# Examples\n\nPrograms and scripts of the repository; the tests run all of them.\n"]
    for path in sorted(ROOT.glob("examples/*.*")):
        first = re.search(r'^(?:"""|# )([^!\n]+)', path.read_text(encoding="utf-8"), re.MULTILINE)
        lines.append(f"- [{path.name}]({path.name}.md): {first[1] if first else 'a small table'}")
    return "\n".join(lines) + "\n"


class Doctests(griffe.Extension):
    """Examples in docstrings are code: a line that begins with >>> would else be a quotation."""

    def on_instance(self, *, node: Any, obj: griffe.Object, agent: Any, **options: Any) -> None:
        """Put fences around the examples of an object."""
        if obj.docstring is not None:
            blocks = re.sub(r"(?m)^(>>> (?:.+\n?)+)", r"```pycon\n\1\n```\n", obj.docstring.value)
            obj.docstring.value = blocks
