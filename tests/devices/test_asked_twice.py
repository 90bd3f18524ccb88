"""A server that wants one device: it asks twice, renumbers, changes terms, cohort, run or model;
devices restart.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

from flwr.app import Message
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from posse.core.errors import ProtocolError
from posse.core.roles import WORLD
from posse.privacy.aggregation import messages
from posse.privacy.aggregation.client import Client
from posse.privacy.aggregation.masks import RoundKeys, add_streams
from posse.privacy.aggregation.server import Server
from posse.privacy.aggregation.terms import Stage, Terms, complete_plan
from posse.privacy.crypto.keys import Identity, Secrets, fingerprint
from posse.systems.fed_contextual.computing.server import begin
from posse.systems.fed_contextual.flower import fleet, secure, server_app, wire
from posse.systems.fed_contextual.flower.device import task_of
from posse.systems.fed_contextual.flower.secure import Seat, Work
from posse.systems.fed_contextual.flower.settings import PROGRESS, REACH, UNMASKED
from posse.systems.fed_contextual.flower.wire import STAGE, decode, encode

from .grids import FakeGrid
from .test_deviating import Evil
from .test_deviating import settings as device_settings

LENGTH = 3

# The app


def played(folder: Path) -> tuple[Evil, Terms]:
    """A server, and the terms of a round whose sum it has."""
    evil = Evil(folder, 4)
    terms = evil.terms()
    evil.finish(*evil.begin(terms))
    return evil, terms


def without(evil: Evil, terms: Terms, **changes: Any) -> Terms:
    """The same round with the first three devices."""
    plan = complete_plan(3, corrupt=1, dropouts=0)
    return dataclasses.replace(
        terms,
        clients=terms.clients[:3],
        identities=terms.identities[:3],
        plan=plan,
        seed=os.urandom(32),
        **changes,
    )


def test_a_round_is_unmasked_once_whatever_the_cohort(tmp_path: Path) -> None:
    """The difference of two such sums would be the fourth device."""
    evil, terms = played(tmp_path)
    for again in (
        without(evil, terms),
        evil.terms(),
        dataclasses.replace(terms, seed=os.urandom(32)),
    ):
        with pytest.raises(
            ProtocolError, match="already helped to unmask a sum of round 1, and helps only once"
        ):
            evil.ask(evil.names[0], terms=encode(again))


def test_a_device_reveals_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[Client] = []

    def watched(*arguments: Any) -> Client:
        clients.append(Client(*arguments))
        return clients[-1]

    monkeypatch.setattr(secure, "Client", watched)
    played(tmp_path)
    assert len(clients) > 8  # made anew for every message
    for client in clients:
        with pytest.raises(ProtocolError) as error:
            client.reveal()
        assert error.value.rule == "core.reveal.deployed"


@pytest.mark.parametrize("own", ["run", "secure", "roster", "least-honest"])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_device_shows_nothing_in_the_open_where_sums_are_secure(
    tmp_path: Path, own: str, kind: str
) -> None:
    """Neither in a secure run, nor, if its own configuration says so or is for secure sums, in a
    run that is not.
    """
    evil = Evil(tmp_path, 3)
    context = evil.context(evil.names[0])
    if own != "run":
        context.run_config["secure"] = False
        for name in ("secure", "roster"):
            del context.node_config[name]
        context.node_config[own] = {"secure": True, "roster": "somewhere", "least-honest": 2}[own]
    message = Message(evil.order(), dst_node_id=context.node_id, message_type=kind)
    message.metadata.__dict__["_message_id"] = "message"
    with pytest.raises(ProtocolError, match="takes part in secure sums only"):
        evil.grid.app(message, context)


def test_a_round_is_not_computed_from_something_else(tmp_path: Path) -> None:
    evil, terms = played(tmp_path)
    other = wire.subject_of(evil.order(limit=0.9), evil.made)
    with pytest.raises(
        ProtocolError, match="already computed round 1 with another model, norm or settings"
    ):
        evil.ask(evil.names[0], terms=encode(without(evil, terms, subject=other)))


@pytest.mark.parametrize("change", ["round", "norm", "run", "zeros"])
def test_a_model_is_unmasked_once_whatever_the_round(tmp_path: Path, change: str) -> None:
    """Renumbered, with another norm, in another run, and with zeros of another sign."""
    evil, terms = played(tmp_path)
    order = evil.order(**{"round": {"round": 7}, "norm": {"limit": 0.9}}.get(change, {}))
    if change == "zeros":
        order[wire.PARAMS] = wire.arrays([-leaf for leaf in wire.unpacked(order[wire.PARAMS])])
    number = 7 if change in ("round", "zeros") else 3
    order[wire.ROUND]["round"] = number
    run = "2" if change == "run" else "1"
    for context in evil.grid.contexts.values():
        context.run_id = int(run)
    evil.names = evil.names[:3]
    renumbered = without(
        evil, terms, run=run, round=number, subject=wire.subject_of(order, evil.made)
    )
    server, told = evil.begin(renumbered)
    with pytest.raises(
        ProtocolError, match="already sent a vector for this model in another round"
    ):
        evil.finish(server, told, order)


def test_a_round_that_is_done_again_masks_the_recorded_vector(
    tmp_path: Path, monkeypatch: Any
) -> None:
    evil, order = Evil(tmp_path, 3), None
    _, told = evil.until_masked(evil.terms())
    for name, message in told.items():
        evil.ask(name, order or evil.order(), message=encode(message))
    monkeypatch.setattr(
        "posse.systems.fed_contextual.flower.client_app.contribution",
        lambda *told: pytest.fail("it computed"),
    )
    assert evil.finish(*evil.begin(evil.terms())).finished


def test_a_round_is_done_again_under_more_patience(tmp_path: Path) -> None:
    """The run was stopped after the vectors were given, and goes on with all that may change."""
    evil = Evil(tmp_path, 3)
    _, told = evil.until_masked(evil.terms())
    for name, message in told.items():
        evil.ask(name, evil.order(), message=encode(message))
    more = {"timeout": 9.0, "grace": 9.0, "out": "elsewhere", "start_with": 3}
    evil.made = evil.made.but(rounds=9, **more)
    assert {*more, "limit", "gate"} == set(REACH)
    for context in evil.grid.contexts.values():
        context.run_id = 2
        context.run_config.update(json.loads(json.dumps(evil.made.resolved())))
    assert evil.finish(*evil.begin(evil.terms(run="2"))).finished
    subject = wire.subject_of(evil.order(), evil.made)
    assert subject == wire.subject_of(evil.order(), evil.made.but(limit=9.0, gate=0.5))
    assert subject != wire.subject_of(evil.order(), evil.made.but(samples=32))


def test_every_connection_writes_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where SQLite was built to write less carefully."""
    connect = sqlite3.connect

    def careless(*where: Any, **how: Any) -> sqlite3.Connection:
        file = connect(*where, **how)
        file.execute("pragma synchronous = off")
        return file

    monkeypatch.setattr(sqlite3, "connect", careless)
    with Seat(tmp_path / "seat.sqlite", Identity())._transaction() as file:
        assert file.execute("pragma synchronous").fetchone() == (2,)


def test_a_retry_leaves_out_who_has_unmasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of five give no share in the end, also when they are asked again: the sum is not had, and
    others do it.
    """
    monkeypatch.setattr(fleet, "LOOK", 0.01)
    made = device_settings(tmp_path, cohort=5, dropout=0.2, corrupt=0.0, timeout=0.05, seed=-1)
    lost: list[int] = []

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        assert reply is not None
        last = not reply.has_error() and isinstance(
            decode(reply.content[STAGE]["message"]), messages.Shown
        )
        if last and len(lost) < 4 and (len(set(lost)) < 2 or node in lost):
            lost.append(node)
            return None
        return reply

    grid = FakeGrid(made, 9, tmp_path, meddle, corrupt=0.0)
    server_app.run(grid, made, "1")
    asked = [one for one in grid.sent if "message" in one.content[STAGE]]
    unmask = [1000 - one.metadata.dst_node_id for one in asked if _is_unmask(one)]
    assert len(lost) == 4, "each was asked twice"
    assert sorted(lost) == sorted([*set(lost), *set(lost)])
    first, second = set(unmask[:5]), set(unmask[7:])
    assert not first & second
    line = json.loads((tmp_path / "out" / PROGRESS).read_text())
    assert len(line["clients"]) == 4
    (helped,) = json.loads((tmp_path / "out" / UNMASKED).read_text()).values()
    assert len(helped) == 9


def test_a_candidate_does_not_take_the_place_of_the_model_of_a_round(tmp_path: Path) -> None:
    """Who helped with either is known when the run goes on; of older models it is forgotten."""
    made = device_settings(tmp_path, cohort=3, evaluate="snips")
    Path(made.out).mkdir()
    state = begin(task_of(made), 1)
    grid = FakeGrid(made, 4, tmp_path)
    names = [fingerprint(wire.identity_of(node.public_key)) for node in grid.nodes]
    fleet.Fleet(grid, made, print).note_unmasked(wire.order_of(state, 0), names[:1])
    fleet.Fleet(grid, made, print).note_unmasked(wire.evaluation_order(state, 9, made), names[1:])
    again = fleet.Fleet(grid, made, print)
    assert sorted(node.name for node in again.cohort(state)) == [
        "node-0001",
        "node-0002",
        "node-0003",
    ]
    for at in range(fleet.MODELS):
        other = state._replace(params=jax.tree.map(lambda leaf, at=at: leaf + at + 1, state.params))
        again.note_unmasked(wire.order_of(other, 0), names)
    assert len(json.loads((tmp_path / "out" / UNMASKED).read_text())) == fleet.MODELS


def _is_unmask(message: Message) -> bool:
    return isinstance(decode(message.content[STAGE]["message"]), messages.Unmask)


def test_a_resend_saves_a_round_whose_answers_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LOOK", 0.01)
    made = device_settings(tmp_path, cohort=3, timeout=0.05, seed=-1)
    lost: list[int] = []

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        if "message" in sent.content[STAGE] and _is_unmask(sent) and node not in lost:
            lost.append(node)
            return None
        return reply

    server_app.run(FakeGrid(made, 3, tmp_path, meddle), made, "1")
    assert sorted(lost) == [0, 1, 2]
    assert len(json.loads((tmp_path / "out" / PROGRESS).read_text())["clients"]) == 3


def test_with_too_few_others_a_run_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is started again, under another id."""
    monkeypatch.setattr(fleet, "LOOK", 0.01)
    made = device_settings(tmp_path, cohort=3, timeout=0.05)

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        return None if "message" in sent.content[STAGE] and _is_unmask(sent) else reply

    grid = FakeGrid(made, 3, tmp_path, meddle)
    for run in (1, 2):
        for context in grid.contexts.values():
            context.run_id = run
        with pytest.raises(ProtocolError, match="3 of 3 have helped to unmask a sum of this model"):
            server_app.run(grid, made, str(run))


def test_secure_runs_begin_from_models_of_their_own(tmp_path: Path) -> None:
    """Else a second run from zeros would find no device."""
    made = device_settings(tmp_path, cohort=3, seed=-1)
    grid = FakeGrid(made, 3, tmp_path)
    for run in (1, 2):
        for context in grid.contexts.values():
            context.run_id = run
        server_app.run(grid, made, str(run))
        shutil.rmtree(made.out)


# Any order of messages, and restarts


class Stopped(Exception):
    """The device stops here."""


@dataclasses.dataclass
class Game:
    """One set of terms, with clients that are the server's own beside the device."""

    terms: Terms
    model: bytes
    server: Server
    clients: dict[str, Client]
    told: dict[str, Any] = dataclasses.field(default_factory=dict)


class AskingTwice(RuleBasedStateMachine):
    """A server with two clients of its own in every cohort sends what it likes to one device, which
    may stop.
    """

    identities = tuple(Identity() for _ in range(5))

    @initialize()
    def fresh(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "seat.sqlite"
        self.me = self.identities[0]
        self.name = fingerprint(self.me.public)
        self.seat = Seat(self.path, self.me)
        self.games: list[Game] = []
        self.last = ("1", 0, "A", 1)
        self.sent: list[tuple[Any, ...]] = []
        self.replies: dict[bytes, set[bytes]] = {}
        self.shown: dict[Any, set[bytes]] = {}
        self.vectors: dict[Any, set[bytes]] = {}

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(
        run=st.sampled_from("12"),
        number=st.integers(0, 1),
        model=st.sampled_from("AB"),
        norm=st.integers(1, 2),
        others=st.sampled_from([(1, 2), (3, 4)]),
        stop=st.sampled_from(["", "", "", "before", "after"]),
        same=st.booleans(),
        steps=st.sampled_from([0, 0, 2, 4, 4]),
    )
    def begin(
        self,
        run: str,
        number: int,
        model: str,
        norm: int,
        others: tuple[int, int],
        stop: str,
        same: bool,
        steps: int,
    ) -> None:
        """Begin a round of some run, number, model and norm, or of those of the newest game, and
        play some steps.
        """
        run, number, model, norm = self.last = (
            self.last if same and self.games else (run, number, model, norm)
        )
        cohort = {
            fingerprint(one.public): one
            for one in (self.me, *(self.identities[at] for at in others))
        }
        names = tuple(sorted(cohort))
        subject = hashlib.sha256(f"{model} {number} {norm}".encode()).digest()
        terms = Terms(
            run,
            number,
            names,
            tuple(cohort[name].public for name in names),
            LENGTH,
            complete_plan(3, corrupt=0, dropouts=0),
            os.urandom(32),
            subject,
        )
        own = {
            name: Client(name, terms, cohort[name], Secrets.fresh())
            for name in names
            if name != self.name
        }
        game = Game(terms, model.encode(), Server(terms), own)
        for name, client in own.items():
            game.server.receive(name, client.start()[0][2])  # type: ignore[index]
        self.games.append(game)
        self._send(game, None, "" if steps else stop)
        self._steps(game, steps, stop)

    @rule(
        data=st.data(),
        steps=st.integers(1, 4),
        stop=st.sampled_from(["", "", "", "before", "after"]),
    )
    def go_on(self, data: st.DataObject, steps: int, stop: str) -> None:
        """Send what comes next in the newest game, some steps far, or in some game."""
        ready = [game for game in self.games if game.told]
        if ready:
            game = data.draw(st.sampled_from([*ready, *[self.games[-1]] * 8]))
            self._steps(game, steps, stop)

    def _steps(self, game: Game, steps: int, stop: str) -> None:
        for left in range(steps, 0, -1):
            if game.told:
                self._send(game, game.told[self.name], stop if left == 1 else "")

    @rule(data=st.data(), stop=st.sampled_from(["", "after"]))
    def again(self, data: st.DataObject, stop: str) -> None:
        """Send what was sent before."""
        if self.sent:
            self._send(*data.draw(st.sampled_from(self.sent)), stop)

    @rule()
    def restart(self) -> None:
        self.seat = Seat(self.path, self.me)

    def _send(self, game: Game, message: Any, stop: str) -> None:
        """Send to the device; it may stop before its step is on disk, or before its answer
        leaves.
        """
        if (game, message) not in self.sent:
            self.sent.append((game, message))

        def words() -> bytes:
            if stop == "before":
                raise Stopped
            return np.frombuffer(os.urandom(4 * LENGTH), "<u4").tobytes()

        terms = game.terms
        root = self._root()
        work = (
            Work(terms.subject, terms.round, game.model, words)
            if isinstance(message, messages.Delivery)
            else None
        )
        try:
            reply = self.seat.begin(terms) if message is None else self.seat.receive(message, work)
        except (ProtocolError, Stopped):
            return
        self._note(game, message, reply, root or self._root())
        if stop != "after":
            self._take(game, reply)
        else:
            self.seat = Seat(self.path, self.me)

    def _root(self) -> bytes | None:
        with closing(sqlite3.connect(self.path)) as file:
            found = file.execute("select root from present").fetchone()
        return found[0] if found else None

    def _note(self, game: Game, message: Any, reply: Any, root: bytes | None) -> None:
        terms = game.terms
        about = ((terms.run, terms.round), game.model)
        asked = encode(terms) if message is None else encode(message)
        self.replies.setdefault(asked, set()).add(encode(reply))
        if isinstance(reply, messages.Shown):
            for one in about:
                self.shown.setdefault(one, set()).add(encode(reply))
        if isinstance(reply, messages.Masked) and root:
            vector = np.frombuffer(reply.words, "<u4").copy()
            keys = {name: client._own._masking.public for name, client in game.clients.items()}
            streams = RoundKeys(self.name, terms, Secrets(root)).mask_streams(keys.items())
            add_streams(vector, ((key, -sign) for key, sign in streams))
            for one in about:
                self.vectors.setdefault(one, set()).add(vector.tobytes())

    def _take(self, game: Game, reply: Any) -> None:
        """Hand an answer to the server of a game, let its own clients do their part, and close the
        stage.
        """
        try:
            game.server.receive(self.name, reply)
        except ProtocolError:
            return  # it has it
        if game.server.stage > Stage.KEYS:
            for name, client in game.clients.items():
                (action,) = client.receive("server", game.told[name])
                if not isinstance(action, tuple):
                    (action,) = client.receive(
                        WORLD, messages.Contribution(game.terms.round, bytes(4 * LENGTH))
                    )
                game.server.receive(name, action[2])  # type: ignore[index]
        actions = game.server.close(game.server.stage)
        game.told = {action[1]: action[2] for action in actions if isinstance(action, tuple)}

    @invariant()
    def one_answer(self) -> None:
        assert all(len(answers) == 1 for answers in self.replies.values()), (
            "one message, one answer"
        )
        assert all(len(answers) == 1 for answers in self.shown.values()), (
            "one unmask of a round and of a model"
        )
        assert all(len(vectors) == 1 for vectors in self.vectors.values()), (
            "one vector of a round and of a model"
        )


AskingTwice.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
test_two_answers_are_impossible = AskingTwice.TestCase
