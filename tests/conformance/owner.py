"""An owner (sections 5.2, 5.6, 7, 8 and 9)."""

from tests.conformance import codec, core, primitives
from tests.conformance import messages as m
from tests.conformance.role import Role, Sent, require
from tests.conformance.session import Session
from tests.conformance.streams import PRIME, sum_pads, tag_numbers


class Owner(Role):
    """Holds one arm."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.stream_key = primitives.secret(session, "samba strict stream")
        ready_key = primitives.derive(session, "samba strict ready", self.stream_key)
        self.pads = primitives.rows(self.stream_key, b"posse strict pads")
        self.slot_pads = primitives.rows(self.stream_key, b"posse strict slots")
        self.ready_words = primitives.rows(ready_key, b"posse strict ready")
        self.tag_key = b""
        self.index = session.first  # the next pass: the one after the last reply
        self.pulls: list[tuple[int, int]] = []  # the pass that caused it, reward in units
        self.pulling: int | None = None  # the pass that caused the pull under way
        self.number: int | None = None  # x of the next pass, once it is known
        self.slot = 0  # the next slot to answer
        self.waiting = False  # a slot is under way
        self.answered = False  # the score of the next pass is sent
        self.was_ready = not session.slot  # in the last answer
        self.named: m.Close | None = None  # the last early end that this owner signed
        self.end = 0  # the first pass that the sum does not count
        self.summing: m.Close | None = None  # the set of the sum, once it is known
        self.summed = False

    def start(self) -> Sent:
        """Send σ_k; the first owner also τ and γ (section 8, step 5)."""
        info = self.info("stream", self.session.name)
        stream = m.Stream(*self.seal_signed("comp", self.stream_key, info, "stream"))
        if self.session.name != self.owners[0]:
            return [("controller", stream)]
        tag_key = primitives.secret(self.session, "samba k_frame")
        common_key = primitives.secret(self.session, "samba s_own")
        commitments, ring = self._commit(tag_key, common_key), []
        for receiver in (*self.owners, "customer"):
            content = tag_key if receiver == "customer" else tag_key + common_key
            run_key, info = self.session.run_keys[receiver], self.keys_info(receiver)
            sealed = {receiver: primitives.seal(run_key, content, info)}
            signature = self.sign("keys", self.keys_data(sealed, commitments))
            ring.append(m.Keys(sealed, *commitments, signature))
        return [("controller", stream), ("controller", m.Keyring(ring))]

    def _commit(self, tag_key: bytes, common_key: bytes) -> tuple[bytes, bytes]:
        frame, own = b"frame" + self.session.digest, b"own" + self.session.digest
        return primitives.commit(tag_key, frame), primitives.commit(common_key, own)

    def on_keys(self, _: str, message: m.Keys) -> Sent:
        """Open τ and γ, and make the first pull (section 8, steps 6 and 7)."""
        require(not self.tag_key, "keys came before")
        name = self.session.name
        commitments = self.check_keys(message, name)
        secrets = self.unseal(message.sealed[name], self.keys_info(name), 64)
        fit = commitments == self._commit(secrets[:32], secrets[32:])
        require(fit, "the secrets do not fit the commitment")
        self.tag_key = secrets[:32]
        return self._pull(self.session.first - 1) + self._next()

    def _pull(self, cause: int) -> Sent:
        self.pulling = cause
        return [("world", m.Pull(len(self.pulls)))]

    def on_reward(self, _: str, message: m.Reward) -> Sent:
        """Take the reward of the pull under way."""
        require(self.pulling is not None and message.number == len(self.pulls), "no such pull")
        self.pulls.append((self.pulling, message.units))
        self.pulling = None
        return [] if self.session.slot else self._sum() or self._next()

    def _next(self) -> Sent:
        """Wait for a slot, or send the next score when no pull is under way (section 5.2)."""
        if self.session.slot:
            self.waiting = True
            return [("world", m.Tick(self.slot, self.session.slot))]
        over = self.summing is not None or self.index > self.session.last
        if over or self.answered or self.pulling is not None:
            return []
        self.answered = True
        return [("controller", m.Score(self.index, codec.pack([self._share()])))]

    def _share(self) -> int:
        """Return a of the next pass; 0 after the last pass (sections 5.2 and 7)."""
        if self.index > self.session.last:
            return 0
        if self.number is None:
            units = sum(units for _, units in self.pulls)
            self.number = self.session.scorer.number(self.index, units, len(self.pulls))
        return core.subtract([self.number], self.pads(self.index)[:1])[0]

    def on_tock(self, _: str, message: m.Tock) -> Sent:
        """Answer at the end of a slot; a sum of an early end leaves then (sections 7 and 9)."""
        require(self.waiting and message.slot == self.slot, "no such slot is under way")
        slot, self.slot, self.waiting = self.slot, self.slot + 1, False
        if self.summing:
            return self._sum() or self._next()
        self.answered, self.was_ready = True, self.pulling is None
        share = self._share() if self.was_ready else 0
        noise = None if self.was_ready else self.ready_words(slot)
        answer = core.slot_answer(share, self.slot_pads(slot), noise)
        return [("controller", m.Score(self.index, codec.pack(answer)))]

    def on_again(self, _: str, message: m.Again) -> Sent:
        """Answer again a slot later (section 7)."""
        require(self.session.slot and self.answered and not self.summing, "no answer is open")
        require(message.slot == self.slot - 1, "another slot")
        self.answered = False
        return self._next()

    def on_reply(self, _: str, message: m.Reply) -> Sent:
        """Read whether this owner is selected (section 5.6, step 4)."""
        index = message.index
        require(self.answered and not self.summing, "a reply without a score")
        require(index == self.index <= self.session.last, "a reply to another pass")
        require(self.was_ready, "this owner was not ready")
        pad = self.pads(index)[1]
        words = codec.pack([pad]), codec.pack([pad ^ 1])
        require(message.reply in words, "a reply that is neither of the two words")
        chosen = message.reply == words[1]
        self.session.scorer.learn(index, chosen)
        self.index, self.answered, self.number = index + 1, False, None
        pulls = chosen and (index + 1) % self.session.passes == 0
        return (self._pull(index) if pulls else []) + self._next()

    def on_close(self, _: str, message: m.Close) -> Sent:
        """Send the sum at the normal end; sign the next pass at an early end (section 9)."""
        require(self.tag_key and not self.summing, "this owner answers for one set")
        self.check_close(message)
        if message.number == 0:
            settled = not self.session.slot or (self.answered and self.was_ready)
            require(self.index > self.session.last and settled, "passes or a slot are left")
            self.summing, self.end = message, self.index
            return self._sum()
        require(self.session.name in message.present, "a set without this owner")
        require(not self.named or message.number > self.named.number, "an earlier set")
        self.named, self.end = message, self.index
        signature = self.sign("agree", self.agree_data(message, self.index))
        agree = m.Agree(self.session.name, message.number, self.index, signature)
        return [("controller", agree)]

    def on_agreed(self, _: str, message: m.Agreed) -> Sent:
        """Send the sum of an early end; with slots at the end of a slot (section 9)."""
        require(message.close == self.named and not self.summing, "not the set that was signed")
        require(self.check_agreed(message) == self.end, "another index")
        self.summing = message.close
        if not self.session.slot:
            return self._sum()
        return [] if self.waiting else self._next()

    def _sum(self) -> Sent:
        """Send the share of the sum, once all its rewards are here (section 9)."""
        open_pull = self.pulling is not None and self.pulling < self.end
        if self.summing is None or self.summed or open_pull:
            return []
        self.summed = True
        counted = [units for cause, units in self.pulls if cause < self.end]
        number = len(counted) if len(self.summing.present) == self.count else 0
        mark = self.mark(self.summing.present)
        key, (offset,) = tag_numbers(self.tag_key, mark, [self.session.name])
        value, pads = (sum(counted) << 32) + number, sum_pads(self.stream_key, mark)
        share = core.sum_share(value, key, offset, pads, PRIME)
        return [("controller", m.Sum(codec.pack(share, 16, "big")))]
