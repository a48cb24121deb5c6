"""AMQP 1.0 without I/O, both roles: bytes in, events out; actions in, bytes out.

    connection   the one object an owner drives; session, link, sender, receiver live inside it
    events       what it tells
    message      an encoded message's sections, kept raw
    codec, types values of AMQP; composite, performatives, outcomes, termini what is built of them

Rules: the standard library only; no sockets, no clock, no asyncio; bodies are never decoded.
"""

from servicebus_amqp.connection import Connection
from servicebus_amqp.outcomes import ACCEPTED, RELEASED, Accepted, Error, Modified, Rejected, Released
from servicebus_amqp.receiver import ReceiverLink
from servicebus_amqp.sender import SenderLink
from servicebus_amqp.session import Session
from servicebus_amqp.settings import LinkRole, Role, Settings
from servicebus_amqp.termini import Source, Target

__all__ = [
    "ACCEPTED",
    "RELEASED",
    "Accepted",
    "Connection",
    "Error",
    "LinkRole",
    "Modified",
    "ReceiverLink",
    "Rejected",
    "Released",
    "Role",
    "SenderLink",
    "Session",
    "Settings",
    "Source",
    "Target",
]
