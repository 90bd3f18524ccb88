"""What is not collected: doctests of modules whose extra is not installed, and the old package name,
which warns when it is imported.
"""

from __future__ import annotations

from importlib.util import find_spec

_FLOWER = [
    "src/posse/systems/fed_contextual/flower/*",
    "tests/devices/grids.py",
    "tests/devices/simulator.py",
]

collect_ignore_glob = ["src/posse/protocols/*", *([] if find_spec("flwr") else _FLOWER)]
