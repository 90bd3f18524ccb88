"""Every sentence about protection names an attack that shows it or fails at it, or says why there
is none.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import posse
from posse.systems import base
from posse.systems.base import RunSettings
from posse.systems.modules import attacks_of
from posse.systems.registry import system, system_of

MARKET = {"agents": 3, "producers": 5, "horizon": 500}
NOISE = {"noise": 1.0, "clip": 0.05}
PAGES = Path(__file__).resolve().parents[2] / "docs/systems"
SETTINGS: tuple[RunSettings, ...] = (
    posse.MpcContextual(rows=60),
    posse.MpcContextual(rows=60, epsilon="0", without_guarantee=True),
    *(
        posse.DpCombinatorial(**MARKET, noise=noise)
        for noise in ("tight", "paper", "equal", "none")
    ),
    *(posse.DpCombinatorial(**MARKET, policy=policy) for policy in ("fcb", "alone", "placebo")),
    posse.DpCombinatorial(**MARKET, rule="fuse"),
    *(
        posse.FedContextual(**one)
        for one in ({}, {"levels": 65536}, NOISE, {**NOISE, "levels": 65536})
    ),
    *(posse.FedContextual(scenario="init", **one) for one in ({}, NOISE)),
    posse.FedContextual(scenario="init", **NOISE, pretraining_privacy="public"),
    posse.FedContextual(centralised=True),
)


def sentences(settings: RunSettings) -> tuple[str, ...]:
    level = base.level_or_none(system_of(settings), settings)
    assert level is not None
    return (*level.learns(settings), *level.not_protected(settings))


@pytest.mark.parametrize(
    "settings", SETTINGS, ids=lambda one: f"{one.system}-{system_of(one).level_of(one)}"
)
def test_every_sentence_names_its_attack_or_says_why_there_is_none(settings: RunSettings) -> None:
    of = system_of(settings)
    for sentence in sentences(settings):
        by = [
            attack.name
            for attack in attacks_of(of).attacks
            if any(sentence.startswith(one) for one in attack.claims)
        ]
        why = [
            reason
            for beginning, reason in attacks_of(of).unattacked.items()
            if sentence.startswith(beginning)
        ]
        assert bool(by) != bool(why), f"{of.name}: '{sentence}' has attacks {by} and reasons {why}"


@pytest.mark.parametrize("name", ["mpc-contextual", "dp-combinatorial", "fed-contextual"])
def test_every_claim_and_every_reason_is_of_a_sentence_that_is_printed(name: str) -> None:
    of = [one for one in SETTINGS if one.system == name]
    printed, made = {text for one in of for text in sentences(one)}, system_of(of[0])
    claims = {claim for attack in attacks_of(made).attacks for claim in attack.claims}
    fleet = {"The run was drawn from a seed"}  # of a run on devices, which is not simulated
    for beginning in (claims | set(attacks_of(made).unattacked)) - fleet:
        assert any(text.startswith(beginning) for text in printed), beginning


@pytest.mark.parametrize("name", ["mpc-contextual", "dp-combinatorial", "fed-contextual"])
def test_every_attack_says_what_it_measures_and_has_both_controls(name: str) -> None:
    for attack in attacks_of(system(name)).attacks:
        assert attack.statistic, attack.name
        assert attack.claims, attack.name
        assert attack.plant is not None, attack.name
        assert attack.planted, attack.name
        assert attack.shuffle is not None, attack.name


@pytest.mark.parametrize("name", ["samba", "mpc-contextual", "dp-combinatorial", "fed-contextual"])
def test_the_threat_model_names_every_attack_and_none_besides(name: str) -> None:
    """Who, promise, attack that fails, attack that succeeds: in the table of every system's
    page.
    """
    of = system(name)
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    text = page.partition("\n## Threat model\n")[2].partition("\n## ")[0]
    header = next(line for line in text.splitlines() if line.startswith("|"))
    for column in ("promise", "attack that fails", "attack that succeeds"):
        assert f"| {column} |" in header
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", text))
    known = {attack.name for attack in attacks_of(of).attacks}
    assert known - named == set()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    cells = " ".join(cell for row in rows for cell in row[-3:])
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", cells)) - known - {"secure-sums"} == set()
