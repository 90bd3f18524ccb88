import pytest

from posse.core.errors import ConfigError, DataError
from posse.results import Vocabulary, compare, pulls_per_arm, regret_curves, reward_curves
from posse.results.words import common, plural, vocabulary
from tests.kit.records import example_market_record, example_record


def test_a_record_speaks_the_words_of_its_problem() -> None:
    assert example_record().words == Vocabulary(party="owner")
    said = example_market_record().words
    assert (said.step, said.arm, said.pull) == ("round", "producer", "unit")
    assert (said.reward, said.party) == ("revenue", "agent")
    assert said.earned == "revenue (EUR)"


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"steps": "round"}, ConfigError, "unknown word 'steps'. Did you mean 'step'"),
        ({"step": ""}, DataError, "words.step must be a noun"),
        ({"step": 3}, DataError, "words.step must be a noun"),
        (["round"], DataError, "words must be a table"),
    ],
)
def test_words_that_do_not_fit_are_refused_when_the_record_is_made(
    given: object, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        example_record(problem={"words": given}).validate()


def test_a_currency_is_put_behind_amounts_only() -> None:
    assert vocabulary({"money": "EUR"}).priced("5") == "5 EUR"
    assert vocabulary({"money": "EUR"}).priced("–") == "–"
    assert vocabulary({"money": ""}).priced("5") == "5"


def test_only_shared_words_are_used_for_a_mixture() -> None:
    assert common([example_record().words, example_market_record().words]) == Vocabulary()
    assert common([]) == Vocabulary()
    assert common([Vocabulary(step="round"), Vocabulary(step="round", arm="shop")]) == Vocabulary(
        step="round"
    )


@pytest.mark.parametrize(
    ("noun", "several"), [("agency", "agencies"), ("day", "days"), ("y", "ys"), ("bus", "buses")]
)
def test_plurals(noun: str, several: str) -> None:
    assert plural(noun) == several


def test_figures_are_labelled_in_the_words_of_the_market() -> None:
    records = [example_market_record(level=level) for level in ("alone", "tight", "plain")]
    rewards = reward_curves(records).axes[0]
    assert (rewards.get_xlabel(), rewards.get_ylabel()) == ("round", "cumulative revenue (EUR)")
    regret = regret_curves(records).axes[0]
    assert regret.get_ylabel() == "cumulative pseudo-regret\n(EUR)"
    assert [line.get_label() for line in regret.lines] == ["alone", "p-fcb (tight)", "fcb (plain)"]
    units = pulls_per_arm(records).axes[0]
    assert units.get_xlabel() == "producer (★ highest true mean)"
    assert units.get_ylabel() == "units per run (mean)"


def test_samba_is_labelled_as_ever() -> None:
    ax = reward_curves(example_record()).axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "cumulative reward\n(sum of rewards)")
    assert (
        regret_curves(example_record()).axes[0].get_ylabel() == "cumulative pseudo-regret\n(reward)"
    )
    mixed = reward_curves([example_record(), example_market_record()]).axes[0]
    assert mixed.get_xlabel() == "step"


def test_notes_of_a_comparison_use_the_words() -> None:
    a, b = example_market_record(level="alone"), example_market_record(horizon=500)
    notes = " ".join(compare([a, b]).notes)
    assert "(1,000, 500 rounds)" in notes
    other = example_market_record(problem={**a.problem, "means": [0.5] * 6})
    assert "with other producers, means or sources" in " ".join(compare([a, other]).notes)
    twins = [
        example_market_record(level="plain", summary={"twin_of": level})
        for level in ("tight", "paper")
    ]
    assert "comp" not in " ".join(compare(twins).notes)


def test_fallback_names_of_arms_and_the_state_use_the_words() -> None:
    problem = {"words": {"arm": "producer", "step": "round"}}
    record = example_market_record(
        problem=problem, status="interrupted", summary={"steps_done": 1500}
    )
    assert record.arm_names[0] == "producer 1"
    assert record.steps_done == 1500
    assert record.state == "interrupted after 1,500 of 6,000 rounds"
    assert example_record(status="interrupted").steps_done == 800
