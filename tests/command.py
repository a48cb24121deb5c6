"""The command `paired` in this process: what needs no process of its own costs no start of Python."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from paired_servicebus import cli


def run_here(*arguments: str, environ: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end; return its exit status and what it wrote."""
    out, err = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, {**environ}, clear=True), redirect_stdout(out), redirect_stderr(err):
        status = cli.main(arguments)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())
