"""The paths of an engine's files, derived only from its pairing's name, so console and engine use the same ones.

    state folder    $XDG_STATE_HOME or ~/.local/state, then paired/NAME: the lock, the journal, its tables, the logs;
                    for a user without a home folder paired-UID in the folder for temporary files
    socket          $XDG_RUNTIME_DIR/paired/NAME.sock; without that, or if another user could change that folder,
                    control.sock in the state folder

The lock file also has the socket's path, because a console may run in another environment. Only the owner has access to
the folders.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.ownership import foreign_access
from paired_servicebus.user_folders import temporary_folder, user_folder

MAX_SOCKET_PATH_BYTES: Final = 106
"""Bytes of a Unix socket's address, less its end mark and one character for the temporary name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePaths:
    """The files of one pairing's engine on this machine."""

    state: Path
    socket: Path
    is_service: bool = False
    """Whether it is a service's engine, of which this user may reach only the socket."""

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
        """The folder of the pipeline's tables."""
        return self.state / "tables"

    @property
    def logs(self) -> Path:
        """The folder with one log file for each start of the engine."""
        return self.state / "logs"

    @property
    def lock(self) -> Path:
        """The lock file, which also describes the running engine."""
        return self.state / "lock"

    @property
    def named(self) -> Path:
        """The file with the primary's name and the host that reported it."""
        return self.state / "named"

    @property
    def drill(self) -> Path:
        """The file with the last drill of this pairing."""
        return self.state / "drill.json"

    @property
    def gateway_keys(self) -> Path:
        """The file of the gateway's own keys, unless pairing.toml names another."""
        return self.state / "gateway.keys"

    @property
    def gateway_entities(self) -> Path:
        """The file of the entities that the gateway's clients sent to."""
        return self.state / "gateway.entities"

    def prepare(self) -> None:
        """Make the folders. Raises ConfigurationError: a folder cannot be made or another user can change it."""
        try:
            self.prepare_state()
            self.prepare_socket()
        except OSError as error:
            raise ConfigurationError(
                f"the engine's folder {error.filename} cannot be used: {error.strerror}"
            ) from error

    def prepare_state(self) -> None:
        """Make the state folder. Raises OSError: it cannot be made, or another user can change it."""
        for folder in (self.state, self.logs):
            _prepare(folder)

    def prepare_socket(self) -> None:
        """Make the folder of the control socket. Raises OSError: it cannot be made, or another user can change it."""
        _prepare(self.socket.parent)


def engine_paths(name: str) -> EnginePaths:
    """Return the paths of the pairing called `name`.

    Raises:
        ConfigurationError: every possible path of the socket is too long.
    """
    state = _states() / name
    return EnginePaths(state=state, socket=_socket(state, name))


def all_engine_paths() -> tuple[EnginePaths, ...]:
    """Return the paths of every pairing that ever had an engine here, under the present environment, by name."""
    return tuple(engine_paths(lock.parent.name) for lock in sorted(_states().glob("*/lock")))


def journals_here() -> tuple[Path, ...]:
    """Return the journals' folders of every pairing that ever had an engine here; some may not exist."""
    return tuple(paths.spool for paths in all_engine_paths())


def all_drill_files() -> tuple[Path, ...]:
    """Return the files with the last drill of every pairing, under the present environment."""
    return tuple(sorted(_states().glob("*/drill.json")))


def _prepare(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022 or not stat.S_ISDIR(found.st_mode):
        raise PermissionError(errno.EPERM, "open to other users: chmod 700 it, or remove it", str(folder))


def _states() -> Path:
    return user_folder("XDG_STATE_HOME", ".local/state") / "paired"


def _socket(state: Path, name: str) -> Path:
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    wanted = state / "control.sock"
    if runtime.is_absolute() and runtime.is_dir() and not foreign_access(runtime):  # after `su` it is another user's
        wanted = runtime / "paired" / f"{name}.sock"
    if _fits(wanted):
        return wanted
    short = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
    fallback = temporary_folder() / f"{short}.sock"
    if not _fits(fallback):
        raise ConfigurationError(
            f"no control socket can be made: {fallback} is longer than {MAX_SOCKET_PATH_BYTES} bytes; "
            "set XDG_RUNTIME_DIR to a folder with a short path"
        )
    return fallback


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
