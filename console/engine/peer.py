"""Who is at the other end of a Unix socket: the kernel says, not the peer."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: struct ucred of unix(7)


def is_ours(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer runs as this process's user. True where the kernel cannot tell (no SO_PEERCRED): there the
    socket's mode 0600, in a folder of ours, is the lock."""
    option = getattr(socket, "SO_PEERCRED", None)
    connection = transport.get_extra_info("socket")
    if option is None or connection is None:
        return option is None
    _pid, uid, _gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return bool(uid == os.geteuid())
