"""Comp, the second server (sections 5.3 to 5.7, 7, 8 and 9)."""

from cryptography.exceptions import InvalidTag

from tests.conformance import codec, core, primitives
from tests.conformance import messages as m
from tests.conformance.role import Refused, Role, Sent, require
from tests.conformance.session import Session
from tests.conformance.streams import PRIME, Tapes, passes_per_chunk, sum_pads


class Comp(Role):
    """Holds one share of the scores."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.label_key = primitives.secret(session, "samba strict labels")
        self.seed, self.stream_keys = b"", []
        self.chunks = 0  # chunks of passes that are here
        self.dealt: dict[int, bytes] = {}  # p'(A') - B' by pass number
        self.index = session.first  # the open pass
        self.slot = 0  # the next slot
        self.opened = not session.slot  # the controller has the scores of the open pass
        self.share: list[int] = []  # z'' of the open pass
        self.sampled: set[int] = set()
        self.champions: set[int] = set()
        self.compared = 0  # comparisons that are answered
        self.summed = False

    def on_seeds(self, _: str, message: m.Seeds) -> Sent:
        """Open r_2 (section 8, step 5)."""
        require(not self.seed, "the seed came before")
        self.seed = self.open_signed("dealer", message, self.info("seed", "comp"), "seed")
        self.tapes = Tapes(self.seed, self.count)
        return []

    def on_streams(self, _: str, message: m.Streams) -> Sent:
        """Open the stream keys σ_k, in the order of the manifest (section 8, step 6)."""
        require(len(message.streams) == self.count and not self.stream_keys, "not the streams")
        pairs = zip(self.owners, message.streams, strict=True)
        keys = [self.open_signed(k, each, self.info("stream", k), "stream") for k, each in pairs]
        require(len(set(keys)) == len(keys), "two stream keys are equal")
        self.stream_keys = keys
        self.pads = [primitives.rows(key, b"posse strict pads") for key in keys]
        self.slot_pads = [primitives.rows(key, b"posse strict slots") for key in keys]
        return []

    def on_relayed(self, _: str, message: m.Relayed) -> Sent:
        """Open a chunk of the dealer; after the first, send the first Ahead (section 5.7)."""
        chunk, per_chunk, size = message.chunk, passes_per_chunk(self.count), 8 * self.count
        require(self.seed and self.stream_keys and chunk == self.chunks, "not the next chunk")
        cipher, context = primitives.chunk_cipher(self.seed, self.session.digest, chunk)
        frame = message.sealed
        require(frame[:1] == b"\x01" and len(frame) == per_chunk * size + 29, "another length")
        try:
            content = cipher.decrypt(frame[1:13], frame[13:], context)
        except InvalidTag as error:
            raise Refused("a chunk that does not open") from error
        self.chunks += 1
        for i in range(per_chunk):
            self.dealt[chunk * per_chunk + i] = content[i * size : (i + 1) * size]
        return [("controller", self._ahead())] if chunk == 0 else []

    def _ahead(self) -> m.Ahead:
        """Return ρ - A and η ⊕ E of the open pass (section 5.3, step 1)."""
        self.tape = self.tapes.comp(self.index - self.session.first)
        scores, replies = zip(*(row(self.index) for row in self.pads), strict=True)
        words = core.step_ahead(scores, replies, self.tape)
        return m.Ahead(self.index, *map(codec.pack, words))

    def on_ready(self, _: str, message: m.Ready) -> Sent:
        """Open the scores of a slot if all owners are ready (section 7)."""
        require(self.stream_keys and not self.opened, "no slot is open")
        require(message.slot == self.slot and 0 <= message.word < 1 << 64, "not the next slot")
        alphas, betas = zip(*(row(self.slot) for row in self.slot_pads), strict=True)
        self.slot += 1
        self.opened = core.total([message.word, *betas]) == 0
        return [("controller", m.Opened(message.slot, codec.pack(alphas) if self.opened else b""))]

    def on_shuffled(self, _: str, message: m.Shuffled) -> Sent:
        """Take the shuffled scores with the first question (sections 5.3 and 5.4)."""
        number = message.index - self.session.first
        require(message.index == self.index <= self.session.last, "not the open pass")
        require(self.opened and number in self.dealt, "the pass is not opened or not dealt")
        require(not self.share, "the pass has begun")
        require(len(message.masked) == 8 * self.count, "not one word per owner")
        question, shifts = self._question(message)
        words = codec.unpack(message.masked), codec.unpack(self.dealt.pop(number))
        self.share = core.comp_shuffle(*words, self.tape)
        return self._answer(question, shifts)

    def on_compare(self, _: str, message: m.Compare) -> Sent:
        """Take a further question (section 5.5)."""
        require(message.index == self.index and self.share, "not open")
        return self._answer(*self._question(message))

    def _question(self, message: m.Shuffled | m.Compare) -> tuple[core.Question, list[int]]:
        """Return a question and its shifts, or refuse it (section 5.5)."""
        require(len(message.places) % 2 == 0 and message.champion >= -1, "not a question")
        question = core.Question(message.champion, codec.unpack(message.places, 2))
        acceptable = core.acceptable(question, self.count, self.sampled, self.champions)
        require(acceptable, "pairs that were or could be compared before")
        require(len(message.shifts) == 8 * len(question.pairs()), "not one shift per pair")
        shifts = codec.unpack(message.shifts)
        require(max(shifts) < 1 << 63, "a shift has 63 bits")
        return question, shifts

    def _answer(self, question: core.Question, shifts: list[int]) -> Sent:
        """Return the garbled comparisons of a question (section 5.4)."""
        if question.champion < 0:
            self.sampled.update(question.places)
        else:
            self.champions.add(question.champion)
        answer = b""
        for pair, shift in zip(question.pairs(), shifts, strict=True):
            words = primitives.stream_words(self.label_key, 20 * self.compared, 20)
            d, pads = core.difference(self.share, pair), self.tapes.pads(self.compared)
            tables = core.garble(d, shift, codec.label_draws(words), pads)
            answer += codec.pack(codec.pack_layers(tables, 64))
            self.compared += 1
        return [("controller", m.Compared(self.index, answer))]

    def on_found(self, _: str, message: m.Found) -> Sent:
        """Return the bits of the largest, and the step ahead of the next pass (section 5.6)."""
        require(message.index == self.index and self.share, "not open")
        require(0 <= message.place < self.count, "no such place")
        bits = codec.pack_bits(core.comp_place(message.place, self.tape))
        self.index += 1
        self.opened, self.share = not self.session.slot, []
        self.sampled, self.champions = set(), set()
        ahead = self._ahead() if self.index <= self.session.last else None
        return [("controller", m.Placed(message.index, bits, ahead))]

    def on_close(self, _: str, message: m.Close) -> Sent:
        """Send Σ f and Σ f' (section 9)."""
        over = self.index > self.session.last and self.opened
        require(over and not self.summed, "passes or a slot are left, or the sum was sent")
        self.check_close(message)
        self.summed = True
        sums = core.add_shares([sum_pads(key, self.mark) for key in self.stream_keys], PRIME)
        info, content = self.info("sum", "comp") + self.mark, codec.pack(sums, 16, "big")
        return [("controller", m.Share(*self.seal_signed("customer", content, info, "sum")))]
