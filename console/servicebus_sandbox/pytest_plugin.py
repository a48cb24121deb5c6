"""A plugin of pytest: the fixture `servicebus_sandbox` gives a test a sandbox of its own.

The sandbox runs in an event loop on another thread, so that synchronous and asynchronous tests use it alike. Who wants
other namespaces than a primary and a secondary one overrides the fixture `servicebus_namespaces`. Installed with the
package, so this module loads no more than it must until a test asks for a sandbox.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from servicebus_sandbox.sandbox_host import Sandbox
    from servicebus_sandbox.specs import NamespaceSpec

_SECONDS_TO_START = 30.0


@pytest.fixture
def servicebus_namespaces() -> Sequence[NamespaceSpec] | None:
    """What the sandbox is to contain; override it with a fixture of the same name. None: a primary and a secondary."""
    return None


@pytest.fixture
def servicebus_sandbox(servicebus_namespaces: Sequence[NamespaceSpec] | None) -> Iterator[Sandbox]:
    """A running sandbox, empty for each test; it ends with the test.

    Reach it by `connection_string`, `admin_url`, `ca_file` and `control_url`. The `node` of a namespace lives on the
    sandbox's thread: leave it alone.
    """
    with sandbox_on_a_thread(servicebus_namespaces) as sandbox:
        yield sandbox


@contextmanager
def sandbox_on_a_thread(namespaces: Sequence[NamespaceSpec] | None = None) -> Iterator[Sandbox]:
    """A sandbox in an event loop of its own, for as long as the context lasts. Raises what `Sandbox.start` raises."""
    started: Future[tuple[Sandbox, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(target=_run, args=(namespaces, started), name="servicebus-sandbox", daemon=True)
    thread.start()
    sandbox, loop, told_to_end = started.result(_SECONDS_TO_START)
    try:
        yield sandbox
    finally:
        loop.call_soon_threadsafe(told_to_end.set)
        thread.join()


def _run(
    namespaces: Sequence[NamespaceSpec] | None,
    started: Future[tuple[Sandbox, asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    try:
        asyncio.run(_serve(namespaces, started))
    except Exception as error:
        if started.done():
            raise  # while it ended: pytest reports it for the thread
        started.set_exception(error)


async def _serve(
    namespaces: Sequence[NamespaceSpec] | None,
    started: Future[tuple[Sandbox, asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    from servicebus_sandbox.sandbox_host import Sandbox  # with aiohttp and cryptography behind it

    told_to_end = asyncio.Event()
    async with Sandbox.start(namespaces) as sandbox:
        started.set_result((sandbox, asyncio.get_running_loop(), told_to_end))
        await told_to_end.wait()
