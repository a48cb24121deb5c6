"""The events that `Connection.receive_data` returns.

Rules: events have the order of the frames that caused them. Later frames of the same read are already processed then:
a link may be detached after its AttachRequested, and actions on it do nothing (only `send` raises). A link ends with
exactly one Detached, a session with one SessionEnded, a connection with one Closed or ConnectionFailed. The links of
an ended session get a Detached each; a closed connection ends its sessions and links silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from servicebus_amqp.encoding.messaging_types import Coordinator, DeliveryState, Error, Source, Target
from servicebus_amqp.encoding.performatives import Attach
from servicebus_amqp.protocol.connection_settings import LinkRole


class SessionEnd(Protocol):
    """Our end of a session, a `Session`."""

    channel: int

    def end(self, error: Error | None = None) -> None: ...


class LinkEnd(Protocol):
    """Our end of a link, a `SenderLink` or a `ReceiverLink`; the methods are those of `Link`."""

    name: str

    @property
    def role(self) -> LinkRole: ...
    @property
    def is_requested(self) -> bool: ...
    def accept_attach(self, *termini: Any, **answer: Any) -> None: ...
    def refuse(self, error: Error) -> None: ...
    def detach(self, *, closed: bool = True, error: Error | None = None) -> None: ...


class SettlingEnd(LinkEnd, Protocol):
    """A link end with deliveries."""

    def holds(self, delivery_id: int, /) -> bool: ...
    def settle(self, delivery_id: int, state: DeliveryState | None, /, *, settled: bool = True) -> None: ...


@dataclass(frozen=True, slots=True)
class HeaderReceived:
    """The peer's protocol header. sasl: whether it is that of the SASL layer."""

    sasl: bool


@dataclass(frozen=True, slots=True)
class SaslDone:
    mechanism: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer's open; a server has already answered it."""

    hostname: str | None
    container_id: str
    properties: dict[Any, Any] | None


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """A session is open on both sides; a server has already answered its begin."""

    session: SessionEnd


@dataclass(frozen=True, slots=True)
class AttachRequested:
    """The peer requests a link; answer with `link.accept_attach` or `link.refuse`. `role` is our end."""

    link: LinkEnd
    attach: Attach

    @property
    def name(self) -> str:
        return self.attach.name

    @property
    def role(self) -> LinkRole:
        return self.link.role

    @property
    def source(self) -> Source | None:
        return self.attach.source

    @property
    def target(self) -> Target | Coordinator | None:
        return self.attach.target

    @property
    def properties(self) -> dict[Any, Any]:
        return self.attach.properties or {}


@dataclass(frozen=True, slots=True)
class Attached:
    """The peer answered our attach. A refusal has null termini, and a Detached follows."""

    link: LinkEnd
    attach: Attach


@dataclass(frozen=True, slots=True)
class FlowReceived:
    """credit: messages that our sender may send now, or the rest of a peer's sender. properties: of the flow."""

    link: LinkEnd
    credit: int
    drain: bool
    echo: bool
    properties: dict[Any, Any] | None


class DeliveryReceived(NamedTuple):
    """A complete message. settled: the sender expects no answer."""

    link: SettlingEnd
    delivery_id: int
    tag: bytes
    message_format: int
    payload: bytes
    settled: bool


@dataclass(frozen=True, slots=True)
class DeliveryTooLarge:
    """A message above its link's max_message_size: dropped, and already rejected unless it came settled."""

    link: SettlingEnd
    delivery_id: int
    tag: bytes
    size: int
    settled: bool


class DispositionReceived(NamedTuple):
    """The peer's state of one delivery: one of ours on a SenderLink, one of its own on a ReceiverLink."""

    link: SettlingEnd
    delivery_id: int
    tag: bytes
    state: DeliveryState | None
    settled: bool


@dataclass(frozen=True, slots=True)
class Detached:
    """The link has ended; the peer's detach has been answered."""

    link: LinkEnd
    closed: bool
    error: Error | None


@dataclass(frozen=True, slots=True)
class SessionEnded:
    session: SessionEnd
    error: Error | None


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer closed the connection, or answered our close."""

    error: Error | None


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """The connection cannot continue; its close frame is queued. Send it, then close the transport."""

    error: Error


Event = (
    HeaderReceived
    | SaslDone
    | Opened
    | SessionBegun
    | AttachRequested
    | Attached
    | FlowReceived
    | DeliveryReceived
    | DeliveryTooLarge
    | DispositionReceived
    | Detached
    | SessionEnded
    | Closed
    | ConnectionFailed
)
