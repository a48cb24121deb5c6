"""An engine's log stays small, whatever is written to it, and tells of itself what it leaves out."""

from __future__ import annotations

import io
import logging
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from paired_servicebus.engine.instance import logs
from paired_servicebus.engine.instance.logs import RepeatFilter, log_to, new_log_file

FLOOD = """
import logging, os, sys
from pathlib import Path
from paired_servicebus.engine.instance import logs
logs.MAX_FILE_BYTES = 20_000
logs.log_to_file(Path(sys.argv[1]))
log = logging.getLogger("paired_servicebus.engine")
for number in range(3000):
    log.warning("line %d of the log", number)
    print(f"line {number} of a library", file=sys.stderr)
os.write(2, b"the interpreter's own last words\\n")
"""


@pytest.fixture
def record() -> logging.LogRecord:
    return logging.LogRecord("paired_servicebus.engine", logging.WARNING, __file__, 1, "it failed: %s", ("why",), None)


def test_the_log_and_standard_error_together_stay_below_a_bound(tmp_path: Path) -> None:
    """The bug: one file for each start, of any length; 189 MB were reached."""
    path = tmp_path / "engine-1.log"
    done = subprocess.run([sys.executable, "-c", FLOOD, str(path)], capture_output=True, text=True, check=True)
    files = sorted(tmp_path.iterdir())
    assert [each.name for each in files] == ["engine-1.log", "engine-1.log.1"]
    assert sum(each.stat().st_size for each in files) <= 2 * 20_000 + 100
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    text = path.read_text()
    assert "line 2999 of the log" in text
    assert "on standard error: line 2999 of a library" in text
    assert text.endswith("the interpreter's own last words\n"), "standard error goes on in the newest file"
    assert (done.stdout, done.stderr) == ("", "")


def test_a_line_that_repeats_is_counted_instead_of_written(record: logging.LogRecord) -> None:
    repeats = RepeatFilter()
    assert repeats.filter(record)
    for _ in range(999):
        assert not repeats.filter(logging.makeLogRecord(record.__dict__))
    later = logging.makeLogRecord(record.__dict__)
    later.created += logs.FOLD_SECONDS
    assert repeats.filter(later)
    assert later.getMessage() == "it failed: why (and 999 more times since then)"


def test_other_lines_pass_and_what_is_remembered_of_them_is_bounded(record: logging.LogRecord) -> None:
    repeats = RepeatFilter()
    for number in range(2 * logs.MAX_REMEMBERED_LINES):
        other = logging.makeLogRecord(record.__dict__ | {"args": (number,)})
        assert repeats.filter(other)
    assert len(repeats._seen) == logs.MAX_REMEMBERED_LINES


def test_the_log_folds(request: pytest.FixtureRequest) -> None:
    root, ours = logging.getLogger(), logging.getLogger("paired_servicebus")
    before = root.handlers[:], root.level, ours.level

    def restore() -> None:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])
        logging.captureWarnings(False)

    request.addfinalizer(restore)
    stream = io.StringIO()
    log_to(stream)
    for _ in range(100):
        logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert stream.getvalue().count("out of system resource") == 1


def test_a_start_removes_the_oldest_logs_beyond_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_KEPT_BYTES", 250)
    for day in range(1, 5):
        (tmp_path / f"engine-2025010{day}T000000.000000Z.log").write_bytes(b"x" * 100)
    (tmp_path / "drain-1.log").write_bytes(b"x" * 1000)
    new_log_file(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "drain-1.log",
        "engine-20250103T000000.000000Z.log",
        "engine-20250104T000000.000000Z.log",
    ]
