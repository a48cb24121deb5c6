"""Python processes of this package, whose imports do not depend on the working directory.

`python -m` puts the working directory first in the path: a msgspec.py there would run as ours.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""The variable with the effect of -P, for processes of Spark and multiprocessing."""
_SOURCE: Final = Path(__file__).parents[1]


def python_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Give the command that runs a module of this package. Its environment is `python_environment`."""
    return (sys.executable, "-P", "-m", module, *arguments)


def python_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give `environ` (by default this process's) to a process of ours: it finds this package, as do its children."""
    given = os.environ if environ is None else environ
    installed = Path(sysconfig.get_path("purelib")) == _SOURCE  # found anyway, and to come after the standard library
    path = [] if installed else [str(_SOURCE)]
    path += filter(None, given.get("PYTHONPATH", "").split(os.pathsep))  # an empty part is the working directory
    kept = {name: value for name, value in given.items() if name != "PYTHONPATH"}
    return kept | {SAFE_PATH: "1"} | ({"PYTHONPATH": os.pathsep.join(path)} if path else {})
