"""What several tests of the sandbox share: certificates, made once, and a namespace behind its port."""

from __future__ import annotations

import asyncio
import functools
import itertools
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from servicebus_amqp.server.admission import FIRST_REQUEST_SECONDS, Admission
from servicebus_amqp.server.certificates import Certificates, make_certificates
from servicebus_amqp.server.listener import Listener
from servicebus_sandbox import Sandbox
from servicebus_sandbox.access.authorization import Authorization, root_rule
from servicebus_sandbox.atom.management_api import HttpsServer, ManagementApi
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.faults import FaultBoard
from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps
from servicebus_sandbox.serving.amqp_conditions import RefusalLog

KEYS = {"Root": "top+secret/="}
BRISK = {"access", "faults", "serving"}
"""Folders whose tests wait for the SDK's polls while a link opens."""
REAL_KEY = rsa.generate_private_key
IMPATIENT = pytest.mark.parametrize("patience", [0.4])
"""For tests about silence alone: on a busy machine a client may take as long for its first byte."""


@pytest.fixture(autouse=True, scope="session")
def few_keys() -> Iterator[None]:
    """An issuer's key costs a tenth of a second of a core: all issuers share four, two in a row have different ones."""
    made = functools.cache(lambda number: REAL_KEY(public_exponent=65537, key_size=2048))
    numbers = itertools.cycle(range(4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rsa, "generate_private_key", lambda **_: made(next(numbers)))
        yield


@pytest.fixture(autouse=True)
def brisk(request: pytest.FixtureRequest) -> Iterator[None]:
    """The SDK's own sleeps are short where a receiver asks for one message, or asks again for the others."""
    with shorten_sleeps() if request.path.parent.name in BRISK else nullcontext():
        yield


class Echo(asyncio.Protocol):
    """Stands for AMQP: says `echo:` and then whatever it is told."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(b"echo:")

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@dataclass
class Port:
    """A namespace with its management on a port; an echo stands for AMQP."""

    namespace: BrokerNamespace
    board: FaultBoard
    listener: Listener
    https: HttpsServer
    number: int
    ca_file: Path
    changes: list[float]

    @property
    def connection_string(self) -> str:
        key = f"SharedAccessKeyName=Root;SharedAccessKey={KEYS['Root']}"
        return f"Endpoint=sb://127.0.0.1:{self.number};{key};UseDevelopmentEmulator=true"

    def client_tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def patience() -> float:
    """Seconds for the first bytes of a connection."""
    return FIRST_REQUEST_SECONDS


@pytest.fixture
async def port(certificates: Certificates, patience: float) -> AsyncIterator[Port]:
    namespace, changes = BrokerNamespace("contoso", clock=time.time), []
    board = FaultBoard("contoso", lambda: [queue.path for queue in namespace.queues()])
    management = ManagementApi(
        namespace,
        authorization=Authorization(namespace, [root_rule("Root", KEYS["Root"])]),
        clock=time.time,
        changed=lambda: changes.append(time.time()),
        complaints=RefusalLog("contoso"),
    )
    lobby = Admission(print)
    https = HttpsServer(management, board, admission=lobby, patience=patience)
    listener = Listener(
        who="namespace 'contoso'",
        amqp=Echo,
        http=https.protocol,
        tls=certificates.server_context(),
        faults=board,
        admission=lobby,
        patience=patience,
    )
    board.watch(https.faults_changed)
    board.watch(listener.faults_changed)
    number = await listener.open()
    try:
        yield Port(namespace, board, listener, https, number, certificates.ca_file, changes)
    finally:
        await listener.close()
        await https.close()


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A primary and a secondary namespace in this event loop."""
    async with Sandbox.start() as running:
        yield running
