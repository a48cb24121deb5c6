"""Listening on a port of this machine."""

from __future__ import annotations

import ipaddress
import socket


def listen(host: str, port: int, *, backlog: int) -> socket.socket:
    """Return a socket that listens; "::" is every address, of IPv4 too.

    Args:
        host: an IP address, or "localhost": 127.0.0.1, which a machine without IPv6 has as well.
        port: 0 for any free one.
        backlog: connections that the kernel keeps until they are accepted.

    Raises:
        OSError: for example, the port is in use, or the machine has no such address.
    """
    address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY for this alone
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind((str(address), port))
        bound.listen(backlog)
    except OSError:
        bound.close()
        raise
    return bound
