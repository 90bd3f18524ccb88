"""What the Samba paper draws and works out: roles, steps, printed examples, the exploring step,
schedules, prices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from posse.policies import EpsilonGreedy
from posse.policies.own import parameter
from posse.results import plots
from posse.systems.samba.federation import SambaRun
from posse.systems.samba.scene import SCENE
from posse.systems.samba.settings import Samba
from posse.systems.samba.system import SYSTEM
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, Finding
from reproduction.kit import Analysis, Row, Table, Watch, mean_of, progress, write_files
from reproduction.samba.problem import POLICY_NAMES, REFERENCE
from reproduction.samba.times import paillier_key

LEVELS = ("paper", "strict")
STEPS = ("2", "3", "4", "5")
PRICE = 0.02
MEANS = (0.3, 0.5, 0.6, 0.7)

Printed = Mapping[tuple[str, str], Sequence[str]]
EXAMPLES: dict[str, tuple[str, int, Printed]] = {
    "ucb": (
        "ucb-68",
        8,
        {
            ("2", "score"): ("1.23", "1.01", "1.12"),
            ("2", "score x mask"): ("0.62", "0.5", "0.56"),
            ("3", "scores x mask"): ("0.56, 0.62, 0.5",),
            ("4", "pulling bits, in comp's order"): ("0, 1, 0",),
            ("5", "pulling bit"): ("1", "0", "0"),
        },
    ),
    "epsilon-greedy": (
        "epsilon-greedy-68",
        16,
        {
            ("2", "mean s / n"): ("0.73", "0.42", "0.2"),
            ("2", "number of all"): ("0", "0", "0"),
            ("3", "scores x mask"): ("0.1, 0.36, 0.21", "0, 0, 0"),
        },
    ),
    "softmax": (
        "softmax-98",
        8,
        {
            ("2", "mean s / n"): ("0.72", "0.38", "0.2"),
            ("2", "weight"): ("1339.43", "44.7", "7.39"),
            ("2", "score x mask"): ("200.91", "6.71", "1.11"),
            ("3", "scores x mask"): ("1.11, 6.71, 200.91",),
            ("4", "sum"): ("208.73",),
            ("4", "probabilities"): ("0.01, 0.03, 0.96",),
            ("5", "pulling bit"): ("1", "0", "0"),
        },
    ),
    "pursuit": (
        "pursuit-4",
        16,
        {
            ("2", "score"): ("1", "0", "0"),
            ("5", "probability p"): ("0.4", "0.3", "0.3"),
            ("2", "weight"): ("0.4", "0.3", "0.3"),
        },
    ),
}
"""Example, messages to look at, and what the paper prints (of epsilon-greedy: the common number and
the equal list).
"""


def _falling(t: int, owners: int, parameters: tuple[float, ...]) -> float:
    return parameters[0] / (1.0 + t / parameters[1])


@dataclass(frozen=True)
class Falling(EpsilonGreedy):
    """Epsilon-greedy with a schedule of one's own: epsilon / (1 + t / half), as a user would write
    it.
    """

    name = "falling"
    explore = staticmethod(_falling)
    half: float = parameter(50.0, "steps after which epsilon is half")


@dataclass(frozen=True)
class Moved:
    """One message of a run: its step of figure 5, its pass, and its ends."""

    step: str
    index: int | None
    sender: str
    receiver: str


def started(settings: Samba, **options: Any) -> SambaRun:
    """Begin a run of roles with the key of all of them."""
    key = None if settings.level == "strict" else paillier_key()
    run = SYSTEM.start(settings, transcript=1, key=key, **options)
    assert isinstance(run, SambaRun)
    return run


def explained(run: SambaRun) -> Iterator[tuple[Moved, Mapping[str, Any]]]:
    """Give every message with its explanation."""
    while (one := run.deliver()) is not None:
        assert one.explanation is not None
        index = getattr(one.message, "index", None)
        yield Moved(one.explanation["step"], index, one.sender, one.receiver), one.explanation


@dataclass(frozen=True)
class Followed:
    """A whole run, message by message, beside figures 1, 5 and 6."""

    policy: str
    owners: int
    moved: tuple[Moved, ...]
    roles: Counter[str]
    pulls: int
    total: bool
    """Whether the customer's total is what the world paid."""
    lines: tuple[int, int]
    """Lines of the pseudocode that ran, and all of them."""
    horizon: int
    passes: int

    @property
    def as_drawn(self) -> bool:
        """K owners, two servers and a customer; all talk to the controller; N pulls; one total
        (figures 1 and 5).
        """
        roles = {"owner": self.owners, "controller": 1, "comp": 1, "customer": 1}
        star = all("controller" in (one.sender, one.receiver) for one in self.moved)
        return self.roles == roles and star and self.pulls == self.horizon and self.total

    @property
    def in_order(self) -> bool:
        """Steps 0 and 1; in every pass K times 2, then 3, 4, K times 5; K times 6 after the last 4;
        7 at the end.
        """
        places: dict[tuple[str, int | None], list[int]] = {}
        for place, one in enumerate(self.moved):
            key = (one.step, one.index if one.step in STEPS else None)
            places.setdefault(key, []).append(place)
        first, sums, total = places["1", None][0], places["6", None], places["7", None]
        indices = sorted({index for step, index in places if index is not None})
        counts, last = (self.owners, 1, 1, self.owners), first
        for index in indices:
            rows = [places.get((step, index), []) for step in STEPS]
            if tuple(map(len, rows)) != counts or min(rows[0]) < places["0", None][0]:
                return False
            if not max(rows[0]) < rows[1][0] < rows[2][0] < min(rows[3]) or rows[1][0] < last:
                return False
            last = rows[2][0]
        whole = len(indices) == (self.horizon - self.owners) * self.passes
        ends = (
            len(sums) == self.owners and len(total) == 1 and last < sums[0] and sums[-1] < total[0]
        )
        return whole and ends and places["0", None][0] < first


def follow(policy: str, owners: int, horizon: int) -> Followed:
    """Run level `paper` as described, without its shortcut, and look at every message."""
    given: dict[str, Any] = {"shortcut": False} if policy.startswith("epsilon") else {}
    settings = Samba(policy=policy, level="paper", owners=owners, horizon=horizon, **given)
    run, ran = started(settings), set()
    moved = []
    for one, explanation in explained(run):
        moved.append(one)
        ran |= {(kind, line) for kind, lines in explanation["lines"].items() for line in lines}
    every = sum(len(lines) for lines in SCENE.pseudocode(settings).values())
    paid, customer = run.truth()["total"], run.state("customer")
    kinds = Counter(role.kind for role in run.memory.roles.values())
    return Followed(
        policy,
        owners,
        tuple(moved),
        kinds,
        int(run.world.pulls.sum()),
        customer["total"] == paid,
        (len(ran), every),
        horizon,
        len(settings.make_policy().passes()),
    )


def example(name: str) -> tuple[int, int]:
    """Play a worked example; return how many of its printed numbers came out, and how many there
    are.
    """
    which, count, printed = EXAMPLES[name]
    options = {"example": which}
    (scenario,) = [one for one in SCENE.scenarios if one.options == options]
    run = started(SYSTEM.Settings(**scenario.settings), **options)
    found = [explanation for (_, explanation), _ in zip(explained(run), range(count), strict=False)]
    right = 0
    for (step, column), said in printed.items():
        seen = [
            dict(one["clear"])[column]
            for one in found
            if one["step"] == step and column in dict(one["clear"])
        ]
        right += tuple(seen[: len(said)]) == tuple(said)
    return right, len(printed)


@dataclass(frozen=True)
class Compared:
    """A run beside its plain twin, or beside the same run by another way."""

    what: str
    level: str
    seed: int
    same: bool
    seconds: float
    other: float
    calls: int
    other_calls: int

    def row(self) -> Row:
        """The comparison as a row of the raw file."""
        return {
            "what": self.what,
            "level": self.level,
            "seed": self.seed,
            "same": int(self.same),
            "seconds": self.seconds,
            "other_seconds": self.other,
            "aes_calls": self.calls,
            "other_aes_calls": self.other_calls,
        }


def finished(settings: Samba) -> tuple[SambaRun, list[int], float, float, int]:
    """Run to the end; return the run, pulls, total, CPU seconds of all roles and calls of
    AES-GCM.
    """
    run = started(settings)
    run.finish()
    record, rows = run.record(), run.costs().rows
    calls = sum(int(row[2].replace(",", "")) for row in rows[:2])
    assert record.pulls is not None
    return run, record.pulls[0].tolist(), record.total[0], sum(run.role_seconds().values()), calls


def shortcut(policy: str, owners: int, horizon: int, seed: int) -> Compared:
    """Run exploring steps as described and by the shortcut."""
    given = {"policy": policy, "level": "paper", "owners": owners, "horizon": horizon, "seed": seed}
    _, pulls, total, seconds, calls = finished(Samba.make(given))
    _, same_pulls, same_total, other, other_calls = finished(
        Samba.make({**given, "shortcut": False})
    )
    same = (pulls, total) == (same_pulls, same_total)
    return Compared(policy, "paper", seed, same, seconds, other, calls, other_calls)


def schedule(level: str, horizon: int, seed: int) -> Compared:
    """Run a policy with a schedule of one's own, beside its plain twin."""
    given = {
        "policy": Falling(0.5),
        "means": MEANS,
        "level": level,
        "horizon": horizon,
        "seed": seed,
    }
    _, pulls, total, seconds, calls = finished(Samba.make(given))
    plain = SYSTEM.start(Samba.make({**given, "path": "plain"}))
    plain.finish()
    record = plain.record()
    assert record.pulls is not None
    same = (pulls, total) == (record.pulls[0].tolist(), record.total[0])
    return Compared("falling", level, seed, same, seconds, plain.seconds, calls, 0)


def incentive(level: str, horizon: int, seed: int) -> Compared:
    """Give every pull a price: owners' own statements must add up to N times the price, and no
    other role has one.
    """
    given = {
        "policy": "ucb",
        "means": MEANS,
        "level": level,
        "horizon": horizon,
        "seed": seed,
        "price": PRICE,
    }
    run, pulls, _, seconds, calls = finished(Samba.make(given))
    states = {name: dict(run.state(name)) for name in run.parties}
    own = [state.pop("owed") for name, state in states.items() if name.startswith("owner")]
    same = own == [round(PRICE * count, 10) for count in pulls] and round(sum(own), 10) == round(
        PRICE * horizon, 10
    )
    return Compared(
        "price", level, seed, same and "owed" not in str(states), seconds, seconds, calls, calls
    )


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Follow runs, play the examples, compare."""
    sizes, horizon, seeds = ((3,), 30, (1,)) if small else ((2, 4, 10), 200, kit.seeds_of(5))
    plan = list(product(POLICY_NAMES, sizes))
    runs = [
        follow(name, owners, owners + horizon)
        for name, owners in progress(plan, lambda c: f"{c[0]}, K = {c[1]}", watch, 0.0, 0.5)
    ]
    watch("worked examples", 0.5)
    printed = {name: example(name) for name in EXAMPLES}
    pairs = list(product(("epsilon-greedy", "epsilon-decreasing"), seeds))
    length = 60 if small else 2_000
    fast = [
        shortcut(name, 10, length, seed)
        for name, seed in progress(pairs, lambda c: f"shortcut, {c[0]}", watch, 0.55, 0.8)
    ]
    levels = LEVELS[:1] if small else LEVELS
    cells = list(product(levels, seeds))
    own = [
        schedule(level, 10 * horizon, seed)
        for level, seed in progress(cells, lambda c: f"schedule, {c[0]}", watch, 0.8, 0.9)
    ]
    paid = [
        incentive(level, horizon, seed)
        for level, seed in progress(cells, lambda c: f"prices, {c[0]}", watch, 0.9, 1.0)
    ]
    watch("figure and analysis", 1.0)
    return analyse(runs, printed, fast, own, paid, out)


def analyse(
    runs: Sequence[Followed],
    printed: Mapping[str, tuple[int, int]],
    fast: Sequence[Compared],
    own: Sequence[Compared],
    paid: Sequence[Compared],
    out: Path,
) -> Analysis:
    """Write rows and figure, and judge."""
    files = write_files(
        out, "setting", [one.row() for one in (*fast, *own, *paid)], picture(runs[0])
    )
    drawn, ordered = sum(one.as_drawn for one in runs), sum(one.in_order for one in runs)
    lines = sum(one.lines[0] for one in runs), sum(one.lines[1] for one in runs)
    findings = [
        _all(
            "fig1",
            drawn,
            len(runs),
            "runs have K owners, two servers and a customer around the controller, N pulls "
            "and one total",
        ),
        _all(
            "fig5",
            ordered,
            len(runs),
            f"runs send steps 0 to 7 in that order; {lines[0]} of {lines[1]} lines of the "
            "pseudocode ran",
        ),
        *(
            _all(f"example-{name}", right, count, "groups of numbers are equal")
            for name, (right, count) in printed.items()
        ),
        saved(fast),
        _all(
            "schedule",
            sum(one.same for one in own),
            len(own),
            "runs equal their plain twin, bit for bit",
        ),
        _all(
            "incentive",
            sum(one.same for one in paid),
            len(paid),
            "runs: the owners' statements add up to N times the price; no other role has one",
        ),
    ]
    table = Table(
        "Exploring steps: by the shortcut, and as described",
        (
            "policy",
            "seed",
            "same arms and total",
            "CPU s, shortcut",
            "CPU s, described",
            "AES-GCM calls",
            "described",
        ),
        tuple(
            (
                one.what,
                str(one.seed),
                "yes" if one.same else "no",
                f"{one.seconds:.3f}",
                f"{one.other:.3f}",
                f"{one.calls:,}",
                f"{one.other_calls:,}",
            )
            for one in fast
        ),
    )
    notes = (
        "Runs at level paper without the shortcut of section 5.4, so that every step of "
        "epsilon-greedy sends its "
        "scores; one line of the pseudocode may not run where no step of a short run explores.",
        "The paper gives no numbers in its example of epsilon-greedy but epsilon and two coins: it "
        "is played on those "
        "of the example of UCB, to which it refers.",
    )
    headline = (
        f"{sum(one.verdict == HOLDS for one in findings)} of {len(findings)} statements hold as "
        "written."
    )
    return Analysis(headline, (table,), notes, files, tuple(findings))


def _all(claim: str, right: int, count: int, words: str) -> Finding:
    return Finding(claim, f"{right} of {count} {words}", HOLDS if right == count else FAILS)


def saved(fast: Sequence[Compared]) -> Finding:
    """Judge the shortcut: the same arms, fewer calls, less time."""
    same, ratio = all(one.same for one in fast), mean_of([one.seconds / one.other for one in fast])
    calls = mean_of([one.calls / one.other_calls for one in fast])
    text = (
        f"same arms and total in {sum(one.same for one in fast)} of {len(fast)} runs; compared "
        f"with the step as described {calls.text(3)} of the AES-GCM "
    )
    text += f"calls and {ratio.text(3)} of the CPU time"
    if not same or not all(one.calls < one.other_calls for one in fast):
        return Finding("shortcut", text, FAILS)
    return kit.judge("shortcut", mean_of([1 - one.seconds / one.other for one in fast]), text)


def picture(run: Followed) -> plots.Figure:
    """Draw the first passes of a run: every message at its step."""
    figure, (ax,) = kit.panels(1, height=3.2)
    plots.style(ax, x="message of the run", y="step of figure 5")
    shown = [(place, int(one.step)) for place, one in enumerate(run.moved) if one.step.isdigit()]
    ends = [pair for pair in shown if pair[1] >= 6]
    shown = [*shown[:60], *((pair[0] - ends[0][0] + shown[59][0] + 6, pair[1]) for pair in ends)]
    ax.plot([x for x, _ in shown], [y for _, y in shown], "o", markersize=4)
    ax.set_yticks(range(8))
    kit.title(ax, f"{run.policy}, K = {run.owners}: the first passes, and the end")
    return figure


SETTING = REFERENCE.experiment(
    "setting",
    "Samba, figures 1, 5 and 6: roles, steps, worked examples",
    ("protocol",),
    sweep,
    "figures 1, 5 and 6, sections 2.1 to 5.4",
)
