"""A server's coordinator of transactions: the bodies of its messages, and the rule of a transaction's entities.

A session whose first link is a coordinator may span entities: its first link to one names the entity of its receivers,
and its senders may be of others. Every other transaction has one entity.
"""

from __future__ import annotations

from typing import Final, Protocol

from servicebus_amqp.encoding.message_sections import read_value, split
from servicebus_amqp.encoding.performatives import Declare, Discharge, read_composite
from servicebus_amqp.nodes.request_ends import AmqpRefusal, bad_argument
from servicebus_amqp.protocol_errors import DecodeError

MAX_BYTES: Final = 64 * 1024
"""Of one message to a coordinator."""
CREDIT: Final = 100
"""Messages that a client may send to a coordinator before it is granted more."""


def read_coordination(payload: bytes) -> Declare | Discharge | AmqpRefusal:
    """Return the body of a coordinator's message, or the refusal of another."""
    try:
        body = read_value(split(payload).body, read_composite)
    except DecodeError as error:
        return bad_argument(f"the message to the coordinator cannot be read: {error}")
    if isinstance(body, Declare) and body.global_id is not None:
        return AmqpRefusal("amqp:not-implemented", "a transaction with a global id is not served; leave it out", 501)
    return body if isinstance(body, Declare | Discharge) else bad_argument("a coordinator takes declare and discharge")


class EntityScope(Protocol):
    """The entities of a transaction, or of a session that begins with its coordinator.

    entity: the top-level entity of its first act or link, in lower case; None before it. spans_entities: sends may be
    to others.
    """

    spans_entities: bool | None
    entity: str | None


def admit_entity(scope: EntityScope, entity: str, *, is_send: bool) -> None:
    """Note the entity of an act or a link. Raises AmqpRefusal: it is one too many."""
    if scope.entity is None:
        scope.entity = entity
    elif scope.entity != entity and not (scope.spans_entities and is_send):
        text = (
            f"a transaction cannot span multiple top-level entities such as queue or topic: it has '{scope.entity}' "
            f"already, this is '{entity}'; let the client enable cross-entity transactions, and receive from one entity"
        )
        raise AmqpRefusal("amqp:not-allowed", text, 400)
