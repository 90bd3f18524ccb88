"""The code of every role by line, for a policy and a level: figure 6 of the paper, and what the
levels make of it.

Every line has a key, by which an explanation says which lines ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from posse.policies.arms.base import Policy
from posse.systems.samba.levels import Switches
from posse.systems.scenes import Code, format_number

Lines = list[tuple[str, str]]


@lru_cache(maxsize=16)
def code(policy: Policy, level: str, switches: Switches) -> Code:
    """Return the code of each kind of role."""
    if level == "strict":
        return {
            "owner": _strict_owner(policy),
            "controller": _strict_controller(policy),
            "comp": _strict_comp(policy),
            "dealer": _DEALER,
            "customer": _customer(level, switches),
        }
    return {
        "owner": _owner(policy, switches),
        "controller": _controller(policy, switches),
        "comp": _comp(policy, switches),
        "customer": _customer(level, switches),
    }


def sources(level: str) -> Mapping[str, str]:
    """Return the class of each kind of role."""
    if level == "strict":
        folder = "posse.systems.samba.strict"
        return {
            "owner": f"{folder}.owner:StrictOwner",
            "controller": f"{folder}.controller:StrictController",
            "comp": f"{folder}.comp:Comp",
            "dealer": f"{folder}.dealer:Dealer",
            "customer": f"{folder}.customer:StrictCustomer",
        }
    names = {"owner": "Owner", "controller": "Controller", "comp": "Comp", "customer": "Customer"}
    return {kind: f"posse.systems.samba.roles.{kind}:{name}" for kind, name in names.items()}


def score_text(policy: Policy, level: str) -> list[str]:
    """Say how an owner computes its score, a line a pass."""
    paper = level == "paper"
    name, given = policy.name, [format_number(value) for value in policy.parameters()]
    if name == "ucb":
        return [f"v ← s / n + sqrt({given[0]} ln t / n)"]
    if name == "thompson":
        return ["v ← own sample of Beta(s + 1, n − s + 1)"]
    if name == "softmax":
        return [
            f"v ← exp((s / n) / {given[0]})"
            if paper
            else f"v ← s / n + {given[0]} · own Gumbel draw"
        ]
    if name == "pursuit":
        return [
            "l = 1: v ← s / n",
            "l = 2: v ← p" if paper else "l = 2: v ← ln p + own Gumbel draw",
        ]
    if name in ("epsilon-greedy", "epsilon-decreasing"):
        return ["v ← s / n"]
    return [f"v ← score of '{name or type(policy).__name__}' from t, s, n"]


_EXPLORING = {True: "send nothing", False: "send the number that all send, and no score"}
"""What an owner does in an exploring step of level `paper`, with and without the shortcut."""


def _loop(policy: Policy) -> Lines:
    passes = len(policy.passes())
    return [("loop", f"for t = K + 1 to N{', for l = 1 to ' + str(passes) if passes > 1 else ''}:")]


def _scores(policy: Policy, level: str) -> Lines:
    found = [("score", f"  {text}") for text in score_text(policy, level)]
    if policy.explores and level != "paper":
        found.append(
            ("explore", "  if the owners' common coin says explore: v ← own random number")
        )
    return found


def _pulls(policy: Policy, sealed: str) -> Lines:
    found = [("reply", f"  receive {sealed} from controller (5)")]
    if policy.learns:
        found.append(("learn", f"  l = 1: p ← p + {format_number(policy.parameters()[0])} (b − p)"))
        return [*found, ("pull", "  l = 2, if b = 1: r ← pull; s ← s + r; n ← n + 1")]
    return [*found, ("pull", "  if b = 1: r ← pull; s ← s + r; n ← n + 1")]


def _owner(policy: Policy, switches: Switches) -> Lines:
    found: Lines = [
        ("join", "send name and keys to controller"),
        ("sign", "check and sign N, A"),
        ("keys", "receive the owners' keys from the first owner, sealed"),
        ("masks", "receive the seeds of masks and coins from controller (1)"),
        ("first", "r ← pull; s ← r; n ← 1"),
        *_loop(policy),
    ]
    if policy.explores:
        found.append(("coin", f"  if coin t says explore: {_EXPLORING[switches.shortcut]}"))
    if switches.mask:
        found.append(("mask", "  α ← mask t from the seed"))
    value = "α v" if switches.mask else "v"
    sealed = f"Enc({value})" if switches.aes else value
    return [
        *found,
        *_scores(policy, "paper"),
        ("send", f"  send {sealed} to controller (2)"),
        *_pulls(policy, "Enc(b)" if switches.aes else "b"),
        ("sum", f"send {'E(s)' if switches.paillier else 's'} to controller (6)"),
        ("over", "end"),
    ]


def _controller(policy: Policy, switches: Switches) -> Lines:
    value = "α v_i" if switches.mask else "v_i"
    sent = f"Enc({value})" if switches.aes else value
    reply = "Enc(b_i)" if switches.aes else "b_i"
    found: Lines = [
        ("relay", "receive N, A from customer (0); pass on names, keys and signatures"),
        ("keys", "pass on the owners' keys, which do not open here"),
        ("masks", "draw the seeds of masks and coins; send them to every owner (1)"),
        *_loop(policy),
    ]
    if policy.explores and switches.shortcut:
        found.append(("explore", "  if coin t says explore: ask comp for any place"))
    order = (
        "new random permutation" if switches.permutation else "the identity: the permutation is off"
    )
    encrypted = switches.paillier
    return [
        *found,
        ("collect", f"  receive {sent} from every owner (2)"),
        ("permute", f"  σ ← {order}"),
        ("forward", f"  send σ([{sent}]) to comp (3)"),
        ("choice", f"  receive σ([{reply}]) from comp (4)"),
        ("return", f"  undo σ; send {reply} to owner i (5)"),
        ("sums", f"receive {'E(s_i)' if encrypted else 's_i'} from every owner (6)"),
        (
            "total",
            f"send {'E(s_1) · ... · E(s_K)' if encrypted else 's_1 + ... + s_K'} to customer (7)",
        ),
        ("over", "pass on that the run is over"),
    ]


def _comp(policy: Policy, switches: Switches) -> Lines:
    found: Lines = [
        ("join", "send name and keys to controller"),
        ("sign", "check and sign N, A"),
        ("keys", "receive the key of Enc from the first owner, sealed"),
        *_loop(policy),
    ]
    if policy.explores and switches.shortcut:
        found.append(("any", "  asked for any place: m ← random place"))
    opened = "V ← Dec of each" if switches.aes else "V ← the scores"
    bits = "[Enc(1 at m, else 0)]" if switches.aes else "[1 at m, else 0]"
    return [
        *found,
        ("open", f"  receive them (3); {opened}"),
        *_select(policy),
        ("answer", f"  send {bits} to controller (4)"),
        ("over", "end"),
    ]


_SELECT = {
    "argmax": "m ← place of the largest",
    "match": "m ← place i with probability V_i / sum of V",
    "custom": "m ← choice by the policy's own function of V",
}


def _select(policy: Policy) -> Lines:
    selections = policy.passes()
    if len(selections) == 1:
        return [("select", f"  {_SELECT[selections[0].kind]}")]
    return [
        ("select", f"  l = {turn}: {_SELECT[selection.kind]}")
        for turn, selection in enumerate(selections, 1)
    ]


def _customer(level: str, switches: Switches) -> Lines:
    found: Lines = [
        ("ask", "send N, A to controller (0)"),
        ("admit", "check who joined; sign the terms for all"),
        ("go", "all have signed: begin"),
    ]
    if level == "strict":
        opened = "add both shares and check the tag"
        found += [
            ("keys", "receive the tag key of the owners, sealed"),
            ("close", "the budget is spent: ask the owners for their sums"),
        ]
    else:
        opened = "decrypt it" if switches.paillier else "read it"
    return [
        *found,
        ("total", f"receive the total; {opened} (7)"),
        ("over", "say that the run is over"),
    ]


def _strict_owner(policy: Policy) -> Lines:
    return [
        ("join", "send name and keys to controller"),
        ("sign", "check and sign N, A"),
        ("stream", "send the key of its pads to comp, sealed"),
        ("keys", "receive the owners' keys from the first owner, sealed"),
        ("first", "r ← pull; s ← r; n ← 1"),
        *_loop(policy),
        *_scores(policy, "strict"),
        ("number", "  x ← v in fixed point, with this owner's place among ties"),
        ("send", "  send x − pad to controller (2)"),
        *_pulls(policy, "b xor pad'"),
        ("sum", "send (s, n) − pad and its tag's share to controller (6)"),
        ("over", "end"),
    ]


def _strict_controller(policy: Policy) -> Lines:
    return [
        ("relay", "receive N, A from customer (0); pass on names, keys and signatures"),
        ("keys", "pass on sealed keys, which do not open here"),
        ("seeds", "receive a seed from dealer"),
        ("deal", "ask dealer for randomness; pass comp's part on, sealed"),
        *_loop(policy),
        ("ahead", "  take comp's masked pads, ahead of the scores"),
        ("collect", "  receive x_i − pad_i from every owner (2)"),
        ("permute", "  p ← own order of the pass"),
        ("forward", "  send p(x) − B − A' to comp, with pairs of places to compare (3)"),
        ("compare", "  read which of each pair is larger, and nothing else (4)"),
        ("found", "  tell comp the place of the largest"),
        ("return", "  undo p; send b_i xor pad'_i to owner i (5)"),
        ("close", "the budget is spent: ask for the sums, in the customer's name"),
        ("sums", "receive every owner's share of its sum (6)"),
        ("total", "send both servers' shares of the total to customer (7)"),
        ("over", "pass on that the run is over"),
    ]


def _strict_comp(policy: Policy) -> Lines:
    return [
        ("join", "send name and keys to controller"),
        ("sign", "check and sign N, A"),
        ("keys", "receive every owner's pad key, sealed"),
        ("seeds", "receive a seed from dealer, sealed"),
        ("dealt", "receive randomness from dealer, sealed"),
        *_loop(policy),
        ("ahead", "  send pads − A and pad' xor E to controller, ahead of the scores"),
        ("open", "  receive p(x) − B − A' (3); p' ← own order: a share of p'(p(x))"),
        ("compare", "  garble each pair, so that controller reads one bit of it (4)"),
        ("place", "  send where the largest was before p', as bits xor C"),
        ("sums", "send its share of the total to customer, sealed (6)"),
        ("over", "end"),
    ]


_DEALER: Lines = [
    ("join", "send name and keys to controller"),
    ("sign", "check and sign N, A"),
    ("seeds", "send a seed to each server, sealed"),
    ("deal", "send randomness for passes and comparisons, as asked"),
    ("over", "end"),
]
