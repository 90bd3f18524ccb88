"""The Samba demo, zone by zone: what its interface shows must be there for any run. Pages are
tested in a browser.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posse.problems.arms.settings import ProblemSettings
from posse.results import plots
from posse.results.store import Store
from posse.systems.samba.levels import PROTECTIONS
from posse.systems.samba.scene import SCENE
from posse.systems.samba.settings import Samba
from posse.systems.samba.system import SYSTEM
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, Finding
from reproduction.kit import Analysis, Paper, Row, Table, Watch, mean_of, write_files
from reproduction.samba.means import counted
from reproduction.samba.setting import explained, finished, follow, started

DEMO = Paper(
    "samba-demo",
    "Marcadet, Ciucanu, Lafourcade, Soare, Amer-Yahia: SAMBA: a system for secure federated "
    "multi-armed bandits",
)
ZONE_A = ("policy", "owners", "horizon", "data", "threshold", *PROTECTIONS)
STORES = (0.38, 0.55, 0.47, 0.71)
POLICIES = ("ucb", "epsilon-greedy", "softmax", "thompson")
"""Those that the demo names."""


@dataclass(frozen=True)
class Switched:
    """A run with one protection off, beside the same run with all."""

    switch: str
    seed: int
    seconds: Mapping[str, float]
    messages: int
    """Kinds of part of a message whose protection changed."""
    same: bool
    """Whether the total is the same."""

    def row(self) -> Row:
        """The run as a row of the raw file."""
        return {
            "off": self.switch or "none",
            "seed": self.seed,
            "kinds_of_part_changed": self.messages,
            "same_total": int(self.same),
            **{f"{kind}_seconds": self.seconds[kind] for kind in KINDS},
        }


KINDS = ("owner", "controller", "comp", "customer")


def settings_of(policy: str = "ucb", horizon: int = 200, **more: Any) -> Samba:
    """Four local stores at the published level."""
    return Samba(policy=policy, level="paper", means=STORES, horizon=horizon, **more)


def zones(policy: str) -> dict[str, bool]:
    """Run message by message, and look at what each zone would show."""
    more: dict[str, Any] = {"shortcut": False} if policy.startswith("epsilon") else {}
    settings = settings_of(policy, 30, **more)
    run, paillier = started(settings), []
    logged = marked = covered = True
    for moved, explanation in explained(run):
        logged &= bool(explanation["says"])
        marked &= bool(explanation["lines"])
        covered &= bool(explanation["parts"]) and (
            bool(explanation["clear"]) or not moved.step.isdigit()
        )
        if any(
            "paillier" in (part["protection"], *part.get("also", ()))
            for part in explanation["parts"]
        ):
            paillier.append(moved.step)
    scene = SCENE.draw(run)
    assert scene is not None
    shown = [one["text"] for one in scene["parties"] if one["kind"] == "owner"]
    truth = [f"{total:g} / {count}" for total, count in zip(*_sums(run), strict=True)]
    record = run.record()
    return {
        "A": set(ZONE_A) <= set(Samba.model_fields) and logged,
        "B": marked and shown == truth and set(SCENE.pseudocode(settings)) == set(KINDS),
        "C": covered and set(paillier) == {"6", "7"},
        "D": set(record.role_seconds) == set(KINDS) and len(SCENE.variants(settings)) >= 6,
    }


def _sums(run: Any) -> tuple[list[float], list[int]]:
    truth = run.truth()
    return [float(one) for one in truth["sums"]], [int(one) for one in truth["pulls"]]


def protections(settings: Samba) -> set[tuple[str, str, tuple[str, ...]]]:
    """Every kind of part of a message with what covers it."""
    found = set()
    for moved, explanation in explained(started(settings.but(horizon=8))):
        for part in explanation["parts"]:
            name = part["name"].partition(", place")[0]
            found.add((moved.step, name, (part["protection"], *part.get("also", ()))))
    return found


def switched(
    switch: str, horizon: int, seed: int, all_on: set[Any], total: float | None
) -> tuple[Switched, float]:
    """Run with a switch off ('' for none), and say what changed."""
    off: dict[str, Any] = {switch: False} if switch else {}
    settings = settings_of(horizon=horizon, seed=seed, **off)
    run, _, earned, _, _ = finished(settings)
    changed = len(protections(settings) ^ all_on)
    return Switched(
        switch, seed, run.role_seconds(), changed, total is None or earned == total
    ), earned


def written(folder: Path) -> list[tuple[str, ProblemSettings]]:
    """Write reviews in the layouts of the demo's two data sets, and name problems that read
    them.
    """
    steam = [
        {"product_id": str(n % 5), "hours": float((n * 7) % 11), "username": f"u{n}"}
        for n in range(200)
    ]
    google = [
        {"gmap_id": f"place {n % 6}", "rating": 1 + (n * n) % 5, "user_id": str(n)}
        for n in range(240)
    ]
    paths = folder / "steam_reviews.json.gz", folder / "review-Town.json.gz"
    for path, lines in zip(paths, (map(repr, steam), map(json.dumps, google)), strict=True):
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return [
        ("Steam", ProblemSettings(data=str(paths[0]), threshold=5.0)),
        ("Google Local", ProblemSettings(data=str(paths[1]), threshold=3.0)),
    ]


def history(folder: Path) -> tuple[int, int]:
    """Keep runs of four policies; return how many the list shows with their reward, and how many
    there were.
    """
    store, totals = Store(folder / "runs.db"), {}
    for name in POLICIES:
        run = started(settings_of(name, 40))
        run.finish()
        record = run.record()
        totals[store.save(record)] = record.total[0]
    return sum(totals.get(row.id) == row.total_mean for row in store.list()), len(totals)


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Look at every zone, switch by switch, and keep a history."""
    watch("roles", 0.0)
    drawn = [follow(name, 4, 24) for name in (POLICIES[:1] if small else POLICIES)]
    watch("zones", 0.1)
    seen = {name: zones(name) for name in POLICIES}
    horizon, seeds = (60, (1,)) if small else (3_000, kit.seeds_of(5))
    all_on = protections(settings_of())
    done: list[Switched] = []
    for number, seed in enumerate(seeds):
        watch(f"switches, run {seed}", 0.2 + 0.7 * number / len(seeds))
        base, total = switched("", horizon, seed, all_on, None)
        done += [base, *(switched(one, horizon, seed, all_on, total)[0] for one in PROTECTIONS)]
    watch("data and history", 0.9)
    with tempfile.TemporaryDirectory() as folder:
        means = [(name, counted(settings)) for name, settings in written(Path(folder))]
        kept = history(Path(folder))
    watch("figure and analysis", 1.0)
    right = sum(one.as_drawn for one in drawn)
    findings = (
        Finding(
            "fig1",
            f"{right} of {len(drawn)} runs have four stores, two servers and a company around the "
            "controller, and spend the budget",
            HOLDS if right == len(drawn) else FAILS,
        ),
        interface(seen),
        switches(done),
        definition(means),
        Finding(
            "history",
            f"{kept[0]} of {kept[1]} runs are listed with the reward that they returned",
            HOLDS if kept[0] == kept[1] else FAILS,
        ),
    )
    return analyse(done, findings, out)


def interface(seen: Mapping[str, Mapping[str, bool]]) -> Finding:
    """Judge the four zones."""
    there = {zone: sum(one[zone] for one in seen.values()) for zone in "ABCD"}
    text = "; ".join(
        f"zone {zone}: {count} of {len(seen)} policies" for zone, count in there.items()
    )
    because = "the content of the zones exists for every run; tests operate the pages in a browser"
    return Finding("fig2", text, HOLDS if min(there.values()) == len(seen) else FAILS, because)


def switches(done: Sequence[Switched]) -> Finding:
    """Judge whether each switch changes messages and time, and no total."""
    base = {one.seed: sum(one.seconds.values()) for one in done if not one.switch}
    words, held = [], True
    for name in PROTECTIONS:
        own = [one for one in done if one.switch == name]
        ratio = mean_of([sum(one.seconds.values()) / base[one.seed] for one in own])
        words.append(f"without {name} {ratio.text(2)} of the time")
        held &= all(one.messages > 0 and one.same for one in own)
    return Finding(
        "switches",
        f"each switch changes the messages and no total; {', '.join(words)}",
        HOLDS if held else FAILS,
    )


def definition(means: Sequence[tuple[str, tuple[int, int]]]) -> Finding:
    """Judge means of files in the published layouts."""
    text = "; ".join(
        f"{name}: {same} of {count} means equal the quotient" for name, (same, count) in means
    )
    because = "tested on files in the published formats; the authors' lists divide by all users"
    return Finding(
        "means", text, HOLDS if all(same == count for _, (same, count) in means) else FAILS, because
    )


def analyse(done: Sequence[Switched], findings: tuple[Finding, ...], out: Path) -> Analysis:
    """Write rows and figure."""
    files = write_files(out, "interface", [one.row() for one in done], picture(done))
    rows = tuple(
        (
            one.switch or "none",
            str(one.seed),
            f"{sum(one.seconds.values()):.3f}",
            str(one.messages),
            *(f"{100 * one.seconds[kind] / sum(one.seconds.values()):.1f}" for kind in KINDS),
        )
        for one in done
    )
    columns = ("off", "seed", "CPU s", "kinds of part changed", *(f"{kind} %" for kind in KINDS))
    headline = (
        f"{sum(one.verdict == HOLDS for one in findings)} of {len(findings)} statements hold."
    )
    notes = (
        "Time shares of all owners together, as in the demo's zone D; UCB, four stores, level "
        "paper.",
    )
    return Analysis(headline, (Table("Switches", columns, rows),), notes, files, findings)


def picture(done: Sequence[Switched]) -> plots.Figure:
    """Draw the CPU time of roles with each protection off, of the first seed."""
    figure, (ax,) = kit.panels(1, height=3.2)
    plots.style(ax, x="CPU seconds", y="", grid="x")
    own = [one for one in done if one.seed == done[0].seed]
    left = [0.0] * len(own)
    colours = {role.kind: role.colour[0] for role in SYSTEM.roles}
    for kind in KINDS:
        widths = [one.seconds[kind] for one in own]
        ax.barh(range(len(own)), widths, left=left, height=0.7, color=colours[kind], label=kind)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    ax.set_yticks(range(len(own)), [f"{one.switch} off" if one.switch else "all on" for one in own])
    ax.invert_yaxis()
    kit.legend(figure, ax, 4)
    return figure


INTERFACE = DEMO.experiment(
    "interface",
    "Samba demo, figures 1 and 2: what the four zones show",
    ("protocol", "time"),
    sweep,
)
