"""Pictures and explanations of Samba: every byte named, every claim about who can open it tried."""

from __future__ import annotations

import base64
import importlib
import json
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from posse.core.errors import ConfigError, FrameError, ProtocolError
from posse.core.fixed import REWARD_ONE
from posse.privacy.crypto.frames import Frames
from posse.privacy.crypto.paillier import Ciphertext, generate_key
from posse.privacy.crypto.pairwise import present_digest
from posse.runtime.memory import Delivery
from posse.systems import modules, registry
from posse.systems.modules import scene_of
from posse.systems.samba.federation import SambaRun
from posse.systems.samba.scene.picture import theorem4
from posse.systems.samba.settings import Samba
from posse.systems.samba.strict import sums
from posse.systems.samba.strict.dealer import frames_for_comp
from posse.systems.samba.strict.messages import Dealing, Stream
from posse.systems.scenes import PROTECTIONS
from tests.kit.samba import secrets_of

SYSTEM = registry.system("samba")
KEY = generate_key(2048)
POLICIES = ("ucb", "thompson", "epsilon-greedy", "epsilon-decreasing", "softmax", "pursuit")
OFF = [
    dict.fromkeys(off, False)
    for off in (
        ("aes",),
        ("mask",),
        ("permutation",),
        ("paillier",),
        ("aes", "mask"),
        ("aes", "permutation", "mask", "paillier"),
    )
]


def begun(
    level: str, policy: str = "ucb", owners: int = 3, horizon: int = 7, **more: Any
) -> SambaRun:
    settings = Samba(
        level=level, policy=policy, owners=owners, horizon=horizon, paillier_bits=2048, **more
    )
    run = SYSTEM.start(settings, transcript=10_000, key=KEY)
    assert isinstance(run, SambaRun)
    return run


def delivered(run: SambaRun) -> Iterator[tuple[Delivery, dict[str, Any]]]:
    while (delivery := run.deliver()) is not None:
        assert delivery.explanation is not None
        yield delivery, dict(delivery.explanation)


def check(
    run: SambaRun, delivery: Delivery, found: dict[str, Any], code: dict[str, list[str]]
) -> None:
    size = len(msgspec.msgpack.encode(delivery.message))
    assert sum(part["length"] for part in found["parts"]) == size
    kinds = {role.kind for role in run.memory.roles.values()}
    for part in found["parts"]:
        assert part["protection"] in PROTECTIONS
        assert part["length"] > 0
        assert set(part["opens"]) <= kinds
        assert set(part.get("also", ())) <= set(PROTECTIONS)
    assert "{" + delivery.sender + "}" in found["says"]
    assert "{" + delivery.receiver + "}" in found["says"]
    assert found["lines"], found
    for kind, numbers in found["lines"].items():
        assert all(1 <= number <= len(code[kind]) for number in numbers)
    assert found["chosen"] is None or found["chosen"] in run.parties
    json.dumps(found)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("level", ["paper", "strict"])
def test_every_message_is_explained(level: str, policy: str) -> None:
    run = begun(level, policy)
    code = {kind: list(lines) for kind, lines in scene_of(SYSTEM).pseudocode(run.settings).items()}
    assert set(code) == {role.kind for role in run.memory.roles.values()}
    ran: dict[str, set[int]] = {kind: set() for kind in code}
    chosen: list[str] = []
    for delivery, found in delivered(run):
        check(run, delivery, found, code)
        for kind, numbers in found["lines"].items():
            ran[kind] |= set(numbers)
        if found["step"] == "5" and found["chosen"]:
            chosen.append(found["chosen"])
    assert run.done
    pulls = [1 + chosen.count(name) for name in run.parties if name.startswith("owner")]
    assert pulls == run.world.pulls.tolist()
    for kind, lines in code.items():
        left = [lines[number - 1] for number in range(1, len(lines) + 1) if number not in ran[kind]]
        assert not [text for text in left if "explore" not in text and "any place" not in text], (
            kind,
            left,
        )


@pytest.mark.parametrize("off", OFF, ids=lambda off: "+".join(off))
def test_every_message_is_explained_with_protections_off(off: dict[str, bool]) -> None:
    run = begun("paper", "epsilon-greedy", **off)
    code = {kind: list(lines) for kind, lines in scene_of(SYSTEM).pseudocode(run.settings).items()}
    protections = set()
    for delivery, found in delivered(run):
        check(run, delivery, found, code)
        protections |= {
            each for part in found["parts"] for each in (part["protection"], *part.get("also", ()))
        }
    assert protections & {"paillier", "permutation", "mask"} == {
        "paillier",
        "permutation",
        "mask",
    } - set(off)
    if set(off) == {"aes", "permutation", "mask", "paillier"}:
        assert "aes" in protections  # the owners' key is sealed to each of them whatever is off


def test_many_owners_are_compared_in_several_questions() -> None:
    run = begun("strict", owners=24, horizon=26)
    names = set()
    for delivery, found in delivered(run):
        check(
            run,
            delivery,
            found,
            {
                kind: list(lines)
                for kind, lines in scene_of(SYSTEM).pseudocode(run.settings).items()
            },
        )
        names.add(found["name"])
    assert {"Shuffled", "Compare", "Compared", "Found", "Placed", "Share", "Total"} <= names


# Who can open what --------------------------------------------------------------------------------


def bytes_of(delivery: Delivery, found: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bytes]]:
    body, at = msgspec.msgpack.encode(delivery.message), 0
    for part in found["parts"]:
        yield part, body[at : at + part["length"]]
        at += part["length"]


def frame_keys(role: Any) -> set[bytes]:
    """Every string of 32 bytes that a role holds: what it might try as a key."""
    held = secrets_of(role)
    return {key for key in held if len(key) == 32} | {key[:32] for key in held if len(key) == 64}


def opens_frame(
    role: Any, run: SambaRun, direction: bytes, index: int, frame: bytes
) -> bytes | None:
    for key in frame_keys(role):
        try:
            return Frames(key, role._digest, direction, len(run.settings.load().arms)).open(
                index, frame
            )
        except FrameError:
            continue
    return None


def test_sealed_scores_open_with_the_keys_of_owners_and_comp_alone() -> None:
    run = begun("paper", "ucb")
    frames = 0
    for delivery, found in delivered(run):
        if found["step"] != "2":
            continue
        part = next(part for part in found["parts"] if part["protection"] == "aes")
        for kind in ("owner", "controller", "comp", "customer"):
            role = run.memory.roles["owner-2" if kind == "owner" else kind]
            opened = opens_frame(
                role, run, b"scores", delivery.message.index, delivery.message.frame
            )
            assert (opened is not None) == (kind in part["opens"]), kind
            if opened is not None:
                clear = dict(found["clear"])
                assert struct.unpack("<d", opened)[0] == pytest.approx(
                    float(clear["score x mask"]), abs=6e-5
                )
        frames += 1
    assert frames == 4 * 3


def test_published_bits_open_with_the_keys_of_owners_and_comp_alone() -> None:
    run = begun("paper")
    for delivery, found in delivered(run):
        if found["step"] == "5":
            part = next(part for part in found["parts"] if part["protection"] == "aes")
            for kind in ("owner", "controller", "comp", "customer"):
                role = run.memory.roles["owner-3" if kind == "owner" else kind]
                bit = opens_frame(
                    role, run, b"replies", delivery.message.index, delivery.message.reply
                )
                assert (bit is not None) == (kind in part["opens"])
                if bit is not None:
                    assert str(bit[0]) == dict(found["clear"])["pulling bit"]


def test_shares_of_scores_open_with_the_pads_of_owner_and_comp() -> None:
    run = begun("strict")
    comp = run.memory.roles["comp"]
    for delivery, found in delivered(run):
        if found["step"] == "2":
            part = next(part for part in found["parts"] if part["protection"] == "share")
            assert set(part["opens"]) == {"owner", "comp"}
            owner = int(delivery.sender.removeprefix("owner-")) - 1
            pad = int(comp._pads(delivery.message.index)[0][owner])
            x = np.int64(
                np.uint64((int.from_bytes(delivery.message.frame, "little") + pad) % (1 << 64))
            )
            assert (int(x) >> 2) / (1 << 40) == pytest.approx(
                float(dict(found["clear"])["score"]), abs=6e-5
            )
            held = b"".join(secrets_of(run.memory.roles["controller"]))
            assert pad.to_bytes(8, "little") not in held


def test_sums_under_paillier() -> None:
    """The customer's key opens an owner's sum, and the total."""
    run = begun("paper")
    sums_seen = 0
    for delivery, found in delivered(run):
        part = next((part for part in found["parts"] if part["protection"] == "paillier"), None)
        if part is None:
            continue
        opened = KEY.decrypt(Ciphertext.from_bytes(delivery.message.ciphertext, KEY.public_key))
        clear = dict(found["clear"])
        if found["step"] == "6":
            units = round(float(clear["rewards"]) * REWARD_ONE)
            assert part["opens"] == ["customer"]
            assert opened == units
            sums_seen += 1
        else:
            assert part["opens"] == ["customer"]
            assert opened / REWARD_ONE == float(clear["total reward"])
    assert sums_seen == 3


def test_secrets_sealed_to_a_party_open_there_alone() -> None:
    """HPKE: the run key of the kind that a part names opens it, that of no other kind does."""
    run, opened = begun("strict"), 0
    for delivery, found in delivered(run):
        message, roles = delivery.message, run.memory.roles
        sealed: list[tuple[bytes, str, tuple[str, str]]] = []
        if isinstance(message, Stream):
            sealed = [(message.sealed, "comp", ("stream", delivery.sender))]
        if isinstance(message, Dealing):
            seeds = {"controller": message.controller, "comp": message.comp}
            sealed = [(each.sealed, name, ("seed", name)) for name, each in seeds.items()]
        for body, receiver, info in sealed:
            part = next(part for part, data in bytes_of(delivery, found) if data == body[32:-16])
            assert part["opens"] == [receiver]
            for name, role in roles.items():
                try:
                    role._run_key.open(body, roles[receiver].info(*info))
                    assert name == receiver
                    opened += 1
                except ProtocolError:
                    assert name != receiver
    assert opened == 3 + 2


def test_the_dealers_chunks_and_the_shares_of_the_total() -> None:
    run = begun("strict")
    for delivery, found in delivered(run):
        message, roles = delivery.message, run.memory.roles
        if type(message).__name__ == "Relayed":
            part = next(part for part in found["parts"] if part["protection"] == "aes")
            assert part["opens"] == ["comp", "dealer"]
            seed, digest = roles["comp"]._seed, roles["comp"]._digest
            assert (
                len(frames_for_comp(seed, digest).open(message.chunk, message.sealed))
                == part["length"]
            )
            own = roles["controller"]._first
            for key in frame_keys(roles["controller"]) | {own.tape, own.pads}:
                with pytest.raises(FrameError):
                    frames_for_comp(key, digest).open(message.chunk, message.sealed)
        if type(message).__name__ == "Shares":
            comp, customer = roles["comp"], roles["customer"]
            present = present_digest(sorted(customer.manifest.owners), customer._digest)
            pads = sums.added(sums.pad(stream, present) for stream in comp._streams)
            number, _ = sums.added((sums.decode(message.controller), pads))
            part = next(
                part for part in found["parts"] if part["name"].startswith("controller's share")
            )
            assert part["opens"] == ["customer", "comp"]
            assert (number >> sums.PULLS) / REWARD_ONE == float(
                dict(found["clear"])["total reward"]
            )


@pytest.mark.parametrize("level", ["paper", "strict"])
def test_no_key_mask_or_seed_is_in_what_is_shown(level: str) -> None:
    run = begun(level, "thompson")
    shown: list[str] = []
    for _, found in delivered(run):
        shown += [json.dumps(found), json.dumps(scene_of(SYSTEM).draw(run))]
    text = "\n".join(shown)
    held = set().union(*(secrets_of(role) for role in run.memory.roles.values()))
    keys = [secret for secret in held if len(secret) in (32, 40, 64)]
    assert len(keys) > 10
    for secret in keys:
        assert secret.hex() not in text
        assert base64.b64encode(secret).decode() not in text
    for role in run.memory.roles.values():
        assert str(int.from_bytes(role._secrets.export(), "little")) not in text


# Pictures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["paper", "strict", "plain"])
def test_the_picture_holds_the_numbers_of_the_run(level: str) -> None:
    path = {"path": "plain", "level": "strict"} if level == "plain" else {"level": level}
    settings = Samba(policy="ucb", owners=5, horizon=60, paillier_bits=2048, **path)
    run = SYSTEM.start(settings) if level == "plain" else SYSTEM.start(settings, key=KEY)
    for _ in range(3):
        run.advance(20)
        scene = scene_of(SYSTEM).draw(run)
        assert scene is not None
        record = run.record()
        assert scene["curves"]["reward"] == record.total[0]
        owners = [party for party in scene["parties"] if party["kind"] == "owner"]
        assert [party["weight"] for party in owners] == record.pulls[0].tolist()  # type: ignore[index]
        assert [party["label"] for party in owners] == list(settings.load().arms.names)
        for party in owners:
            assert 0 <= party["bar"]["low"] <= party["bar"]["estimate"] <= party["bar"]["high"] <= 1
        json.dumps(scene)
    assert {party["name"] for party in scene["parties"]} >= set(run.parties)
    assert level == "plain" or scene["now"]["chosen"][0] in run.parties


@pytest.mark.parametrize("level", ["paper", "strict"])
def test_what_is_explained_again_after_going_back_is_the_same(level: str) -> None:
    """But for random bytes: nonces have no part in an explanation, and signatures may differ by a
    byte in length.
    """
    run = begun(level, "thompson", owners=4, horizon=30)
    run.advance(12)
    saved = run.save()
    first = [
        found
        for _, found in zip(range(60), (dict(found) for _, found in delivered(run)), strict=False)
    ]
    run.load(saved)
    again = [
        found
        for _, found in zip(range(60), (dict(found) for _, found in delivered(run)), strict=False)
    ]
    hidden = {
        "order",
        "chosen",
        "pulling bits, in comp's order",
        "place",
    }  # of a permutation that is drawn anew

    def kept(found: dict[str, Any]) -> dict[str, Any]:
        clear = [pair for pair in found["clear"] if pair[0] not in hidden]
        return {**found, "clear": clear, "says": "" if level != "paper" else found["says"]}

    assert len(first) == 60
    assert list(map(kept, first)) == list(map(kept, again))


def test_fast_steps_are_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun("paper", horizon=20)
    asked: list[str] = []
    monkeypatch.setattr(
        modules, "scene_of", lambda system: asked.append(system.name) or modules.Scene()
    )
    run.advance(10)
    assert asked == []
    run.deliver()
    assert asked == ["samba"]


def test_sources_name_the_classes_that_run() -> None:
    for level in ("paper", "strict"):
        run = begun(level)
        for kind, source in scene_of(SYSTEM).sources(run.settings).items():
            module, _, name = source.partition(":")
            role = next(role for role in run.memory.roles.values() if role.kind == kind)
            assert type(role) is getattr(importlib.import_module(module), name)


def test_what_each_role_knows_follows_the_switches() -> None:
    bare = begun("paper", aes=False, mask=False, permutation=False, paillier=False).settings
    whole, strict = begun("paper").settings, begun("strict").settings
    reads = "Every owner's sum and the total."
    assert reads in scene_of(SYSTEM).knowledge(bare, "controller")["knows"]
    assert reads not in scene_of(SYSTEM).knowledge(whole, "controller")["knows"]
    assert "All scores of a pass, as they are." in scene_of(SYSTEM).knowledge(bare, "comp")["knows"]
    assert (
        "Which owner sent which score, and who is pulled."
        in scene_of(SYSTEM).knowledge(bare, "comp")["knows"]
    )
    assert scene_of(SYSTEM).knowledge(strict, "dealer")["never"]
    for settings in (bare, whole, strict, whole.plain()):
        for role in SYSTEM.roles:
            if role.kind != "dealer" or settings.level == "strict":
                assert scene_of(SYSTEM).knowledge(settings, role.kind)["knows"]


def test_variants_are_settings_with_and_without_each_protection() -> None:
    settings = begun("paper").settings
    found = dict(scene_of(SYSTEM).variants(settings))
    assert found["as set"] == settings
    assert list(found) == [
        "as set",
        "without AES-GCM",
        "without masks",
        "without permutation",
        "without Paillier",
        "plain",
    ]
    assert not found["without Paillier"].paillier
    assert found["plain"].path == "plain"
    bare = begun("paper", aes=False).settings
    assert dict(scene_of(SYSTEM).variants(bare))["with AES-GCM"].aes
    assert list(dict(scene_of(SYSTEM).variants(begun("strict").settings))) == [
        "as set",
        "level paper",
        "plain",
    ]
    assert theorem4(settings) == {
        "AES-GCM calls": 4 * 3 * 4,
        "Paillier calls": 4,
        "encrypted numbers": 4 * 3 * 4 + 4,
    }


# Scenarios and worked examples --------------------------------------------------------------------


def test_scenarios_are_settings_of_a_run() -> None:
    names = [scenario.name for scenario in scene_of(SYSTEM).scenarios]
    assert len(set(names)) == len(names) >= 8
    for scenario in scene_of(SYSTEM).scenarios:
        settings = SYSTEM.Settings(**scenario.settings)
        assert settings.load().arms.names[0]
        assert scenario.about.endswith(".")
        json.dumps(scenario.settings)


def walked(example: str) -> tuple[SambaRun, list[dict[str, Any]]]:
    options = {"example": example}
    (scenario,) = [one for one in scene_of(SYSTEM).scenarios if one.options == options]
    settings = SYSTEM.Settings(**scenario.settings, paillier_bits=2048)
    run = SYSTEM.start(settings, transcript=1000, key=KEY, **options)
    assert isinstance(run, SambaRun)
    count = 16 if example.startswith(("pursuit", "epsilon")) else 8
    found = []
    for _ in range(count):
        delivery = run.deliver()
        assert delivery is not None
        assert delivery.explanation is not None
        found.append(dict(delivery.explanation))
    return run, found


def column(found: list[dict[str, Any]], step: str, name: str) -> list[str]:
    return [dict(each["clear"])[name] for each in found if each["step"] == step]


def test_the_worked_example_of_ucb_has_the_printed_numbers() -> None:
    run, found = walked("ucb-68")
    assert column(found, "2", "score") == ["1.23", "1.01", "1.12"]
    assert column(found, "2", "score x mask") == ["0.62", "0.5", "0.56"]
    assert column(found, "2", "mask") == ["0.5"] * 3
    assert column(found, "3", "scores x mask") == ["0.56, 0.62, 0.5"]
    assert column(found, "4", "pulling bits, in comp's order") == ["0, 1, 0"]
    assert column(found, "5", "pulling bit") == ["1", "0", "0"]
    scene = scene_of(SYSTEM).draw(run)
    assert scene is not None
    assert [party["text"] for party in scene["parties"][:3]] == ["25 / 34", "10 / 24", "2 / 10"]
    assert run.time == 68


def test_the_worked_example_of_softmax_has_the_printed_numbers() -> None:
    _, found = walked("softmax-98")
    assert column(found, "2", "mean s / n") == ["0.72", "0.38", "0.2"]
    assert column(found, "2", "weight") == ["1339.43", "44.7", "7.39"]
    assert column(found, "2", "mask") == ["0.15"] * 3
    assert column(found, "2", "score x mask") == ["200.91", "6.71", "1.11"]
    assert column(found, "3", "scores x mask") == ["1.11, 6.71, 200.91"]
    assert column(found, "4", "sum") == ["208.73"]
    assert column(found, "4", "probabilities") == ["0.01, 0.03, 0.96"]
    assert column(found, "4", "pulling bits, in comp's order") == ["0, 0, 1"]
    assert column(found, "5", "pulling bit") == ["1", "0", "0"]


def test_the_worked_example_of_epsilon_greedy_exploits_by_one_coin_and_explores_by_the_other() -> (
    None
):
    run, found = walked("epsilon-greedy-68")
    first, second = found[:8], found[8:]
    assert column(first, "2", "mean s / n") == ["0.73", "0.42", "0.2"]
    assert column(first, "3", "scores x mask") == ["0.1, 0.36, 0.21"]
    assert column(first, "5", "pulling bit") == ["1", "0", "0"]
    assert column(second, "2", "number of all") == ["0", "0", "0"]
    assert column(second, "3", "scores x mask") == ["0, 0, 0"]
    assert column(second, "5", "pulling bit").count("1") == 1
    code = scene_of(SYSTEM).pseudocode(run.settings)
    marked = {
        code["owner"][line - 1]
        for each in second
        if each["step"] == "2"
        for line in each["lines"]["owner"]
    }
    assert any("says explore: send the number that all send" in text for text in marked)
    assert not any("any place" in text for lines in code.values() for text in lines)


def test_the_worked_example_of_pursuit_has_the_printed_numbers() -> None:
    _, found = walked("pursuit-4")
    first, second = found[:8], found[8:]
    assert column(first, "2", "score") == ["1", "0", "0"]
    assert column(first, "5", "bit") == ["1", "0", "0"]
    assert column(first, "5", "probability p") == ["0.4", "0.3", "0.3"]
    assert column(second, "2", "weight") == ["0.4", "0.3", "0.3"]
    assert column(second, "5", "pulling bit").count("1") == 1


@pytest.mark.parametrize("example", ["ucb-68", "softmax-98", "pursuit-4", "epsilon-greedy-68"])
def test_an_example_goes_back_and_on_to_its_end(example: str) -> None:
    run, _ = walked(example)
    saved = run.save()
    run.finish()
    total = run.truth()["total"]
    run.load(saved)
    assert not run.done
    run.finish()
    assert run.truth()["total"] == total
    assert run.memory.roles["customer"].total == total  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="worked example"):
        run.record()


def test_an_example_away_from_its_place_is_refused() -> None:
    means = (0.1, 0.2, 0.3)
    for wrong in (
        {"policy": "ucb", "level": "strict", "means": means, "horizon": 100},
        {"policy": "thompson", "level": "paper", "means": means, "horizon": 100},
        {"policy": "ucb", "level": "paper", "means": means, "horizon": 67},
        {"policy": "ucb", "level": "paper", "means": (*means, 0.4), "horizon": 100},
        {"policy": "ucb", "level": "paper", "path": "plain", "means": means, "horizon": 100},
    ):
        with pytest.raises(ConfigError, match="is of one run of 'ucb' at level 'paper' with three"):
            SYSTEM.start(Samba(**wrong), example="ucb-68")
    with pytest.raises(ConfigError, match="unknown example 'ucb'"):
        SYSTEM.start(Samba(policy="ucb", level="paper", means=means), example="ucb")
    with pytest.raises(ConfigError, match=r"walk is not a setting, got 'ucb-68'.*example='ucb-68'"):
        Samba(policy="ucb", walk="ucb-68", level="paper", means=means, horizon=100)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="names must be one per mean"):
        Samba(means=(0.1, 0.2), names=("a",))
    with pytest.raises(ConfigError, match="names apply to means"):
        Samba(names=("a", "b"))


# Who sees what ------------------------------------------------------------------------------------


def table(**given: Any) -> dict[str, dict[str, str]]:
    found = scene_of(SYSTEM).visibility(Samba(policy="ucb", owners=3, horizon=10, **given))
    assert found is not None
    return {
        row["data"]: dict(zip(found["columns"], row["cells"], strict=True)) for row in found["rows"]
    }


def test_figure_7_as_published() -> None:
    found = table(level="paper")
    assert found["cumulative reward"] == {
        "the owner": "no message",
        "another owner": "no message",
        "customer": "in the clear",
        "controller": "Paillier",
        "comp": "no message",
        "the wire": "Paillier",
    }
    sums = found["rewards and pulls of an owner"]
    assert (sums["comp"], sums["controller"], sums["the wire"]) == (
        "mask, permutation",
        "AES-GCM",
        "AES-GCM",
    )
    arm = found["arm pulled at a step"]
    assert (arm["comp"], arm["controller"], arm["the wire"]) == (
        "permutation",
        "AES-GCM",
        "AES-GCM",
    )
    assert set(found["reward of a step"].values()) == {"its own", "no message"}
    assert all(cells["another owner"] == "no message" for cells in found.values())


@pytest.mark.parametrize(
    ("off", "datum", "observer", "cell"),
    [
        (("mask",), "rewards and pulls of an owner", "comp", "permutation"),
        (("permutation",), "arm pulled at a step", "comp", "in the clear"),
        (("aes",), "arm pulled at a step", "the wire", "in the clear"),
        (("aes",), "rewards and pulls of an owner", "controller", "in the clear"),
        (("aes",), "rewards and pulls of an owner", "the wire", "mask"),
        (("paillier",), "cumulative reward", "controller", "in the clear"),
        (
            ("aes", "mask", "permutation", "paillier"),
            "rewards and pulls of an owner",
            "comp",
            "in the clear",
        ),
    ],
)
def test_a_protection_that_is_off_shows_in_the_table(
    off: tuple[str, ...], datum: str, observer: str, cell: str
) -> None:
    assert table(level="paper", **dict.fromkeys(off, False))[datum][observer] == cell


def test_at_strict_no_server_sees_anything_in_the_clear() -> None:
    found = table(level="strict")
    for cells in found.values():
        for observer in ("controller", "comp", "dealer", "the wire"):
            assert cells[observer] != "in the clear"
    assert found["cumulative reward"]["customer"] == "in the clear"


def test_the_key_of_the_masks_is_with_owners_and_controller_alone() -> None:
    """What `opens` says of a mask at level `paper`: they hold its key, comp and customer do not."""
    run = begun("paper", aes=False)
    masks = next(
        delivery.message for delivery, found in delivered(run) if found["name"] == "Mask seeds"
    )
    controller = run.memory.roles["controller"]
    assert (
        controller._secrets.key(b"samba paper masks", context=controller._context()) == masks.masks
    )
    for name in ("comp", "customer"):
        assert masks.masks not in b"".join(secrets_of(run.memory.roles[name]))
    run = begun("paper", aes=False)
    scores = [found for _, found in delivered(run) if found["step"] == "2"]
    assert {
        tuple(part["opens"])
        for found in scores
        for part in found["parts"]
        if part["protection"] == "mask"
    } == {("owner", "controller")}
