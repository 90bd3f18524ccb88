"""Settings of a market, and the market that they make: random, or of a user's own tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.settings import External
from posse.problems.data import TableSettings
from posse.problems.markets.instances import INSTANCES, check_instance, market_instance
from posse.problems.markets.market import MOST_UNITS, Market, make_market
from posse.problems.requirements import Floats, Mask, Requirement, check_all, check_entries
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


def _are_known(table: Records, other: Records) -> Mask:
    """Return which rows have a supplier that another table has too."""
    suppliers = table.words["supplier"]
    return np.isin(suppliers.distinct, other.words["supplier"].distinct)[suppliers.code]


def _by_supplier(table: Records, order: tuple[str, ...]) -> list[Floats]:
    """Return the qualities of each supplier, in the order of their rows."""
    suppliers = table.words["supplier"]
    quality = table.numbers["quality"]
    codes = [suppliers.distinct.index(name) for name in order]
    rows = suppliers.code.argsort(kind="stable")
    parts = np.split(quality[rows], np.cumsum(np.bincount(suppliers.code))[:-1])
    return [parts[code] for code in codes]


_DRAWN = (
    "homogeneous",
    "overlap",
    "sd",
    "largest_capacity",
    "drift",
    "drift_every",
    "instance_seed",
)
"""Settings of a random market. They have no effect on a user's own tables."""


class MarketSettings(TableSettings):
    """Where a market comes from: a random instance, or a user's own tables.

    Your own are `data={"offers": ..., "qualities": ...}`, or `records` in place of qualities: CSV
    files or frames.
    """

    panel: ClassVar[str] = "The market"
    aliases: ClassVar[Mapping[str, str]] = {
        "instance": "data",
        "offers": "data.offers",
        "qualities": "data.qualities",
        "records": "data.records",
    }
    parts: ClassVar[tuple[str, ...]] = ("offers", "qualities", "records")
    part_help: ClassVar[Mapping[str, str]] = {
        "offers": "CSV file of a market of your own: columns agent,supplier,cost,capacity.",
        "qualities": "CSV file with the suppliers' qualities: columns supplier,quality.",
        "records": "CSV file with past units instead of qualities, oldest first: columns "
        "supplier,quality.",
    }
    own_words: ClassVar[str] = "a table of offers, with qualities or records"

    data: Annotated[Any, External.except_for((*INSTANCES, "own"))] = "uniform"
    """Distribution of qualities and costs in a random market: uniform on [0, 1], or normal around
    alpha; or your own, a table of offers with qualities or records.
    """
    agents: int = 10
    """Number of agents that buy."""
    producers: int = 30
    """Number of producers that sell."""
    alpha: float = 0.4
    """Smallest average quality of an agent's purchase in a round."""
    rho: float = 1.0
    """Value of a good unit, in the unit of the costs."""
    homogeneous: bool = False
    """All agents have the same costs and capacities."""
    overlap: float = 1.0
    """Share of the producers that each agent deals with, drawn for each agent."""
    sd: float = 0.1
    """Standard deviation of a normal instance."""
    largest_capacity: int = 50
    """Capacities are uniform from 1 to this number of units per round."""
    drift: float = 0.0
    """Standard deviation of the step that each quality takes from time to time; 0 for no change.
    """
    drift_every: int = 1000
    """Rounds between two steps of the drift."""
    instance_seed: int = 1
    """Seed of the random market: the same number gives the same market."""
    currency: str = ""
    """Name of the money that costs and rho are counted in; only shown."""

    @model_validator(mode="after")
    def _check_market(self) -> Self:
        if self.own_data:
            self._check_own()
            return self
        self.check_name(INSTANCES)
        if self.data != "normal":
            self.leave_out(("sd",), f"a normal instance, and this one is {self.data}")
        if self.drift == 0:
            self.leave_out(("drift_every",), "a drift, and there is none")
        check.at_least(1, drift_every=self.drift_every)
        check_instance(
            self.instance_seed,
            self.agents,
            self.producers,
            self.overlap,
            self.alpha,
            self.rho,
            self.sd,
            self.largest_capacity,
            self.drift,
        )
        return self

    @property
    def own_data(self) -> bool:
        """Whether the market is a user's own."""
        return isinstance(self.data, dict)

    def market(self, horizon: int) -> Market:
        """Make the market of a run of `horizon` rounds, once.

        >>> MarketSettings(agents=2, producers=3, instance_seed=7).market(1000).capacity.tolist()
        [[3, 38, 46], [36, 9, 48]]
        """
        if self.own_data:
            return self.cached("market", self._own)
        return self.cached(f"market of {horizon}", lambda: self._drawn(horizon))

    def _drawn(self, horizon: int) -> Market:
        return market_instance(
            self.instance_seed,
            agents=self.agents,
            producers=self.producers,
            distribution=self.data,
            homogeneous=self.homogeneous,
            overlap=self.overlap,
            alpha=self.alpha,
            rho=self.rho,
            sd=self.sd,
            largest_capacity=self.largest_capacity,
            drift=self.drift,
            every=self.drift_every,
            horizon=horizon,
        )

    def used(self, market: Market) -> dict[str, int]:
        """Return the numbers that were used where settings were left out, for the record of a run.

        >>> settings = MarketSettings(agents=4)
        >>> settings.used(settings.market(100))
        {'agents': 4, 'producers': 30}
        """
        return {"agents": len(market.agents), "producers": len(market.producers)}

    def _check_own(self) -> None:
        self.leave_out(_DRAWN, "a random market, and offers name your own")
        check_all(self, _OWN_MARKET)
        rating_source(self.data_part("qualities"), self.data_part("records"))
        self.check_files()

    def _own(self) -> Market:
        """Read the user's tables."""
        market = read_market(
            *map(self.data_part, self.parts),
            alpha=self.alpha,
            rho=self.rho,
            options=self.read_options(),
        )
        for name, count in self.used(market).items():
            value = getattr(self, name)
            if name in self.model_fields_set and value != count:
                raise ConfigError(
                    f"{name} must be the number in the offers, got {value} for {count}. Leave "
                    f"{name} out.",
                    rule=f"problems.{name}.not-the-offers",
                )
        return market


_OWN_MARKET: tuple[Requirement[MarketSettings], ...] = (
    Requirement(
        "problems.offers.not-given",
        lambda market: (
            market.data_part("offers") is not None
            or not {"qualities", "records"} & set(market.data)
        ),
        lambda market: (
            f"{' and '.join(market.data)} need offers, got '{market.data_name}' alone. Give both "
            "files."
        ),
    ),
    Requirement(
        "problems.offers.missing",
        lambda market: market.data_part("offers") is not None,
        lambda market: (
            "a market of your own needs offers, got none. Give offers, with qualities or records."
        ),
    ),
)
