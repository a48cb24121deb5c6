"""The command `python -m tests.conformance.proton`: fetch Qpid Proton with pip, run `checks.py` on a sandbox.

Nothing of Proton is kept: it is built in a temporary environment, in the version that is named here. Exit status: 0
when every check passed, 1 when one did not, 2 with the reason when they were skipped.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.conformance.checking import Verdict, install_python, run, sandbox_facts, tell

PACKAGE: Final = "python-qpid-proton==0.40.0"
CHECKS: Final = Path(__file__).with_name("checks.py")
FETCHING_SECONDS: Final = 600.0
"""It comes as source, and takes a C compiler a minute or two."""


def main() -> int:
    return tell("proton", cross_check, clients=PACKAGE)


def cross_check() -> list[Verdict]:
    """Every check, on a sandbox of its own. Raises Skipped."""
    with tempfile.TemporaryDirectory(prefix="sandbox-proton-") as folder:
        python = install_python(Path(folder), PACKAGE, seconds=FETCHING_SECONDS)
        with sandbox_facts() as facts:
            return run([python, str(CHECKS), facts["namespaces"][0]["connection_string"]], Path(folder))


if __name__ == "__main__":
    sys.exit(main())
