"""fed-contextual as a system: what it declares about itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from posse.core.check import require
from posse.core.errors import ConfigError
from posse.results import words
from posse.results.reports.sections import Section
from posse.systems.base import Action, RoleKind, System
from posse.systems.fed_contextual.levels import LEVELS, SampledSettings, level_of, show_sampled
from posse.systems.runs import Run

if TYPE_CHECKING:
    from posse.policies.decisions import Learnt
    from posse.privacy.leakage.attack import Attack
    from posse.results.record import Record
    from posse.systems.fed_contextual.settings import FedContextual
    from posse.systems.live import Serving

OWN = ("population", "model", "pay", "before", "first")
"""What a run takes of a user's own beside its settings."""

_BESIDE = (
    ("average reward", "average_reward"),
    ("the same, last tenth of the rounds", "average_reward_last_tenth"),
    ("mean probability of the chosen arm", "average_probability"),
    ("decisions", "samples"),
    ("rounds a second", "rounds_a_second"),
)


def _of_devices(
    word: str, summary: str, settings: str, module: str = "trial", **more: Any
) -> Action:
    """Declare `posse devices WORD`; settings and function are imported from `flower` when they are
    needed.
    """
    home = "posse.systems.fed_contextual.flower"
    return Action(
        ("devices", word),
        summary,
        lambda: getattr(import_module(f"{home}.settings"), settings),
        lambda given: getattr(import_module(f"{home}.{module}"), word)(given),
        **more,
    )


def _ranked(settings: Any) -> Iterable[Section]:
    require("jax", extra="contextual")
    found: Iterable[Section] = import_module(
        "posse.systems.fed_contextual.computing.candidates"
    ).rates(settings)
    return found


class FedContextualSystem(System):
    """One reward model on many devices."""

    name = "fed-contextual"
    title = "Federated contextual bandit"
    pictures = "posse.systems.fed_contextual.scene"
    summary = (
        "Many devices choose by one reward model and learn it together; contexts and logs stay on "
        "them."
    )
    reference = (
        "Agarwal, McMahan, Xu: An empirical evaluation of federated contextual bandit algorithms, "
        "2023"
    )
    protects = (
        "contexts and logs stay on devices; single updates, by secure sums; the model, by noise"
    )
    beside_by_default = False
    skip = ("delay",)
    words: ClassVar[Mapping[str, str]] = {"step": "round", "pull": "decision", "party": "device"}
    story = (
        "Sixty devices hold images of digits and choose one of ten arms for each; in 200 rounds of "
        "20 devices a server "
        "learns from their clipped updates which arm pays, and sees no image."
    )
    roles = (
        RoleKind(
            "server",
            "server",
            ("#d97706", "#f5b041"),
            "the model; clipped updates or their sums",
            (0.75, 0.5),
        ),
        RoleKind(
            "device",
            "device",
            ("#2563eb", "#7aa2ff"),
            "its contexts, its log, the deployed model",
            (0.25, 0.5),
        ),
    )
    levels = LEVELS
    unattacked: ClassVar[Mapping[str, str]] = {
        "One place holds all samples": "Nothing is hidden from that place.",
        "Pre-training carries no noise": "Figures leave it out; attacks on a model without noise show what it tells.",
        "Pre-training is on data of clients who gave": "It is said of the data: they are public.",
        "Rewards, probabilities": "They are printed in the record: there is nothing to find out.",
        "Which devices take part": "The server is given it, to send them the model.",
        "This is a simulation": "The seed is in the record: the same command draws the same noise again.",
        "The run was drawn from a seed": "The seed is in the record: the same command draws the same noise again.",
    }
    actions = (
        Action(
            ("budget", "sampled"),
            "See what rounds of federated training prove under noise, or the noise that an epsilon "
            "needs.",
            lambda: SampledSettings,
            lambda settings: show_sampled(settings),
        ),
        Action(
            ("export",),
            "Write a learnt model with its policy as an ONNX graph, which phones and pages run.",
            lambda: import_module("posse.systems.fed_contextual.export").ExportSettings,
            lambda given: import_module("posse.systems.fed_contextual.export").export(given),
            positional=("model",),
        ),
        Action(
            ("rates",),
            "Rank learning rates by what their models would earn, from a log of decisions.",
            lambda: import_module("posse.systems.fed_contextual.learning").RateSettings,
            lambda given: _ranked(given),
            positional=("logs",),
        ),
        _of_devices(
            "up",
            "Try a fleet on this machine: a SuperLink, nodes with keys of their own, TLS; the same "
            "command goes on.",
            "TrialSettings",
            stopped="stopped; the same command goes on",
        ),
        _of_devices(
            "simulate",
            "Simulate a fleet with Flower's own engine, which spreads it over a cluster; no TLS "
            "and no keys.",
            "SimulateSettings",
            stopped="stopped; the same command goes on",
        ),
        _of_devices(
            "app",
            "Write the Flower app for a real fleet: an installable project with these settings.",
            "AppSettings",
            positional=("folder",),
        ),
        _of_devices(
            "status",
            "See which version of the model every device has.",
            "StatusSettings",
            "deployment",
            positional=("folder",),
        ),
        _of_devices(
            "deploy",
            "Deploy a version of the model by its number, or the newest and those after it.",
            "DeploySettings",
            "deployment",
            positional=("folder",),
        ),
    )
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "demo": {},
        "under noise": {"clients": 600, "cohort": 60, "noise": 1.0, "clip": 0.05, "limit": 8.0},
        "secure sums": {"levels": 65536},
        "FALCON after pre-training": {"policy": "falcon", "scenario": "init"},
    }

    @property
    def Settings(self) -> type[FedContextual]:
        """The model of its settings."""
        from posse.systems.fed_contextual.settings import FedContextual

        return FedContextual

    @property
    def attacks(self) -> tuple[Attack, ...]:
        """Attacks on its runs."""
        from posse.systems.fed_contextual import attacks, deviations

        return (*attacks.ATTACKS, *deviations.ATTACKS)

    def start(
        self,
        settings: FedContextual,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
        **options: Any,
    ) -> Run:
        """Begin a run of simulated devices; `population`, `model`, `pay`, `before` and `first` are
        a user's own.
        """
        from posse.core.interrupts import defer_interrupt

        for name in options.keys() - set(OWN):
            remedy = (
                f" It is a setting: give FedContextual({name}=...)."
                if name in type(settings).model_fields
                else ""
            )
            raise ConfigError(
                f"a run takes {', '.join(OWN)} beside its settings, got "
                f"{name}.{remedy or ' Remove it.'}"
            )
        with defer_interrupt():  # jax does not bear a Ctrl-C while it is imported
            from posse.systems.fed_contextual.run import FedRun
        return FedRun(self, settings, seeds, **options)

    def serve(
        self,
        settings: FedContextual,
        arms: tuple[str, ...] | None,
        horizon: int | None,
        **options: Any,
    ) -> Serving:
        """Serve decisions of devices, which a server learns from in rounds; `every` so many
        decisions (the cohort).
        """
        from posse.core.interrupts import defer_interrupt

        with defer_interrupt():
            from posse.systems.fed_contextual.live import serve
        return serve(self, settings, arms, **options)

    def learnt(self, place: Path) -> Learnt | None:
        """Read a linear model that `model_out`, a kept run or a fleet wrote."""
        from posse.systems.fed_contextual.record import learnt_in

        return learnt_in(place) if place.suffix == ".npz" else None

    def twin(self, settings: FedContextual) -> FedContextual:
        """Return the settings without noise and rounding: the same rounds, and the same cohorts."""
        if self.level_of(settings) == "plain":
            return settings
        noisy = bool(settings.noise)
        return settings.but(
            noise=0.0,
            levels=0,
            limit=None,
            keep=None,
            model_out=None,
            clip_noise=None,
            pretraining_privacy="none",
            quantile=settings.follows if noisy and settings.clip else settings.quantile,
            sampling=settings.sampling or ("poisson" if noisy else "fixed"),
            horizon=settings.load().rounds if settings.limit else settings.horizon,
        )

    def level_of(self, settings: Any) -> str:
        """Return the level that noise and rounding give."""
        return level_of(settings.noise, settings.levels)

    def variants(self, settings: FedContextual) -> Sequence[tuple[str, FedContextual]]:
        """With and without noise, with and without rounding for secure sums."""
        found = [("as set", settings)]
        if settings.noise:
            found.append(
                ("without noise", self.twin(settings.but(levels=0)).but(levels=settings.levels))
            )
        levels = 0 if settings.levels else 65536
        found.append(
            (
                "without secure sums" if settings.levels else "with secure sums",
                settings.but(levels=levels),
            )
        )
        return found

    def remarks(self, records: Sequence[Record]) -> Sequence[Section]:
        """Show what records earned a decision, side by side, and the decisions of the first one by
        arm.
        """
        rows = tuple((name, *(_number(record, key) for record in records)) for name, key in _BESIDE)
        columns, first = ("", *(record.protection for record in records)), records[0]
        made = (
            [Section("A decision", columns, rows, numeric=tuple(range(1, len(columns))))]
            if len(records) > 1
            else []
        )
        if first.arms:
            counts = zip(first.arm_names, first.pulls.sum(axis=0).tolist(), strict=True)
            pulls = tuple((name, f"{count:,}") for name, count in counts)
            made.append(Section("Decisions", ("arm", "decisions"), pulls, numeric=(1,)))
        return made

    def policies(self) -> Section:
        """The kinds of exploration."""
        from posse.policies.contextual.explorations import EXPLORATIONS

        given = {
            kind: {one.name: one.default for one in fields(kind)} for kind in EXPLORATIONS.values()
        }
        facts = [
            {"name": kind.name, "summary": kind.summary, "parameters": given[kind]}
            for kind in given
        ]
        rows = tuple(
            (
                kind.name,
                ", ".join(f"{name} {value}" for name, value in some.items()) or "none",
                kind.summary,
            )
            for kind, some in given.items()
        )
        notes = (
            "Your own: a function of the scores that gives chances, as module:function or "
            "file.py:function.",
        )
        columns = ("policy", "parameters", "chooses")
        return Section(
            "Contexts on devices (fed-contextual)", columns, rows, notes, data={"policies": facts}
        )

    def problems(self, folder: Path | None) -> Section:
        """The populations of devices."""
        from posse.problems.populations.settings import POPULATIONS

        facts = [{"name": name, "what": what} for name, what in POPULATIONS.items()]
        rows = (
            *((one["name"], one["what"]) for one in facts),
            ("FILE.csv, FILE.npz", "the same as own and prepared"),
        )
        return Section(
            "Devices (fed-contextual)", ("--data", "what it is"), tuple(rows), data={"data": facts}
        )


def _number(record: Record, key: str) -> str:
    value = record.summary.get(key)
    return words.number(value if isinstance(value, int | float) else None, 4)


SYSTEM = FedContextualSystem()
