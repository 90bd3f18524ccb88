"""Figure 1: who holds features, who pulls and who is paid, seen from every message of runs of real
roles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from posse.core.roles import Ask, Message
from posse.results import plots
from posse.systems.mpc_contextual.program import plan
from posse.systems.mpc_contextual.roles.messages import Opening
from posse.systems.mpc_contextual.roles.puller_and_payee import Puller
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER
from posse.systems.mpc_contextual.twins.twin import coins_of, run_fixed
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, Finding
from reproduction.kit import Analysis, Row, Table, Watch, progress, seeds_of, write_files
from reproduction.mpc_contextual import problem
from reproduction.mpc_contextual.problem import SMALL

Way = tuple[str, str, str]
"""Kinds of sender and receiver, and what is sent."""
DRAWN: tuple[Way, ...] = (
    ("party", "party", "Opening"),
    ("party", PULLER, "Reveal"),
    (PULLER, PAYEE, "Pulled"),
    (PULLER, "party", "Choice"),
    (PAYEE, "party", "Payoff"),
)
"""A step: shares of what is opened, shares of the arm, that it was pulled, arm and reward back
under masks.
"""
BESIDE: tuple[Way, ...] = (
    ("party", "party", "Hello"),
    ("party", DEALER, "Want"),
    (DEALER, "party", "Dealt"),
    (DEALER, "party", "Seed"),
    (DEALER, PULLER, "Seed"),
    (DEALER, PAYEE, "Seed"),
)
"""Set-up, and the dealer that the paper describes in section 4."""


@dataclass(frozen=True)
class Followed:
    """A whole run, message by message."""

    parties: int
    seed: int
    steps: int
    ways: Counter[Way]
    asked: Counter[tuple[str, str]]
    """Who asked the world for what."""
    shown: int
    """Features that a party sent as they are."""
    same: bool
    """All arms are those of the fixed-point twin."""

    @property
    def as_drawn(self) -> bool:
        """Whether roles send what is drawn and nothing else; only the puller pulls, and only the
        payee is paid.
        """
        others = set(self.ways) - {*DRAWN, *BESIDE}
        asked = {(PULLER, "Act"): self.steps, (PAYEE, "Earn"): self.steps}
        return (
            set(DRAWN) <= set(self.ways)
            and not others
            and self.asked == asked
            and not self.shown
            and self.same
        )

    def rows(self) -> list[Row]:
        """Messages by way, as rows of the raw file."""
        return [
            {
                "parties": self.parties,
                "seed": self.seed,
                "steps": self.steps,
                "sender": way[0],
                "receiver": way[1],
                "message": way[2],
                "messages": count,
            }
            for way, count in sorted(self.ways.items())
        ]


def follow(parties: int, steps: int, seed: int) -> Followed:
    """Run real roles, and look at every message."""
    setup = replace(SMALL, steps=steps).settings(parties=parties, epsilon="0.1").load()
    rows, terms = setup.order(seed), setup.terms
    features = setup.encoded(rows)
    hidden = {int(word) for word in features.ravel() if word}
    run = problem.private_run(setup, seed)
    kinds = {name: role.kind for name, role in run.roles.items()}
    ways: Counter[Way] = Counter()
    asked: Counter[tuple[str, str]] = Counter()
    world, shown = run.world, 0
    assert world is not None

    def answers(ask: Ask) -> Message:
        asked[ask.party, type(ask).__name__] += 1
        return world(ask)

    run.world = answers
    while (one := run.deliver()) is not None:
        ways[kinds[one.sender], kinds[one.receiver], type(one.message).__name__] += 1
        if isinstance(one.message, Opening) and not one.message.round:  # where features go in
            inputs = one.message.data[: 8 * terms.features[terms.parties.index(one.sender)]]
            shown += len(hidden.intersection(np.frombuffer(inputs, np.uint64).tolist()))
    puller = run.roles[PULLER]
    assert isinstance(puller, Puller)
    fixed = run_fixed(
        terms, plan(terms), features, setup.units(seed, rows), coins_of(terms, seed), seed
    )
    return Followed(
        parties, seed, steps, ways, asked, shown, bool((fixed.arms == puller.arms).all())
    )


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Follow runs of two and more parties."""
    sizes, steps, seeds = ((2, 3), 20, (1,)) if small else ((2, 3, 5, 10), 200, seeds_of(3))
    plan_ = list(product(sizes, seeds))
    runs = [
        follow(*one)
        for one in progress([(p, steps, s) for p, s in plan_], lambda c: f"{c[0]} parties", watch)
    ]
    watch("figure and analysis", 1.0)
    return analyse(runs, out)


def analyse(runs: Sequence[Followed], out: Path) -> Analysis:
    """Write rows and figure, and judge."""
    files = write_files(out, "setting", [row for one in runs for row in one.rows()], picture(runs))
    right, shown = sum(one.as_drawn for one in runs), sum(one.shown for one in runs)
    text = (
        f"{right} of {len(runs)} runs: parties send only shares and masked numbers ({shown} "
        "features in the clear); the arm of every step is opened to the puller and its reward to "
        "the payee; nobody else asks the world; all arms equal those of the fixed-point twin"
    )
    finding = Finding("parties", text, HOLDS if right == len(runs) else FAILS)
    body = tuple(
        (
            str(one.parties),
            *(f"{one.ways[way] / one.steps:g}" for way in DRAWN),
            "yes" if one.as_drawn else "no",
        )
        for one in runs
        if one.seed == 1
    )
    table = Table("Messages a step, run 1", ("parties", *map(words_of, DRAWN), "as drawn"), body)
    notes = (
        "In addition, a run has its set-up and a dealer, which sends the parties "
        "corrections of their tapes and receives only the number that they need; the "
        "paper's figure leaves it out and its section 4 describes it.",
        "A feature in fixed point that a party sent as it is would be found among the words of its "
        "messages.",
    )
    return Analysis(
        f"{right} of {len(runs)} runs are as drawn.", (table,), notes, files, (finding,)
    )


def words_of(way: Way) -> str:
    """Name a way.

    >>> words_of(("party", "puller", "Reveal"))
    'party to puller: Reveal'
    """
    return f"{way[0]} to {way[1]}: {way[2]}"


def picture(runs: Sequence[Followed]) -> plots.Figure:
    """Draw messages a step by way, against the number of parties."""
    figure, (ax,) = kit.panels(1)
    plots.style(ax, x="parties", y="messages a step (logarithmic)")
    own = [one for one in runs if one.seed == 1]
    for number, way in enumerate(DRAWN):
        kit.line(
            ax,
            [one.parties for one in own],
            [one.ways[way] / one.steps for one in own],
            number,
            words_of(way),
        )
    ax.set_xticks([one.parties for one in own])
    kit.log_axis(ax, [one.ways[way] / one.steps for one in own for way in DRAWN])
    kit.legend(figure, ax, 3)
    return figure


SETTING = problem.REFERENCE.experiment(
    "setting",
    "Private contextual bandits, figure 1: who sends what to whom",
    ("protocol",),
    sweep,
    "figure 1",
)
