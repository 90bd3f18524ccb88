"""Lines of the figures as jobs of a study: one job a value of exploration to choose by, and one to report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from posse.experiments.fed_contextual.forms import Form
from posse.experiments.fed_contextual.settings import KINDS, SETTINGS
from posse.policies.contextual.registry import EXPLORATIONS
from posse.protocols.fed_contextual.jobs import Job, Pretraining

LABELS = {"greedy": "Greedy", "epsilon-greedy": "ε-Greedy", "softmax": "Softmax", "falcon": "FALCON", "init": "Init"}


@dataclass(frozen=True)
class Chosen:
    """Hyper-parameters of a line, and what they earned where they were chosen."""

    client: float
    server: float
    parameters: Mapping[str, float]
    reward: float
    edge: str
    """Which rates are the smallest or largest of several that were tried."""

    @property
    def explore(self) -> str:
        """What exploration depends on, in words."""
        return ", ".join(f"{name} {value:g}" for name, value in self.parameters.items()) or "-"


@dataclass(frozen=True)
class Line:
    """One line: what is fixed; rates and exploration are chosen, unless nothing is learnt."""

    name: str
    figure: str
    """The setting: population, scenario and how often models are deployed."""
    policy: str
    label: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Of the job, beside that: loss, optimiser, clipping, noise."""
    betas: tuple[float, ...] | None = None
    """Values of Softmax's beta that are tried, where not the form's."""

    @property
    def kind(self) -> str:
        """Images or tags."""
        return SETTINGS[self.figure].kind

    @property
    def learns(self) -> bool:
        """Whether it learns."""
        return bool(self.fixed.get("learns", True))

    def explorations(self, form: Form) -> tuple[dict[str, float], ...]:
        """Give the values of its exploration that are tried."""
        if self.betas is not None:
            return tuple({"beta": beta} for beta in self.betas)
        return form.explorations(self.policy, form.size(self.kind).arms)

    def to_choose(self, form: Form) -> list[Job]:
        """Give the jobs that hyper-parameters are chosen by; none if nothing is learnt."""
        if not self.learns:
            return []
        size = form.size(self.kind)
        server = size.sgd_rates if self.fixed.get("optimiser") == "sgd" else size.server_rates
        return [
            self._job(form, f"{self.name}-choose-{number}", form.choose, size.client_rates, server, values)
            for number, values in enumerate(self.explorations(form), 1)
        ]

    def to_report(self, form: Form, chosen: Chosen | None) -> Job:
        """Give the job that is reported."""
        if chosen is None:
            return self._job(form, self.name, form.report, 0.1, 0.1, {})
        return self._job(form, self.name, form.report, chosen.client, chosen.server, chosen.parameters)

    def _job(
        self, form: Form, name: str, seeds: tuple[int, ...], client: float | tuple[float, ...],
        server: float | tuple[float, ...], parameters: Mapping[str, float],
    ) -> Job:  # fmt: skip
        setting, size = SETTINGS[self.figure], form.size(self.kind)
        first = size.supervised.get(setting.scenario)
        before = Pretraining() if first is None else Pretraining(size.before, size.pretrained, *first)
        return Job(
            f"{form.name}-{name}", setting.scenario, self.policy, dict(parameters), client, server,
            deploy_every=size.often if setting.often else size.seldom, rounds=size.phase(setting.scenario),
            seeds=seeds, cohort=size.cohort, model=size.model, hidden=size.hidden, channels=size.channels,
            pretraining=before, **self.fixed,
        )  # fmt: skip


def figure_lines(figure: str) -> tuple[Line, ...]:
    """Give the four policies of a setting, and the first model left as it is."""
    lines = tuple(Line(f"{figure}-{policy}", figure, policy, LABELS[policy]) for policy in EXPLORATIONS)
    if SETTINGS[figure].scenario == "scratch":
        return lines
    return (*lines, Line(f"{figure}-init", figure, "greedy", LABELS["init"], {"learns": False}))


def line_of(figure: str, policy: str) -> Line:
    """Give the line of one policy."""
    return next(line for line in figure_lines(figure) if line.policy == policy and line.learns)


def private_lines(form: Form, kind: str) -> tuple[Line, ...]:
    """Give figure 4's lines: no privacy, clipping alone, and two noises; Softmax of beta 0.05 from scratch."""
    size, figure = form.size(kind), {"images": "fig1a", "tags": "fig2a"}[kind]
    plain = Line(f"fig4-{kind}-plain", figure, "softmax", "no DP", betas=(0.05,))
    noisy = tuple(
        Line(
            f"fig4-{kind}-noise-{noise:g}", figure, "softmax", f"noise {noise:g}" if noise else "clipped, no noise",
            {"clip": size.clip, "quantile": 0.0, "noise": noise}, (0.05,),
        )
        for noise in (0.0, *size.noises)
    )  # fmt: skip
    return (plain, *noisy)


def choice_lines(kind: str) -> tuple[Line, ...]:
    """Give section 5.2's own lines, in init-shift: Softmax with SGD at the server, and weighted epsilon-Greedy."""
    figure = {"images": "fig1c", "tags": "fig2c"}[kind]
    return (
        Line(f"sec5_2-{kind}-sgd", figure, "softmax", "Softmax, SGD", {"optimiser": "sgd"}),
        Line(f"sec5_2-{kind}-weighted", figure, "epsilon-greedy", "ε-Greedy, weighted", {"loss": "importance"}),
    )


def all_lines(form: Form) -> tuple[Line, ...]:
    """Give every line of every figure once."""
    figures = tuple(line for figure in SETTINGS for line in figure_lines(figure))
    return (*figures, *(line for kind in KINDS for line in (*private_lines(form, kind), *choice_lines(kind))))
