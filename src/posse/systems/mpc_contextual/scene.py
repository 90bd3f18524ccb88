"""mpc-contextual for a page: shares that mean nothing until opened, the arm at the puller, the
reward at the payee.

Explanations may read what only a simulation knows: the features of a party, the arm, the reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posse.runtime.memory import Delivery
from posse.systems.modules import Scenario, Scene
from posse.systems.mpc_contextual.federation import ContextualRun, Outcome, TwinRun
from posse.systems.mpc_contextual.roles import messages as said
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, leaks
from posse.systems.scenes import (
    Code,
    Part,
    format_number,
    join_some,
    line_numbers,
    line_texts,
    parts,
)

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
    outcome, roles = _outcome(run)
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


def _outcome(run: ContextualRun | TwinRun) -> tuple[Outcome, bool]:
    """Return arms and rewards of the current seed, and whether there are roles."""
    if isinstance(run, ContextualRun):
        puller: Any = run.memory.roles[PULLER]
        payee: Any = run.memory.roles[PAYEE]
        seed = run.seeds[len(run.memories) - 1]
        return Outcome(seed, puller.arms[: payee.step], payee.rewards), True
    return run.outcome(), False


def _worlds(run: ContextualRun | TwinRun, seed: int) -> tuple[Any, Any]:
    """Return what the best arm of every context pays on average, and a random one, added up over
    steps from 0 on.
    """
    setup = run.settings.load()

    def make() -> tuple[Any, Any]:
        means = setup.contexts.means[setup.order(seed)]
        return (
            np.append(0.0, means.max(axis=1).cumsum()),
            np.append(0.0, means.mean(axis=1).cumsum()),
        )

    return run.settings.once(f"scene {seed}", make)


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
    step, name, says, clear, ran = made.words()
    return {
        "step": step,
        "name": name,
        "says": says,
        "clear": clear,
        "parts": parts(message, made.describe, KINDS),
        "lines": line_numbers(code(run.settings), ran),
        "chosen": PULLER if isinstance(message, said.Reveal) and made.arm(message.step) else None,
    }


class _Explained:
    """One message, with what only the simulation knows."""

    def __init__(self, run: ContextualRun, delivery: Delivery) -> None:
        self.run, self.message = run, delivery.message
        self.sender, self.receiver = delivery.sender, delivery.receiver
        self.terms, self.setup = run.settings.load().terms, run.settings.load()
        self.roles: dict[str, Any] = run.memory.roles
        self.rounds = len(run.plan.rounds)

    def words(self) -> tuple[str, str, str, list[list[str]], Mapping[str, Sequence[str]]]:
        """Return step, name, sentence, meaning and lines."""
        a, b, message = "{" + self.sender + "}", "{" + self.receiver + "}", self.message
        if isinstance(message, said.Hello):
            says = (
                f"{a} tells {b} its terms and a part of the parties' common key, which the dealer "
                "never sees."
            )
            return (
                "set-up",
                "Hello",
                says,
                [["part of the key", "32 bytes, withheld"]],
                {"party": ["hello"]},
            )
        if isinstance(message, said.Seed):
            says = (
                f"{a} sends {b} seeds from which it draws random numbers that fit those of the "
                "others."
            )
            kind = self.roles[self.receiver].kind
            return (
                "set-up",
                "Seed",
                says,
                [["seeds", "withheld"]],
                {DEALER: ["seed"], kind: ["seed"]},
            )
        if isinstance(message, said.Want):
            says = f"{a} asks {b} for more random numbers, ahead of time."
            return (
                "set-up",
                "Want",
                says,
                [["chunk", str(message.chunk)]],
                {"party": ["deal"], DEALER: ["deal"]},
            )
        if isinstance(message, said.Dealt):
            says = (
                f"{a} deals {b} what makes its random numbers fit; nothing in it depends on data."
            )
            return (
                "set-up",
                "Dealt",
                says,
                [["chunk", str(message.chunk)]],
                {DEALER: ["deal"], "party": ["deal"]},
            )
        if isinstance(message, said.Opening):
            return self._opening(message, a, b)
        return self._outside(message, a, b)

    def _opening(
        self, message: said.Opening, a: str, b: str
    ) -> tuple[str, str, str, list[list[str]], Mapping[str, Sequence[str]]]:
        at = message.round
        where = f"round {at + 1} of {self.rounds}"
        if at == 0:
            says = (
                f"{a} shows {b} its features under a mask, and its share of the model under "
                f"another ({where})."
            )
            own = self.roles[self.sender].reveal().contexts.view(np.int64)
            own = own / 2.0**self.terms.bits
            clear = [["features", join_some([format_number(float(one), 3) for one in own[0]], 8)]]
            return "1", "Context", says, clear, {"party": ["loop", "context"]}
        line, what = self._round(at)
        says = (
            f"{a} opens to {b} its shares of {what}, each under a mask: together they show a "
            f"random number ({where})."
        )
        return (
            str(at + 1),
            "Opening",
            says,
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

    def _outside(
        self, message: Any, a: str, b: str
    ) -> tuple[str, str, str, list[list[str]], Mapping[str, Sequence[str]]]:
        if isinstance(message, said.Reveal):
            arm = self.arm(message.step)
            says = f"{a} sends {b} its share of the arm: " + (
                f"it was the last one, and the puller pulls {arm}."
                if arm
                else "alone it says nothing."
            )
            ran = {"party": ["reveal"], PULLER: ["arm"] if arm else []}
            return "arm", "Reveal", says, [["arm", arm or "not known yet"]], ran
        if isinstance(message, said.Choice):
            says = (
                f"{a} returns the arm to {b} under a mask, so that the model learns from it and no "
                "party sees it."
            )
            ran = {PULLER: ["choice"], "party": ["choice"]}
            return (
                "arm",
                "Choice",
                says,
                [["arm", self.arm(message.step - self.terms.lag) or "none yet"]],
                ran,
            )
        if isinstance(message, said.Pulled):
            says = f"{a} tells {b} that an arm was pulled, and not which."
            return (
                "reward",
                "Pulled",
                says,
                [["step", str(message.step)]],
                {PULLER: ["pulled"], PAYEE: ["pulled"]},
            )
        assert isinstance(message, said.Payoff)
        first, batch = max(0, message.step - self.terms.lag) * self.terms.batch, self.terms.batch
        units = self.roles[PAYEE].reveal().units[first : first + batch]
        paid = join_some(
            [format_number(float(one), 3) for one in self.terms.reward_range.value(units)]
        )
        says = (
            f"{a} sends {b} the reward under a mask: the model learns from it and no party sees it."
        )
        return (
            "reward",
            "Payoff",
            says,
            [["reward", paid]],
            {PAYEE: ["reward"], "party": ["reward"]},
        )

    def arm(self, step: int) -> str:
        """Return the arms of a pass, once the puller knows them."""
        first, batch = step * self.terms.batch, self.terms.batch
        arms = self.roles[PULLER].reveal().arms[first : first + batch] if step >= 0 else ()
        return join_some([self.setup.contexts.arms[int(arm)] for arm in arms])

    def describe(self, kind: str, field: str, value: Any) -> Sequence[Part] | None:
        """Say what a field is."""
        if not isinstance(value, bytes):
            return [Part(field, "clear", 0, KINDS)] if kind != "Hello" else None
        size = len(value)
        if field == "terms":
            return [Part("digest of the terms", "clear", size, KINDS)]
        if kind == "Hello":
            return [
                Part(
                    "part of the common key",
                    "clear",
                    size,
                    KINDS,
                    "sent to parties, never to the dealer",
                )
            ]
        if kind == "Seed":
            return [
                Part(
                    f"seed of {'tapes' if field == 'tapes' else 'input masks'}",
                    "clear",
                    size,
                    KINDS,
                )
            ]
        if kind == "Dealt":
            return [
                Part(
                    "corrections of tapes",
                    "pad",
                    size,
                    (DEALER,),
                    "random numbers: no data are in them",
                )
            ]
        if kind == "Reveal":
            return [
                Part(
                    "share of the arm",
                    "share",
                    size,
                    (),
                    "the puller needs the shares of all parties",
                )
            ]
        if kind in ("Choice", "Payoff"):
            opens = (PULLER if kind == "Choice" else PAYEE, DEALER)
            name = "arm - mask" if kind == "Choice" else "reward - mask"
            return [
                Part(
                    name,
                    "mask",
                    size,
                    opens,
                    "its sender and the dealer know the mask; the dealer never sees it",
                )
            ]
        return self._opened(size)

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
