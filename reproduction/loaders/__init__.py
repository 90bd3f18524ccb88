"""Data that only the published figures use: EMNIST, federated EMNIST, Stack Exchange, StackOverflow.

A loader reads the files as they are distributed and gives a population. No file ships with Posse.
"""

from importlib.resources import files

from posse.problems.datasets.files import read_pins

PINS = read_pins(files(__name__).joinpath("known-files.csv"))
"""Size and digest of the files that are known."""
