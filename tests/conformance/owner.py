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
        self.index = session.first  # the next pass: the one after the last reply
        self.rewards: list[int] = []  # in units
        self.pulling = False  # a pull is under way
        self.slot = 0  # the next slot to answer
        self.waiting = False  # a slot is under way
        self.answered = False  # the score of the next pass is sent
        self.was_ready = not session.slot  # in the last answer
        self.summing = self.summed = False  # the sum is asked for, and sent

    def start(self) -> Sent:
        """Send σ_k; the first owner also τ and γ (section 8, step 5)."""
        info = self.info("stream", self.session.name)
        stream = m.Stream(*self.seal_signed("comp", self.stream_key, info, "stream"))
        if self.session.name != self.owners[0]:
            return [("controller", stream)]
        tag_key = primitives.secret(self.session, "samba k_frame")
        common_key = primitives.secret(self.session, "samba s_own")
        commitments, ring = self.commitments(tag_key, common_key), []
        for receiver in (*self.owners, "customer"):
            content = tag_key if receiver == "customer" else tag_key + common_key
            info = self.info(self.owners[0], receiver, kind="keys")
            sealed = {receiver: self.seal(receiver, content, info)}
            signature = self.sign("keys", self.keys_data(sealed, commitments))
            ring.append(m.Keys(sealed, *commitments, signature))
        return [("controller", stream), ("controller", m.Keyring(ring))]

    def on_keys(self, _: str, message: m.Keys) -> Sent:
        """Open τ and γ, and make the first pull (section 8, steps 6 and 7)."""
        self.open_keys(message, 2)
        return self._pull() + self._next()

    def _pull(self) -> Sent:
        self.pulling = True
        return [("world", m.Pull(len(self.rewards)))]

    def on_reward(self, _: str, message: m.Reward) -> Sent:
        """Take the reward of the pull under way."""
        require(self.pulling and message.number == len(self.rewards), "no such pull")
        self.rewards.append(message.units)
        self.pulling = False
        return [] if self.session.slot else self._sum() or self._next()

    def _next(self) -> Sent:
        """Wait for a slot, or send the next score when no pull is under way (section 5.2)."""
        if self.session.slot:
            self.waiting = True
            return [("world", m.Tick(self.slot, self.session.slot))]
        if self.index > self.session.last or self.answered or self.pulling:
            return []
        self.answered = True
        return [("controller", m.Score(self.index, codec.pack([self._share()])))]

    def _share(self) -> int:
        """Return a of the next pass; 0 after the last pass (sections 5.2 and 7)."""
        if self.index > self.session.last:
            return 0
        units, pulls = sum(self.rewards), len(self.rewards)
        number = self.session.scorer.number(self.index, units, pulls)
        return core.subtract([number], self.pads(self.index)[:1])[0]

    def on_tock(self, _: str, message: m.Tock) -> Sent:
        """Answer at the end of a slot (section 7)."""
        require(self.waiting and message.slot == self.slot, "no such slot is under way")
        slot, self.slot, self.waiting = self.slot, self.slot + 1, False
        self.answered, self.was_ready = True, not self.pulling
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
        require(self.answered and self.was_ready, "a reply without a score")
        require(index == self.index <= self.session.last, "a reply to another pass")
        pad = self.pads(index)[1]
        words = codec.pack([pad]), codec.pack([pad ^ 1])
        require(message.reply in words, "a reply that is neither of the two words")
        chosen = message.reply == words[1]
        self.session.scorer.learn(index, chosen)
        self.index, self.answered = index + 1, False
        pulls = chosen and (index + 1) % self.session.passes == 0
        return (self._pull() if pulls else []) + self._next()

    def on_close(self, _: str, message: m.Close) -> Sent:
        """Send the sum at the normal end (section 9)."""
        settled = not self.session.slot or (self.answered and self.was_ready)
        over = self.index > self.session.last and settled
        require(over and not self.summing, "passes or a slot are left, or Close came before")
        self.check_close(message)
        self.summing = True
        return self._sum()

    def _sum(self) -> Sent:
        """Send the share of the sum, once all rewards are here (section 9)."""
        if not self.summing or self.summed or self.pulling:
            return []
        self.summed = True
        key, (offset,) = tag_numbers(self.tag_key, self.mark, [self.session.name])
        value = (sum(self.rewards) << 32) + len(self.rewards)
        pads = sum_pads(self.stream_key, self.mark)
        share = core.sum_share(value, key, offset, pads, PRIME)
        return [("controller", m.Sum(codec.pack(share, 16, "big")))]
