from __future__ import annotations

import hmac
import pickle
import struct
from dataclasses import replace
from functools import reduce
from operator import or_

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from posse.core.errors import ConfigError, ProtocolError
from posse.core.roles import WORLD
from posse.privacy.aggregation.masks import (
    PURPOSE_KEYS,
    RoundKeys,
    _signed,
    add_streams,
    check_advertised,
    pair_stream,
    self_stream,
)
from posse.privacy.aggregation.messages import MESSAGES, Advertise, Complaint, Contribution
from posse.privacy.aggregation.shamir import PRIME, reconstruct
from posse.privacy.aggregation.terms import Stage, complete_plan
from posse.privacy.crypto.keys import Secrets
from posse.privacy.crypto.streams import keystream
from tests.privacy.aggregation.rounds import LENGTH, Round, cohort


@pytest.mark.parametrize("length", [1, 3, 8191, 8192, 8193, 20_000])
def test_streams_are_the_key_stream_read_as_words(length):
    words = np.arange(length, dtype=np.uint32)
    add_streams(words, [(b"k" * 32, 1)])
    expected = np.frombuffer(keystream(b"k" * 32, 0, 4 * length), "<u4")
    assert (words == np.arange(length, dtype=np.uint32) + expected).all()
    add_streams(words, [(b"k" * 32, -1)])
    assert (words == np.arange(length)).all()


def test_vector():
    """HKDF by its two HMACs and the stream by single AES blocks, next to the numbers themselves."""
    words = np.zeros(8, np.uint32)
    add_streams(words, [(self_stream(bytes(32)), 1)])
    extracted = hmac.digest(bytes(32), bytes(32), "sha256")
    key = hmac.digest(extracted, b"posse aggregation self mask" + b"\x01", "sha256")
    block = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    stream = block.update(bytes(16)) + block.update(bytes(15) + b"\x01")
    assert words.tolist() == list(struct.unpack("<8I", stream))
    assert words[[0, 1, 3]].tolist() == [2876674362, 254661857, 3767147855]


def test_masks_of_two_ends_cancel_and_of_two_rounds_differ():
    here = cohort(3)
    first, second = (
        here.terms(complete_plan(3, corrupt=0, dropouts=0), LENGTH, round=at) for at in range(2)
    )
    roots = {name: Secrets.fresh() for name in first.clients}

    def stream(terms, me: str, other: str) -> np.ndarray:
        mine, theirs = (RoundKeys(name, terms, roots[name]) for name in (me, other))
        words = np.zeros(LENGTH, np.uint32)
        add_streams(
            words, [pair_stream(mine._masking.private, me, other, theirs._masking.public, terms)]
        )
        return words

    assert not (stream(first, "c000", "c001") + stream(first, "c001", "c000")).any()
    assert (stream(first, "c000", "c001") != stream(second, "c000", "c001")).all()
    assert (stream(first, "c000", "c001") != stream(first, "c000", "c002")).all()
    keys = [RoundKeys("c000", terms, roots["c000"]) for terms in (first, second)]
    assert keys[0].self_seed != keys[1].self_seed
    assert keys[0]._masking.public != keys[1]._masking.public
    assert keys[0]._sealing.public != keys[1]._sealing.public
    assert keys[0]._sealing.public != keys[0]._masking.public


def test_one_vector_is_masked_differently_in_two_rounds_with_the_same_secrets():
    games = [Round(3, complete_plan(3, corrupt=0, dropouts=0), round=at) for at in range(2)]
    games[1].roots = games[0].roots
    games[1].clients = {name: games[1].client(name) for name in games[1].terms.clients}
    games[1].sent = {name: client.start()[0][2] for name, client in games[1].clients.items()}
    masked = []
    for game in games:
        game.until(Stage.MASKED)
        client = game.clients["c000"]
        client.receive("server", game.told["c000"])
        ((_, _, message),) = client.receive(
            WORLD, Contribution(game.terms.round, bytes(4 * LENGTH))
        )
        masked.append(np.frombuffer(message.words, "<u4"))
    assert (masked[0] != masked[1]).all()
    assert masked[0].all()


def test_masked_zeros_look_uniform():
    """Top bits of 4,000 words of a masked vector of zeros: half of them set, within five standard
    errors.
    """
    words = np.zeros(4000, np.uint32)
    add_streams(words, [(bytes([at]) * 32, 1 if at % 2 else -1) for at in range(5)])
    bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(4000)


def test_a_neighbour_with_my_own_key_or_a_small_point_is_refused():
    game = Round(3, complete_plan(3, corrupt=0, dropouts=0))
    keys = RoundKeys("c000", game.terms, game.roots["c000"])
    with pytest.raises(ProtocolError, match="public key of"):
        keys.seal("c001", keys._sealing.public, b"")
    with pytest.raises(ProtocolError, match="small order"):
        keys.seal("c001", bytes(32), b"")


def test_keys_do_not_leave_their_process():
    game = Round(3, complete_plan(3, corrupt=0, dropouts=0))
    with pytest.raises(TypeError, match="do not leave"):
        pickle.dumps(RoundKeys("c000", game.terms, game.roots["c000"]))


def test_terms_have_one_digest_for_one_round():
    game = Round(3, complete_plan(3, corrupt=0, dropouts=0))
    terms = game.terms
    digests = {terms.digest} | {
        replace(terms, **change).digest
        for change in (
            {"round": 1},
            {"run": "other"},
            {"length": 6},
            {"seed": b"s" * 32},
            {"identities": terms.identities[::-1]},
            {"plan": complete_plan(3, corrupt=1, dropouts=0)},
            {"clients": ("c000", "c001", "c003")},
            {"subject": b"s" * 32},
        )
    }
    assert len(digests) == 9
    for wrong in (
        {"clients": ("c001", "c000", "c002")},
        {"clients": ("", "c000", "c002")},
        {"identities": (terms.identities[0],) * 3},
        {"seed": b""},
        {"length": 0},
    ):
        with pytest.raises(ConfigError):
            replace(terms, **wrong)


def test_every_message_travels():
    """Encoded and decoded as a union of all, each one that a round sends is the same."""
    decoder = msgspec.msgpack.Decoder(reduce(or_, MESSAGES))
    game, seen = Round(3, complete_plan(3, corrupt=0, dropouts=0)), set()
    while not game.server.finished:
        for message in (*game.sent.values(), *game.told.values()):
            assert decoder.decode(msgspec.msgpack.encode(message)) == message
            seen.add(type(message).__name__)
        game.deliver()
        game.close()
        game.answer()
    assert decoder.decode(msgspec.msgpack.encode(Complaint(b"t", ("c001",)))) == Complaint(
        b"t", ("c001",)
    )
    assert seen == {
        "Advertise",
        "Keys",
        "Shares",
        "Delivery",
        "Masked",
        "Survivors",
        "Signed",
        "Unmask",
        "Shown",
    }


def test_the_two_secrets_of_a_client_have_polynomials_of_their_own():
    """With one polynomial for both, a holder's shares would differ by the difference of the
    secrets.
    """
    game = Round(5)
    keys = RoundKeys("c000", game.terms, game.roots["c000"])
    pairs = [(both[:33], both[33:]) for both in keys.shares(game.terms.clients).values()]
    assert (
        len(
            {
                (int.from_bytes(seed, "big") - int.from_bytes(key, "big")) % PRIME
                for seed, key in pairs
            }
        )
        == 5
    )
    seeds, privates = ({place: pair[at] for place, pair in enumerate(pairs, 1)} for at in range(2))
    assert reconstruct(seeds, 4) == keys.self_seed
    assert reconstruct(privates, 4) == keys._masking.private.private_bytes_raw()


def test_polynomials_of_two_rounds_have_nothing_in_common():
    """With one polynomial, two shares would differ by the same in both rounds whatever the
    secrets.
    """
    here, root = cohort(3), Secrets.fresh()
    apart = []
    for at in range(2):
        terms = here.terms(complete_plan(3, corrupt=0, dropouts=0), LENGTH, round=at)
        one, other, _ = RoundKeys("c000", terms, root).shares(terms.clients).values()
        apart += [
            (int.from_bytes(one[cut], "big") - int.from_bytes(other[cut], "big")) % PRIME
            for cut in (HALF, REST)
        ]
    assert len(set(apart)) == 4


HALF, REST = slice(33), slice(33, None)
SMALL_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


@pytest.mark.parametrize("point", SMALL_ORDER)
@pytest.mark.parametrize("which", [0, 1])
def test_keys_of_small_order_are_refused_though_they_are_signed(point, which):
    game = Round(3, complete_plan(3, corrupt=0, dropouts=0))
    keys, identity = game.sent["c001"], game.cohort.identities["c001"]
    public = [
        point if at == which else part for at, part in enumerate((keys.sealing, keys.masking))
    ]
    signature = identity.sign(PURPOSE_KEYS, _signed(game.terms, "c001", *public, keys.commitment))
    with pytest.raises(ProtocolError, match="a key of c001 is a point of small order"):
        game.server.receive("c001", Advertise(keys.terms, *public, keys.commitment, signature))


def test_keys_signed_for_one_name_are_not_those_of_another():
    """The identity alone does not say for whom keys were made: a client may be known by two names
    in its life.
    """
    terms = cohort(3).terms(complete_plan(3, corrupt=0, dropouts=0), LENGTH)
    one, other = terms.clients[:2]
    keys = RoundKeys(one, terms, Secrets.fresh()).advertise(cohort(3).identities[other])
    with pytest.raises(ProtocolError, match="does not verify"):
        check_advertised(other, keys, terms)


def test_a_commitment_is_bound_to_the_client_that_made_it():
    """A client that advertises another one's commitment, and deals the seed behind it, is found out
    at the end.
    """
    game = Round(4, complete_plan(4, corrupt=0, dropouts=0))
    names = game.terms.clients
    copied, liar = game.clients[names[0]], game.clients[names[1]]
    liar._own.self_seed = copied._own.self_seed
    honest = game.sent[names[1]]
    public = (honest.sealing, honest.masking, game.sent[names[0]].commitment)
    signature = game.cohort.identities[names[1]].sign(
        PURPOSE_KEYS, _signed(game.terms, names[1], *public)
    )
    game.sent[names[1]] = Advertise(game.terms.digest, *public, signature)
    game.until(Stage.UNMASK)
    game.answer()
    game.deliver()
    with pytest.raises(
        ProtocolError, match=f"shares of a secret of {names[1]} do not give what it signed"
    ):
        game.server.close(Stage.UNMASK)
