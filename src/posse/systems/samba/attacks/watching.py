"""What comp reads off the passes it sees, by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posse.core.roles import View
from posse.privacy.leakage import linking, tracking
from posse.privacy.leakage.attack import Attack, Score, Truth
from posse.privacy.leakage.scores import area
from posse.systems.samba.attacks.reading import (
    Bools,
    Floats,
    Ints,
    Passes,
    places,
    plant_passes,
    read,
)

if TYPE_CHECKING:
    from posse.systems.samba.settings import Samba

MEANS = ("epsilon-greedy", "epsilon-decreasing", "pursuit")
"""Policies that show an arm's mean."""
KEPT = 7
"""Views whose answer is kept."""
WINDOW, WINDOWS = 200, 5
"""Passes that a late comer sees, and times at which it comes."""
APART = 6
"""Steps between two passes that a late comer compares, at most."""
ALONE = 1e-13
"""Misfit of two passes between which no arm moved but the one that was pulled; of others it is 1e-6
and more.
"""

SCALED = "Comp sees all scores of a pass up to one unknown scale"
HIDDEN = "Comp holds the other share and sees a random place"
PUBLISHED = "The published protocol"
CLAIMS = (SCALED, HIDDEN, PUBLISHED, "The mask is OFF")
PLANTED = "runs in which one pass in ten shows its scores"


@dataclass(frozen=True)
class Watched:
    """The passes that show an arm's own score, and what following them gives."""

    passes: Passes
    followed: tracking.Followed | None
    linked: linking.Linked

    @property
    def alive(self) -> bool:
        """Whether the run could be followed."""
        return self.followed is not None and self.followed.explained > 0.5

    @property
    def strange(self) -> Floats:
        """How little each pass looks like scores of this run."""
        if self.alive:
            assert self.followed is not None
            return self.followed.explores
        return linking.strangeness(self.passes.values)


_kept: list[tuple[View, int, Watched]] = []


def watched(view: View) -> Watched:
    """Follow what comp saw; the last answers are kept, for several attacks look at one view."""
    for known, size, answer in _kept:
        if known is view and size == len(view.entries):
            return answer
    passes = read(view).turn(0)
    shape, parameter = shape_of(passes)
    origin = passes.level == "paper"
    whole = (np.diff(passes.index) > 0).all() and passes.steps[0] == passes.owners + 1
    followed = None
    if shape is not None and whole and (passes.owners > 2 or origin):
        followed = tracking.follow(
            passes.values,
            passes.chosen,
            passes.steps,
            shape=shape,
            parameter=parameter,
            origin=origin,
            tells=passes.policy.name != "pursuit",
        )
    linked = linking.pairs(
        passes.values, passes.chosen, passes.steps, origin=origin, most=_gap_of(passes)
    )
    made = Watched(passes, followed, linked)
    _kept[:] = [(view, len(view.entries), made), *_kept[:KEPT]]
    return made


def _gap_of(passes: Passes) -> int:
    """Steps between two passes that are compared: more where few passes show anything."""
    return 1 if len(passes.index) > 0.5 * (passes.steps[-1] - passes.steps[0]) else 3


def shape_of(passes: Passes) -> tuple[int | None, float]:
    """The shape of the scores that the policy shows comp; None where each pass has noise of its
    own.
    """
    policy = passes.policy
    if policy.name == "ucb":
        return tracking.BOUND, float(policy.parameters()[0])
    if policy.name in MEANS:
        return tracking.MEAN, 1.0
    if policy.name == "softmax" and passes.level == "paper":
        return tracking.POWER, float(policy.parameters()[0])
    return None, 1.0


def deterministic(settings: Samba) -> str:
    """Why scores cannot be followed: they carry noise of their own in every pass."""
    name = settings.make_policy().name
    if name == "thompson" or (name == "softmax" and settings.level != "paper"):
        return f"{name} draws every score anew; see the attack 'run-level'."
    if name not in ("ucb", *MEANS, "softmax"):
        return f"it does not know the scores of the policy '{name}'."
    if settings.level != "paper" and len(settings.load().arms) < 3:
        return "two scores say nothing without their scale and shift."
    return ""


def pulled(settings: Samba) -> str:
    """The same where comp must know which place was pulled: in Pursuit's first pass it does not."""
    if settings.make_policy().name == "pursuit":
        return "in pursuit the place that the first pass selects is not the one that is pulled."
    return deterministic(settings)


# The reward of every step, the total and the counts -----------------------------------------------


def track(view: View, seed: int) -> dict[str, Any]:
    """Whether each pull's reward was large or small; and the total and every arm's pulls, where the
    run is followed.
    """
    seen = watched(view)
    if seen.alive:
        followed = seen.followed
        assert followed is not None
        known = np.flatnonzero(~np.isnan(followed.rewards))
        steps, scores = seen.passes.steps[known], followed.rewards[known]
        return {"steps": steps, "scores": scores, "total": followed.total, "pulls": followed.pulls}
    return {**_moves(seen), "total": None, "pulls": None}


def _moves(seen: Watched) -> dict[str, Any]:
    """How far the score of each pulled arm went, up for a large reward."""
    passes, origin = seen.passes, seen.passes.level == "paper"
    if passes.policy.name in MEANS:  # which stay where they are while another arm is pulled
        found = _between(
            passes,
            linking.pairs(passes.values, passes.chosen, passes.steps, origin=origin, most=APART),
        )
        if len(found["steps"]):
            return found
    rows, _, _ = _quiet(seen)
    moved = seen.linked.moved[np.isin(seen.linked.rows, rows)]
    known = ~np.isnan(moved)
    return {"steps": seen.passes.steps[rows[known]], "scores": moved[known]}


def tell_track(guess: Any) -> str:
    """The estimate in words."""
    if guess["total"] is None:
        return f"rewards of {len(guess['steps']):,} pulls; not the total"
    pulls = ", ".join(str(int(one)) for one in guess["pulls"][:20])
    return f"total {guess['total']:,.0f}; pulls {pulls}; rewards of {len(guess['steps']):,} steps"


def large(truth: Truth) -> Bools:
    """Whether each reward was above the mean of its arm before it; of rewards of 0 and 1, whether
    it was 1.
    """
    if "large" in truth:
        return np.asarray(truth["large"])
    arms, rewards = truth["arms"], truth["rewards"]
    if set(np.unique(rewards)) <= {0.0, 1.0}:
        return np.asarray(rewards > 0.5)
    out, sums, pulls = (
        np.zeros(len(arms), bool),
        np.zeros(len(truth["pulls"])),
        np.zeros(len(truth["pulls"])),
    )
    for t, (arm, reward) in enumerate(zip(arms.tolist(), rewards.tolist(), strict=True)):
        out[t] = reward > (sums[arm] / pulls[arm] if pulls[arm] else 0.5)
        sums[arm] += reward
        pulls[arm] += 1
    return out


def _rewards(guesses: Sequence[Any], truths: Sequence[Truth]) -> Score:
    scores = np.concatenate([guess["scores"] for guess in guesses])
    labels = [
        large(truth)[guess["steps"] - 1] for guess, truth in zip(guesses, truths, strict=True)
    ]
    return area(scores, np.concatenate(labels), "rewards")


def score_track(guesses: Sequence[Any], truths: Sequence[Truth]) -> Score:
    """AUC of large rewards; and how many totals and counts are right."""
    made, totals, exact, arms = _rewards(guesses, truths), 0, 0, 0
    for guess, truth in zip(guesses, truths, strict=True):
        arms += len(truth["pulls"])
        if guess["total"] is not None:
            totals += abs(guess["total"] - truth["total"]) <= 1
            exact += int((guess["pulls"] == np.sort(truth["pulls"])).sum())
    text = (
        f"{made.text}; total within 1 in {totals} of {len(truths)} runs, pulls exact of {exact} of "
        f"{arms} arms"
    )
    return replace(made, text=text)


def other_rewards(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Rewards of other steps."""
    rng = np.random.default_rng((seed, 41))
    return [{**truth, "large": rng.permutation(large(truth))} for truth in truths]


# Which arm ----------------------------------------------------------------------------------------


def _quiet(seen: Watched) -> tuple[Ints, Ints, Floats]:
    """Pairs of passes neither of which looks like an exploring step."""
    linked, strange = seen.linked, seen.strange
    most = 0.5 if seen.alive else np.quantile(strange, 0.85) if len(strange) else 0.0
    kept = (strange[linked.rows] <= most) & (strange[linked.later] <= most)
    return linked.rows[kept], linked.later[kept], linked.scores[kept]


def last_place(view: View, seed: int) -> dict[str, Any]:
    """How much each place of a pass looks like the arm that was pulled before it."""
    seen = watched(view)
    rows, later, scores = _quiet(seen)
    same = int((scores.argmax(axis=1) == seen.passes.chosen[later]).sum()) if len(rows) else 0
    return {"passes": seen.passes, "rows": rows, "later": later, "scores": scores, "same": same}


def score_last(guesses: Sequence[Any], truths: Sequence[Truth]) -> Score:
    """AUC of the places of arms pulled before."""
    scores, labels = [], []
    for guess, truth in zip(guesses, truths, strict=True):
        passes, later = guess["passes"], guess["later"]
        arms = truth["arms"][passes.steps[guess["rows"]] - 1]
        scores.append(guess["scores"].ravel())
        labels.append(
            (places(passes.take(later), truth) == arms[:, None]).ravel()
            if len(later)
            else np.zeros(0, bool)
        )
    return area(np.concatenate(scores), np.concatenate(labels), "places")


def other_places(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Owners in other places."""
    rng = np.random.default_rng((seed, 47))
    return [
        {**truth, "slots": {i: rng.permutation(one) for i, one in truth["slots"].items()}}
        for truth in truths
    ]


# Exploring steps, a late comer --------------------------------------------------------------------


def exploring(view: View, seed: int) -> dict[str, Any]:
    """How little each pass looks like scores."""
    seen = watched(view)
    return {"steps": seen.passes.steps, "scores": np.minimum(seen.strange, 1e9)}


def score_exploring(guesses: Sequence[Any], truths: Sequence[Truth]) -> Score:
    """AUC of exploring steps."""
    labels = [
        truth["explores"][guess["steps"] - 1] for guess, truth in zip(guesses, truths, strict=True)
    ]
    return area(
        np.concatenate([guess["scores"] for guess in guesses]), np.concatenate(labels), "steps"
    )


def other_coins(truths: Sequence[Truth], seed: int) -> list[Truth]:
    """Coins of other steps."""
    rng = np.random.default_rng((seed, 59))
    return [{**truth, "explores": rng.permutation(truth["explores"])} for truth in truths]


def never_explores(settings: Samba) -> str:
    """Why there is nothing to find: the policy has no exploring steps."""
    policy = settings.make_policy()
    return (
        ""
        if policy.explores and not deterministic(settings)
        else f"{policy.name} has no exploring steps."
    )


def join_late(view: View, seed: int) -> dict[str, Any]:
    """Rewards of steps, and pulls and sum of the leading arm, from the second half of the passes
    alone.
    """
    passes = read(view).turn(0)
    late = passes.take(slice(len(passes.index) // 2, None))
    found = []
    for number in range(WINDOWS):
        start = number * max(0, len(late.index) - WINDOW) // WINDOWS
        part = late.take(slice(start, start + WINDOW))
        leader = linking.late(part.values, part.chosen, part.steps)
        if leader is not None:
            found.append((int(part.steps[leader.row]), leader.pulls, leader.total))
    linked = linking.pairs(
        late.values, late.chosen, late.steps, origin=late.level == "paper", most=_gap_of(late)
    )
    return {**_moves(Watched(late, None, linked)), "leaders": found}


def _between(passes: Passes, linked: linking.Linked) -> dict[str, Any]:
    """How many of the rewards between two passes were large, for every step between them.

    Where all arms but one keep their scores, that one was pulled in all g steps between: m large
    rewards move its mean from s / n by (m - g s / n) / (n + g). So its move, over g and times about
    n, grows with m / g, which is the best guess for each of the g rewards. The leading arm has
    about t pulls at step t.
    """
    alone = (linked.scores.max(axis=1, initial=-np.inf) > -np.log(ALONE)) & ~np.isnan(linked.moved)
    first, last = passes.steps[linked.rows[alone]], passes.steps[linked.later[alone]]
    share = linked.moved[alone] / (last - first) * first
    steps = np.concatenate(
        [np.zeros(0, np.int64), *(np.arange(*edges) for edges in zip(first, last, strict=True))]
    )
    return {"steps": steps.astype(np.int64), "scores": np.repeat(share, last - first)}


def tell_late(guess: Any) -> str:
    """The estimate in words."""
    found = dict.fromkeys(guess["leaders"])
    leaders = "; ".join(f"before step {t:,}: {n:,} pulls, sum {s:,.0f}" for t, n, s in found)
    return leaders or "no leader followed"


def score_late(guesses: Sequence[Any], truths: Sequence[Truth]) -> Score:
    """AUC of large rewards; and windows in which pulls and sum of the leading arm are exactly
    right.
    """
    right = 0
    for guess, truth in zip(guesses, truths, strict=True):
        for step, pulls, total in guess["leaders"]:
            arms, rewards = truth["arms"][: step - 1], truth["rewards"][: step - 1]
            leaders = [
                (int((arms == arm).sum()), float(rewards[arms == arm].sum()))
                for arm in np.unique(arms)
            ]
            right += (pulls, total) in leaders
    made = _rewards(guesses, truths)
    text = (
        f"{made.text}; leader's pulls and sum exact in {right} of {WINDOWS * len(truths)} windows "
        f"of {WINDOW} passes"
    )
    return replace(made, text=text)


def not_late(settings: Samba) -> str:
    """Why a late comer finds nothing here."""
    policy = settings.make_policy().name
    if policy != "epsilon-greedy":
        return (
            f"it reads rewards off means that nothing else moves, and {policy} shows other scores."
        )
    if len(settings.load().arms) < 6:
        return "it needs six owners or more, to tell which of them moved."
    return ""


def _attack(
    name: str,
    title: str,
    claims: tuple[str, ...],
    estimate: Callable[[View, int], Any],
    score: Callable[[Sequence[Any], Sequence[Truth]], Score],
    statistic: str,
    shuffle: Callable[[Sequence[Truth], int], Sequence[Truth]],
    missing: Callable[[Any], str],
    **more: Any,
) -> Attack:
    return Attack(
        name,
        title,
        ("comp",),
        claims,
        estimate,
        score,
        statistic,
        plant_passes,
        PLANTED,
        shuffle,
        missing=missing,
        **more,
    )


EXPLORES = ("At level 'paper' comp learns every exploring step", HIDDEN)
ATTACKS = (
    _attack(
        "tracker",
        "the reward of every step, the total, all pulls",
        CLAIMS,
        track,
        score_track,
        "AUC",
        other_rewards,
        deterministic,
        tell=tell_track,
    ),
    _attack(
        "last-place",
        "which place was pulled last",
        (*CLAIMS, "With rewards from few values"),
        last_place,
        score_last,
        "AUC",
        other_places,
        pulled,
        finds=0.8,
        tell=lambda one: (
            f"{len(one['rows']):,} passes linked; the same arm again in {one['same']:,}"
        ),
    ),
    _attack(
        "exploring",
        "which steps explore",
        EXPLORES,
        exploring,
        score_exploring,
        "AUC",
        other_coins,
        never_explores,
        finds=0.95,
        tell=lambda one: (
            f"{int((one['scores'] > 0.5).sum()):,} of {len(one['steps']):,} steps look exploring"
        ),
    ),
    _attack(
        "late-join",
        "the rewards and the leading arm, from the second half",
        CLAIMS,
        join_late,
        score_late,
        "AUC",
        other_rewards,
        not_late,
        finds=0.8,
        tell=tell_late,
    ),
)
