"""The customer (sections 8 and 9)."""

from tests.conformance import codec, core, primitives
from tests.conformance import messages as m
from tests.conformance.role import Role, Sent, require
from tests.conformance.session import Session
from tests.conformance.streams import PRIME, tag_numbers


class Customer(Role):
    """Takes the total."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.total: int | None = None
        self.refused = False
        self.tag_key = b""
        self.number = 0  # early ends that the operator has named
        self.close: m.Close | None = None  # the last one that is signed
        self.end: int | None = None  # the first pass that the sum does not count, once settled

    def on_keys(self, _: str, message: m.Keys) -> Sent:
        """Open τ (section 8, step 5)."""
        require(not self.tag_key, "keys came before")
        commitment, _own = self.check_keys(message, "customer")
        tag_key = self.unseal(message.sealed["customer"], self.keys_info("customer"), 32)
        fit = commitment == primitives.commit(tag_key, b"frame" + self.session.digest)
        require(fit, "the secret does not fit the commitment")
        self.tag_key = tag_key
        return []

    def on_spent(self, _: str, message: m.Spent) -> Sent:
        """Sign the normal end; an early end that is named goes on instead (section 9)."""
        require(self.tag_key and (self.number or not self.close), "the end has come before")
        require(sorted(message.present) == sorted(self.owners), "the normal end is for all")
        if self.number:
            return []
        self.end = self.session.last + 1
        return self._sign_close(message.present)

    def on_end(self, _: str, message: m.End) -> Sent:
        """Name a set of owners for an early end (section 9)."""
        require(self.tag_key and self.end is None, "the end has come before")
        self.check_set(message.names)
        self.number += 1
        return self._sign_close(message.names)

    def _sign_close(self, names: list[str]) -> Sent:
        signature = self.sign("close", self.close_data(names, self.number))
        self.close = m.Close(sorted(names), self.number, signature)
        return [("controller", self.close)]

    def on_agreed(self, _: str, message: m.Agreed) -> Sent:
        """Accept that all owners of the set agree on one index (section 9)."""
        require(self.end is None and message.close == self.close, "not the set that was named")
        self.end = self.check_agreed(message)
        return [("controller", message)]

    def on_shares(self, _: str, message: m.Shares) -> Sent:
        """Open the total; Closed is the same if it is refused (section 9)."""
        require(self.end is not None and len(message.controller) == 32, "not two residues")
        mark = self.mark(self.close.present)
        comp_share = self.open_signed("comp", message.comp, self.info("sum", "comp") + mark, "sum")
        shares = [codec.unpack(data, 16, "big") for data in (message.controller, comp_share)]
        require(max(map(max, shares)) < PRIME, "not residues")
        numbers = tag_numbers(self.tag_key, mark, self.close.present)
        value = core.open_sum(shares, *numbers, PRIME)
        units, pulls = divmod(value or 0, 1 << 32)
        steps = self.end // self.session.passes - 1
        expected = steps if len(self.close.present) == self.count else 0
        self.refused = value is None or pulls != expected or units > steps << 24
        self.total, self.closed = None if self.refused else units, True
        return [("controller", m.Closed(self.sign("closed", self.session.digest)))]
