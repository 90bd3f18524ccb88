"""What is learnt: arms and their rewards, markets and their producers."""

from posse.problems.arms import Arms, BernoulliArms, BetaArms, EmpiricalArms
from posse.problems.instances import binds, market_instance
from posse.problems.market import Market, make_market

__all__ = ["Arms", "BernoulliArms", "BetaArms", "EmpiricalArms", "Market", "binds", "make_market", "market_instance"]
