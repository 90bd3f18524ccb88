"""The customer of level `strict`: it alone puts the two shares of the total together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posse.core.errors import ProtocolError
from posse.core.roles import Action
from posse.core.snapshots import pack
from posse.privacy.crypto.keys import Identity, Secrets, verify
from posse.privacy.crypto.pairwise import present_digest
from posse.systems.samba.messages import Agreed, End, Keys, Spent, Total
from posse.systems.samba.roles.customer import Customer, CustomerSaved
from posse.systems.samba.setup import COMP, Expected, Terms
from posse.systems.samba.strict import sums
from posse.systems.samba.strict.closing import LEAST, ask, check_agreed, same
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
        del self._handlers[Total]
        self._handlers |= {
            Keys: self._on_keys,
            Spent: self._on_spent,
            Agreed: self._on_agreed,
            Shares: self._on_shares,
        }

    def _on_keys(self, message: Keys) -> Sequence[Action]:
        if not self._going or self._tag:
            raise ProtocolError("the tag key comes once, after the start.")
        self._tag, _ = self.open_keys(message)
        return ()

    def _on_spent(self, message: Spent) -> Sequence[Action]:
        """Ask all owners for their sums, once the budget is spent; an early end that was asked for
        goes on.
        """
        if not self._going or (self._end is not None and self._end.number == 0):
            raise ProtocolError("the sums are asked for once, after the budget is spent.")
        if sorted(message.present) != sorted(self.manifest.owners):
            raise ProtocolError(
                f"expected {len(self.manifest.owners)} owners at the end, got "
                f"{len(message.present)}."
            )
        if self._end is not None:
            return ()
        self._settled, self._steps = True, self.manifest.terms.budget
        return self._ask(message.present, 0)

    def _on_end(self, message: End) -> Sequence[Action]:
        """End the run before its budget is spent, with the owners that are left; what the others
        earned is absent.
        """
        if not self._going or self._settled:
            raise ProtocolError(
                "a run can be ended early while it is going on, and such an end can be corrected "
                "until all its owners have acknowledged it."
            )
        owners, present = self.manifest.owners, set(message.present)
        least = min(LEAST, len(owners))
        if not present <= set(owners) or len(present) < least:
            raise ProtocolError(
                f"a run ends with at least {least} of its owners, got "
                f"{', '.join(sorted(present)) or 'none'}."
            )
        return self._ask(message.present, 1 if self._end is None else self._end.number + 1)

    def _ask(self, present: Sequence[str], number: int) -> Sequence[Action]:
        self._end = ask(self._identity, present, number, self._digest)
        return self.to_controller(self._end)

    def _on_agreed(self, message: Agreed) -> Sequence[Action]:
        """Make an early end final: every owner that is left has acknowledged it."""
        if self._end is None or self._settled or message.close.number > self._end.number:
            raise ProtocolError("this end was not asked for, or is final already.")
        if not same(message.close, self._end):
            return ()  # it was corrected since
        index = check_agreed(message, self.manifest, self._digest)
        self._settled, self._steps = True, index // self.manifest.terms.passes - 1
        return self.to_controller(message)

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
