"""What the paper prints: hyper-parameters of its tables 1 to 9, and the rewards of its section 5.2.

Rewards of figures 1 to 4 are printed as pictures only.
"""

from __future__ import annotations

from typing import NamedTuple

REFERENCE = "Agarwal, McMahan, Xu: An empirical evaluation of federated contextual bandit algorithms, 2023"


class Printed(NamedTuple):
    """A line of a table: learning rates of server and clients, and what exploration depends on."""

    server: float
    client: float
    explore: str = "-"


TABLES: dict[str, dict[str, Printed]] = {
    "fig1a": {  # table 1
        "softmax": Printed(0.002, 0.1, "beta 0.05"),
        "falcon": Printed(0.002, 0.1, "mu 12, gamma 1000"),
        "greedy": Printed(0.001, 0.2),
        "epsilon-greedy": Printed(0.01, 0.1, "epsilon 0.05"),
    },
    "fig1b": {  # table 2
        "init": Printed(0.5, 0.5),
        "softmax": Printed(0.005, 0.1, "beta 0.05"),
        "falcon": Printed(0.002, 0.2, "mu 12, gamma 5000"),
        "greedy": Printed(0.002, 0.1),
        "epsilon-greedy": Printed(0.002, 0.1, "epsilon 0.05"),
    },
    "fig1c": {  # table 3
        "init": Printed(0.5, 0.5),
        "softmax": Printed(0.005, 0.1, "beta 0.05"),
        "falcon": Printed(0.005, 0.2, "mu 12, gamma 5000"),
        "greedy": Printed(0.001, 0.1),
        "epsilon-greedy": Printed(0.01, 0.1, "epsilon 0.05"),
    },
    "fig1d": {  # table 4
        "init": Printed(0.5, 0.5),
        "softmax": Printed(0.005, 0.2, "beta 0.05"),
        "falcon": Printed(0.005, 0.1, "mu 12, gamma 5000"),
        "greedy": Printed(0.002, 0.1),
        "epsilon-greedy": Printed(0.005, 0.2, "epsilon 0.05"),
    },
    "fig2a": {  # table 5
        "softmax": Printed(0.01, 1, "beta 0.05"),
        "falcon": Printed(0.01, 0.05, "mu 10, gamma 5000"),
        "greedy": Printed(0.01, 0.1),
        "epsilon-greedy": Printed(0.01, 0.2, "epsilon 0.05"),
    },
    "fig2b": {  # table 6
        "init": Printed(0.05, 0.2),
        "softmax": Printed(0.005, 0.05, "beta 0.05"),
        "falcon": Printed(0.0005, 0.1, "mu 10, gamma 5000"),
        "greedy": Printed(0.001, 0.02),
        "epsilon-greedy": Printed(0.005, 0.1, "epsilon 0.05"),
    },
    "fig2c": {  # table 7
        "init": Printed(0.05, 0.05),
        "softmax": Printed(0.02, 2, "beta 0.1"),
        "falcon": Printed(0.05, 0.2, "mu 100, gamma 1000"),
        "greedy": Printed(0.05, 1),
        "epsilon-greedy": Printed(0.05, 0.2, "epsilon 0.05"),
    },
    "fig2d": {  # table 8
        "init": Printed(0.05, 0.05),
        "softmax": Printed(0.05, 1, "beta 0.1"),
        "falcon": Printed(0.05, 0.05, "mu 10, gamma 1000"),
        "greedy": Printed(0.05, 0.1),
        "epsilon-greedy": Printed(0.05, 0.05, "epsilon 0.05"),
    },
}
"""Tables 1 to 8, by figure and policy; `init` is supervised pre-training."""

PRIVATE: dict[str, dict[float, Printed]] = {
    "images": {
        0.0: Printed(0.002, 0.2, "beta 0.05"),
        0.01: Printed(0.002, 0.1, "beta 0.05"),
        0.1: Printed(0.002, 0.2, "beta 0.05"),
    },
    "tags": {
        0.0: Printed(0.02, 0.5, "beta 0.05"),
        0.3: Printed(0.01, 2, "beta 0.05"),
        0.7: Printed(0.01, 2, "beta 0.05"),
    },
}
"""Table 9, by noise multiplier: Softmax from scratch under a fixed clipping norm."""

CLIPS = {"images": 0.1, "tags": 0.8}
"""Clipping norms of table 9."""

NOISES = {"images": (0.01, 0.1), "tags": (0.3, 0.7)}
"""Noise multipliers of figure 4, small and large."""

OPTIMISER = {"tags": (0.81, 0.62)}
"""Section 5.2, Softmax in init-shift: reward with Adam and with SGD at the server; on EMNIST "no change"."""

WEIGHTED = {"images": (0.71, 0.60), "tags": (0.72, 0.47)}
"""Section 5.2, epsilon-Greedy in init-shift: reward without and with importance weights."""
