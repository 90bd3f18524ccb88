"""The model stays sound up to the most steps that are allowed, and where it does not, whoever may
look notices.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import mpc_range
from benchmarks.mpc_range import Setting, play
from posse.core.errors import DataError
from posse.systems.mpc_contextual.federation import ContextualRun
from posse.systems.mpc_contextual.program import Layout
from posse.systems.mpc_contextual.roles.outside import Model, read_shares, write_share
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.mpc_contextual.terms import Terms
from posse.systems.registry import start

TERMS = Terms("r", ("a", "b"), (2, 2), 3, 100, (1, 10), 14)


@pytest.mark.parametrize(
    "setting",
    [
        Setting("uncentred", 12, 20, 2),
        Setting("uncentred", 14, 20, 2),
        Setting("uncentred", 14, 60, 2),
        Setting("few", 14, 20, 2),
        Setting("constant", 12, 5, 2),
        Setting("nearly equal", 12, 5, 2),
    ],
    ids=lambda setting: f"{setting.kind}, {setting.bits} bits, {setting.features} features",
)
def test_hard_contexts_at_the_most_steps_allowed(setting: Setting) -> None:
    """Without the quarter of a unit that every pull adds, P of the first four is not positive at
    the end.
    """
    found = play(setting)
    assert found.broken == ""
    assert found.least > 10
    assert found.weight < 10


@pytest.mark.long
def test_every_setting_of_the_study(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["mpc_range", "--long"])
    mpc_range.main()
    assert "broken: 0 of " in capsys.readouterr().out


def broken_model() -> np.ndarray:
    layout = Layout(TERMS.dimension)
    model = layout.start(TERMS.arms, TERMS.bits)
    model[1] -= layout.diagonal << np.uint64(TERMS.bits + 1)  # P = -I
    return model


def test_whoever_brings_the_shares_together_sees_a_broken_model(tmp_path) -> None:
    sound = Layout(TERMS.dimension).start(TERMS.arms, TERMS.bits)
    mask = np.random.default_rng(1).integers(0, 2**63, sound.shape, np.uint64)
    for model, ends in (
        (sound, None),
        (broken_model(), r"arm 2 is broken after 100 steps: .* eigenvalue of P is -1"),
    ):
        for party, share in zip(TERMS.parties, (model - mask, mask), strict=True):
            (tmp_path / party).mkdir(exist_ok=True)
            write_share(tmp_path / party, TERMS, party, 100, share.tobytes())
        if ends is None:
            assert read_shares(tmp_path).weights.shape == (3, 4)
        else:
            with pytest.raises(DataError, match=ends):
                read_shares(tmp_path)


def test_weights_beyond_their_bound_are_a_broken_model() -> None:
    model = Layout(TERMS.dimension).start(TERMS.arms, TERMS.bits)
    model[0, -1] = np.uint64(7 << TERMS.bits)  # the bound is sqrt(100) / 2 + 1
    with pytest.raises(DataError, match="arm 1 is broken"):
        Model(TERMS, 100, model).check()


def test_a_simulation_on_roles_says_that_its_model_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = start(MpcContextual(data="digits", horizon=4, bits=14, seed=1))
    assert isinstance(run, ContextualRun)
    run.finish()
    run.record()
    party = run.memory.roles[run._setup.terms.parties[0]]
    party._model = party._model - (Layout(party.terms.dimension).diagonal << np.uint64(15))
    with pytest.raises(DataError, match="is broken after 4 steps"):
        run.record()


def test_the_twin_stops_where_p_is_not_positive() -> None:
    run = start(MpcContextual(data="digits", horizon=20, bits=14, seed=1, path="fixed"))
    run.advance(4)
    twin = run._twin
    twin.model[:] = (-(Layout(twin._terms.dimension).diagonal.astype(np.int64)) << 8)[None]
    with pytest.raises(DataError, match="must stay within"):
        run.finish()
