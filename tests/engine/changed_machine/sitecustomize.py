"""Imported by a program before anything else: its machine has no IPv6, or its clock is off.

PAIRED_TEST_NO_IPV6: set: there is none. PAIRED_TEST_CLOCK: a file with the seconds by which the clock is off.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any


def be_without_ipv6() -> None:
    look_up = socket.getaddrinfo

    class Socket(socket.socket):
        def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
            if family == socket.AF_INET6:
                raise OSError(97, "Address family not supported by protocol")
            super().__init__(family, type, proto, fileno)

    def without(*arguments: Any, **named: Any) -> list[Any]:
        found = [one for one in look_up(*arguments, **named) if one[0] != socket.AF_INET6]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    socket.socket = Socket  # type: ignore[misc]
    socket.getaddrinfo = without  # type: ignore[assignment]
    socket.has_ipv6 = False


def be_off(by: Path) -> None:
    real, seconds, looked = time.time, float(by.read_text()), time.monotonic()

    def off() -> float:
        nonlocal seconds, looked
        if time.monotonic() - looked > 0.1:
            seconds, looked = float(by.read_text() or 0), time.monotonic()
        return real() + seconds

    time.time = off


if "PAIRED_TEST_NO_IPV6" in os.environ:
    be_without_ipv6()
if "PAIRED_TEST_CLOCK" in os.environ:
    be_off(Path(os.environ["PAIRED_TEST_CLOCK"]))
