"""What all roles of a run agree on before the first step, and what follows from it: public, the
same for everyone.

The terms bound every number of a run (`ranges`), and say what each role learns and what is not
protected.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.fixed import UNIT_RANGE, RewardRange
from posse.core.roles import View
from posse.privacy.sharing.fixed import LIMIT
from posse.privacy.sharing.reciprocal import line_bits, start_bits

DEALER, PULLER, PAYEE = "dealer", "puller", "payee"
WIDTH_BITS = 16
ARRIVING = "arriving"
MOST_BATCH = 32
BONUSES = ("", "ucb", "thompson")
SHARED = "shared"
"""The level of a run on shares."""
LARGEST_TABLE = 4096
"""Rows of the table of exploration coins: the denominator of the exploration rate."""
FEWEST_BITS, MOST_BITS = 12, 26
LIFT = 2
"""Every pull adds 2^-LIFT units of 2^-bits to the diagonal of P of its arm (see
`largest_steps`).
"""
MOST_ARMS, MOST_FEATURES = 1000, 256


class Terms(msgspec.Struct, frozen=True):
    """Who holds how many features, how many arms there are, for how long, and how exactly it is
    computed.
    """

    run: str
    parties: tuple[str, ...]
    features: tuple[int, ...]
    """Number of features of each party; the joint context is theirs one behind the other."""
    arms: int
    steps: int
    explore: tuple[int, int]
    """Exploration rate as a fraction: of so many coins (second) so many explore (first)."""
    bits: int = 26
    """Fraction bits of everything shared."""
    newton: int = 2
    """Newton steps of the reciprocal."""
    batch: int = 1
    """Contexts that are chosen for, and then learnt from, together."""
    bonus: str = ""
    """What is added to a score: nothing, ucb or thompson."""
    width: int = 1 << WIDTH_BITS
    """Factor of the bonus, in units of 2^-16."""
    rows: str = ""
    """Digest of the row identifiers, where parties bring files of their own."""
    overlap: bool = False
    """Whether each step is chosen for while the one before it is learnt from, and so without its
    reward.
    """
    reward_range: RewardRange = UNIT_RANGE
    """Least and largest reward, which the payee scales to [0, 1]."""
    start: str = ""
    """Steps and tag of the shares that the run starts from, such as 1500:3f2a...; empty for a new
    model.
    """
    frozen: bool = False
    """Whether the run only decides, and learns nothing."""
    slot: float = 0.0
    """Seconds of the slots at which puller and payee answer; 0 for none."""
    jitter: float = 0.0
    """Seconds up to which they wait in addition, by chance."""

    def __post_init__(self) -> None:
        check_parties(self.parties)
        if len(self.features) != len(self.parties) or any(one < 1 for one in self.features):
            raise ConfigError(
                f"every party must hold at least one feature, got {self.features} for "
                f"{len(self.parties)} parties."
            )
        check.between(2, MOST_ARMS, arms=self.arms)
        check.between(1, MOST_FEATURES, features=self.dimension)
        check.at_least(1, steps=self.steps)
        check.between(FEWEST_BITS, MOST_BITS, bits=self.bits)
        check.between(1, MOST_BATCH, batch=self.batch)
        check.one_of(BONUSES, bonus=self.bonus)
        check.between(0, 64 << WIDTH_BITS, width=self.width)
        check_overlap(self.overlap, self.batch)
        RewardRange.of(self.reward_range)
        check_pace(self)
        check_start(self.start, self.frozen, self.overlap)
        if self.steps % self.batch:
            raise ConfigError(
                f"steps must be a multiple of the batch, got {self.steps} for a batch of "
                f"{self.batch}. "
                f"Take {self.steps - self.steps % self.batch or self.batch} steps."
            )
        few, many = self.explore
        if not 0 <= few <= many <= LARGEST_TABLE or many < 1:
            raise ConfigError(
                f"explore must be a fraction of at most {LARGEST_TABLE} coins, got {few}/{many}."
            )
        if self.lessons > largest_steps(self.bits):
            raise ConfigError(
                f"with {self.bits} fraction bits rounding can break the model after more than "
                f"{largest_steps(self.bits):,} steps, got {self.lessons:,}. Take fewer steps"
                f"{'' if self.bits == MOST_BITS else ', or more bits'}."
            )
        if self.bonus and self.bonus_bits < 10:
            raise ConfigError(
                f"the bonus needs 10 bits, and so many steps and arms leave {self.bonus_bits}. "
                "Take fewer steps or arms."
            )
        largest = math.log2(largest_score(self.lessons)) + 2 * self.bits
        if largest >= LIMIT:
            raise ConfigError(
                f"{self.lessons:,} steps with {self.bits} fraction bits can reach 2^{largest:.1f}, "
                f"and 2^{LIMIT} is "
                "the limit. Take fewer bits or steps."
            )

    @property
    def dimension(self) -> int:
        """Number of features in all."""
        return sum(self.features)

    @property
    def before(self) -> int:
        """Steps that the model has learnt from before the run starts."""
        return int(self.start.partition(":")[0] or 0)

    @property
    def arriving(self) -> bool:
        """Whether contexts arrive one by one, from the parties' sources."""
        return self.rows.startswith(ARRIVING)

    @property
    def lessons(self) -> int:
        """Steps that the model has learnt from in the end."""
        return self.before + (0 if self.frozen else self.steps)

    @property
    def passes(self) -> int:
        """How often the program runs: once a batch; with overlap once more, to learn from the last
        step.
        """
        return self.choices + self.lag

    @property
    def choices(self) -> int:
        """How often arms are chosen: once a batch."""
        return self.steps // self.batch

    @property
    def lag(self) -> int:
        """Passes from the choice of an arm to the one that learns from it."""
        return 1 if self.overlap else 0

    def learnt(self, passes: int) -> int:
        """Return how many steps the model has learnt from after so many passes."""
        return max(0, passes - self.lag) * self.batch

    @property
    def early(self) -> bool:
        """Whether scores are compared before they are truncated, one round earlier: all bits must
        fit below 2^62.

        >>> replace = msgspec.structs.replace
        >>> terms = Terms("r", ("a", "b"), (10, 10), 10, 15_000, (1, 10))
        >>> (
        ...     terms.early,
        ...     replace(terms, steps=60_000).early,
        ...     replace(terms, steps=60_000, bits=25).early,
        ... )
        (True, False, True)
        """
        largest = math.log2(largest_score(self.lessons)) + 2 * self.bits + self.tie_bits
        return (
            not self.bonus and largest <= LIMIT - 0.01
        )  # a hundredth of a bit for the tie order and what is added

    @property
    def rate(self) -> float:
        """The exploration rate."""
        return self.explore[0] / self.explore[1]

    @property
    def lift(self) -> float:
        """What every pull adds to the diagonal of P of its arm."""
        return 2.0 ** -(self.bits + LIFT)

    @property
    def tie_bits(self) -> int:
        """Bits of the tie order below a score."""
        return (self.arms - 1).bit_length()

    @property
    def spare_bits(self) -> int:
        """Bits by which scores above their ties are moved up before a bonus is added: up to 2^61 in
        all.
        """
        return (
            61
            - self.bits
            - self.tie_bits
            - math.ceil(math.log2(largest_score(self.lessons) + self.largest_bonus))
        )

    @property
    def largest_bonus(self) -> float:
        """Bound of a bonus: no normal number of a run is beyond 9."""
        return (
            0.0
            if not self.bonus
            else self.width / 2**WIDTH_BITS * (9 if self.bonus == "thompson" else 1)
        )

    @property
    def bonus_bits(self) -> int:
        """Fraction bits of a bonus, which is a half word and stands 32 bits up."""
        return self.bits + self.tie_bits + self.spare_bits - 32

    def digest(self) -> bytes:
        """What everyone must have the same of; the seeds of a run depend on it."""
        given = msgspec.structs.asdict(self).items()
        said = {name: value for name, value in given if name not in _ADDED or value != _ADDED[name]}
        return hashlib.sha256(b"posse mpc-contextual 1" + msgspec.msgpack.encode(said)).digest()


_ADDED = {
    "overlap": False,
    "reward_range": UNIT_RANGE,
    "start": "",
    "frozen": False,
    "slot": 0.0,
    "jitter": 0.0,
}
"""Terms that count only where they are not as usual: files of parties without them mean the same
run.
"""


def check_pace(given: Any) -> None:
    """Refuse, of settings or terms, steps of Newton's method, slots and random waits that no run
    has.
    """
    for most, name in ((8, "newton"), (3600, "slot"), (3600, "jitter")):
        check.between(0, most, **{name: getattr(given, name)})


def check_overlap(overlap: bool, batch: int) -> None:
    """Refuse to overlap the steps of a batch."""
    if overlap and batch > 1:
        raise ConfigError(
            f"overlap cannot be combined with a batch, got a batch of {batch}: its arms are "
            "already chosen without each other's rewards. Leave one of the two out."
        )


def check_start(start: str, frozen: bool, overlap: bool) -> None:
    """Refuse what cannot be the shares to start from, and a frozen run that has no model or
    learns.
    """
    if start and not _START.fullmatch(start):
        raise ConfigError(
            f"start must be steps and tag of earlier shares, such as 1500:3f2a..., got '{start}'."
        )
    if frozen and not start:
        raise ConfigError(
            "a frozen run needs a model to decide with. Give start_from with shares of an earlier "
            "run."
        )
    if frozen and overlap:
        raise ConfigError(
            "overlap belongs to runs that learn, and a frozen run does not. Leave one of the two "
            "out."
        )


_START = re.compile(r"\d{1,9}:[0-9a-f]{32}")


def check_parties(parties: Sequence[str]) -> None:
    """Refuse fewer than two parties, one name twice, and parties that play another part."""
    if len(parties) < 2:
        raise ConfigError(
            f"secret sharing needs at least 2 parties, got {len(parties)}: one party alone would "
            "see everything. "
            "Add a party."
        )
    for name in (DEALER, PULLER, PAYEE):
        if name in parties:
            raise ConfigError(
                f"the {name} must not be one of the parties: {_WHY[name]} Give its part to an "
                "organisation outside."
            )
    if len(set(parties)) != len(parties):
        raise ConfigError(f"every party needs a name of its own, got {', '.join(parties)}.")


_WHY = {
    DEALER: "who deals and holds a share can read everything.",
    PULLER: "it would learn the arm beside its features.",
    PAYEE: "it would learn the reward beside its features.",
}


def exploration(rate: float | str) -> tuple[int, int]:
    """Write an exploration rate as an exact fraction with at most 4,096 coins.

    >>> exploration(0.1), exploration("1/3")
    ((1, 10), (1, 3))
    >>> exploration(0.1234567)
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] epsilon must be a fraction with a denominator of at most
    4096, got 0.1234567.
    The nearest one is 10/81.
    """
    try:
        exact = Fraction(str(rate))
    except (ValueError, ZeroDivisionError):
        raise ConfigError(
            f"epsilon must be a number in [0, 1] such as 0.1 or 1/3, got '{rate}'."
        ) from None
    if not 0 <= exact <= 1:
        raise ConfigError(f"epsilon must be in [0, 1], got {rate}.")
    if exact.denominator > LARGEST_TABLE:
        near = exact.limit_denominator(LARGEST_TABLE if exact.denominator > 10**9 else 100)
        raise ConfigError(
            f"epsilon must be a fraction with a denominator of at most {LARGEST_TABLE}, got "
            f"{rate}. The nearest one is "
            f"{near}."
        )
    return exact.numerator, exact.denominator


def largest_steps(bits: int) -> int:
    """Steps up to which the model stays sound: 2^(2 bits / 3 + 2.6), a million with 26 bits.

    Rounding adds up in P as a random walk, up to about sqrt(n) units of 2^-bits after n pulls of
    its arm, while the least eigenvalue of P falls as 1 / n: where the one passes the other, P is
    not positive any more and recursive least squares diverge. Uncentred features got there from
    half of so many steps on. So every pull adds a quarter of a unit to the diagonal of P of its
    arm. The eigenvalue then stays above about 2^(bits / 2 - 1) units, which no walk reaches:
    rewards count less after about 2^(bits / 2 + 1) pulls of their arm (16,000 with 26 bits). An arm
    that is not pulled keeps its P. Measured, not proved, over uncentred, constant, nearly equal,
    few and centred contexts, 2 to 60 features, 2 and 10 arms, 12 to 18 bits (`make bench-range`): 0
    of 108 settings broke at this limit and 0 of 36 at four times as many steps, where the least
    eigenvalue was 29 units; without the quarter 6 of the 36 broke at the limit.

    >>> largest_steps(26), largest_steps(20)
    (1001223, 62576)
    """
    return int(2 ** (2 * bits / 3 + 2.6))


def largest_score(steps: int) -> float:
    """Bound of |w.x|: with contexts and rewards of at most 1, ridge weights have norm at most
    sqrt(steps) / 2.

    (I + X'X)^-1 X' has singular values s / (1 + s^2) <= 1/2, and the rewards have norm at most
    sqrt(steps). One is added for rounding.
    """
    return math.sqrt(steps) / 2 + 1


# How large numbers become -------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """An intermediate, the largest magnitude it can have, and its unit 2^-bits."""

    name: str
    largest: float
    bits: int
    why: str

    @property
    def log2(self) -> float:
        """Bits that it takes, of 62."""
        return math.log2(self.largest) + self.bits


def ranges(terms: Terms) -> tuple[Range, ...]:
    """Return the bounds of everything that is truncated or compared; a quarter or a half is left
    for rounding.

    >>> bounds = ranges(Terms("r", ("a", "b"), (10, 10), 10, 60_000, (1, 10)))
    >>> max(bounds, key=lambda one: one.log2).name, round(max(one.log2 for one in bounds), 1)
    ('scores', 58.9)
    """
    f, score = terms.bits, largest_score(terms.lessons)
    ranked = (
        (2 * f if terms.early else f) + terms.tie_bits + (terms.spare_bits if terms.bonus else 0)
    )
    between = _overlap(f) if terms.overlap else _one(f) if terms.batch == 1 else _batch(f)
    decided = (
        Range("scores", score, 2 * f, "|w.x| <= sqrt(steps) / 2 + 1"),
        Range("directions", 1.5, 2 * f, "|P x| <= 1, for P has eigenvalues in (0, 1]"),
        Range(
            "compared scores",
            score + terms.largest_bonus,
            ranked,
            "scores and bonus above their tie order",
        ),
    )
    if terms.frozen:
        return decided
    return (
        *decided,
        *between,
        Range("gain", 1.25, 2 * f, "|P x| / (1 + q) <= 1"),
        Range("inverse", 1.5, 2 * f, "entries of P, at most 1"),
        Range("weights", score, 2 * f, "|w| <= sqrt(steps) / 2 + 1"),
    )


def _one(f: int) -> tuple[Range, ...]:
    return (
        Range("variance", 1.25, 2 * f, "0 <= x.P x <= 1"),
        Range("first guess", 1.25, start_bits(f) + 31, "a quadratic in [1/2, 1]"),
        Range("(1 + q) y", 2.25, 2 * f, "near 1; 1 + q <= 2, y <= 1.01"),
        Range("reciprocal", 1.25, 2 * f, "1 / (1 + q) in [1/2, 1]"),
    )


def _overlap(f: int) -> tuple[Range, ...]:
    return (
        Range("variance", 1.25, 2 * f, "0 <= x.P x <= 1"),
        Range("reciprocal", 1.25, sum(line_bits(f)), "1 / (1 + q) in [1/2, 1]"),
    )


def _batch(f: int) -> tuple[Range, ...]:
    return (
        Range("coupling", 1.25, 2 * f, "|x.P x'| <= 1"),
        Range("first inverse", 1.25, f + 20, "linear in S, between 0 and 1"),
        Range("(I + S) Y", 2.25, 2 * f, "near I; its eigenvalues are in [0, 2)"),
        Range("inverse of I + S", 1.25, 2 * f, "its eigenvalues are in (0, 1]"),
    )


def check_ranges(terms: Terms) -> tuple[Range, ...]:
    """Return the bounds, all of them below 2^62."""
    bounds = ranges(terms)
    for one in bounds:
        if one.log2 >= LIMIT:
            raise ConfigError(
                f"{one.name} can reach 2^{one.log2:.1f} ({one.why}), and 2^{LIMIT} is the limit. "
                "Take fewer bits or "
                "steps."
            )
    return bounds


# What is protected --------------------------------------------------------------------------------


LEARNS = (
    "A party learns nothing but its own features and the public terms.",
    "The puller learns the arm of every step and the payee the reward of every step; in the "
    "sequence of arms one who "
    "knows similar rows finds a part of all features, and with the rewards more.",
    "The dealer sees no data; it learns neither when the bandit explores nor which arm it "
    "explores.",
)
"""What each role learns."""


def leaks(terms: Terms) -> tuple[str, ...]:
    """What is not protected, one sentence each."""
    out = [
        "All of it holds for roles that follow the protocol: a party, puller or payee that sends "
        "something else can "
        "falsify what is learnt, and nobody notices.",
        "A party that exchanges two arms in its share of the arm sees whether the arm is one of "
        "them: if not, the run "
        "stops.",
        "A dealer that deals one coin at all places of a table knows which steps explore.",
        "The dealer together with any one party can read everything.",
        "Parties may pool what they saw, all but one of them, and learn nothing of the last one's "
        "features; with the "
        "puller among them they hold every arm, which tells about all features through what was "
        "learnt.",
        "Puller and payee together hold every arm with its reward.",
        "Who takes part, how many features each holds, arms, steps and when each step happens are "
        "public; "
        f"{_delays(terms)}",
        "Every party bounds the norm of its own features; nobody can check the norm of all of them "
        "together.",
        "The model is held in shares; whoever brings all shares together can read it, and it "
        "carries no noise.",
    ]
    if terms.start:
        out.append(
            f"The model carries what it learnt in {terms.before:,} steps of earlier runs: arms of "
            "this run tell about "
            "contexts of those too. The figures for all steps count them, and no other runs that "
            "start from the same "
            "shares."
        )
    if terms.explore[0] == 0:
        out.insert(0, "The arm has no differential privacy: there is no exploration.")
    return tuple(out)


def _delays(terms: Terms) -> str:
    tells = "tells something of the arm by its delay"
    if terms.slot:
        return f"a pull or reward that takes longer than the slot of {terms.slot:g} s {tells}."
    hidden = f", behind a random wait of up to {terms.jitter:g} s" if terms.jitter else ""
    return f"a reward that takes longer for some arms {tells}{hidden}."


def terms_of(view: View) -> Terms:
    """Read the public terms of a view; what is of another system has none."""
    given: dict[str, Any] = {
        name: view.public[name] for name in Terms.__struct_fields__ if name in view.public
    }
    if len(given) < len(Terms.__struct_fields__):
        raise DataError(
            "this is no view of mpc-contextual: its public terms lack parties, features or steps."
        )
    return msgspec.convert(given, Terms)
