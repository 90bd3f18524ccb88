"""`posse federation ca` and `posse party enrol`: the whole way, on the wire and by files, and every mistake in one
line.
"""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posse.cli.app import app
from posse.cli.flags import INTERRUPTED
from posse.runtime.certificates.identity import PartyIdentity
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER
from posse.systems.parties import deployed_systems
from posse.systems.samba.setup import COMP, CONTROLLER, CUSTOMER
from tests.kit.commands import SECONDS, Call, one_line

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def ready(posse: Call) -> Call:
    """A command line in a folder with an authority."""
    outcome = posse("federation", "ca", "init", "--run", "trial-7")
    assert (outcome.code, outcome.out) == (0, "")
    assert "posse federation ca token" in outcome.err
    return posse


def token_of(posse: Call, *args: str) -> str:
    outcome = posse("federation", "ca", "token", "--role", "owner", "--name", "clinic-b", *args)
    assert outcome.code == 0, outcome.err
    return outcome.out.strip()


def test_by_files(ready: Call, tmp_path: Path) -> None:
    token = token_of(ready)
    asked = ready("party", "enrol", token, "--request", "b.request")
    assert (asked.code, asked.out) == (0, "")
    assert "posse federation ca sign b.request" in asked.err
    signed = ready("federation", "ca", "sign", "b.request", "--out", "b.answer")
    assert "enrolled owner 'clinic-b' of run 'trial-7'" in signed.err
    done = ready("party", "enrol", token, "--answer", "b.answer")
    assert done.code == 0, done.err
    assert len(re.findall(r"fingerprint of .*: +([0-9a-f]{4}-){7}[0-9a-f]{4}\n", done.err)) == 2
    assert PartyIdentity.load("clinic-b").name == "clinic-b"
    assert stat.S_IMODE(Path("clinic-b/party.key").stat().st_mode) == 0o600
    for outcome in (asked, signed, done):
        assert token not in outcome.out + outcome.err
        assert "PRIVATE" not in outcome.out + outcome.err
    assert "PRIVATE" not in Path("b.request").read_bytes().decode("latin1")


def test_signing_twice_gives_the_same_answer(ready: Call) -> None:
    token = token_of(ready)
    ready("party", "enrol", token, "--request", "r")
    ready("federation", "ca", "sign", "r", "--out", "one")
    ready("federation", "ca", "sign", "r", "--out", "two")
    assert Path("one").read_bytes() == Path("two").read_bytes()
    ready("party", "enrol", token, "--request", "other", "--out", "elsewhere")
    said = one_line(ready("federation", "ca", "sign", "other", "--out", "three"))
    assert (
        "[P710] the request for owner 'clinic-b' of run 'trial-7' is refused: the token was used "
        "already" in said
    )
    assert not Path("three").exists()
    (token_row,) = json.loads(ready("federation", "ca", "list", "--json").out)["tokens"]
    assert (token_row["refusals"], token_row["last_refusal"]) == (1, "used")


def test_over_the_wire_as_processes(process: Start, ready: Call) -> None:
    token = token_of(ready, "--host", "localhost")
    server = process("federation", "ca", "serve", "--port", "0")
    try:
        assert server.stderr is not None
        port = re.search(r"taking requests on 127\.0\.0\.1:(\d+)", server.stderr.readline())
        assert port is not None
        enrolling = process(
            "party", "enrol", "-", "--address", f"127.0.0.1:{port[1]}", stdin=subprocess.PIPE
        )
        out, err = enrolling.communicate(token + "\n", timeout=SECONDS)
        assert (enrolling.returncode, out) == (0, ""), err
        assert "fingerprint of your key" in err
        out, err = server.communicate(timeout=SECONDS)
    finally:
        server.kill()
        server.wait()
    assert (server.returncode, out) == (0, ""), err
    assert "enrolled owner 'clinic-b' of run 'trial-7'" in err
    assert "done: no token is open any more" in err
    assert PartyIdentity.load("clinic-b").role == "owner"


def test_ctrl_c_stops_the_server(process: Start, ready: Call) -> None:
    token_of(ready)
    server = process("federation", "ca", "serve", "--port", "0")
    assert server.stderr is not None
    while "waiting for owner 'clinic-b'" not in (line := server.stderr.readline()):
        assert line, "ended before it was interrupted"
    server.send_signal(signal.SIGINT)
    _, err = server.communicate(timeout=SECONDS)
    assert server.returncode == INTERRUPTED
    assert err == "stopped. Open tokens: clinic-b.\n"


def test_a_token_says_where_and_json_has_it_all(ready: Call) -> None:
    outcome = ready(
        "federation", "ca", "token", "--role", "comp", "--address", "127.0.0.1:9", "--json"
    )
    told = json.loads(outcome.out)
    assert (told["role"], told["name"], told["run"], told["address"]) == (
        "comp",
        "comp",
        "trial-7",
        "127.0.0.1:9",
    )
    assert outcome.err == ""
    assert "[P710] cannot enrol at 127.0.0.1:9" in one_line(ready("party", "enrol", told["token"]))


def test_the_list_shows_no_secrets(ready: Call) -> None:
    assert "No parties yet" in ready("federation", "ca", "list").out
    token = token_of(ready)
    ready("party", "enrol", token, "--request", "r")
    ready("federation", "ca", "sign", "r", "--out", "a")
    token_of(ready)
    plain, listed = ready("federation", "ca", "list"), ready("federation", "ca", "list", "--json")
    assert "valid" in plain.out
    document = json.loads(listed.out)
    assert [row["state"] for row in document["tokens"]] == ["used", "open"]
    assert document["certificates"][0]["state"] == "valid"
    assert token not in plain.out + listed.out
    assert set(document["tokens"][0]) == {
        "name",
        "role",
        "state",
        "made",
        "expires",
        "hosts",
        "serial",
        "refusals",
        "last_refusal",
    }


def test_revoking(ready: Call) -> None:
    token = token_of(ready)
    ready("party", "enrol", token, "--request", "r")
    ready("federation", "ca", "sign", "r", "--out", "a")
    ready("party", "enrol", token, "--answer", "a")
    outcome = ready("federation", "ca", "revoke", "clinic-b")
    assert outcome.err.startswith("revoked ")
    assert "revoked" in ready("federation", "ca", "list").out
    assert "nothing to revoke" in one_line(ready("federation", "ca", "revoke", "clinic-b"))
    assert ready("federation", "ca", "crl", "--out", "clinic-b/crl.pem").code == 0
    assert ready("federation", "ca", "crl").out.startswith("-----BEGIN X509 CRL-----")
    with pytest.raises(Exception, match="was revoked"):
        PartyIdentity.load("clinic-b")
    token_of(ready)
    assert (
        "withdrew the open tokens of clinic-b"
        in ready("federation", "ca", "revoke", "clinic-b").err
    )


def test_a_passphrase_from_a_file(posse: Call) -> None:
    Path("secret").write_text("correct horse\n")
    assert posse("federation", "ca", "init", "--run", "r", "--passphrase-file", "secret").code == 0
    token = token_of(posse)
    posse("party", "enrol", token, "--request", "q")
    assert "this is not a terminal. Pass --passphrase-file" in one_line(
        posse("federation", "ca", "sign", "q", "--out", "a")
    )
    Path("wrong").write_text("incorrect horse\n")
    refused = one_line(
        posse("federation", "ca", "sign", "q", "--out", "a", "--passphrase-file", "wrong")
    )
    assert "[P700] the passphrase does not open" in refused
    outcome = posse("federation", "ca", "sign", "q", "--out", "a", "--passphrase-file", "secret")
    assert outcome.code == 0
    assert "correct horse" not in outcome.err


WRONG = [
    (
        ["federation", "ca", "init", "--run", "Trial 7"],
        "[P100] run must be 1 to 63 of a-z, 0-9 and -",
    ),
    (["federation", "ca", "init", "--run", "r", "--name", "A"], "[P100] name must be 1 to 63"),
    (
        ["federation", "ca", "init", "--run", "r", "--passphrase"],
        "this is not a terminal. Pass --passphrase-file FILE",
    ),
    (
        ["federation", "ca", "init", "--run", "r", "--passphrase-file", "none"],
        "cannot read the passphrase file none",
    ),
    (["federation", "ca", "init"], "Missing option '--run'"),
    (
        ["federation", "ca", "token", "--role", "owner", "--name", "a"],
        "[P700] there is no authority in posse-ca. Make one with",
    ),
    (
        ["federation", "create", "f", "--called", "acme"],
        "the customer of a run is called 'customer', got 'acme'. Leave --called out.",
    ),
    (
        ["federation", "create", "f", "--role", "agent"],
        "the role agent needs a name. Pass --called, such as --called clinic-b.",
    ),
    (["federation", "ca", "list"], "there is no authority in posse-ca"),
    (["federation", "ca", "serve"], "there is no authority in posse-ca"),
    (["federation", "ca", "sgin"], "No such command 'sgin'"),
    (["party", "enrol", "hello"], "[P710] this is not a token: it must begin with 'posse1_'"),
    (["party", "enrol", "posse1_abcd"], "the token has a typo"),
    (["party", "enrol"], "(rule: cli.token.missing; "),
    (
        ["party", "enrol", "x", "--request", "a", "--answer", "b"],
        "are three ways to enrol. Pass one of them",
    ),
]


@pytest.mark.parametrize(("args", "says"), WRONG, ids=[" ".join(args) for args, _ in WRONG])
def test_mistakes_before_anything_is_written(
    posse: Call, tmp_path: Path, args: list[str], says: str
) -> None:
    assert says in one_line(posse(*args))
    assert list(tmp_path.iterdir()) == []


LATER = [
    (["federation", "ca", "init", "--run", "r"], "posse-ca exists and is not overwritten"),
    (
        ["federation", "ca", "token", "--role", "ownr", "--name", "a"],
        "unknown role 'ownr'. Did you mean 'owner'?",
    ),
    (["federation", "ca", "token", "--role", "owner"], "the role owner needs a name. Pass --name"),
    (["federation", "ca", "token", "--role", "party"], "the role party needs a name. Pass --name"),
    (
        ["federation", "ca", "token", "--role", "dealer", "--name", "x"],
        "the dealer of a run is called 'dealer', got 'x'",
    ),
    (
        ["federation", "ca", "token", "--role", "comp", "--name", "x"],
        "the comp of a run is called 'comp', got 'x'",
    ),
    (
        ["federation", "ca", "token", "--role", "owner", "--name", "comp"],
        "'comp' is the name of a role",
    ),
    (["federation", "ca", "token", "--role", "owner", "--name", "A"], "name must be 1 to 63"),
    (
        ["federation", "ca", "token", "--role", "owner", "--name", "a", "--host", "*.x"],
        "host must be a DNS name",
    ),
    (
        ["federation", "ca", "token", "--role", "owner", "--name", "a", "--minutes", "0"],
        "minutes must be in [1, 1440], got 0",
    ),
    (
        ["federation", "ca", "token", "--role", "owner", "--name", "a", "--days", "9999"],
        "825], got 9999",
    ),
    (
        ["federation", "ca", "token", "--role", "owner", "--name", "a", "--address", "x"],
        "address must be host:port",
    ),
    (["federation", "ca", "serve"], "no token is open. Make one with 'posse federation ca token'"),
    (["federation", "ca", "sign", "none", "--out", "x"], "[P200] cannot read the request none"),
    (
        ["federation", "ca", "sign", "posse-ca/ca.crt", "--out", "x"],
        "[P710] the request is refused: the request does not decode",
    ),
    (["federation", "ca", "revoke", "nobody"], "[P700] nothing to revoke"),
]


@pytest.mark.parametrize(("args", "says"), LATER, ids=[" ".join(args) for args, _ in LATER])
def test_mistakes_with_an_authority(
    ready: Call, tmp_path: Path, args: list[str], says: str
) -> None:
    assert says in one_line(ready(*args))
    assert [path.name for path in tmp_path.iterdir()] == ["posse-ca"]


def test_mistakes_with_a_token(ready: Call) -> None:
    token = token_of(ready)
    assert "(rule: cli.address.missing; " in one_line(ready("party", "enrol", token))
    assert "address must be host:port" in one_line(ready("party", "enrol", token, "--address", "x"))
    assert not Path("clinic-b").exists(), "no key is drawn for a command that cannot work"
    assert "cannot read the answer none" in one_line(
        ready("party", "enrol", token, "--answer", "none")
    )
    Path("big").write_bytes(bytes(70_000))
    assert "has more than 65536 bytes" in one_line(
        ready("party", "enrol", token, "--answer", "big")
    )
    Path("junk").write_bytes(bytes(100))
    assert "no request was made in clinic-b" in one_line(
        ready("party", "enrol", token, "--answer", "junk")
    )
    ready("party", "enrol", token, "--request", "r")
    assert "the answer does not decode" in one_line(
        ready("party", "enrol", token, "--answer", "junk")
    )
    assert "a typo" in one_line(ready("party", "enrol", token[:-3], "--request", "r"))
    outcome = CliRunner().invoke(app, ["party", "enrol", "-", "--request", "r2"], input=b"\xff\xfe")
    assert outcome.exit_code == 2


def test_help_alone(posse: Call) -> None:
    outcome = posse("federation", "ca")
    assert outcome.code == 0
    for name in ("init", "token", "serve", "sign", "list", "revoke", "crl"):
        assert name in outcome.out


@pytest.mark.parametrize("role", ["puller", "payee", "dealer"])
def test_roles_outside_the_parties_go_by_their_name(ready: Call, role: str) -> None:
    told = json.loads(ready("federation", "ca", "token", "--role", role, "--json").out)
    assert (told["role"], told["name"]) == (role, role)
    assert f"'{role}' is the name of a role" in one_line(
        ready("federation", "ca", "token", "--role", "party", "--name", role)
    )


def test_roles_are_those_of_the_systems() -> None:
    roles = {
        kind.kind: kind.sole for system in deployed_systems() for kind in system.roles if kind.party
    }
    assert {kind for kind, sole in roles.items() if sole} == {
        CONTROLLER,
        COMP,
        CUSTOMER,
        PULLER,
        PAYEE,
        DEALER,
    }
    assert {kind for kind, sole in roles.items() if not sole} == {"owner", "agent", "party"}


def test_a_token_goes_through_files_that_only_their_owner_reads(
    tmp_path: Path, posse: Call
) -> None:
    ca, file = tmp_path / "ca", tmp_path / "clinic-b.token"
    posse("federation", "ca", "init", "--run", "trial-9", "--ca", str(ca))
    made = posse(
        "federation",
        "ca",
        "token",
        "--ca",
        str(ca),
        "--role",
        "owner",
        "--name",
        "clinic-b",
        "--out",
        str(file),
    )
    assert made.code == 0
    token = file.read_text().strip()
    assert token not in made.out + made.err
    assert file.stat().st_mode & 0o077 == 0
    again = posse(
        "federation",
        "ca",
        "token",
        "--ca",
        str(ca),
        "--role",
        "owner",
        "--name",
        "clinic-c",
        "--out",
        str(file),
    )
    assert again.code != 0
    assert file.read_text().strip() == token
    asked, identity = tmp_path / "request", str(tmp_path / "clinic-b")
    taken = posse(
        "party", "enrol", "--token-file", str(file), "--request", str(asked), "--out", identity
    )
    assert taken.code == 0
    assert asked.exists()
    assert token not in taken.out + taken.err
    file.chmod(0o644)
    wide = posse(
        "party", "enrol", "--token-file", str(file), "--request", str(asked), "--out", identity
    )
    assert wide.code == 2
    assert "others" in wide.err
    for wrong in ((), (token, "--token-file", str(file))):
        told = posse("party", "enrol", *wrong)
        assert told.code == 2
        assert "--token-file" in told.err


def test_no_crash_writes_a_secret_to_a_disk() -> None:
    script = (
        "import resource; from posse.core.files import forbid_core_dumps; forbid_core_dumps(); import "
        "ctypes;"
        "print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "(0, 0) 0"
