"""A user's own market: offers of suppliers to agents, and qualities of suppliers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.markets.market import MOST_UNITS, Market, make_market
from posse.problems.requirements import check_entries
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
    options: ReadOptions | None = None,
) -> Market:
    """Read a market from two tables.

    Agents and suppliers keep the order in which the offers name them.

    Args:
        offers: A table with the columns agent,supplier,cost,capacity and one row for each pair that
            deals: the price of a unit, and the most units per round.
        qualities: A table with the columns supplier,quality: the share of good units of each
            supplier. Units are drawn from it.
        records: Instead of `qualities`: a table with the same columns and one row per past unit,
            the oldest first. A quality is in [0, 1]. The market replays the records in order.
        alpha: Smallest average quality of a purchase.
        rho: Value of a good unit.
        options: How the tables are read.

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
    table = Schema(words("agent"), *OFFERED).read(open_table(offers, options))
    _check_pairs(table)
    schema = Schema(words("supplier"), numbers("quality", within(0, 1)))
    rated = schema.read(open_table(rating_source(qualities, records), options))
    if qualities is not None:
        rated.check_distinct("supplier")
    _check_match(table, rated)
    suppliers, agents = table.words["supplier"], table.words["agent"]
    cost = np.zeros((len(agents.distinct), len(suppliers.distinct)))
    capacity = np.zeros_like(cost)
    cost[agents.code, suppliers.code] = table.numbers["cost"]
    capacity[agents.code, suppliers.code] = table.numbers["capacity"]
    values = _by_supplier(rated, suppliers.distinct)
    return make_market(
        None if qualities is None else np.concatenate(values),
        cost,
        capacity,
        alpha=alpha,
        rho=rho,
        records=values if qualities is None else None,
        producers=suppliers.distinct,
        agents=agents.distinct,
        source=f"{table.file}, {rated.file}",
    )


def rating_source(
    qualities: FilePath | Frame | None, records: FilePath | Frame | None
) -> FilePath | Frame:
    """Return the table that rates the suppliers; raise if there are two or none."""
    sources = [source for source in (qualities, records) if source is not None]
    if len(sources) == 2:
        raise ConfigError(
            "qualities and records both rate the suppliers, got both. Give one of the two files.",
            rule="problems.qualities.and-records",
        )
    if not sources:
        raise ConfigError(
            "the quality of suppliers is not known: got neither qualities nor records. Give one of "
            "the two files.",
            rule="problems.qualities.missing",
        )
    return sources[0]


OFFERED = (
    words("supplier"),
    numbers(
        "cost",
        Rule(
            lambda cost: cost >= 0, "not be negative", "Give the price of a unit, 0 if it is free."
        ),
    ),
    numbers(
        "capacity",
        Rule(
            lambda units: units >= 0,
            "not be negative",
            "Give the most units per round, 0 for none.",
        ),
        Rule(lambda units: units == np.floor(units), "be a whole number of units", "Round it."),
        Rule(
            lambda units: units <= MOST_UNITS,
            "be at most 10^9 units a round",
            "Count larger units.",
        ),
    ),
)
"""Columns of the offers to one agent."""


def _check_pairs(table: Records) -> None:
    """Raise if a supplier has two offers for one agent: Posse cannot know which one is right."""
    agents, suppliers = table.words["agent"], table.words["supplier"]
    pair = agents.code * len(suppliers.distinct) + suppliers.code
    _, first, index = np.unique(pair, return_index=True, return_inverse=True)
    earlier = first[index]
    check_entries(
        earlier == np.arange(len(pair)),
        lambda row: DataError(
            f"{table.place(row[0], 'supplier')}: agent '{agents[row[0]]}' and supplier "
            f"'{suppliers[row[0]]}' are on row {table.line[earlier[row]]} too. Keep one of the two "
            "rows.",
            rule="problems.supplier.pair-twice",
        ),
    )


def _check_match(offers: Records, rated: Records) -> None:
    """Raise if a supplier is in only one of the two tables."""
    check_entries(
        _are_known(offers, rated),
        lambda row: DataError(
            f"files do not match: {offers.place(row[0], 'supplier')}: "
            f"'{offers.words['supplier'][row[0]]}' is not in {rated.file}. Add its quality there, "
            "or delete its offers.",
            rule="problems.supplier.without-quality",
        ),
    )
    check_entries(
        _are_known(rated, offers),
        lambda row: DataError(
            f"files do not match: {rated.place(row[0], 'supplier')}: no agent deals with "
            f"'{rated.words['supplier'][row[0]]}' in {offers.file}. Add an offer there, or delete "
            "this row.",
            rule="problems.supplier.without-offer",
        ),
    )


def _are_known(table: Records, other: Records) -> NDArray[np.bool_]:
    """Return which rows have a supplier that another table has too."""
    suppliers = table.words["supplier"]
    return np.isin(suppliers.distinct, other.words["supplier"].distinct)[suppliers.code]


def _by_supplier(table: Records, order: tuple[str, ...]) -> list[NDArray[np.float64]]:
    """Return the qualities of each supplier, in the order of their rows."""
    suppliers = table.words["supplier"]
    quality = table.numbers["quality"]
    codes = [suppliers.distinct.index(name) for name in order]
    rows = suppliers.code.argsort(kind="stable")
    parts = np.split(quality[rows], np.cumsum(np.bincount(suppliers.code))[:-1])
    return [parts[code] for code in codes]
