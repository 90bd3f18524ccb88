"""The controller, the first server (sections 5 and 7 to 9)."""

from tests.conformance import codec, core, primitives
from tests.conformance import messages as m
from tests.conformance.role import Role, Sent, require
from tests.conformance.session import Session
from tests.conformance.streams import PAIRS_PER_CHUNK, PRIME, Tapes, passes_per_chunk


class Controller(Role):
    """Holds the other share of the scores, and relays.

    Phases: set-up, scores, opening, ready, asking, comparing, placing, spent, closing.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.per_chunk = passes_per_chunk(self.count)
        self.last_number = session.last - session.first
        self.phase = "set-up"
        self.streams: dict[str, m.Stream] = {}
        self.keyring: m.Keyring | None = None
        self.dealing: m.Dealing | None = None
        self.wanted = -1, -1  # last chunks that are asked for, of passes and of comparisons
        self.chunks = self.pair_chunks = 0  # chunks that are here
        self.dealt: dict[int, bytes] = {}  # p(A) - B and F by pass number
        self.for_comp: dict[int, bytes] = {}  # later chunks of comp
        self.dealt_pairs: dict[int, bytes] = {}  # chosen pads by comparison
        self.index = session.first  # the open pass
        self.slot = 0  # the next slot
        self.frames: dict[str, list[int]] = {}  # scores of the open pass, with slots opened later
        self.ahead: m.Ahead | None = None
        self.masked = b""  # m of the open pass, until it is sent
        self.compared = 0  # q, comparisons that are used
        self.sums: dict[str, tuple[int, int]] = {}
        self.share: m.Share | None = None

    def start(self) -> Sent:
        """Relay Go (section 8, step 4)."""
        return [(name, m.Go(self.session.go)) for name in (*self.owners, "comp", "dealer")]

    def on_stream(self, sender: str, message: m.Stream) -> Sent:
        """Take σ_k for comp (section 8, step 5)."""
        require(sender not in self.streams, "a second stream")
        self.streams[sender] = message
        return self._set_up()

    def on_keyring(self, sender: str, message: m.Keyring) -> Sent:
        """Take the first owner's keys (section 8, steps 5 and 6)."""
        receivers = (*self.owners, "customer")
        require(sender == self.owners[0] and not self.keyring, "not the first owner's keyring")
        require(len(message.keys) == len(receivers), "not one key per receiver")
        pairs = zip(message.keys, receivers, strict=True)
        require(len({self.check_keys(*pair) for pair in pairs}) == 1, "different commitments")
        self.keyring = message
        return self._set_up()

    def on_dealing(self, _: str, message: m.Dealing) -> Sent:
        """Open r_1 (section 8, step 5)."""
        require(not self.dealing, "a second dealing")
        info = self.info("seed", "controller")
        self.tapes = Tapes(self.open_signed("dealer", message.controller, info, "seed"), self.count)
        self.dealing = message
        return self._set_up()

    def _set_up(self) -> Sent:
        """Relay when everything is here (section 8, step 6)."""
        if len(self.streams) < self.count or not self.keyring or not self.dealing:
            return []
        self.phase = "scores"
        streams = m.Streams([self.streams[name] for name in self.owners])
        keys = zip((*self.owners, "customer"), self.keyring.keys, strict=True)
        return [("comp", self.dealing.comp), ("comp", streams), *keys, *self._want(0)]

    def _want(self, more: int) -> Sent:
        """Ask the dealer if one of the two numbers grows (section 5.7)."""
        k, ahead = self.count, self.index - self.session.first + self.per_chunk + 1
        passes = min(ahead, self.last_number) // self.per_chunk
        spare = k * (k - 1) if k <= core.ALL_PAIRS else 5 * k + 512
        pairs = -(-(self.compared + spare + more) // PAIRS_PER_CHUNK)
        wanted = max(passes, self.wanted[0]), max(pairs, self.wanted[1])
        grows, self.wanted = wanted != self.wanted, wanted
        return [("dealer", m.Want(*wanted))] if grows else []

    def on_dealt(self, _: str, message: m.Dealt) -> Sent:
        """Take a chunk of passes (section 5.7)."""
        first, size = message.chunk * self.per_chunk, 8 * self.count + (self.count + 7) // 8
        lengths = size * self.per_chunk, 8 * self.count * self.per_chunk + 29
        require(message.chunk == self.chunks <= self.wanted[0], "not the next chunk")
        require((len(message.controller), len(message.comp)) == lengths, "another length")
        self.chunks += 1
        for i in range(self.per_chunk):
            self.dealt[first + i] = message.controller[i * size : (i + 1) * size]
        if message.chunk == 0:
            return [("comp", m.Relayed(0, message.comp)), *self._advance()]
        self.for_comp[message.chunk] = message.comp
        return self._advance()

    def on_dealtpairs(self, _: str, message: m.DealtPairs) -> Sent:
        """Take a chunk of comparisons (section 5.7)."""
        first, size = message.chunk * PAIRS_PER_CHUNK, codec.PAIR_BYTES
        require(message.chunk == self.pair_chunks <= self.wanted[1], "not the next chunk")
        require(len(message.data) == size * PAIRS_PER_CHUNK, "a chunk of another length")
        self.pair_chunks += 1
        for i in range(PAIRS_PER_CHUNK):
            self.dealt_pairs[first + i] = message.data[i * size : (i + 1) * size]
        return self._advance()

    def on_score(self, sender: str, message: m.Score) -> Sent:
        """Take a score; with slots ask comp whether all are ready (sections 5.2 and 7)."""
        require(self.phase == "scores" and sender not in self.frames, "a score out of turn")
        require(message.index == self.index, "a score of another pass")
        require(len(message.frame) == (16 if self.session.slot else 8), "another length")
        self.frames[sender] = codec.unpack(message.frame)
        if len(self.frames) < self.count:
            return []
        if not self.session.slot:
            self.phase = "ready"
            return self._advance()
        self.phase = "opening"
        word = core.total([frame[1] for frame in self.frames.values()])
        return [("comp", m.Ready(self.slot, word))]

    def on_opened(self, _: str, message: m.Opened) -> Sent:
        """Open the scores of a slot, or let all answer again (section 7)."""
        require(self.phase == "opening" and message.slot == self.slot, "not the open slot")
        require(len(message.pads) in (0, 8 * self.count), "not one word per owner")
        self.slot += 1
        if not message.pads:
            self.phase, self.frames = "scores", {}
            return [(name, m.Again(message.slot)) for name in self.owners]
        if self.index > self.session.last:
            return self._spent()
        pads = zip(self.owners, codec.unpack(message.pads), strict=True)
        self.frames = {name: core.add(self.frames[name][:1], [pad]) for name, pad in pads}
        self.phase = "ready"
        return self._advance()

    def on_ahead(self, _: str, message: m.Ahead) -> Sent:
        """Take the step ahead of the first pass (section 5.3, step 1)."""
        require(self.chunks and not self.ahead, "a step ahead out of turn")
        self._check_ahead(message, self.session.first)
        self.ahead = message
        return self._advance()

    def _check_ahead(self, ahead: m.Ahead, index: int) -> None:
        right = len(ahead.share) == len(ahead.replies) == 8 * self.count
        require(right and ahead.index == index, "not the step ahead of the next pass")

    def _advance(self) -> Sent:
        """Go on with the open pass, as far as what is dealt allows (section 5.7)."""
        number = self.index - self.session.first
        dealt = self.chunks * self.per_chunk > min(number + 1, self.last_number)
        if self.phase == "ready" and self.ahead and dealt:
            return self._begin_pass(number)
        return self._ask() if self.phase == "asking" else []

    def _begin_pass(self, number: int) -> Sent:
        """Shuffle, and ask the first question (sections 5.3 and 5.5)."""
        chunk, rest = divmod(number + 1, self.per_chunk)
        sent: Sent = []
        if rest == 0 and number < self.last_number:
            sent.append(("comp", m.Relayed(chunk, self.for_comp.pop(chunk))))
        self.tape, k = self.tapes.controller(number), self.count
        dealt = self.dealt.pop(number)
        self.flags = codec.unpack_bits(dealt[8 * k :], k)
        shares = [self.frames[name][0] for name in self.owners]
        words = codec.unpack(self.ahead.share), codec.unpack(dealt[: 8 * k])
        self.masked = codec.pack(core.controller_shuffle(shares, *words, self.tape))
        places = list(range(k))
        if k > core.ALL_PAIRS:
            search_key = primitives.secret(self.session, "samba strict search")
            places = core.order(primitives.stream_words(search_key, number * k, k))
        self.search = core.search(places)
        self.phase, self.frames, self.question = "asking", {}, next(self.search)
        return sent + self._ask() + self._want(0)

    def _ask(self) -> Sent:
        """Send the question, once its comparisons are dealt (sections 5.4 and 5.5)."""
        pairs = self.question.pairs()
        lacking = self.compared + len(pairs) - self.pair_chunks * PAIRS_PER_CHUNK
        if lacking > 0:
            return self._want(lacking)
        shifts = [
            core.shift(core.difference(self.tape.after, pair), self.tapes.choices(q))
            for q, pair in enumerate(pairs, self.compared)
        ]
        self.phase, self.compared = "comparing", self.compared + len(pairs)
        asked = self.question.champion, codec.pack(self.question.places, 2), codec.pack(shifts)
        masked, self.masked = self.masked, b""
        if masked:
            return [("comp", m.Shuffled(self.index, masked, *asked))]
        return [("comp", m.Compare(self.index, *asked))]

    def on_compared(self, _: str, message: m.Compared) -> Sent:
        """Open the answer, and go on with the search (sections 5.4 and 5.5)."""
        require(self.phase == "comparing" and message.index == self.index, "no open question")
        pairs = self.question.pairs()
        require(len(message.answer) == codec.ANSWER_BYTES * len(pairs), "another length")
        words, smaller = codec.unpack(message.answer), []
        for i, pair in enumerate(pairs):
            q, h = self.compared - len(pairs) + i, core.difference(self.tape.after, pair)
            entries = codec.unpack_layers(words[63 * i : 63 * (i + 1)], 64)
            dealt = codec.unpack_layers(self.dealt_pairs.pop(q), 8)
            smaller.append(core.evaluate(dealt, core.choose(entries, self.tapes.choices(q)), h))
        try:
            self.question, self.phase = self.search.send(smaller), "asking"
        except StopIteration as found:
            self.phase = "placing"
            return [("comp", m.Found(self.index, found.value))]
        return self._ask()

    def on_placed(self, _: str, message: m.Placed) -> Sent:
        """Send every owner its reply (section 5.6, step 3)."""
        more = self.index < self.session.last
        require(self.phase == "placing" and message.index == self.index, "no open place")
        require(len(message.bits) == (self.count + 7) // 8, "not one bit per owner")
        require((message.ahead is not None) == more, "the step ahead of the next pass")
        if more:
            self._check_ahead(message.ahead, self.index + 1)
        placed, replies = codec.unpack_bits(message.bits, self.count), self.ahead.replies
        words = core.controller_undo(placed, self.flags, codec.unpack(replies), self.tape.order)
        pairs = zip(self.owners, words, strict=True)
        sent = [(name, m.Reply(self.index, codec.pack([word]))) for name, word in pairs]
        self.ahead, self.index, self.phase = message.ahead, self.index + 1, "scores"
        return sent if more or self.session.slot else sent + self._spent()

    def _spent(self) -> Sent:
        self.phase = "spent"
        return [("customer", m.Spent([*self.owners]))]

    def on_close(self, _: str, message: m.Close) -> Sent:
        """Relay a Close; the sums follow (section 9)."""
        require(self.phase == "spent", "a Close out of turn")
        self.check_close(message)
        self.phase = "closing"
        return [(name, message) for name in (*self.owners, "comp")]

    def on_sum(self, sender: str, message: m.Sum) -> Sent:
        """Take an owner's share of the sum (section 9)."""
        require(self.phase == "closing" and sender not in self.sums, "a sum out of turn")
        residues = codec.unpack(message.ciphertext, 16, "big")
        require(len(message.ciphertext) == 32 and max(residues) < PRIME, "not two residues")
        self.sums[sender] = residues
        return self._shares()

    def on_share(self, _: str, message: m.Share) -> Sent:
        """Take comp's share of the sum (section 9)."""
        require(self.phase == "closing" and not self.share, "a share out of turn")
        self.share = message
        return self._shares()

    def _shares(self) -> Sent:
        if len(self.sums) < self.count or not self.share:
            return []
        sums = core.add_shares(self.sums.values(), PRIME)
        return [("customer", m.Shares(codec.pack(sums, 16, "big"), self.share))]

    def on_closed(self, sender: str, message: m.Closed) -> Sent:
        """Relay Closed (section 9)."""
        super().on_closed(sender, message)
        return [(name, message) for name in (*self.owners, "comp", "dealer")]
