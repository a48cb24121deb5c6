"""The systemd unit in the README is one that systemd takes."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = "/opt/paired/bin/paired"


@pytest.fixture
def unit() -> str:
    page = (ROOT / "console/paired_servicebus/engine/README.md").read_text()
    (found,) = re.findall(r"```ini\n(# /etc/systemd.*?)```", page, re.DOTALL)
    return str(found)


def test_it_has_what_a_service_with_secrets_needs(unit: str) -> None:
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(unit)
    service = read["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"].startswith(f"{PROGRAM} up --foreground ")
    assert service["Restart"] == "on-failure"
    assert service["RuntimeDirectory"] == service["StateDirectory"] == "paired"
    assert (service["Group"], service["RuntimeDirectoryMode"]) == ("oncall", "0750")
    assert service["StateDirectoryMode"] == "0700"  # the journal and the lock are no group's
    assert "LoadCredential" in service


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_verifies_it(unit: str, tmp_path: Path) -> None:
    (tmp_path / "paired@.service").write_text(unit.replace(PROGRAM, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "paired@orders.service")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    ours = [line for line in done.stderr.splitlines() if "paired@" in line]
    assert ours == []
