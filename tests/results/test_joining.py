import numpy as np
import pytest

from posse.results import RunRecord, joining
from posse.results.example import example_market_record
from posse.results.joining import Share


def alone(**changes: object) -> RunRecord:
    return example_market_record(**{"level": "alone", **changes})  # type: ignore[arg-type]


def test_differences_are_paired_by_seed_whatever_the_order() -> None:
    base, joined = alone(), example_market_record()
    (straight,) = joining([base, joined])
    back = {name: np.array(getattr(base, name))[::-1] for name in ("party_total", "party_regret")}
    (turned,) = joining([joined, alone(seeds=base.seeds[::-1], **back)])
    assert turned.shares == straight.shares
    gain = joined.party_total - base.party_total  # type: ignore[operator]
    first = straight.shares[0]
    assert first.difference == pytest.approx(gain[:, 0].mean())
    assert first.error == pytest.approx(gain[:, 0].std(ddof=1) / np.sqrt(6))
    assert first.ratio == pytest.approx(0.55)
    assert straight.whole.difference == pytest.approx(gain.sum(axis=1).mean())


def test_a_loser_is_marked_though_all_together_gain() -> None:
    (found,) = joining([alone(), example_market_record()])
    assert found.whole.difference is not None
    assert found.whole.difference > 0
    assert found.losers == ("isles",)
    assert [share.verdict for share in found.shares] == ["gains", "gains", "gains", "loses"]
    assert found.ratio is not None
    assert found.ratio.over == "runs"
    assert found.ratio.low < found.ratio.estimate < found.ratio.high


@pytest.mark.parametrize(
    ("share", "verdict", "loses", "doubtful"),
    [
        (Share("a", 9.0, 10.0, -1.0, 0.8), "loses, within the error", False, True),
        (Share("a", 9.0, 10.0, -1.0, 0.1), "loses", True, False),
        (Share("a", 9.0, 10.0, -1.0, None), "loses", True, False),
        (Share("a", 9.0, 9.0, 0.0, 0.0), "even", False, False),
        (Share("a", 9.0, 8.0, 1.0, 0.8), "gains, within the error", False, False),
        (Share("a", 9.0, 8.0, 1.0, 0.1, 3.0, 2.0, 0.1), "gains, but regrets more", True, False),
        (Share("a", 9.0, 8.0, 1.0, 0.8, 3.0, 2.0, 0.1), "regrets more", True, False),
        (Share("a", 9.0, 8.0, 1.0, 0.1, 3.0, 2.0, 0.8), "gains", False, False),
        (Share("a", 9.0, 10.0, -1.0, 0.8, 2.0, 3.0, 0.1), "regrets less", False, False),
        (Share("a", 9.0, 10.0, -1.0, 0.1, 2.0, 3.0, 0.1), "loses", True, False),
        (Share("a", 9.0), "", False, False),
    ],
)
def test_verdicts(share: Share, verdict: str, loses: bool, doubtful: bool) -> None:
    assert (share.verdict, share.loses, share.doubtful) == (verdict, loses, doubtful)


def test_chance_is_not_called_a_loss() -> None:
    base = alone()
    down = np.array([[-5.0, 0.0, 0.0, 0.0], [4.9, 0.0, 0.0, 0.0]] * 3)
    changes = {"party_total": base.party_total + down, "party_regret": base.party_regret}
    (found,) = joining([base, alone(level="tight", **changes)])
    assert (found.losers, found.doubtful) == ((), ("north",))


@pytest.mark.parametrize(
    "other",
    [
        {"seeds": (9, 1, 2, 3, 4, 5)},
        {"seeds": ()},
        {"seeds": (0, 0, 1, 2, 3, 4)},
        {"budget": 500},
        {"problem": {"name": "elsewhere"}},
        {"parties": ("a", "b", "c", "d")},
    ],
)
def test_what_is_not_alike_is_not_compared(other: dict[str, object]) -> None:
    found = joining([alone(**other), example_market_record()])
    assert [joined.baseline for joined in found] == [None, None]
    assert all(share.difference is None and share.verdict == "" for joined in found for share in joined.shares)
    assert found[1].shares[0].total is not None


def test_without_a_record_alone_the_parties_are_still_shown() -> None:
    (found,) = joining([example_market_record()])
    assert (found.baseline, found.ratio, found.losers) == (None, None, ())
    assert [share.total for share in found.shares] == pytest.approx(
        example_market_record().party_total.mean(axis=0)  # type: ignore[union-attr]
    )


def test_of_two_records_alone_the_first_is_the_baseline() -> None:
    records = [alone(id="0a"), example_market_record(id="0b"), alone(id="0c")]
    found = [(joined.record.id, joined.baseline.id if joined.baseline else "") for joined in joining(records)]
    assert found == [("0b", "0a"), ("0c", "0a")]
    assert [joined.record.id for joined in joining(records[:1])] == ["0a"]


def test_regret_that_is_zero_or_unknown_gives_no_ratio() -> None:
    (unknown,) = joining([alone(party_regret=None), example_market_record()])
    (zero,) = joining([alone(party_regret=np.zeros((6, 4))), example_market_record()])
    assert unknown.ratio is zero.ratio is None
    assert unknown.shares[0].ratio is zero.shares[0].ratio is None
    assert unknown.losers == ("isles",)
