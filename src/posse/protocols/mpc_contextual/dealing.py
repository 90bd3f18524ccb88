"""What the dealer and the owners of inputs derive from their seeds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from posse.privacy.crypto.streams import keystream
from posse.privacy.sharing.dealing import Dealer, Plan, plan_of
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.session import Rounds, Session
from posse.privacy.sharing.tape import Shape
from posse.privacy.sharing.values import Shared
from posse.protocols.mpc_contextual.coins import DealerCoins, Dealt
from posse.protocols.mpc_contextual.program import Deals, Layout, step
from posse.protocols.mpc_contextual.terms import Terms

_STEP = 32


def input_masks(key: bytes, number: int, count: int) -> Words:
    """Return the masks of an owner's inputs in a step; the owner and the dealer know them."""
    return np.frombuffer(keystream(key, number << _STEP, 8 * count), "<u8")


def plan(terms: Terms) -> Plan:
    """Return what one step takes: tapes, rounds and bytes."""
    many = terms.explore[1]
    arms, batch = terms.arms, terms.batch
    coins = Dealt(
        np.zeros((1, batch, many), bool), np.zeros((1, batch, many), np.int64), np.zeros((1, batch, arms), np.int64),
        np.zeros((1, batch, arms)),
    )  # fmt: skip
    deals = Deals(coins, lambda owner, shape: np.zeros((1, *shape), np.uint64))
    return plan_of(lambda s: _blind(s, terms, Layout(terms.dimension), deals))


def dealer_of(
    terms: Terms, plan_: Plan, tapes: Mapping[str, bytes], inputs: Mapping[str, bytes], coins: DealerCoins
) -> Dealer:
    """Make the dealer: `tapes` are the parties' seeds, `inputs` the seeds of everyone who brings inputs."""
    layout = Layout(terms.dimension)

    def program(s: Session, first: int) -> Rounds[Shared]:
        count = s.lead[0]

        def masks(owner: str, shape: Shape) -> Words:
            size = shape[0] * (shape[1] if len(shape) > 1 else 1)
            found = np.stack([input_masks(inputs[owner], first + i, size) for i in range(count)])
            return found.reshape(count, *shape)

        drawn = coins.at(first * terms.batch, count * terms.batch).batched(terms.batch)
        return _blind(s, terms, layout, Deals(drawn, masks))

    return Dealer(program, plan_, tapes)


def _blind(s: Session, terms: Terms, layout: Layout, deals: Deals) -> Rounds[Shared]:
    model = Shared(s, s.nothing((*s.lead, terms.arms, layout.size)))
    return step(s, terms, layout, model, None, deals)
