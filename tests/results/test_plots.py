import io
import subprocess
import sys
from collections.abc import Callable

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from posse.core.errors import DataError
from posse.results import (
    pulls_per_arm,
    regret_curves,
    reward_curves,
    role_times,
    secure_against_plain,
)
from posse.results.plots import DARK_PAGE, INK, LIGHT_PAGE, SERIES
from posse.systems.registry import names, system
from tests.kit.records import example_record

SECURE, PLAIN, OTHER = (
    example_record(),
    example_record(level="plain"),
    example_record(policy="thompson"),
)
FIGURES: dict[str, Callable[[], Figure]] = {
    "reward": lambda: reward_curves([SECURE, PLAIN, OTHER]),
    "regret": lambda: regret_curves([SECURE, OTHER], quantiles=(0.1, 0.9)),
    "pulls": lambda: pulls_per_arm([SECURE, OTHER]),
    "one role time": lambda: role_times(SECURE),
    "role times": lambda: role_times([SECURE, PLAIN, OTHER]),
    "secure against plain": lambda: secure_against_plain(SECURE, PLAIN),
}


def draw(figure: Figure) -> None:
    """Render for real: a canvas that belongs to no backend draws nothing."""
    figure.savefig(io.BytesIO(), format="png", dpi=40)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_labelled_drawable_and_leave_the_world_alone(name: str) -> None:
    before = dict(mpl.rcParams)
    figure = FIGURES[name]()
    draw(figure)
    assert isinstance(figure, Figure)
    assert all(ax.get_xlabel() or ax.get_ylabel() for ax in figure.axes)
    assert dict(mpl.rcParams) == before


def test_neither_import_nor_drawing_loads_pyplot() -> None:
    code = (
        "import sys, posse.results as r; assert 'matplotlib' not in sys.modules and 'pyarrow' not "
        "in sys.modules;"
        "from tests.kit.records import example_record as e; r.render_report([e(), "
        "e(level='plain')]);"
        "assert 'matplotlib' in sys.modules; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_curves_are_the_means_under_their_labels() -> None:
    ax = reward_curves([SECURE, OTHER]).axes[0]
    assert [line.get_label() for line in ax.lines] == ["ucb (standard)", "thompson (standard)"]
    assert np.array_equal(ax.lines[1].get_ydata(), OTHER.reward.mean(axis=0))
    assert len(ax.collections) == 2
    assert "95 % interval of the mean, 4 runs" in ax.get_title(loc="left")
    assert len({line.get_color() for line in ax.lines}) == 2


def test_equal_labels_are_told_apart_and_can_be_given() -> None:
    records = [example_record(id="0a"), example_record(id="0b")]
    assert [line.get_label() for line in reward_curves(records).axes[0].lines] == [
        "ucb (standard) · 0a",
        "ucb (standard) · 0b",
    ]
    given = reward_curves(records, labels=["left", "right"]).axes[0]
    assert [line.get_label() for line in given.lines] == ["left", "right"]


def test_roles_are_drawn_as_their_system_says() -> None:
    ax = role_times(SECURE).axes[0]
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names == ["customer", "controller", "comp", "data owner"]
    kinds = [*names[:-1], "owner"]
    colours = [SECURE.role_colour(kind) for kind in kinds]
    assert [mpl.colors.to_hex(bar.get_facecolor()) for bar in ax.patches] == [
        pair[0] for pair in colours if pair
    ]


def test_time_is_logarithmic_only_where_it_must_be() -> None:
    assert secure_against_plain(SECURE, PLAIN).axes[1].get_yscale() == "log"
    near = example_record(level="plain", seconds=2.0)
    assert secure_against_plain(SECURE, near).axes[1].get_yscale() == "linear"


def test_the_best_arm_is_marked() -> None:
    ticks = [tick.get_text() for tick in pulls_per_arm(SECURE).axes[0].get_xticklabels()]
    assert ticks == ["clinic-a", "clinic-b", "clinic-c ★"]


def test_odd_names_are_drawn_as_they_are() -> None:
    record = example_record(
        policy="_$\\frac{$ \x07", problem={"names": ["$a$", "b\nb", "$"], "means": [1, 2, 3]}
    )
    for figure in (
        reward_curves(record),
        pulls_per_arm(record),
        secure_against_plain(record, PLAIN),
    ):
        draw(figure)


def test_what_cannot_be_drawn_is_told() -> None:
    empty = example_record(
        id="0e", seeds=(), steps=[], reward=[], regret=None, total=(), pulls=[], status="failed"
    )
    with pytest.raises(DataError, match="run 0e holds no finished run"):
        reward_curves([SECURE, empty])
    with pytest.raises(DataError, match="true means"):
        regret_curves(example_record(regret=None))
    with pytest.raises(DataError, match="time by role"):
        role_times(PLAIN)
    with pytest.raises(DataError, match="different numbers of arms"):
        pulls_per_arm([SECURE, example_record(pulls=[[1, 2]] * 4)])
    with pytest.raises(DataError, match="at least one record"):
        reward_curves([])


def contrast(a: str, b: str) -> float:
    def luminance(colour: str) -> float:
        r, g, b = (
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
            for c in mpl.colors.to_rgb(colour)
        )
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", [*SERIES, INK])
def test_colours_read_on_light_and_dark(colour: str) -> None:
    assert contrast(colour, LIGHT_PAGE) >= 3
    assert contrast(colour, DARK_PAGE) >= 3


@pytest.mark.parametrize("name", names())
def test_roles_have_colours_of_their_own(name: str) -> None:
    pairs = [role.colour for role in system(name).roles]
    assert len(set(pairs)) == len(pairs)
    assert all(
        contrast(light, LIGHT_PAGE) >= 3 and contrast(dark, DARK_PAGE) >= 3 for light, dark in pairs
    )
