"""Which market: the settings that name one, and the market they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import model_validator

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.settings import External
from posse.problems.data import TableSettings
from posse.problems.markets.instances import INSTANCES, check_instance, market_instance
from posse.problems.markets.market import Market
from posse.problems.markets.offers import rating_source, read_market
from posse.problems.requirements import Requirement, check_all

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
    """Smallest average quality of what an agent buys in a round."""
    rho: float = 1.0
    """What a good unit is worth, in the unit of the costs."""
    homogeneous: bool = False
    """All agents have the same costs and capacities."""
    overlap: float = 1.0
    """Share of the producers that each agent deals with, drawn for each agent."""
    sd: float = 0.1
    """Standard deviation of a normal instance."""
    largest_capacity: int = 50
    """Capacities are uniform from 1 to this number of units a round."""
    drift: float = 0.0
    """Standard deviation of the step that each quality takes from time to time; 0 for qualities
    that stay.
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
            return self.once("market", self._own)
        return self.once(f"market of {horizon}", lambda: self._drawn(horizon))

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
