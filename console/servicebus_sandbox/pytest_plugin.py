"""A pytest plugin: the fixture `servicebus_sandbox` gives a test its own sandbox.

The sandbox runs in an event loop on another thread, so synchronous and asynchronous tests use it alike. Override the
fixture `servicebus_namespaces` for other namespaces than a primary and a secondary one. pytest loads this module in
every run, so it imports the sandbox only on demand.
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
    """Return the namespaces of the sandbox; override it. None means a primary and a secondary one."""
    return None


@pytest.fixture
def servicebus_sandbox(servicebus_namespaces: Sequence[NamespaceSpec] | None) -> Iterator[Sandbox]:
    """Yield a running sandbox, empty for each test; it ends with the test.

    Connect by `connection_string`, `admin_url`, `ca_file` and `control_url`. Do not use the `node` of a namespace: it
    belongs to the sandbox's thread.
    """
    with sandbox_on_a_thread(servicebus_namespaces) as sandbox:
        yield sandbox


@contextmanager
def sandbox_on_a_thread(namespaces: Sequence[NamespaceSpec] | None = None) -> Iterator[Sandbox]:
    """Run a sandbox in its own event loop for the duration of the context. Raises as `Sandbox.start` does."""
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
            raise  # during its end: pytest reports it for the thread
        started.set_exception(error)


async def _serve(
    namespaces: Sequence[NamespaceSpec] | None,
    started: Future[tuple[Sandbox, asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    from servicebus_sandbox.sandbox_host import Sandbox  # imports aiohttp and cryptography

    told_to_end = asyncio.Event()
    async with Sandbox.start(namespaces) as sandbox:
        started.set_result((sandbox, asyncio.get_running_loop(), told_to_end))
        await told_to_end.wait()
