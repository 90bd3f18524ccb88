"""Theorems 1 to 4 of the Samba paper, by running: which policies, same reward, who learns what,
what it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import ClassVar

import numpy as np

from posse.policies.arms.base import Policy
from posse.policies.arms.checks import check
from posse.results import plots
from posse.systems.audit import audit
from posse.systems.samba.federation import SambaRun
from posse.systems.samba.settings import Samba
from posse.systems.samba.system import SYSTEM
from reproduction import kit
from reproduction.claims import FAILS, HOLDS, Finding
from reproduction.kit import Analysis, Row, Table, Watch, progress, write_files
from reproduction.samba.problem import POLICY_NAMES, REFERENCE
from reproduction.samba.times import KEY_BITS, paillier_key

OUTCOMES = {"finds it out": "succeeds", "a little": "succeeds in part"}
"""Outcomes of an audit, for a claim."""
LEVELS = ("paper", "strict")
HORIZON = 300
SEED = 1

_reference = np.array([0.5])


def _compared(t, turn, total, pulls, memory, key, parameters):  # type: ignore[no-untyped-def]
    """Reinforcement Comparison: a preference against the mean reward of all arms."""
    return memory + parameters[0] * (total / pulls - _reference[0])


@dataclass(frozen=True)
class Comparison(Policy):
    """The paper's policy that cannot be used: its score needs other arms' rewards."""

    name: ClassVar[str] = "reinforcement-comparison"
    score = staticmethod(_compared)
    rate: float = 0.1


@dataclass(frozen=True)
class Ran:
    """One run of roles: its reward beside the plain one, and its calls beside Theorem 4."""

    policy: str
    level: str
    arms: int
    seed: int
    reward: float
    plain: float
    rows: tuple[tuple[str, ...], ...]
    """What, theorem, measured, by role."""

    def row(self) -> Row:
        """The run as a row of the raw file."""
        said = {
            f"{row[0]}, {what}": row[at]
            for row in self.rows
            for at, what in ((1, "theorem"), (2, "measured"))
        }
        return {
            "policy": self.policy,
            "level": self.level,
            "K": self.arms,
            "N": HORIZON,
            "seed": self.seed,
            "reward": self.reward,
            "plain_reward": self.plain,
            **said,
        }


def settings_of(policy: str, level: str, arms: int, seed: int, horizon: int = HORIZON) -> Samba:
    """Settings of a run on the authors' means."""
    given = {
        "policy": policy,
        "data": "embedded:movielens",
        "owners": arms,
        "horizon": horizon,
        "seed": seed,
    }
    if level == "paper" and policy.startswith("epsilon"):
        given["shortcut"] = False  # the theorem counts the exploring step as it is described
    return Samba.model_validate({**given, "level": level, "paillier_bits": KEY_BITS})


def ran(policy: str, level: str, arms: int, seed: int) -> Ran:
    """Run roles and the plain twin on one seed."""
    settings = settings_of(policy, level, arms, seed)
    run, twin = (
        SYSTEM.start(settings, key=None if level == "strict" else paillier_key()),
        settings.plain(),
    )
    assert isinstance(run, SambaRun)
    assert isinstance(twin, Samba)
    run.finish()
    plain = SYSTEM.start(twin)
    plain.finish()
    return Ran(
        policy, level, arms, seed, run.record().total[0], plain.record().total[0], run.costs().rows
    )


def sweep(small: bool, out: Path, watch: Watch) -> Analysis:
    """Run every policy at every level, and attack the published level."""
    levels, sizes, seeds = (("paper",), (4,), (1,)) if small else (LEVELS, (2, 10, 30), (1, 2, 3))
    plan = list(product(POLICY_NAMES, levels, sizes, seeds))
    done = [
        ran(*cell)
        for cell in progress(plan, lambda c: f"{c[0]}, {c[1]}, K = {c[2]}", watch, 0.0, 0.8)
    ]
    watch("which policies can be used", 0.8)
    accepted = {name: check(name).passed for name in POLICY_NAMES}
    refused = [result.name for result in check(Comparison()).results if not result.passed]
    watch("attacks on level paper", 0.85)
    settings = settings_of("ucb", "paper", 4, SEED, 200 if small else 2_000)
    found = audit(settings, attacks=("tracker",), seed=SEED, plantings=1 if small else 5)
    watch("figure and analysis", 1.0)
    return analyse(
        done,
        accepted,
        refused,
        [(row.at, row.title, row.finds, row.verdict) for row in found.rows],
        out,
    )


def analyse(
    done: Sequence[Ran],
    accepted: dict[str, bool],
    refused: Sequence[str],
    attacks: Sequence[tuple[str, ...]],
    out: Path,
) -> Analysis:
    """Write rows and figure, and judge the four theorems."""
    files = write_files(out, "theorems", [one.row() for one in done], picture(done))
    same = sum(one.reward == one.plain for one in done)
    counted = [one for one in done if one.level == "paper"]
    found = [attack for attack in attacks if attack[3] in ("finds it out", "a little")]
    findings = (
        Finding(
            "locality",
            f"{sum(accepted.values())} of {len(accepted)} shipped policies pass; Reinforcement "
            "Comparison "
            f"fails {', '.join(refused) or 'nothing'}",
            HOLDS if all(accepted.values()) and refused else FAILS,
        ),
        Finding(
            "same-reward",
            f"{same} of {len(done)} runs equal, bit for bit",
            HOLDS if same == len(done) else FAILS,
        ),
        Finding(
            "security",
            "; ".join(
                f"attack at {at} on {title}: {OUTCOMES.get(word, word)} ({finds})"
                for at, title, finds, word in attacks
            ),
            FAILS if found else HOLDS,
            "comp can follow scores from step to step, although mask and permutation change"
            if found
            else "",
        ),
        primitives(counted),
        messages(counted),
    )
    columns = ("policy", "K", "what", "theorem 4", "measured")
    shown = [one for one in done if (one.level, one.seed) == ("paper", SEED)]
    rows = tuple((one.policy, str(one.arms), *row[:3]) for one in shown for row in one.rows)
    notes = (
        "Exploring steps of epsilon-greedy are those that the paper describes, in which all owners "
        "send one number; "
        "its shortcut (`samba/setting`) saves K encryptions and K decryptions in each.",
        "The controller multiplies the sums into a fresh encryption of 0: K + 1 Paillier "
        "encryptions.",
    )
    headline = (
        f"{sum(f.verdict == HOLDS for f in findings)} of {len(findings)} statements hold as "
        "written."
    )
    return Analysis(
        headline, (Table("Theorem 4 and level paper", columns, rows),), notes, files, findings
    )


def _numbers(one: Ran, at: int) -> tuple[int, int]:
    return int(one.rows[at][1].replace(",", "")), int(one.rows[at][2].replace(",", ""))


def primitives(done: Sequence[Ran]) -> Finding:
    """Judge the counts of AES-GCM and Paillier."""
    aes = all(said == seen for one in done for said, seen in (_numbers(one, 0), _numbers(one, 1)))
    extra = sorted({seen - said for one in done for said, seen in [_numbers(one, 2)]})
    opened = all(said == seen for one in done for said, seen in [_numbers(one, 3)])
    text = (
        f"AES-GCM: {'exactly 2K(N - K) nb each way' if aes else 'differs'} in {len(done)} runs; "
        "Paillier: K "
    )
    text += f"{', '.join(f'{one:+d}' for one in extra)} encryptions, {'1' if opened else 'other'} decryption"
    held = aes and opened and extra == [0]
    because = (
        ""
        if held
        else "the controller also encrypts 0, which is one encryption more than K"
        if aes and opened
        else ""
    )
    return Finding("aes", text, HOLDS if held else FAILS, because)


def messages(done: Sequence[Ran]) -> Finding:
    """Judge the count of encrypted numbers that are sent."""
    gaps = sorted({seen - said for one in done for said, seen in [_numbers(one, 4)]})
    text = f"4K(N - K) nb + K + 1 {'exactly' if gaps == [0] else f'and {gaps}'} in {len(done)} runs"
    return Finding("messages", text, HOLDS if gaps == [0] else FAILS)


def picture(done: Sequence[Ran]) -> plots.Figure:
    """Draw calls of AES-GCM over the theorem's."""
    figure, (ax,) = kit.panels(1, height=3.4)
    plots.style(ax, x="AES-GCM encryptions over the theorem's", y="", grid="x")
    own = [one for one in done if one.level == "paper" and one.seed == SEED]
    ratios = [seen / said for said, seen in (_numbers(one, 0) for one in own)]
    ax.barh(range(len(own)), ratios, height=0.7)
    ax.set_yticks(range(len(own)), [f"{one.policy}, K = {one.arms}" for one in own])
    ax.invert_yaxis()
    return figure


THEOREMS = REFERENCE.experiment(
    "theorems",
    "Samba, theorems 1 to 4: policies, same reward, who learns what, cost",
    ("theory",),
    sweep,
    "theorems 1 to 4",
)
