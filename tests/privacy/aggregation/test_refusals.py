"""What a client refuses, and that a refusal changes nothing."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from posse.core.errors import ConfigError, JournalError, ProtocolError
from posse.core.roles import WORLD
from posse.privacy.aggregation.client import Client
from posse.privacy.aggregation.masks import PURPOSE_SURVIVORS, RoundKeys
from posse.privacy.aggregation.messages import (
    Complaint,
    Contribution,
    Delivery,
    Keys,
    Signed,
    Survivors,
    Unmask,
)
from posse.privacy.aggregation.terms import Stage, complete_plan
from posse.privacy.crypto.keys import Identity, Secrets
from tests.privacy.aggregation.rounds import LENGTH, Round

ME = "c000"
replace = msgspec.structs.replace


def _refuse(game: Round, message, match: str, name: str = ME, error=ProtocolError) -> None:
    """The message is refused with the state as it was, and the right one is still answered."""
    before = game.clients[name].save()
    with pytest.raises(error, match=match):
        game.clients[name].receive("server", message)
    assert game.clients[name].save() == before


def test_a_second_unmask_request_is_refused():
    game = Round().until(Stage.UNMASK)
    asked = game.told[ME]
    game.say(ME, asked)
    _refuse(game, asked, "takes one Unmask a round")
    assert game.clients[ME].finished
    assert game.clients[ME].save()["held"] == [], "shares are not kept"


def test_a_request_for_both_shares_is_refused():
    game = Round().until(Stage.MASKED)
    game.answer()
    game.deliver(skip=["c003"])
    game.close()
    game.answer()
    game.deliver()
    game.close()
    asked = game.told[ME]
    assert asked.mask_keys == ("c003",)
    for name in ("c001", "c003", ME):
        greedy = replace(
            asked,
            self_masks=tuple(sorted({*asked.self_masks, name})),
            mask_keys=tuple(sorted({*asked.mask_keys, name})),
        )
        _refuse(game, greedy, f"both shares of '{name}'")
    shown = game.say(ME, asked)
    assert not {name for name, _ in shown.self_masks} & {name for name, _ in shown.mask_keys}


def test_the_other_share_of_anyone_is_refused():
    game = Round().until(Stage.UNMASK)
    asked = game.told[ME]
    swapped = replace(asked, self_masks=asked.self_masks[:-1], mask_keys=asked.self_masks[-1:])
    _refuse(game, swapped, "another choice")
    _refuse(game, replace(asked, self_masks=asked.self_masks[:-1]), "another choice")
    game.say(ME, asked)


def test_a_second_set_of_survivors_is_refused():
    game = Round().until(Stage.SURVIVORS)
    first = game.told[ME]
    game.say(ME, first)
    _refuse(game, replace(first, names=first.names[:-1]), "takes one Survivors a round")
    _refuse(game, first, "takes one Survivors a round")


def test_sets_of_survivors_that_are_not_signed():
    game = Round().until(Stage.SURVIVORS)
    terms, names = game.terms.digest, game.terms.clients
    _refuse(game, Survivors(terms, names[:3]), "at least 4 survivors, got 3")
    _refuse(game, Survivors(terms, names[1:]), "c000 was declared dropped")
    _refuse(game, Survivors(terms, names[::-1]), "alphabetical order")
    _refuse(game, Survivors(terms, (*names, "mallory")), "clients of the round")
    _refuse(game, Survivors(terms, (*names, names[-1])), "each once")
    game.say(ME, game.told[ME])


def test_a_survivor_that_never_shared_is_refused():
    game = Round().until(Stage.SHARES)
    game.answer()
    game.deliver(skip=["c004"])
    game.close()
    game.say(ME, game.told[ME])
    _refuse(
        game,
        Survivors(game.terms.digest, game.terms.clients),
        "'c004' is said to survive and shared nothing",
    )


def test_the_quorum_must_have_signed_this_very_set():
    game = Round().until(Stage.UNMASK)
    asked, quorum = game.told[ME], game.terms.plan.quorum
    assert quorum == len(asked.signatures) == 4
    _refuse(
        game,
        replace(asked, signatures=asked.signatures[:-1]),
        "wants 4 signatures on the set of survivors, got 3",
    )
    doubled = (*asked.signatures[:-1], asked.signatures[0])
    _refuse(game, replace(asked, signatures=doubled), "two things of one client")
    other = game.terms.survivors_digest(game.terms.clients[:4])
    forged = (
        *asked.signatures[:-1],
        ("c003", game.cohort.identities["c003"].sign(PURPOSE_SURVIVORS, other)),
    )
    _refuse(
        game, replace(asked, signatures=forged), "signature on the set of survivors does not verify"
    )
    stranger = (*asked.signatures[:-1], ("mallory", asked.signatures[0][1]))
    _refuse(game, replace(asked, signatures=stranger), "'mallory', of whom it expects nothing")
    game.say(ME, asked)


def test_two_sets_cannot_both_have_a_quorum():
    """A server that shows two sets of survivors to two halves, with one corrupt client signing
    both, gets nowhere.
    """
    game = Round().until(Stage.SURVIVORS)
    terms, names = game.terms, game.terms.clients
    sets = names, tuple(name for name in names if name != "c004")
    corrupt = game.cohort.identities["c003"]
    signed: list[dict[str, bytes]] = [
        {"c003": corrupt.sign(PURPOSE_SURVIVORS, terms.survivors_digest(shown))} for shown in sets
    ]
    for name, which in (("c000", 0), ("c001", 0), ("c002", 1), ("c004", 0)):
        signed[which][name] = game.say(name, Survivors(terms.digest, sets[which])).signature
    assert [len(part) for part in signed] == [4, 2]
    asked = game.clients["c002"]
    wrong = Unmask(terms.digest, sets[1], ("c004",), tuple(sorted(signed[1].items())))
    with pytest.raises(ProtocolError, match="wants 4 signatures"):
        asked.receive("server", wrong)
    borrowed = tuple(sorted({**signed[0], **signed[1]}.items()))
    with pytest.raises(ProtocolError, match="does not verify"):
        asked.receive("server", replace(wrong, signatures=borrowed[:4]))


def test_messages_of_another_round_are_refused():
    here, there = Round(round=1), Round(round=2)
    for stage in list(Stage)[1:5]:
        here.until(stage)
        there.until(stage)
        _refuse(here, there.told[ME], "is in round 1, got a .* of another one")
        here.answer()
        there.answer()
        with pytest.raises(ProtocolError, match="another round"):
            here.server.receive(ME, there.sent[ME])


def test_keys_of_another_round_do_not_pass_under_this_rounds_name():
    here, there = Round(round=1).until(Stage.SHARES), Round(round=2).until(Stage.SHARES)
    _refuse(here, Keys(here.terms.digest, there.told[ME].keys), "of another round")
    relabelled = tuple(
        (name, replace(key, terms=here.terms.digest)) for name, key in there.told[ME].keys
    )
    _refuse(
        here,
        Keys(here.terms.digest, relabelled),
        "signature on the aggregation keys does not verify",
    )


def test_keys_with_a_wrong_signature_are_refused():
    game = Round().until(Stage.SHARES)
    (name, keys), *rest = game.told[ME].keys
    mallory = RoundKeys(name, game.terms, Secrets.fresh())
    for bad, match in (
        (mallory.advertise(Identity()), "does not verify"),
        (mallory.advertise(game.cohort.identities["c002"]), "does not verify"),
        (replace(keys, masking=keys.sealing), "three different strings"),
        (replace(keys, masking=keys.masking[:31]), "32 bytes"),
        (replace(keys, commitment=bytes(32)), "does not verify"),
        (rest[0][1], "does not verify"),
    ):
        _refuse(game, Keys(game.terms.digest, ((name, bad), *rest)), match)
    _refuse(
        game,
        Keys(game.terms.digest, (*game.told[ME].keys, (name, keys))),
        "two things of one client",
    )
    _refuse(game, Keys(game.terms.digest, (*rest, ("mallory", keys))), "'mallory'")
    _refuse(
        game,
        Keys(game.terms.digest, tuple(rest[:2])),
        "needs 4 holders of its shares, itself among them, got 3",
    )
    game.say(ME, game.told[ME])


def _complains(game: Round, *bad: tuple[str, bytes]) -> None:
    """These frames among the right ones end the client's part, which says whose they are and keeps
    nothing.
    """
    frames = {**dict(game.told[ME].frames), **dict(bad)}
    answer = game.say(ME, Delivery(game.terms.digest, tuple(sorted(frames.items()))))
    assert answer == Complaint(game.terms.digest, tuple(sorted(name for name, _ in bad)))
    assert game.clients[ME].finished
    assert game.clients[ME].save()["held"] == []


def test_shares_that_were_altered_or_moved_end_the_clients_part():
    game = Round().until(Stage.MASKED)
    (name, frame), (second, _), *_ = game.told[ME].frames
    _complains(game, (name, frame[:-1] + bytes([frame[-1] ^ 1])))
    game = Round().until(Stage.MASKED)
    frames = dict(game.told[ME].frames)
    _complains(game, (name, frames[second]), (second, frames[name]))
    game = Round().until(Stage.MASKED)
    _complains(
        game, (name, dict(game.told["c004"].frames)[name])
    )  # what the same client sealed for someone else


def test_shares_that_go_back_to_their_sender_do_not_open():
    """Each direction has a key of its own."""
    game = Round().until(Stage.SHARES)
    game.answer()
    mine = dict(game.sent[ME].frames)["c001"]
    game.deliver()
    game.close()
    _complains(game, ("c001", mine))


@pytest.mark.parametrize("size", [0, 65, 67])
def test_sealed_bytes_that_are_not_two_shares_are_no_shares(size):
    game = Round().until(Stage.MASKED)
    other = RoundKeys("c001", game.terms, game.roots["c001"])
    _complains(game, ("c001", other.seal(ME, _sealing(game), bytes(size))))


def _sealing(game: Round) -> bytes:
    return RoundKeys(ME, game.terms, game.roots[ME]).advertise(game.cohort.identities[ME]).sealing


def test_a_delivery_of_too_few_is_refused():
    game = Round().until(Stage.MASKED)
    _refuse(game, Delivery(game.terms.digest, game.told[ME].frames[:2]), "needs 4 holders")
    game.say(ME, game.told[ME])


def test_a_client_with_another_subject_is_of_another_round():
    """What vectors are computed from is in the digest that keys and sets are signed with."""
    game = Round().until(Stage.SHARES)
    other = dataclasses.replace(game.terms, subject=b"s" * 32)
    (name, _), *rest = game.told[ME].keys
    told = RoundKeys(name, other, game.roots[name]).advertise(game.cohort.identities[name])
    _refuse(game, Keys(game.terms.digest, ((name, told), *rest)), "of another round")
    relabelled = replace(told, terms=game.terms.digest)
    _refuse(game, Keys(game.terms.digest, ((name, relabelled), *rest)), "does not verify")
    with pytest.raises(ConfigError, match="32 bytes, got 3"):
        dataclasses.replace(game.terms, subject=b"abc")


def test_messages_out_of_turn_and_of_strangers_are_refused():
    game = Round().until(Stage.SHARES)
    client = game.clients[ME]
    with pytest.raises(ProtocolError, match="one start"):
        client.start()
    with pytest.raises(ProtocolError, match="listens to 'server'"):
        client.receive("c001", game.told[ME])
    with pytest.raises(ProtocolError, match="nothing that a server sends"):
        client.receive("server", Signed(game.terms.digest, b""))
    with pytest.raises(ProtocolError, match="when it asks for it"):
        client.receive(WORLD, Contribution(0, bytes(4 * LENGTH)))
    game.say(ME, game.told[ME])
    _refuse(game, game.told[ME], "takes one Keys a round")


def test_one_vector_a_round():
    game = Round(round=3).until(Stage.MASKED)
    client = game.clients[ME]
    client.receive("server", game.told[ME])
    _refuse(game, game.told[ME], "takes one Delivery")
    for words, number in ((bytes(4 * LENGTH), 4), (bytes(4), 3)):
        with pytest.raises(ProtocolError):
            client.receive(WORLD, Contribution(number, words))
    client.receive(WORLD, Contribution(3, bytes(4 * LENGTH)))
    with pytest.raises(ProtocolError, match="gives one vector"):
        client.receive(WORLD, Contribution(3, bytes(4 * LENGTH)))


def test_an_identity_that_the_terms_do_not_list_is_refused():
    game = Round()
    with pytest.raises(ConfigError, match="do not list 'c000' with this identity"):
        Client(ME, game.terms, Identity(), Secrets.fresh())
    with pytest.raises(ConfigError, match="do not list 'mallory'"):
        Client("mallory", game.terms, Identity(), Secrets.fresh())


def test_a_client_goes_on_from_its_snapshot_at_every_stage():
    game = Round()
    while not game.server.finished:
        for name in game.clients:
            saved = msgspec.msgpack.decode(msgspec.msgpack.encode(game.clients[name].save()))
            game.clients[name] = game.client(name)
            game.clients[name].load(saved)
            assert game.clients[name].save() == saved
        game.deliver()
        game.close()
        game.answer()
    assert game.server.survivors == game.terms.clients
    assert all(client.finished for client in game.clients.values())


def test_snapshots_of_others_and_damaged_ones_are_refused():
    game = Round().until(Stage.MASKED)
    saved = game.clients[ME].save()
    with pytest.raises(JournalError, match="is of client 'c000'"):
        game.client("c001").load(saved)
    game.roots[ME] = Secrets.fresh()
    with pytest.raises(JournalError, match="another run"):
        game.client(ME).load(saved)
    game = Round(plan=complete_plan(5, corrupt=0, dropouts=2))
    with pytest.raises(JournalError, match="names a stage"):
        game.client(ME).load({**game.clients[ME].save(), "stage": 9})
    game.until(Stage.MASKED)
    saved = game.clients[ME].save()
    stranger = {**saved, "keys": (*saved["keys"], ("mallory", saved["keys"][0][1]))}
    with pytest.raises(JournalError, match="clients that the terms do not"):
        game.client(ME).load(stranger)
    game.client(ME).load(saved)


def test_the_state_for_an_operator_holds_no_secret():
    game = Round().until(Stage.UNMASK)
    assert game.clients[ME].state() == {
        "round": 0,
        "stage": "unmask",
        "neighbours": 4,
        "survivors": 5,
    }
