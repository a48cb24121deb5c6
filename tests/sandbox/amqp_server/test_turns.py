"""A fast receiver leaves the others their turns: the server writes to it in portions, one for each turn."""

from __future__ import annotations

import asyncio
from collections import Counter

from servicebus_amqp.encoding.message_sections import Sections, write_data
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, FlowReceived
from servicebus_sandbox.amqp_server.server_protocol import TURN_BYTES

COUNT = 400
MESSAGE = Sections(body=write_data(bytes(1024))).join()


async def test_what_a_receiver_gets_in_a_turn_is_limited_and_all_of_it_comes(port, connect, monkeypatch):
    peer = await connect()
    await peer.authorize("orders")
    sender = await peer.attached(peer.sender("orders"))
    await peer.next(FlowReceived)
    for number in range(COUNT):
        sender.send(MESSAGE, tag=number.to_bytes(4, "big"), settled=True)
    peer.flush()
    await port.until(lambda: port.counts("orders").active == COUNT)
    receiver = await peer.attached(peer.receiver("orders"))

    turn, written = 0, Counter[int]()
    loop = asyncio.get_running_loop()

    def tick() -> None:
        nonlocal turn, ticking
        turn += 1
        ticking = loop.call_soon(tick)

    ticking = loop.call_soon(tick)
    (connection,) = port.node.connections
    transport = connection._transport
    write = transport.write

    def count(data: bytes) -> None:
        written[turn] += len(data)
        write(data)

    monkeypatch.setattr(transport, "write", count)
    receiver.flow(COUNT)
    peer.flush()
    for _ in range(COUNT):
        await peer.next(DeliveryReceived)
    ticking.cancel()
    assert sum(written.values()) > COUNT * len(MESSAGE)
    assert max(written.values()) <= 1.1 * TURN_BYTES, "with frames, and the message that fills it"
