"""Both ends of a wire for tests: two connections of ours, or one of ours against frames written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from servicebus_amqp.encoding.codec import Symbol
from servicebus_amqp.encoding.frames import AMQP_HEADER, build_frame, unpack_frame_header
from servicebus_amqp.encoding.performatives import (
    Attach,
    Begin,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
    read_performative,
    write_performative,
)
from servicebus_amqp.protocol import links
from servicebus_amqp.protocol.connection import Connection, Session
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings
from servicebus_amqp.protocol.links import ReceiverLink, SenderLink

E = TypeVar("E")
Handler = Callable[[links.Event], None]
NEAR_WRAP = 2**32 - 3


def settings(name: str = "peer", **changes: Any) -> ConnectionSettings:
    """Both counters start close to their wrap, and apart from each other."""
    defaults: dict[str, Any] = {"first_outgoing_id": NEAR_WRAP, "first_delivery_id": NEAR_WRAP + 1}
    return ConnectionSettings(container_id=name, **(defaults | changes))


def of_kind(kind: type[E], happened: list[links.Event]) -> list[E]:
    return [event for event in happened if isinstance(event, kind)]


def accept(event: links.Event) -> None:
    """A server that takes every link, gives credit, and touches nothing else."""
    if isinstance(event, links.AttachRequested):
        event.link.accept_attach()
        if isinstance(event.link, ReceiverLink):
            event.link.flow(100)


class Pair:
    """A client and a server of ours, back to back. Events of both sides are kept."""

    def __init__(
        self,
        client: ConnectionSettings | None = None,
        server: ConnectionSettings | None = None,
        on_server: Handler = accept,
    ) -> None:
        self.client = Connection(role=ConnectionRole.CLIENT, settings=client or settings("client"))
        self.server = Connection(role=ConnectionRole.SERVER, settings=server or settings("server"))
        self.on_server = on_server
        self.at_client: list[links.Event] = []
        self.at_server: list[links.Event] = []

    def run(self) -> Pair:
        """Carry bytes until neither side has any."""
        while True:
            up = self.client.data_to_send()
            for event in self.server.receive_data(up):
                self.at_server.append(event)
                self.on_server(event)
            down = self.server.data_to_send()
            self.at_client += self.client.receive_data(down)
            if not up and not down:
                return self

    def begin(self) -> Session:
        self.client.open()
        session = self.client.begin()
        self.run()
        return session

    def sender(self, name: str = "orders") -> SenderLink:
        session = self.begin()
        link = session.attach_sender(name, Source(address="here"), Target(address=name))
        self.run()
        return link

    def receiver(self, name: str = "orders") -> tuple[ReceiverLink, SenderLink]:
        """The client's receiver and the server's sender of one link."""
        link = self.begin().attach_receiver(name, Source(address=name), Target(address="here"))
        self.run()
        requested = of_kind(links.AttachRequested, self.at_server)[-1].link
        assert isinstance(requested, SenderLink)
        return link, requested


def frame(performative: Performative, payload: bytes = b"", *, channel: int = 0) -> bytes:
    return build_frame(channel, write_performative(performative) + payload)


def frames_in(data: bytes) -> list[tuple[int, Performative, bytes]]:
    """(channel, performative, payload) of all frames in bytes without protocol headers; empty frames left out."""
    found = []
    at = 0
    while at < len(data):
        size, _, _, channel = unpack_frame_header(data, at)
        body = data[at + 8 : at + size]
        if body:
            performative, end = read_performative(body, 0)
            found.append((channel, performative, body[end:]))
        at += size
    return found


def performatives_in(data: bytes) -> list[Performative]:
    return [performative for _, performative, _ in frames_in(data)]


def opened_server(**changes: Any) -> Connection:
    """A server that has been opened by a client without SASL; what it sent is thrown away."""
    server = Connection(role=ConnectionRole.SERVER, settings=settings("server", **changes))
    product = {Symbol("product"): "a client"}
    server.receive_data(AMQP_HEADER + frame(Open(container_id="client", hostname="contoso", properties=product)))
    server.data_to_send()
    return server


def begun_server(**changes: Any) -> Connection:
    """As `opened_server`, with a session on the client's channel 7."""
    server = opened_server(**changes)
    server.receive_data(frame(begin(), channel=7))
    server.data_to_send()
    return server


def begin(**changes: Any) -> Begin:
    values: dict[str, Any] = {"next_outgoing_id": NEAR_WRAP, "incoming_window": 1000, "outgoing_window": 1000}
    return Begin(**(values | changes))


def attach(handle: int = 0, **changes: Any) -> Attach:
    """A client's sender, unless `role=True` is given."""
    values: dict[str, Any] = {
        "name": f"link-{handle}",
        "handle": handle,
        "role": False,
        "source": Source(address="here"),
        "target": Target(address="orders"),
    }
    values |= changes
    if not values["role"]:
        values.setdefault("initial_delivery_count", 0)
    return Attach(**values)


def flow(**changes: Any) -> Flow:
    values: dict[str, Any] = {
        "next_incoming_id": NEAR_WRAP,
        "incoming_window": 1000,
        "next_outgoing_id": NEAR_WRAP,
        "outgoing_window": 1000,
    }
    return Flow(**(values | changes))


def transfer(delivery_id: int | None = 0, **changes: Any) -> Transfer:
    values: dict[str, Any] = {"handle": 0, "delivery_id": delivery_id, "delivery_tag": str(delivery_id).encode()}
    return Transfer(**(values | changes))


def receiving_server(
    *, credit: int = 100, accept_with: dict[str, Any] | None = None, **changes: Any
) -> tuple[Connection, ReceiverLink]:
    """A server with one receiving link, on the client's channel 7 and handle 0."""
    server = begun_server(**changes)
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(attach(), channel=7)))
    link = requested.link
    assert isinstance(link, ReceiverLink)
    link.accept_attach(**(accept_with or {}))
    if credit:
        link.flow(credit)
    server.data_to_send()
    return server, link


def sending_server(*, credit: int = 100, **changes: Any) -> tuple[Connection, SenderLink]:
    """A server with one sending link, on the client's channel 7 and handle 0."""
    server = begun_server(**changes)
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(attach(role=True), channel=7)))
    link = requested.link
    assert isinstance(link, SenderLink)
    link.accept_attach()
    server.receive_data(frame(flow(handle=0, delivery_count=0, link_credit=credit), channel=7))
    server.data_to_send()
    return server, link
