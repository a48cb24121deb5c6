"""Gateways before the namespaces of a sandbox, in a process of their own: `python -m tests.conformance.gateways`.

The first line of its input names the namespaces; it answers with a connection string for each, with every right. They
administrate too. The input's end ends it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from paired_servicebus import Namespace, pair_namespaces
from paired_servicebus.config import NamespaceConfig
from paired_servicebus.engine.clients.client_factory import NamespaceCredentials
from paired_servicebus.engine.clients.namespace_requests import NamespaceRequests
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, LocalKey, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.engine.gateway.gateway_tls import GatewayCertificates
from paired_servicebus.secret import Secret
from tests.conformance.checking import ENDING

SECONDARY: Final = "secondary"
ADDRESS: Final = "127.0.0.1"
TOGETHER: Final = 4
"""Pairings that are made at the same time."""


@contextmanager
def gateways(
    facts: Mapping[str, Any], secondary: str = SECONDARY, *, key: LocalKey | None = None
) -> Iterator[dict[str, str]]:
    """Yield the connection string of a gateway for each namespace of a sandbox but the secondary, by its name.

    key: the gateways' key; None: one of their own, with every right.
    """
    strings = {one["name"]: one["connection_string"] for one in facts["namespaces"]}
    asked = {"secondary": strings.pop(secondary), "primaries": strings, "ca_file": facts["ca_file"]}
    asked |= {"trust_file": trust_file(facts), "key": key and [key.name, key.key]}
    command = [sys.executable, "-m", "tests.conformance.gateways"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired:
                process.kill()


def trust_file(facts: Mapping[str, Any]) -> str:
    """Return the file of the authorities of a sandbox and, once it runs, of the gateways before it."""
    return str(Path(facts["ca_file"]).with_name("trust.pem"))


def authority_file(facts: Mapping[str, Any]) -> str:
    """Return the file of the gateways' authority alone."""
    return str(Path(facts["ca_file"]).with_name("gateway.tls") / ADDRESS / "ca.pem")


def primary_requests(connection_string: str, ca_file: str) -> NamespaceRequests:
    """Return the management of a sandbox's namespace."""
    host = connection_string.partition("//")[2].partition(";")[0].rstrip("/")
    config = NamespaceConfig(host=host, connection_string=Secret(connection_string), ca_file=Path(ca_file))
    return NamespaceRequests(config, NamespaceCredentials(config))


async def main() -> None:
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    asked = json.loads(await reader.readline())
    name, secret = asked["key"] or ("checks", None)
    key = LocalKey(name, frozenset(GatewayRight), secret) if secret else new_key(name, GatewayRight)
    turns = asyncio.Semaphore(TOGETHER)
    own = Path(asked["trust_file"])
    certificates = GatewayCertificates(own.parent / "gateway.tls", ADDRESS)
    own.write_text(Path(asked["ca_file"]).read_text() + certificates.authority())
    async with AsyncExitStack() as stack:

        async def serve(name: str, primary: str) -> str:
            sides = [
                Namespace.from_connection_string(one, options={"connection_verify": asked["ca_file"]})
                for one in (primary, asked["secondary"])
            ]
            opening = pair_namespaces(
                sides[0],
                sides[1],
                primary_name=name,
                backlog_queue_count=1,
                hold_until_failover=True,
                send_timeout=10.0,
            )
            async with turns:
                paired = await stack.enter_async_context(opening)
            administrated = primary_requests(primary, asked["ca_file"])
            gateway = Gateway(paired, KeyRing([key]), primary=administrated, tls=certificates.context)
            await gateway.listen(0)
            stack.push_async_callback(gateway.close, 0.0)
            return gateway.connection_string(key)

        primaries: dict[str, str] = asked["primaries"]
        made = await asyncio.gather(*(serve(name, primary) for name, primary in primaries.items()))
        print(json.dumps(dict(zip(primaries, made, strict=True))), flush=True)
        await reader.read()


if __name__ == "__main__":
    asyncio.run(main())
