"""AMQP 1.0 without I/O, for both roles: bytes in, events out; actions in, bytes out.

    protocol.connection       the object that an owner drives; sessions and links live inside it
    protocol.protocol_events  its events
    encoding.message_sections an encoded message's sections, kept raw
    encoding                  values of AMQP, composites, performatives, delivery states, termini
    node_address              addresses of links and audiences of tokens

Rules: the standard library only; no sockets, no clock, no asyncio. Bodies are never decoded.
"""

from servicebus_amqp.encoding.messaging_types import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Error,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
)
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings, LinkRole
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.session import Session

__all__ = [
    "ACCEPTED",
    "RELEASED",
    "Accepted",
    "Connection",
    "ConnectionRole",
    "ConnectionSettings",
    "Error",
    "LinkRole",
    "Modified",
    "ReceiverLink",
    "Rejected",
    "Released",
    "SenderLink",
    "Session",
    "Source",
    "Target",
]
