"""A pytest plugin: the fixture `servicebus_sandbox` gives each test a clean sandbox.

The sandbox runs in an event loop on another thread, so synchronous and asynchronous tests use it alike. It starts once
for a session; for each test its namespaces are made again, at the same addresses. Override the fixture
`servicebus_namespaces` for other namespaces than a primary and a secondary one. pytest loads this module in every run,
so it imports the sandbox only on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from servicebus_sandbox.fixtures.sandbox_thread import sandbox_on_a_thread

if TYPE_CHECKING:
    from servicebus_sandbox.fixtures.pytest_sandbox import PytestSandbox
    from servicebus_sandbox.fixtures.sandbox_thread import SandboxPool
    from servicebus_sandbox.sandbox_host import Sandbox
    from servicebus_sandbox.specs import NamespaceSpec

__all__ = ["sandbox_on_a_thread"]

FAST_SLEEPS = "servicebus_fast_sleeps"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini option."""
    parser.addini(
        FAST_SLEEPS,
        "shorten the sleeps of azure-servicebus in tests that use servicebus_sandbox",
        type="bool",
        default=False,
    )


@pytest.fixture(scope="session")
def servicebus_namespaces() -> Sequence[NamespaceSpec] | None:
    """Return the namespaces of the sandbox; override it. None means a primary and a secondary one."""
    return None


@pytest.fixture(scope="session")
def _servicebus_pool() -> Iterator[SandboxPool]:
    from servicebus_sandbox.fixtures.sandbox_thread import SandboxPool

    pool = SandboxPool()
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def servicebus_session(_servicebus_pool: SandboxPool, servicebus_namespaces: Sequence[NamespaceSpec] | None) -> Sandbox:
    """Return the sandbox of the whole session, for a program that starts once. Its addresses stay the same.

    A test that requests `servicebus_sandbox` gets the same namespaces, made again: connections are cut then.
    """
    return _servicebus_pool.running(servicebus_namespaces).sandbox


@pytest.fixture
def servicebus_sandbox(
    request: pytest.FixtureRequest,
    _servicebus_pool: SandboxPool,
    servicebus_namespaces: Sequence[NamespaceSpec] | None,
) -> Iterator[PytestSandbox]:
    """Yield the sandbox, clean for each test: no messages, faults, sessions or connections of an earlier one.

    Its keys are new, unless `servicebus_session` shares them: a client that an earlier test left running is refused,
    and a warning names that test.

    Do not use the `node` of a namespace: it belongs to the sandbox's thread.
    """
    from servicebus_sandbox.fixtures.pytest_sandbox import PytestSandbox

    if request.config.getini(FAST_SLEEPS):
        request.getfixturevalue(FAST_SLEEPS)
    test = request.node.nodeid
    sandbox = PytestSandbox(_servicebus_pool.clean(servicebus_namespaces, test=test), test=test)
    yield sandbox
    sandbox.end()


@pytest.fixture
def servicebus_fast_sleeps() -> Iterator[None]:
    """Shorten the sleeps of azure-servicebus during the test; nothing happens without the SDK."""
    from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps

    with shorten_sleeps():
        yield
