"""A network of its own for one command, in which names lead to sandboxes on Azure's ports; needs Linux and no root.

The command runs in a new user, mount and network namespace: it may listen on ports below 1024, has a hosts file of its
own, and reaches nothing but loopback.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.conformance.checking import ENDING, Skipped

_ENTER: Final = 'mount --bind "$0" /etc/hosts && ip link set lo up && exec "$@"'
_ISOLATED: Final = ("unshare", "--user", "--map-root-user", "--net", "--mount", "--kill-child")


def isolated(command: Sequence[str], folder: Path, hosts: Mapping[str, str]) -> list[str]:
    """Return the command that runs `command` in a network of its own; `hosts` are addresses by name.

    The hosts file is written into `folder`. Raises Skipped where such a network cannot be made.
    """
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        raise Skipped("a network of its own needs unshare and ip, of util-linux and iproute2")
    file = folder / "hosts"
    lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for name, address in hosts.items())]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    enter = [*_ISOLATED, "sh", "-c", _ENTER, str(file)]
    tried = subprocess.run([*enter, "true"], capture_output=True, text=True, timeout=ENDING, check=False)
    if tried.returncode:
        raise Skipped(f"a network of its own cannot be made: {tried.stderr.strip()}")
    return [*enter, *command]
