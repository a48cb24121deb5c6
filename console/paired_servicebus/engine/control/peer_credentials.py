"""The kernel's credentials of a Unix socket's peer, and the name of that user in the audit."""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
import re
import socket
import struct
from typing import Final

_LINUX: Final = struct.Struct("3i")  # pid, uid, gid: struct ucred of unix(7)
_BSD: Final = struct.Struct("=2I")  # version, uid: how struct xucred of macOS begins
_SOL_LOCAL: Final = 0
_XUCRED_BYTES: Final = 76
_NOT_IN_NAMES: Final = re.compile(r"[^\w.@\\+-]")
_LONGEST_CLAIM: Final = 64


def peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """Return the peer's user; None if the kernel has none.

    Raises:
        OSError: the socket is closed or was never connected (ENOTCONN).
    """
    connection = transport.get_extra_info("socket")
    linux, bsd = getattr(socket, "SO_PEERCRED", None), getattr(socket, "LOCAL_PEERCRED", None)
    if connection is None or (linux is None and bsd is None):
        return None
    if linux is not None:
        _pid, uid, _gid = _LINUX.unpack(connection.getsockopt(socket.SOL_SOCKET, linux, _LINUX.size))
        if uid < 0:  # asyncio takes a full backlog for a connection under way
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
    else:
        _version, uid = _BSD.unpack_from(connection.getsockopt(_SOL_LOCAL, bsd, _XUCRED_BYTES))
    return int(uid)


def is_ours(transport: asyncio.BaseTransport) -> bool:
    """Return whether the peer runs as this process's user.

    True if the kernel has no credentials: the socket's mode 0600 in our own folder then protects it.
    """
    if transport.get_extra_info("socket") is None:
        return False
    uid = peer_uid(transport)
    return uid is None or uid == os.geteuid()


def name_of(uid: int) -> str:
    """Return the user's name; the number if it has none, as in some containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def audit_name(user: str | None, *, claimed: str, sudo_user: str) -> str:
    """Return the name for the audit: the kernel's name of the peer's `user`, and the peer's own claims, marked as such.

    Args:
        user: None if the kernel has no credentials; only then `claimed` counts, the peer's own name.
        sudo_user: the peer's SUDO_USER; empty if it has none.
    """
    names = [user] if user is not None else [f"{_cleaned(claimed)} (as claimed)"] if claimed.strip() else []
    if names and sudo_user:
        names.append(f"(sudo by {_cleaned(sudo_user)}, as claimed)")
    return " ".join(names)


def _cleaned(claim: str) -> str:
    """Foreign text as one short word that cannot pass for anything else."""
    return _NOT_IN_NAMES.sub("?", claim[:_LONGEST_CLAIM])
