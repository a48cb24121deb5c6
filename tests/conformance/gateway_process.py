"""A gateway of a pairing for one batch of Microsoft's tests; the namespace beside theirs is the secondary.

It reads the environment of the stand-ins. The tests' key is its local key, with every right. The first line that it
prints is JSON with its address; SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, LocalKey
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.pairing import SendAvailabilityPairedNamespaceOptions, pair_namespaces


async def main() -> None:
    given = {name: os.environ[f"SANDBOX_{name}"] for name in ("HOST_PORT", "KEY_NAME", "KEY", "CA", "BESIDE")}
    key = f"SharedAccessKeyName={given['KEY_NAME']};SharedAccessKey={given['KEY']}"
    tests = f"Endpoint=sb://{given['HOST_PORT']};{key};UseDevelopmentEmulator=true"
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_client=ServiceBusClient.from_connection_string(given["BESIDE"]),
        secondary_admin=ServiceBusAdministrationClient.from_connection_string(
            given["BESIDE"], connection_verify=given["CA"]
        ),
        backlog_queue_count=1,
        primary_name="tests",
        send_timeout=10.0,
        hold_until_failover=True,
    )
    async with await pair_namespaces(ServiceBusClient.from_connection_string(tests), options) as paired:
        gateway = Gateway(paired, KeyRing([LocalKey(given["KEY_NAME"], frozenset(GatewayRight), given["KEY"])]))
        await gateway.listen(0)
        print(json.dumps({"address": f"127.0.0.1:{gateway.port}"}), flush=True)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        await ended.wait()
        await gateway.close(1.0)


if __name__ == "__main__":
    asyncio.run(main())
