"""dp-combinatorial as a system: what it declares about itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from posse.results import words
from posse.results.joining import Joining, joining
from posse.results.reports.sections import Section
from posse.systems.base import Action, Level, Parties, RoleKind, System
from posse.systems.runs import Run

if TYPE_CHECKING:
    from posse.core.settings import Settings as AnySettings
    from posse.privacy.dp.guarantee import Guarantee
    from posse.privacy.dp.plans import BudgetSettings, Plan
    from posse.privacy.leakage.attack import Attack
    from posse.results.record import Record
    from posse.systems.dp_combinatorial.settings import DpCombinatorial


def learns(settings: DpCombinatorial) -> tuple[str, ...]:
    """What leaves an agent, one sentence each."""
    if settings.policy == "alone":
        return ("Nothing leaves an agent.",)
    if settings.policy == "placebo":
        return ("Agents exchange noise that holds nothing of what they bought.",)
    if settings.policy == "fcb":
        return (
            "Every agent sends every other what it bought of each producer and how much was good, "
            "every round.",
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
    out.append(
        "An agent that lies in its reports is believed where it stays near what others have seen, "
        "and nothing finds it."
        if settings.selects
        else "An agent that lies in its reports can fix what others believe of a producer for good: nothing limits it."
    )
    out.append(
        "Producers see what is bought from them; nothing here hides an agent from a producer."
    )
    return tuple(out)


class DpCombinatorialSystem(System):
    """Competing buyers who learn together."""

    name = "dp-combinatorial"
    title = "DP combinatorial"
    pictures = "posse.systems.dp_combinatorial.scene"
    summary = (
        "Competing agents buy from common producers under a quality constraint and share noisy "
        "reports."
    )
    unserved = (
        "a round is a purchase from all producers under a quality constraint, by several agents "
        "at once, and not one arm. Use posse.start, or a federation whose agents have sources of "
        "their own."
    )
    reference = (
        "Solanki, Kanaparthy, Damle, Gujar: Differentially private federated combinatorial bandits "
        "with constraints, "
        "ECML PKDD 2022"
    )
    protects = "what each agent buys, by Gaussian noise on its reports"
    words: ClassVar[dict[str, str]] = {
        "step": "round",
        "arm": "producer",
        "pull": "unit",
        "reward": "revenue",
        "party": "agent",
    }
    story = (
        "Five agents buy from twenty producers for 5,000 rounds and want an average quality of at "
        "least 0.4; they "
        "exchange noisy reports at a few rounds, beside the same agents alone and with everything "
        "in the clear."
    )
    roles = (
        RoleKind(
            "agent",
            "agent",
            ("#b07d12", "#b07d12"),
            "its costs, capacities and purchases",
            (0.3, 0.5),
        ),
        RoleKind(
            "producer",
            "producer",
            ("#4f8a6d", "#4f8a6d"),
            "what is bought from it; no messages",
            (0.8, 0.5),
            party=False,
        ),
    )
    levels = tuple(
        Level(name, summary, learns, leaks)
        for name, summary in (
            ("tight", "the least noise that proves epsilon and delta for the unit"),
            ("paper", "noise as published"),
            ("equal", "the least noise without using that windows are disjoint"),
            ("plain", "what is exchanged is exchanged in the clear"),
            ("alone", "nothing is shared"),
            ("placebo", "a control: reports of noise alone"),
        )
    )
    unattacked: ClassVar[dict[str, str]] = {
        "Who takes part, with which producers": "The terms are public: there is nothing to find out.",
        "Producers see what is bought": "A producer is no party: it is given every purchase of its own goods.",
    }
    actions = (
        Action(
            ("budget",),
            "Plan the noise of a privacy budget, or see what given noise proves.",
            lambda: _budget_settings(),
            lambda settings: show_budget(settings),
        ),
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "demo": {"agents": 5, "producers": 20, "horizon": 5000},
        "published noise": {"agents": 5, "producers": 20, "horizon": 5000, "noise": "paper"},
    }

    @property
    def Settings(self) -> type[DpCombinatorial]:
        """The model of its settings."""
        from posse.systems.dp_combinatorial.settings import DpCombinatorial

        return DpCombinatorial

    @property
    def attacks(self) -> tuple[Attack, ...]:
        """Attacks on its runs."""
        from posse.systems.dp_combinatorial import attacks, deviations

        return (*attacks.ATTACKS, *deviations.ATTACKS)

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
        """Return the same method without noise, compiled where it can be.

        A placebo without noise is no federation, and `naive` without noise is `fcb`.
        """
        path = "compiled" if settings.oracle == "greedy" else "agents"
        if settings.policy in ("placebo", "naive"):
            return settings.instead(
                policy="alone" if settings.policy == "placebo" else "fcb", path=path
            )
        return settings.instead(path=path, **({"noise": "none"} if settings.talks else {}))

    def level_of(self, settings: DpCombinatorial) -> str:
        """Return the noise schedule, "plain", "alone" or "placebo"."""
        return settings.level

    def beside(self, settings: DpCombinatorial) -> Sequence[DpCombinatorial]:
        """Return the same market and seeds without federation, and with everything shared."""
        policies = [policy for policy in ("alone", "fcb") if policy != settings.policy]
        if len(settings.load().market.agents) < 2:
            policies = []
        # The compiled path has the greedy oracle only; a run with another is compared with agents
        # that use it too.
        path = "compiled" if settings.oracle == "greedy" else "agents"
        return [settings.instead(policy=policy, path=path) for policy in policies]

    def remarks(self, records: Sequence[Record]) -> Sequence[Section]:
        """Say how often the threshold was missed and how much less regret there was than alone, a
        line a method.
        """
        joined = {id(one.record): one for one in joining(records) if one.baseline is not None}
        order = {"alone": 0, "fcb": 2}  # from nothing shared to everything shared
        rows = tuple(
            (
                one.label,
                _gained(joined.get(id(one))),
                words.number(float(one.summary.get("missed", 0))),
                _ratio(one, joined.get(id(one))),
                {"agents": "real agents", "compiled": "simulated"}.get(
                    str(one.summary.get("path")), words.UNKNOWN
                ),
            )
            for one in sorted(records, key=lambda record: order.get(record.policy, 1))
        )
        gained = f"{records[0].words.earned} more than alone"
        columns = ("", gained, "purchases below the threshold", "regret, of that alone", "how")
        many = ("From 3 runs on the ratio has its 95 % interval.",) if records[0].runs > 1 else ()
        return (Section("What sharing is worth", columns, rows, many, (1, 2, 3)),)

    def policies(self) -> Section:
        """The methods of learning together."""
        rows = (
            ("p-fcb", "noisy reports at a few rounds"),
            ("fcb", "everything after every round, in the clear"),
            ("naive", "everything after every round, with noise"),
            ("alone", "no federation"),
            ("placebo", "reports of noise alone, a control"),
        )
        facts = [
            {"name": name, "summary": summary, "parameters": {"coefficient": 1.0}}
            for name, summary in rows
        ]
        return Section(
            "Markets (dp-combinatorial)", ("policy", "what is sent"), rows, data={"policies": facts}
        )

    def problems(self, folder: Path | None) -> Section:
        """Random markets, and files of one's own."""
        from posse.problems.markets.instances import INSTANCES

        rows = [(name, "yes", f"random: {what}") for name, what in INSTANCES.items()]
        rows += [
            (
                "offers=FILE.csv",
                "yours",
                "columns agent,supplier,cost,capacity; and one of the two below",
            ),
            (
                "qualities=FILE.csv",
                "yours",
                "columns supplier,quality: a row a supplier, units are drawn",
            ),
            (
                "records=FILE.csv",
                "yours",
                "columns supplier,quality: a row a past unit, replayed in order",
            ),
        ]
        facts = [{"name": name, "ready": True, "what": what} for name, what in INSTANCES.items()]
        columns = ("--data", "ready", "what it is")
        return Section("Markets (dp-combinatorial)", columns, tuple(rows), data={"data": facts})

    @property
    def deployment(self) -> Parties:
        """Agents over the network."""
        from posse.systems.dp_combinatorial.deploy import VOCABULARY, build, invite, layout

        return Parties(build, layout, invite, VOCABULARY)

    def variants(self, settings: DpCombinatorial) -> Sequence[tuple[str, DpCombinatorial]]:
        """With noise, without, with everything shared, and alone."""
        found = [("as set", settings)]
        if settings.policy == "p-fcb" and settings.noisy:
            found.append(("without noise", settings.instead(noise="none")))
        names = {"p-fcb": "noisy reports", "fcb": "everything shared", "alone": "alone"}
        others = [policy for policy in names if policy != settings.policy]
        return [*found, *((names[policy], settings.instead(policy=policy)) for policy in others)]


def _gained(joined: Joining | None) -> str:
    return (
        words.UNKNOWN
        if joined is None
        else words.plus_minus(joined.whole.difference, joined.whole.error)
    )


def _ratio(record: Record, joined: Joining | None) -> str:
    if record.level == "alone":
        return "1"
    return words.UNKNOWN if joined is None or joined.ratio is None else str(joined.ratio)


# What an epsilon costs in noise -------------------------------------------------------------------


def _budget_settings() -> type[AnySettings]:
    from posse.privacy.dp.plans import BudgetSettings

    return BudgetSettings


def show_budget(settings: BudgetSettings) -> Iterator[Section]:
    """Say what noise an epsilon takes, or what noise proves, for every unit; no run is needed."""
    from posse.privacy.dp.schedules import UNITS

    plan = settings.plan()
    proved = [plan.guarantee(), *(plan.guarantee(unit) for unit in UNITS if unit != plan.unit.name)]
    claims = plan.claims() if plan.schedule == "paper" else ()
    used = {"epsilon": plan.budget and plan.budget.epsilon, "schedule": plan.schedule}
    yield _noise(
        plan,
        {
            "settings": {**settings.resolved(), **used},
            "messages": _messages(plan),
            "guarantee": proved[0].entry(),
            "other_units": [guarantee.entry() for guarantee in proved[1:]],
            "claims": [asdict(claim) for claim in claims],
        },
    )
    yield from _guarantees(plan, proved)
    if claims:
        rows = tuple((claim.figure, "yes" if claim.proved else "no", claim.how) for claim in claims)
        yield Section(
            "Figures for the published noise", ("(epsilon, delta)", "a proof", "how"), rows
        )
    yield Section(
        "Not covered", notes=tuple(f"- {one}" for one in proved[0].simulated().not_covered)
    )


def _messages(plan: Plan) -> list[dict[str, Any]]:
    rows = [plan.row(message) for message in range(plan.messages)]
    return [{name: value for name, value in row.items() if name != "unit"} for row in rows]


def _noise(plan: Plan, data: dict[str, Any]) -> Section:
    made = f"schedule {plan.schedule}, for {plan.budget}" if plan.budget is not None else "as given"
    shown = ("round", "window", "multiplier", "noise_multiplier")
    rows = tuple(tuple(words.number(one[name], 4) for name in shown) for one in data["messages"])
    return Section(
        f"Noise of {words.count(len(plan.rounds), 'message')}: {made}",
        ("round", "about rounds", "sigma / k", "sigma / sensitivity"),
        rows,
        ("k: capacity of the agent at the producer; sensitivity: of the unit below.",),
        (0, 1, 2, 3),
        data=data,
    )


def _guarantees(plan: Plan, proved: Sequence[Guarantee]) -> Iterator[Section]:
    own = proved[0]
    notes = (
        f"- covers {own.covers} ({words.count(plan.producers, 'producer')})",
        f"- adjacency: {own.adjacency}",
        f"- {own.terms}",
    )
    yield Section(f"Proved: {own.figure} for unit {own.unit}", notes=notes)
    rows = tuple(
        (other.unit, other.figure, other.composition, other.covers) for other in proved[1:]
    )
    yield Section(
        "The same noise for other units",
        ("unit", "(epsilon, delta)", "composition", "covers"),
        rows,
    )


SYSTEM = DpCombinatorialSystem()
