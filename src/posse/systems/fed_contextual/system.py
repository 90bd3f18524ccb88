"""fed-contextual as a system: what it must declare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from posse.core.errors import ConfigError
from posse.core.interrupts import defer_interrupt
from posse.systems.base import About, Demo, RoleKind, System
from posse.systems.fed_contextual.levels import DEVICE, LEVELS, SERVER, level_of

if TYPE_CHECKING:
    from posse.systems.fed_contextual.settings import FedContextual
    from posse.systems.runs import Run

OWN = ("population", "model", "pay", "before", "first")
"""Custom parts that a run takes beside its settings."""


class FedContextualSystem(System["FedContextual"]):
    """One reward model on many devices."""

    name = "fed-contextual"
    about = About(
        title="Federated contextual bandit",
        summary=(
            "Many devices choose by one reward model and learn it together; contexts and logs stay "
            "on them."
        ),
        reference=(
            "Agarwal, McMahan, Xu: An empirical evaluation of federated contextual bandit "
            "algorithms, 2023"
        ),
        protects=(
            "contexts and logs stay on devices; single updates, by secure sums; the model, by noise"
        ),
        nouns={"step": "round", "pull": "decision", "party": "device"},
        policies="explorations",
        problems="populations",
        demo=Demo(
            settings={},
            story=(
                "Sixty devices hold images of digits and choose one of ten arms for each; in 200 "
                "rounds of 20 devices a server learns from their clipped updates which arm pays, "
                "and sees no image."
            ),
        ),
    )
    roles = (
        RoleKind(
            SERVER, "server", ("#d97706", "#f5b041"), "the model; clipped updates or their sums"
        ),
        RoleKind(
            DEVICE, "device", ("#2563eb", "#7aa2ff"), "its contexts, its log, the deployed model"
        ),
    )
    levels = LEVELS

    @property
    def Settings(self) -> type[FedContextual]:
        """The model of its settings."""
        from posse.systems.fed_contextual.settings import FedContextual

        return FedContextual

    def level_of(self, settings: FedContextual) -> str:
        """Return the level that noise and rounding give."""
        return level_of(settings.noise, settings.levels)

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

    def start(
        self,
        settings: FedContextual,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
        **options: Any,
    ) -> Run:
        """Begin a run of simulated devices.

        Args:
            settings: What to run.
            seeds: World seeds; by default those of the settings.
            world: Not used here: rewards come from the population, or from `pay`.
            transcript: Not used here: views are made from what the rounds measured.
            options: Custom parts: `population`, `model`, `pay`, `before` and `first`.
        """
        for name in options.keys() - set(OWN):
            remedy = "Remove it."
            if name in type(settings).model_fields:
                remedy = f"It is a setting: give FedContextual({name}=...)."
            raise ConfigError(
                f"a run takes {', '.join(OWN)} beside its settings, got {name}. {remedy}"
            )
        with defer_interrupt():  # jax must not be interrupted while it is imported
            from posse.systems.fed_contextual.run import FedRun
        return FedRun(self, settings, seeds, **options)


SYSTEM = FedContextualSystem()
