"""mpc-contextual as a system: what it declares about itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from posse.systems.base import About, Demo, Level, RoleKind, System
from posse.systems.mpc_contextual.terms import DEALER, LEARNS, PAYEE, PULLER, SHARED, leaks
from posse.systems.runs import Run

if TYPE_CHECKING:
    from posse.systems.mpc_contextual.settings import MpcContextual


class MpcContextualSystem(System["MpcContextual"]):
    """A contextual bandit on features that no party reveals."""

    name = "mpc-contextual"
    about = About(
        title="MPC contextual",
        summary=(
            "Parties hold different features of one context; one role pulls the arm, another one "
            "is paid."
        ),
        reference=(
            "Hannun, Knott, Sengupta, van der Maaten: Privacy-preserving multi-party contextual "
            "bandits, arXiv 2019"
        ),
        protects="features, scores and model, by secret sharing; the arm, by exploration",
        demo=Demo(
            settings={"rows": 500},
            story=(
                "A clinic and a laboratory hold half of the features of each of 500 images and "
                "learn together which of ten arms pays; neither shows the other a feature, and "
                "neither learns the arm or the reward."
            ),
        ),
        exact=True,
        nouns={"party": "party"},
        policies="shared-contexts",
        problems="contexts",
    )
    roles = (
        RoleKind(
            "party", "party", ("#3b8ea5", "#3b8ea5"), "its features, and a share of the model"
        ),
        RoleKind(PULLER, "puller", ("#c2477f", "#c2477f"), "the arm of every step", sole=True),
        RoleKind(PAYEE, "payee", ("#6b8e23", "#6b8e23"), "the reward of every step", sole=True),
        RoleKind(
            DEALER,
            "dealer",
            ("#7a7f8c", "#7a7f8c"),
            "seeds of correlated randomness; no data",
            sole=True,
        ),
    )
    levels = (
        Level(
            SHARED,
            "additive shares modulo 2^64, and arms that are drawn at random at the exploration "
            "rate",
            lambda settings: LEARNS,
            lambda settings: leaks(settings.load().terms),
            against="each party and the dealer, if all follow the protocol",
            broken_by=(
                "two: the dealer with any party reads everything; the puller alone learns part of "
                "the features from the arms"
            ),
            attacks=("masks", "opened", "arms", "sequence"),
        ),
    )

    @property
    def Settings(self) -> type[MpcContextual]:
        """The model of its settings."""
        from posse.systems.mpc_contextual.settings import MpcContextual

        return MpcContextual

    def level_of(self, settings: MpcContextual) -> str:
        """Return "shared", or "plain" for a twin."""
        return SHARED if settings.path == "parties" else "plain"

    def start(
        self,
        settings: MpcContextual,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
        **options: Any,
    ) -> Run:
        """Begin a run on real roles, or one of its twins."""
        from posse.systems.mpc_contextual.federation import ContextualRun, TwinRun

        if settings.path != "parties":
            return TwinRun(self, settings, seeds)
        return ContextualRun(
            self, settings, seeds=seeds, world=world, transcript=transcript, **options
        )

    def twin(self, settings: MpcContextual) -> MpcContextual:
        """Return the settings of the fixed-point twin; a twin is its own twin."""
        if settings.path != "parties":
            return settings
        return settings.but(path="fixed", keep_shares=None)


SYSTEM = MpcContextualSystem()
