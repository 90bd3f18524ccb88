"""dp-combinatorial as a system: what it declares about itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from posse.systems.base import About, Demo, Level, RoleKind, System
from posse.systems.runs import Run

if TYPE_CHECKING:
    from posse.systems.dp_combinatorial.settings import DpCombinatorial


def learns(settings: DpCombinatorial) -> tuple[str, ...]:
    """What leaves an agent, one sentence each."""
    match settings.policy:
        case "alone":
            return ("Nothing leaves an agent.",)
        case "placebo":
            return ("Agents exchange noise that holds nothing of what they bought.",)
        case "fcb":
            return (
                "Every agent sends every other what it bought of each producer and how much was "
                "good, every round.",
            )
    when = f"after {len(settings.report_rounds()):,} of {settings.horizon:,} rounds"
    if not settings.noisy:
        return (
            "Every agent sends every other what it bought of each producer and how much was good, "
            f"{when}.",
        )
    return (
        "Every agent sends every other one noisy pair for each producer (units, good units) "
        f"{when}.",
        "All receivers get the same pair: together they see no more than one of them.",
    )


def leaks(settings: DpCombinatorial) -> tuple[str, ...]:
    """What is not protected, one sentence each."""
    if settings.policy == "alone":
        return ()
    out = [
        "Who takes part, with which producers, for how many rounds, and when reports are sent: the "
        "terms are public."
    ]
    if settings.policy != "placebo" and settings.noisy:
        out.append(
            "Trends over many rounds: the guarantee is for the unit it names, and reports exist to "
            "tell averages."
        )
    elif settings.policy != "placebo":
        out.append(
            "Everything an agent bought and how good it was, to every other agent: there is no "
            "noise."
        )
    if settings.rule == "fuse" and settings.noisy:
        out.append(
            "Reports are fused by their variance, so each tells the scale of its noise and with it "
            "the capacities."
        )
    if settings.selects:
        out.append(
            "An agent that lies in its reports is believed where it stays near what others have "
            "seen, and nothing finds it."
        )
    else:
        out.append(
            "An agent that lies in its reports can fix what others believe of a producer for good: "
            "nothing limits it."
        )
    out.append(
        "Producers see what is bought from them; nothing here hides an agent from a producer."
    )
    return tuple(out)


def _noisy(name: str, summary: str) -> Level[DpCombinatorial]:
    return Level(
        name,
        summary,
        learns,
        leaks,
        against="every other agent",
        broken_by="one: over many rounds any agent sees trends in what the others buy",
        attacks=("reconstruction", "trends", "canaries"),
    )


class DpCombinatorialSystem(System["DpCombinatorial"]):
    """Competing buyers who learn together."""

    name = "dp-combinatorial"
    about = About(
        title="DP combinatorial",
        summary=(
            "Competing agents buy from common producers under a quality constraint and share noisy "
            "reports."
        ),
        reference=(
            "Solanki, Kanaparthy, Damle, Gujar: Differentially private federated combinatorial "
            "bandits with constraints, ECML PKDD 2022"
        ),
        protects="what each agent buys, by Gaussian noise on its reports",
        demo=Demo(
            settings={"agents": 5, "producers": 20, "horizon": 5000},
            story=(
                "Five agents buy from twenty producers for 5,000 rounds and want an average "
                "quality of at least 0.4; they exchange noisy reports at a few rounds, beside the "
                "same agents alone and with everything in the clear."
            ),
        ),
        nouns={
            "step": "round",
            "arm": "producer",
            "pull": "unit",
            "reward": "revenue",
            "party": "agent",
        },
        policies="purchases",
        problems="markets",
    )
    roles = (
        RoleKind("agent", "agent", ("#b07d12", "#b07d12"), "its costs, capacities and purchases"),
        RoleKind(
            "producer",
            "producer",
            ("#4f8a6d", "#4f8a6d"),
            "what is bought from it; no messages",
            party=False,
        ),
    )
    levels = (
        _noisy("tight", "the least noise that proves epsilon and delta for the unit"),
        _noisy("paper", "noise as published"),
        _noisy("equal", "the least noise without using that windows are disjoint"),
        Level("plain", "what is exchanged is exchanged in the clear", learns, leaks),
        Level("alone", "nothing is shared", learns, leaks),
        Level("placebo", "a control: reports of noise alone", learns, leaks),
    )

    @property
    def Settings(self) -> type[DpCombinatorial]:
        """The model of its settings."""
        from posse.systems.dp_combinatorial.settings import DpCombinatorial

        return DpCombinatorial

    def level_of(self, settings: DpCombinatorial) -> str:
        """Return the noise schedule, "plain", "alone" or "placebo"."""
        return settings.level

    def start(
        self,
        settings: DpCombinatorial,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
        **options: Any,
    ) -> Run:
        """Begin a run with real agents, or the compiled twin."""
        from posse.systems.dp_combinatorial.federation import MarketRun, TwinRun

        if settings.path == "compiled":
            return TwinRun(self, settings, seeds)
        return MarketRun(self, settings, seeds=seeds, world=world, transcript=transcript, **options)

    def twin(self, settings: DpCombinatorial) -> DpCombinatorial:
        """Return the same method without noise, compiled if the oracle is greedy.

        A placebo without noise is no federation, and `naive` without noise is `fcb`.
        """
        changes: dict[str, Any] = {"path": "compiled" if settings.oracle == "greedy" else "agents"}
        if settings.policy == "placebo":
            changes["policy"] = "alone"
        elif settings.policy == "naive":
            changes["policy"] = "fcb"
        elif settings.talks:
            changes["noise"] = "none"
        return settings.instead(**changes)


SYSTEM = DpCombinatorialSystem()
