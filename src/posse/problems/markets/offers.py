"""A user's own market: what suppliers offer to agents, and how good they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.markets.market import MOST_UNITS, Market, make_market
from posse.problems.tables.frames import Frame
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import Records, Rule, Schema, numbers, within, words
from posse.problems.tables.table import open_table
from posse.problems.tables.text import FilePath


def read_market(
    offers: FilePath | Frame,
    qualities: FilePath | Frame | None = None,
    records: FilePath | Frame | None = None,
    *,
    alpha: float,
    rho: float = 1.0,
    delimiter: str | None = None,
    options: ReadOptions | None = None,
) -> Market:
    """Read a market from two CSV files with a header each, or from frames.

    `offers` has columns agent,supplier,cost,capacity and a row for each pair that deals: price of a
    unit, and most units a round. How good suppliers are is in `qualities` (columns
    supplier,quality: the share of good units, from which units are drawn) or in `records` (the same
    columns, a row for each past unit, oldest first: 0, 1 or any number in [0, 1]), which are
    replayed in order. Agents and suppliers keep the order in which offers name them.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     offers, qualities = (
    ...         pathlib.Path(folder, "offers.csv"),
    ...         pathlib.Path(folder, "qualities.csv"),
    ...     )
    ...     _ = offers.write_text(
    ...         "agent,supplier,cost,capacity\\nnorth,oak,2.5,10\\nsouth,oak,2,4\\nsouth,elm,1,8\\n"
    ...     )
    ...     _ = qualities.write_text("supplier,quality\\nelm,0.5\\noak,0.9\\n")
    ...     market = read_market(offers, qualities, alpha=0.6, rho=4)
    >>> market.agents, market.producers, market.quality.tolist()
    (('north', 'south'), ('oak', 'elm'), [[0.9, 0.5]])
    >>> market.capacity.tolist()
    [[10, 0], [4, 8]]
    """
    qualified = check_known(qualities, records)
    options = options or ReadOptions(delimiter=delimiter)
    table = Schema(words("agent"), *OFFERED).read(open_table(offers, options))
    _check_pairs(table)
    schema = Schema(words("supplier"), numbers("quality", within(0, 1)))
    other = schema.read(open_table(qualified, options))
    if qualities is not None:
        other.check_distinct("supplier")
    _check_match(table, other)
    suppliers, agents = table.words["supplier"], table.words["agent"]
    cost, capacity = (np.zeros((len(agents.distinct), len(suppliers.distinct))) for _ in range(2))
    cost[agents.code, suppliers.code] = table.numbers["cost"]
    capacity[agents.code, suppliers.code] = table.numbers["capacity"]
    values = _by_supplier(other, suppliers.distinct)
    return make_market(
        None if qualities is None else np.concatenate(values),
        cost,
        capacity,
        alpha=alpha,
        rho=rho,
        records=values if qualities is None else None,
        producers=suppliers.distinct,
        agents=agents.distinct,
        source=f"{table.file}, {other.file}",
    )


def check_known(
    qualities: FilePath | Frame | None, records: FilePath | Frame | None
) -> FilePath | Frame:
    """Return the qualities or the records; raise for both, and for none."""
    if qualities is not None and records is not None:
        raise ConfigError(
            "qualities and records both rate the suppliers, got both. Give one of the two files.",
            rule="problems.qualities.and-records",
        )
    source = qualities if qualities is not None else records
    if source is None:
        raise ConfigError(
            "how good suppliers are is not known: got neither qualities nor records. Give one of "
            "the two files.",
            rule="problems.qualities.missing",
        )
    return source


_NOT_NEGATIVE = "not be negative"

OFFERED = (
    words("supplier"),
    numbers(
        "cost",
        Rule(lambda cost: cost >= 0, _NOT_NEGATIVE, "Give the price of a unit, 0 if it is free."),
    ),
    numbers(
        "capacity",
        Rule(lambda units: units >= 0, _NOT_NEGATIVE, "Give the most units a round, 0 for none."),
        Rule(lambda units: units == np.floor(units), "be a whole number of units", "Round it."),
        Rule(
            lambda units: units <= MOST_UNITS,
            "be at most 10^9 units a round",
            "Count larger units.",
        ),
    ),
)
"""Records of what is offered to one agent."""


def _check_pairs(table: Records) -> None:
    """Refuse two offers of one supplier to one agent: which of them holds is not ours to guess."""
    agents, suppliers = table.words["agent"], table.words["supplier"]
    pair = agents.code * len(suppliers.distinct) + suppliers.code
    _, first, index = np.unique(pair, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[index] != np.arange(len(pair)))
    if len(again):
        row = int(again[0])
        raise DataError(
            f"{table.place(row, 'supplier')}: agent '{agents[row]}' and supplier "
            f"'{suppliers[row]}' are on row "
            f"{table.line[first[index[row]]]} too. Keep one of the two rows.",
            rule="problems.supplier.pair-twice",
        )


def _check_match(offers: Records, other: Records) -> None:
    """Refuse a supplier that only one of the two files knows."""
    offered, rated = offers.words["supplier"], other.words["supplier"]
    row = _stranger(offered.code, offered.distinct, rated.distinct)
    if row is not None:
        raise DataError(
            f"files do not match: {offers.place(row, 'supplier')}: '{offered[row]}' is not in "
            f"{other.file}. "
            "Add its quality there, or delete its offers.",
            rule="problems.supplier.without-quality",
        )
    row = _stranger(rated.code, rated.distinct, offered.distinct)
    if row is not None:
        raise DataError(
            f"files do not match: {other.place(row, 'supplier')}: no agent deals with "
            f"'{rated[row]}' in {offers.file}. "
            "Add an offer there, or delete it here.",
            rule="problems.supplier.without-offer",
        )


def _stranger(
    code: NDArray[np.int64], names: tuple[str, ...], others: tuple[str, ...]
) -> int | None:
    """Return the first row that holds a name which is not known."""
    strangers = set(names).difference(others)
    rows = np.flatnonzero(np.array([name in strangers for name in names])[code])
    return int(rows[0]) if len(rows) else None


def _by_supplier(table: Records, order: tuple[str, ...]) -> list[NDArray[np.float64]]:
    """Qualities of each supplier, in the order of their rows."""
    words = table.words["supplier"]
    rows = words.code.argsort(kind="stable")
    parts = np.split(table.numbers["quality"][rows], np.cumsum(np.bincount(words.code))[:-1])
    by_name = dict(zip(words.distinct, parts, strict=True))
    return [by_name[name] for name in order]
