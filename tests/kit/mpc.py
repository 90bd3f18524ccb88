"""Federations of the contextual bandit for tests: a small world in files, roles made anew, and the
run in memory.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.roles import Ask, Message, Role
from posse.privacy.crypto.keys import Secrets
from posse.privacy.sharing.fixed import FixedPoint
from posse.runtime import local
from posse.runtime.memory import MemoryRun
from posse.runtime.network.deployment import make_party
from posse.runtime.network.party import Party
from posse.runtime.place import PartyFile, open_place
from posse.systems.mpc_contextual.coins import Coins
from posse.systems.mpc_contextual.deploy import build, features_of, start_of
from posse.systems.mpc_contextual.layout import ContextualFederation, lay_out
from posse.systems.mpc_contextual.program import plan
from posse.systems.mpc_contextual.roles.dealer import DealerRole
from posse.systems.mpc_contextual.roles.messages import Act, Acted, Earn, Earned, Look, Seen
from posse.systems.mpc_contextual.roles.outside import row_order
from posse.systems.mpc_contextual.roles.party import Party as PartyRole
from posse.systems.mpc_contextual.roles.puller_and_payee import Payee, Puller
from posse.systems.mpc_contextual.settings import ContextualOptions, World
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, Terms
from tests.kit.federations import QUICK, free_port, journalled_secrets, run_all
from tests.kit.torment import PATIENCE, Torment

ARMS = ("wait", "treat", "refer")


def write_world(folder: Path, parties: int = 2, rows: int = 60) -> dict[str, Any]:
    """Write features of every party and what arms pay; return the settings of the world."""
    rng = np.random.default_rng(5)
    features = {}
    for i in range(parties):
        block = rng.normal(size=(rows, 2))
        block *= np.sqrt(1 / parties) / np.linalg.norm(block, axis=1, keepdims=True) * 0.999
        path = folder / f"clinic-{i + 1}.csv"
        lines = [f"p{row},{a!r},{b!r}" for row, (a, b) in enumerate(block.tolist())]
        path.write_text("\n".join(["row,age,dose", *lines, ""]))
        features[f"clinic-{i + 1}"] = str(path)
    pays = folder / "pays.csv"
    means = rng.random((rows, len(ARMS))).round(3).tolist()
    lines = [f"p{i},{a},{b},{c}" for i, (a, b, c) in enumerate(means)]
    pays.write_text("\n".join([",".join(("row", *ARMS)), *lines, ""]))
    return {"problem": "own", "features": features, "rewards": str(pays), "seed": 9}


def addresses(parties: list[str]) -> dict[str, str]:
    return {name: f"127.0.0.1:{free_port()}" for name in (*parties, PULLER, PAYEE)}


def laid_out(folder: Path, parties: int = 2, steps: int | None = 30, **values: Any) -> list[Path]:
    """Make identities and files for a simulated world, unless the values say otherwise."""
    world = write_world(folder, parties)
    given = {
        "run": "trial-1",
        "steps": steps,
        "epsilon": "1/5",
        "checkpoint_every": 10,
        "world": world,
        "addresses": addresses(list(world["features"])),
        **values,
    }
    return lay_out(
        ContextualFederation.make(
            {key: value for key, value in given.items() if value is not None}
        ),
        folder,
    )


def opened(path: Path, **how: Any) -> Party:
    return make_party(open_place(path), build, timing=how.pop("timing", QUICK), **how)[0]


def run(paths: list[Path]) -> None:
    """Run everyone over loopback mutual TLS in this process."""

    async def go() -> None:
        parties = [opened(path) for path in paths]
        await run_all(parties)
        for party in parties:
            party.engine._journal.close()

    asyncio.run(go())


class Outcome:
    """What a run came to: arms, rewards, and every party's share of the model."""

    def __init__(self, roles: dict[str, Role]) -> None:
        self.arms = roles[PULLER].arms.tolist()  # type: ignore[attr-defined]
        self.rewards = roles[PAYEE].rewards.tolist()  # type: ignore[attr-defined]
        self.models = {
            name: role.model.tobytes()
            for name, role in roles.items()
            if isinstance(role, PartyRole)
        }
        assert all(role.finished for role in roles.values())

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Outcome)
        return (self.arms, self.rewards, self.models) == (other.arms, other.rewards, other.models)

    __hash__ = None  # type: ignore[assignment]

    @property
    def model(self) -> np.ndarray:
        return np.sum(
            [np.frombuffer(share, np.uint64) for share in self.models.values()],
            axis=0,
            dtype=np.uint64,
        )


def found(paths: list[Path]) -> Outcome:
    """What journals hold after a run."""
    roles = {}
    for path in paths:
        engine = opened(path).engine
        engine._journal.close()
        roles[engine.role.name] = engine.role
    return Outcome(roles)


class TestWorld:
    """Pays what the arm of a step earns; a step that comes again must come with the same arm."""

    __test__ = False

    def __init__(self, world: World, terms: Terms) -> None:
        self._contexts, self._seed = world.contexts(), world.seed
        self._rows = row_order(self._contexts, world.seed, terms)
        self.pulled: dict[int, int] = {}
        self.asked: Counter[str] = Counter()

    def __call__(self, ask: Ask) -> Message:
        self.asked[type(ask).__name__] += 1
        if isinstance(ask, Act):
            assert self.pulled.setdefault(ask.step, ask.arm) == ask.arm
            return Acted(ask.step)
        assert isinstance(ask, Earn)
        row = int(self._rows[ask.step])
        return Earned(ask.step, self._contexts.reward(self._seed, row, self.pulled[ask.step]))


def twin(paths: list[Path], pays: Callable[[Ask], Message] | None = None) -> Outcome:
    """The same run in memory: the same terms, features and secrets; in its own world, unless `pays`
    is another.
    """
    opened_files = {
        Path(file.identity).name: file for file in (PartyFile.make(file=path) for path in paths)
    }
    options = {name: ContextualOptions.make(file.options) for name, file in opened_files.items()}
    first = options[next(iter(options))]
    terms = first.terms(opened_files[PULLER].run or "trial-1")
    secrets = dict(zip(options, map(journalled_secrets, paths), strict=True))
    planned = plan(terms)
    roles: list[Role] = [
        PartyRole(
            name,
            terms,
            planned,
            features_of(options[name], terms, name, paths[0].parent)[0],
            secrets[name],
            start=start_of(options[name], terms, name, paths[0].parent),
        )
        for name in terms.parties
    ]
    roles += [Puller(terms), Payee(terms), DealerRole(terms, planned, secrets[DEALER])]
    if pays is None:
        assert first.world is not None
        pays = TestWorld(first.world, terms)
    MemoryRun(roles, pays).finish()
    return Outcome({role.name: role for role in roles})


def factories(
    folder: Path, parties: int = 2, steps: int = 8, **more: Any
) -> tuple[dict[str, Any], Terms, World]:
    """One function a role that makes it anew with the secrets it has always had."""
    world = World(**write_world(folder, parties))
    contexts = world.contexts()
    terms = Terms("run-1", contexts.parties, (2,) * parties, len(ARMS), steps, (1, 5), **more)
    planned, rows = plan(terms), contexts.order(world.seed, steps)
    secrets = {name: Secrets.fresh() for name in (*contexts.parties, DEALER)}

    def party(name: str) -> Role:
        block = FixedPoint(terms.bits, 1.0).encode(contexts.held(name)[rows])
        return PartyRole(name, terms, planned, block, secrets[name], checkpoint_every=3)

    make: dict[str, Any] = {name: lambda name=name: party(name) for name in contexts.parties}
    make |= {PULLER: lambda: Puller(terms), PAYEE: lambda: Payee(terms)}
    make[DEALER] = lambda: DealerRole(terms, planned, secrets[DEALER])
    return make, terms, world


class Arriving(TestWorld):
    """Gives each party its features of a step; after `last` steps of one of them it says that it is
    over.
    """

    def __init__(self, world: Any, terms: Terms, last: int, ends: str = "clinic-1") -> None:
        super().__init__(world, terms)
        self._last, self._ends, self._bits = last, ends, terms.bits

    def __call__(self, ask: Ask) -> Message:
        if not isinstance(ask, Look):
            return super().__call__(ask)
        self.asked["Look"] += 1
        if ask.party == self._ends and ask.step == self._last:
            return Seen(ask.step, "", b"", over=True)
        row = int(self._rows[ask.step])
        held = FixedPoint(self._bits, 1.0).encode(self._contexts.held(ask.party)[row])
        return Seen(ask.step, f"p{row}", held.tobytes())


def arriving_roles(
    folder: Path, last: int, parties: int = 2, **more: Any
) -> tuple[dict[str, Any], Terms, Any, dict[str, Any], Terms]:
    """Roles of a run of `last` steps with files, and of one of 42 whose contexts arrive and end
    there.
    """
    plain, terms, world = factories(folder, parties, steps=last, **more)
    arriving = Terms(
        "run-1",
        terms.parties,
        terms.features,
        terms.arms,
        42,
        terms.explore,
        rows="arriving",
        **more,
    )
    planned, secrets = plan(arriving), {name: Secrets.fresh() for name in (*terms.parties, DEALER)}
    make: dict[str, Any] = {
        name: lambda name=name: PartyRole(
            name, arriving, planned, None, secrets[name], checkpoint_every=3
        )
        for name in terms.parties
    }
    make |= {PULLER: lambda: Puller(arriving), PAYEE: lambda: Payee(arriving)}
    make[DEALER] = lambda: DealerRole(arriving, planned, secrets[DEALER])
    return plain, terms, world, make, arriving


class MpcTorment(Torment):
    """The same federation as processes that are killed; its progress is read from the arms of the
    world.
    """

    def __init__(
        self, folder: Path, seed: int, *, parties: int = 2, steps: int | None = 120, **values: Any
    ) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        self.paths = {path.stem: path for path in laid_out(folder, parties, steps, **values)}
        self.expected_bytes = 2 * (steps or 0)
        self.running: dict[str, local.Process] = {}
        self.kills: Counter[str] = Counter()
        self.early_kills = self.restarts_for_others = 0
        self.seen = []
        self._end = time.monotonic() + PATIENCE

    def pulled(self) -> int:
        """Bytes of the world's arms, 2 a step."""
        path = self.folder / "world.arms"
        return path.stat().st_size if path.exists() else 0

    def log_of(self, name: str) -> bytes:
        return b""

    def until(self, size: float) -> None:
        while self.pulled() < size and self.running[PULLER].handle.poll() is None:
            self._tick()

    def log(self, name: str) -> str:
        """What a role's process has written."""
        return self.paths[name].with_suffix(".log").read_text(errors="replace")

    def check_logs(self) -> None:
        for name in self.paths:
            text = self.log(name)
            assert "Traceback" not in text, text[-2000:]
            assert "refused" not in text, text[-2000:]

    def outcome(self) -> Outcome:
        return found(list(self.paths.values()))

    def twin(self) -> Outcome:
        return twin(list(self.paths.values()))


Floats = NDArray[np.float64]


def linear(
    steps: int, arms: int, size: int, *, epsilon: float = 0.1, seed: int = 1
) -> tuple[Floats, Floats, Coins]:
    """Contexts of norm 1, rewards 0 or 1 whose chance is linear in the context, and coins."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(steps, size))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    directions = rng.normal(size=(arms, size))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    rewards = (rng.random((steps, arms)) < 0.5 + 0.5 * x @ directions.T).astype(float)
    return x, rewards, coins(steps, arms, epsilon=epsilon, seed=seed + 1)


def coins(steps: int, arms: int, *, epsilon: float, seed: int) -> Coins:
    rng = np.random.default_rng(seed)
    ties = rng.permuted(np.tile(np.arange(arms), (steps, 1)), axis=1)
    return Coins(rng.random(steps) < epsilon, rng.integers(0, arms, steps), ties)
