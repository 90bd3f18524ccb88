"""scikit-learn's digits as a population: 1,797 images of 8 x 8 pixels, ten classes, no file needed."""

from __future__ import annotations

import numpy as np

from posse.core.extras import require
from posse.problems.datasets.mnist import CLASSES
from posse.problems.populations import Population
from posse.problems.splits import dirichlet, population

CLIENTS = 60


def digits_population(clients: int = CLIENTS, alpha: float = 0.3, seed: int = 0) -> Population:
    """Split the digits over Dirichlet clients; needs the extra `data`. Grey values 0 to 16 become 0 to 255.

    >>> digits_population().describe()["samples"]
    1797
    """
    images, labels = (require("sklearn.datasets", extra="data").load_digits()[key] for key in ("images", "target"))
    pixels = np.rint(images * (255 / 16)).astype(np.uint8)
    return population("digits", pixels, labels, CLASSES, dirichlet(labels, clients, alpha, seed))
