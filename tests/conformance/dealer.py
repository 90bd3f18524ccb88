"""The dealer (sections 5.3, 5.4 and 5.7)."""

import os

from tests.conformance import codec, core, primitives
from tests.conformance import messages as m
from tests.conformance.role import Role, Sent, require
from tests.conformance.session import Session
from tests.conformance.streams import PAIRS_PER_CHUNK, Tapes, passes_per_chunk

SERVERS = "controller", "comp"


class Dealer(Role):
    """Deals randomness; holds no data."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.seeds = [primitives.secret(session, "samba strict seed", name) for name in SERVERS]
        self.controller, self.comp = (Tapes(seed, self.count) for seed in self.seeds)
        self.passes = self.pairs = 0  # chunks that are dealt

    def start(self) -> Sent:
        """Send r_1 and r_2 (section 8, step 5)."""
        pairs = zip(SERVERS, self.seeds, strict=True)
        seeds = [self.seal_signed(k, seed, self.info("seed", k), "seed") for k, seed in pairs]
        return [("controller", m.Dealing(*(m.Seeds(*each) for each in seeds)))]

    def on_want(self, _: str, message: m.Want) -> Sent:
        """Deal the chunks up to the wanted ones (section 5.7)."""
        passes, pairs = self.passes, self.pairs
        more = message.passes + 1 - passes, message.pairs + 1 - pairs
        require(min(more) >= 0 and max(more) > 0, "a chunk is dealt once")
        require(more[0] <= 2, "too many chunks of passes at once")
        require(more[1] <= 16 * (1 + self.count // 100), "too many chunks of comparisons at once")
        self.passes, self.pairs = message.passes + 1, message.pairs + 1
        dealt = [("controller", self._deal(chunk)) for chunk in range(passes, self.passes)]
        return dealt + [("controller", self._deal_pairs(c)) for c in range(pairs, self.pairs)]

    def _deal(self, chunk: int) -> m.Dealt:
        """Return a chunk of passes (sections 5.3 and 5.7)."""
        size, first, second = passes_per_chunk(self.count), b"", b""
        for number in range(chunk * size, (chunk + 1) * size):
            tapes = self.controller.controller(number), self.comp.comp(number)
            words, flags, comp_words = core.deal_pass(*tapes)
            first += codec.pack(words) + codec.pack_bits(flags)
            second += codec.pack(comp_words)
        cipher, context = primitives.chunk_cipher(self.seeds[1], self.session.digest, chunk)
        nonce = os.urandom(12)
        return m.Dealt(chunk, first, b"\x01" + nonce + cipher.encrypt(nonce, second, context))

    def _deal_pairs(self, chunk: int) -> m.DealtPairs:
        """Return a chunk of comparisons (sections 5.4 and 5.7)."""
        numbers = range(chunk * PAIRS_PER_CHUNK, (chunk + 1) * PAIRS_PER_CHUNK)
        dealt = (core.choose(self.comp.pads(q), self.controller.choices(q)) for q in numbers)
        return m.DealtPairs(chunk, b"".join(bytes(codec.pack_layers(each, 8)) for each in dealt))
