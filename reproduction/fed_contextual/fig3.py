"""Figure 3: how much Softmax in init-shift differs from seed to seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from posse.results import plots
from reproduction import kit
from reproduction.claims import UNKNOWN, Finding, combined
from reproduction.fed_contextual.findings import (
    REWARD,
    TOLERANCE,
    computed_on,
    protocol_note,
    rows_of,
    setting_words,
    spread,
)
from reproduction.fed_contextual.problem import KINDS, Form
from reproduction.fed_contextual.runs import Found, line_of, opened
from reproduction.kit import Analysis, Table, Watch, mean_of, write_files

NAMES = dict(zip(KINDS, ("fig1c", "fig2c"), strict=True))


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run or read Softmax in init-shift, for images and tags."""
    with opened(small, out, watch) as runs:
        found = list(runs.of([line_of(figure, "softmax") for figure in NAMES.values()]).values())
        watch("figure and analysis", 1.0)
        return analyse(runs.form, found, out)


def analyse(form: Form, found: Sequence[Found], out: Path) -> Analysis:
    """Write rows and picture, and say how wide seeds spread."""
    files = write_files(out, "fig3", rows_of(found), picture(form, found))
    spreads = [spread(one.ends) for one in found]
    rows = tuple(
        (
            one.line.kind,
            mean_of(one.ends).text(),
            f"{one.ends.min():.4f} to {one.ends.max():.4f}",
            f"{100 * wide.share:.2f} %",
            f"{100 * wide.bound:.2f} %",
            wide.verdict,
        )
        for one, wide in zip(found, spreads, strict=True)
    )
    columns = (
        "population",
        "average reward",
        "smallest to largest",
        "standard deviation, of the mean",
        "it is below, at 95 %",
        "variation is negligible",
    )
    seeds = len(found[0].ends)
    headline = f"Over {seeds} seeds the reward of Softmax in init-shift varies by " + " and ".join(
        f"{100 * wide.share:.1f} % ({one.line.kind})"
        for one, wide in zip(found, spreads, strict=True)
    )
    notes = [
        "The paper calls the variation over 5 trials negligible. Called so here: a standard "
        "deviation below "
        f"{100 * TOLERANCE:g} % of the mean at 95 % confidence; "
        + ", ".join(
            f"{one.line.kind}: {wide.verdict}" for one, wide in zip(found, spreads, strict=True)
        )
        + ".",
        *(protocol_note(form, kind) for kind in KINDS),
    ]
    table = Table("Spread over seeds at the end of training", columns, rows)
    parts = [
        Finding(
            one.line.kind,
            f"standard deviation {100 * wide.share:.2f} % of the mean, below "
            f"{100 * wide.bound:.2f} % with 95 % confidence",
            wide.verdict,
            "" if wide.verdict != UNKNOWN else f"{seeds} seeds are too few; some 20 would decide",
        )
        for one, wide in zip(found, spreads, strict=True)
    ]
    judged = (combined("negligible", parts),)
    return Analysis(f"{headline}.", (table,), tuple(notes), files, judged, computed_on(found))


def picture(form: Form, found: Sequence[Found]) -> plots.Figure:
    """Draw every seed."""
    titles = [f"{one.line.kind}: {setting_words(form, one.line.figure)}" for one in found]
    figure, axes = kit.panels(2, titles)
    for ax, one in zip(axes, found, strict=True):
        plots.style(ax, x="round", y=REWARD)
        for number, (seed, curve) in enumerate(
            zip(one.result.job["seeds"], one.curves, strict=True)
        ):
            kit.line(ax, np.arange(1, len(curve) + 1), curve, number, f"seed {seed}", marker=False)
        late = one.curves[:, one.curves.shape[1] // 10 :]
        ax.set_ylim(0.9 * late.min(), 1.05 * late.max())
    kit.legend(figure, axes[0], 6, "One line a seed")
    return figure
