"""A federation with one member, whose service is not connected: tests hand it what it receives."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from posse.core.settings import Settings
from posse.runtime.certificates.authority import Authority, Desk
from posse.runtime.certificates.enrolment import complete, prepare
from posse.runtime.certificates.identity import PartyIdentity
from posse.runtime.federation.consent import Demand
from posse.runtime.federation.member import Member, Systems
from posse.runtime.federation.talk import (
    Invitation,
    Line,
    Proposal,
    Sheet,
    Signed,
)
from posse.runtime.local import write_party
from posse.runtime.network.deployment import Deployment, Service
from posse.runtime.network.engine import Vocabulary
from posse.runtime.place import Place
from tests.kit.toy_roles import Leaf

MOST = 100


class Federation:
    """An authority, its customer and one member, whose folder is laid out anew for every
    example.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = (
            folder,
            Authority.init(folder / "authority", "customer", "hospitals"),
        )
        self.customer = self.enrolled("customer", "customer")
        self.enrolled("owner", "clinic-b")
        self.revoked = self.authority.current_crl().public_bytes(Encoding.DER)
        self.took: list[str] = []
        self.members: dict[str, Member] = {}

    def enrolled(self, role: str, name: str) -> PartyIdentity:
        token, now = self.authority.token(role, name), self.authority.now()
        answer = Desk(self.authority).answer(prepare(token, self.folder / name, now))
        complete(token, self.folder / name, answer.data, now)
        return PartyIdentity.load(self.folder / name)

    def propose(self, run: str, budget: int) -> Signed:
        return Signed.sign(
            Proposal.make("hospitals", {"protocol": "toy", "run": run, "budget": budget}),
            self.customer,
        )

    def file(self, folder: str, **values: Any) -> Path:
        """Write the file of the member's service."""
        consent = {"systems": ["toy"], "budget": 60, "budget_in_all": MOST, "runs": 4}
        own = {"identity": "clinic-b", "home": "127.0.0.1:7400", "runs": folder, "consent": consent}
        return write_party(self.folder / "clinic-b.toml", {**own, **values})

    def member(self, folder: str) -> Member:
        """Start the member's service, or start it again: a process that is gone holds no folder."""
        if folder in self.members:
            self.members.pop(folder).close()
        self.members[folder] = made = Member(
            self.file(folder), self.systems(), lambda *_, **__: None
        )
        return made

    def systems(self) -> Systems:
        """What a service asks of the systems; a run goes on until it is cancelled."""

        async def run(place: Place, service: Service) -> Mapping[str, Any]:
            self.took.append(place.run)
            await asyncio.sleep(3600)
            return {}

        made = Deployment(Leaf("clinic-b"), Vocabulary(()), {})
        return Systems(invite, lambda name: lambda place: made, run)


def invite(name: str, values: Mapping[str, Any]) -> Invitation:
    budget = values["budget"]
    part = {"role": "owner", "options": dict(values), "connect": (), "listens": False}
    return Invitation(Settings(), {"clinic-b": part}, lambda: Demand(name, "strict", "ucb", budget))


async def tell(
    member: Member, federation: Federation, *lines: tuple[Signed, str]
) -> dict[str, str]:
    """Send a sheet, and return what the member made of each run."""
    sheet = Sheet(tuple(Line(signed, phase, {}) for signed, phase in lines), federation.revoked)
    return {entry.digest: entry.state for entry in (await member.take(sheet)).entries}
