"""What explanations of mpc-contextual say about masks and shares, tried with the keys of the
roles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from posse.core.fixed import REWARD_ONE
from posse.systems import registry
from posse.systems.mpc_contextual.federation import ContextualRun
from posse.systems.mpc_contextual.program import input_masks
from posse.systems.mpc_contextual.roles import messages as said
from posse.systems.mpc_contextual.scene import SCENE
from posse.systems.mpc_contextual.settings import MpcContextual

SYSTEM = registry.system("mpc-contextual")


def begun(**more: Any) -> ContextualRun:
    run = SYSTEM.start(MpcContextual(**{"rows": 40, "horizon": 4, **more}), transcript=10_000)
    assert isinstance(run, ContextualRun)
    return run


@pytest.mark.parametrize(
    "more",
    [{}, {"policy": "linucb", "parties": 3}, {"batch": 2, "policy": "thompson"}, {"overlap": True}],
)
def test_masked_inputs_open_with_the_masks_of_dealer_and_sender(more: dict[str, Any]) -> None:
    run = begun(**more)
    roles: dict[str, Any] = run.memory.roles
    terms, seen = run.settings.load().terms, set()
    while (delivery := run.deliver()) is not None:
        message, found = delivery.message, delivery.explanation
        assert found is not None
        clear = dict(found["clear"])
        assert "arm" not in clear or not isinstance(message, said.Pulled)  # it does not say which
        part = next((part for part in found["parts"] if part["protection"] == "mask"), None)
        if part is None or not isinstance(message, said.Opening | said.Choice | said.Payoff):
            continue
        assert "dealer" in part["opens"]
        assert "party" not in part["opens"]
        words = np.frombuffer(message.data[: part["length"]], "<u8")
        opened = words + input_masks(
            roles["dealer"]._keys.inputs[delivery.sender], message.step, len(words)
        )
        other = next(
            name for name in (*terms.parties, "puller", "payee") if name != delivery.sender
        )
        wrong = words + input_masks(roles["dealer"]._keys.inputs[other], message.step, len(words))
        assert not np.array_equal(opened, wrong)
        if isinstance(message, said.Opening):
            shown = [f"{value:.3f}" for value in opened.view(np.int64) / 2.0**terms.bits]
            assert [
                float(text) for text in clear["features"].replace(", ...", "").split(", ")
            ] == pytest.approx(
                [
                    float(text)
                    for text in shown[
                        : min(8, terms.features[terms.parties.index(delivery.sender)])
                    ]
                ]
            )
        elif isinstance(message, said.Choice):
            arms = opened.reshape(terms.batch, terms.arms).argmax(axis=1)
            names = ", ".join(run.settings.load().contexts.arms[arm] for arm in arms)
            assert clear["arm"] == (names if opened.any() else "none yet")
            assert opened.any() or (terms.overlap and message.step == 0)
        else:
            paid = [f"{float(text):.3f}" for text in clear["reward"].split(", ")]
            assert paid == [f"{value:.3f}" for value in opened / 2.0**terms.bits]
        seen.add(type(message))
    assert seen == {said.Opening, said.Choice, said.Payoff}


def test_the_arm_is_known_with_the_last_share_alone() -> None:
    run, shares, known = begun(parties=3), 0, 0
    while (delivery := run.deliver()) is not None:
        if isinstance(delivery.message, said.Reveal):
            assert delivery.explanation is not None
            shares += 1
            arm = dict(delivery.explanation["clear"])["arm"]
            assert (arm != "not known yet") == (shares % 3 == 0)
            assert (delivery.explanation["chosen"] == "puller") == (shares % 3 == 0)
            known += arm != "not known yet"
    assert known == 4


def test_the_picture_has_the_numbers_of_the_record() -> None:
    run = begun(horizon=8)
    run.advance(5)
    scene, record = SCENE.draw(run), run.record()
    assert scene is not None
    assert scene["curves"]["reward"] == record.total[0]
    assert [arm["pulls"] for arm in scene["arms"]] == record.pulls[0].tolist()  # type: ignore[index]
    means = run.truth()["means"]
    assert scene["curves"]["best arms"] == pytest.approx(means[:5].max(axis=1).sum())
    assert [party["label"] for party in scene["parties"][:2]] == ["Clinic", "Laboratory"]
    assert run.truth()["rewards"].sum() * REWARD_ONE == scene["curves"]["reward"] * REWARD_ONE
