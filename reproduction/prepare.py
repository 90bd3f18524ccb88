"""`python -m reproduction prepare`: data sets of the figures, written as prepared populations.

`posse run fed-contextual --data OUT` reads what is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posse.cli.progress import Doing
from posse.cli.screen import say
from posse.core import check
from posse.problems.datasets.files import data_folder
from posse.problems.populations.population import Population
from posse.problems.populations.prepared import save
from reproduction.fed_contextual.problem import FULL, KINDS, SMALL
from reproduction.loaders.emnist import emnist_population, femnist_population
from reproduction.loaders.questions import (
    TAGS,
    VOCABULARY,
    prepare_stackoverflow,
    stackexchange_population,
)

Out = Annotated[Path, typer.Argument(help="A new folder, or a new .npz file.", metavar="OUT")]
Folder = Annotated[Path, typer.Argument(help="A new folder.", metavar="OUT")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of the data files; else the one that POSSE_DATA names."),
]
Words = Annotated[int, typer.Option(help="Most frequent words that a bag is made of.")]
Tags = Annotated[int, typer.Option(help="Most frequent tags, which are the arms.")]

app = typer.Typer(
    help="Write a data set for 'posse run fed-contextual --data OUT', or the jobs of a study.",
    no_args_is_help=True,
)


@app.command()
def emnist(
    out: Out,
    data_dir: DataDir = None,
    clients: Annotated[
        int | None, typer.Option(help="Dirichlet clients; 197 images each if left out.")
    ] = None,
    alpha: Annotated[
        float,
        typer.Option(help="Dirichlet parameter; small for few labels per client."),
    ] = 0.3,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
) -> None:
    """EMNIST by class, test part: 116,323 images of 62 characters over Dirichlet clients."""
    with Doing("reading EMNIST"):
        population = emnist_population(data_dir, clients, alpha, seed)
    _write(population, out)


@app.command()
def femnist(out: Out, data_dir: DataDir = None) -> None:
    """Federated EMNIST: 671,585 images of 62 characters by 3,400 writers."""
    with Doing("reading federated EMNIST"):
        population = femnist_population(data_dir)
    _write(population, out)


@app.command()
def stackexchange(
    out: Out, data_dir: DataDir = None, words: Words = VOCABULARY, tags: Tags = TAGS
) -> None:
    """Questions of three small Stack Exchange sites with tags, by user."""
    with Doing("reading Stack Exchange"):
        population = stackexchange_population(data_dir, words, tags)
    _write(population, out)


@app.command()
def stackoverflow(
    out: Folder, data_dir: DataDir = None, words: Words = VOCABULARY, tags: Tags = TAGS
) -> None:
    """Sentences of StackOverflow with tags, by 342,477 users; takes hours.

    The figures look for it in the folder of the data files, as stackoverflow-prepared.
    """
    with Doing("preparing StackOverflow"):
        population = prepare_stackoverflow(data_folder(data_dir), out, words=words, tags=tags)
    _tell(population, out)


def _write(population: Population, out: Path) -> None:
    """Write a prepared population."""
    with Doing(f"writing {out}"):
        save(population, out)
    _tell(population, out)


def _tell(population: Population, out: Path) -> None:
    say(f"{out}: {population.clients:,} clients with {population.samples:,} samples.")
    say(f"Next: posse run fed-contextual --data {out}")


FORMS = {**FULL, SMALL.name: SMALL}


@app.command()
def study(
    out: Annotated[Path, typer.Argument(help="Folder to write to.", metavar="OUT")],
    data_dir: DataDir = None,
    form: Annotated[str, typer.Option(help=f"Size of the study: {', '.join(FORMS)}.")] = "brief",
    kind: Annotated[str | None, typer.Option(help="images or tags alone.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Lines, such as 'fig1a-*'; repeat it.")
    ] = None,
) -> None:
    """Populations and jobs of the fed-contextual figures, for a machine with a GPU."""
    from reproduction.fed_contextual.runs import with_whole_data
    from reproduction.fed_contextual.study_jobs import write_jobs

    check.one_of(tuple(FORMS), form=form)
    kinds = KINDS if kind is None else (kind,)
    check.one_of(KINDS, kind=kinds[0])
    with Doing(f"writing {out}"):
        whole = with_whole_data(FORMS[form], data_dir)
        files = write_jobs(out, whole, data_dir, kinds, only or ("*",))
    for file in files:
        say(f"{file.path}: {file.jobs} jobs, {file.runs} runs, {file.rounds:,} rounds in all")
