"""An engine with a gateway, as a process of its own: `python -m tests.gateway_processes.engine`.

The first line of its input is its task; it answers with the connection string. Each further line is answered with its
figures; the input's end ends it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import msgspec

from paired_servicebus import Namespace, pair_namespaces
from paired_servicebus.engine.gateway.front_connection import FrontConnection
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.engine.gateway.keys.gateway_keys import GatewayRight, KeyRing, new_key

GRACE: Final = 5.0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is. Times in seconds; the defaults are those of a gateway and of a pairing."""

    primary: str
    secondary: str
    ca_file: str
    send_timeout: float = 10.0
    failover_interval: float = 60.0
    ping_primary_interval: float = 60.0


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the task."""

    connection_string: str


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway and its pairing count. opened, closed: connections of clients."""

    opened: int
    closed: int
    in_hand: int
    states: dict[str, str]
    diverted: int
    failovers: int
    moved: int


class Counted(set[FrontConnection]):
    """The gateway's connections, which counts those that came and went."""

    opened = 0
    closed = 0

    def add(self, connection: FrontConnection) -> None:
        self.opened += 1
        super().add(connection)

    def discard(self, connection: FrontConnection) -> None:
        self.closed += 1
        super().discard(connection)


def write(answer: Started | Figures) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


async def main() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    task = msgspec.json.decode(await reader.readline(), type=Task)
    sides = (
        Namespace.from_connection_string(one, options={"connection_verify": task.ca_file})
        for one in (task.primary, task.secondary)
    )
    opening = pair_namespaces(
        *sides, primary_name="primary", backlog_queue_count=2, enable_syphon=True, hold_until_failover=True,
        send_timeout=task.send_timeout, failover_interval=task.failover_interval,
        ping_primary_interval=task.ping_primary_interval,
    )  # fmt: skip
    async with opening as paired:
        key = new_key("senders", [GatewayRight.SEND])
        gateway = Gateway(paired, KeyRing([key]))
        counted = gateway.connections = Counted()
        await gateway.listen(0)
        write(Started(connection_string=gateway.connection_string(key)))
        while await reader.readline():
            views = paired.entity_views()
            write(
                Figures(
                    opened=counted.opened,
                    closed=counted.closed,
                    in_hand=gateway.in_hand.size,
                    states={view.path: str(view.state) for view in views},
                    diverted=sum(view.diverted for view in views),
                    failovers=sum(view.failovers for view in views),
                    moved=paired.syphon_view().moved,
                )
            )
        await gateway.close(GRACE)


if __name__ == "__main__":
    asyncio.run(main())
