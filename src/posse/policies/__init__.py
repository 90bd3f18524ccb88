"""How to choose: one file per policy."""

from posse.policies.base import ARGMAX, Policy, Selection
from posse.policies.epsilon_greedy import EpsilonDecreasing, EpsilonGreedy
from posse.policies.pursuit import Pursuit
from posse.policies.registry import POLICIES, make
from posse.policies.softmax import Softmax
from posse.policies.thompson import Thompson
from posse.policies.ucb import UCB

__all__ = [
    "ARGMAX",
    "POLICIES",
    "UCB",
    "EpsilonDecreasing",
    "EpsilonGreedy",
    "Policy",
    "Pursuit",
    "Selection",
    "Softmax",
    "Thompson",
    "make",
]
