"""The samples say why they are skipped, and judge a program by what it prints."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conformance.samples import __main__ as samples


@pytest.fixture
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples.tempfile, "gettempdir", lambda: str(tmp_path / "cache"))


@pytest.mark.usefixtures("no_cache")
def test_a_repository_that_cannot_be_reached_is_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert samples.main(str(tmp_path / "missing")) == 2
    assert capsys.readouterr().err.startswith("samples: skipped: git cannot fetch commit 40fb40f of ")


@pytest.mark.usefixtures("no_cache")
def test_git_that_is_missing_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert samples.main() == 2
    assert capsys.readouterr().err == "samples: skipped: git is not on the PATH\n"


def test_a_sample_passes_by_its_steps_and_its_exit_status(tmp_path: Path) -> None:
    sample = samples.Sample("Python", "", lambda _: [], ("created", "deleted"))
    command = [sys.executable, "-c", "print('queue created'); raise SystemExit('no such queue')"]
    verdicts = samples.run_sample(sample, command, tmp_path, dict(os.environ))
    assert [(verdict.check, verdict.passed, verdict.error) for verdict in verdicts] == [
        ("Python: created", True, None),
        ("Python: deleted", False, "no such queue"),
        ("Python: exit status 0", False, "no such queue"),
    ]
