"""The runner as it is called, for as short as it goes: nobody is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_short_run_is_as_promised_and_leaves_nothing_behind(tmp_path: Path) -> None:
    short = Path("/tmp") if len(os.fsencode(tmp_path)) > 60 else tmp_path
    done = subprocess.run(
        [sys.executable, "-m", "tests.gateway_chaos", "--seed", "3", "--minutes", "0.01", "--connections", "20"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(short)}, capture_output=True, text=True, timeout=220, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.splitlines()[-1] == "all as promised"
    assert ", 0 lost, 0 unexpected" in done.stdout
    folder = done.stderr.splitlines()[0].split()[-1]
    assert not Path(folder).exists()
