"""AMQP 1.0 without I/O, both roles: bytes in, events out; actions in, bytes out.

    connection   the one object an owner drives; session, link, sender, receiver live inside it
    events       what it tells
    message      an encoded message's sections, kept raw
    codec, types values of AMQP; composite, performatives, outcomes, termini what is built of them

Rules: the standard library only; no sockets, no clock, no asyncio; bodies are never decoded.
"""

from servicebus_amqp.encoding.delivery_states import ACCEPTED, RELEASED, Accepted, Error, Modified, Rejected, Released
from servicebus_amqp.encoding.termini import Source, Target
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
