"""A living federation of real processes on loopback, whose services are killed with kill -9 and
started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from posse.core.errors import LinkError
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.enrolment import complete, prepare
from posse.runtime.federation.service import Living
from posse.runtime.local import AUTHORITY, write_party
from posse.runtime.network.operate import ask
from posse.systems.parties import functions_for_service
from tests.kit.federations import free_port

PATIENCE = 600.0
"""Seconds without an end after which a test gives up."""
FEDERATION = "hospitals"
CONSENT = {"systems": ["samba"], "budget": 5000, "budget_in_all": 50_000}


class LivingFederation:
    """Services of a founder (the customer) and members, each a process; all are stopped at the
    end.
    """

    def __init__(
        self,
        folder: Path,
        members: dict[str, str],
        *,
        seed: int = 1,
        founder: tuple[str, str] = ("customer",) * 2,
        **values: Any,
    ) -> None:
        """Let all enrol, with their roles by name; the founder is a name and a role, and has values
        in its file.
        """
        self.folder, self.rng = folder, random.Random(seed)
        self.home = f"127.0.0.1:{free_port()}"
        self.authority, self.founder = (
            Authority.init(folder / AUTHORITY, founder[0], FEDERATION),
            founder[0],
        )
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.kills: Counter[str] = Counter()
        self._deadline = time.monotonic() + PATIENCE
        self.enrol(*founder, {"authority": AUTHORITY, "listen": self.home, **values})
        for name, role in members.items():
            self.join(name, role)

    def enrol(self, name: str, role: str, values: dict[str, Any]) -> None:
        """Let a party enrol, and write the file of its service."""
        token, now = self.authority.token(role, name), self.authority.now()
        answer = Desk(self.authority).answer(prepare(token, self.folder / name, now))
        complete(token, self.folder / name, answer.data, now)
        own = {"identity": name, "runs": f"{name}-runs", "founder": self.founder}
        write_party(self.folder / f"{name}.toml", {**own, **values})

    def join(self, name: str, role: str, **values: Any) -> None:
        """Let a member enrol; a controller listens."""
        reach = (
            {"listen": f"127.0.0.1:{free_port()}"}
            if role not in ("owner", "comp", "dealer", "customer")
            else {}
        )
        self.enrol(name, role, {"home": self.home, "consent": CONSENT, **reach, **values})

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.toml"

    def runs(self, name: str) -> Path:
        return self.folder / f"{name}-runs"

    def __enter__(self) -> LivingFederation:
        for path in sorted(self.folder.glob("*.toml")):
            self.start(path.stem)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, name: str) -> None:
        own = {
            "POSSE_HOME": str(self.folder / "home"),
            "OMP_NUM_THREADS": "1",
            "NUMBA_NUM_THREADS": "1",
        }
        environment = {**os.environ, **own}
        with self.file(name).with_suffix(".log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "posse", "party", "serve", str(self.file(name))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Kill a service and start it again."""
        process = self.running[name]
        assert process.poll() is None, (
            f"'{name}' ended with {process.returncode}: {self.tail(name)}"
        )
        self.stop(name)
        self.kills[name] += 1
        self.start(name)

    def stop(self, name: str) -> None:
        """Kill a service."""
        self.running[name].kill()
        self.running[name].wait()

    def connected(self) -> set[str]:
        """Members that the founder's service is connected to."""
        members = self.ask(self.founder, "status")["members"]
        return {name for name, one in members.items() if one["connected"]}

    def refusal(self, name: str, values: dict[str, Any]) -> str:
        """Propose a run at a member that may not, and return what the founder says."""
        shown = self.ask(name, f"submit {json.dumps(values)}")
        while shown["phase"] == "asked":
            self.tick(f"an answer to '{name}'")
            shown = self.ask(name, f"follow {values['run']}")
        assert shown["phase"] == "refused", shown
        return str(shown["text"])

    def ask(self, name: str, command: str) -> Any:
        """Ask a service; one that is starting is waited for."""
        while True:
            try:
                return asyncio.run(ask(self.runs(name), command, patience=60))
            except LinkError as error:
                if "answers: " in error.text:
                    raise
                self.tick(f"'{name}' to answer")

    def submit(self, run: str, owners: list[str], **values: Any) -> None:
        """Propose a run, in a simulated world unless that is None."""
        given = {
            "protocol": "samba",
            "run": run,
            "level": "strict",
            "policy": "ucb",
            "budget": 60,
            "owners": owners,
            "paillier_bits": 2048,
            "world": {"seed": 7, "owners": len(owners)},
            **values,
        }
        given = {name: value for name, value in given.items() if value is not None}
        self.ask(self.founder, f"submit {json.dumps(given)}")

    def phase(self, run: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.ask(self.founder, f"follow {run}")
        return shown

    def until(self, run: str, phase: str) -> dict[str, Any]:
        """Wait until a run is in a phase; a run that is dropped instead fails the test."""
        while True:
            shown = self.phase(run)
            if shown["phase"] == phase:
                return shown
            assert shown["phase"] != "dropped", f"{shown}; {self.tail(self.founder)}"
            self.tick(f"run {run} to be {phase}, which is {shown}")

    def hold(self, name: str, run: str) -> None:
        """Wait until a party has begun a run, and hold it there: whatever comes now comes in the
        run.
        """
        journal = self.runs(name) / run / "journal"
        while True:
            try:
                if asyncio.run(ask(journal, "status"))["begun"]:
                    asyncio.run(ask(journal, "pause"))
                    break
            except LinkError:
                shown = self.phase(run)
                assert shown["phase"] != "dropped", shown
            self.tick(f"'{name}' to begin run {run}")
        assert not asyncio.run(ask(journal, "status"))["finished"]

    def until_step(self, run: str, step: float) -> None:
        """Wait until the controller has made so many steps of a run, or the run is over."""
        journal = self.runs("controller") / run / "journal"
        while self.phase(run)["phase"] != "over":
            with suppress(LinkError):
                if asyncio.run(ask(journal, "status")).get("step", 0) >= step:
                    return
            self.tick(f"step {step:.0f} of run {run}")

    def resume(self, name: str, run: str) -> None:
        asyncio.run(ask(self.runs(name) / run / "journal", "resume"))

    def total(self, run: str) -> float:
        """The total that the customer's part wrote."""
        return float(
            json.loads((self.runs("customer") / run / "journal" / "result.json").read_text())[
                "total"
            ]
        )

    def tick(self, wanted: str) -> None:
        time.sleep(0.05)
        if time.monotonic() > self._deadline:
            tails = {name: self.tail(name) for name in self.running}
            raise AssertionError(
                f"waited {PATIENCE:g} s for {wanted}; kills {dict(self.kills)}; logs {tails}"
            )

    def extend(self) -> None:
        """Begin the patience anew: something has come to its end."""
        self._deadline = time.monotonic() + PATIENCE

    def tail(self, name: str) -> str:
        path = self.file(name).with_suffix(".log")
        return path.read_text(errors="replace")[-1500:] if path.exists() else ""


DEADLINE = 600.0


class Together:
    """Services of one federation in one loop."""

    def __init__(
        self,
        folder: Path,
        members: dict[str, str],
        founder: tuple[str, str] = ("customer", "customer"),
        consent: dict[str, Any] | None = None,
        **values: Any,
    ) -> None:
        self.laid = LivingFederation(folder, {}, founder=founder, **values)
        for name, role in members.items():
            self.laid.join(name, role, **({} if consent is None else {"consent": consent}))
        self.names = [founder[0], *members]
        self.services: dict[str, Living] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, command: str) -> Any:
        return await ask(self.laid.runs(name), command, patience=60)

    async def until(self, wanted: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not await wanted():
                await asyncio.sleep(0.02)

    async def phase(self, run: str) -> dict[str, Any]:
        shown: dict[str, Any] = await self.ask(self.names[0], f"follow {run}")
        return shown

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        """Run all services while a story is told."""

        async def all_of_them() -> None:
            for name in self.names:
                self.start(name)
            try:
                await self.until(self._all_here)
                await story()
            finally:
                for service in self.services.values():
                    service._over.set()
                await asyncio.gather(*self.tasks.values())

        asyncio.run(all_of_them())

    def start(self, name: str) -> None:
        self.services[name] = Living(
            self.laid.file(name), functions_for_service(lambda text: None), lambda *_, **__: None
        )
        self.tasks[name] = asyncio.create_task(self.services[name].run())

    async def stop(self, name: str) -> None:
        self.services[name]._over.set()
        await self.tasks[name]

    async def _all_here(self) -> bool:
        return len(self.services[self.names[0]].control.connections) == len(self.names) - 1
