"""Draw the pictures of the documentation: the studio as a browser shows it, and what the cells of the notebooks show.

    python docs/figures.py [studio] [tutorials]

The pictures lie in docs/pictures. It needs the extras of `make test`, and Chromium.
"""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "pictures"
STAGES = {  # name of a picture: what the studio is asked for
    "studio": "system=samba&policy=ucb&means=0.38,0.55,0.47,0.71&names=Mill,Harbour,Green,Station&seed=7",
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
        chrome = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield chrome
        chrome.close()


def studio(chrome: Any) -> None:
    """Show a step of each system, as the studio plays it."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "posse", "studio", "--no-browser"]
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "POSSE_HOME": home}
        )
        try:
            assert server.stdout is not None
            address = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
            page = chrome.new_page(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
            page.add_init_script("localStorage.setItem('posse-studio-tour', 'yes')")
            page.goto(address)
            page.locator(".party").first.wait_for(timeout=120_000)
            for name, settings in STAGES.items():
                page.evaluate("where => { location.hash = where }", f"#/?{settings}")
                page.reload()
                page.locator(".party").first.wait_for(timeout=120_000)
                for _ in range(6):
                    page.get_by_role("button", name=re.compile("^Forward|^Next", re.IGNORECASE)).first.click()
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
                style = "<style>body { font: 15px sans-serif; margin: 12px; background: #fff }</style>"
                page.set_content(f"<!doctype html>{style}{shown[0]['text/html']}")
                _keep(page.locator(".posse").first.screenshot(), place)


def _keep(png: bytes, place: Path) -> None:
    """Write a picture in 128 colours: a third of the bytes."""
    from PIL import Image

    Image.open(io.BytesIO(png)).convert("RGBA").quantize(128).save(place, optimize=True)


def main() -> None:
    """Draw what was asked for, or everything."""
    PICTURES.mkdir(exist_ok=True)
    asked = sys.argv[1:] or ["studio", "tutorials"]
    with browser() as chrome:
        for name in asked:
            {"studio": studio, "tutorials": tutorials}[name](chrome)


if __name__ == "__main__":
    main()
