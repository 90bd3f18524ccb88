"""Everything that the fixture needs of the package and that has no public entry: the one file to
change with names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

# Secure rounds of aggregation ---------------------------------------------------------------------

ROUNDS: Sequence[tuple[str, int, dict[str, str]]] = (
    ("everybody stays", 4, {}),
    ("one shares secrets and sends no vector", 5, {"client-2": "MASKED"}),
    ("one sends a vector and shows no mask", 5, {"client-4": "UNMASK"}),
)
"""Name, number of clients, and the stage at which some are not heard of any more."""


def secure_round(count: int, lost: dict[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Play a round and yield all its messages with sender and receiver."""
    from posse.core.roles import WORLD
    from posse.privacy.aggregation.client import Client
    from posse.privacy.aggregation.messages import Contribute, Contribution
    from posse.privacy.aggregation.server import Server
    from posse.privacy.aggregation.simulate import Cohort
    from posse.privacy.aggregation.terms import Stage, complete_plan
    from posse.privacy.crypto.keys import Secrets

    names = [f"client-{number + 1}" for number in range(count)]
    cohort = Cohort.fresh(names)
    terms = cohort.terms(complete_plan(count, corrupt=1, dropouts=1), length=6)
    server = Server(terms)
    clients = {
        name: Client(name, terms, cohort.identities[name], Secrets.fresh()) for name in names
    }
    last = {name: Stage[stage] for name, stage in lost.items()}
    waiting = [action for client in clients.values() for action in client.start()]
    for stage in list(Stage)[:-1]:
        while waiting:
            action = waiting.pop(0)
            if isinstance(action, Contribute):
                words = np.arange(6, dtype="<u4") * (1 + names.index(action.party))
                answer = Contribution(action.round, words.tobytes())
                yield WORLD, action.party, answer
                waiting.extend(clients[action.party].receive(WORLD, answer))
            elif isinstance(action, tuple):
                sender, receiver, message = action
                if sender in clients and last.get(sender, Stage.OVER) <= stage:
                    continue
                yield sender, receiver, message
                if receiver in clients:
                    waiting.extend(clients[receiver].receive(sender, message))
                else:
                    server.receive(sender, message)
        waiting = [action for action in server.close(stage) if isinstance(action, tuple)]
    assert server.total.tolist() == _sum(names, server.survivors)


def _sum(names: list[str], survivors: Sequence[str]) -> list[int]:
    whole = sum(1 + names.index(name) for name in survivors)
    return [at * whole for at in range(6)]


# Runs in one process ------------------------------------------------------------------------------


def compile_as_0_1() -> None:
    """Let every run of samba compile first, as 0.1 did, for keys come from the stream behind what
    that draws.

    A short run at level `paper` is interpreted instead since 0.2. Compiling draws the keys of a
    small run. When 0.1 compiled for the first time, numba imported `multiprocessing`, which draws
    32 bytes.
    """
    import os

    from posse.systems.samba import federation

    imported = False

    def warm_up(run: federation.SambaRun) -> None:
        nonlocal imported
        if not imported:
            os.urandom(32)
            imported = True
        federation.warm_up_roles(run._setup.policy, run.settings.level)

    federation.SambaRun._warm_up = warm_up  # type: ignore[method-assign]


# Parties between organisations --------------------------------------------------------------------


def lasting() -> None:
    """Let certificates and tokens that this process makes count for a century; for who writes the
    fixture only.
    """
    from posse.runtime.certificates import making, tokens
    from posse.runtime.certificates.authority import Authority

    making.AUTHORITY_DAYS, making.MOST_DAYS = 40_000, 40_000
    tokens.MOST_MINUTES = 36_000 * 24 * 60
    for made in (Authority.token,):
        assert made.__kwdefaults__ is not None
        made.__kwdefaults__["days"] = 36_000
        made.__kwdefaults__["minutes"] = 36_000 * 24 * 60


def lay_out(file: Path, folder: Path) -> list[Path]:
    """Make identities and files of a federation's parties."""
    from posse.systems.parties import read_federation

    folder.mkdir(parents=True, exist_ok=True)
    return read_federation(file).lay_out(folder)


def resume(
    files: Sequence[Path], until: Callable[[dict[str, dict[str, Any]]], bool] | None = None
) -> dict[str, Any]:
    """Run parties from their files, all in this process; return their results, or stop them where
    it is `until`.

    `until` is asked with the state of every party.
    """
    from posse.runtime.network.deployment import make_party
    from posse.runtime.place import open_place
    from posse.systems.parties import deploy_by_name, run_and_record

    async def to_the_end() -> list[dict[str, Any]]:
        runs = (run_and_record(open_place(file), lambda place, made: made, print) for file in files)
        return list(await asyncio.wait_for(asyncio.gather(*runs), 300))

    async def part() -> None:
        places = [open_place(file) for file in files]
        parties = [
            make_party(place, deploy_by_name(place.file.protocol).build)[0] for place in places
        ]
        running = [asyncio.create_task(party.run()) for party in parties]
        assert until is not None
        while not until({party.engine.role.name: party.engine.role.state() for party in parties}):
            await asyncio.sleep(0)
            # A dealer may have finished already; the others must not have.
            assert not all(task.done() for task in running)
        for party in parties:
            party.stop()
        for end in await asyncio.gather(*running, return_exceptions=True):
            # A part may be over whose peers have not said so yet.
            assert end is None or getattr(end, "code", "") == "P820", end
        for party in parties:
            party.engine.sync()
            party.engine.close()

    if until is not None:
        asyncio.run(part())
        return {}
    return dict(zip((file.stem for file in files), asyncio.run(to_the_end()), strict=True))


def replayed(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make a party again from its journal alone; return what it then saves, and its state."""
    from posse.runtime.network.deployment import make_party
    from posse.runtime.place import open_place
    from posse.systems.parties import deploy_by_name

    place = open_place(file)
    party, _ = make_party(place, deploy_by_name(place.file.protocol).build)
    party.engine.close()
    return party.engine.role.save(), party.engine.role.state()


def end_without(files: Sequence[Path], name: str, step: int) -> None:
    """Run parties to a step, lose one of them, end the run over the others, and let these
    finish.
    """
    from posse.runtime.network.deployment import make_party
    from posse.runtime.place import open_place
    from posse.systems.parties import deploy_by_name

    async def go() -> None:
        parties, commands = {}, {}
        for file in files:
            place = open_place(file)
            party, made = make_party(place, deploy_by_name(place.file.protocol).build)
            parties[party.engine.role.name] = party
            commands.update(made.commands)
        running = {each: asyncio.create_task(party.run()) for each, party in parties.items()}
        while parties["controller"].engine.role.state().get("step", 0) < step:
            await asyncio.sleep(0)
        parties[name].stop()
        await running.pop(name)
        parties["customer"].instruct(commands["end"](name))
        await asyncio.wait_for(asyncio.gather(*running.values()), 300)
        for party in parties.values():
            party.engine.sync()
            party.engine.close()

    asyncio.run(go())


# Keys, tokens, certificates, proposals and frames -------------------------------------------------


def secrets() -> dict[str, Any]:
    """What is derived, signed and written with fixed keys: bytes that another release must make and
    read alike.
    """
    from cryptography.hazmat.primitives.serialization import Encoding

    from posse.privacy.crypto import pairwise
    from posse.privacy.crypto.keys import (
        Identity,
        RunKey,
        Secrets,
        commitment,
        fingerprint,
        framed,
        hkdf,
        verify,
    )
    from posse.privacy.crypto.paillier import PublicKey, generate_key
    from posse.runtime.certificates import making, tokens
    from posse.runtime.certificates.identity import private_pem
    from posse.runtime.certificates.names import Peer
    from posse.runtime.network import wire

    made: dict[str, Any] = {}
    root = Secrets(bytes(range(32)))
    made["keys of a root"] = [
        root.key(purpose, size, context=context).hex()
        for purpose, size, context in (
            (b"tokens", 32, b""),
            (b"tokens", 8, b""),
            (b"run key", 32, b"manifest"),
        )
    ]
    made["number"] = root.number(b"source", context=b"trial")
    made["hkdf"] = hkdf(bytes(32), b"info", 40).hex()
    made["framed"] = framed(b"a", b"", b"bc").hex()
    made["commitment"] = commitment(bytes(32), b"label").hex()
    identity = Identity()
    signature = identity.sign(b"join", b"data")
    verify(identity.public, b"join", b"data", signature)
    made["identity"] = [identity.public.hex(), fingerprint(identity.public), signature.hex()]
    ada, bob = RunKey(), RunKey()
    seed = pairwise.pair_seed(
        ada.private, bob.private.public_key(), me="ada", other="bob", manifest=bytes(32)
    )
    made["pair seed"] = seed.hex()
    key = generate_key(2048)
    made["paillier"] = [hex(key.public_key.n), key.public_key.encrypt(20).to_bytes().hex()]
    assert isinstance(key.public_key, PublicKey)

    now = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    authority_key, party_key = making.new_key(), making.new_key()
    authority = making.authority_certificate(authority_key, "customer", "trial-1", now)
    peer = Peer("trial-1", "owner", "clinic-b")
    party = making.party_certificate(
        authority,
        authority_key,
        party_key.public_key(),
        peer,
        ("clinic-b.example", "10.0.0.5"),
        now,
        90,
    )
    desk = making.desk_certificate(authority, authority_key, party_key.public_key(), now)
    revoked = making.revocation_list(authority, authority_key, [(party.serial_number, now)], 3, now)
    csr = making.signing_request(party_key)
    made["certificates"] = [
        each.public_bytes(Encoding.DER).hex() for each in (authority, party, desk, revoked)
    ]
    made["request for a certificate"] = csr.hex()
    made["key file"] = private_pem(party_key).decode()
    made["spoken"] = making.spoken(making.fingerprint(authority_key.public_key()))

    token = tokens.Token.new(
        making.fingerprint(authority_key.public_key()), peer, now, "127.0.0.1:7710"
    )
    made["token"] = token.text()
    assert tokens.Token.read(token.text()) == token
    made["keys of a token"] = [
        token.key(purpose).hex() for purpose in ("request", "answer", "refusal")
    ]
    request = tokens.make_request(token, csr)
    made["enrolment"] = [request.hex()]
    nonce = tokens.read_request(request).nonce
    answer = tokens.Answer(1, nonce, "7f", b"certificate", b"authority", b"revoked")
    made["enrolment"] += [tokens.sealed(answer, token.key("answer")).hex()]
    made["enrolment"] += [
        tokens.sealed(tokens.Refusal(1, nonce, str(reason)), None).hex()
        for reason in tokens.Refused
    ]

    hello = wire.Hello(3, "0.1.0", "samba", 3, "trial-1", "ada", 5, 4, {"level": "strict"}, True)
    frames: list[Any] = [hello, wire.Data(7, b"body"), wire.Refused("because")]
    frames += [msgspec.structs.replace(hello, wire=2, restored=False)]
    frames += [wire.Kept(9, leaves, paused) for leaves in (False, True) for paused in (False, True)]
    made["frames"] = [wire.pack(frame).hex() for frame in frames]
    reader = wire.Reader()
    assert [each for frame in frames for each in reader.feed(wire.pack(frame))] == frames
    made["offered in TLS"] = [wire.agreed("posse/3"), wire.agreed("posse/1"), wire.agreed(None)]
    return made


# Policies and outside systems ---------------------------------------------------------------------


def policies() -> dict[str, Any]:
    """How built-in policies, and custom ones, identify themselves in manifests and records."""
    from posse.policies.arms.registry import POLICIES
    from posse.policies.contextual.explorations import EXPLORATIONS, adopt
    from tests.frozen.own_policy import PriorMean, flat

    made = {f"arms {name}": kind().describe() for name, kind in POLICIES.items()}
    made |= {f"contexts {name}": kind().describe() for name, kind in EXPLORATIONS.items()}
    own = adopt(flat)
    assert own is not None
    return {**made, "own": PriorMean().describe(), "own function": own().describe()}


OUTSIDE = """
from {base} import About, Demo, RunSettings, System


class Settings(RunSettings):
    system = "outside"


class Outside(System):
    name = "outside"
    about = About(
        title="Outside",
        summary="Outside",
        reference="Outside",
        protects="Outside",
        demo=Demo(settings={{}}, story="Outside"),
    )
    roles = ()
    levels = ()
    Settings = Settings

    def level_of(self, settings):
        return "plain"

    def start(self, settings, **options):
        raise NotImplementedError

    def twin(self, settings):
        return settings


SYSTEM = Outside()
"""


def outside() -> dict[str, Any]:
    """Find systems of other packages: by the entry point of an installed one, and by the
    variable.
    """
    import os
    import sys
    import tempfile

    from posse.systems import base, registry

    with tempfile.TemporaryDirectory() as place:
        for name in ("by_entry_point", "by_variable"):
            text = OUTSIDE.format(base=base.__name__).replace(
                '"outside"', f'"{name.replace("_", "-")}"'
            )
            Path(place, f"{name}.py").write_text(text)
        installed = Path(place, "outside-1.dist-info")
        installed.mkdir()
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1\n")
        (installed / "entry_points.txt").write_text(
            "[posse.systems]\nby-entry-point = by_entry_point:SYSTEM\n"
        )
        sys.path.insert(0, place)
        os.environ["POSSE_SYSTEMS"] = "by_variable"
        try:
            return {
                "names": sorted(registry.names()),
                "titles": sorted(each.about.title for each in registry.systems()),
            }
        finally:
            del os.environ["POSSE_SYSTEMS"]
            sys.path.remove(place)
