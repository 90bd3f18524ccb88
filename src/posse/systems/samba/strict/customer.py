"""The customer of level `strict`: it alone puts the two shares of the total together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posse.core.errors import ProtocolError
from posse.core.roles import Action
from posse.core.snapshots import pack
from posse.privacy.crypto.keys import Identity, Secrets, verify
from posse.privacy.crypto.pairwise import present_digest
from posse.systems.samba.messages import Keys
from posse.systems.samba.roles.customer import Customer, CustomerSaved
from posse.systems.samba.setup import COMP, Expected, Terms
from posse.systems.samba.strict import sums
from posse.systems.samba.strict.messages import Shares


class StrictCustomerSaved(CustomerSaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the customer: also the owners' tag key."""

    tag: bytes


class StrictCustomer(Customer):
    """Has the owners' tag key; opens comp's share, adds the controller's, and checks the tag
    (7).
    """

    def __init__(
        self,
        identity: Identity,
        expected: Expected,
        terms: Terms,
        admitted: Mapping[str, bytes],
        *,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(identity, expected, terms, admitted, None, secrets=secrets)
        self._tag = b""
        self._handlers |= {Keys: self._on_keys, Shares: self._on_shares}

    def _on_keys(self, message: Keys) -> Sequence[Action]:
        if not self._going or self._tag:
            raise ProtocolError("the tag key comes once, after the start.")
        self._tag, _ = self.open_keys(message)
        return ()

    def _on_shares(self, message: Shares) -> Sequence[Action]:
        """Add the shares up and check the tag."""
        if not self._tag:
            raise ProtocolError("the total comes before the tag key.")

        def opened() -> tuple[int, int]:
            assert self._end is not None
            digest = present_digest(self._end.present, self._digest)
            info = self.info("sum", COMP) + digest
            verify(
                self.manifest.member(COMP).identity,
                b"sum",
                info + message.comp.sealed,
                message.comp.signature,
            )
            pairs = (
                sums.decode(message.controller),
                sums.decode(self._run_key.open(message.comp.sealed, info)),
            )
            return sums.opened(pairs, key=self._tag, present=digest, owners=self._end.present)

        return self._conclude(opened)

    def save(self) -> dict[str, Any]:
        """Return the whole state."""
        return pack(StrictCustomerSaved(**self._common(), tag=self._tag))

    def _restore(self, saved: Mapping[str, Any]) -> None:
        read = self._loaded(saved, StrictCustomerSaved)
        self._take_up(read)
        self._tag = read.tag
