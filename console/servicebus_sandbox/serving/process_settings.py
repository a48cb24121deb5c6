"""The addresses that ports listen on, the names and keys of the sandbox, and the settings of its process."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from ipaddress import ip_address
from typing import Final, TypeVar

from servicebus_amqp.server.listener import ListenError
from servicebus_sandbox.specs import SandboxConfigError

Running = TypeVar("Running")

HOST: Final = "127.0.0.1"
KEY_NAME: Final = "RootManageSharedAccessKey"
PUBLIC_KEY: Final = "SAS_KEY_VALUE"
"""The official emulator's only key, which no other namespace may have."""


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches the address; the only accepted name is `localhost`."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def proxy_remark(environ: Mapping[str, str]) -> str | None:
    """Return a warning if clients of HTTP will ask a proxy for this machine; None if they will not."""
    found = {name.upper(): value for name, value in environ.items() if name.upper() in _PROXIES and value}
    if not found or not {"*", HOST, "127.0.0.0/8"}.isdisjoint(_spared(environ)):
        return None
    return (
        f"{' and '.join(sorted(found))} is set: administration clients will ask the proxy for {HOST}, and fail; "
        f"set NO_PROXY={HOST},localhost beside it"
    )


_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def _spared(environ: Mapping[str, str]) -> set[str]:
    """Return the hosts that go past the proxy."""
    return {host.strip() for name, value in environ.items() if name.upper() == "NO_PROXY" for host in value.split(",")}


def host_for(address: str) -> str:
    """Return the address in the form of a URL."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if parsed.is_unspecified:
        parsed = ip_address("127.0.0.1" if parsed.version == 4 else "::1")
    return f"[{parsed}]" if parsed.version == 6 else str(parsed)


# Settings of a process that runs only a sandbox.
#
# It tunes the garbage collector: messages are many small objects without cycles, and the default thresholds halve the
# throughput.

log = logging.getLogger(__name__)

_GC_THRESHOLDS = (5_000, 200, 100)
"""The youngest generation is small: its collection delays every client."""


def allow_open_files() -> None:
    """Raise the limit of open files to the maximum: each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # a system may allow less than its limit
        log.warning("the limit of open files stays %d: %s", soft, error)


def tune_collector() -> None:
    """Exempt the present objects from collection, and collect rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()


def run_until_signal(
    program: str, start: Callable[[], AbstractAsyncContextManager[Running]], describe: Callable[[Running], str]
) -> int:
    """Run what `start` makes until SIGTERM or SIGINT, after its description on stdout.

    Returns the exit status: 0, or 2 with a sentence on stderr if `start` raises ListenError or SandboxConfigError.
    """
    logging.basicConfig(level=logging.WARNING, format=f"{program}: %(levelname)s: %(message)s")
    allow_open_files()
    try:
        asyncio.run(_run(start, describe))
    except (ListenError, SandboxConfigError) as error:
        sys.stderr.write(f"{program}: {error}\n")
        return 2
    return 0


async def _run(start: Callable[[], AbstractAsyncContextManager[Running]], describe: Callable[[Running], str]) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with start() as running:
        tune_collector()
        sys.stdout.write(describe(running))
        sys.stdout.flush()
        await stopped.wait()
