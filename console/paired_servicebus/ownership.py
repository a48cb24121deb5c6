"""Whether another user could have written a file, or could replace one in a folder.

Root counts as trusted, because it can change everything anyway. Not here: the refusal.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def foreign_access(path: Path) -> str:
    """Return how a user other than this one and root can change `path`, as the end of a sentence; empty: none can.

    Raises:
        OSError: its status cannot be read.
    """
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (0, os.geteuid()):
        return f"is owned by {_user(found.st_uid)}"
    if mode & stat.S_IWOTH:
        return "is writable by every user"
    if mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"is writable by {_group(found.st_gid)}"
    return ""


def _is_private(gid: int) -> bool:
    """Return whether the group belongs only to this user, as with distributions' user groups and umask 002."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    own = gid == user.pw_gid and group.gr_name == user.pw_name
    return gid != 0 and own and set(group.gr_mem) <= {user.pw_name}


def _user(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"


def _group(gid: int) -> str:
    try:
        return f"the group {grp.getgrgid(gid).gr_name}"
    except KeyError:
        return f"the group {gid}"
