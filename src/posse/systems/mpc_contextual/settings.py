"""Settings of a bandit on shared features: of a run in one process, and of one role between
organisations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator, model_validator

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.fixed import RewardRange
from posse.core.settings import Settings, number_as_text
from posse.privacy.dp.arms import ArmChoice, Arms
from posse.privacy.dp.guarantee import Budget, check_delta
from posse.privacy.dp.ledger import Ledger
from posse.privacy.sharing.fixed import FixedPoint, Words
from posse.problems.contexts.contexts import Contexts, check_bounds
from posse.problems.contexts.settings import ContextSettings
from posse.problems.data import ENCODING
from posse.problems.tables.options import check_encoding
from posse.results.values import JSON, plain_dict
from posse.systems.base import RunSettings, flatten_built_in_policy
from posse.systems.mpc_contextual.roles.outside import check_fits, gathered, row_order
from posse.systems.mpc_contextual.terms import (
    ARRIVING,
    FEWEST_BITS,
    MOST_BATCH,
    MOST_BITS,
    WIDTH_BITS,
    Terms,
    check_overlap,
    check_pace,
    check_parties,
    check_ranges,
    exploration,
    largest_steps,
)
from posse.systems.registry import system_of

BONUS = {"epsilon-greedy": "", "linucb": "ucb", "thompson": "thompson"}
"""What each policy adds to a score."""
PROTECTION, CHOICE = "Who may learn what", "How to choose"


@dataclass(frozen=True, eq=False)
class Setup:
    """What settings make: contexts, and the terms without the run's seed."""

    contexts: Contexts
    terms: Terms
    shares: Mapping[str, Words] | None = None
    """Every party's share of the model that the run starts from."""

    @property
    def model(self) -> Words | None:
        """The model that the run starts from."""
        return (
            None
            if self.shares is None
            else np.sum(list(self.shares.values()), axis=0, dtype=np.uint64)
        )

    def order(self, seed: int) -> NDArray[np.int64]:
        """Return the row of every step."""
        return row_order(self.contexts, seed, self.terms)

    def features(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the features of rows, the parties' blocks one behind the other."""
        columns = np.array([column for block in self.contexts.blocks for column in block.columns])
        return np.asarray(self.contexts.features[np.ix_(rows, columns)])

    def encoded(self, rows: NDArray[np.int64]) -> Words:
        """Return the features of rows in fixed point; every party encodes its own."""
        return FixedPoint(self.terms.bits, most=1.0).encode(self.features(rows))

    def units(self, seed: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what every arm pays in every row: (rows, arms), in units of 2^-24."""
        arms = np.arange(len(self.contexts.arms))
        return self.contexts.rewards(seed, rows[:, None], arms).reshape(len(rows), len(arms))


class MethodSettings(Settings):
    """How a bandit on shares chooses, learns and computes; a run in one process and a federation
    share them.
    """

    panels: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("without_guarantee", "delta", "limit", "slot", "jitter"), PROTECTION),
        **dict.fromkeys(("policy", "width", "batch", "overlap", "frozen"), CHOICE),
    }

    without_guarantee: bool = False
    """Say that epsilon 0 is meant: without exploration the arm has no differential privacy."""
    policy: Literal["epsilon-greedy", "linucb", "thompson"] = "epsilon-greedy"
    """How an arm is chosen where it is not drawn by epsilon: the best score, the best score with a
    bonus for what is little known (LinUCB), or the best of scores drawn from what is known
    (Thompson).
    """
    width: float = 1.0
    """Width of the bonus of linucb, or of what thompson draws, in standard deviations of a
    score.
    """
    batch: int = 1
    """Contexts that are chosen for with one model, which then learns from all of them at once:
    fewer rounds each.
    """
    overlap: bool = False
    """Choose for each context while the model learns from the one before: 7 rounds a step and not
    11, and every decision is made without the reward just before it.
    """
    bits: int = 26
    """Fraction bits of everything shared, 12 to 26."""
    newton: int = 2
    """Newton steps of the reciprocal."""
    delta: float = 1e-5
    """Delta of the figure for all steps together."""
    limit: float | None = None
    """Largest privacy epsilon (with delta) that one context may cost over the whole run, and over
    the runs that it starts from; longer runs are refused.
    """
    frozen: bool = False
    """Only decide, with the model of start_from: nothing is learnt, and no weight changes."""
    slot: float = 0.0
    """Seconds of a slot: between organisations puller and payee answer at whole slots after they
    were asked, so that delays do not tell the arm. An audit stages its runs over sockets with it; 0
    for none.
    """
    jitter: float = 0.0
    """Seconds up to which puller and payee wait in addition, by chance."""

    @model_validator(mode="before")
    @classmethod
    def _shipped(cls, values: Any) -> Any:
        why = "an arm is chosen by a program on shares, which cannot call a function of yours."
        return flatten_built_in_policy(values, "mpc-contextual", BONUS, ("epsilon", "width"), why)

    def described(self, terms: Terms) -> dict[str, JSON]:
        """Return name and parameters of the policy, as a record keeps them."""
        width = {"width": self.width} if terms.bonus else {}
        return {"name": self.policy, "parameters": {"epsilon": terms.rate, **width}}

    def ledger(self, terms: Terms, steps: int | None = None) -> Ledger[Arms]:
        """Return the ledger of a run with its steps paid for; refuses a run that would exceed the
        limit.
        """
        budget = None if self.limit is None else Budget(self.limit, self.delta)
        ledger = Ledger(Arms(ArmChoice(terms.arms, terms.rate), budget, delta=self.delta))
        ledger.spend(times=terms.before + (terms.steps if steps is None else steps))
        return ledger


class MpcContextual(RunSettings, MethodSettings, ContextSettings):
    """Everything a run of mpc-contextual needs to know.

    >>> MpcContextual(rows=100, steps=60).horizon
    60
    """

    system: ClassVar[str] = "mpc-contextual"
    writes: ClassVar[tuple[str, ...]] = ("keep_shares",)
    aliases: ClassVar[Mapping[str, str]] = {"steps": "horizon", "budget": "horizon"}
    panels: ClassVar[Mapping[str, str]] = {**MethodSettings.panels, "epsilon": CHOICE}

    horizon: int | None = None
    """Number of contexts T (the paper's steps); one sweep over the rows, of whole batches, if left
    out.
    """
    epsilon: str = "0.1"
    """Exploration rate, a number or a fraction such as 1/3: so often the arm is drawn at random. It
    is also what hides the arm, and no privacy epsilon.
    """
    path: Literal["parties", "fixed", "float"] = "parties"
    """parties: real roles that exchange shares; fixed: the same run on plain integers; float: the
    plain bandit.
    """
    start_from: Path | None = None
    """Folder with the shares of all parties of an earlier run (model-*.share, at any depth): start
    from its model. Contexts go on where that run ended; coins and tie orders are new.
    """
    keep_shares: Path | None = None
    """Folder in which every party's share of the model is kept at the end, for start_from; of one
    run.
    """
    latency: float | None = None
    """Milliseconds of one way between any two roles, to estimate the time of a step elsewhere."""
    bandwidth: float = 100.0
    """Megabits a second of each role, for the same estimate."""

    _text = field_validator("epsilon", mode="before")(number_as_text)

    @model_validator(mode="after")
    def _check_numbers(self) -> MpcContextual:
        check_delta(self.delta)
        if self.horizon is not None:
            check.at_least(1, horizon=self.horizon)
        if self.latency is not None:
            check.at_least(0, latency=self.latency)
        check.positive(bandwidth=self.bandwidth)
        check.between(1, MOST_BATCH, batch=self.batch)
        check_overlap(self.overlap, self.batch)
        if self.keep_shares is not None and self.runs > 1:
            raise ConfigError(
                f"keep_shares keeps the shares of one run, got {self.runs} runs. Take one."
            )
        if self.keep_shares is not None and self.path != "parties":
            raise ConfigError(
                f"keep_shares needs parties that hold shares, got path '{self.path}'. Leave one "
                "out."
            )
        if self.keep_shares is not None and self.frozen:
            raise ConfigError(
                "a frozen run has the shares that it starts from. Leave keep_shares out."
            )
        check.between(FEWEST_BITS, MOST_BITS, bits=self.bits)
        check.between(0, 64, width=self.width)
        check_pace(self)
        if self.limit is not None:
            check.positive(limit=self.limit)
        if "width" in self.unused and "width" in self.model_fields_set:
            raise ConfigError(
                f"width belongs to linucb and thompson, got {self.width:g}. Leave it out."
            )
        if "newton" in self.unused and "newton" in self.model_fields_set:
            if self.frozen:
                raise ConfigError(
                    f"newton belongs to runs that learn, got {self.newton} for a frozen one."
                )
            with_ = (
                "overlap, whose reciprocal is read from a table"
                if self.overlap
                else f"{self.batch} together"
            )
            raise ConfigError(
                f"newton belongs to runs without batch and overlap, got {self.newton} for {with_}."
            )
        check_guarantee(exploration(self.epsilon), self.without_guarantee)
        return self

    def files(self) -> Sequence[Path]:
        """The user's own files of features and rewards, and shares of an earlier run."""
        return (*self.data_files(), *(() if self.start_from is None else (self.start_from,)))

    @property
    def unused(self) -> tuple[str, ...]:
        """Settings that have no effect with this policy, batch or overlap."""
        policy = ("width",) if self.policy == "epsilon-greedy" else ()
        return (*policy, "newton") if self.batch > 1 or self.overlap or self.frozen else policy

    def load(self) -> Setup:
        """Make contexts and terms, and check what needs them; once."""
        return self.cached("setup", self._load)

    def _load(self) -> Setup:
        contexts = self.contexts()
        earlier = {} if self.start_from is None else gathered(self.start_from)
        first = next(iter(earlier.values()), None)
        if first is not None and not first.tag:
            raise ConfigError(
                f"the shares in {self.start_from} have no tag: an older version of Posse wrote "
                "them."
            )
        terms = Terms(
            run="simulation",
            parties=contexts.parties,
            features=tuple(len(block.columns) for block in contexts.blocks),
            arms=len(contexts.arms),
            steps=len(contexts) // self.batch * self.batch
            if self.horizon is None
            else self.horizon,
            explore=exploration(self.epsilon),
            bits=self.bits,
            newton=self.newton,
            batch=self.batch,
            bonus=BONUS[self.policy],
            width=round(self.width * 2**WIDTH_BITS),
            overlap=self.overlap,
            reward_range=contexts.reward_range,
            start="" if first is None else first.start,
            frozen=self.frozen,
            slot=self.slot,
            jitter=self.jitter,
        )
        if first is not None:
            check_fits(first.terms, terms)
        check_ranges(terms)
        self.ledger(terms)
        return Setup(
            contexts, terms, {name: share.words for name, share in earlier.items()} or None
        )

    @property
    def protection(self) -> str:
        """The level in a few words, or whose twin it is."""
        return {
            "parties": "shared",
            "fixed": "plain, fixed-point twin of shared",
            "float": "plain, float twin of shared",
        }[self.path]

    def config(self) -> dict[str, JSON]:
        """Every setting with the value that was used."""
        setup = self.load()
        return {
            **self.resolved(),
            **self.used(setup.contexts),
            "arms": setup.terms.arms,
            "horizon": setup.terms.steps,
            "policy": self.described(setup.terms),
            **({"start": setup.terms.start} if setup.terms.start else {}),
        }

    def problem(self) -> dict[str, JSON]:
        """What is learnt, as a record keeps it."""
        contexts = self.load().contexts
        named: dict[str, JSON] = {
            "names": list(contexts.arms),
            "words": dict(system_of(self).about.nouns),
        }
        return {**plain_dict(contexts.describe(), "problem"), **named}


class ArmSettings(Settings):
    """How many arms, how often one is drawn at random, and of how many steps the puller sees the
    arm.
    """

    aliases: ClassVar[Mapping[str, str]] = {"horizon": "steps"}

    arms: int = 10
    """Number of arms."""
    epsilon: str = "0.1"
    """Exploration rate, a number or a fraction such as 1/3: so often the arm is drawn at random."""
    steps: int = 1
    """Steps whose arm the puller sees."""
    delta: float = 1e-5
    """Delta of the figure for all steps together."""
    limit: float | None = None
    """Largest privacy epsilon (with delta) that one context may cost: tells how many steps that
    allows.
    """

    _text = field_validator("epsilon", mode="before")(number_as_text)

    def ledger(self) -> Ledger[Arms]:
        """Return a ledger with the steps paid for."""
        check.at_least(1, steps=self.steps)
        ledger = Ledger(Arms(self._choice, delta=self.delta))
        ledger.spend(times=self.steps)
        return ledger

    def most_steps(self) -> int | None:
        """Return the steps that the limit allows; None for any number, or without a limit."""
        return (
            None if self.limit is None else self._choice.most_rounds(Budget(self.limit, self.delta))
        )

    @property
    def _choice(self) -> ArmChoice:
        few, many = exploration(self.epsilon)
        return ArmChoice(self.arms, few / many)


def check_guarantee(rate: tuple[int, int], without_guarantee: bool) -> None:
    """Refuse epsilon 0 unless it is said aloud that it guarantees nothing."""
    if rate[0] == 0 and not without_guarantee:
        raise ConfigError(
            "epsilon must be above 0 for differential privacy of the arm, got 0. Set one "
            "such as 0.1, or confirm with without_guarantee (--without-guarantee)."
        )
    if rate[0] and without_guarantee:
        raise ConfigError(
            "without_guarantee belongs to epsilon 0, got an epsilon above it. Leave "
            "without_guarantee out."
        )


# Between organisations ----------------------------------------------------------------------------


class World(ContextSettings):
    """A simulated world: contexts, their order and what arms pay follow from the seed."""

    seed: int = 1


class ContextualOptions(MethodSettings):
    """The table [options] of every role: the terms, the same for everyone, and where a party's own
    features are.

    `features` is a CSV file that stays with this party: a column row, and a column for each of its
    features; the row of step t is the t-th. Without it the contexts are those of a simulated
    [options.world]: for trying and testing.
    """

    aliases: ClassVar[Mapping[str, str]] = {"horizon": "steps"}

    parties: tuple[str, ...] = ()
    """Names of the parties, in the order of their features in a context."""
    columns: tuple[int, ...] = ()
    """Number of features that each party holds."""
    bounds: tuple[float, ...] = ()
    """Largest norm of each party's part of a row; squares add up to at most 1; by its share of the
    features if left out.
    """
    arms: int = 0
    """Number of arms."""
    steps: int = 0
    """Number of steps T; where contexts arrive and it is left out, as many as bits and limit allow,
    until a source is over or a party's operator ends the run.
    """
    epsilon: float | str = 0.1
    """Exploration rate, which is the protection of the arm: a number such as 0.1, or a fraction
    such as "1/3".
    """
    rows: str = ""
    """Digest of the row identifiers of the parties' files, which must be the same in all of
    them.
    """
    start: str = ""
    """Steps and tag of the earlier shares that all parties start from; each gives its own file in
    start_from.
    """
    start_from: Path | None = None
    """This party's share of the model of an earlier run (model-<step>.share)."""
    features: Path | None = None
    """CSV file of this party's own features."""
    arriving: bool = False
    """Contexts arrive one by one: every party has a [source] of features in place of a file, and
    the run may be open-ended.
    """
    scale: bool = False
    """Scale longer rows of this party's features down to its bound, instead of refusing them."""
    encoding: Annotated[str, ENCODING] = ""
    """Encoding of this party's file where it is not UTF-8 (or UTF-16 with its mark), such as
    latin-1.
    """
    decimal: Literal[".", ","] = "."
    """Decimal mark of this party's file."""
    reward_range: tuple[float, float] | None = None
    """Least and largest reward that the payee's source gives, such as [-5, 20]; [0, 1] if left
    out.
    """
    checkpoint_every: int = 1000
    """Steps after which a party writes its share of the model beside its journal; 0 for the last
    step only.
    """
    world: World | None = None
    """A simulated world ([options.world]): for trying and testing, for everyone in it knows every
    context.
    """

    def terms(self, run: str) -> Terms:
        """Make the terms, or say in one line what is wrong with them."""
        check.at_least(0, checkpoint_every=self.checkpoint_every)
        check_encoding(self.encoding)
        explore = exploration(self.epsilon)
        check_guarantee(explore, self.without_guarantee)
        given = self.of_world() if self.world is not None and not self.parties else self
        check_parties(given.parties)
        if given.arms < 2 or (given.steps < 1 and not (given.arriving and given.steps == 0)):
            raise ConfigError(
                f"a run needs at least 2 arms and 1 step, got {given.arms} and {given.steps}. Give "
                "arms and steps."
            )
        if given.arriving and (given.rows or given.world is not None):
            raise ConfigError(
                "contexts that arrive have no rows and no simulated world before. Leave one of "
                "them out."
            )
        rows = (
            f"{ARRIVING if given.arriving else given.rows} {given.norms()}"
            if given.arriving or given.rows
            else ""
        )

        def made(steps: int) -> Terms:
            terms = Terms(
                run,
                given.parties,
                given.columns,
                given.arms,
                steps,
                explore,
                given.bits,
                given.newton,
                given.batch,
                BONUS[given.policy],
                round(given.width * 2**WIDTH_BITS),
                rows,
                given.overlap,
                RewardRange.of(given.reward_range),
                given.start,
                given.frozen,
                given.slot,
                given.jitter,
            )
            check_ranges(terms)
            return terms

        return made(given.steps) if given.steps else given.open_ended(made)

    def open_ended(self, made: Callable[[int], Terms]) -> Terms:
        """Return the terms of the longest run that bits, bonus and limit allow, halved until they
        do.
        """
        first = made(self.batch)
        most = largest_steps(self.bits) - (0 if self.frozen else first.before)
        if self.limit is not None:
            allowed = ArmChoice(self.arms, first.rate).most_rounds(Budget(self.limit, self.delta))
            most = most if allowed is None else min(most, allowed - first.before)
        while True:
            steps = max(self.batch, most // self.batch * self.batch)
            try:
                return made(steps)
            except ConfigError:
                if steps == self.batch:
                    raise
                most = steps // 2

    def norms(self) -> tuple[float, ...]:
        """Return the norm bound of every party; they are part of the terms where parties bring
        files.
        """
        total = sum(self.columns)
        norms = self.bounds or tuple(math.sqrt(size / total) for size in self.columns)
        if len(norms) != len(self.parties):
            raise ConfigError(
                f"bounds must be one number a party, got {len(norms)} for {len(self.parties)} "
                "parties."
            )
        for bound in norms:
            check.between(0, 1, open_low=True, bound=bound)
        check_bounds(dict(zip(self.parties, norms, strict=True)))
        return norms

    def of_world(self) -> ContextualOptions:
        """Take parties, features and arms from the simulated world."""
        assert self.world is not None
        contexts = self.world.contexts()
        sizes = tuple(len(block.columns) for block in contexts.blocks)
        own = {
            "parties": contexts.parties,
            "columns": sizes,
            "arms": len(contexts.arms),
            "reward_range": contexts.pays,
        }
        return self.model_copy(update=own)
