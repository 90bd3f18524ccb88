"""Speed of the market: compiled against loops in Python and numpy, and real agents that exchange
messages.
"""

from __future__ import annotations

import tracemalloc

from benchmarks.market_loops import numpy_loop, python_loop
from benchmarks.measure import cpu
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.plans import plan
from posse.privacy.dp.schedules import communication_rounds
from posse.problems.markets.instances import market_instance
from posse.problems.markets.market import Market
from posse.runtime.memory import MemoryRun
from posse.systems.dp_combinatorial.federation import SimulatedMarket, federation, warm_up
from posse.systems.dp_combinatorial.terms import Terms
from posse.systems.dp_combinatorial.twin import run_once, truth_of

AGENTS, PRODUCERS, ROUNDS = 10, 30, 100_000
TARGET = 2e6


def terms(market: Market, method: str, rounds: int) -> Terms:
    if method != "p-fcb":
        return Terms(market.agents, market.producers, rounds, method)
    reports = communication_rounds(200, 40_000, rounds)
    noise = plan(Budget(1, 0.01), rounds=reports, producers=PRODUCERS).multipliers
    return Terms(market.agents, market.producers, rounds, method, reports, noise)


def speed() -> None:
    """Agent-rounds a second on one core."""
    warm_up()
    print(
        f"\nmarket, {AGENTS} agents, {PRODUCERS} producers: million agent-rounds a second on one "
        "core"
    )
    print("                           rate   against Python   against numpy   of the target 2")
    for distribution in ("uniform", "normal"):
        market = market_instance(1, agents=AGENTS, producers=PRODUCERS, distribution=distribution)
        truth = truth_of(market)
        slow = AGENTS * 200 / cpu(lambda market=market: python_loop(market, 200))  # type: ignore[misc]
        arrays = AGENTS * 3000 / cpu(lambda market=market: numpy_loop(market, 3000), 2)  # type: ignore[misc]
        for method in ("alone", "p-fcb", "fcb"):
            how = terms(market, method, ROUNDS)
            seconds = cpu(
                lambda market=market, how=how, truth=truth: run_once(market, how, 1, truth=truth), 2
            )  # type: ignore[misc]
            rate = AGENTS * ROUNDS / seconds
            print(
                f"  {distribution:8} {method:9} {rate / 1e6:>10.2f} {rate / slow:>14.0f}x "
                f"{rate / arrays:>14.1f}x "
                f"{rate / TARGET:>16.2f}"
            )
        print(f"  {distribution:8} loops: Python {slow / 1e6:.4f}, numpy {arrays / 1e6:.3f}")


def agents() -> None:
    """Real agents in one process: what a round costs, and what a run sends."""
    market = market_instance(1, agents=AGENTS, producers=PRODUCERS)
    truth, how = truth_of(market), terms(market, "p-fcb", 5_000)
    run = MemoryRun(federation(market, how, seed=1), SimulatedMarket(market, 1, 5_000, truth=truth))
    seconds = cpu(run.finish)
    sent = [(hop.messages, hop.bytes) for hop in run.hops.values()]
    messages, size = sum(m for m, _ in sent), sum(b for _, b in sent)
    print(
        f"\nreal agents: {seconds / AGENTS / 5_000 * 1e6:.1f} us a round and agent; {messages} "
        f"messages, {size:,} bytes"
    )


def memory() -> None:
    """Peak memory of a run at ten times the rounds."""
    market = market_instance(1, agents=AGENTS, producers=PRODUCERS)
    truth = truth_of(market)
    peaks = []
    for rounds in (1_000, 10_000, 100_000):
        tracemalloc.start()
        run_once(market, terms(market, "p-fcb", rounds), 1, truth=truth)
        peaks.append(tracemalloc.get_traced_memory()[1] / 1e3)
        tracemalloc.stop()
    print(
        "market, peak memory at T = 1,000 / 10,000 / 100,000: "
        + " / ".join(f"{peak:.0f} kB" for peak in peaks)
    )
