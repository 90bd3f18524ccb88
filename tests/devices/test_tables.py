"""The table of docs/devices.md, what the server sees: all that leaves a device, record by
record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

from flwr.app import Context, Message, RecordDict
from numpy.typing import NDArray

from posse.privacy.aggregation.messages import Masked
from posse.systems.fed_contextual.flower import client_app, server_app, wire
from posse.systems.fed_contextual.flower.settings import DeviceSettings

from .grids import FakeGrid

NODES, CLIP = 3, 0.05
"""Devices, and a norm that every update of theirs would pass."""
DEPLOYED = {("query.deploy", "deploy", name) for name in ("version", "sha256", "why")}
SEEN = {
    False: {
        *(("train", "update", leaf) for leaf in ("0", "1")),
        *(("train", "told", name) for name in ("reward", "samples", "probability", "within")),
        ("train", "round", "client"),
        *(("evaluate", "sums", name) for name in ("numerator", "denominator", "rows")),
        *DEPLOYED,
    },
    True: {("train.secure", "stage", "message"), *DEPLOYED},
}
"""By message, record and field; `update` has the shapes of the model. In a secure run evaluations
are masked too.
"""


@pytest.mark.parametrize("secure", [False, True])
def test_what_the_server_sees_is_what_the_page_lists(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = DeviceSettings.of(
        {
            "rounds": 1,
            "cohort": NODES,
            "seed": 5,
            "samples": 64,
            "timeout": 0.2,
            "secure": secure,
            "clip": CLIP,
            "quantile": 0.0,
            "evaluate": "snips",
            "out": str(tmp_path / "out"),
        }
    )
    grid, replies = FakeGrid(made, NODES, tmp_path), list[tuple[str, RecordDict]]()
    contexts = logs(grid, tmp_path)
    answer, contribution, vectors = grid.app, client_app.contribution, list[NDArray[np.uint32]]()

    def answered(message: Message, context: Context) -> Message:
        reply = answer(message, context)
        replies.append((message.metadata.message_type, reply.content))
        return reply

    def contributed(*given: Any) -> Any:
        own = contribution(*given)
        if secure:
            vectors.append(wire.words_of(own))
        return own

    monkeypatch.setattr(client_app, "contribution", contributed)
    grid.app = answered  # type: ignore[assignment]
    server_app.run(grid, made, "1")
    assert {
        (kind, name, key) for kind, sent in replies for name in sent for key in sent[name]
    } == SEEN[secure]
    assert len(vectors) == (NODES if secure else 0)
    for _, sent in replies:
        said = b"".join(bytes_of(record) for record in sent.values())
        assert not [row for row in contexts if row in said]
        if "update" in sent:
            check_clipped([sent["update"][leaf].numpy() for leaf in ("0", "1")])
        if (
            secure
            and "stage" in sent
            and isinstance(message := wire.decode(sent["stage"]["message"]), Masked)
        ):
            words = np.frombuffer(message.words, "<u4")
            assert not [
                vector
                for vector in vectors
                if len(vector) == len(words) and (vector == words).any()
            ]


def logs(grid: FakeGrid, folder: Path) -> list[bytes]:
    """Give every device a log of its own; return the bytes of every context."""
    rng, rows = np.random.default_rng(1), list[bytes]()
    for at, node in enumerate(grid.nodes):
        path, contexts, arms = (
            folder / f"log-{at}.npz",
            rng.random((40, 64), np.float32),
            rng.integers(0, 10, 40),
        )
        chances = np.full(40, 0.1)
        np.savez(
            path,
            contexts=contexts,
            arms=arms,
            rewards=(arms == at).astype(float),
            probabilities=chances,
        )
        grid.contexts[node.node_id].node_config["log"] = str(path)
        rows += [row.tobytes() for row in contexts]
    return rows


def bytes_of(record: Any) -> bytes:
    """Return the bytes of a record: of arrays, and of a message."""
    parts = [getattr(part, "data", part) for part in record.values()]
    return b"".join(part for part in parts if isinstance(part, bytes))


def check_clipped(update: list[NDArray[Any]]) -> None:
    """Check that an update has the size of the model, and was scaled down to the norm."""
    assert sorted(leaf.size for leaf in update) == [10, 640]
    norm = np.sqrt(sum(float(np.square(leaf).sum()) for leaf in update))
    assert norm == pytest.approx(CLIP, rel=wire.SLACK)
