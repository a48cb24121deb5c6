"""Where an engine's files are, from its pairing's name alone: console and engine find the same ones.

    state folder    $XDG_STATE_HOME or ~/.local/state, then paired/NAME: the lock, the journal, its tables, the logs
    socket          $XDG_RUNTIME_DIR/paired/NAME.sock; without that, or where another user could change that folder,
                    control.sock in the state folder

The socket's path is also in the lock file, since a console may have been started with another environment. All folders
are the owner's alone.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.ownership import foreign_access

MAX_SOCKET_PATH_BYTES: Final = 106
"""Bytes: what a Unix socket's address holds, less its end mark and the character that a new socket has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePaths:
    """The files of one pairing's engine on this machine."""

    state: Path
    socket: Path
    is_service: bool = False
    """Whether it is a service's engine, of which this user may reach the socket alone."""

    @property
    def name(self) -> str:
        """The pairing's name."""
        return self.state.name

    @property
    def spool(self) -> Path:
        """The journal's folder."""
        return self.state / "spool"

    @property
    def tables(self) -> Path:
        """The folder of the tables that the pipeline makes from the journal."""
        return self.state / "tables"

    @property
    def logs(self) -> Path:
        """A file for each start of the engine."""
        return self.state / "logs"

    @property
    def lock(self) -> Path:
        """Held by the running engine; says who it is."""
        return self.state / "lock"

    @property
    def reached(self) -> Path:
        """Names the primary that an engine here has reached at least once."""
        return self.state / "reached"

    @property
    def named(self) -> Path:
        """What the primary told that it is called, under the host that told it."""
        return self.state / "named"

    def prepare(self) -> None:
        """Makes the folders.

        Raises:
            ConfigurationError: one cannot be made, or is somebody else's; it is named.
        """
        for folder in (self.state, self.logs, self.socket.parent):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                found = folder.lstat()
            except OSError as error:
                raise ConfigurationError(f"the engine's folder {folder} cannot be made: {error.strerror}") from error
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
                raise ConfigurationError(f"the engine's folder {folder} is open to others: chmod 700 it, or remove it")


def engine_paths(name: str) -> EnginePaths:
    """The places of the pairing called `name`.

    Raises:
        ConfigurationError: no place for the socket has a path that is short enough.
    """
    state = _states() / name
    return EnginePaths(state=state, socket=_socket(state, name))


def all_engine_paths() -> tuple[EnginePaths, ...]:
    """The places of every pairing that ever had an engine here, under the present environment; by name."""
    return tuple(engine_paths(lock.parent.name) for lock in sorted(_states().glob("*/lock")))


def _states() -> Path:
    return _folder("XDG_STATE_HOME", Path.home() / ".local" / "state") / "paired"


def _folder(variable: str, otherwise: Path) -> Path:
    """The XDG rules: a relative path counts as not set."""
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else otherwise


def _socket(state: Path, name: str) -> Path:
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    wanted = state / "control.sock"
    if runtime.is_absolute() and runtime.is_dir() and not foreign_access(runtime):  # after `su` it is another user's
        wanted = runtime / "paired" / f"{name}.sock"
    if _fits(wanted):
        return wanted
    short = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
    fallback = Path(tempfile.gettempdir()) / f"paired-{os.geteuid()}" / f"{short}.sock"
    if not _fits(fallback):
        raise ConfigurationError(
            f"no control socket can be made: {fallback} is longer than {MAX_SOCKET_PATH_BYTES} bytes; "
            "set XDG_RUNTIME_DIR to a folder with a short path"
        )
    return fallback


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
