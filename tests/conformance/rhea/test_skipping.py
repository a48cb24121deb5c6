"""The cross-check says why it is skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.rhea import __main__ as rhea


def _program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({}, "node is not on the PATH"),
        ({"node": "echo v22.1.0"}, "npm is not on the PATH"),
        ({"node": "echo v18.20.1", "npm": "exit 0"}, "node is v18.20.1; the clients need 20"),
        ({"node": "echo v22.1.0", "npm": "echo offline >&2; exit 1"}, "npm cannot fetch rhea@3.0.5 and"),
    ],
)
def test_what_is_missing_is_the_reason_for_skipping(
    path: Path, programs: dict[str, str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, script in programs.items():
        _program(path, name, script)
    assert rhea.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"rhea: skipped: {reason}")
