"""Whom a role cannot finish without: everybody else, less those whose part may be over before its own.

The dealer may leave a few chunks before the end, the puller and other parties in the middle of the last step. A party
knows what is still to come; the others know from their own step how far everyone must be.
"""

from __future__ import annotations

from posse.core.roles import Role
from posse.privacy.sharing.dealing import Plan
from posse.protocols.mpc_contextual.dealer import DealerRole
from posse.protocols.mpc_contextual.messages import AHEAD
from posse.protocols.mpc_contextual.party import Party
from posse.protocols.mpc_contextual.payee import Payee
from posse.protocols.mpc_contextual.puller import Puller
from posse.protocols.mpc_contextual.terms import DEALER, PAYEE, PULLER


def needs(role: Role, plan: Plan) -> set[str]:
    """Name the roles that this one cannot finish without."""
    if isinstance(role, Party):
        return role.awaited
    if isinstance(role, DealerRole):
        return {*role.terms.parties, PULLER, PAYEE}
    assert isinstance(role, Puller | Payee)
    terms = role.terms
    found = {*terms.parties, PAYEE if isinstance(role, Puller) else PULLER}
    if isinstance(role, Payee) and role.told == terms.passes:
        found.discard(PULLER)
    # Parties are at most a pass ahead of the puller, and ask the dealer for a few chunks ahead.
    ahead = (role.step // terms.batch + 1) // plan.passes + AHEAD
    if not role.dealt or ahead < (terms.passes - 1) // plan.passes:
        found.add(DEALER)
    return found
