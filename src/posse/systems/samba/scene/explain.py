"""Every message in words: the paper's step, one sentence, what it means in the clear, the lines of
code that ran.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from posse.core.fixed import REWARD_ONE
from posse.core.roles import Message
from posse.runtime.memory import Delivery
from posse.systems.samba import messages as said
from posse.systems.samba.federation import SambaRun
from posse.systems.samba.scene.meaning import Pass
from posse.systems.samba.scene.parts import covered
from posse.systems.samba.strict import messages as strict
from posse.systems.scenes import join_first

SET_UP, CLOSING = "set-up", "closing"


class Explanation:
    """One explanation while it is written; `of` is the pass it belongs to, `a` and `b` sender and
    receiver.
    """

    def __init__(self, of: Pass, delivery: Delivery) -> None:
        self.of, self.message = of, delivery.message
        self.a, self.b = ("{" + name + "}" for name in (delivery.sender, delivery.receiver))
        self.sender, self.receiver = delivery.sender, delivery.receiver
        self.step, self.name, self.says = SET_UP, type(delivery.message).__name__, ""
        self.clear: list[list[str]] = []
        self.lines: dict[str, list[int]] = {}
        self.chosen: str | None = None

    def put(self, step: str, name: str, says: str, *clear: list[str], **ran: str) -> None:
        """Set what every explanation has."""
        self.step, self.name, self.says, self.clear = step, name, says, list(clear)
        self.lines = self.of.ran(**ran)


def explain(run: SambaRun, delivery: Delivery) -> dict[str, Any]:
    """Explain a message at the moment it is delivered."""
    message = delivery.message
    of = Pass(run, getattr(message, "index", 0))
    out = Explanation(of, delivery)
    _WORDS[type(message)](out, message)
    return {
        "step": out.step,
        "name": out.name,
        "says": out.says,
        "clear": out.clear,
        "parts": covered(message, of),
        "lines": out.lines,
        "chosen": out.chosen,
    }


# Set-up -------------------------------------------------------------------------------------------


def _join(out: Explanation, message: said.Join) -> None:
    says = f"{out.a} joins: it sends {out.b} its name and public keys, signed."
    out.put(
        SET_UP,
        "Join",
        says,
        ["name", message.name],
        **{message.kind: "join", "controller": "relay"},
    )


def _proposal(out: Explanation, message: said.Proposal) -> None:
    settings = out.of.settings
    says = f"{out.a} tells {out.b} what it wants: {settings.horizon} pulls by {out.of.policy.name}."
    clear = [
        ["budget N", str(settings.horizon)],
        ["policy A", out.of.policy.name],
        ["level", out.of.level],
    ]
    out.put("0", "Proposal", says, *clear, customer="ask", controller="relay")


def _roster(out: Explanation, message: said.Roster) -> None:
    says = f"{out.a} shows {out.b} who joined, for it to check."
    clear = ["parties", join_first([join.name for join in message.joins])]
    out.put(SET_UP, "Roster", says, clear, controller="relay", customer="admit")


def _offer(out: Explanation, message: said.Offer) -> None:
    says = f"{out.a} hands {out.b} the terms and the keys of all, signed by the customer."
    keys = (
        {out.of.roles[out.receiver].kind: "sign"}
        if out.receiver != "controller"
        else {"customer": "admit"}
    )
    out.put(
        "1",
        "Terms",
        says,
        ["budget N", str(out.of.settings.horizon)],
        **{**keys, "controller": "relay"},
    )


def _consent(out: Explanation, message: said.Consent) -> None:
    says = f"{out.a} signs the terms, and {out.b} keeps the signature for the customer."
    out.put(
        SET_UP, "Consent", says, **{out.of.roles[out.sender].kind: "sign", "controller": "relay"}
    )


def _consents(out: Explanation, message: said.Consents) -> None:
    says = f"{out.a} hands {out.b} the signatures of all."
    out.put(
        SET_UP,
        "Consents",
        says,
        ["signatures", str(len(message.consents))],
        controller="relay",
        customer="go",
    )


def _go(out: Explanation, message: said.Go) -> None:
    says = f"{out.a} tells {out.b} that everybody signed the same terms: the run begins."
    out.put(SET_UP, "Go", says, customer="go", controller="relay")


def _keys(out: Explanation, message: said.Keys) -> None:
    for_all = out.sender != "controller"
    says = (
        f"{out.a} draws the owners' keys and sends them to {out.b}, sealed to each of those who "
        "may have them."
        if for_all
        else f"{out.a} passes the sealed keys on to {out.b}, which opens its own."
    )
    role = out.of.roles[out.receiver].kind
    ran = {"owner": "keys"} if for_all else {role: "keys first" if role == "owner" else "keys"}
    out.put(
        SET_UP,
        "Keys",
        says,
        ["sealed to", join_first(list(message.sealed))],
        **{**ran, "controller": "keys"},
    )


def _masks(out: Explanation, message: said.Masks) -> None:
    says = f"{out.a} sends {out.b} the seeds of the masks and of the coins; comp does not get them."
    clear = [["masks", "a key of 32 bytes, withheld"], ["coins", "a key of 32 bytes, withheld"]]
    out.put("1", "Mask seeds", says, *clear, controller="masks", owner="masks first")


def _keyring(out: Explanation, message: strict.Keyring) -> None:
    says = (
        f"{out.a} draws the owners' keys and sends them to {out.b}, sealed to each of those who "
        "may have them."
    )
    sealed = join_first([name for keys in message.keys for name in keys.sealed])
    out.put(SET_UP, "Keyring", says, ["sealed to", sealed], owner="keys", controller="keys")


def _stream(out: Explanation, message: strict.Stream) -> None:
    says = f"{out.a} sends the key of its pads to {out.b}, sealed so that only comp opens it."
    out.put(
        SET_UP, "Pad key", says, ["key", "40 bytes, withheld"], owner="stream", controller="keys"
    )


def _streams(out: Explanation, message: strict.Streams) -> None:
    says = f"{out.a} passes the owners' pad keys on to {out.b}, which opens them."
    out.put(
        SET_UP,
        "Pad keys",
        says,
        ["keys", str(len(message.streams))],
        controller="keys",
        comp="keys",
    )


def _seeds(out: Explanation, message: Message) -> None:
    from_dealer = out.sender == "dealer"
    says = (
        f"{out.a} draws a seed for each server and sends both to {out.b}, sealed: its own opens "
        "here, comp's does not."
        if from_dealer
        else f"{out.a} passes the dealer's seed on to {out.b}, which opens it."
    )
    ran = (
        {"dealer": "seeds", "controller": "seeds"}
        if from_dealer
        else {"controller": "seeds", "comp": "seeds"}
    )
    out.put(SET_UP, "Seeds", says, ["seed", "32 bytes, withheld"], **ran)


# The dealer ---------------------------------------------------------------------------------------


def _want(out: Explanation, message: strict.Want) -> None:
    says = f"{out.a} asks {out.b} for randomness ahead of time; nothing in it depends on a score."
    clear = [
        ["passes up to chunk", str(message.passes)],
        ["comparisons up to chunk", str(message.pairs)],
    ]
    out.put(SET_UP, "Wanted", says, *clear, controller="deal", dealer="deal")


def _dealt(out: Explanation, message: Any) -> None:
    says = (
        f"{out.a} deals {out.b} random numbers for the passes to come; it sees no score, then or "
        "later."
    )
    out.put(SET_UP, "Dealt", says, ["chunk", str(message.chunk)], dealer="deal", controller="deal")


def _relayed(out: Explanation, message: strict.Relayed) -> None:
    says = f"{out.a} passes the dealer's random numbers on to {out.b}, sealed."
    out.put(
        SET_UP, "Dealt", says, ["chunk", str(message.chunk)], controller="deal", comp="dealt ahead"
    )


# Steps 2 to 5 -------------------------------------------------------------------------------------


def _score(out: Explanation, message: said.Score) -> None:
    of = out.of
    found = of.score(out.sender, message.frame)
    own = of.secrets(out.sender).arm
    what = "score" if not (of.matches and of.level == "paper") else "weight"
    clear = [
        ["mean s / n", of.text(own.units / REWARD_ONE / max(1, own.pulls))],
        [what, of.text(found.value)],
    ]
    ran = {"owner": "loop mask score explore number send", "controller": "loop collect"}
    if of.explores(out.sender):
        says = (
            f"This step explores: {out.a} sends {out.b} the number that all owners send, sealed "
            "for comp."
        )
        number = ["number of all", of.text(found.sent)]
        out.put("2", "Score", says, number, owner="loop coin", controller="loop collect")
        return
    if of.level == "paper":
        masked, sealed = "mask" not in of.off, "aes" not in of.off
        if masked:
            clear += [["mask", of.text(of.mask(out.sender))], ["score x mask", of.text(found.sent)]]
        how = {
            (True, True): "multiplied by the mask of the step and sealed for comp,",
            (True, False): "sealed for comp, without a mask,",
            (False, True): "multiplied by the mask of the step, without encryption,",
            (False, False): "in the clear,",
        }[sealed, masked]
    else:
        clear.append(
            [
                "place among ties",
                f"{found.tie + 1} of {1 << max(1, (len(of.owners) - 1).bit_length())}",
            ]
        )
        how = "hidden by a pad that only comp can derive,"
    out.put("2", "Score", f"{out.a} sends its score, {how} to {out.b}.", *clear, **ran)


def _batch(out: Explanation, message: said.Batch) -> None:
    of = out.of
    names = [of.owners[i] for i in of.order()]
    scores = "scores x mask" if "mask" not in of.off else "scores"
    clear = [["order", join_first(names)], [scores, of.texts(of.permuted())]]
    how = (
        "in a fresh random order"
        if "permutation" not in of.off
        else "in the owners' own order: the permutation is off"
    )
    says = f"{out.a} sends all {len(of.owners)} scores to {out.b}, {how}."
    out.put("3", "Scores", says, *clear, controller="permute forward", comp="loop open")


def _explore(out: Explanation, message: said.Explore) -> None:
    says = f"{out.a} asks {out.b} for any place: this step explores, and no owner sends a score."
    out.put("3", "Explore", says, owner="coin", controller="explore", comp="any")


def _choice(out: Explanation, message: said.Choice) -> None:
    of = out.of
    place, owner = of.chosen(message.replies)
    size = len(of.owners)
    bits = join_first(
        ["1" if i == place else "0" for i in range(size)], max(12, place + 1 if place < 40 else 12)
    )
    clear = [
        ["pulling bits, in comp's order", bits],
        ["chosen", f"place {place + 1}"],
        ["whose it is", owner],
    ]
    values = of.permuted()
    if values and of.matches:
        total = sum(values)
        clear = [
            ["sum", of.text(total)],
            ["probabilities", of.texts(value / total for value in values)],
            *clear,
        ]
    unopened = "" if "aes" in of.off else ", which cannot read them"
    says = f"{out.a} picks place {place + 1} and sends the pulling bits to {out.b}{unopened}."
    out.chosen = owner if of.turn == len(of.selections) - 1 else None
    out.put(
        "4",
        "Choice",
        says,
        *clear,
        comp="any select answer" if not values else "select answer",
        controller="choice",
    )


def _reply(out: Explanation, message: said.Reply) -> None:
    of = out.of
    yes = of.yes(out.receiver, message.reply)
    last = of.turn == len(of.selections) - 1
    outcome = (
        ("it pulls its arm" if yes else "it does not pull")
        if last
        else ("it has the best mean" if yes else "it does not have the best mean")
    )
    opens = "reads" if of.level == "paper" and "aes" in of.off else "opens"
    says = f"{out.a} hands {out.b} its answer, which it {opens}: {outcome}."
    out.chosen = out.receiver if yes and last else None
    clear = [["pulling bit" if last else "bit", "1" if yes else "0"]]
    if not last and of.policy.learns:
        clear.append(["probability p", of.text(of.secrets(out.receiver).memory)])
    ran = "reply" + (" learn" if not last else "") + (" pull" if yes and last else "")
    out.put("5", "Reply", says, *clear, controller="return", owner=ran)


def _ahead(out: Explanation, message: strict.Ahead) -> None:
    says = f"{out.a} sends {out.b} its pads of the next pass, masked, before any score is there."
    out.put("3", "Ahead", says, ["pass", str(message.index)], comp="ahead", controller="ahead")


def _shuffled(out: Explanation, message: strict.Shuffled) -> None:
    pairs = len(message.shifts) // 8
    says = (
        f"{out.a} shuffles the {len(out.of.owners)} hidden scores and sends them to {out.b}, "
        "masked once more."
    )
    clear = [["scores", str(len(out.of.owners))], ["pairs to compare", str(pairs)]]
    out.put("3", "Shuffled", says, *clear, controller="permute forward", comp="loop open compare")


def _compare(out: Explanation, message: strict.Compare) -> None:
    says = f"{out.a} asks {out.b} to compare more pairs of places, in an order that names no owner."
    pairs = ["pairs to compare", str(len(message.shifts) // 8)]
    out.put("4", "Compare", says, pairs, controller="compare", comp="compare")


def _compared(out: Explanation, message: strict.Compared) -> None:
    says = (
        f"{out.a} answers {out.b}: which place of each pair holds the larger score, and nothing "
        "else."
    )
    out.put(
        "4",
        "Compared",
        says,
        ["largest score", out.of.largest()],
        comp="compare",
        controller="compare",
    )


def _found(out: Explanation, message: strict.Found) -> None:
    says = f"{out.a} tells {out.b} the place of the largest, in an order that neither can read."
    clear = [["place", str(message.place + 1)], ["whose it is", out.of.largest()]]
    out.chosen = out.of.largest() if out.of.turn == len(out.of.selections) - 1 else None
    out.put("4", "Found", says, *clear, controller="found", comp="place")


def _placed(out: Explanation, message: strict.Placed) -> None:
    says = (
        f"{out.a} sends {out.b} that place before its own shuffle, as masked bits: no server sees "
        "whose it is."
    )
    out.put("4", "Placed", says, comp="place ahead", controller="return")


def _ready(out: Explanation, message: Message) -> None:
    says = f"{out.a} and {out.b} find out whether all owners are ready, and not which one is not."
    out.put("2", type(message).__name__, says, controller="collect", comp="open", owner="send")


# Closing ------------------------------------------------------------------------------------------


def _spent(out: Explanation, message: said.Spent) -> None:
    says = f"{out.a} tells {out.b} that the budget is spent."
    out.put(
        CLOSING,
        "Spent",
        says,
        ["owners", str(len(message.present))],
        controller="close",
        customer="close",
    )


def _close(out: Explanation, message: said.Close) -> None:
    says = (
        f"{out.a} asks for the sums of {len(message.present)} owners; {out.b} checks the "
        "customer's signature."
    )
    out.put(
        CLOSING,
        "Close",
        says,
        ["owners", str(len(message.present))],
        customer="close",
        controller="close",
    )


def _agree(out: Explanation, message: Message) -> None:
    says = (
        f"{out.a} tells {out.b} which owners the total is over: all of them have acknowledged it."
    )
    out.put(CLOSING, "Agree", says, controller="close", customer="close")


def _sum(out: Explanation, message: said.Sum) -> None:
    of = out.of
    how = {
        "strict": "as a share that means nothing without comp's",
        "paper": "encrypted for the customer" if "paillier" not in of.off else "in the clear",
    }[of.level]
    says = f"{out.a} sends the sum of its rewards to {out.b}, {how}."
    out.put("6", "Sum", says, *of.earned(out.sender), owner="sum", controller="sums")


def _share(out: Explanation, message: strict.Share) -> None:
    says = (
        f"{out.a} sends its share of the total to {out.b}, sealed so that only the customer opens "
        "it."
    )
    out.put("6", "Share", says, comp="sums", controller="sums")


def _total(out: Explanation, message: Message) -> None:
    of = out.of
    how = {
        "strict": "adds both shares",
        "paper": "decrypts" if "paillier" not in of.off else "reads",
    }[of.level]
    says = f"{out.a} sends the total to {out.b}, which {how}: {of.total}."
    out.put("7", "Total", says, ["total reward", of.total], controller="total", customer="total")


def _closed(out: Explanation, message: said.Closed) -> None:
    says = f"{out.a} tells {out.b} that the customer has an answer: the run is over."
    ran = {out.of.roles[out.receiver].kind: "over", "controller": "over", "customer": "over"}
    out.put(CLOSING, "Closed", says, **ran)


_WORDS: dict[type[Message], Callable[[Explanation, Any], None]] = {
    said.Join: _join,
    said.Proposal: _proposal,
    said.Roster: _roster,
    said.Offer: _offer,
    said.Consent: _consent,
    said.Consents: _consents,
    said.Go: _go,
    said.Keys: _keys,
    said.Masks: _masks,
    said.Score: _score,
    said.Batch: _batch,
    said.Explore: _explore,
    said.Choice: _choice,
    said.Reply: _reply,
    said.Spent: _spent,
    said.Close: _close,
    said.Agree: _agree,
    said.Agreed: _agree,
    said.Closed: _closed,
    said.Sum: _sum,
    said.Total: _total,
    strict.Keyring: _keyring,
    strict.Stream: _stream,
    strict.Streams: _streams,
    strict.Seeds: _seeds,
    strict.Dealing: _seeds,
    strict.Want: _want,
    strict.Dealt: _dealt,
    strict.DealtPairs: _dealt,
    strict.Relayed: _relayed,
    strict.Ahead: _ahead,
    strict.Shuffled: _shuffled,
    strict.Compare: _compare,
    strict.Compared: _compared,
    strict.Found: _found,
    strict.Placed: _placed,
    strict.Ready: _ready,
    strict.Opened: _ready,
    strict.Again: _ready,
    strict.Share: _share,
    strict.Shares: _total,
}
