"""Samba as a system: what it must declare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from posse.systems.base import About, Demo, Level, RoleKind, System

if TYPE_CHECKING:
    from posse.privacy.crypto.paillier import PrivateKey
    from posse.systems.runs import Run
    from posse.systems.samba.settings import Samba


def _level(name: str, summary: str, **more: Any) -> Level[Samba]:
    return Level(
        name,
        summary,
        lambda settings: settings.learns(),
        lambda settings: settings.leaks(),
        **more,
    )


class SambaSystem(System["Samba"]):
    """Secure federated arms."""

    name = "samba"
    about = About(
        title="Samba",
        summary=(
            "One arm per data owner, a server split in two, a customer who learns only the total."
        ),
        reference=(
            "Ciucanu, Lafourcade, Marcadet, Soare: SAMBA, a generic framework for secure federated "
            "multi-armed bandits"
        ),
        protects=(
            "rewards, scores and choices, by secret sharing (strict) or masks and permutations"
        ),
        exact=True,
        policies="arms",
        problems="arms",
        demo=Demo(
            settings={"policy": "thompson", "owners": 10, "horizon": 10_000},
            story=(
                "Ten owners hold one film each and learn together which is liked most: 10,000 "
                "pulls by Thompson sampling, on means of MovieLens that ship with Posse. No "
                "message shows an owner the rewards of another."
            ),
            attack="customer-and-controller",
        ),
    )
    roles = (
        RoleKind(
            "owner",
            "data owner",
            ("#2563eb", "#7aa2ff"),
            "one arm, its rewards and its own draws",
        ),
        RoleKind(
            "controller",
            "controller",
            ("#d97706", "#f5b041"),
            "a share of each score",
            sole=True,
        ),
        RoleKind(
            "comp", "comp", ("#7c3aed", "#b794f6"), "the other share of each score", sole=True
        ),
        RoleKind(
            "dealer",
            "dealer",
            ("#64748b", "#a3b0c2"),
            "randomness for both servers",
            sole=True,
        ),
        RoleKind(
            "customer", "data customer", ("#059669", "#5fd3a5"), "the total reward", sole=True
        ),
    )
    levels = (
        _level(
            "strict",
            "scores shared between two servers, which compare them in a random order; a dealer",
            against="each server, the customer and outsiders, if all follow the protocol",
            broken_by=(
                "two: any two of controller, comp and dealer read everything; one owner alone "
                "infers the largest mean and the total"
            ),
            attacks=("controller-alone", "dealer-alone", "both-servers", "owner-alone"),
        ),
        _level(
            "paper",
            "the protocol as published",
            against="the controller, other owners and outsiders, if all follow the protocol",
            broken_by="one: comp alone recovers rewards, the total and all pulls",
            attacks=("controller-alone", "tracker", "wire-tap", "owner-alone"),
            command="--level strict",
        ),
    )

    @property
    def Settings(self) -> type[Samba]:
        """The model of its settings."""
        from posse.systems.samba.settings import Samba

        return Samba

    def level_of(self, settings: Samba) -> str:
        """Return the level, or "plain"."""
        return "plain" if settings.path == "plain" else settings.level

    def twin(self, settings: Samba) -> Samba:
        """Return the settings of the plain twin of the same level."""
        return settings.but(path="plain")

    def start(
        self,
        settings: Samba,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
        key: PrivateKey | None = None,
        example: str | None = None,
        **options: Any,
    ) -> Run:
        """Begin a run on real roles, or its plain twin.

        `key` is the customer's Paillier key, made if not given; `example` names a worked example of
        the paper, in which the run begins (`scene.walks`).
        """
        from posse.systems.samba.federation import SambaRun
        from posse.systems.samba.twin import SambaTwinRun

        if example is not None:
            from posse.systems.samba.scene.walks import WalkRun, check_example

            check_example(example, settings)
            return WalkRun(
                self,
                settings,
                example,
                seeds=seeds,
                world=world,
                transcript=transcript,
                key=key,
                **options,
            )
        if settings.path == "plain":
            return SambaTwinRun(self, settings, seeds)
        return SambaRun(
            self, settings, seeds=seeds, world=world, transcript=transcript, key=key, **options
        )


SYSTEM = SambaSystem()
