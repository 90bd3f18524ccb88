"""A first model from a file: `model.npz` of a run on devices, or a state that the simulator kept (`--keep`)."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from posse.core.errors import DataError
from posse.protocols.fed_contextual.flower.advance import Leaves
from posse.protocols.fed_contextual.flower.carry import shape_of, tree_of
from posse.protocols.fed_contextual.flower.settings import DeviceSettings
from posse.protocols.fed_contextual.trees import Tree


def first_model(settings: DeviceSettings) -> Tree | None:
    """Return the parameters to begin from; none where they are to be drawn.

    A state begins with the arrays of the parameters, in the order in which a model has them.
    """
    if not settings.start:
        return None
    import jax

    path, like = Path(settings.start).expanduser(), shape_of(settings)
    shapes = [tuple(leaf.shape) for leaf in jax.tree.leaves(like)]
    leaves = _read(path, len(shapes))
    if [leaf.shape for leaf in leaves] != shapes:
        found = ", ".join(str(leaf.shape) for leaf in leaves)
        raise DataError(
            f"{path} holds arrays of shapes {found}, and a {settings.model} model of {settings.features} features and "
            f"{settings.arms} arms has {', '.join(map(str, shapes))}. Set model, features and arms to fit it."
        )
    if not all(leaf.dtype.kind == "f" and np.isfinite(leaf).all() for leaf in leaves):
        raise DataError(f"{path} must hold finite numbers. Take another model.")
    return tree_of([leaf.astype(np.float32) for leaf in leaves], like)


def _read(path: Path, count: int) -> Leaves:
    """Read the parameters of either kind of file."""
    try:
        with np.load(path, allow_pickle=False) as found:
            model = [name for name in found.files if name.startswith("leaf")]
            names = [f"leaf{at}" for at in range(len(model))] if model else [f"arr_{at}" for at in range(count)]
            return [found[name] for name in names]
    except FileNotFoundError:
        raise DataError(f"there is no first model {path}. Correct 'start'.") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise DataError(
            f"the first model {path} cannot be read ({error}). Take model.npz of a run, or a state that "
            "'posse run fed-contextual --keep' wrote."
        ) from None
