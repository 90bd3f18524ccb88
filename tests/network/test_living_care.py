"""What an operator keeps of a service and sees of it: a backup put back in a run, its ledger,
doctor and figures.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from posse.core.errors import DataError, JournalError, LinkError
from posse.core.settings import read_toml
from posse.runtime import backup
from posse.runtime.federation import care
from posse.runtime.local import write_party
from posse.runtime.network.doctor import examine
from posse.runtime.network.operate import ask
from posse.systems import registry
from posse.systems.parties import deploy_by_name
from posse.systems.samba.settings import Samba
from tests.kit.federations import free_port
from tests.kit.living import Together

pytestmark = pytest.mark.usefixtures("home")

OWNERS = ["clinic-1", "clinic-2", "clinic-3"]
MEMBERS = {"controller": "controller", "comp": "comp", **dict.fromkeys(OWNERS, "owner")}


def samba(run: str, **values: Any) -> str:
    given = {
        "protocol": "samba",
        "run": run,
        "level": "paper",
        "policy": "ucb",
        "budget": 60,
        "owners": OWNERS,
        "paillier_bits": 2048,
        "world": {"seed": 7, "owners": 3},
    }
    return f"submit {json.dumps({**given, **values})}"


class Kept(Together):
    """A federation in one loop whose services lose their disks."""

    async def over(self, run: str) -> None:
        async def ended() -> bool:
            phase = (await self.phase(run))["phase"]
            assert phase != "dropped", await self.phase(run)
            return bool(phase == "over")

        await self.until(ended)

    async def held(self, run: str, steps: int = 5) -> None:
        """Wait until the controller has made a few steps of a run, and hold it there."""
        journal = self.laid.runs("controller") / run / "journal"

        async def begun() -> bool:
            try:
                if (await ask(journal, "status")).get("step", 0) >= steps:
                    await ask(journal, "pause")
                    return True
            except Exception:
                return False
            return False

        await self.until(begun)

    async def resume(self, run: str) -> None:
        await ask(self.laid.runs("controller") / run / "journal", "resume")

    def lose(self, name: str) -> None:
        """Lose the disk of a service: its identity, its runs, its file."""
        shutil.rmtree(self.laid.runs(name))
        shutil.rmtree(self.laid.folder / name)
        self.laid.file(name).unlink()

    async def page(self, text: str, path: str) -> tuple[int, str]:
        def read() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://{text}{path}", timeout=60) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        return await asyncio.to_thread(read)


def test_a_service_that_lost_its_disk_goes_on_from_its_backup(tmp_path: Path) -> None:
    together = Kept(tmp_path, MEMBERS)
    file, out = together.laid.file("clinic-2"), tmp_path / "clinic-2.backup"
    metrics = f"127.0.0.1:{free_port()}"
    write_party(file, {**read_toml(file), "metrics": metrics})

    async def story() -> None:
        await together.ask("customer", samba("march", budget=600))
        await together.held("march")
        status, text = await together.page(metrics, "/metrics")
        assert status == 200
        names = [
            line.split("{")[0].split(" ")[0]
            for line in text.splitlines()
            if not line.startswith("#")
        ]
        assert {"posse_founder_connected", "posse_spent_decisions", "posse_step"} <= set(names)
        assert text.count("# TYPE posse_step ") == 1
        assert 'posse_spent_decisions{party="clinic-2",role="owner",run=""} 600' in text
        assert 'posse_runs{party="clinic-2",role="owner",run="",state="started"} 1' in text
        findings = {each.what: each for each in await asyncio.to_thread(care.examine, file)}
        assert findings["part in march"].fine
        assert findings["way to customer"].said == "connected"

        # The controller stands still, so that nobody goes on after the backup: the restored party
        # is vouched for.
        made = await asyncio.to_thread(care.backup, file, out)
        assert (made.kind, made.party, made.begun) == ("service", "clinic-2", True)
        with pytest.raises(DataError, match="is the backup of a service"):
            backup.restore(out, tmp_path / "other.toml")
        await together.stop("clinic-2")
        # Of the run's own file: the service takes the party up, and nothing that it is bound to has
        # changed.
        run = together.laid.runs("clinic-2") / "march" / "party.toml"
        findings = {
            each.what: each
            for each in await asyncio.to_thread(
                examine, run, lambda name: deploy_by_name(name).build
            )
        }
        assert findings["process"].said == "none; start it with 'posse party serve'"
        assert findings["journal"].fine
        with pytest.raises(LinkError, match="Start it with 'posse party serve'"):
            await ask(run.parent / "journal", "status")
        together.lose("clinic-2")
        _, notes = await asyncio.to_thread(care.restore, out, file)
        assert notes == [
            "run 'march': it asks its peers whether they have gone on since, and goes on only if "
            "not"
        ]
        findings = {each.what: each for each in await asyncio.to_thread(care.examine, file)}
        assert "no proposal is answered until the founder has said" in findings["ledger"].said
        assert "it goes on when all peers say that the run has not" in findings["run march"].said
        assert findings["process"].said == "none; start it with 'posse party serve'"
        together.start("clinic-2")
        await together.resume("march")
        await together.over("march")
        assert (await together.page(metrics, "/health"))[0] == 200

        # From the same backup a second time: the run is over since, and what it asked is not
        # forgotten.
        await together.ask("customer", samba("april", budget=20))
        await together.over("april")
        await together.stop("clinic-2")
        together.lose("clinic-2")
        await asyncio.to_thread(care.restore, out, file)
        together.start("clinic-2")
        await together.until(recalled)
        shown = await together.ask("clinic-2", "status")
        assert shown["spent"]["decisions"] == 620
        assert shown["parts"]["march"]["state"] == "over"
        await together.ask("customer", samba("may", budget=20))
        await together.over("may")

    async def recalled() -> bool:
        return not together.services["clinic-2"].status()["restored"]

    together.play(story)
    result = json.loads(
        (together.laid.runs("customer") / "march" / "journal" / "result.json").read_text()
    )
    (total,) = registry.run(
        Samba(policy="ucb", owners=3, budget=600, seed=7, level="paper").plain()
    ).total
    assert result["total"] == total


def test_a_service_that_waits_for_one_that_is_gone_says_so_until_it_is_back(tmp_path: Path) -> None:
    """Comp is connected to the controller alone, which says for whom the run waits."""
    together = Kept(tmp_path, MEMBERS)
    file, metrics = together.laid.file("comp"), f"127.0.0.1:{free_port()}"
    write_party(file, {**read_toml(file), "metrics": metrics})

    async def health() -> tuple[int, dict[str, Any]]:
        code, text = await together.page(metrics, "/health")
        return code, json.loads(text)["waiting"]

    def said() -> str:
        return str(together.services["comp"].status()["parts"]["march"]["text"])

    async def named() -> bool:
        return "clinic-2" in said()

    async def silent() -> bool:
        return not said()

    async def story() -> None:
        await together.ask("customer", samba("march", level="paper", budget=1200))
        await together.held("march")
        assert await health() == (200, {})  # one that is paused is not missing
        await together.stop("clinic-2")
        await together.resume("march")
        await together.until(named)
        code, waiting = await health()
        assert (code, list(waiting), list(waiting["march"])) == (503, ["march"], ["clinic-2"])
        findings = {each.what: each for each in await asyncio.to_thread(care.examine, file)}
        assert not findings["part in march"].fine
        assert "clinic-2" in findings["part in march"].said
        assert (
            together.services["comp"].member.parties["march"].stalled_after == 0
        )  # its part waits for ever
        together.start("clinic-2")
        await together.until(silent)
        assert await health() == (200, {})
        await together.over("march")

    together.play(story)


def test_a_backup_of_a_run_that_went_on_is_refused_by_its_peers(tmp_path: Path) -> None:
    together = Kept(tmp_path, MEMBERS)
    file, out = together.laid.file("comp"), tmp_path / "comp.backup"

    async def story() -> None:
        await together.ask("customer", samba("march", budget=4000))
        await together.held("march")
        await asyncio.to_thread(care.backup, file, out)
        before = (await ask(together.laid.runs("controller") / "march" / "journal", "status"))[
            "step"
        ]
        await together.resume("march")
        await together.held(
            "march", before + 5
        )  # comp may have been a step ahead of the controller
        await together.stop("comp")
        with pytest.raises(JournalError, match="as new as the backup"):
            backup.check_older(
                _of_run(out, "march"), together.laid.runs("comp") / "march" / "journal"
            )
        shutil.rmtree(together.laid.runs("comp"))
        care.restore(out, file)
        together.start("comp")

        async def refused() -> bool:
            return (
                "gone on since the backup"
                in together.services["comp"].status()["parts"]["march"]["text"]
            )

        await together.until(refused)

    together.play(story)


def test_a_founder_is_put_back_with_its_authority_and_its_queue(tmp_path: Path) -> None:
    together = Kept(tmp_path, MEMBERS)
    file, out = together.laid.file("customer"), tmp_path / "founder.backup"

    async def story() -> None:
        await together.ask("customer", samba("march"))
        await together.over("march")
        await asyncio.to_thread(care.backup, file, out)
        await together.stop("customer")
        together.lose("customer")
        shutil.rmtree(tmp_path / "authority")
        _, notes = await asyncio.to_thread(care.restore, out, file)
        assert "revoke again who was expelled since" in notes[0]
        assert all(each.fine for each in await asyncio.to_thread(care.examine, file))
        # A member that loses its disk too gets no answer from a queue that may lack runs.
        clinic = together.laid.file("clinic-1")
        await asyncio.to_thread(care.backup, clinic, tmp_path / "clinic-1.backup")
        await together.stop("clinic-1")
        together.lose("clinic-1")
        await asyncio.to_thread(care.restore, tmp_path / "clinic-1.backup", clinic)
        together.start("customer")
        together.start("clinic-1")
        await together.until(together._all_here)
        await together.until(asked)
        assert (await together.phase("march"))["phase"] == "over"
        shown = [await together.ask(name, "status") for name in ("customer", "clinic-1")]
        assert [each["restored"] for each in shown] == [True, True]
        assert shown[0]["queue_restored"]
        with pytest.raises(LinkError, match="has not yet sent the runs since then"):
            await together.ask("clinic-1", "complete")
        await together.ask("customer", "complete")
        with pytest.raises(LinkError, match="there is nothing to complete"):
            await together.ask("customer", "complete")
        await together.ask("customer", samba("april"))
        await together.over("april")
        assert (await together.ask("customer", "status"))["spent"]["runs"] == 2

    async def asked() -> bool:
        return together.services["customer"]._recalls == {"clinic-1"}

    together.play(story)


def _of_run(archive: Path, run: str) -> dict[str, bytes]:
    held = backup.read(archive)[1]
    return {
        name.split("/", 2)[2]: data
        for name, data in held.items()
        if name.startswith(f"runs/{run}/")
    }
