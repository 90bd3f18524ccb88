"""What a party brings to a run is bound to its journal: no noise, mask or secret is used for two
different numbers.
"""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest
from typer.testing import CliRunner

from posse.cli.app import app
from posse.core.errors import ConfigError, JournalError, PosseError
from posse.core.roles import OPERATOR, WORLD, SendMany
from posse.core.settings import read_toml
from posse.runtime.local import data_beside, write_party
from posse.runtime.network.deployment import make_party
from posse.runtime.network.doctor import examine
from posse.runtime.network.operate import Control, party_commands
from posse.runtime.place import open_place
from posse.systems.dp_combinatorial.agent import Agent, Buyer
from posse.systems.dp_combinatorial.deploy import AgentOptions
from posse.systems.dp_combinatorial.messages import Delivered, Hello, Offers
from posse.systems.dp_combinatorial.terms import VERSION, Terms
from posse.systems.mpc_contextual.layout import ContextualFederation
from posse.systems.mpc_contextual.layout import lay_out as lay_out_contextual
from posse.systems.mpc_contextual.settings import ContextualOptions
from posse.systems.parties import deploy_by_name, deployed_systems, reread_inputs
from posse.systems.samba.deploy import SambaOptions
from tests.kit import market, mpc
from tests.kit.federations import QUICK, free_port, laid_out
from tests.kit.market import DELIVERIES, laid_out_with_own_files
from tests.kit.parties import LAY_OUT, close, finish, opened


def doctor(path):
    """What the doctor finds in the journal of a party; its folder stays as it is."""
    journal = open_place(path).journal
    before = {
        each: (each.stat().st_mtime_ns, each.read_bytes()) for each in sorted(journal.rglob("*"))
    }
    found = {one.what: one for one in examine(path, lambda system: deploy_by_name(system).build)}[
        "journal"
    ]
    assert {
        each: (each.stat().st_mtime_ns, each.read_bytes()) for each in sorted(journal.rglob("*"))
    } == before
    return found


# Every setting of every role of every system ------------------------------------------------------

SAMBA = {
    "policy": "thompson",
    "schedule": "sqrt",
    "owners": ["clinic-1", "clinic-3", "clinic-2"],
    "coefficient": 1.5,
    "world": {"seed": 8, "owners": 3},
    "epsilon": 0.2,
}
PLACES = {"customer", "authority"}
"""Where a certificate and the authority lie is an address; which customer it is, is bound."""
SYSTEMS = {
    "samba": (
        SambaOptions,
        {**SAMBA, "level": "strict"},
        PLACES,
    ),
    "samba strict": (
        SambaOptions,
        {**SAMBA, "level": "paper"},
        PLACES,
    ),
    "mpc-contextual": (
        ContextualOptions,
        {
            "policy": "linucb",
            "epsilon": "1/4",
            "limit": 1e6,
            "rows": "abc",
            "bits": 24,
            "newton": 3,
            "batch": 2,
            "checkpoint_every": 11,
            "delta": 1e-4,
            "width": 0.5,
            "world": {},
            "bounds": [0.6, 0.6],
            "steps": 5,
            "parties": ["clinic-2", "clinic-1"],
            "columns": [2, 3],
            "arms": 4,
            "encoding": "latin-1",
            "decimal": ",",
            "start": f"30:{'0' * 32}",
            "reward_range": [0.0, 2.0],
            "slot": 0.5,
            "jitter": 0.5,
        },
        {
            "features",
            "start_from",
        },  # where they lie is an address; what they hold is bound (test_mpc_processes)
    ),
    "dp-combinatorial": (
        AgentOptions,
        {
            "data": "normal",
            "currency": "EUR",
            "policy": "placebo",
            "noise": "paper",
            "delta": "0.02",
            "unit": "round",
            "rule": "fuse",
            "oracle": "exact",
            "path": "compiled",
            "roster": ["ada", "eve", "bob"],
            "suppliers": ["south", "north"],
            "alpha": 0.35,
            "horizon": 13,
            "start": 4,
            "stop": 9,
            "drift": 0.1,
            "margin": 0.05,
            "overlap": 0.5,
            "reports": [2, 5],
            "encoding": "latin-1",
            "decimal": ",",
        },
        {"own"},  # may change, by an instruction: see below
    ),
}
"""For each system: its options, other values that are valid, and fields that may change."""


def another(value):
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else 0.25 if value is None else value * 1.5


def edited(path, field, value):
    values = read_toml(path)
    values["options"][field] = value
    write_party(path, values)


def test_every_system_that_deploys_is_here():
    assert {each.name for each in deployed_systems()} == {
        name.partition(" ")[0] for name in SYSTEMS
    }


@pytest.mark.parametrize("name", SYSTEMS)
def test_another_input_behind_a_journal_is_refused_and_named(tmp_path, name):
    options, others, free = SYSTEMS[name]
    paths = LAY_OUT[name](tmp_path)
    finish(paths)
    build = deploy_by_name(name.partition(" ")[0]).build
    roles = {open_place(path).identity.role: path for path in paths}  # one party a role
    bound = set()
    for (role, path), (field, info) in itertools.product(
        roles.items(), options.model_fields.items()
    ):
        if field in free:
            continue
        before, value = (
            path.read_bytes(),
            others[field] if field in others else another(info.default),
        )
        edited(path, field, value)
        try:
            build(open_place(path))
        except PosseError:
            path.write_bytes(before)
            continue  # it is wrong by itself, journal or not
        with pytest.raises(JournalError) as caught:
            opened(path)
        text, seen = str(caught.value), doctor(path)
        assert (seen.fine, seen.said) == (False, caught.value.text)
        assert "Put back what it began with" in text or "Put its file back" in text, (role, field)
        # Terms are named as all parties know them: the start of reports by their rounds, say.
        assert (
            field in text
            or options.aliases.get(field, field) in text
            or "agreed to other terms" in text
        )
        bound.add(field)
        path.write_bytes(before)
        close(opened(path))
    assert all(doctor(path).fine for path in paths)
    # What is wrong by itself in this set-up; everything else was tried behind a journal.
    hopeless = set(options.model_fields) - bound - free
    assert hopeless == HOPELESS[name]


HOPELESS = {
    "samba": {
        "epsilon",
        "schedule",
        "scale",
        "tau",
        "beta",
        "slot",
        "slowest_pull",
    },  # of other policies and levels
    "samba strict": {
        "epsilon",
        "schedule",
        "scale",
        "tau",
        "beta",
        "slowest_pull",
    },  # of owners, and a world with slots
    "mpc-contextual": {
        "without_guarantee",
        "frozen",
    },  # of epsilon 0, and of a run that starts from another
    # Of markets that drift, are normal, or come from a table; rounds of reports stand in place of the
    # start that these files have.
    "dp-combinatorial": {"columns", "drift_every", "sd", "reports"},
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_addresses_sync_patience_and_metrics_may_change(tmp_path, name):
    paths = LAY_OUT[name](tmp_path)
    finish(paths)
    for path in paths:
        values = read_toml(path)
        values |= {
            "sync": not values["sync"] or "strict" in name,
            "give_up": 17.0,
            "metrics": f"127.0.0.1:{free_port()}",
        }
        values["connect"] = {peer: f"127.0.0.1:{free_port()}" for peer in values.get("connect", {})}
        if "listen" in values:
            values["listen"] = f"127.0.0.1:{free_port()}"
        write_party(path, values)
        party = opened(path)
        assert party.engine.role.finished
        close(party)


def test_the_source_is_bound_and_where_it_is_reached_is_not(tmp_path):
    sources = [
        {"kind": "http", "url": f"http://127.0.0.1:{free_port()}/", "timeout": 1.0}
        for _ in range(2)
    ]
    owner = laid_out(
        tmp_path,
        world=None,
        owner=[{"name": f"clinic-{i + 1}", "source": each} for i, each in enumerate(sources)],
    )[-1]
    party = opened(owner)
    party.engine.begin()
    party.engine.checkpoint()
    close(party)
    text = owner.read_text()
    owner.write_text(
        text.replace("timeout = 1.0", "timeout = 9.0").replace("http://127", "https://127")
    )
    close(opened(owner))
    owner.write_text(text.replace('kind = "http"', 'kind = "bernoulli"\nmean = 0.5'))
    with pytest.raises(JournalError, match=r"source\.kind, source\.mean changed"):
        opened(owner)
    assert "source.kind, source.mean changed" in doctor(owner).said


def test_a_party_says_how_its_own_file_is_written(tmp_path):
    members = []
    for header, row, encoding in (
        ("age,dose", "0.5,0.25", "utf-8"),
        ("age;dose", "0,5;0,25", "latin-1"),
    ):
        mark = header[3]
        own = tmp_path / f"{len(members)}.csv"
        own.write_text(
            "\n".join([f"row{mark}{header}", *(f"é{i}{mark}{row}" for i in range(4))]),
            encoding=encoding,
        )
        members.append({"name": f"clinic-{len(members)}", "features": str(own)})
    members[1] |= {"encoding": "latin-1", "decimal": ","}
    source = {"source": {"kind": "http", "url": f"http://127.0.0.1:{free_port()}/"}}
    given = {
        "run": "r1",
        "arms": 2,
        "steps": 4,
        "party": members,
        "puller": source,
        "payee": source,
    }
    paths = lay_out_contextual(ContextualFederation.make(given), tmp_path)
    one, other = (
        deploy_by_name("mpc-contextual").build(open_place(path)).role for path in paths[:2]
    )
    assert one.inputs_digest == other.inputs_digest
    with pytest.raises(ConfigError, match="has decimal from its parties"):
        lay_out_contextual(ContextualFederation.make({**given, "decimal": ","}), tmp_path)
    edited(paths[2], "decimal", ",")
    with pytest.raises(ConfigError, match="decimal belongs to the file of a party"):
        opened(paths[2])


def test_content_of_a_file_is_bound_and_its_place_is_not(tmp_path):
    """A party's features: moved they are the same, edited they are refused."""
    paths = mpc.laid_out(tmp_path, steps=4)
    finish(paths)
    payee = tmp_path / "payee.toml"
    rewards = tmp_path / "pays.csv"
    moved = rewards.rename(tmp_path / "moved.csv")
    payee.write_text(payee.read_text().replace("pays.csv", "moved.csv"))
    close(opened(payee))
    moved.write_text(moved.read_text().replace("0.5", "0.6"))
    with pytest.raises(JournalError, match="world changed"):
        opened(payee)


# Noise --------------------------------------------------------------------------------------------


async def until(party, round_):
    while party.engine.role.state()["step"] < round_:
        await asyncio.sleep(0.005)


def halfway(paths):
    """Run everyone until ada has reported, and stop."""

    async def go():
        parties = [opened(path) for path in paths]
        running = [asyncio.create_task(party.run()) for party in parties]
        await asyncio.wait_for(until(parties[0], 5), 240)
        for party in parties:
            party.stop()
        await asyncio.gather(*running)
        close(*parties)

    asyncio.run(go())


def slowed(folder):
    """Deliveries that take a moment, so that a run can be stopped in the middle."""
    (folder / "all_good.py").write_text(
        "import time\n\n\ndef good(run, round, units):\n    time.sleep(0.05)\n"
        "    return dict(units)\n"
    )


def test_an_edited_price_list_is_refused_and_the_remedy_takes_it_from_the_next_round_on(tmp_path):
    paths = laid_out_with_own_files(tmp_path, rounds=30)
    slowed(tmp_path)
    halfway(paths)
    before = opened(paths[0])
    role, history = before.engine.role, before.engine.role.knowledge
    bought, sent, step = history.units.copy(), role.state()["reports"], role.state()["step"]
    assert sent > 0
    noise = role._noise.pair(sent, 0, 100.0)
    close(before)
    (tmp_path / "ada.csv").write_text("supplier,cost,capacity\nnorth,0.25,20\nsouth,0.5,10\n")
    with pytest.raises(
        JournalError, match=r"other offers than its file has now.*posse party update"
    ):
        opened(paths[0])
    assert "other offers than its file has now" in doctor(paths[0]).said
    reread_inputs(paths[0])
    assert doctor(paths[0]).fine
    after = opened(paths[0])
    role = after.engine.role
    assert role.knowledge.units.tolist() == bought.tolist()
    assert (role.state()["reports"], role.state()["step"]) == (sent, step)
    close(after)
    (tmp_path / "all_good.py").write_text(DELIVERIES)
    ada = finish(paths)[0].engine.role
    assert ada._buyer.capacity.tolist() == [20.0, 10.0]
    assert ada._noise.pair(sent, 0, 100.0) != noise
    # The round that was under way was bought at the old price; the rounds after it at the new one.
    old = step * 10
    assert ada.knowledge.units[0] == old + (30 - step) * 20
    assert ada.revenue == pytest.approx(
        ada.knowledge.good.sum() - old * 0.5 - (30 - step) * 20 * 0.25 - 30 * 10 * 0.5
    )
    (tmp_path / "ada.csv").write_text("supplier,cost,capacity\nnorth,0.25,30\nsouth,0.5,10\n")
    with pytest.raises(JournalError, match="posse party update"):
        opened(paths[0])


def test_the_command_takes_a_list_at_a_running_agent_and_at_a_stopped_one(tmp_path):
    paths = laid_out_with_own_files(tmp_path, rounds=30)
    slowed(tmp_path)
    halfway(paths)
    party, made = make_party(
        open_place(paths[0]), deploy_by_name("dp-combinatorial").build, timing=QUICK
    )
    (tmp_path / "ada.csv").write_text("supplier,cost,capacity\nnorth,0.25,20\nsouth,0.5,10\n")
    control = Control(open_place(paths[0]).journal, party_commands(party, made.commands))

    async def running():
        await control.start()
        before = await asyncio.to_thread(
            CliRunner().invoke, app, ["party", "update", str(paths[0])]
        )
        assert (before.exit_code, "P810" in before.stderr) == (2, True)  # nobody has connected yet
        for link in party.engine.links.values():
            link.connected(link.sent, link.durable_there)
        told = await asyncio.to_thread(CliRunner().invoke, app, ["party", "update", str(paths[0])])
        control.close()
        return told.exit_code

    assert asyncio.run(running()) == 0
    party.engine.sync()
    close(party)
    close(opened(paths[0]))
    (tmp_path / "ada.csv").write_text("supplier,cost,capacity\nnorth,-1,20\n")
    refused = CliRunner().invoke(app, ["party", "update", str(paths[0])])
    assert (refused.exit_code, "cost" in refused.stderr) == (2, True)
    (tmp_path / "ada.csv").write_text("supplier,cost,capacity\nnorth,0.25,5\n")
    with pytest.raises(JournalError, match="posse party update"):
        opened(paths[0])
    assert CliRunner().invoke(app, ["party", "update", str(paths[0])]).exit_code == 0
    again = opened(paths[0])
    assert again.engine.role.brings.capacity == (5.0, 0.0)
    close(again)


def test_a_seed_is_agreed_on_where_the_market_is_simulated(tmp_path):
    agreed = []
    for name, make in (("own", laid_out_with_own_files), ("simulated", market.laid_out)):
        (tmp_path / name).mkdir()
        party = opened(make(tmp_path / name)[0])
        agreed.append(party.engine.terms.get("seed"))
        close(party)
    assert agreed == ["null", str(market.MARKET["seed"])]


def test_a_report_over_a_change_pays_for_the_larger_capacity():
    terms = Terms(("ada", "bob"), ("north",), 6, "placebo", (2, 4, 6), (1.0, 1.0, 1.0), "fuse")
    agent = Agent("ada", terms, Buyer(np.array([0.1]), np.array([10.0]), 0.0, 1.0), None)
    agent.start()
    agent.receive("bob", Hello(VERSION, terms.digest))
    before = agent._noise.pair(0, 0, 1e6)
    agent.receive(OPERATOR, Offers((0.1,), (4.0,)))
    agent.receive(WORLD, Delivered(1, (10.0,)))
    assert agent._noise.pair(0, 0, 1e6) != before  # no two lists are hidden by the same noise
    sends = [
        each for each in agent.receive(WORLD, Delivered(2, (4.0,))) if isinstance(each, SendMany)
    ]
    assert sends[0].sends[0][2].sigma == (10.0,)  # ten were bought in round 1
    saved = agent.save()
    assert agent._most.tolist() == [4.0]
    with pytest.raises(JournalError):
        Agent("ada", terms, Buyer(np.array([0.1]), np.array([10.0]), 0.0, 1.0), None).load(saved)


def test_a_journal_begun_anew_beside_its_old_root_draws_other_noise(tmp_path):
    paths = laid_out_with_own_files(tmp_path)
    first = finish(paths)
    for path in paths:
        for file in (tmp_path / path.stem / "journal").glob("*-*"):
            file.unlink()
        assert (tmp_path / path.stem / "journal" / "root.key").exists()
    second = finish(paths)
    for one, two in zip(first, second, strict=True):
        assert one.engine.role._noise.pair(0, 0, 1e6) != two.engine.role._noise.pair(0, 0, 1e6)


# The root of secrets ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_root_that_is_missing_beside_a_journal_is_not_drawn_again(tmp_path, name):
    paths = LAY_OUT[name](tmp_path)
    finish(paths)
    for path in paths:
        root = tmp_path / path.stem / "journal" / "root.key"
        kept = root.read_bytes()
        root.unlink()
        with pytest.raises(
            JournalError, match=r"root\.key is missing beside the journal.*Restore it"
        ):
            opened(path)
        found = {
            one.what: one for one in examine(path, lambda system: deploy_by_name(system).build)
        }
        assert not found["journal"].fine
        assert not root.exists()
        root.write_bytes(bytes(32))
        root.chmod(0o600)
        with pytest.raises(JournalError, match=r"root\.key changed"):
            opened(path)
        root.write_bytes(kept)
        close(opened(path))


def test_the_doctor_draws_and_writes_nothing_for_a_party_that_has_not_begun(tmp_path):
    for path in mpc.laid_out(tmp_path, steps=4):
        examine(path, lambda system: deploy_by_name(system).build)
        assert not (tmp_path / path.stem / "journal").exists()


def test_a_customer_without_the_key_of_its_total_does_not_get_another(tmp_path):
    paths = laid_out(tmp_path, budget=12)
    finish(paths)
    (tmp_path / "customer" / "journal" / "paillier.key").unlink()
    with pytest.raises(JournalError, match=r"paillier\.key is missing.*opens with no other key"):
        opened(tmp_path / "customer.toml")


def test_a_role_without_anything_to_change_says_so(tmp_path):
    paths = laid_out(tmp_path, budget=12)
    with pytest.raises(ConfigError) as error:
        reread_inputs(paths[0])
    assert error.value.rule == "systems.party.not-started"
    finish(paths)
    with pytest.raises(ConfigError) as error:
        reread_inputs(paths[0])
    assert error.value.rule == "systems.party.nothing-changes"


# Files of another role, tables without effect, paths ----------------------------------------------


def rewritten(path, **changes):
    """A party's file with other values at the top."""
    write_party(path, {**read_toml(path), **changes})
    return path


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_source_where_none_belongs_is_refused(tmp_path, name):
    for path in LAY_OUT[name](tmp_path):
        place = open_place(path)
        if place.identity.role in ("puller", "payee", "agent"):
            continue
        rewritten(path, source={"kind": "bernoulli", "mean": 0.5})
        with pytest.raises(ConfigError, match=r"\[source\] has no effect"):
            opened(path)
        found = [
            one
            for one in examine(path, lambda system: deploy_by_name(system).build)
            if not one.fine
        ]
        assert any("[source] has no effect" in one.said for one in found)


@pytest.mark.parametrize("name", ["samba", "samba strict", "mpc-contextual"])
def test_a_file_with_the_identity_of_another_role_is_refused(tmp_path, name):
    paths = {open_place(path).identity.role: path for path in LAY_OUT[name](tmp_path)}
    for role, other in itertools.permutations(paths, 2):
        values = read_toml(paths[role])
        rewritten(paths[role], identity=read_toml(paths[other])["identity"])
        with pytest.raises(ConfigError, match="Correct identity"):
            opened(paths[role])
        write_party(paths[role], values)


@pytest.mark.parametrize(
    ("role", "other", "field"),
    [("customer", "owner", "authority"), ("controller", "comp", "owners")],
)
def test_a_file_that_names_no_role_is_known_by_its_options(tmp_path, role, other, field):
    owners = [
        {"name": f"clinic-{i}", "source": {"kind": "bernoulli", "mean": 0.5}} for i in (1, 2, 3)
    ]
    paths = {
        open_place(path).identity.role: path
        for path in laid_out(tmp_path, world=None, owner=owners)
    }
    values = {
        **read_toml(paths[role]),
        "identity": read_toml(paths[other])["identity"],
        "consent": {"budget": 99},
    }
    values.pop("role")
    write_party(paths[role], values)
    with pytest.raises(
        ConfigError, match=rf"{field} belongs to the file of {role}.*says '{other}'"
    ):
        opened(paths[role])


def test_delta_is_the_number_it_is_however_it_is_written(tmp_path):
    """1/n of three agents and 1/3 are one delta: the agents agree."""
    paths = laid_out_with_own_files(tmp_path, policy="p-fcb", delta="1/n")
    edited(paths[0], "delta", "1/3")
    parties = [opened(path) for path in paths]
    assert parties[0].engine.terms == parties[1].engine.terms
    edited(paths[0], "delta", "0.2")
    close(*parties)
    other = opened(paths[0])
    assert other.engine.terms["delta"] != parties[1].engine.terms["delta"]
    close(other)


def test_paths_of_data_are_relative_to_the_partys_file(tmp_path, monkeypatch):
    """A simulated world's table of means lies beside the party's file, wherever the party is
    started.
    """
    (tmp_path / "rates.csv").write_text("name,mean\na,0.5\nb,0.25\nc,0.75\n")
    paths = laid_out(tmp_path, budget=12)
    owner = paths[-1]
    edited(owner, "world", {"seed": 7, "data": "rates.csv"})
    monkeypatch.chdir("/")
    party = opened(owner)
    close(party)
    here = str(tmp_path / "rates.csv")
    assert data_beside({"data": "rates.csv", "data_dir": "x"}, tmp_path) == {
        "data": here,
        "data_dir": str(tmp_path / "x"),
    }
    assert data_beside({"data": "embedded:movielens"}, tmp_path) == {"data": "embedded:movielens"}
    (tmp_path / "rates.csv").unlink()
    with pytest.raises(PosseError):
        opened(owner)
