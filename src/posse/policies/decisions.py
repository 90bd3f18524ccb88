"""Decisions: what a bandit in use, a learnt policy and a device's log have in common; and what was
learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError


@dataclass(frozen=True)
class Decision:
    """One choice of an arm.

    >>> Decision(7, 1, "blue", 0.9).name
    'blue'
    """

    id: int
    """Counts up; a reward names the decision that it is for."""
    arm: int
    """Number of the arm, from 0."""
    name: str
    """Name of the arm."""
    probability: float | None = None
    """Chance with which this arm was chosen, as logs for evaluation need it; None where nobody
    knows it.
    """


@dataclass(frozen=True, eq=False)
class Learnt:
    """What a bandit learnt: a linear model of rewards, or the arm that it came to; it decides and
    does not explore.

    >>> model = Learnt(
    ...     ("tea", "coffee"), weights=np.array([[0.1, 0.6], [0.5, 0.0]]), bias=np.zeros(2)
    ... )
    >>> model.decide([0, 1]).name, model.scores([[1, 0]]).tolist()
    ('tea', [[0.1, 0.6]])
    """

    names: tuple[str, ...]
    weights: NDArray[np.float64] | None = None
    """(features, arms); none where there are no contexts."""
    bias: NDArray[np.float64] | None = None
    """(arms,)"""
    scale: float | NDArray[np.float64] = 1.0
    """What contexts are divided by first: 255 where they are bytes of images, or a number a
    feature.
    """
    best: int | None = None
    """The arm, where there are no contexts."""
    features: tuple[str, ...] = ()
    """Names of the numbers of a context where they came from a table, as `age` or `town=Bern`."""
    shift: NDArray[np.float64] | None = None
    """What is taken off contexts before they are divided, a number a feature; none where nothing
    is.
    """

    @classmethod
    def read(cls, table: Mapping[str, Any], names: tuple[str, ...], pulls: Sequence[int]) -> Learnt:
        """Make it of what a record keeps: a linear model, or the arm that was pulled most."""
        if "weights" not in table:
            return cls(names, best=int(np.argmax(pulls)) if len(pulls) and max(pulls) else None)
        weights, bias = (np.asarray(table[part], np.float64) for part in ("weights", "bias"))
        return cls(
            tuple(table.get("names") or names),
            weights,
            bias,
            np.asarray(table["scale"], np.float64)
            if "shift" in table
            else float(table.get("scale", 1.0)),
            features=tuple(table.get("features", ())),
            shift=np.asarray(table["shift"], np.float64) if "shift" in table else None,
        )

    def table(self) -> dict[str, object]:
        """Return a linear model as a record keeps it."""
        assert self.weights is not None
        assert self.bias is not None
        parts = {"weights": self.weights.tolist(), "bias": self.bias.tolist()}
        named = {"features": list(self.features)} if self.features else {}
        scale = {"scale": self.scale}
        if self.shift is not None:
            scale = {"scale": np.asarray(self.scale).tolist(), "shift": self.shift.tolist()}
        return {**parts, "names": list(self.names), **scale, **named}

    def scores(self, contexts: object) -> NDArray[np.float64]:
        """Predict the reward of every arm, (rows, arms)."""
        if self.weights is None or self.bias is None:
            raise ConfigError(
                "the learnt policy always chooses one arm, and takes no context. Call decide() "
                "without a context."
            )
        try:
            rows = np.asarray(contexts, np.float64)
        except (TypeError, ValueError):
            raise ConfigError("contexts must be rows of numbers.") from None
        rows = rows.reshape(len(rows), -1)
        if rows.shape[1] != len(self.weights) or not np.isfinite(rows).all():
            raise ConfigError(
                f"a context must be {len(self.weights)} finite numbers, got {rows.shape[1]}."
            )
        rows = rows if self.shift is None else rows - self.shift
        return np.asarray(rows / self.scale @ self.weights + self.bias)

    def decide(self, context: object = None, id: int = 0) -> Decision:
        """Choose the arm of largest predicted reward, or the one that was learnt."""
        if context is not None:
            arm = int(np.argmax(self.scores([context])[0]))
            return Decision(id, arm, self.names[arm], 1.0)
        if self.weights is not None:
            raise ConfigError(
                f"a decision needs a context of {len(self.weights)} numbers, got none."
            )
        if self.best is None:
            raise ConfigError("nothing was learnt yet: no arm was pulled.")
        return Decision(id, self.best, self.names[self.best], 1.0)


class PolicyName(str):
    """Name of a record's policy, by which it also decides, where the record keeps what was
    learnt.
    """

    learnt: Learnt | None = None

    def decide(self, context: object = None) -> Decision:
        """Decide by what was learnt, without exploration."""
        if self.learnt is None:
            raise ConfigError(
                "this record keeps no learnt policy: its system has none in the clear, or its "
                "model is too large. Keep "
                "the model in a file, and use 'posse predict'."
            )
        return self.learnt.decide(context)
