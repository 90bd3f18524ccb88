"""Attacks on mpc-contextual: what each role, and roles together, find out from what they saw.

| attack | by | seeks |
|---|---|---|
| `masks` | dealer, party | features of all parties: the dealer knows the masks of what a party sees |
| `exploring` | dealer, puller | which steps explored, from the dealt coins and the arms |
| `arms`, `sequence` | puller; puller, payee | features, from the whole sequence of arms; of arms and rewards |
| `opened` | party | the last party's features, from every word that all others saw |
| `membership`, `membership-by-reward` | all parties; puller, payee | rows that the model was learnt from |
| `sizes` | wire | the arm, from sizes of messages |
| `delays`, `acknowledgements` | party | the arm, from a run over sockets (`sockets`) |

Who knows similar rows is given half of the rows of the data, and the run is on the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import View
from posse.privacy.leakage import features, membership
from posse.privacy.leakage.attack import Attack, Evidence, Score, Truth
from posse.privacy.leakage.features import Known
from posse.privacy.leakage.membership import Pairs
from posse.privacy.leakage.scores import area_of, hits, shuffled
from posse.privacy.sharing.fixed import FixedPoint, Words
from posse.systems.modules import Attacks
from posse.systems.mpc_contextual import sockets
from posse.systems.mpc_contextual.coins import DealerCoins
from posse.systems.mpc_contextual.deviations import DEVIATIONS
from posse.systems.mpc_contextual.program import input_masks
from posse.systems.mpc_contextual.roles.messages import Choice, Opening, Payoff, Seed
from posse.systems.mpc_contextual.roles.outside import Model
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, terms_of
from posse.systems.registry import system_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
STEPS = 300
"""Steps of a run that an attack stages for itself, at most."""
FEWEST = 40
"""Rows below which half of them say nothing about the other half."""


# Dealer and party ---------------------------------------------------------------------------------


def unmask(view: View, seed: int) -> Floats:
    """Take the dealer's masks off what parties opened in the first round of every step: everybody's
    features.
    """
    terms = terms_of(view)
    keys = {
        entry.receiver: entry.message.inputs
        for entry in view.entries
        if isinstance(entry.message, Seed)
    }
    opened = {
        (entry.message.step, entry.sender): entry.message.data
        for entry in view.entries
        if isinstance(entry.message, Opening) and entry.message.round == 0
    }
    rows: list[Words] = []
    for number in range(terms.choices):
        blocks = []
        for party, size in zip(terms.parties, terms.features, strict=True):
            data = opened.get((number, party))
            if data is None or party not in keys:
                raise DataError(
                    f"the view lacks what '{party}' opened in pass {number + 1}, or its seed: it "
                    "is cut off, or not of "
                    "dealer and party."
                )
            count = terms.batch * size
            masked = np.frombuffer(data, "<u8", count)
            blocks.append(
                (masked + input_masks(keys[party], number, count)).reshape(terms.batch, size)
            )
        rows.append(np.hstack(blocks))
    return FixedPoint(terms.bits, 1.0).decode(np.vstack(rows))


def _dealt_anew(evidence: Evidence, seed: int) -> Evidence:
    """Plant: the same rows under masks of other seeds, which the dealer dealt as well."""
    view, terms = evidence.seen, terms_of(evidence.seen)
    rng, words = (
        np.random.default_rng((seed, 29)),
        FixedPoint(terms.bits, 1.0).encode(evidence.truth["features"]),
    )
    keys = {party: rng.bytes(32) for party in terms.parties}
    starts = dict(zip(terms.parties, np.cumsum((0, *terms.features[:-1])).tolist(), strict=True))
    entries = []
    for entry in view.entries:
        message = entry.message
        if isinstance(message, Seed) and entry.receiver in keys:
            message = Seed(message.terms, message.tapes, keys[entry.receiver])
        elif isinstance(message, Opening) and message.round == 0:
            at, size = starts[entry.sender], terms.features[terms.parties.index(entry.sender)]
            rows = words[
                message.step * terms.batch : (message.step + 1) * terms.batch, at : at + size
            ].ravel()
            masked = (rows - input_masks(keys[entry.sender], message.step, rows.size)).tobytes()
            message = Opening(message.step, 0, masked + message.data[len(masked) :])
        entries.append(entry._replace(message=message))
    return replace(evidence, seen=replace(view, entries=entries))


def _score_features(found: Sequence[Floats], truths: Sequence[Truth]) -> Score:
    rows = np.vstack([truth["features"] for truth in truths])
    means = [truth.get("mean", np.mean(truth["features"], axis=0)) for truth in truths]
    return features.r_squared(np.vstack(found), rows, np.mean(means, axis=0))


_other_rows = shuffled("features", 21)


# The dealer's coins -------------------------------------------------------------------------------


def suspect(view: View, seed: int) -> Floats:
    """Return how likely each step explored, as the dealer who also sees the arms has it.

    It knows the table of coins of every step, and neither where it is read nor by how much arms are
    turned. The best it can do is to count the coins that explore, which is the same for all; so it
    takes the first one, and where that explores it looks whether its arm was pulled.
    """
    terms, own = terms_of(view), view.secrets.get(DEALER, {})
    if "coins" not in own or PULLER not in view.secrets:
        raise DataError(
            "the view lacks the dealer's coins or the puller's arms: it is not of dealer and "
            "puller."
        )
    arms = np.frombuffer(view.secrets[PULLER]["arms"], np.uint16).astype(np.int64)
    dealt = DealerCoins(terms, own["coins"]).at(0, terms.steps)
    explores, same = dealt.explore[: len(arms), 0], dealt.arms[: len(arms), 0] == arms
    return np.asarray(explores * (1.0 + same))


def _read_at_the_first_place(evidence: Evidence, seed: int) -> Evidence:
    """Plant: the parties read every table at its first place, as if coins were dealt openly."""
    view = evidence.seen
    coins = DealerCoins(terms_of(view), view.secrets[DEALER]["coins"]).at(0, terms_of(view).steps)
    explored = coins.explore[: len(evidence.truth["explored"]), 0]
    return replace(evidence, truth={**evidence.truth, "explored": explored})


# Arms and rewards ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Followed:
    """What puller, and payee, saw of a run; and rows of the same source that they know."""

    arms: Ints
    rewards: Floats | None
    known: Known
    rate: float


def of_puller(view: View, like: MpcContextual | None) -> Followed:
    """What a puller recorded, with the rows of settings like those of its run: all that it knows
    besides.
    """
    terms = terms_of(view)
    if like is None:
        raise DataError(
            "it compares with rows that the adversary knows. Give settings with such rows (--like "
            "FILE)."
        )
    setup = like.load()
    if (setup.terms.arms, setup.terms.dimension) != (terms.arms, terms.dimension):
        raise DataError(
            f"the run has {terms.arms} arms and {terms.dimension} features, the settings that it "
            "is like have "
            f"{setup.terms.arms} and {setup.terms.dimension}."
        )
    rows = np.arange(len(setup.contexts))
    arms = np.frombuffer(view.secrets[PULLER]["arms"], np.uint16).astype(np.int64)
    return Followed(arms, None, Known(setup.features(rows), setup.contexts.scaled), terms.rate)


def follow(seen: Followed, seed: int) -> Floats:
    """Estimate the features of every step."""
    if not isinstance(seen, Followed):
        raise ConfigError(
            "this attack needs rows of the same source, which views do not have. Audit "
            "settings instead."
        )
    return features.along(seen.known, seen.arms, seen.rewards, seen.rate, seed=seed)


@dataclass(frozen=True, eq=False)
class Staged:
    """A run on some rows of the data: what roles saw of it, the truth, and the rows that are
    left.
    """

    truth: Truth
    arms: Ints
    rewards: Floats
    weights: Floats
    """(arms, features): the model, from everybody's shares."""
    words: Words
    """What all parties but the last one saw in every pass."""
    left: Ints


def staged(settings: MpcContextual, seed: int) -> Staged:
    """Run on at most half of the rows; once for all attacks on these settings."""
    return settings.cached(f"staged {seed}", lambda: _run_apart(settings, settings.seed + seed))


def _run_apart(settings: MpcContextual, seed: int) -> Staged:
    setup = settings.load()
    batch, rows = setup.terms.batch, len(setup.contexts)
    steps = max(min(STEPS, setup.terms.steps, rows // 2) // batch, 1) * batch
    shorter = settings.but(horizon=steps)
    run = system_of(settings).start(shorter, seeds=[seed], transcript=1 << 30)
    run.finish()
    parties, view = setup.terms.parties, run.view(*setup.terms.parties, PULLER, PAYEE)
    shares = [np.frombuffer(view.secrets[party]["model"], np.uint64) for party in parties]
    words = np.sum(shares, axis=0, dtype=np.uint64).reshape(setup.terms.arms, -1)
    return Staged(
        run.truth(),
        np.frombuffer(view.secrets[PULLER]["arms"], np.uint16).astype(np.int64),
        np.frombuffer(view.secrets[PAYEE]["units"], np.uint32) / REWARD_ONE,
        Model(shorter.load().terms, steps, words).weights,
        opened_words(run.view(*parties[:-1]), parties[-1]),
        np.setdiff1d(np.arange(rows), shorter.load().order(seed)),
    )


def _followed(settings: MpcContextual, seed: int, *, rewards: bool) -> Iterator[Evidence]:
    made, setup = staged(settings, seed), settings.load()
    known = Known(setup.features(made.left), setup.contexts.scaled[made.left])
    seen = Followed(made.arms, made.rewards if rewards else None, known, setup.terms.rate)
    yield Evidence(seen, {**made.truth, "mean": known.features.mean(axis=0)})


def _tell_rows(found: Floats) -> str:
    spread = np.std(found, axis=0).mean() if len(found) else 0.0
    return (
        f"{found.shape[1]} features of {found.shape[0]:,} steps, which differ by {spread:.2g} from "
        "step to step"
    )


def _best_arms(evidence: Evidence, seed: int) -> Evidence:
    """Plant: every step pulls the arm that pays most there."""
    means = evidence.truth["means"]
    arms = means.argmax(axis=1)
    rewards = None if evidence.seen.rewards is None else means.max(axis=1)
    return replace(evidence, seen=replace(evidence.seen, arms=arms, rewards=rewards, rate=0.0))


def _few_rows(settings: MpcContextual) -> str:
    rows = len(settings.load().contexts)
    return (
        f"{rows} rows are too few to know half of them: {FEWEST} are needed."
        if rows < FEWEST
        else ""
    )


def _seconds(settings: MpcContextual) -> float:
    terms = settings.load().terms
    return 2.0 + min(STEPS, terms.steps) * (0.004 + 2e-6 * terms.arms * terms.dimension**2 / 2)


# Every word that was opened -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Opened:
    """All words that all parties but one saw in every pass, and two candidates for the last one's
    features there.
    """

    words: Words
    """(passes, words)"""
    pairs: Floats
    """(passes, 2, features)"""
    known: Ints
    """Which candidate is the true one, where the coalition knows it; else -1."""


def opened_words(view: View, honest: str) -> Words:
    """Put together everything about a pass that the coalition received: openings, their sums, what
    comes under masks.

    Messages are read as words of 64 bits, and as bytes where they are not whole words.
    """
    terms = terms_of(view)
    passes: dict[int, dict[tuple[int, str], bytes]] = {}
    for entry in view.entries:
        message = entry.message
        if isinstance(message, Opening | Choice | Payoff):
            place = (message.round if isinstance(message, Opening) else -1, entry.sender)
            passes.setdefault(message.step, {})[place] = message.data
    rows = []
    for number in range(terms.choices):
        said = passes.get(number, {})
        columns = []
        for (round_, sender), data in sorted(said.items()):
            if sender in terms.parties and sender != honest:
                continue
            columns.append(_as_words(data))
            shares = [said.get((round_, party), b"") for party in terms.parties]
            if round_ >= 0 and {len(share) for share in shares} == {len(data)}:
                columns.append(
                    np.sum([_as_words(share) for share in shares], axis=0, dtype=np.uint64)
                )
        rows.append(np.concatenate(columns) if columns else np.zeros(0, np.uint64))
    if len({len(row) for row in rows}) != 1 or not len(rows[0]):
        raise DataError(
            f"the view does not hold every pass in full, or nothing of '{honest}': it is cut off."
        )
    return np.stack(rows)


def _as_words(data: bytes) -> Words:
    if len(data) % 8 == 0:
        return np.frombuffer(data, "<u8")
    return np.frombuffer(data, np.uint8).astype(np.uint64) << np.uint64(56)


def _opened(settings: MpcContextual, seed: int) -> Iterator[Evidence]:
    made, setup = staged(settings, seed), settings.load()
    terms, words = setup.terms, made.words
    at = slice(terms.dimension - terms.features[-1], terms.dimension)
    true = made.truth["features"][:, at].reshape(len(words), -1)
    rng = np.random.default_rng((seed, 23))
    decoys = setup.features(rng.choice(made.left, len(words) * terms.batch))[:, at].reshape(
        true.shape
    )
    answers = rng.integers(2, size=len(words))
    pairs = np.where(
        answers[:, None, None] == 0, np.stack([true, decoys], 1), np.stack([decoys, true], 1)
    )
    known = np.where(np.arange(len(words)) % 2 == 0, answers, -1)
    yield Evidence(
        Opened(words, pairs, known), {"answers": answers, "asked": known < 0, "bits": terms.bits}
    )


def recognise(seen: Opened, seed: int) -> NDArray[np.bool_]:
    """Guess which candidate is the true one."""
    if not isinstance(seen, Opened):
        raise ConfigError(
            "this attack needs candidates for the last party's rows, which views do not "
            "have. Audit settings instead."
        )
    return features.recognise(seen.words, seen.pairs, seen.known)


def _score_recognised(found: Sequence[NDArray[np.bool_]], truths: Sequence[Truth]) -> Score:
    right = [
        (guess == truth["answers"])[truth["asked"]]
        for guess, truth in zip(found, truths, strict=True)
    ]
    return hits(
        int(np.concatenate(right).sum()), len(np.concatenate(right)), 0.5, "rows told from another"
    )


def _without_mask(evidence: Evidence, seed: int) -> Evidence:
    """Plant: one word a pass is a feature of the last party without its mask."""
    seen, truth = evidence.seen, evidence.truth
    rng = np.random.default_rng((seed, 24))
    true = seen.pairs[
        np.arange(len(seen.words)), truth["answers"], rng.integers(seen.pairs.shape[2])
    ]
    words = seen.words.copy()
    words[:, rng.integers(words.shape[1])] = FixedPoint(truth["bits"], 1.0).encode(true)
    return replace(evidence, seen=replace(seen, words=words))


def _other_answers(truths: Sequence[Truth], seed: int) -> list[Truth]:
    rng = np.random.default_rng((seed, 25))
    return [{**truth, "answers": rng.integers(2, size=len(truth["answers"]))} for truth in truths]


# Members of the model -----------------------------------------------------------------------------


def _probed(settings: MpcContextual, seed: int, *, errors: bool) -> Iterator[Evidence]:
    """Ask the model of a run about rows that it learnt and rows that it did not."""
    made, setup = staged(settings, seed), settings.load()
    rng = np.random.default_rng((seed, 26))
    rows = (made.truth["features"], setup.features(made.left))
    pays = (made.truth["means"], setup.contexts.scaled[made.left])
    answers: list[Any] = []
    for given, means in zip(rows, pays, strict=True):
        scores, every = given @ made.weights.T, np.arange(len(given))
        explore = rng.random(len(given)) < setup.terms.rate
        arms = np.where(
            explore, rng.integers(0, scores.shape[1], len(given)), scores.argmax(axis=1)
        )
        pairs = Pairs(arms, (rng.random(len(given)) < means[every, arms]).astype(np.float64))
        answers.append(membership.score_errors(scores, pairs) if errors else pairs)
    yield Evidence(*membership.probes(answers[0], answers[1], seed=seed))


PARTY = "A party learns nothing but its own features"
PULLER_LEARNS = "The puller learns the arm of every step"
POOLED = "Parties may pool what they saw"
MODEL = "The model is held in shares"

CURIOUS = (
    Attack(
        "masks",
        "features of all parties, from the dealer's masks",
        (DEALER, "party"),
        ("The dealer together with any one party",),
        unmask,
        _score_features,
        "R2 of features",
        _dealt_anew,
        "rows under masks of other seeds",
        _other_rows,
        tell=lambda found: f"{found.shape} numbers",
    ),
    Attack(
        "exploring",
        "which steps explored",
        (DEALER, PULLER),
        ("The dealer sees no data",),
        suspect,
        area_of("explored", "steps explored"),
        "AUC",
        _read_at_the_first_place,
        "tables that are read at their first place",
        shuffled("explored", 22),
        missing=lambda settings: (
            "" if settings.load().terms.explore[0] else "nothing explores in this run."
        ),
        tell=lambda found: f"{int((found > 0).sum()):,} steps suspected",
    ),
    sockets.SIZES,
    Attack(
        "opened",
        "features of the last party, from every word the others saw",
        ("party",),
        (PARTY, POOLED),
        recognise,
        _score_recognised,
        "share of rows told from another",
        _without_mask,
        "one feature a step without its mask",
        _other_answers,
        needs="runs",
        stage=_opened,
        seconds=_seconds,
        missing=_few_rows,
        tell=lambda guess: f"one of two candidate rows in each of {len(guess):,} steps",
    ),
    Attack(
        "arms",
        "features, from the sequence of arms",
        (PULLER,),
        (PULLER_LEARNS, POOLED, "The arm has no"),
        follow,
        _score_features,
        "R2 of features",
        _best_arms,
        "arms that are always the best ones",
        _other_rows,
        needs="runs",
        stage=lambda settings, seed: _followed(settings, seed, rewards=False),
        seconds=_seconds,
        missing=_few_rows,
        of_view=of_puller,
        tell=_tell_rows,
    ),
    Attack(
        "sequence",
        "features, from the sequence of arms and rewards",
        (PULLER, PAYEE),
        ("Puller and payee together",),
        follow,
        _score_features,
        "R2 of features",
        _best_arms,
        "arms that are always the best ones",
        _other_rows,
        needs="runs",
        stage=lambda settings, seed: _followed(settings, seed, rewards=True),
        seconds=_seconds,
        missing=_few_rows,
        tell=_tell_rows,
    ),
    replace(
        membership.BY_ERROR,
        name="membership",
        claims=(MODEL,),
        needs="runs",
        seconds=_seconds,
        missing=_few_rows,
        stage=lambda settings, seed: _probed(settings, seed, errors=True),
    ),
    replace(
        membership.BY_REWARD,
        name="membership-by-reward",
        claims=(MODEL, "Puller and payee together"),
        needs="runs",
        seconds=_seconds,
        missing=_few_rows,
        stage=lambda settings, seed: _probed(settings, seed, errors=False),
    ),
    *sockets.OVER_SOCKETS,
)
"""Attacks of roles that follow the protocol."""

ATTACKS = Attacks(
    attacks=(*CURIOUS, *DEVIATIONS),
    unattacked={
        "Every party bounds the norm": (
            "It is about what is computed on larger features, not about what anyone reads."
        ),
    },
)
