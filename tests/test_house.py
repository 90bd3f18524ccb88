"""What imports cannot show: what is built on the systems knows the name of none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "posse"
GENERIC = ("cli", "studio", "results", "runtime")


def names() -> list[str]:
    """Names of the systems, in both spellings."""
    folders = [path.name for path in (SOURCE / "protocols").iterdir() if (path / "__init__.py").is_file()]
    assert len(folders) >= 4
    return sorted({spelling for name in (*folders, "samba") for spelling in (name, name.replace("_", "-"))})


def mentions(folder: str) -> list[str]:
    """Return the lines of a folder that name a system."""
    pattern = re.compile("|".join(rf"(?<![a-z]){re.escape(name)}(?![a-z])" for name in names()), re.IGNORECASE)
    return [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in sorted((SOURCE / folder).rglob("*"))
        if path.suffix in (".py", ".js", ".html", ".css", ".md", ".json", ".toml")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("folder", [folder for folder in GENERIC if (SOURCE / folder).is_dir()])
def test_no_system_is_named_where_everything_is_generic(folder: str) -> None:
    assert mentions(folder) == []
