"""The folders of a user's own files, by the XDG Base Directory Specification."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def user_folder(variable: str, below_home: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that an XDG variable names, else the one below the home folder.

    A relative path counts as not set. A user without a home folder gets `temporary_folder`.
    """
    given = Path(environ.get(variable, ""))
    if given.is_absolute():
        return given
    try:
        return Path.home() / below_home
    except RuntimeError:  # no HOME, and the system does not know the user
        return temporary_folder()


def temporary_folder() -> Path:
    """Return this user's folder among the temporary files; whoever uses it checks that no other user made it."""
    return Path(tempfile.gettempdir()) / f"paired-{os.geteuid()}"
