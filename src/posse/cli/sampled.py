"""`posse budget sampled`: what rounds of federated training under noise prove, and the noise for an epsilon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from posse.cli import options
from posse.cli.flags import settings_of
from posse.cli.progress import Doing
from posse.cli.screen import bullets, heading, print_json, table

if TYPE_CHECKING:
    from posse.cli.sampled_settings import SampledSettings


def sampled_settings() -> type[SampledSettings]:
    """Import the settings of sampled rounds."""
    from posse.cli.sampled_settings import SampledSettings

    return SampledSettings


def sampled(context: typer.Context, config: options.Config = None, json: options.Json = False) -> None:
    """See what rounds of federated training prove under noise, or the noise that an epsilon needs."""
    settings = settings_of(sampled_settings(), context, config)
    with Doing("composing privacy losses"):
        proved = settings.proved()
    if json:
        figures = [{"noise": noise, **made.entry()} for noise, made in proved]
        print_json({"settings": settings.resolved(), "figures": figures})
        return
    from posse.results import words

    count, devices = words.count(settings.rounds, "round"), words.count(settings.clients, "device")
    asked = "" if settings.epsilon is None else f", noise for epsilon {settings.epsilon:g} at delta {settings.delta:g}"
    heading(f"{count} of {settings.cohort:,} out of {devices}{asked}")
    rows = [
        (words.number(noise, 4), made.figure, made.sampling, made.adjacency.partition(":")[0], made.accountant)
        for noise, made in proved
    ]
    table(("noise", "(epsilon, delta)", "sampling", "adjacency", "accountant"), rows, numeric=(0,))
    heading("What the figures are of")
    bullets(
        dict.fromkeys(
            text
            for _, made in proved
            for text in (f"covers {made.covers}", f"unit {made.unit}; {made.adjacency}; composition {made.composition}")
        )
    )
    bullets(("A figure holds for the way of drawing devices that stands beside it, and for no other.",))
    heading("Not covered")
    bullets(proved[0][1].not_covered, style="yellow")
