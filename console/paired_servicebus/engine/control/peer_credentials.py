"""Who is at the other end of a Unix socket: the kernel says, not the peer. And how the audit names that user."""

from __future__ import annotations

import asyncio
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
    """The peer's user; None where the kernel cannot tell.

    Raises:
        OSError: the connection is closed.
    """
    connection = transport.get_extra_info("socket")
    linux, bsd = getattr(socket, "SO_PEERCRED", None), getattr(socket, "LOCAL_PEERCRED", None)
    if connection is None or (linux is None and bsd is None):
        return None
    if linux is not None:
        _pid, uid, _gid = _LINUX.unpack(connection.getsockopt(socket.SOL_SOCKET, linux, _LINUX.size))
    else:
        _version, uid = _BSD.unpack_from(connection.getsockopt(_SOL_LOCAL, bsd, _XUCRED_BYTES))
    return int(uid)


def is_ours(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer runs as this process's user. True where the kernel cannot tell: there the socket's mode 0600,
    in a folder of ours, is the lock."""
    if transport.get_extra_info("socket") is None:
        return False
    uid = peer_uid(transport)
    return uid is None or uid == os.geteuid()


def name_of(uid: int) -> str:
    """The user's name; the number where it has none, as in a container that runs under any."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def audit_name(user: str | None, *, claimed: str, sudo_user: str) -> str:
    """The name for the audit: the peer's `user` by the kernel, and beside it what the peer claims, marked as that.

    Args:
        user: None where the kernel cannot tell; only then `claimed` counts, the peer's name for itself.
        sudo_user: the peer's SUDO_USER; empty if it has none.
    """
    names = [user] if user is not None else [f"{_cleaned(claimed)} (as claimed)"] if claimed.strip() else []
    if names and sudo_user:
        names.append(f"(sudo by {_cleaned(sudo_user)}, as claimed)")
    return " ".join(names)


def _cleaned(claim: str) -> str:
    """Foreign text as one short word that cannot pass for anything else."""
    return _NOT_IN_NAMES.sub("?", claim[:_LONGEST_CLAIM])
