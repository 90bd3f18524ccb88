"""Where the store lies when nobody says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FILE = "runs.sqlite"


def default_path() -> Path:
    """Return `$POSSE_HOME/runs.sqlite`, or `posse/runs.sqlite` in the user's data folder.

    The data folder is `%LOCALAPPDATA%` on Windows, `~/Library/Application Support` on macOS, and `$XDG_DATA_HOME`
    or `~/.local/share` elsewhere. Nothing is created here.
    """
    home = os.environ.get("POSSE_HOME")
    return Path(home).expanduser() / FILE if home else _user_data() / "posse" / FILE


def _user_data() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
