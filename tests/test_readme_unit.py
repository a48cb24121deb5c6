"""The unit that ships journals, in the page on the pipeline, is one that systemd takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def ship() -> dict[str, str]:
    """The unit and the timer that ship journals, by their file names."""
    page = (ROOT / "console/paired_servicebus/pipeline/README.md").read_text()
    (block,) = re.findall(r"```ini\n(# /etc/systemd.*?)```", page, re.DOTALL)
    parts = re.split(r"^# /etc/systemd/system/(\S+)\n", str(block), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_verifies_what_ships_journals(ship: dict[str, str], tmp_path: Path) -> None:
    for name, text in ship.items():
        (tmp_path / name).write_text(text.replace("/usr/bin/rclone", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in ship)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "paired-ship" in line] == []


@pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not here")
def test_its_command_copies_closed_journal_files_alone(ship: dict[str, str], tmp_path: Path) -> None:
    (command,) = re.findall(r"^ExecStart=(.*)$", ship["paired-ship.service"], re.MULTILINE)
    for name in ("a/b/1.jsonl", "a/b/2.txt", "3.jsonl"):
        (tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / name).write_text("{}\n")
    places = {"FROM": str(tmp_path / "from"), "TO": str(tmp_path / "to")}
    words = [re.sub(r"\$\{(\w+)\}", lambda found: places[found[1]], word) for word in command.split()]
    words[0] = shutil.which("rclone") or ""
    subprocess.run([*words, "--config", str(tmp_path / "none")], capture_output=True, timeout=60, check=True)
    copied = sorted(str(path.relative_to(tmp_path / "to")) for path in (tmp_path / "to").rglob("*") if path.is_file())
    assert copied == ["3.jsonl", "a/b/1.jsonl"]
