"""A user's own policy, found by module:Class or file.py:Class."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from posse.core.check import nearest
from posse.core.errors import PolicyError, PosseError

if TYPE_CHECKING:
    from posse.policies.arms.base import Policy


def load_policy(where: str) -> Policy:
    """Import a policy: an instance, or a class that is built with its defaults."""
    from posse.policies.arms.base import Policy

    module_name, colon, name = where.rpartition(":")
    if not colon or not module_name or not name:
        raise PolicyError(f"expected module:Class or file.py:Class, got '{where}'.")
    module = _import(module_name)
    found = getattr(module, name, None)
    if found is None:
        known = tuple(
            key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Policy)
        )
        raise PolicyError(f"{module_name} has no '{name}'.{nearest(name, known) if known else ' It has no policy.'}")
    try:
        policy = found() if isinstance(found, type) else found
    except PosseError:
        raise
    except Exception as error:
        raise PolicyError(f"{name}() failed: {_told(error)}. Give every parameter a default.") from error
    if not isinstance(policy, Policy):
        raise PolicyError(f"{where} must be a subclass of posse.policies.Policy, got {type(policy).__name__}.")
    return policy


def _import(name: str) -> ModuleType:
    try:
        if name.endswith(".py"):
            return _from_file(Path(name))
        # An installed command does not look in the folder where it is called; a user's module is there.
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(name)
    except PosseError:
        raise
    except ModuleNotFoundError as error:
        raise PolicyError(f"there is no module '{error.name}'. Give module:Class or file.py:Class.") from error
    except Exception as error:
        raise PolicyError(f"importing {name} failed: {_told(error)}.") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PolicyError(f"there is no file {path}. Check the path.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PolicyError(f"{path} cannot be imported as Python.")
    module = importlib.util.module_from_spec(spec)
    # numba looks a function's module up by its name.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _told(error: Exception) -> str:
    """Say the error and the last line of code in it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        where = f" ({Path(error.filename or '').name}, line {error.lineno})"
        return f"{type(error).__name__}: {error.msg}{where}"
    return f"{type(error).__name__}: {error}{where}"
