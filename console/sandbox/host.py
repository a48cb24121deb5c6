"""A whole sandbox: namespaces on their ports, certificates, the control URL; started and ended as one.

It runs in the caller's event loop and leaves nothing behind: its folder is removed, its ports are closed. As a
process of its own it is run by `entry`.
"""

from __future__ import annotations

import base64
import secrets
import ssl
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from console.sandbox.authorization import root_rule
from console.sandbox.control import ControlServer
from console.sandbox.https import HttpsServer
from console.sandbox.listener import Listener
from console.sandbox.management import Management
from console.sandbox.node import Node
from console.sandbox.specs import NamespaceSpec, primary_and_secondary
from console.sandbox.tls import make_certificates

HOST = "127.0.0.1"
KEY_NAME = "RootManageSharedAccessKey"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxNamespace:
    """How a namespace is reached, and the `node` behind it for tests in the same process."""

    name: str
    amqp_port: int
    key_name: str
    key: str = field(repr=False)
    node: Node = field(repr=False)

    @property
    def connection_string(self) -> str:
        """For messaging over plain AMQP and, over TLS on the same port, for management."""
        key = f"SharedAccessKeyName={self.key_name};SharedAccessKey={self.key}"
        return f"Endpoint=sb://{HOST}:{self.amqp_port};{key};UseDevelopmentEmulator=true"

    @property
    def admin_url(self) -> str:
        return f"https://{HOST}:{self.amqp_port}"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A running sandbox. Clients over TLS trust `ca_file`; faults are switched at `control_url`."""

    namespaces: tuple[SandboxNamespace, ...]
    ca_file: Path
    control_url: str

    def __getitem__(self, name: str) -> SandboxNamespace:
        """The namespace called `name`; KeyError if there is none."""
        for namespace in self.namespaces:
            if namespace.name == name:
                return namespace
        raise KeyError(f"no namespace '{name}'; there are {', '.join(each.name for each in self.namespaces)}")

    @classmethod
    @asynccontextmanager
    async def start(
        cls, namespaces: Sequence[NamespaceSpec] | None = None, *, control_port: int = 0
    ) -> AsyncIterator[Sandbox]:
        """Run `namespaces`, by default a primary and a secondary one, for as long as the context lasts.

        Raises ListenError when a port is taken, ValueError for two namespaces of one name, and what
        `NamespaceSpec.fill` raises.
        """
        specs = tuple(primary_and_secondary() if namespaces is None else namespaces)
        if len({spec.name for spec in specs}) < len(specs):
            raise ValueError(f"namespaces need names of their own, not {', '.join(spec.name for spec in specs)}")
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="servicebus-sandbox-"))
            certificates = make_certificates(Path(folder))
            tls = certificates.server_context()
            opened = [await _open(spec, tls, stack) for spec in specs]
            control = ControlServer([each.node for each in opened])
            stack.push_async_callback(control.close)
            yield cls(tuple(opened), certificates.ca_file, await control.open(HOST, control_port))


async def _open(spec: NamespaceSpec, tls: ssl.SSLContext, stack: AsyncExitStack) -> SandboxNamespace:
    """Open one namespace; `stack` closes it."""
    key = base64.b64encode(secrets.token_bytes(32)).decode("ascii")
    node = Node(spec.name, rules=[root_rule(KEY_NAME, key)], tier=spec.tier)
    stack.callback(node.close)
    spec.fill(node.namespace)
    management = Management(node.namespace, authorization=node.authorization, clock=node.clock, changed=node.wake)
    https = HttpsServer(management, node.faults)
    stack.push_async_callback(https.close)
    listener = Listener(namespace=spec.name, amqp=node.protocol, https=https.protocol, tls=tls, faults=node.faults)
    stack.push_async_callback(listener.close)
    node.faults.watch(https.faults_changed)
    node.faults.watch(listener.faults_changed)
    port = await listener.open(HOST, spec.port)
    return SandboxNamespace(name=spec.name, amqp_port=port, key_name=KEY_NAME, key=key, node=node)
