"""Access of a group to services' engines on this machine.

An engine with `control_group` opens its control socket and the socket's folder to that group. Lock, journal and all
other files stay private, so a member of the group has only the control protocol.

Members search FOLDER, which root makes for the service's user (a unit's RuntimeDirectory). They use folder and sockets
only if no user other than root and that user could have made them.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.ownership import foreign_access

FOLDER: Final = Path("/run/paired")
FOLDER_MODE: Final = 0o750
SOCKET_MODE: Final = 0o660
_OF_OTHERS: Final = 0o022
_OF_GROUP: Final = 0o070


# -- letting a group in ------------------------------------------------------------------------------------------------


def open_to_group(name: str, places: EnginePaths) -> int:
    """Give members of a group access to the engine's socket; return the group's id.

    Raises:
        ConfigurationError: there is no such group, or the folder cannot be opened only to it.
    """
    said = f"control_group = {name!r}"
    try:
        group = grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise ConfigurationError(f"{said}: there is no such group on this machine") from error
    folder = places.socket.parent
    if folder == places.state:
        raise ConfigurationError(
            f"{said}: the control socket would be in {folder}, beside the journal; set XDG_RUNTIME_DIR, as to /run "
            "where the unit has RuntimeDirectory=paired"
        )
    found = folder.stat()
    if found.st_mode & _OF_GROUP and found.st_gid != group:
        raise ConfigurationError(
            f"{said}: {folder} is open to the group {_group(found.st_gid)} already, and pairings of one user share one"
        )
    try:
        if found.st_gid != group:
            os.chown(folder, -1, group)
        folder.chmod(FOLDER_MODE)
    except OSError as error:
        raise ConfigurationError(
            f"{said}: {folder} cannot be given to that group ({error.strerror}); put the engine's user into it, or set "
            f"Group={name} in the unit"
        ) from error
    return group


# -- finding them ------------------------------------------------------------------------------------------------------


def sockets() -> tuple[Path, ...]:
    """Return the control sockets of services that this user may open, by name."""
    return tuple(path for path in _trusted_sockets() if os.access(path, os.W_OK))


def trusted_users(path: Path) -> frozenset[int]:
    """Return the other users whose engine may answer at `path`: root and a service's user; none at other paths."""
    owner = _owner() if path.parent == FOLDER else None
    return frozenset({owner, 0}) if owner is not None and _is_socket_of(path, owner) else frozenset()


def explain_closed() -> str:
    """Name the services' engines that this user may not query, and how to get access; empty if there are none."""
    if _owner() is None:
        return ""
    if not os.access(FOLDER, os.R_OK | os.X_OK):
        return explain_access(FOLDER)
    shut = next((path for path in _trusted_sockets() if not os.access(path, os.W_OK)), None)
    return explain_access(shut) if shut is not None else ""


def explain_access(path: Path) -> str:
    """Return the reason why this user may not open a socket or its folder, and the group that may."""
    for part in (*reversed(path.parents), path):
        is_folder = part.is_dir()
        if os.access(part, (os.R_OK if part == path else 0) | os.X_OK if is_folder else os.W_OK):
            continue
        found = part.stat()
        if found.st_mode & (stat.S_IXGRP if is_folder else stat.S_IWGRP):
            name = _group(found.st_gid)
            return f"{part} is open to the group {name}: have root add you to it (usermod -aG {name}), and log in again"
        who = f"{part} is open only to the user {_user(found.st_uid)}"
        return f"{who}: control_group in the pairing.toml of that engine lets a group in"
    return f"{path} cannot be opened"


def _trusted_sockets() -> tuple[Path, ...]:
    owner = _owner()
    if owner is None or not os.access(FOLDER, os.R_OK | os.X_OK):
        return ()
    try:
        return tuple(path for path in sorted(FOLDER.glob("*.sock")) if _is_socket_of(path, owner))
    except OSError:  # it went meanwhile
        return ()


def _owner() -> int | None:
    """Return the owner of FOLDER; None: it does not exist, or another user could change its contents."""
    try:
        if foreign_access(FOLDER.parent):
            return None
        found = _lstat(FOLDER)
    except OSError:
        return None
    return found.st_uid if stat.S_ISDIR(found.st_mode) and not found.st_mode & _OF_OTHERS else None


def _is_socket_of(path: Path, owner: int) -> bool:
    try:
        found = _lstat(path)
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid in (0, owner)


def _lstat(path: Path) -> os.stat_result:
    """Return the status of the file itself: a link is neither folder nor socket."""
    return path.lstat()


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
