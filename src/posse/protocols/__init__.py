"""The old name of `posse.systems`. It works in 0.2 with a warning and goes in 0.3."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OLD, NEW = "posse.protocols", "posse.systems"


class _Renamed(MetaPathFinder, Loader):
    """Import a module of `posse.systems` under its old name, as the same module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{OLD}."):
            return None
        return ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        # The import system returns what stands in sys.modules after this call.
        sys.modules[module.__name__] = import_module(NEW + module.__name__.removeprefix(OLD))


warnings.warn(
    f"{OLD} is now {NEW}. Change the import; the old name goes in 0.3.",
    DeprecationWarning,
    stacklevel=2,
)
# First, or a submodule would be found by the path of its package and loaded a second time.
sys.meta_path.insert(0, _Renamed())
