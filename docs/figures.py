"""Draw the pictures of the documentation: who talks to whom, the studio, and what the cells of the
notebooks show.

    python docs/figures.py [roles] [studio] [tutorials]

The pictures lie in docs/pictures. It needs the extras of `make test`; the studio and the notebooks
need Chromium too.
"""

from __future__ import annotations

import base64
import html
import io
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "pictures"
STAGES = {  # name of a picture: what the studio is asked for
    "studio": (
        "system=samba&policy=thompson&means=0.71,0.47,0.38,0.55"
        "&names=harbour,market,north,station&horizon=400&seed=7"
    ),
    "studio-mpc": "system=mpc-contextual",
    "studio-market": "system=dp-combinatorial",
    "studio-devices": "system=fed-contextual",
}


@contextmanager
def browser() -> Iterator[Any]:
    """Give Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        sys.exit("no Chromium is here (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        yield chrome
        chrome.close()


SMALL: dict[str, dict[str, Any]] = {
    "samba": {"owners": 4, "horizon": 20},
    "mpc-contextual": {"rows": 10},
    "dp-combinatorial": {"agents": 3, "producers": 8, "horizon": 450},
    "fed-contextual": {"horizon": 4},
}
"""Settings of the runs whose messages the diagrams show."""


SMALL_TEXT = 'font-size="11" fill="#555" stroke="#fff" stroke-width="3" paint-order="stroke"'


def roles() -> None:
    """Draw the roles of each system where it places them, and a line for each hop of a small
    run.
    """
    from posse.systems import registry

    for system in registry.systems():
        hops = [
            hop.hop.split(" -> ")
            for hop in registry.run(system.Settings(**SMALL[system.name])).traffic
        ]
        (PICTURES / f"roles-{system.name}.svg").write_text(_diagram(system, hops), encoding="utf-8")


def _diagram(system: Any, hops: list[list[str]]) -> str:
    wide, high, radius = 760, 520, 36
    at = {
        one.kind: (70 + one.place[0] * (wide - 140), 50 + one.place[1] * (high - 140))
        for one in system.roles
    }
    if len(at) == 1:
        at = dict.fromkeys(at, (wide / 2, high / 2 - 20))
    lines = []
    if not hops:  # no role runs for itself here, as where a step is a round
        hops = [
            [one.kind, other.kind]
            for one in system.roles
            for other in system.roles
            if one is not other
        ]
    for sender, receiver in hops:
        if sender not in at or receiver not in at:
            continue
        (x, y), (to_x, to_y) = at[sender], at[receiver]
        if sender == receiver:
            path = f"M {x - 30} {y - 32} C {x - 90} {y - 70} {x + 90} {y - 70} {x + 30} {y - 32}"
        else:
            far = math.hypot(to_x - x, to_y - y)
            along, aside = (
                ((to_x - x) / far, (to_y - y) / far),
                ((y - to_y) / far * 7, (to_x - x) / far * 7),
            )
            begin = (x + along[0] * radius + aside[0], y + along[1] * radius + aside[1])
            end = (
                to_x - along[0] * (radius + 9) + aside[0],
                to_y - along[1] * (radius + 9) + aside[1],
            )
            path = f"M {begin[0]:.0f} {begin[1]:.0f} L {end[0]:.0f} {end[1]:.0f}"
        lines.append(
            f'<path d="{path}" fill="none" stroke="#8a93a3" stroke-width="1.6" '
            'marker-end="url(#to)"/>'
        )
    for one in system.roles:
        x, y = at[one.kind]
        lines.append(
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{radius}" fill="#fff" stroke="{one.colour[0]}" '
            'stroke-width="3"/>'
        )
        words = one.label.split()
        for number, word in enumerate(words):
            down = y + 5 + 14 * (number - (len(words) - 1) / 2)
            lines.append(
                f'<text x="{x:.0f}" y="{down:.0f}" font-weight="600">{html.escape(word)}</text>'
            )
        for number, part in enumerate(textwrap.wrap(one.holds, 24)):
            down = y + radius + 16 + 13 * number
            lines.append(
                f'<text x="{x:.0f}" y="{down:.0f}" {SMALL_TEXT}>{html.escape(part)}</text>'
            )
    marker = (
        '<defs><marker id="to" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" '
        'markerHeight="7" '
        'orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" fill="#8a93a3"/></marker></defs>'
    )
    low, below = min(y for _, y in at.values()) - 75, max(y for _, y in at.values()) + 95
    box = f"0 {low:.0f} {wide} {below - low:.0f}"
    title = html.escape(f"Roles of {system.name}, and who sends messages to whom")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" aria-label="{title}" '
        f'font-family="sans-serif" font-size="12" text-anchor="middle" fill="#222">\n{marker}\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def studio(chrome: Any) -> None:
    """Show a step of each system, as the studio plays it."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "posse", "studio", "--no-browser"]
        server = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "POSSE_HOME": home},
        )
        try:
            assert server.stdout is not None
            address = next(
                found[0] for line in server.stdout if (found := re.search(r"http://\S+", line))
            )
            page = chrome.new_page(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
            page.add_init_script("localStorage.setItem('posse-studio-tour', 'yes')")
            page.goto(address)
            page.locator(".party").first.wait_for(timeout=120_000)
            for name, settings in STAGES.items():
                page.evaluate("where => { location.hash = where }", f"#/?{settings}")
                page.reload()
                page.locator(".party").first.wait_for(timeout=120_000)
                for _ in range(6):
                    page.get_by_role(
                        "button", name=re.compile("^Forward|^Next", re.IGNORECASE)
                    ).first.click()
                    page.wait_for_timeout(600)
                _keep(page.screenshot(), PICTURES / f"{name}.png")
        finally:
            server.terminate()
            server.wait()


def tutorials(chrome: Any) -> None:
    """Run the notebooks and keep what their cells show."""
    import nbformat
    from nbclient import NotebookClient

    page = chrome.new_page(viewport={"width": 820, "height": 700}, device_scale_factor=1.5)
    for path in sorted((DOCS / "tutorials").glob("*.ipynb")):
        book = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(book, timeout=1800, resources={"metadata": {"path": folder}}).execute()
        for cell in book.cells:
            shown = [output["data"] for output in cell.get("outputs", ()) if "data" in output][-1:]
            place = PICTURES / f"tutorial-{cell['id']}.png"
            if shown and "image/png" in shown[0]:
                _keep(base64.b64decode(shown[0]["image/png"]), place)
            elif shown and "text/html" in shown[0]:
                style = (
                    "<style>body { font: 15px sans-serif; margin: 12px; background: #fff }</style>"
                )
                page.set_content(f"<!doctype html>{style}{shown[0]['text/html']}")
                _keep(page.locator(".posse").first.screenshot(), place)


def _keep(png: bytes, place: Path) -> None:
    """Write a picture in 128 colours: a third of the bytes."""
    from PIL import Image

    Image.open(io.BytesIO(png)).convert("RGBA").quantize(128).save(place, optimize=True)


def main() -> None:
    """Draw what was asked for, or everything."""
    PICTURES.mkdir(exist_ok=True)
    asked = sys.argv[1:] or ["roles", "studio", "tutorials"]
    if "roles" in asked:
        roles()
    shown = {"studio": studio, "tutorials": tutorials}
    if set(asked) & set(shown):
        with browser() as chrome:
            for name in (name for name in asked if name in shown):
                shown[name](chrome)


if __name__ == "__main__":
    main()
