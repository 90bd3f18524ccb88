"""A policy of the user's own over the network: each party imports what its own file names, and compares sources."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap

import pytest

from posse.core.errors import DisagreementError, PosseError
from posse.policies.arms.registry import policy
from posse.policies.arms.shipped import UCB
from posse.systems.registry import run
from posse.systems.samba.levels import Switches
from posse.systems.samba.settings import Samba
from posse.systems.samba.setup import Expected, Terms
from tests.kit.federations import free_port, laid_out, opened, run_all
from tests.kit.parties import all_stop, edit

SOURCE = """
    from dataclasses import dataclass
    import math
    from posse.core.compiled import compiled_scalar
    from posse.policies.arms.base import Policy

    @compiled_scalar
    def score(t, turn, total, pulls, memory, key, parameters):
        return total / pulls + parameters[0] * math.sqrt(1.0 / pulls)

    @dataclass(frozen=True)
    class Hopeful(Policy):
        name = "hopeful"
        score = staticmethod(score)
        width: float = 0.5

        def parameters(self):
            return (self.width,)
"""


@pytest.fixture
def modules(monkeypatch, tmp_path):
    """Forget the modules of a test, and where they were."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def own_of_each(folder, paths, name):
    """Give every party a copy of the source in a folder of its own, as if each were on its own machine."""
    for path in paths:
        place = folder / f"own-{path.stem}"
        place.mkdir()
        module = f"{name}_{path.stem.replace('-', '_')}"
        (place / f"{module}.py").write_text(textwrap.dedent(SOURCE))
        edit(path, 'policy = "ucb"', f'policy = "{place.name}/{module}.py:Hopeful"')


def test_it_runs_where_all_have_the_same_source_wherever_each_keeps_it(tmp_path, modules):
    paths, notes = laid_out(tmp_path, budget=40), []
    own_of_each(tmp_path, paths, "same")

    async def go():
        await run_all([opened(path, notes) for path in paths])

    asyncio.run(go())
    (total,) = [note.value for note in notes if note.kind == "total"]
    mine = policy(str(tmp_path / "own-comp" / "same_comp.py") + ":Hopeful")
    assert run(Samba(policy=mine, owners=3, budget=40, seed=7, level="paper").plain()).total == (
        total,
    )


def test_who_edits_it_is_refused_and_everyone_reads_why(tmp_path, modules):
    paths = laid_out(tmp_path, budget=40)
    own_of_each(tmp_path, paths, "edited")
    edit(tmp_path / "own-clinic-2" / "edited_clinic_2.py", "1.0 / pulls", "2.0 / pulls")
    for name, end in asyncio.run(all_stop(paths)).items():
        assert isinstance(end, DisagreementError), name
        assert "the files of 'clinic-2' and 'controller' differ: policy.digest is" in str(end)


def test_nobody_imports_what_another_names(tmp_path, modules):
    """Only the customer names a module of its own, which leaves a trace wherever it is imported."""
    paths = laid_out(tmp_path, budget=40)
    trace = tmp_path / "imported"
    (tmp_path / "sly.py").write_text(
        f"import os\nwith open({str(trace)!r}, 'a') as file:\n    file.write('x')\n"
        + textwrap.dedent(SOURCE)
    )
    edit(tmp_path / "customer.toml", 'policy = "ucb"', 'policy = "sly.py:Hopeful"')

    async def go():
        customer = opened(tmp_path / "customer.toml")
        imported = trace.stat().st_size
        others = [opened(path) for path in paths if path.stem != "customer"]
        ends = await asyncio.wait_for(
            asyncio.gather(*(party.run() for party in (customer, *others)), return_exceptions=True),
            240,
        )
        assert {type(end) for end in ends} == {DisagreementError}
        assert all("hopeful" in str(end) for end in ends)
        return imported

    imported = asyncio.run(go())
    assert trace.stat().st_size == imported > 0


def test_a_module_beside_the_federation_and_parameters_in_a_table(tmp_path, modules, posse_up):
    (tmp_path / "beside.py").write_text(textwrap.dedent(SOURCE))
    told = posse_up(tmp_path, '[policy]\nname = "beside:Hopeful"\nwidth = 0.25\n')
    mine = policy({"name": str(tmp_path / "beside.py") + ":Hopeful", "width": 0.25})
    assert (told["total"],) == run(Samba(policy=mine, owners=2, budget=40, seed=7).plain()).total


@pytest.fixture
def posse_up():
    def up(folder, table):
        owners = "".join(f'[[owner]]\nname = "clinic-{i + 1}"\n' for i in range(2))
        (folder / "fed.toml").write_text(
            f'run = "t"\nlevel = "strict"\nbudget = 40\nlisten = "127.0.0.1:{free_port()}"\n'
            f"{table}[world]\nseed = 7\nowners = 2\n{owners}"
        )
        environment = {**os.environ, "POSSE_HOME": str(folder / "home")}
        done = subprocess.run(
            [sys.executable, "-m", "posse", "up", str(folder / "fed.toml"), "--json"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return up


def test_a_policy_knows_the_horizon_that_all_parties_agree_on(tmp_path):
    paths, notes = laid_out(tmp_path, budget=40, policy="tests.kit.policies:Moss"), []
    parties = [opened(path, notes) for path in paths]
    for party in parties:
        assert party.engine.terms["policy.parameters.horizon"] == "40.0"
    asyncio.run(run_all(parties))
    (total,) = [note.value for note in notes if note.kind == "total"]
    settings = Samba(policy="tests.kit.policies:Moss", owners=3, budget=40, seed=7, level="paper")
    assert run(settings.plain()).total == (total,)


def test_a_policy_with_another_horizon_than_the_run_is_refused(tmp_path):
    paths = laid_out(tmp_path, budget=40, policy="tests.kit.policies:Moss")
    for path in paths:
        edit(path, "horizon = 40.0", "horizon = 50.0")
    for name, end in asyncio.run(all_stop(paths)).items():
        assert isinstance(end, DisagreementError), name
        assert "policy.parameters.horizon is 50.0 at 'controller' and 40.0 at 'customer'" in str(
            end
        )


def test_a_policy_that_is_not_there_is_one_line(tmp_path, modules):
    laid_out(tmp_path)
    edit(tmp_path / "comp.toml", 'policy = "ucb"', 'policy = "nowhere.py:Hopeful"')
    with pytest.raises(PosseError, match=r"there is no file .*nowhere\.py"):
        opened(tmp_path / "comp.toml")


@pytest.mark.parametrize(
    "sent", ["", "[]", "5", '["ucb", []]', '[{"name": "ucb"}, []]', '[{"name": 1}]', "[[]]"]
)
def test_a_manifest_whose_policy_does_not_decode_is_refused(sent):
    with pytest.raises(
        DisagreementError, match="the manifest is for other terms than this party was started for: "
    ):
        Expected(UCB(), "paper", Switches()).check(
            Terms("r", 40, sent, 1, "paper", (), b""), 3, "o"
        )
