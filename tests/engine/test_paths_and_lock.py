"""Where an engine's files are, who may look into them, and that there is one engine a pairing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paired_servicebus.core.errors import ConfigurationError, EngineRunningError
from paired_servicebus.engine.instance.engine_paths import MAX_SOCKET_PATH_BYTES, EnginePaths, engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire, crashed_holder, running

HOLDER = LockHolder(pid=4711, socket="/run/x.sock", log="/x.log")


@pytest.fixture
def home(short: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, and no XDG variable but what a test sets."""
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(short))
    return short


def test_without_xdg_everything_is_in_the_state_folder(home: Path) -> None:
    places = engine_paths("orders")
    assert places.state == home / ".local/state/paired/orders"
    assert places.socket == places.state / "control.sock"


def test_xdg_folders_are_used_where_they_are_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "run").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "st"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    places = engine_paths("orders")
    assert places.state == home / "st/paired/orders"
    assert places.socket == home / "run/paired/orders.sock"


@pytest.mark.parametrize("value", ["relative/path", "/not/there"])
def test_a_runtime_folder_that_cannot_be_used_is_passed_over(
    home: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    assert engine_paths("orders").socket.name == "control.sock"


def test_a_runtime_folder_that_another_user_can_change_is_passed_over(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "run").mkdir()
    (home / "run").chmod(0o1777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    assert engine_paths("orders").socket == engine_paths("orders").state / "control.sock"


def test_a_path_too_long_for_a_socket_gets_a_short_one_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ("long" * 30)))
    first, second = engine_paths("orders"), engine_paths("payments")
    assert len(os.fsencode(first.socket)) <= MAX_SOCKET_PATH_BYTES
    assert first.socket != second.socket
    assert first.socket == engine_paths("orders").socket
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "s") + "x" * (MAX_SOCKET_PATH_BYTES + 1 - len(str(home / "s"))))


def test_no_short_path_at_all_is_a_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ("long" * 30)))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(home / ("long" * 30)))
    with pytest.raises(ConfigurationError, match="set XDG_RUNTIME_DIR"):
        engine_paths("orders")


def test_folders_are_made_for_their_owner_alone(home: Path) -> None:
    places = engine_paths("orders")
    places.prepare()
    places.prepare()
    assert {folder.stat().st_mode & 0o777 for folder in (places.state, places.logs)} == {0o700}


def test_a_folder_that_others_can_write_to_is_refused(home: Path) -> None:
    places = engine_paths("orders")
    places.state.mkdir(parents=True)
    places.state.chmod(0o777)
    with pytest.raises(ConfigurationError, match="open to other users: chmod 700"):
        places.prepare()


def test_a_link_in_place_of_a_folder_is_refused(home: Path) -> None:
    (home / "real").mkdir()
    (home / "link").symlink_to(home / "real")
    with pytest.raises(ConfigurationError, match="open to other users"):
        EnginePaths(state=home / "link", socket=home / "real" / "s").prepare()


# -- the lock ------------------------------------------------------------------------------------------------------


def test_nobody_runs_where_there_is_no_lock(tmp_path: Path) -> None:
    assert running(tmp_path / "lock") is None


def test_the_holder_says_who_it_is(tmp_path: Path) -> None:
    fd = acquire(tmp_path / "lock", HOLDER)
    assert running(tmp_path / "lock") == HOLDER
    os.close(fd)
    assert running(tmp_path / "lock") is None


def test_a_second_engine_is_refused_with_the_firsts_pid(tmp_path: Path) -> None:
    fd = acquire(tmp_path / "lock", HOLDER)
    with pytest.raises(EngineRunningError, match="pid 4711"):
        acquire(tmp_path / "lock", HOLDER)
    os.close(fd)
    os.close(acquire(tmp_path / "lock", HOLDER))


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path;"
        "from paired_servicebus.engine.instance.lock import LockHolder, acquire;"
        "acquire(Path(sys.argv[1]), LockHolder(pid=os.getpid(), socket='', log=''));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert running(tmp_path / "lock") is None
    fell = crashed_holder(tmp_path / "lock")
    assert fell is not None
    assert fell.pid > 0


def test_one_that_ends_in_order_leaves_nothing(tmp_path: Path) -> None:
    fd = acquire(tmp_path / "lock", HOLDER)
    assert crashed_holder(tmp_path / "lock") is None, "it still runs"
    os.ftruncate(fd, 0)  # as a clean end does
    os.close(fd)
    assert crashed_holder(tmp_path / "lock") is None


def test_one_who_only_looks_keeps_no_engine_out(tmp_path: Path) -> None:
    import fcntl
    import threading

    path = tmp_path / "lock"
    path.touch()
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        timer = threading.Timer(0.02, fcntl.flock, (looking, fcntl.LOCK_UN))
        timer.start()
        fd = acquire(path, HOLDER)
        timer.join()
    assert running(path) == HOLDER
    os.close(fd)
