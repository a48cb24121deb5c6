"""A port for a program that is told its number: nothing listens on it, and the kernel gives it to no connection."""

from __future__ import annotations

import random
import socket
from typing import Final

BELOW_THE_KERNELS: Final = range(15_000, 32_000)
"""The kernel takes the ports of its connections, and those of port 0, from 32,768 on."""


def free_port() -> int:
    """Return a port of this machine, drawn at random, since other tests draw theirs at the same time."""
    while True:
        port = random.SystemRandom().choice(BELOW_THE_KERNELS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
