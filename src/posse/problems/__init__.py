"""What is learnt: arms and their rewards."""

from posse.problems.arms import Arms, BernoulliArms, BetaArms, EmpiricalArms

__all__ = ["Arms", "BernoulliArms", "BetaArms", "EmpiricalArms"]
