"""The studio at 20 time steps a second: `make bench-studio`.

A server in a process of its own plays Samba at level strict with 20 and with 100 owners. Without a
browser: bytes a second on the wire as a browser takes them (compressed) and as they are, and CPU of
the server. In headless Chromium without a GPU: main-thread CPU a frame, frames a second, the page's
heap at the beginning and at the end, bytes of the first load, and how long a press of a key takes
until the page shows it. POSSE_BENCH_SECONDS is how long each is played.

`make bench-studio MINUTES=10` plays 20 owners for so long instead, and prints once a minute what
the page and the server hold: the page's heap after its garbage was collected, its nodes and
listeners, and the server's memory.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

SECONDS = float(os.environ.get("POSSE_BENCH_SECONDS", "20"))
MINUTES = int(os.environ.get("POSSE_BENCH_MINUTES") or 0)
SPEED, WINDOW = 20, 0.25
"""Time steps a second, and seconds over which main-thread CPU is added up for one figure."""
ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)


def main() -> None:
    """Start a studio, measure, stop it."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "posse", "studio", "--no-browser"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "POSSE_HOME": home}
        ) as server:
            assert server.stdout is not None
            found = re.search(r"(http://\S+)/#token=(\S+)", server.stdout.readline())
            assert found is not None
            try:
                measure(found[1], found[2], server.pid, Path(home))
            finally:
                server.terminate()


def measure(origin: str, token: str, pid: int, home: Path) -> None:
    """Print everything for 20 and for 100 owners."""
    with httpx.Client(base_url=origin, headers={"origin": origin}, timeout=60) as client:
        _enter(client, token)
        if MINUTES:
            chromium = shutil.which("chromium") or shutil.which("chromium-browser")
            if chromium is None:
                sys.exit("no Chromium is here: the page's heap is not measured")
            heap(origin, _token(home), chromium, pid)
            return
        for owners in (20, 100):
            id = client.post(
                "/api/stages", json={"system": "samba", "settings": settings(owners)}
            ).json()["id"]
            while client.get(f"/api/stages/{id}").json()["phase"] == "starting":
                time.sleep(0.1)
            client.post(f"/api/stages/{id}/do", json={"action": "jump", "time": owners + 10})
            client.post(
                f"/api/stages/{id}/do", json={"action": "play", "unit": "time", "speed": SPEED}
            )
            for encoding in ("gzip", "identity"):
                wire(client, id, encoding, pid, owners)
            client.delete(f"/api/stages/{id}")
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        if chromium is None:
            print("no Chromium is here: the page is not measured")
            return
        for owners in (20, 100):
            page(origin, _token(home), chromium, pid, owners)


def _enter(client: httpx.Client, token: str) -> None:
    while True:
        try:
            client.post("/api/enter", json={"token": token}).raise_for_status()
            return
        except httpx.TransportError:
            time.sleep(0.1)


def _token(home: Path) -> str:
    from posse.studio.guard import Keys

    return Keys(home / "studio").token()


def settings(owners: int) -> dict[str, Any]:
    """What is played."""
    return {"policy": "ucb", "owners": owners, "horizon": 20_000, "level": "strict", "seed": 7}


def cpu(pid: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wire(client: httpx.Client, id: str, encoding: str, pid: int, owners: int) -> None:
    """Read the stream for a while."""
    size, frames, began, spent = 0, 0, time.monotonic(), cpu(pid)
    before = client.get(f"/api/stages/{id}").json()["time"]
    with client.stream(
        "GET", "/api/stream", params={"stage": id}, headers={"accept-encoding": encoding}
    ) as answer:
        for chunk in answer.iter_raw():
            size, frames = size + len(chunk), frames + 1
            if time.monotonic() - began > SECONDS:
                break
    took = time.monotonic() - began
    steps = client.get(f"/api/stages/{id}").json()["time"] - before
    print(
        f"K = {owners:3}, {encoding:8}: {size / took / 1000:6.1f} KB/s on the wire, "
        f"{frames / took:4.1f} frames/s, "
        f"{steps / took:4.1f} steps/s, server {(cpu(pid) - spent) / took:5.1%} of a core"
    )


@contextmanager
def playing(origin: str, token: str, chromium: str, owners: int) -> Iterator[tuple[Any, Any, int]]:
    """Open the page in Chromium and play: the tab, its metrics, and the bytes of the first load."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGS))
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.add_init_script("localStorage.setItem('posse-studio-tour', 'yes')")
        tab = context.new_page()
        tab.set_default_timeout(300_000)
        loaded: list[int] = []
        tab.on(
            "response", lambda answer: loaded.append(int(answer.headers.get("content-length", 0)))
        )
        tab.goto(f"{origin}/#token={token}")
        tab.get_by_role("button", name="Play").wait_for()
        first = sum(loaded)
        tab.goto(
            f"{origin}/#/stage?{urlencode({'system': 'samba', **settings(owners), 't': owners + 10})}"
        )
        tab.reload()
        tab.get_by_role("button", name="Play").wait_for()
        metrics = context.new_cdp_session(tab)
        metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.evaluate(
            "() => { window.frames_ = 0; const f = () => { window.frames_++; "
            "requestAnimationFrame(f); }; f(); }"
        )
        tab.get_by_label("unit of forward, back and play").get_by_text("time", exact=True).click()
        tab.get_by_label("speed, units a second").select_option(str(SPEED))
        tab.get_by_role("button", name="Play").click()
        tab.wait_for_timeout(2000)
        yield tab, metrics, first
        browser.close()


def heap(origin: str, token: str, chromium: str, pid: int) -> None:
    """Play 20 owners for `MINUTES`, and print every minute what is held after the garbage was
    collected.
    """
    with playing(origin, token, chromium, 20) as (tab, metrics, _):
        for minute in range(MINUTES + 1):
            metrics.send("HeapProfiler.collectGarbage")
            found = _metrics(metrics)
            at = tab.locator(".place").inner_text()
            held = (
                int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                * os.sysconf("SC_PAGE_SIZE")
                / 1e6
            )
            print(
                f"minute {minute:2}: {at}; heap {found['JSHeapUsedSize'] / 1e6:.2f} MB, "
                f"{found['Nodes']:.0f} nodes, "
                f"{found['JSEventListeners']:.0f} listeners; server {held:.0f} MB, {cpu(pid):.0f} "
                "s of CPU",
                flush=True,
            )
            if minute < MINUTES:
                tab.wait_for_timeout(60_000)


def page(origin: str, token: str, chromium: str, pid: int, owners: int) -> None:
    """Play in Chromium; main-thread CPU is that of its tasks, in ticks of the thread
    (`Performance.getMetrics`).
    """
    with playing(origin, token, chromium, owners) as (tab, metrics, first):
        samples, frames, heaps, spent, began = [], 0, [], cpu(pid), time.monotonic()
        while time.monotonic() - began < SECONDS:
            start = _metrics(metrics), tab.evaluate("window.frames_")
            tab.wait_for_timeout(1000 * WINDOW)
            end = _metrics(metrics), tab.evaluate("window.frames_")
            drawn = max(1, end[1] - start[1])
            samples.append((end[0]["TaskDuration"] - start[0]["TaskDuration"]) / drawn * 1000)
            frames += drawn
            heaps.append(end[0]["JSHeapUsedSize"] / 1e6)
        took, used = time.monotonic() - began, cpu(pid) - spent
        presses, steps = [], []
        for _ in range(20):
            presses.append(_press(tab, PRESSED))
            tab.wait_for_timeout(300)
        for _ in range(
            10
        ):  # the run plays: it is paused, and then played until the next step is shown
            _press(tab, PRESSED)
            tab.wait_for_timeout(300)
            steps.append(_press(tab, STEPPED))
            tab.wait_for_timeout(300)
    ninth = statistics.quantiles(samples, n=20)[-1]
    print(
        f"K = {owners:3}, page: main thread {statistics.median(samples):.1f} ms a frame, p95 "
        f"{ninth:.1f} ms; "
        f"{frames / took:.0f} frames/s; heap {min(heaps[:8]):.1f} -> {min(heaps[-8:]):.1f} MB; "
        "press to shown "
        f"{statistics.median(presses):.0f} ms, p95 {statistics.quantiles(presses, n=20)[-1]:.0f} "
        "ms; play to the "
        f"next step {statistics.median(steps):.0f} ms, at most {max(steps):.0f} ms; "
        f"first load {first / 1000:.0f} KB; server {used / took:.1%} of a core"
    )


def _metrics(session: Any) -> dict[str, float]:
    return {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}


PRESSED, STEPPED = (
    "button.getAttribute('aria-label')",
    "document.querySelector('.place').textContent",
)


def _press(tab: Any, shown: str) -> float:
    """Milliseconds from a press of play or pause until the page shows something else; 30 seconds
    where it does not.
    """
    return float(
        tab.evaluate(
            """() => new Promise(done => {
        const button = document.querySelector("button[aria-label='Play'], button[aria-label='Pause']");
        const was = SHOWN, began = performance.now();
        const since = () => performance.now() - began;
        const look = () => SHOWN !== was || since() > 30000 ? done(since()) : requestAnimationFrame(look);
        button.click();
        look();
    })""".replace("SHOWN", shown)
        )
    )


if __name__ == "__main__":
    main()
