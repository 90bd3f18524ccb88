"""The command of the toy: `posse greet`."""

from __future__ import annotations

from collections.abc import Iterator

from posse.core.settings import Settings
from posse.results.section import Section
from posse.systems.modules import Command, Commands


class Greeting(Settings):
    """Settings of the command."""

    name: str = "world"
    """Whom to greet."""


def greet(settings: Greeting) -> Iterator[str | Section]:
    """Yield a remark and a table."""
    yield "thinking"
    rows = ((settings.name, "hello"),)
    yield Section("A greeting", ("to", "text"), rows, data={"to": settings.name})


COMMANDS = Commands(
    commands=(
        Command(("greet",), "Greet somebody.", lambda: Greeting, greet, positional=("name",)),
    )
)
