"""AMQP 1.0 without I/O, both roles: bytes in, events out; actions in, bytes out.

    connection   the one object an owner drives; session, link, sender, receiver live inside it
    events       what it tells
    message      an encoded message's sections, kept raw
    codec, types values of AMQP; composite, performatives, outcomes, termini what is built of them

Rules: the standard library only; no sockets, no clock, no asyncio; bodies are never decoded.
"""

from console.amqp.connection import Connection
from console.amqp.outcomes import ACCEPTED, RELEASED, Accepted, Error, Modified, Rejected, Released
from console.amqp.receiver import ReceiverLink
from console.amqp.sender import SenderLink
from console.amqp.session import Session
from console.amqp.settings import LinkRole, Role, Settings
from console.amqp.termini import Source, Target

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
