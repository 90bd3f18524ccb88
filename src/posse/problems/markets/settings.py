"""Which market: the settings that name one, and the market they make."""

from __future__ import annotations

from pathlib import Path

from posse.core.errors import ConfigError
from posse.core.settings import Settings
from posse.problems.markets.instances import Distribution, market_instance
from posse.problems.markets.market import Market
from posse.problems.markets.offers import read_market

_DRAWN = (
    "instance", "homogeneous", "overlap", "sd", "largest_capacity", "drift", "drift_every", "instance_seed",
)  # fmt: skip
"""Settings of a random instance, which a user's own files leave no room for."""


class MarketSettings(Settings):
    """Where a market comes from: a random instance, or a user's own files (`offers` with `qualities` or `records`)."""

    instance: Distribution = "uniform"
    """Distribution of qualities and costs in a random market: uniform on [0, 1], or normal around alpha."""
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
    """Standard deviation of the step that each quality takes from time to time; 0 for qualities that stay."""
    drift_every: int = 1000
    """Rounds between two steps of the drift."""
    instance_seed: int = 1
    """Seed of the random market: the same number gives the same market."""
    offers: Path | None = None
    """CSV file of a market of your own: columns agent,supplier,cost,capacity."""
    qualities: Path | None = None
    """CSV file with the suppliers' qualities: columns supplier,quality."""
    records: Path | None = None
    """CSV file with past units instead of qualities, oldest first: columns supplier,quality."""
    currency: str = ""
    """Name of the money that costs and rho are counted in; only shown."""

    def market(self, horizon: int) -> Market:
        """Make the market of a run of `horizon` rounds.

        >>> MarketSettings(agents=2, producers=3, instance_seed=7).market(1000).capacity.tolist()
        [[3, 38, 46], [36, 9, 48]]
        """
        if self.offers is not None:
            return self._own(self.offers)
        for name in ("qualities", "records"):
            if getattr(self, name) is not None:
                raise ConfigError(f"{name} needs offers, got '{getattr(self, name)}' alone. Give both files.")
        if self.instance != "normal":
            self._leave_out(("sd",), f"a normal instance, and this one is {self.instance}")
        if self.drift == 0:
            self._leave_out(("drift_every",), "a drift, and there is none")
        self._check()
        return market_instance(
            self.instance_seed, agents=self.agents, producers=self.producers, distribution=self.instance,
            homogeneous=self.homogeneous, overlap=self.overlap, alpha=self.alpha, rho=self.rho, sd=self.sd,
            largest_capacity=self.largest_capacity, drift=self.drift, every=self.drift_every, horizon=horizon,
        )  # fmt: skip

    def used(self, market: Market) -> dict[str, int]:
        """Give what was used where a setting was left out, for the record of a run: offers have numbers of their own.

        >>> settings = MarketSettings(agents=4)
        >>> settings.used(settings.market(100))
        {'agents': 4, 'producers': 30}
        """
        return {"agents": len(market.agents), "producers": len(market.producers)}

    def _own(self, offers: Path) -> Market:
        """Read the user's files; numbers given beside them must be theirs."""
        self._leave_out(_DRAWN, "a random market, and offers name your own")
        market = read_market(offers, self.qualities, self.records, alpha=self.alpha, rho=self.rho)
        for name, count in self.used(market).items():
            given = getattr(self, name)
            if name in self.model_fields_set and given != count:
                raise ConfigError(f"{name} must be those of the offers, got {given} for {count}. Leave {name} out.")
        return market

    def _leave_out(self, names: tuple[str, ...], whose: str) -> None:
        """Refuse a setting that would be left unheard."""
        for name in names:
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ConfigError(f"{name} applies to {whose}, got {value}. Leave {name} out.")

    def _check(self) -> None:
        """Check what an instance calls otherwise; the rest it checks itself."""
        if self.drift_every < 1:
            raise ConfigError(f"drift_every must be at least 1 round, got {self.drift_every}. Raise it.")
        if not 0 <= self.instance_seed < 2**63:
            raise ConfigError(f"instance_seed must be in [0, 2^63), got {self.instance_seed}. Choose another.")
