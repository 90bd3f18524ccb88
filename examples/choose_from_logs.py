"""Compare values of exploration with the logs of devices, without running them.

    python examples/choose_from_logs.py

Sixty devices used softmax with temperature 0.2 and a rough model on digits. What would other
temperatures, epsilon-greedy and FALCON have earned? Each device sums over its own log and clips the
sums. The sums of all devices give an estimate with its interval. In this example labels are known,
so the program also prints the true values. Logs of a greedy policy are refused.
"""

from __future__ import annotations

import numpy as np

from posse.core.errors import DataError
from posse.policies.contextual.explorations import EpsilonGreedy, Falcon, Greedy, Softmax, draw
from posse.policies.evaluation.federated import client_sums
from posse.policies.evaluation.offline import Log
from posse.problems.datasets.mnist import digits_population

CLIP = 500.0
"""Norm to which a device's sums (weighted rewards, weights, rows) are clipped; none is clipped
here.
"""
TRIED = (
    *(Softmax(beta) for beta in (0.02, 0.05, 0.1, 0.3)),
    EpsilonGreedy(0.1),
    Falcon(),
    Greedy(),
)


def main() -> None:
    """Log, estimate, and compare with the truth."""
    devices = digits_population()
    rng = np.random.default_rng(7)
    images = np.asarray(devices.inputs, np.float64).reshape(devices.samples, -1)
    images /= images.max()
    labels = np.asarray(devices.labels, np.int64)
    pays = np.eye(10)[labels]
    some = rng.choice(len(images), 150, replace=False)
    model = np.linalg.lstsq(
        images[some].T @ images[some] + np.eye(64), images[some].T @ pays[some], rcond=None
    )[0]
    scores = images @ model

    chances = Softmax(0.2).probabilities(scores)
    arms, logged = draw(chances, rng.random(len(images)))
    rows = np.split(np.arange(len(images)), devices.offsets[1:-1])
    logs = [Log(arms[own], pays[own, arms[own]], logged[own], chances[own]) for own in rows]
    earned = sum(log.rewards.sum() for log in logs) / len(images)
    print(f"{len(images)} decisions of {devices.clients} devices earned {earned:.3f} each")

    for tried in TRIED:
        target = tried.probabilities(scores)
        sums = [client_sums(log, target[own], CLIP) for log, own in zip(logs, rows, strict=True)]
        found = sum(sums[1:], start=sums[0]).estimate()
        shown = " ".join(
            (tried.name, *(str(value) for value in vars(tried).values() if value is not None))
        )
        print(f"{shown:20} {found.value:.3f}, {found.low:.3f} to {found.high:.3f}", end="; ")
        print(f"truth {(target * pays).sum(axis=1).mean():.3f}")

    best = scores.argmax(axis=1)
    greedy = Log(best, pays[np.arange(len(best)), best], np.ones(len(best)), np.eye(10)[best])
    try:
        client_sums(greedy, chances, CLIP)
    except DataError as error:
        print(error)


if __name__ == "__main__":
    main()
