"""Samba as a system: what it declares about itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from posse.core.errors import DataError
from posse.results import words
from posse.results.reports.sections import Section
from posse.systems.base import Action, Level, Parties, RoleKind, Scenario, System
from posse.systems.runs import Run

if TYPE_CHECKING:
    from posse.privacy.crypto.paillier import PrivateKey
    from posse.privacy.leakage.attack import Attack
    from posse.problems.arms.settings import ProblemSettings
    from posse.runtime.memory import Delivery
    from posse.systems.live import Serving
    from posse.systems.samba.settings import Samba


class SambaSystem(System):
    """Secure federated arms."""

    name = "samba"
    title = "Samba"
    summary = "One arm per data owner, a server split in two, a customer who learns only the total."
    reference = (
        "Ciucanu, Lafourcade, Marcadet, Soare: SAMBA, a generic framework for secure federated "
        "multi-armed bandits"
    )
    protects = "rewards, scores and choices, by secret sharing (strict) or masks and permutations"
    exact = True
    skip = ("walk",)
    demo_attack = "customer-and-controller"
    story = (
        "Ten owners hold one film each and learn together which is liked most: 10,000 pulls by "
        "Thompson sampling, "
        "on means of MovieLens that ship with Posse. No message shows an owner the rewards of "
        "another."
    )
    roles = (
        RoleKind(
            "owner",
            "data owner",
            ("#2563eb", "#7aa2ff"),
            "one arm, its rewards and its own draws",
            (0.15, 0.5),
        ),
        RoleKind(
            "controller",
            "controller",
            ("#d97706", "#f5b041"),
            "a share of each score",
            (0.5, 0.3),
            True,
        ),
        RoleKind(
            "comp",
            "comp",
            ("#7c3aed", "#b794f6"),
            "the other share of each score",
            (0.5, 0.75),
            True,
        ),
        RoleKind(
            "dealer",
            "dealer",
            ("#64748b", "#a3b0c2"),
            "randomness for both servers",
            (0.62, 0.1),
            True,
        ),
        RoleKind(
            "customer",
            "data customer",
            ("#059669", "#5fd3a5"),
            "the total reward",
            (0.85, 0.5),
            True,
        ),
    )
    levels = tuple(
        Level(
            name,
            summary,
            lambda settings: settings.learns(),
            lambda settings: settings.leaks(),
        )
        for name, summary in (
            (
                "strict",
                "scores shared between two servers, which compare them in a random order; a dealer",
            ),
            ("paper", "the protocol as published"),
        )
    )
    actions = (
        Action(
            ("arms",),
            "List the arms that data give, with their means.",
            lambda: _arms_settings(),
            lambda settings: show_arms(settings),
            positional=("data",),
        ),
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "demo": {"policy": "thompson", "owners": 10, "horizon": 10_000},
        "four shops": {"policy": "ucb", "means": (0.2, 0.4, 0.5, 0.7), "horizon": 200},
    }

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Shops, games, clinics, and the paper's worked examples."""
        from posse.systems.samba.scene.scenarios import SCENARIOS

        return SCENARIOS

    @property
    def unattacked(self) -> Mapping[str, str]:
        """Sentences that no attack stands behind, and why."""
        from posse.systems.samba.attacks.table import UNATTACKED

        return UNATTACKED

    @property
    def attacks(self) -> tuple[Attack, ...]:
        """Attacks on its runs."""
        from posse.systems.samba.attacks.table import ATTACKS

        return ATTACKS

    @property
    def Settings(self) -> type[Samba]:
        """The model of its settings."""
        from posse.systems.samba.settings import Samba

        return Samba

    def start(
        self,
        settings: Samba,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
        key: PrivateKey | None = None,
        **options: Any,
    ) -> Run:
        """Begin a run on real roles, or its plain twin; `key` is the customer's Paillier key, made
        if not given.
        """
        from posse.systems.samba.federation import SambaRun
        from posse.systems.samba.twin import SambaTwinRun

        if settings.path == "plain":
            return SambaTwinRun(self, settings, seeds)
        if settings.walk is not None:
            from posse.systems.samba.scene.walks import WalkRun

            return WalkRun(
                self, settings, seeds=seeds, world=world, transcript=transcript, key=key, **options
            )
        return SambaRun(
            self, settings, seeds=seeds, world=world, transcript=transcript, key=key, **options
        )

    def serve(
        self, settings: Samba, arms: tuple[str, ...] | None, horizon: int | None, **options: Any
    ) -> Serving:
        """Serve decisions: owners, servers and customer in this process, or the plain twin; `key`
        as in `start`.
        """
        from posse.systems.samba.live import serve

        return serve(self, settings, arms, horizon, **options)

    def like(self, public: Mapping[str, Any]) -> Samba | None:
        """Settings with the level, policy, owners and horizon of a view; None before its parties
        have agreed.
        """
        if not public["horizon"]:
            return None
        policy = public["policy"]
        given: dict[str, Any] = dict.fromkeys(public["off"], False)
        given |= {
            "policy": {"name": policy["name"], **policy["parameters"]},
            "means": (0.5,) * public["owners"],
        }
        return self.Settings(level=public["level"], horizon=public["horizon"], **given)

    def twin(self, settings: Samba) -> Samba:
        """Return the settings of the twin of the same level."""
        return settings.but(path="plain", walk=None)

    def level_of(self, settings: Samba) -> str:
        """Return the level, or "plain"."""
        return "plain" if settings.path == "plain" else settings.level

    def workload(self, settings: Samba) -> str:
        """Theorem 4 of the paper."""
        setup = settings.load()
        arms, passes = len(setup.arms), len(setup.policy.passes())
        times = (settings.horizon - arms) * passes
        return (
            f"Theorem 4 of the paper, for level 'paper' with K = {arms} and N = "
            f"{settings.horizon:,}: "
            f"(N - K) x {passes} = {times:,} times 2 K AES-GCM encryptions and decryptions and 4 "
            "lists of K numbers, "
            f"{4 * arms * times:,} numbers in all; then K Paillier encryptions, one decryption and "
            "K + 1 messages."
        )

    def policies(self) -> Section:
        """The policies that give every arm a score."""
        from posse.policies.arms.registry import POLICIES

        rows, facts = [], []
        for kind in POLICIES.values():
            policy = kind()
            passes = policy.passes()
            given = {
                each.name: None if each.default is MISSING else each.default
                for each in fields(policy)
            }
            listed = ", ".join(f"{name} {value}" for name, value in given.items()) or "none"
            selects = ", ".join(_SELECTS[selection.kind] for selection in passes)
            selects += " +explore" if policy.explores else ""
            rows.append((policy.name, listed, str(len(passes)), selects, policy.reference))
            kinds = [selection.kind for selection in passes]
            facts.append(
                {
                    "name": policy.name,
                    "summary": policy.summary,
                    "parameters": given,
                    "passes": len(passes),
                    "selection": kinds,
                    "explores": policy.explores,
                    "reference": policy.reference,
                }
            )
        notes = (
            "Selection: the best score, or an arm drawn by its probability; +explore: some steps "
            "take any arm.",
        )
        columns = ("policy", "parameters", "passes", "selects by", "reference")
        return Section("Arms", columns, tuple(rows), notes, (2,), {"policies": facts})

    def problems(self, folder: Path | None) -> Section:
        """The embedded means, the data sets, and files of one's own."""
        from posse.problems.arms.settings import INVENTED
        from posse.problems.datasets.published import EMBEDDED, SIZE
        from posse.problems.datasets.ratings import DATASETS

        facts: list[dict[str, Any]] = [
            {
                "name": f"embedded:{name}",
                "ready": True,
                "what": f"{SIZE} published means",
                "reason": "",
            }
            for name in EMBEDDED
        ]
        what = "ratings of 8 invented stores by 320 invented people, with age and neighbourhood"
        facts.append({"name": INVENTED, "ready": True, "what": what, "reason": ""})
        for dataset in DATASETS.values():
            reason = _missing(dataset.name, folder)
            facts.append(
                {
                    "name": dataset.name,
                    "ready": not reason,
                    "what": dataset.description,
                    "reason": reason,
                }
            )
        rows = [(one["name"], "yes" if one["ready"] else "no", one["what"]) for one in facts]
        rows.append(
            (
                "FILE.csv",
                "yours",
                "columns name,mean, or item,rating with --threshold (and --where)",
            )
        )
        rows.append(
            (
                "FILE.json.gz",
                "yours",
                "Steam or Google Local reviews as published, with --threshold",
            )
        )
        notes = [f"{one['name']}: {one['reason']}" for one in facts if one["reason"]]
        return Section(
            "Arms",
            ("--data", "ready", "what it is"),
            tuple(rows),
            tuple(notes),
            data={"data": facts},
        )

    @property
    def deployment(self) -> Parties:
        """Parties over the network."""
        from posse.systems.samba.deploy import VOCABULARY, build
        from posse.systems.samba.layout import invite, layout

        return Parties(build, layout, invite, VOCABULARY)

    def pseudocode(self, settings: Samba) -> Mapping[str, Sequence[str]]:
        """The code of each role, for this policy and level."""
        from posse.systems.samba.scene.code import code
        from posse.systems.scenes import written

        return written(code(settings.load().policy, settings.level, settings.switches))

    def sources(self, settings: Samba) -> Mapping[str, str]:
        """The classes of the roles of the level."""
        from posse.systems.samba.scene.code import sources

        return sources(settings.level)

    def scene(self, run: Run) -> Mapping[str, Any]:
        """Owners with rewards / pulls and estimate against truth, servers, customer."""
        from posse.systems.samba.scene import picture

        return picture.scene(run)  # type: ignore[arg-type]

    def explain(self, run: Run, delivery: Delivery) -> Mapping[str, Any]:
        """Explain one message."""
        from posse.systems.samba.scene.explain import explain

        return explain(run, delivery)  # type: ignore[arg-type]

    def knowledge(self, settings: Samba, kind: str) -> Mapping[str, Sequence[str]]:
        """What a role knows, can never know and could find out."""
        from posse.systems.samba.scene import picture

        return picture.knowledge(settings, kind)

    def preview(self, settings: Samba) -> Mapping[str, Any]:
        """The arms with their means and ratings, a histogram of the ratings, what one place would
        see.
        """
        from posse.systems.samba.scene import picture

        return picture.preview(settings)

    def sees(self, settings: Samba) -> Mapping[str, Any] | None:
        """Figure 7 of the paper for these settings, measured on a small run."""
        from posse.systems.samba.scene.sees import sees

        return None if settings.path == "plain" else sees(settings)

    def variants(self, settings: Samba) -> Sequence[tuple[str, Samba]]:
        """With and without each switch of `paper`, and the other levels."""
        from posse.systems.samba.scene import picture

        return picture.variants(settings)


_SELECTS = {"argmax": "best score", "match": "probability", "custom": "custom"}


def _missing(name: str, folder: Path | None) -> str:
    """Say why a data set cannot be read; an empty string where it can."""
    from posse.problems.datasets.ratings import DATASETS

    if folder is None and not os.environ.get("POSSE_DATA"):
        return (
            f"get it from {DATASETS[name].source} and set POSSE_DATA (or --data-dir) to the folder "
            "that holds it."
        )
    try:
        DATASETS[name].check(folder)
    except DataError as error:
        return str(error)
    return ""


def _arms_settings() -> type[ProblemSettings]:
    from posse.problems.arms.settings import ProblemSettings

    return ProblemSettings


def show_arms(settings: ProblemSettings) -> Iterator[Section | str]:
    """List the arms that settings make, with their means, and say what was dropped of a table."""
    arms = settings.arms()
    best = arms.best
    rows = tuple(
        (str(i + 1), arm, f"{mean:.4f}", words.UNKNOWN if mean == best else f"{best - mean:.4f}")
        for i, (arm, mean) in enumerate(zip(arms.names, arms.means.tolist(), strict=True))
    )
    name = settings.data_name if settings.means is None else "means given"
    title, source = f"{name}: {len(arms)} arms, {arms.kind} rewards", (f"Source: {arms.source}",)
    columns = ("", "arm", "mean", "below the best")
    dropped = {"dropped": list(settings.dropped)} if settings.dropped else {}
    yield Section(
        title, columns, rows, source, (0, 2, 3), {"data": name, **arms.describe(), **dropped}
    )
    yield from (f"warning: {sentence}" for sentence in settings.dropped)


SYSTEM = SambaSystem()
