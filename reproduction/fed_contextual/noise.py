"""Section 5.3: what noise proves, noise and clients of a round scaled together, and exploration
beside noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from posse.privacy.dp.sampled import SampledGaussian
from posse.results import plots
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, Finding, combined
from reproduction.fed_contextual import findings
from reproduction.fed_contextual.findings import better, no_worse
from reproduction.fed_contextual.problem import Form
from reproduction.fed_contextual.runs import Found, beta_lines, opened, scaled_lines
from reproduction.kit import Analysis, Table, Watch, mean_of, write_files

FIGURES = (
    (342_477, 64, 0.3, 1600, "15.8"),
    (342_477, 64, 0.7, 1600, "1.5"),
    (340_000, 6_400, 1.0, 800, "4.13"),
)
"""Clients, clients of a round, noise, rounds, and the epsilon that the paper prints for delta
1e-6.
"""
DELTA = 1e-6

Grid = Mapping[tuple[float, float], Found]
"""By beta and noise."""


def accounting(small: bool, out: Path, watch: Watch) -> Analysis:
    """Compute the paper's three figures by RDP, as it does, and by PLD; they hold if they round to
    what it prints.
    """
    rows, parts = [], []
    for number, (clients, cohort, noise, rounds, printed) in enumerate(FIGURES):
        watch(f"noise {noise:g}", number / len(FIGURES))
        made = SampledGaussian(clients, cohort, noise)
        rdp = made.epsilon(rounds, DELTA, "rdp")
        own = f"{rdp:.{len(printed.partition('.')[2])}f}"
        pld = "-" if small else f"{made.epsilon(rounds, DELTA, 'pld'):.3f}"
        rows.append(
            (f"{clients:,}", f"{cohort:,}", f"{noise:g}", f"{rounds:,}", printed, f"{rdp:.3f}", pld)
        )
        parts.append(
            Finding(
                f"noise {noise:g}",
                f"{rdp:.3f} (paper {printed})",
                HOLDS if own == printed else FAILS,
            )
        )
    watch("table", 1.0)
    columns = ("clients", "a round", "noise", "rounds", "paper", "RDP", "PLD")
    figure, (ax,) = kit.panels(1, ("epsilon at delta 1e-6 by RDP; crosses: as printed",))
    plots.style(ax, x="round", y="epsilon")
    for number, (clients, cohort, noise, rounds, printed) in enumerate(FIGURES):
        made, x = SampledGaussian(clients, cohort, noise), range(50, rounds + 1, 50)
        kit.line(
            ax,
            x,
            [made.epsilon(at, DELTA, "rdp") for at in x],
            number,
            f"noise {noise:g}",
            marker=False,
        )
        ax.plot([rounds], [float(printed)], "x", color=plots.INK)
    kit.legend(figure, ax, 3)
    files = write_files(
        out, "accounting", [dict(zip(columns, row, strict=True)) for row in rows], figure
    )
    table = Table("Epsilon at delta 1e-6, Poisson sampling of clients", columns, tuple(rows))
    same = sum(part.verdict == HOLDS for part in parts)
    return Analysis(
        f"{same} of {len(parts)} figures of section 5.3 are as printed.",
        (table,),
        (
            "The paper's figures are by RDP. Of the last it prints neither the number of clients "
            "(about 0.34 million) nor "
            "that of rounds (800 as for EMNIST).",
        ),
        files,
        (combined("epsilon", parts),),
    )


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run or read tags with noise, with more of it, and with more clients too; and Softmax by beta
    and noise.
    """
    with opened(small, out, watch) as runs:
        lines, grid = scaled_lines(runs.form), beta_lines(runs.form)
        found = runs.of(list({line.name: line for line in (*lines, *grid.values())}.values()))
        watch("figure and analysis", 1.0)
        scaled = [found[line.name] for line in lines]
        return analyse(runs.form, scaled, {at: found[line.name] for at, line in grid.items()}, out)


def analyse(form: Form, scaled: list[Found], grid: Grid, out: Path) -> Analysis:
    """Write rows and picture, and say whether more clients make up for more noise."""
    small, loud, both = scaled
    every = {one.line.name: one for one in (*scaled, *grid.values())}
    files = write_files(out, "noise", findings.rows_of(list(every.values())), picture(scaled, grid))
    times = form.tags.scale
    kept = no_worse(
        f"tags: {times} times the noise with {times} times the clients earns no less",
        both.ends,
        small.ends,
    )
    costs = better(f"tags: {times} times the noise alone earns less", small.ends, loud.ends)
    columns = ("beta", *(f"noise {noise:g}" for noise in sorted({noise for _, noise in grid})))
    betas = sorted({beta for beta, _ in grid})
    rewards, chances = (
        Table(
            title,
            columns,
            tuple(
                (f"{beta:g}", *(text(grid[at]) for at in sorted(grid) if at[0] == beta))
                for beta in betas
            ),
        )
        for title, text in (
            ("Average reward by beta and noise", lambda one: mean_of(one.ends).text()),
            ("Probability of the chosen arm, last tenth of rounds", _sure),
        )
    )
    best = {
        noise: max(betas, key=lambda beta: float(grid[beta, noise].ends.mean()))
        for _, noise in sorted(grid)
    }
    headline = f"{kept.words[:-1]}; the best beta is " + ", ".join(
        f"{beta:g} at noise {noise:g}" for noise, beta in best.items()
    )
    notes = (
        kept.words,
        costs.words,
        "The paper expects of EMNIST that noise 1 with 6,400 clients a round keeps the reward of "
        "noise 0.01 with 64, "
        "and does not run it. Here are tags, whose population has hundreds of clients.",
        "How the randomness of exploration and the noise of privacy go together the paper leaves "
        "to future study: the "
        "tables show it for Softmax; every cell has its own rates.",
        findings.protocol_note(form, "tags"),
    )
    tables = (
        findings.reward_table(scaled, small),
        findings.statement_table([kept, costs]),
        rewards,
        chances,
    )
    judged = (findings.judged("scaled", [kept]),)
    return Analysis(
        f"{headline}.", tables, notes, files, judged, findings.computed_on(every.values())
    )


def _sure(one: Found) -> str:
    tenth = max(1, one.probabilities.shape[1] // 10)
    return mean_of(one.probabilities[:, -tenth:].mean(axis=1)).text(3)


def picture(scaled: list[Found], grid: Grid) -> plots.Figure:
    """Draw rewards of the scaled lines, and rewards at the end by beta, a line a noise."""
    figure, (left, right) = kit.panels(
        2, ("tags: noise and clients", "tags: exploration beside noise")
    )
    findings.curves(left, scaled, [one.line.label for one in scaled])
    left.legend(frameon=False, fontsize=8, labelcolor=plots.INK)
    plots.style(right, x="beta of Softmax", y="average reward")
    for number, noise in enumerate(sorted({noise for _, noise in grid})):
        some = [(beta, mean_of(grid[beta, noise].ends)) for beta, at in sorted(grid) if at == noise]
        x = [beta for beta, _ in some]
        kit.line(right, x, [mean.mean for _, mean in some], number, f"noise {noise:g}")
        kit.band(right, x, [mean.low for _, mean in some], [mean.high for _, mean in some], number)
    right.set_xscale("log")
    right.legend(frameon=False, fontsize=8, labelcolor=plots.INK)
    kit.footnote(figure, findings.seeds_note((*scaled, *grid.values())))
    return figure
