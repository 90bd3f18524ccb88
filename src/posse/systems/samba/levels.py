"""Levels of protection: what each does, and what it does not.

Every run and report prints its level and these sentences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.fixed import MAX_OWNERS
from posse.policies.arms.base import Policy
from posse.results import words
from posse.results.section import Section

LEVELS = ("strict", "paper")
REMOVED = (
    "level 'standard' was removed in Posse 0.2. Use level 'strict', which adds a dealer between "
    "organisations. Finish and audit runs of 'standard' with Posse 0.1."
)


PROTECTIONS = ("aes", "paillier", "permutation", "mask")


@dataclass(frozen=True)
class Switches:
    """The four protections of the paper and its shortcut; they can be switched off at level `paper`
    only.
    """

    aes: bool = True
    paillier: bool = True
    permutation: bool = True
    mask: bool = True
    shortcut: bool = True
    """Exploring steps without scores (the paper's section 5.4); off: all owners send one number
    (section 4.1.2).
    """

    @property
    def off(self) -> tuple[str, ...]:
        """Names of the protections that are off."""
        return tuple(name for name in PROTECTIONS if not getattr(self, name))

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of all that is off, which parties agree on."""
        return self.off if self.shortcut else (*self.off, "shortcut")


def refuse_standard(level: object) -> object:
    """Return a level as it was given, or refuse the one that 0.1 had beside these."""
    if level == "standard":
        raise ConfigError(REMOVED)
    return level


def check_level(level: str, switches: Switches, policy: Policy) -> None:
    """Refuse switches anywhere but at level `paper`, and there what floats cannot hold."""
    check.one_of(LEVELS, level=level)
    if level != "paper" and switches.off:
        raise ConfigError(
            f"protections can be switched off at level 'paper' only, got {', '.join(switches.off)} "
            f"off at '{level}'."
        )
    if not switches.shortcut:
        _check_long_way(level, policy)
    if level == "strict" and any(selection.choose is not None for selection in policy.passes()):
        raise ConfigError(
            f"policy '{policy.name}' chooses by its own function of all scores, which nobody sees "
            "at level 'strict'. Use level 'paper', where comp chooses by the scores."
        )
    for selection in policy.passes():
        smallest = (selection.ceiling - selection.floor) / 700
        if level == "paper" and selection.kind == "match" and selection.scale < smallest:
            raise ConfigError(
                "level 'paper' sends exp(score / scale), which floats hold for a scale of "
                f"{smallest:.4f} or more, got {selection.scale}. Use level 'strict'."
            )


def _check_long_way(level: str, policy: Policy) -> None:
    """Refuse to do without the shortcut where there is none, or where equal scores give no arm at
    random.
    """
    if level != "paper":
        raise ConfigError(
            f"shortcut applies to level 'paper' only, got it off at '{level}', where owners "
            "send in every step. Leave shortcut out, or set level = 'paper'."
        )
    if not policy.explores:
        raise ConfigError(
            f"shortcut is about exploring steps, and policy '{policy.name}' has none. Leave "
            "shortcut out, or use "
            "'epsilon-greedy' or 'epsilon-decreasing'."
        )
    if policy.passes()[-1].choose is not None:
        raise ConfigError(
            f"policy '{policy.name}' chooses by its own function, which need not choose among "
            "equal scores at random. "
            "Leave shortcut on."
        )


def check_switches(values: Mapping[str, object]) -> None:
    """Refuse a deployment that names one of the switches, with the reason."""
    named = [name for name in (*PROTECTIONS, "shortcut") if name in values]
    if named:
        raise ConfigError(
            f"'{named[0]}' can be switched off in simulations only: between organisations all "
            f"protections are on. Choose a level instead: {', '.join(LEVELS)}."
        )


def check_budget(arms: int, budget: int) -> None:
    """Refuse a budget that does not even pull every arm once."""
    if arms < 2:
        raise ConfigError(f"owners must be at least 2, got {arms}. Ask for 2 or more.")
    if arms > MAX_OWNERS:
        raise ConfigError(f"owners must be at most {MAX_OWNERS}, got {arms}.")
    if budget < arms:
        raise ConfigError(
            f"budget must be at least the number of owners, got {budget} for {arms} owners. Raise "
            f"it to {arms} or more."
        )
    if budget >= 1 << 29:
        raise ConfigError(f"budget must be below 2^29, got {budget}.")


# What a pull costs --------------------------------------------------------------------------------


def prices(value: object) -> object:
    """Read a single number as the price of every owner."""
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else value


def check_price(price: Sequence[float], owners: int | None = None) -> None:
    """Refuse a price below 0, and another number of prices than one for all or one an owner."""
    for one in price:
        if not 0 <= one < math.inf:
            raise ConfigError(f"price must be 0 or more, got {one:g}.")
    if owners is not None and len(price) not in (0, 1, owners):
        raise ConfigError(
            f"price must be one number, or one an owner, got {len(price)} for {owners} owners."
        )


def owed(price: Sequence[float], place: int, pulls: int) -> float | None:
    """Return what the owner of a place is owed for its pulls, to the last decimal of its price;
    None without a price.

    >>> owed((0.1,), 2, 3), owed((0.1, 0.25), 1, 3), owed((), 0, 3)
    (0.3, 0.75, None)
    """
    if not price:
        return None
    return float(Decimal(repr(float(price[0] if len(price) == 1 else price[place]))) * pulls)


def statements(names: Sequence[str], pulls: Sequence[int], price: Sequence[float]) -> Section:
    """Say what every owner is owed; only a simulation, or one owner about itself, knows the
    pulls.
    """
    rows = tuple(
        (
            name,
            f"{count:,}",
            f"{price[0] if len(price) == 1 else price[place]:g}",
            f"{owed(price, place, count):,.15g}",
        )
        for place, (name, count) in enumerate(zip(names, pulls, strict=True))
    )
    note = (
        "Between organisations every owner has its own line alone, in its own record: it says how "
        "often it is pulled."
    )
    return Section(
        "What owners are owed",
        ("owner", "pulls", "price of a pull", "owed"),
        rows,
        (note,),
        (1, 2, 3),
    )


_OWNER = (
    "An owner learns when its own arm is pulled and what it pays; no message shows it a score or "
    "sum of another owner, "
    "or the total."
)

PROTECTS = {
    "strict": (
        "The controller holds one share of every score and sees a random order; it learns neither "
        "scores, order, ties, "
        "exploring steps nor who was chosen.",
        "Comp holds the other share and sees a random place; it learns no more than the "
        "controller.",
        "The dealer hands out randomness and learns the number of owners, passes and comparisons, "
        "and the pace.",
        _OWNER,
        "The customer learns the total and the number of pulls; with the controller or with comp "
        "still only these.",
    ),
    "paper": (
        "The published protocol: the controller sees sealed scores, comp sees them multiplied by "
        "one number a pass.",
        "The customer learns the total.",
    ),
}

_SCALED = "Comp sees all scores of a pass up to one unknown scale: "
_FOLLOWED = (
    "one arm changes a step, so comp follows every arm, and recovers the reward of every step, the "
    "total and how often "
    "each arm was pulled ('posse audit' does it)."
)
_GUESSED = (
    "from the shape of a whole run comp estimates the total reward (R2 about .8 to .9 over runs, "
    "'posse audit --all')."
)

_TIMING = "Timing can name the pulled arm: the chosen owner answers later because it pulls."
_ALWAYS = (
    "The total is not authenticated against the controller, which can replace it; and a customer "
    "that puts owners of its own into the roster can read the sums and scores of the others.",
    _TIMING,
    "All parties are assumed to follow the protocol (honest but curious), and comp and controller "
    "not to collude.",
)

_OWED = (
    "An owner's statement of what it is owed says how often its arm was pulled, to whoever is "
    "shown it or pays it: a "
    "customer that pays owners one by one learns these numbers."
)

_INFERRED = (
    "Any owner alone can infer the largest mean and the total from when it is pulled and what it "
    "earns: almost exactly "
    "with UCB, less well with other policies. 'posse audit' measures how well for these owners, "
    "steps and policy."
)
_OTHERS = (
    "The customer together with any one owner knows what all others earned together, and can "
    "estimate what each of "
    "them earned: with UCB and three owners to about ten rewards in 2,000 steps. 'posse audit' "
    "measures how well."
)
_BOTH = (
    "With two owners, each owner sees when the other is pulled, and together with the customer "
    "learns its sum."
)

_STRICT = (
    "Any two of controller, comp and dealer together learn every score, every sum and who is "
    "pulled.",
    "All parties are assumed to follow the protocol (honest but curious). A server that does not "
    "can flip the bit that "
    "an owner opens, so that none or two pull, and can see by what follows whether that owner was "
    "to pull; it can add "
    "to an owner's share so that this one is always chosen, or never; with an owner's help it can "
    "compare a score of "
    "its choice with the largest of the others. A controller that asks with numbers of its own "
    "learns, a bit a pair, "
    "how far scores of unnamed owners are apart.",
    "A server with an owner's help can replace the total: the tag on it protects against a server "
    "alone.",
    "A customer that puts owners of its own into the roster knows the coins and what is left of "
    "the total, and can "
    "estimate what each other owner earned.",
    "The dealer learns the pace of the run, and each server how many comparisons every pass took, "
    "which is random.",
)

_EARLY = (
    "A comp that does not follow the protocol can say that all owners are ready while one pulls: "
    "that owner refuses to "
    "go on, which names it and stops the run."
)

ONE_PROCESS = (
    "All roles ran in one process: there is no separation of roles, and whoever runs it sees "
    "everything."
)

_OFF = {
    "paillier": "Paillier is OFF: the controller reads every owner's sum and the total.",
    "permutation": "The permutation is OFF: comp knows which owner sent which score and which arm is pulled.",
    "mask": "The mask is OFF: comp reads the true scores.",
}


def learns(level: str, switches: Switches) -> tuple[str, ...]:
    """What each role learns, one sentence each, true whichever protections are off.

    >>> learns("paper", Switches(aes=False, mask=False))[0]
    'The published protocol with aes and mask off: the controller sees scores in the clear, comp sees them as they are.'
    """
    if not switches.off:
        return PROTECTS[level]
    clear = "scores behind a mask that it drew itself" if switches.mask else "scores in the clear"
    sent = "sealed scores" if switches.aes else clear
    seen = "multiplied by one number a pass" if switches.mask else "as they are"
    whose = "" if switches.permutation else ", and whose each is"
    total = "The customer learns the total" + (
        "." if switches.paillier else "; the controller learns it too."
    )
    off = words.listed(switches.off)
    return (
        f"The published protocol with {off} off: the controller sees {sent}, comp sees them "
        f"{seen}{whose}.",
        total,
    )


def leaks(
    level: str,
    switches: Switches,
    owners: int,
    policy: Policy,
    *,
    slot: float = 0.0,
    overruns: int | None = None,
    price: Sequence[float] = (),
) -> tuple[str, ...]:
    """What is not protected, one sentence each; only what holds for these switches and this policy.

    `slot` is the length of a slot in seconds (0: none), `overruns` how many the run overran, where
    that is known.
    """
    out = [_INFERRED, _BOTH if owners == 2 else _OTHERS]
    out += [_OWED] if price else []
    known = (
        "the budget, the policy and its exploration schedule"
        if policy.explores
        else "the budget and the policy"
    )
    if level == "strict":
        return (
            *out,
            *_STRICT,
            f"Owners know {known}, with the coins and the tie order.",
            *_timing(slot, overruns),
        )
    out += [_off(name, switches) for name in switches.off]
    if switches.mask:
        out.append(_SCALED + (_GUESSED if policy.name == "thompson" else _FOLLOWED))
    hidden = switches.aes or switches.mask
    # Without AES the controller needs nobody's help to read the scores.
    together = "Comp with any one owner learns"
    if switches.aes:
        together = (
            "The controller with comp or with any one owner, and comp with any one owner, learn"
        )
    out += [
        "With rewards from few values comp sees many ties.",
        f"{together} every score and who is pulled.",
        f"Owners know {known}{'; an owner that taps the wire opens all scores' if hidden else ''}.",
        *_ALWAYS,
    ]
    return (*out, *_paper_leaks(switches, policy))


SEEN = (
    "scores of others",
    "which arm is pulled",
    "each owner's sum",
    "the total",
    "exploring steps",
)
"""Data of the table of who sees what (the paper's figures 2 and 7)."""


def who_sees(level: str, switches: Switches) -> Section:
    """Who sees which datum, and by which technique it does not; a cell that begins with "no" is
    what is claimed.
    """
    cells = _strict_cells() if level == "strict" else _paper_cells(switches)
    rows = tuple((datum, *(cells[role][i] for role in cells)) for i, datum in enumerate(SEEN))
    return Section("Who sees what, and what hides it", ("datum", *cells), rows)


def _strict_cells() -> dict[str, tuple[str, ...]]:
    order = "no: a random order; timing without slots"
    return {
        "owner": (
            "infers the largest mean",
            "its own",
            "its own",
            "infers it",
            "yes: common coins",
        ),
        "controller": ("no: one of two shares", order, "no: a share", "no: a share", "no: shares"),
        "comp": (
            "no: the other share",
            "no: a random place",
            "no: a share",
            "no: a share",
            "no: shares",
        ),
        "dealer": ("no", "no", "no", "no", "no"),
        "customer": (
            "no",
            "no",
            "no: added up in shares; with an owner estimates them",
            "yes",
            "no",
        ),
        "wire": (
            "no: one-time pads",
            "no: pads; timing without slots",
            "no: shares",
            "no: sealed",
            "no: pads",
        ),
    }


def _paper_cells(switches: Switches) -> dict[str, tuple[str, ...]]:
    aes, clear = switches.aes, "yes: AES is off"
    arm = "no: AES; timing" if aes else clear
    sums = "no: Paillier" if switches.paillier else "yes: Paillier is off"
    behind = "behind a mask that it drew: AES is off" if switches.mask else clear
    place = "its place: permutation" if switches.permutation else "yes: the permutation is off"
    explores = "by the messages" if switches.shortcut else "no: AES" if aes else clear
    return {
        "owner": (
            "infers the largest mean",
            "its own",
            "its own",
            "infers it",
            "yes: common coins",
        ),
        "controller": (
            "no: AES" if aes else behind,
            arm,
            sums,
            sums,
            "yes: it draws the coins",
        ),
        "comp": (
            "up to a scale: mask" if switches.mask else "yes: the mask is off",
            place,
            "follows them, not by name",
            "recovers it",
            "yes",
        ),
        "customer": (
            "no",
            "no",
            "no: Paillier; with an owner estimates them; with the controller yes",
            "yes",
            "no",
        ),
        "wire": ("no: AES" if aes else clear, arm, sums, sums, explores),
    }


def _timing(slot: float, overruns: int | None) -> tuple[str, ...]:
    if not slot:
        return (_TIMING,)
    text = (
        f"A pull that takes longer than the slot of {slot:g} s shows both servers, and whoever "
        "watches the wire, how "
        "many slots it overran, which can name a slow arm"
    )
    counted = {
        None: "",
        0: "; no slot of this run was overrun",
        1: "; one slot of this run was overrun",
    }
    return _EARLY, text + counted.get(
        overruns, f"; {overruns} slots of this run were overrun"
    ) + "."


def _paper_leaks(switches: Switches, policy: Policy) -> list[str]:
    out = []
    if policy.explores:
        how = (
            "owners send nothing in it"
            if switches.shortcut
            else "all owners send the same number in it"
        )
        out.append(f"At level 'paper' comp learns every exploring step, for {how}.")
        out.append("At level 'paper' the controller knows the exploration coins.")
    if switches.mask:
        out.append("At level 'paper' the controller draws the mask seed.")
    if switches.paillier:
        out.append("At level 'paper' the customer with the controller reads every owner's sum.")
    return out


def _off(name: str, switches: Switches) -> str:
    if name == "aes":
        if switches.mask:
            return (
                "AES is OFF: everyone on the wire reads the masked scores and the pulled arm, and "
                "the controller, "
                "which draws the mask seed, can take the mask away."
            )
        return (
            "AES is OFF: the controller and everyone on the wire reads the scores and the pulled "
            "arm."
        )
    return _OFF[name]
