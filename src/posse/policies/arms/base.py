"""What a policy is: local scores, and selections that need neither arm names nor true values.

A policy gives, for every pass of a step, the score of one arm from that arm's own variables, and
says how one arm is selected from all the scores. This is what Theorem 1 of the Samba paper asks:
*arm score locality* and *oblivious arm selection*. `posse.policies.arms.checks` tests both, on
every policy that ships and on a user's own.

The three functions are scalar and made of arithmetic and `posse.core.exact`; numba compiles them,
so an owner calls the same formula that the simulator runs over (seeds, arms).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import ClassVar, Literal

from posse.core.compiled import compiled_scalar
from posse.policies.own import policy_digest


@dataclass(frozen=True)
class Selection:
    """How one pass selects an arm from the scores.

    `argmax`: the largest score. `match`: with probability proportional to exp(score / scale);
    scores are between `floor` and `ceiling`. Away from level `paper` matching is Gumbel-max: every
    owner adds scale * G to its own score and the largest wins, which has the same distribution.
    `custom`: `choose(scores, u)` returns the position selected; it may depend on the order of the
    scores only, and u in [0, 1) is its coin.
    """

    kind: Literal["argmax", "match", "custom"]
    scale: float = 1.0
    floor: float = 0.0
    ceiling: float = 0.0
    choose: Callable[..., int] | None = None


ARGMAX = Selection("argmax")


@compiled_scalar
def no_memory(turn: int, chosen: bool, memory: float, parameters: tuple[float, ...]) -> float:
    """`learn` of a policy that remembers nothing but its sum and its pulls."""
    return memory


@compiled_scalar
def never_explore(t: int, owners: int, parameters: tuple[float, ...]) -> float:
    """`explore` of a policy without exploration steps."""
    return 0.0


@dataclass(frozen=True)
class Policy:
    """A bandit policy: subclass it, give `score`, and override what differs.

    `score(t, turn, total, pulls, memory, key, parameters)` is the score of one arm at step t in
    pass `turn`: `total` its sum of rewards, `pulls` how often it was pulled, `memory` what `learn`
    returned, `key` the owner's own random stream. `learn(turn, chosen, memory, parameters)` runs
    after every pass with whether this arm was selected. `explore(t, owners, parameters)` is the
    probability that step t ignores the scores and takes a uniform arm.

    Parameters are the fields of the class, a frozen dataclass: settings, flags, records and help
    are made from them. A field `horizon: float = run_horizon()` has the number of steps of the run.
    The number of arms reaches `score` as `memory` if `start(owners)` returns it.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    score: ClassVar[Callable[..., float]]
    learn: ClassVar[Callable[..., float]] = staticmethod(no_memory)
    explore: ClassVar[Callable[..., float]] = staticmethod(never_explore)

    def passes(self) -> tuple[Selection, ...]:
        """How each pass of a step selects; the last one selects the arm that is pulled."""
        return (ARGMAX,)

    def parameters(self) -> tuple[float, ...]:
        """The numbers that the three functions read: those among the fields, in their order."""
        values = [getattr(self, each.name) for each in fields(self)]
        return tuple(float(value) for value in values if isinstance(value, int | float)) or (0.0,)

    def start(self, owners: int) -> float:
        """`memory` of every arm before the first step."""
        return 0.0

    @property
    def explores(self) -> bool:
        """Whether some steps ignore the scores."""
        return type(self).explore is not never_explore

    @property
    def learns(self) -> bool:
        """Whether arms remember more than their sum and their pulls."""
        return type(self).learn is not no_memory

    def describe(self) -> dict[str, object]:
        """Name, parameters and a digest of what it computes, as records keep them and parties
        compare them.
        """
        kinds = [kind for kind in type(self).__mro__ if kind not in (Policy, object)]
        functions = [
            getattr(type(self), name)
            for name in ("score", "learn", "explore")
            if hasattr(type(self), name)
        ]
        chooses = [selection.choose for selection in self.passes() if selection.choose is not None]
        own = [
            function
            for function in (*functions, *chooses)
            if function not in (no_memory, never_explore)
        ]
        name = self.name or type(self).__name__
        return {
            "name": name,
            "parameters": asdict(self),
            "digest": policy_digest(type(self), *kinds, *own),
        }
