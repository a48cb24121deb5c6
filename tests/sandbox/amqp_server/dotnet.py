"""The frames of Microsoft's .NET client, Azure.Messaging.ServiceBus on Microsoft.Azure.Amqp, written by hand.

The client needs .NET, so its frames were taken from its source. Each builder names the place: "amqp" is the repository
Azure/azure-amqp (folder src), "sdk" is Azure/azure-sdk-for-net (sdk/servicebus/Azure.Messaging.ServiceBus/src). Demands
of the client on an answer are checked here, with the place that makes them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from tests.sandbox.amqp_server.dotnet_values import Raw, composite, sections_of, source_of, target_of

from servicebus_amqp.access import sign
from servicebus_amqp.encoding.codec import (
    Array,
    Described,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    described,
    encode,
)
from servicebus_amqp.encoding.frames import AMQP_FRAME, AMQP_HEADER, HEADER_SIZE, SASL_FRAME, SASL_HEADER, build_frame
from servicebus_amqp.encoding.frames import unpack_frame_header as unpack

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
MECHANISMS, INIT, OUTCOME = 0x40, 0x41, 0x44
SETTLED, SECOND = UByte(1), UByte(1)
BATCH_FORMAT = UInt(0x80013700)
LARGEST = 2**32 - 1
PATIENCE = 60.0
"""Seconds."""


@dataclass
class Frame:
    """`link`: of a transfer."""

    channel: int
    code: int
    fields: list[Any]
    payload: bytes
    link: Any = None


@dataclass
class Link:
    """One end of a link: its credit as amqp: AmqpLink.cs, ProcessFlow, counts it."""

    session: Session
    handle: int
    name: str
    is_receiver: bool
    delivery_count: int = 0
    credit: int = 0
    attach: list[Any] = field(default_factory=list)
    deliveries: deque[Frame] = field(default_factory=deque)
    flows: deque[list[Any]] = field(default_factory=deque)
    is_detached: bool = False
    error: Any = None

    def on_flow(self, fields: list[Any]) -> None:
        self.flows.append(fields)
        if not self.is_receiver:
            limit = (fields[5] or 0) + fields[6]
            self.credit = max(0, self.credit + limit - (self.delivery_count + self.credit))


@dataclass
class Session:
    """amqp: AmqpSession.cs. `window` is the incoming one."""

    client: DotNet
    channel: int
    window: int
    next_incoming_id: int = 0
    next_outgoing_id: int = 1
    next_delivery_id: int = 0
    links: list[Link] = field(default_factory=list)
    by_remote_handle: dict[int, Link] = field(default_factory=dict)
    settled: dict[int, Any] = field(default_factory=dict)
    is_begun: bool = False
    is_ended: bool = False

    def write(self, code: int, *fields: Any, payload: bytes = b"") -> None:
        self.client.write(self.channel, composite(code, *fields) + payload)

    def attach(
        self,
        name: str,
        is_receiver: bool,
        *,
        modes: tuple[Any, Any],
        source: Raw,
        target: Raw,
        properties: dict[Any, Any] | None,
        count: Any = None,
    ) -> Link:
        """amqp: AmqpLink.cs, OpenInternal, and Framing/Attach.cs: the settings are the attach."""
        link = Link(self, len(self.links), name, is_receiver)
        self.links.append(link)
        self.write(
            ATTACH,
            name,
            UInt(link.handle),
            is_receiver,
            *modes,
            source,
            target,
            None,
            None,
            count,
            None,
            None,
            None,
            properties,
        )
        return link

    def flow(self, link: Link, credit: int, *, drain: bool | None = None) -> None:
        """amqp: AmqpLink.cs, SendFlowInternal, and AmqpSession.cs, AddFlowState."""
        link.credit = credit
        self.write(
            FLOW,
            UInt(self.next_incoming_id),
            UInt(self.window),
            UInt(self.next_outgoing_id),
            UInt(5000),
            UInt(link.handle),
            UInt(link.delivery_count),
            UInt(credit),
            UInt(0),
            drain,
            False,
            None,
        )

    def transfer(
        self,
        link: Link,
        tag: bytes,
        payload: bytes,
        *,
        kind: Any = None,
        settled: bool | None = None,
        batchable: bool = False,
    ) -> int:
        """amqp: AmqpLink.cs, SendDelivery."""
        assert link.credit > 0, "the client would wait for credit"
        link.credit -= 1
        link.delivery_count += 1
        number, self.next_delivery_id = self.next_delivery_id, self.next_delivery_id + 1
        self.next_outgoing_id += 1
        self.write(
            TRANSFER,
            UInt(link.handle),
            UInt(number),
            tag,
            kind or UInt(0),
            settled,
            False,
            None,
            None,
            False,
            False,
            batchable,
            payload=payload,
        )
        return number

    def close(self) -> None:
        """sdk: Amqp/AmqpConnectionScope.cs, CloseLink; amqp: AmqpSession.cs, CloseInternal: no answer is awaited."""
        for link in self.links:
            self.write(DETACH, UInt(link.handle), True, None)
        self.write(END, None)


class Requests:
    """amqp: RequestResponseAmqpLink.cs: two links in one session, their requests settled as they are sent."""

    def __init__(self, session: Session, name: str, address: str, properties: dict[Any, Any]) -> None:
        self.session, self.reply_to, self.sent = session, uuid4().hex, 0
        nowhere, node = source_of(None), target_of(address)
        self.requests = session.attach(
            f"{name}:sender", False, modes=(SETTLED, None), source=nowhere, target=node, properties=properties
        )
        source, target = source_of(address), target_of(self.reply_to)
        self.replies = session.attach(
            f"{name}:receiver", True, modes=(SETTLED, None), source=source, target=target, properties=properties
        )
        session.flow(self.replies, 50)  # ReceivingAmqpLink.cs, OpenInternal: behind the attach, before its answer

    async def ask(self, properties: dict[str, Any], body: Any) -> tuple[dict[Any, Any], Any]:
        """RequestAsyncResult: an id of text, the address of the reply link, an empty delivery tag."""
        client, self.sent = self.session.client, self.sent + 1
        asked = f"duplex{self.session.channel}:{self.sent}"
        fields = [asked, None, None, None, self.reply_to, *[None] * 8]
        data = composite(0x73, *fields) + described(0x74, encode(properties)) + described(0x77, encode(body))
        await client.until(lambda: self.requests.credit > 0, "credit for a request")
        self.session.transfer(self.requests, b"", data, settled=True)
        await client.until(lambda: self.replies.deliveries, f"the reply to {properties['operation']}")
        sections = sections_of(self.replies.deliveries.popleft().payload)
        assert sections[0x73][5] == asked, "OnResponseMessage finds the request by the correlation-id"
        if self.sent % 33 == 0:  # AmqpLinkSettings.cs: FlowThreshold is two thirds of the credit
            self.session.flow(self.replies, 50)
        return sections[0x74], sections[0x77]


class DotNet:
    """One connection (sdk: Amqp/AmqpConnectionScope.cs)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, key: tuple[str, str]):
        self.reader, self.writer, self.host, self.key = reader, writer, host, key
        self.sessions: list[Session] = []
        self.by_remote_channel: dict[int, Session] = {}
        self.is_closed = False
        self._opened: list[Any] | None = None
        self._tags = 0

    async def open(self) -> DotNet:
        """CreateAndOpenConnectionAsync: SASL, then a connection whose header and open leave together."""
        self.writer.write(SASL_HEADER)  # amqp: Transport/AmqpTransportInitiator.cs, WriteSecurityHeader
        assert await self._exactly(HEADER_SIZE) == SASL_HEADER
        offered = (await self._frame(SASL_FRAME)).fields[0]
        names = offered.values if isinstance(offered, Array) else [offered]
        assert "MSSBCBS" in names, "amqp: Sasl/SaslNegotiator.cs, OnSaslServerMechanisms, knows no other"
        self._write(build_frame(0, composite(INIT, Symbol("MSSBCBS"), None, None), SASL_FRAME))
        assert (await self._frame(SASL_FRAME)).fields[0] == 0
        self.writer.write(AMQP_HEADER)  # amqp: AmqpConnection.cs, OpenInternal
        properties = {
            Symbol("product"): "Azure.Messaging.ServiceBus",
            Symbol("version"): "7.20.1",
            Symbol("platform"): "Linux",
            Symbol("user-agent"): "azsdk-net-Messaging.ServiceBus/7.20.1",
        }
        self.write(
            0,
            composite(
                OPEN,
                f"sb://{self.host}/-0a1b2c3d",
                self.host,
                UInt(65536),
                UShort(8191),
                UInt(30000),
                None,
                None,
                None,
                None,
                properties,
            ),
        )
        assert await self._exactly(HEADER_SIZE) == AMQP_HEADER
        await self.until(lambda: self._opened is not None, "open")
        assert self._opened is not None
        idle = self._opened[4]
        assert idle is None or idle >= 5000, "amqp: AmqpConnection.cs, OnReceiveOpen, refuses a shorter time"
        self.cbs = Requests(
            await self.begin(5000), "duplex1:1:2", "$cbs", {Symbol("com.microsoft:timeout"): UInt(60000)}
        )
        return self

    async def begin(self, window: int = LARGEST) -> Session:
        """CreateAndOpenSessionAsync: a session for each link; its window is unlimited but for requests."""
        session = Session(self, len(self.sessions), window)
        self.sessions.append(session)
        session.write(BEGIN, None, UInt(1), UInt(window), UInt(5000), UInt(262143), None, None, {})
        await self.until(lambda: session.is_begun, "begin")
        return session

    async def put_token(self, audience: str) -> dict[Any, Any]:
        """amqp: Cbs/AmqpCbsLink.cs, SendTokenAsync; sdk: Authorization/SharedAccessSignature.cs, BuildSignature."""
        expires = time.time() + 1800
        asked = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
            "expiration": Timestamp(int(expires * 1000)),
        }
        answer, _ = await self.cbs.ask(asked, sign(f"amqps://{self.host}/", *self.key, expires))
        assert type(answer["status-code"]) is Int, "it is cast to int"
        assert isinstance(answer["status-description"], str)
        return answer

    async def authorize(self, path: str) -> None:
        answer = await self.put_token(f"amqps://{self.host}/{path}")
        assert answer["status-code"] in (200, 202)

    async def sender(self, entity: str) -> Link:
        """CreateSendingLinkAsync; sdk: Amqp/AmqpSender.cs, CreateLinkAndEnsureSenderStateAsync."""
        await self.authorize(entity)
        session = await self.begin()
        source, target = source_of(str(uuid4())), target_of(f"/{entity}")
        properties = {Symbol("com.microsoft:timeout"): UInt(59_900)}
        link = session.attach(
            f"sb://x;1:{session.channel}:4",
            False,
            modes=(None, None),
            source=source,
            target=target,
            properties=properties,
            count=UInt(0),
        )
        await self.opened(link)
        assert isinstance(link.attach[10], ULong), "max-message-size is cast to long"
        await self.until(lambda: link.credit > 0, "credit for a message")
        return link

    async def receiver(self, entity: str, *, deletes: bool = False, session_id: Any = ...) -> Link:
        """CreateReceivingLinkAsync. `session_id` None is the next session, as AcceptNextSessionAsync asks for it."""
        await self.authorize(entity)
        session = await self.begin()
        filters = {} if session_id is ... else {Symbol("com.microsoft:session-filter"): session_id}
        link = session.attach(
            f"sb://x;1:{session.channel}:5:source(address:/{entity},filter:[])",
            True,
            modes=(SETTLED, None) if deletes else (None, SECOND),
            properties=None,
            source=source_of(f"/{entity}", filters),
            target=target_of(str(uuid4())),
        )
        await self.opened(link)
        return link

    async def management(self, entity: str) -> Requests:
        """CreateManagementLinkAsync: the address has no slash before it."""
        await self.authorize(f"{entity}/$management")
        properties = {Symbol("com.microsoft:timeout"): UInt(59_900), Symbol("com.microsoft:entity-type"): "entity-mgmt"}
        session = await self.begin(5000)
        made = Requests(session, f"duplex1:{session.channel}:7", f"{entity}/$management", properties)
        await self.opened(made.requests)
        await self.opened(made.replies)
        return made

    async def opened(self, link: Link) -> None:
        """amqp: AmqpLink.cs, OnReceiveAttach."""
        await self.until(lambda: link.attach or link.error, f"attach of {link.name}")
        if link.attach[5 if link.is_receiver else 6] is None:
            await self.until(lambda: link.is_detached, "the detach that says why")
            raise Refused(link.error)
        if link.is_receiver:
            assert link.attach[9] is not None, "initial-delivery-count is read without a look"
            link.delivery_count = link.attach[9]

    async def send(self, link: Link, payload: bytes, *, kind: Any = None) -> Any:
        """sdk: Amqp/AmqpSender.cs, SendBatchInternalAsync: the tag counts in four bytes; the outcome is awaited."""
        self._tags += 1
        number = link.session.transfer(link, self._tags.to_bytes(4, "little"), payload, kind=kind, batchable=True)
        await self.until(lambda: number in link.session.settled, "the outcome of a send")
        return link.session.settled.pop(number)

    async def receive(self, link: Link, count: int) -> list[Frame]:
        """amqp: ReceivingAmqpLink.cs, DoCheckWaiter: without prefetch, credit for what was asked is added."""
        link.session.flow(link, link.credit + count)
        await self.until(lambda: len(link.deliveries) >= count, f"{count} messages")
        return [link.deliveries.popleft() for _ in range(count)]

    async def drain(self, link: Link) -> None:
        """amqp: ReceivingAmqpLink.cs, DrainAsyncResult, and AmqpLink.cs, ProcessFlow."""
        link.flows.clear()
        link.session.flow(link, link.credit, drain=True)
        await self.until(lambda: any(flow[6] == 0 for flow in link.flows), "the answer to a drain")
        assert link.flows[-1][5] is not None, "delivery-count is read without a look"
        link.delivery_count, link.credit = link.flows[-1][5], 0

    async def settle(self, delivery: Frame, outcome: Raw) -> Any:
        """sdk: Amqp/AmqpReceiver.cs, DisposeMessageAsync; amqp: AmqpSession.cs, SendDisposition: not settled yet."""
        session, number = delivery.link.session, delivery.fields[1]
        session.write(DISPOSITION, True, UInt(number), None, False, outcome, None)
        await self.until(lambda: number in session.settled, "the answer to an outcome")
        return session.settled.pop(number)

    async def close(self) -> None:
        """amqp: AmqpConnection.cs, CloseInternal."""
        for session in self.sessions:
            if not session.is_ended:
                session.close()
        self.write(0, composite(CLOSE, None))
        await self.until(lambda: self.is_closed, "close")

    # frames

    def write(self, channel: int, body: bytes) -> None:
        self._write(build_frame(channel, body, AMQP_FRAME))

    def _write(self, data: bytes) -> None:
        self.writer.write(data)

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        """Read frames until the condition holds."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    self._on_frame(await self._frame(AMQP_FRAME))
        except TimeoutError:
            raise AssertionError(f"the client still waits for {what}") from None

    async def _exactly(self, count: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(count), PATIENCE)

    async def _frame(self, kind: int) -> Frame:
        head = await self.reader.readexactly(8)
        size, _, found, channel = unpack(head, 0)
        assert found == kind
        body = await self.reader.readexactly(size - 8)
        if not body:
            return Frame(channel, 0, [], b"")
        performative, end = decode(body, 0)
        return Frame(channel, int(performative.descriptor), performative.value, body[end:])

    def _on_frame(self, frame: Frame) -> None:
        if frame.code == OPEN:
            self._opened = frame.fields
        elif frame.code == CLOSE:
            assert frame.fields[0] is None, f"the connection was closed: {frame.fields[0]}"
            self.is_closed = True
        elif frame.code == BEGIN:
            session = self.by_remote_channel[frame.channel] = self.sessions[frame.fields[0]]
            session.next_incoming_id, session.is_begun = frame.fields[1], True
        elif frame.code:
            self._on_session_frame(self.by_remote_channel[frame.channel], frame)

    def _on_session_frame(self, session: Session, frame: Frame) -> None:
        fields = frame.fields
        if frame.code == END:
            assert fields[0] is None, f"the session was ended: {fields[0]}"
            session.is_ended = True
        elif frame.code == DISPOSITION and fields[3]:
            session.settled |= dict.fromkeys(range(fields[1], (fields[2] or fields[1]) + 1), fields[4])
        elif frame.code == ATTACH:
            link = next(link for link in session.links if link.name == fields[0])
            session.by_remote_handle[fields[1]], link.attach = link, fields
        elif frame.code == FLOW and fields[4] is not None:
            session.by_remote_handle[fields[4]].on_flow(fields)
        elif frame.code == DETACH:
            link = session.by_remote_handle[fields[0]]
            link.is_detached, link.error = True, fields[2]
        elif frame.code == TRANSFER:
            session.next_incoming_id += 1
            frame.link = link = session.by_remote_handle[fields[0]]
            link.delivery_count += 1
            link.credit -= 1
            link.deliveries.append(frame)


class Refused(Exception):
    """The server refused a link; `condition` says why."""

    def __init__(self, error: Described) -> None:
        super().__init__(error.value[1])
        self.condition = error.value[0]
