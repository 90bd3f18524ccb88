import numpy as np
import pytest

from posse.results import Record, joining
from posse.results.joining import Joining, Share
from tests.kit.records import BASELINE, example_market_record


def alone(**changes: object) -> Record:
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


def changes(mean: float, error: float, runs: int) -> tuple[float, ...]:
    """Return changes of so many runs with a mean and a standard error, symmetric about the mean."""
    if runs == 1:
        return (mean,)
    pattern = np.linspace(-1.0, 1.0, runs)
    unit = pattern.std(ddof=1) / np.sqrt(runs)
    return tuple((mean + pattern / unit * error).tolist())


def share(gain: float, error: float, *saved: float, runs: int = 9) -> Share:
    """Return a party that gained so much, and saved so much regret, each with its error."""
    known = changes(*saved, runs) if saved else ()
    return Share("a", 9.0, gained=changes(gain, error, runs), saved=known)


@pytest.mark.parametrize(
    ("share", "verdict", "loses", "doubtful"),
    [
        (share(-1.0, 0.8), "perhaps loses", False, True),
        (share(-1.0, 0.1), "loses", True, False),
        (share(-1.0, 0.0, runs=1), "less in this one run", False, True),
        (share(1.0, 0.0, runs=1), "more in this one run", False, False),
        (share(0.0, 0.0, runs=1), "even", False, False),
        (share(1.0, 0.0, -7.0, 0.0, runs=1), "more in this one run", False, False),
        (share(0.0, 0.0), "even", False, False),
        (share(-1.0, 0.0), "loses", True, False),
        (share(1.0, 0.8), "perhaps gains", False, False),
        (share(1.0, 0.1, -1.0, 0.1), "gains, but regrets more", True, False),
        (share(1.0, 0.8, -1.0, 0.1), "regrets more", True, False),
        (share(1.0, 0.1, -1.0, 0.8), "gains", False, False),
        (share(-1.0, 0.8, 1.0, 0.1), "regrets less", False, False),
        (share(-1.0, 0.1, 1.0, 0.1), "loses", True, False),
        # 4 standard errors are clear in 9 runs, and not in 3.
        (share(-1.0, 0.25, runs=9), "loses", True, False),
        (share(-1.0, 0.25, runs=3), "perhaps loses", False, True),
        # One test at 5 % would do; two tests do not.
        (share(-1.0, 0.4), "loses", True, False),
        (share(-1.0, 0.4, 0.0, 0.1), "perhaps loses", False, True),
        (Share("a", 9.0), "", False, False),
    ],
)
def test_verdicts(share: Share, verdict: str, loses: bool, doubtful: bool) -> None:
    assert (share.verdict, share.loses, share.doubtful) == (verdict, loses, doubtful)


PARTIES, TABLES = 10, 1000
GIVEN = example_market_record(runs=2)


def table(gain: np.ndarray, relief: np.ndarray) -> Joining:
    """What joining brought, (runs, parties), as a table."""
    shares = [
        Share(str(i), float(up.mean()), 0.0, gained=tuple(up.tolist()), saved=tuple(saved.tolist()))
        for i, (up, saved) in enumerate(zip(gain.T, relief.T, strict=True))
    ]
    return Joining(GIVEN, GIVEN, tuple(shares), shares[0], None)


@pytest.mark.parametrize("runs", [2, 3, 5, 20])
@pytest.mark.parametrize("tied", [0.0, 0.8])
def test_chance_names_nobody_in_95_of_100_tables(runs: int, tied: float) -> None:
    # Joining does nothing to ten parties; `tied` is the correlation of reward gained and regret
    # saved. Bounds are 5 % and 4 standard errors of so many tables; with 1.96 standard errors as
    # the limit 41 to 96 % of the tables named somebody, and 10 to 51 % of the verdicts were clear.
    rng = np.random.default_rng(100 * runs + int(10 * tied))
    named = clear = 0
    for _ in range(TABLES):
        luck, gain, relief = rng.normal(size=(3, runs, PARTIES))
        found = table(
            tied**0.5 * luck + gain * (1 - tied) ** 0.5,
            tied**0.5 * luck + relief * (1 - tied) ** 0.5,
        )
        named += bool(found.losers)
        clear += sum(not share.verdict.startswith("perhaps") for share in found.shares)
        assert set(found.losers) <= {share.party for share in found.shares if share.loses}
    assert named / TABLES < 0.05 + 4 * np.sqrt(0.05 * 0.95 / TABLES)
    assert clear / TABLES / PARTIES < 0.05 + 4 * np.sqrt(0.05 * 0.95 / TABLES / PARTIES)
    assert clear > 0


@pytest.mark.parametrize(("runs", "power"), [(5, 0.9), (20, 0.99)])
def test_a_party_that_loses_is_named_among_ten(runs: int, power: float) -> None:
    rng = np.random.default_rng(runs)
    effect = np.zeros(PARTIES)
    effect[3] = -8.0 if runs == 5 else -2.0
    found = [
        table(rng.normal(size=(runs, PARTIES)), rng.normal(size=(runs, PARTIES)) + effect)
        for _ in range(200)
    ]
    assert np.mean(["3" in one.losers for one in found]) >= power


def test_who_loses_only_when_looked_at_alone_is_doubtful() -> None:
    gain = np.zeros((6, 4))
    gain[:, 0] = [-1.0, -2.0, -0.5, -3.0, -0.2, -2.5]
    rest = np.array([1.0, -1.0, 1.1, -1.0, 1.0, -1.1])[:, None]
    found = table(gain + rest * [0.0, 1.0, 1.0, 1.0], rest * np.ones(4))
    assert found.shares[0].loses
    assert (found.losers, "0" in found.doubtful) == ((), True)
    assert "may be chance: 0" in found.sentence


def test_one_run_names_nobody() -> None:
    base, joined = (example_market_record(level=level, runs=1) for level in ("alone", "tight"))
    (found,) = joining([base, joined])
    assert [share.verdict for share in found.shares] == [
        *["more in this one run"] * 3,
        "less in this one run",
    ]
    assert found.whole.verdict == "more in this one run"
    assert (found.losers, found.doubtful) == ((), ("isles",))
    assert "isles" in found.sentence
    assert found.ratio is not None
    assert not found.ratio.known


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
        {"horizon": 500},
        {"problem": {"name": "elsewhere"}},
        {"parties": ("a", "b", "c", "d")},
        *({"config": {"policy": "alone", "horizon": 1000, name: "another"}} for name in BASELINE),
    ],
)
def test_what_is_not_alike_is_not_compared(other: dict[str, object]) -> None:
    found = joining([alone(**other), example_market_record()])
    assert [joined.baseline for joined in found] == [None, None]
    assert all(
        share.difference is None and share.verdict == ""
        for joined in found
        for share in joined.shares
    )
    assert found[1].shares[0].total is not None


def test_what_only_federation_hears_may_differ() -> None:
    config = {
        "policy": "alone",
        "budget": 1000,
        "path": "compiled",
        "epsilon": 3,
        "coefficient": 0.5,
    }
    joined = example_market_record(config={"policy": "p-fcb", "budget": 1000, "coefficient": 0.5})
    (found,) = joining([alone(config=config), joined])
    assert found.baseline is not None


def test_without_a_record_alone_the_parties_are_still_shown() -> None:
    (found,) = joining([example_market_record()])
    assert (found.baseline, found.ratio, found.losers) == (None, None, ())
    assert [share.total for share in found.shares] == pytest.approx(
        example_market_record().party_total.mean(axis=0)  # type: ignore[union-attr]
    )


def test_of_two_records_alone_the_first_is_the_baseline() -> None:
    records = [alone(id="0a"), example_market_record(id="0b"), alone(id="0c")]
    found = [
        (joined.record.id, joined.baseline.id if joined.baseline else "")
        for joined in joining(records)
    ]
    assert found == [("0b", "0a"), ("0c", "0a")]
    assert [joined.record.id for joined in joining(records[:1])] == ["0a"]


def test_regret_that_is_zero_or_unknown_gives_no_ratio() -> None:
    (unknown,) = joining([alone(party_regret=None), example_market_record()])
    (zero,) = joining([alone(party_regret=np.zeros((6, 4))), example_market_record()])
    assert unknown.ratio is zero.ratio is None
    assert unknown.shares[0].ratio is zero.shares[0].ratio is None
    assert unknown.losers == ("isles",)
