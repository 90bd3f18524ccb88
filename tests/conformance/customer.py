"""The customer (sections 8 and 9)."""

from tests.conformance import codec, core
from tests.conformance import messages as m
from tests.conformance.role import Role, Sent, require
from tests.conformance.session import Session
from tests.conformance.streams import PRIME, tag_numbers


class Customer(Role):
    """Takes the total."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.total: int | None = None
        self.spent = False

    def on_keys(self, _: str, message: m.Keys) -> Sent:
        """Open τ (section 8, step 5)."""
        self.open_keys(message, 1)
        return []

    def on_spent(self, _: str, message: m.Spent) -> Sent:
        """Sign the normal end (section 9)."""
        require(self.tag_key and not self.spent, "the end has come before")
        require(message.present == [*self.owners], "the normal end is for all")
        self.spent = True
        signature = self.sign("close", self.close_data)
        return [("controller", m.Close(sorted(self.owners), 0, signature))]

    def on_shares(self, _: str, message: m.Shares) -> Sent:
        """Open the total; Closed is the same if it is refused (section 9)."""
        require(self.spent and len(message.controller) == 32, "not two residues")
        info = self.info("sum", "comp") + self.mark
        comp_share = self.open_signed("comp", message.comp, info, "sum")
        shares = [codec.unpack(data, 16, "big") for data in (message.controller, comp_share)]
        require(max(map(max, shares)) < PRIME, "not residues")
        value, tag = core.add_shares(shares, PRIME)
        key, offsets = tag_numbers(self.tag_key, self.mark, self.owners)
        units, pulls = divmod(value, 1 << 32)
        steps = (self.session.last + 1) // self.session.passes - 1
        valid = tag == (key * value + sum(offsets)) % PRIME
        if valid and pulls == steps and units <= steps << 24:
            self.total = units
        self.closed = True
        return [("controller", m.Closed(self.sign("closed", self.session.digest)))]
