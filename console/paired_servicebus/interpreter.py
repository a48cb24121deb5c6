"""Python processes of this package: the folder that they are started from decides nothing that they import.

`python -m` puts the working directory before everything else: a msgspec.py that lies there would run as ours.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""The variable that does what -P does, for processes that others start: workers of Spark, of multiprocessing."""
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
