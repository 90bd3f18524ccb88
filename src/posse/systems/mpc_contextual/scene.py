"""mpc-contextual for a page: shares that mean nothing until opened, the arm at the puller, the
reward at the payee.

Explanations may read what only a simulation knows: the features of a party, the arm, the reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.roles import Message
from posse.runtime.memory import Delivery
from posse.systems.modules import Scenario, Scene
from posse.systems.mpc_contextual.federation import ContextualRun, TwinRun
from posse.systems.mpc_contextual.roles import messages as said
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, leaks
from posse.systems.scenes import (
    Code,
    Part,
    format_number,
    join_first,
    line_numbers,
    line_texts,
    message_parts,
)

Floats = NDArray[np.float64]
KINDS = ("party", PULLER, PAYEE, DEALER)
LABELS = ("Clinic", "Laboratory", "Pharmacy", "Health insurer", "Hospital")
"""What parties of a simulation are called, for whom no file gives a name."""

SCENARIOS = (
    Scenario(
        "A clinic and a laboratory",
        "Each holds half of the features of one patient a step, and neither shows them. Together "
        "they choose one of "
        "ten treatments; one role learns which, another one learns what came of it. Follow one "
        "step by round.",
        {"data": "digits", "rows": 200, "epsilon": "0.1"},
    ),
    Scenario(
        "Three parties that look for what is little known",
        "LinUCB on the shares of three parties: a bonus for arms about which little is known, "
        "computed by a table that "
        "nobody can read.",
        {"data": "digits", "rows": 200, "parties": 3, "policy": "linucb", "width": 0.5},
    ),
    Scenario(
        "Eight patients at once",
        "The model stands still for eight contexts, which share their rounds: an eighth of the "
        "messages a step.",
        {"data": "digits", "rows": 400, "batch": 8},
    ),
    Scenario(
        "The next patient does not wait",
        "Each arm is chosen while the model still learns from the patient before: 7 rounds a step "
        "and not 11, and a "
        "decision does without the reward just before it.",
        {"data": "digits", "rows": 200, "overlap": True},
    ),
    Scenario(
        "Without exploration",
        "With epsilon 0 the arm is always the best one: the shares hide as much as before, and the "
        "arm itself has no "
        "differential privacy any more.",
        {"data": "digits", "rows": 200, "epsilon": "0", "without_guarantee": True},
    ),
)


# Code ---------------------------------------------------------------------------------------------


def code(settings: MpcContextual) -> Code:
    """Return the code of each kind of role."""
    batch = "" if settings.batch == 1 else f", for {settings.batch} contexts at once"
    beside = ", while the step before is learnt from" if settings.overlap else ""
    bonus = {
        "linucb": [
            (
                "bonus",
                f"  add {format_number(settings.width)} sqrt(x·k) to every score, by a shared table",
            )
        ],
        "thompson": [
            (
                "bonus",
                f"  add {format_number(settings.width)} sqrt(x·k) times a normal draw, by a shared table",
            )
        ],
    }.get(settings.policy, [])
    return {
        "party": [
            ("hello", "send the terms and a part of the common key to every other party"),
            ("seed", "receive the seeds of tapes and input masks from dealer"),
            ("deal", "ask dealer for corrections, ahead of time"),
            ("loop", f"for every step{batch}:"),
            ("context", "  send x − mask and a share of model − mask to the others (round 1)"),
            ("score", "  scores s ← w·x and directions k ← P x, truncated (round 2)"),
            *bonus,
            (
                "argmax",
                f"  compare the scores on shares; with chance epsilon a random arm instead{beside}",
            ),
            ("reveal", "  send its share of the arm's one-hot vector to puller"),
            ("choice", "  receive the vector o under a mask from puller"),
            ("reward", "  receive the reward r under a mask from payee"),
            ("gain", "  g ← k / (1 + x·k) of the chosen arm"),
            ("model", "  P ← P − o k g', w ← w + o (r − s) g, truncated"),
        ],
        PULLER: [
            ("seed", "receive the seed of input masks from dealer"),
            ("arm", "arm ← xor of all parties' shares; pull it"),
            ("choice", "send its one-hot vector o − mask to every party"),
            ("pulled", "tell payee that an arm was pulled, not which"),
        ],
        PAYEE: [
            ("seed", "receive the seed of input masks from dealer"),
            ("pulled", "r ← what the pull earned"),
            ("reward", "send r − mask to every party"),
        ],
        DEALER: [
            ("seed", "send seeds of tapes and input masks"),
            ("deal", "send corrections of the tapes, as asked; nothing comes back"),
        ],
    }


SOURCES = {
    "party": "posse.systems.mpc_contextual.roles.party:Party",
    PULLER: "posse.systems.mpc_contextual.roles.puller_and_payee:Puller",
    PAYEE: "posse.systems.mpc_contextual.roles.puller_and_payee:Payee",
    DEALER: "posse.systems.mpc_contextual.roles.dealer:DealerRole",
}


# Pictures -----------------------------------------------------------------------------------------


def scene(run: ContextualRun | TwinRun) -> dict[str, Any]:
    """Return the picture of this moment."""
    outcome, roles = run.outcome(), isinstance(run, ContextualRun)
    terms, done = run.settings.load().terms, len(outcome.units)
    earned = terms.reward_range.total(outcome.units)
    best, random = _worlds(run, outcome.seed)
    pulls = np.bincount(outcome.arms[:done], minlength=terms.arms)
    last = run.settings.load().contexts.arms[int(outcome.arms[-1])] if len(outcome.arms) else ""
    named = {
        PULLER: f"arm {last}" if last else "waits for an arm",
        PAYEE: f"earned {format_number(earned, 1)}",
        DEALER: "deals random numbers",
    }
    parties = [
        {
            "name": name,
            "kind": "party",
            "label": label(name, i),
            "text": f"{size} features, a share of the model",
        }
        for i, (name, size) in enumerate(zip(terms.parties, terms.features, strict=True))
    ]
    sole = [
        {"name": name, "kind": name, "label": name, "text": named[name]}
        for name in (PULLER, PAYEE, DEALER)
    ]
    rounds = len(run.plan.rounds) / terms.batch
    average = earned / done if done else 0.0
    return {
        "parties": [*parties, *sole] if roles else parties,
        "links": [
            ["party", "party"],
            ["party", PULLER],
            [PULLER, PAYEE],
            [PAYEE, "party"],
            [DEALER, "party"],
        ],
        "now": {"chosen": [PULLER] if done and roles else []},
        "arms": [
            {"name": arm, "pulls": int(count)}
            for arm, count in zip(run.settings.load().contexts.arms, pulls, strict=True)
        ],
        "figures": [
            {
                "name": "reward",
                "value": earned,
                "of": float(best[done]),
                "text": (
                    f"{format_number(earned, 1)}; who knew every chance would earn "
                    f"{format_number(float(best[done]), 1)}"
                ),
            },
            {
                "name": "a step",
                "value": average,
                "of": terms.reward_range.high,
                "text": f"{format_number(average, 3)} a step",
            },
            {
                "name": "rounds",
                "value": rounds,
                "text": f"{format_number(rounds, 2)} rounds a step",
            },
            {
                "name": "explored at random",
                "value": terms.rate,
                "of": 1.0,
                "text": f"{terms.rate:.0%} of the arms",
            },
        ],
        "curves": {
            "reward": earned,
            "best arms": float(best[done]),
            "at random": float(random[done]),
        },
    }


def label(name: str, position: int) -> str:
    """Return what a party is called."""
    return LABELS[position] if name == f"party-{position + 1}" and position < len(LABELS) else name


def _worlds(run: ContextualRun | TwinRun, seed: int) -> tuple[Floats, Floats]:
    """Return what the best arm of every context pays on average, and a random one, added up over
    steps from 0 on.
    """
    setup = run.settings.load()

    def make() -> tuple[Floats, Floats]:
        means = setup.contexts.means[setup.order(seed)]
        return (
            np.append(0.0, means.max(axis=1).cumsum()),
            np.append(0.0, means.mean(axis=1).cumsum()),
        )

    return run.settings.cached(f"scene {seed}", make)


_KNOWS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "party": (
        ["Its own features.", "One share of the model and of every score: alone, random numbers."],
        ["A feature of another party, a score, the model, the arm or the reward."],
    ),
    PULLER: (
        ["The arm of every step."],
        ["A feature, a score, the model or the reward."],
    ),
    PAYEE: (
        ["The reward of every step, and when an arm was pulled."],
        ["Which arm was pulled, a feature, a score or the model."],
    ),
    DEALER: (
        ["The random numbers of all, the terms, and how far the run is."],
        [
            "Anything that depends on a feature, a score, an arm or a reward: nothing of it is "
            "sent to the dealer."
        ],
    ),
}


def knowledge(settings: MpcContextual, kind: str) -> dict[str, Sequence[str]]:
    """Say what a kind of role knows, can never know and could find out."""
    if settings.path != "parties":
        return {
            "knows": ["Everything: this is a plain twin, in which one party sees all."],
            "never": [],
            "could": [],
        }
    knows, never = _KNOWS[kind]
    could = [
        text
        for text in leaks(settings.load().terms)
        if kind in text.lower() or (kind == "party" and "parties" in text.lower())
    ]
    return {"knows": knows, "never": never, "could": could}


# Messages -----------------------------------------------------------------------------------------


def explain(run: ContextualRun, delivery: Delivery) -> dict[str, Any]:
    """Explain a message at the moment it is delivered."""
    message, made = delivery.message, _Explained(run, delivery)
    words = made.words()
    return {
        "step": words.step,
        "name": words.name,
        "says": words.says,
        "clear": words.clear,
        "parts": message_parts(message, made.describe, KINDS),
        "lines": line_numbers(code(run.settings), words.ran),
        "chosen": PULLER if isinstance(message, said.Reveal) and made.arm(message.step) else None,
    }


class _Words(NamedTuple):
    """What is said of a message."""

    step: str
    name: str
    says: str
    clear: list[list[str]]
    """What it means, for who knows everything."""
    ran: Mapping[str, Sequence[str]]
    """Lines of code that it belongs to, by kind of role."""


class _Explained:
    """One message, with what only the simulation knows."""

    def __init__(self, run: ContextualRun, delivery: Delivery) -> None:
        self.run, self.message = run, delivery.message
        self.sender, self.receiver = delivery.sender, delivery.receiver
        self.terms, self.setup = run.settings.load().terms, run.settings.load()
        self.rounds = len(run.plan.rounds)

    def words(self) -> _Words:
        """Explain the message."""
        a, b, message = "{" + self.sender + "}", "{" + self.receiver + "}", self.message
        match message:
            case said.Hello():
                return _Words(
                    "set-up",
                    "Hello",
                    f"{a} tells {b} its terms and a part of the parties' common key, which the dealer "
                    "never sees.",
                    [["part of the key", "32 bytes, withheld"]],
                    {"party": ["hello"]},
                )
            case said.Seed():
                return _Words(
                    "set-up",
                    "Seed",
                    f"{a} sends {b} seeds from which it draws random numbers that fit those of the "
                    "others.",
                    [["seeds", "withheld"]],
                    {DEALER: ["seed"], self.run.memory.roles[self.receiver].kind: ["seed"]},
                )
            case said.Want():
                return _Words(
                    "set-up",
                    "Want",
                    f"{a} asks {b} for more random numbers, ahead of time.",
                    [["chunk", str(message.chunk)]],
                    {"party": ["deal"], DEALER: ["deal"]},
                )
            case said.Dealt():
                return _Words(
                    "set-up",
                    "Dealt",
                    f"{a} deals {b} what makes its random numbers fit; nothing in it depends on data.",
                    [["chunk", str(message.chunk)]],
                    {DEALER: ["deal"], "party": ["deal"]},
                )
            case said.Opening():
                return self._opening(message, a, b)
        return self._outside(message, a, b)

    def _opening(self, message: said.Opening, a: str, b: str) -> _Words:
        at = message.round
        where = f"round {at + 1} of {self.rounds}"
        if at == 0:
            sender = self.terms.parties.index(self.sender)
            own = self.run.parties_on_shares[sender].reveal().contexts
            assert own is not None
            features = own[0].view(np.int64) / 2.0**self.terms.bits
            return _Words(
                "1",
                "Context",
                f"{a} shows {b} its features under a mask, and its share of the model under "
                f"another ({where}).",
                [["features", join_first([format_number(float(one), 3) for one in features], 8)]],
                {"party": ["loop", "context"]},
            )
        line, what = self._round(at)
        return _Words(
            str(at + 1),
            "Opening",
            f"{a} opens to {b} its shares of {what}, each under a mask: together they show a "
            f"random number ({where}).",
            [["bytes of shares", str(len(message.data))]],
            {"party": [line]},
        )

    def _round(self, at: int) -> tuple[str, str]:
        """Say what a round opens: the first, second and last ones are always the same, the arg max
        lies between.
        """
        if at == 1 and not self.terms.overlap:
            compared = " and, untruncated, of what is compared" if self.terms.early else ""
            return "score", f"scores and directions{compared}"
        if self.terms.overlap:
            return self._overlapped(at)
        if at == self.rounds - 1:
            return "model", "the new model"
        if at == self.rounds - 2:
            return "gain", "the gain of the chosen arm"
        if at == self.rounds - 3:
            return "gain", "what the chosen arm changes"
        if at == 2 and self.terms.bonus:
            return "bonus", "the places of the bonus in its table"
        return "argmax", "what is compared"

    def _overlapped(self, at: int) -> tuple[str, str]:
        """Say what a round opens that chooses for one context beside learning from the one
        before.
        """
        learns = {
            1: ("score", "the row of the model that the arm before picks"),
            2: ("score", "score and direction of the step before"),
            3: ("gain", "the place of 1 / (1 + x·k) in its table"),
            4: ("gain", "1 / (1 + x·k)"),
            5: ("gain", "the gain of the arm before"),
            6: ("model", "the new model"),
        }
        line, what = learns.get(at, ("argmax", ""))
        both = [what, "what is compared for this step"] if at < self.rounds - 1 else [what]
        return line, ", and ".join(one for one in both if one)

    def _outside(self, message: Message, a: str, b: str) -> _Words:
        match message:
            case said.Reveal():
                arm = self.arm(message.step)
                last = f"it was the last one, and the puller pulls {arm}."
                return _Words(
                    "arm",
                    "Reveal",
                    f"{a} sends {b} its share of the arm: {last if arm else 'alone it says nothing.'}",
                    [["arm", arm or "not known yet"]],
                    {"party": ["reveal"], PULLER: ["arm"] if arm else []},
                )
            case said.Choice():
                return _Words(
                    "arm",
                    "Choice",
                    f"{a} returns the arm to {b} under a mask, so that the model learns from it and no "
                    "party sees it.",
                    [["arm", self.arm(message.step - self.terms.lag) or "none yet"]],
                    {PULLER: ["choice"], "party": ["choice"]},
                )
            case said.Pulled():
                return _Words(
                    "reward",
                    "Pulled",
                    f"{a} tells {b} that an arm was pulled, and not which.",
                    [["step", str(message.step)]],
                    {PULLER: ["pulled"], PAYEE: ["pulled"]},
                )
        assert isinstance(message, said.Payoff)
        first, batch = max(0, message.step - self.terms.lag) * self.terms.batch, self.terms.batch
        units = self.run.payee.reveal().units[first : first + batch]
        paid = join_first(
            [format_number(float(one), 3) for one in self.terms.reward_range.value(units)]
        )
        return _Words(
            "reward",
            "Payoff",
            f"{a} sends {b} the reward under a mask: the model learns from it and no party sees "
            "it.",
            [["reward", paid]],
            {PAYEE: ["reward"], "party": ["reward"]},
        )

    def arm(self, step: int) -> str:
        """Return the arms of a pass, once the puller knows them."""
        first, batch = step * self.terms.batch, self.terms.batch
        arms = self.run.puller.reveal().arms[first : first + batch] if step >= 0 else ()
        return join_first([self.setup.contexts.arms[int(arm)] for arm in arms])

    def describe(self, kind: str, field: str, value: object) -> Sequence[Part] | None:
        """Say what a field is."""
        if not isinstance(value, bytes):
            return [Part(field, "clear", 0, KINDS)] if kind != "Hello" else None
        part = _FIELDS.get(field) or _FIELDS.get(kind)
        return self._opened(len(value)) if part is None else [part._replace(length=len(value))]

    def _opened(self, size: int) -> list[Part]:
        assert isinstance(self.message, said.Opening)
        why = "uniform: what all shares together show is under a mask that nobody here knows"
        if self.message.round:
            return [Part("shares under masks", "share", size, (), why)]
        own = (
            8
            * self.terms.features[self.terms.parties.index(self.sender)]
            * (self.terms.batch + self.terms.lag)
        )
        masked = Part(
            "features - mask",
            "mask",
            own,
            (DEALER,),
            "the dealer knows the mask and never sees these bytes",
        )
        return [masked, Part("share of model - mask", "share", size - own, (), why)]


_MASKED = "its sender and the dealer know the mask; the dealer never sees it"
_FIELDS = {
    "terms": Part("digest of the terms", "clear", 0, KINDS),
    "tapes": Part("seed of tapes", "clear", 0, KINDS),
    "Hello": Part(
        "part of the common key", "clear", 0, KINDS, "sent to parties, never to the dealer"
    ),
    "Seed": Part("seed of input masks", "clear", 0, KINDS),
    "Dealt": Part(
        "corrections of tapes", "pad", 0, (DEALER,), "random numbers: no data are in them"
    ),
    "Reveal": Part(
        "share of the arm", "share", 0, (), "the puller needs the shares of all parties"
    ),
    "Choice": Part("arm - mask", "mask", 0, (PULLER, DEALER), _MASKED),
    "Payoff": Part("reward - mask", "mask", 0, (PAYEE, DEALER), _MASKED),
}
"""Bytes of messages, by the name of their field or of their message."""


# Settings to compare ------------------------------------------------------------------------------


def variants(settings: MpcContextual) -> list[tuple[str, MpcContextual]]:
    """Return the settings, and the same run on the other paths."""
    names = {"parties": "on shares", "fixed": "plain, in fixed point", "float": "plain, on floats"}
    named_settings = [("as set", settings)]
    for path, name in names.items():
        if path != settings.path:
            named_settings.append((name, settings.but(path=path, keep_shares=None)))
    return named_settings


SCENE: Scene[MpcContextual, ContextualRun | TwinRun] = Scene(
    places={
        "party": (0.2, 0.5),
        PULLER: (0.6, 0.25),
        PAYEE: (0.6, 0.75),
        DEALER: (0.9, 0.5),
    },
    scenarios=SCENARIOS,
    draw=scene,
    explain=explain,
    pseudocode=lambda settings: line_texts(code(settings)),
    sources=lambda settings: SOURCES,
    knowledge=knowledge,
    variants=variants,
)
