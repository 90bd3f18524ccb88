"""The examples of what records say: their names, rows, tables, parties and sentences, and a store
of them.
"""

from __future__ import annotations

from pathlib import Path

from posse.results import Store, differences, joining, labels, party_rows, rows
from posse.results.document import sections, sentence
from posse.results.guarantees import guarantees
from posse.results.naming import distinct
from tests.kit.records import example_contextual_record, example_market_record, example_record

TAUS = [example_record(config={"policy": {"name": "softmax", "tau": tau}}) for tau in (0.1, 0.5)]


def test_settings_are_flat_and_name_the_horizon_once() -> None:
    config = {"policy": {"name": "softmax", "tau": 0.1}, "budget": 200, "steps": 200}
    assert example_record(config=config).settings() == {
        "policy": "softmax",
        "policy.tau": 0.1,
        "horizon": 200,
    }


def test_records_differ_in_a_parameter() -> None:
    assert differences(TAUS) == [{"policy.tau": "0.1"}, {"policy.tau": "0.5"}]


def test_labels_say_what_differs_and_the_user_s_own_words_first() -> None:
    assert labels(TAUS) == ["softmax (standard), tau 0.1", "softmax (standard), tau 0.5"]
    named = [example_record(level="plain"), example_record(summary={"label": "with masks"})]
    assert labels(named) == ["ucb (plain)", "with masks, ucb (standard)"]


def test_equal_texts_get_ids_and_then_numbers() -> None:
    first, second = example_record(id="0a"), example_record(id="0b")
    assert distinct(["ucb", "ucb"], [first, second]) == ["ucb · 0a", "ucb · 0b"]
    assert distinct(["ucb", "ucb"], [first, first]) == ["ucb · 0a", "ucb · 0a (2)"]


def test_rows_of_curves_and_of_parties() -> None:
    first = next(rows(example_record(id="0a")))
    wanted = {"record": "0a", "run": 0, "seed": 0, "step": 1, "policy": "ucb", "horizon": 200}
    assert wanted.items() <= first.items()
    party = next(party_rows(example_market_record(id="0a")))
    assert {
        "record": "0a",
        "label": "p-fcb (tight)",
        "run": 0,
        "party": "north",
    }.items() <= party.items()


def test_a_party_that_loses_by_joining_is_named() -> None:
    (joined,) = joining(
        [example_market_record(level="alone"), example_market_record(level="tight")]
    )
    assert joined.losers == ("isles",)
    assert [share.party for share in joined.shares] == ["north", "south", "harbour", "isles"]
    assert joined.whole.difference is not None
    assert joined.whole.difference > 0


def test_a_sentence_says_what_was_earned_or_that_it_is_not_known() -> None:
    known = sentence(example_record(runs=1, total=(120.0,)), "ucb")
    assert known == "ucb earned 120 over 200 steps (1 run) in 4.1 s."
    party = example_record(
        party="comp", total=(), pulls=(), steps=(), reward=(), regret=None, seeds=()
    )
    assert (
        sentence(party, "comp") == "comp took part in 200 steps; it does not know what was earned."
    )


def test_tables_of_several_records_have_their_labels() -> None:
    first, second = (example_contextual_record(horizon=horizon) for horizon in (300, 600))
    assert sections(first)[0].heading == "What a step costs"
    assert [section.label for section in sections([first, second])] == [
        "epsilon-greedy (shared), 300 steps",
        "epsilon-greedy (shared), 600 steps",
    ]


def test_a_guarantee_in_a_sentence() -> None:
    said = guarantees([example_market_record()])[0].sentence("agent")
    assert said.startswith("p-fcb (tight), each of 4 agents: ε = 1 at δ = 1e-05 for one purchase")


def test_a_store_lists_finds_and_follows_runs(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.sqlite") as store:
        store.save(example_record(id="0a-first"))
        store.save(example_record(id="0b-second", kind="towns"))
        assert [row.id for row in store.list()] == ["0b-second", "0a-first"]
        assert (store.get("0a").kind, store.get("last").id) == ("clinics", "0b-second")
        head = example_record(id="0c", total=(), pulls=(), reward=(), steps=(), regret=None)
        with store.begin(head) as handle:
            handle.beat(50, 800)
            assert (store.list()[0].status, store.list()[0].progress) == ("running", "50 of 800")
            handle.end(example_record(id="0c"))
        assert store.list()[0].status == "finished"
