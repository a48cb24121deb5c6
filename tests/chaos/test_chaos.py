"""The runner, as it is called: real processes, one episode, and nobody left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SEED = 0
"""Its first episode orders the engine to fail an entity over, and kills it and a sender while both ping."""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_short_run_is_as_promised_and_leaves_nothing_behind(tmp_path: Path) -> None:
    short = Path("/tmp") if len(os.fsencode(tmp_path)) > 60 else tmp_path
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--seed", str(SEED), "--episodes", "1", "--json"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(short)}, capture_output=True, text=True, timeout=220, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (result["lost"], result["unexpected"], result["problems"]) == (0, 0, [])
    assert result["episodes"] == 1
    assert sum(result["acts"].values()) == 1
    assert result["accepted"] > 50
    folder = done.stderr.splitlines()[0].split()[-1]
    assert not Path(folder).exists()
    assert folder not in _running()


def _running() -> str:
    """The command lines of all processes, where there is a way to see them."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended this instant
            lines.append(path.read_text(errors="replace"))
    return "\n".join(lines)
