"""What the server takes, refuses and discards, and what it holds at every stage."""

from __future__ import annotations

from itertools import combinations

import msgspec
import numpy as np
import pytest

from posse.core.errors import ProtocolError
from posse.core.roles import OPERATOR, Note
from posse.privacy.aggregation.masks import RoundKeys, add_streams, self_stream
from posse.privacy.aggregation.messages import Complaint, Masked, StageOver, Survivors
from posse.privacy.aggregation.server import Server, leftovers
from posse.privacy.aggregation.terms import Stage, complete_plan
from tests.privacy.aggregation.rounds import LENGTH, Round, plain_sum

replace = msgspec.structs.replace


def _refuse(server: Server, sender: str, message, match: str) -> None:
    before = _everything(server)
    with pytest.raises(ProtocolError, match=match):
        server.receive(sender, message)
    assert _everything(server) == before


def _everything(server: Server) -> list[bytes]:
    """All strings of bytes and arrays that the server holds, wherever they are."""
    found: list[bytes] = []

    def walk(value: object) -> None:
        if isinstance(value, np.ndarray):
            found.append(value.tobytes())
        elif isinstance(value, bytes):
            found.append(value)
        elif isinstance(value, str):
            found.append(value.encode())
        elif isinstance(value, int | float):
            found.append(repr(value).encode())
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(key)
                walk(item)
        elif isinstance(value, list | tuple | set | frozenset):
            for item in value:
                walk(item)
        elif isinstance(value, msgspec.Struct):
            walk(msgspec.structs.astuple(value))
        else:
            assert value is server._terms, type(value)  # public

    for name, value in vars(server).items():
        walk(name)
        walk(value)
    return found


def test_the_server_never_holds_a_vector_or_a_partial_sum():
    """At every message of every stage, against all sums of some of the clients' vectors, in both
    byte orders.
    """
    game = Round(5)
    names = game.terms.clients
    partial = {
        form
        for count in range(1, 5)
        for some in combinations(names, count)
        for total in [plain_sum(game.vectors, some)]
        for form in (total.tobytes(), total.byteswap().tobytes())
    }
    whole = plain_sum(game.vectors, names).tobytes()
    looked = 0

    def look(finished: bool = False) -> None:
        nonlocal looked
        looked += 1
        held = b"|".join(_everything(game.server))
        assert not any(form in held for form in partial)
        assert (whole in held) == finished

    while not game.server.finished:
        for name, message in game.sent.items():
            game.server.receive(name, message)
            look()
        game.sent = {}
        game.close()
        look(game.server.finished)
        game.answer()
    assert looked == 5 * 6
    # the look would find one: a server that stored what it adds up
    game.server._sum = game.vectors["c001"]
    assert any(form in b"|".join(_everything(game.server)) for form in partial)


def test_what_was_masked_is_not_opened_by_all_that_the_server_learns():
    """One client is declared dropped and its vector arrives late: the server has its masking key,
    and not its seed.
    """
    game = Round(5).until(Stage.MASKED)
    game.answer()
    late = game.sent["c002"]
    game.deliver(skip=["c002"])
    game.close()
    (note,) = game.server.receive("c002", late)
    assert note == Note("server", "late", int(Stage.MASKED), "c002")
    game.answer()
    game.deliver()
    game.close()
    game.answer()
    game.deliver()
    server = game.server
    streams = list(
        leftovers(
            game.terms, server._keys, server._came[Stage.SHARES], server.survivors, server._shown
        )
    )
    game.close()
    assert server.survivors == ("c000", "c001", "c003", "c004")
    assert (server.total == plain_sum(game.vectors, server.survivors)).all()
    # all pairwise masks of c002 are known to the server now; taken off, the self-mask is still
    # there
    pairwise = streams[4:]
    assert len(pairwise) == 4
    words = np.frombuffer(late.words, "<u4").astype(np.uint32)
    add_streams(words, pairwise)  # at c002 they have the other sign
    assert (words != game.vectors["c002"]).all()
    add_streams(words, [(self_stream(game.clients["c002"]._own.self_seed), -1)])
    assert (words == game.vectors["c002"]).all()  # the seed is what it lacks


def test_late_messages_of_every_stage_are_discarded():
    game = Round(5)
    late = None
    for stage in list(Stage)[:5]:
        lost = ["c004"] if stage == Stage.UNMASK else []
        late = game.sent["c004"] if lost else late
        game.deliver(skip=lost)
        game.close()
        game.answer()
    before = _everything(game.server)
    (note,) = game.server.receive("c004", late)
    assert (note.kind, note.value) == ("late", "c004")
    assert _everything(game.server) == before
    assert (game.server.total == plain_sum(game.vectors, game.terms.clients)).all()


def test_replays_are_refused_at_every_stage_and_afterwards():
    game = Round(5)
    kept = []
    while not game.server.finished:
        first = game.sent["c001"]
        game.deliver()
        kept.append(first)
        for message in kept:
            _refuse(game.server, "c001", message, "already; a round takes one")
        game.close()
        game.answer()
    for message in kept:
        _refuse(game.server, "c001", message, "already; a round takes one")


def test_forged_and_misplaced_messages_are_refused():
    game = Round(5)
    keys = game.sent["c001"]
    _refuse(game.server, "mallory", keys, "expects of nobody")
    _refuse(game.server, "c002", keys, "signature on the aggregation keys does not verify")
    _refuse(game.server, "c001", replace(keys, terms=bytes(32)), "another round")
    _refuse(
        game.server,
        "c001",
        Masked(game.terms.digest, bytes(4 * LENGTH)),
        "has not done what comes before",
    )
    _refuse(game.server, "c001", Survivors(game.terms.digest, ()), "expects of nobody")
    game.until(Stage.SHARES)
    game.answer()
    shares = game.sent["c001"]
    _refuse(game.server, "c001", replace(shares, frames=shares.frames[1:]), "shared with others")
    cut = tuple((name, frame[1:]) for name, frame in shares.frames)
    _refuse(game.server, "c001", replace(shares, frames=cut), "have not 82 bytes")
    game.deliver()
    game.close()
    game.answer()
    _refuse(game.server, "c001", Masked(game.terms.digest, bytes(4)), "4 bytes for 5 words of 4")
    for names in ((), ("c001",), ("mallory",)):
        _refuse(
            game.server,
            "c001",
            Complaint(game.terms.digest, names),
            "complains of clients that shared nothing",
        )
    game.deliver()
    game.close()
    game.answer()
    _refuse(
        game.server, "c001", game.sent["c002"], "signature on the set of survivors does not verify"
    )
    game.deliver()
    game.close()
    game.answer()
    shown = game.sent["c001"]
    _refuse(
        game.server,
        "c001",
        replace(shown, self_masks=shown.self_masks[1:]),
        "other shares than it was asked for",
    )
    short = tuple((name, share[1:]) for name, share in shown.self_masks)
    _refuse(game.server, "c001", replace(shown, self_masks=short), "have not 33 bytes")
    game.deliver()
    game.close()
    assert game.server.finished


def test_a_client_that_skipped_a_stage_is_refused():
    game = Round(5, complete_plan(5, corrupt=0, dropouts=2)).until(Stage.SHARES)
    game.answer()
    game.deliver(skip=["c004"])
    game.close()
    _refuse(
        game.server,
        "c004",
        Masked(game.terms.digest, bytes(4 * LENGTH)),
        "has not done what comes before",
    )


@pytest.mark.parametrize("kind", ["self_masks", "mask_keys"])
def test_a_wrong_share_without_one_to_spare_ends_the_round_instead_of_spoiling_the_sum(kind):
    game = Round(5).until(Stage.MASKED)
    game.answer()
    game.deliver(skip=["c004"])
    game.close()
    game.answer()
    game.deliver()
    game.close()
    game.answer()
    shown = game.sent["c001"]
    name, share = getattr(shown, kind)[0]
    wrong = ((name, share[:-1] + bytes([share[-1] ^ 1])), *getattr(shown, kind)[1:])
    game.sent["c001"] = replace(shown, **{kind: wrong})
    game.deliver()
    masked = game.server._sum.copy()
    with pytest.raises(
        ProtocolError,
        match=f"a secret of {name} do not give what it signed|not those of one secret",
    ):
        game.close()
    assert (game.server._sum == masked).all()
    assert not game.server.finished
    assert game.server.suspects == (), "it may have been anyone"


def _to_the_end(game: Round, lie, liars, lost=()) -> None:
    """Play on; liars alter their shares, the lost ones are gone before they send a vector."""
    while not game.server.finished:
        if game.server.stage == Stage.UNMASK:
            game.sent |= {name: lie(game.sent[name]) for name in liars}
        game.deliver(skip=lost if game.server.stage == Stage.MASKED else ())
        game.close()
        game.answer()


def _wrong(shares):
    return tuple((name, share[:-1] + bytes([share[-1] ^ 1])) for name, share in shares)


@pytest.mark.parametrize(
    "liars", [["c000"], ["c002"], ["c006"], ["c000", "c001"], ["c001", "c004"]]
)
@pytest.mark.parametrize("kind", ["self_masks", "mask_keys"])
def test_wrong_shares_are_left_out_as_long_as_some_are_to_spare(kind, liars):
    game = Round(8, complete_plan(8, corrupt=2, dropouts=3))
    _to_the_end(
        game,
        lambda shown: replace(shown, **{kind: _wrong(getattr(shown, kind))}),
        liars,
        lost=["c007"],
    )
    assert game.server.survivors == game.terms.clients[:7]
    assert (game.server.total == plain_sum(game.vectors, game.server.survivors)).all()


def test_shares_above_the_prime_are_left_out():
    game = Round(5)
    _to_the_end(
        game,
        lambda shown: replace(shown, self_masks=(("c000", b"\xff" * 33), *shown.self_masks[1:])),
        ["c003"],
    )
    assert (game.server.total == plain_sum(game.vectors, game.terms.clients)).all()


def _sealed(game: Round, sender: str, receivers, plaintext: bytes) -> None:
    """Replace what a client sealed for some."""
    own = RoundKeys(sender, game.terms, game.roots[sender])
    keys = dict(game.told[sender].keys)
    frames = {
        **dict(game.sent[sender].frames),
        **{name: own.seal(name, keys[name].sealing, plaintext) for name in receivers},
    }
    game.sent[sender] = replace(game.sent[sender], frames=tuple(sorted(frames.items())))


def test_whoever_deals_shares_of_nothing_is_suspected():
    game = Round(5).until(Stage.SHARES)
    game.answer()
    _sealed(
        game, "c002", ["c000", "c001", "c003", "c004"], b"\x00" + b"g" * 32 + b"\x00" + b"h" * 32
    )
    with pytest.raises(
        ProtocolError, match=r"a secret of c002 do not give what it signed.* again without c002"
    ):
        _to_the_end(game, None, [])
    assert game.server.suspects == ("c002",)


@pytest.mark.parametrize(
    ("garbled", "suspects"),
    [
        ({"c002": ["c000", "c001", "c003", "c004"]}, ("c002",)),
        ({"c002": ["c000", "c001"]}, ("c002",)),
        ({"c002": ["c000"]}, ("c000", "c002")),
        ({"c001": ["c000"], "c002": ["c000"]}, ("c000",)),
    ],
    ids=["all say so", "more than corrupt say so", "one against one", "one against many"],
)
def test_of_a_complaint_whoever_can_be_at_fault_is_suspected(garbled, suspects):
    """One corrupt of five: two who agree are right, one who accuses two is wrong; else either may
    be.
    """
    game = Round(5).until(Stage.SHARES)
    game.answer()
    for sender, receivers in garbled.items():
        frames = tuple(
            (name, bytes(82) if name in receivers else frame)
            for name, frame in game.sent[sender].frames
        )
        game.sent[sender] = replace(game.sent[sender], frames=frames)
    game.deliver()
    game.close()
    game.answer()
    game.deliver()
    assert game.server.suspects == suspects
    complained = {name for receivers in garbled.values() for name in receivers}
    assert set(game.server.survivors) == set(game.terms.clients) - complained
    _refuse(
        game.server,
        "c000",
        Masked(game.terms.digest, bytes(4 * LENGTH)),
        "already; a round takes one",
    )
    if len(complained) == 1:  # it counts as lost, and the sum is that of the others
        game.close()
        game.answer()
        _to_the_end(game, None, [])
        assert (game.server.total == plain_sum(game.vectors, game.server.survivors)).all()


def test_an_early_close_leaves_the_stage_open():
    game = Round(5)
    messages = dict(game.sent)
    for name in ("c000", "c001", "c002"):
        game.server.receive(name, messages[name])
    assert game.server.state()["waiting for"] == ["c003", "c004"]
    with pytest.raises(
        ProtocolError, match=r"stage keys needs 4 of 5 clients, got 3 \(missing: c003, c004\)"
    ):
        game.server.receive(OPERATOR, StageOver(0))
    game.server.receive("c003", messages["c003"])
    assert len(game.server.receive(OPERATOR, StageOver(0))) == 4
    assert game.server.state()["stage"] == "shares"
    assert game.server.state()["waiting for"] == ["c000", "c001", "c002", "c003"]


def test_a_stage_is_closed_once_and_by_its_name():
    game = Round(5)
    with pytest.raises(ProtocolError, match="stage 1 is to be closed, and the round is at 0"):
        game.server.close(1)
    with pytest.raises(ProtocolError, match="has no sum yet"):
        game.server.total
    assert game.server.start() == ()
    while not game.server.finished:
        game.deliver()
        game.close()
        game.answer()
    with pytest.raises(ProtocolError, match="to be closed"):
        game.server.close(5)
    assert game.server.state()["waiting for"] == []
