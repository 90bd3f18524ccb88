"""What a step costs: CPU time of real roles in memory, rounds and bytes, and the same step in plain numpy.

The clusters are those of scikit-learn's digits: what a step costs does not depend on the data, only on the numbers of
parties, arms (K) and features (20). CPU time is that of this thread inside each kind of role; a run in one process has
no sockets, no encryption of links and no waiting.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posse.experiments.mpc_contextual.problem import Place, world_of
from posse.experiments.output import Row
from posse.protocols.mpc_contextual.costs import Costs, costs
from posse.protocols.mpc_contextual.dealing import plan
from posse.protocols.mpc_contextual.payee import Payee
from posse.protocols.mpc_contextual.protocol import SimulatedWorld, federation
from posse.protocols.mpc_contextual.run import warm_up
from posse.protocols.mpc_contextual.terms import DEALER, PAYEE
from posse.runtime.memory import MemoryRun

KINDS = ("party", "dealer", "puller", "payee")
WARM = 4
"""Steps before the clock starts."""


@dataclass(frozen=True)
class Timed:
    """One size: CPU milliseconds a step of all roles of a kind, the median of some runs, and what travels."""

    parties: int
    arms: int
    steps: int
    runs: int
    roles: dict[str, float]
    costs: Costs

    @property
    def party(self) -> float:
        """CPU milliseconds a step of one party."""
        return self.roles["party"] / self.parties

    @property
    def total(self) -> float:
        """CPU milliseconds a step of everybody."""
        return sum(self.roles.values())

    @property
    def bytes_of_all(self) -> float:
        """Bytes that all parties send and are dealt in a step."""
        return self.parties * (self.costs.sent + self.costs.dealt)

    def row(self) -> Row:
        """The size as a row of a raw file."""
        return {
            "parties": self.parties, "arms": self.arms, "steps": self.steps, "runs": self.runs,
            "cpu_ms_a_party": self.party, **{f"cpu_ms_{kind}": self.roles[kind] for kind in KINDS},
            "rounds": int(self.costs.rounds), "bytes_sent_by_a_party": round(self.costs.sent),
            "bytes_dealt_to_a_party": round(self.costs.dealt), "bytes_of_all": round(self.bytes_of_all),
        }  # fmt: skip


def measure(parties: int, arms: int, steps: int, runs: int) -> Timed:
    """Run real roles for so many steps, a few times."""
    place = Place("digits", steps + WARM, arms)
    setup = place.settings(parties=parties, epsilon="0.1").check()
    warm_up()
    found = [_once(place, parties, seed) for seed in range(1, runs + 1)]
    roles = {kind: statistics.median(one[kind] for one in found) for kind in KINDS}
    return Timed(parties, arms, steps, runs, roles, costs(setup.terms))


def _once(place: Place, parties: int, seed: int) -> dict[str, float]:
    setup = place.settings(parties=parties, epsilon="0.1").check()
    rows = setup.order(seed)
    units = setup.units(seed, rows)
    roles = federation(setup.terms, setup.encoded(rows), seed)
    run = MemoryRun(roles, SimulatedWorld(lambda step, arm: int(units[step, arm])))
    payee = run.roles[PAYEE]
    assert isinstance(payee, Payee)
    passes = plan(setup.terms).passes
    before: dict[str, float] | None = None
    for _ in run:
        if before is None and payee.step >= WARM:
            before = dict(run.seconds)
    assert before is not None
    found = {kind: 1e3 * (run.seconds[kind] - before[kind]) / (place.steps - WARM) for kind in KINDS}
    # The dealer is ahead: what it deals in all is what counts, and it deals whole chunks.
    found[DEALER] = 1e3 * run.seconds[DEALER] / (-(-place.steps // passes) * passes)
    return found


def plain_ms(arms: int, steps: int = 1_000) -> float:
    """CPU milliseconds a step of the same bandit in plain numpy: scores, arg max, update of one arm."""
    world = world_of(Place("digits", steps, arms), 1)
    explore = world.coins(0.1).explore
    size = world.features.shape[1]
    weights, inverses = np.zeros((arms, size)), np.tile(np.eye(size), (arms, 1, 1))
    started = time.thread_time()
    for t in range(steps):
        x = world.features[t]
        scores = weights @ x
        arm = int(world.drawn[t]) if explore[t] else int(scores.argmax())
        k = inverses[arm] @ x
        share = 1.0 / (1.0 + float(x @ k))
        inverses[arm] -= np.outer(k, k) * share
        weights[arm] += (world.rewards[t, arm] - scores[arm]) * share * k
    return 1e3 * (time.thread_time() - started) / steps


def local_exponents(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Exponents of growth from each size to the next.

    >>> local_exponents([10, 20, 40], [1.0, 2.0, 8.0])
    [1.0, 2.0]
    """
    return [
        float(np.log(y[i + 1] / y[i]) / np.log(x[i + 1] / x[i])) for i in range(len(x) - 1)
    ]  # fmt: skip
